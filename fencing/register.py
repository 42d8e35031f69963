"""The register: one small object that is only ever changed by compare-and-swap.

A swap has three outcomes a client can see and only two that are true. The store may confirm
it; or it may stay silent, refuse, or fail, and then the write has happened or it has not.
"Refused" is no proof: a proxy that sends our request twice turns our own success into a
refusal. So whatever is not confirmed is settled by reading the register:

    what is read                                   verdict
    ---------------------------------------------  ------------------------------------
    our change, or something built on it           won
    the version we expected                        nothing happened yet: send the same again
    a version older than the one we expected       a stale read: look again
    anything else                                  lost

Sending the same bytes again is safe because every document is unique and every change makes
it greater (`rank`): the version we expected can never come back, so of all copies of our
request that are still on their way, at most one finds it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, Self, TypeVar

from penstock.effects import Create, Get, Replace, Steps, Wait
from penstock.errors import Corrupt, Invalid, Unavailable
from penstock.ids import ETag, Holder, Key, Token
from penstock.points import Point

__all__ = ["Document", "Landed", "Led", "Lost", "Register", "Seen", "Won", "read", "swap"]

SENDS_MAX = 8
"""How often one change is sent before its outcome is called unknown."""

LOOKS_MAX = 24
"""How often the register is read to settle one change."""

READS_MAX = 4
"""How often a document that does not decode is read again: a wire may flip a bit, once."""

PAUSE_S = 0.05
PAUSE_S_MAX = 2.0


class Landed(Enum):
    """What a later document tells about an earlier change."""

    YES = "it is this change, or was built on it"
    NO = "it was built without it"
    UNTOLD = "too much has happened since to tell"


class Document(Protocol):
    """What a register holds. Promise: each change is unique, and strictly greater in `rank`."""

    @property
    def rank(self) -> tuple[int, ...]:
        """Grows with every change."""

    def tells_of(self, change: Self, expected: Self | None) -> Landed:
        """Whether `change`, made to `expected`, is part of this document's past."""


class Led(Document, Protocol):
    """A document that says who may change it."""

    @property
    def token(self) -> Token:
        """The fencing token in force."""

    @property
    def holder(self) -> Holder:
        """Who holds it."""


D = TypeVar("D", bound=Document)


@dataclass(frozen=True, slots=True)
class Register(Generic[D]):
    """Where the document is, and how it is written down."""

    key: Key
    encode: Callable[[D], bytes]
    decode: Callable[[bytes], D]
    """Raises `Corrupt` for bytes that no `encode` has written."""


@dataclass(frozen=True, slots=True)
class Seen(Generic[D]):
    """A document, and the version it had when it was read."""

    document: D
    etag: ETag


@dataclass(frozen=True, slots=True)
class Won(Generic[D]):
    """Our change is in the register's past. `seen` may be a later document by somebody else."""

    seen: Seen[D]


@dataclass(frozen=True, slots=True)
class Lost(Generic[D]):
    """Somebody else's change came first. `landed` is never YES."""

    seen: Seen[D]
    landed: Landed


@dataclass(frozen=True, slots=True)
class _Swap(Generic[D]):
    """One change on its way, and the names of the places where it can crash."""

    register: Register[D]
    expected: Seen[D] | None
    new: D
    send_at: Point
    settle_at: Point


def read(register: Register[D], at: Point) -> Steps[Seen[D] | None]:
    """The document now, or None if there is none yet."""
    for remaining in reversed(range(READS_MAX)):
        stored = yield Get(at, register.key)
        if stored is None:
            return None
        try:
            return Seen(register.decode(stored.body), stored.etag)
        except (Corrupt, Invalid):  # a flipped bit can also make a format look new
            if not remaining:
                raise
        yield Wait(PAUSE_S)
    raise AssertionError("unreachable: the last read returns or raises")


def swap(
    register: Register[D], expected: Seen[D] | None, new: D, send_at: Point, settle_at: Point
) -> Steps[Won[D] | Lost[D]]:
    """Change the register from `expected` to `new`, and find out whether that happened.

    1. Send the conditional write, once.
    2. Confirmed: won.
    3. Anything else: read the register until it tells (see the table above).
    4. It still holds what we expected: back to 1 with the same bytes.

    Raises `Unavailable` when the outcome stays unknown: only a take-over settles it then,
    because a new version in the register is what a late copy of our write cannot survive.
    """
    change = _Swap(register, expected, new, send_at, settle_at)
    silence = "it was refused without a reason"
    for sent in range(SENDS_MAX):
        try:
            etag = yield from _send(change)  # 1
            if etag is not None:
                return Won(Seen(new, etag))  # 2
        except Unavailable as perhaps:  # it may have happened all the same
            silence = f"{perhaps.subject} {perhaps.found}"
        verdict = yield from _settle(change)  # 3
        if verdict is not None:
            return verdict
        yield Wait(_pause(sent))  # 4
    raise _unknown(register.key, silence)


def _send(change: _Swap[D]) -> Steps[ETag | None]:
    body = change.register.encode(change.new)
    key = change.register.key
    etag: ETag | None
    if change.expected is None:
        etag = yield Create(change.send_at, key, body)
    else:
        etag = yield Replace(change.send_at, key, body, change.expected.etag)
    return etag


def _settle(change: _Swap[D]) -> Steps[Won[D] | Lost[D] | None]:
    """Won, lost, or None when the register still holds what was expected."""
    expected = change.expected
    for looked in range(LOOKS_MAX):
        try:
            seen = yield from read(change.register, change.settle_at)
        except Unavailable:
            yield Wait(_pause(looked))
            continue
        if seen is None and expected is None:
            return None
        if seen is not None:
            before = None if expected is None else expected.document
            landed = seen.document.tells_of(change.new, before)
            if landed is Landed.YES:
                return Won(seen)
            if expected is None or seen.document.rank > expected.document.rank:
                return Lost(seen, landed)
            if seen.etag == expected.etag:
                return None
        yield Wait(_pause(looked))  # older than what we have already seen: look again
    raise _unknown(change.register.key, "it cannot be read")


def _pause(tries: int) -> float:
    return float(min(PAUSE_S * 2**tries, PAUSE_S_MAX))


def _unknown(key: Key, why: str) -> Unavailable:
    return Unavailable(
        key,
        f"was sent a change whose outcome the store would not tell ({why})",
        "start the job again; taking over settles whether the change happened",
    )
