"""HEAD: the only object ever replaced, and therefore the only truth.

It names the last committed manifest and who may commit the next. It carries its own hash,
because nothing else names it; a flipped bit in a token must not pass for a token.
"""

from typing import Self

import msgspec

from penstock.checkpoint.formats import Ref, Sealed, seal, unseal
from penstock.checkpoint.layout import HEAD_KEY
from penstock.errors import Corrupt, Invalid
from penstock.fencing.register import Landed, Register
from penstock.fields import ORDINAL_MAX, FormatNumber
from penstock.ids import CommitId, Epoch, Generation, Holder, JobName, Token

__all__ = ["HEAD_FORMAT", "HEAD_REGISTER", "RECENT_MAX", "Head", "next_ordinal"]

HEAD_FORMAT = 1
RECENT_MAX = 64
"""How many commits back HEAD remembers, for leaders that never heard of their own success."""


def next_ordinal(what: str, number: int) -> int:
    """The number after one that HEAD holds; `Corrupt` if none can be stored after it."""
    if number >= ORDINAL_MAX:
        raise Corrupt(
            HEAD_KEY,
            f"holds {what} {number}, the last that can be stored",
            "it is forged or damaged: restore it from a copy; nothing was changed",
        )
    return number + 1


class Head(Sealed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who leads, what is committed, and how far back history is promised."""

    format: FormatNumber = HEAD_FORMAT
    job: JobName
    generation: Generation = Generation(1)
    token: Token
    holder: Holder
    epoch: Epoch = Epoch(0)
    manifest: Ref | None = None
    """The manifest of `epoch`; None while nothing is committed."""
    recent: tuple[tuple[Epoch, CommitId], ...] = ()
    """The last commits, oldest first; the last one is this epoch's."""
    floor: Epoch = Epoch(1)
    """The oldest epoch promised to readers. Below it, only what is pinned is kept."""

    @property
    def rank(self) -> tuple[int, int]:
        """Grows with every take-over and every commit."""
        return (self.token, self.epoch)

    def tells_of(self, change: Self, expected: Self | None) -> Landed:
        """Whether `change`, made to `expected`, is part of this HEAD's past."""
        if expected is None or change.token != expected.token:
            return self._tells_of_take_over(change)
        return self._tells_of_commit(change, expected)

    def _tells_of_take_over(self, change: Self) -> Landed:
        if self.token > change.token:
            return Landed.UNTOLD
        mine = (self.token, self.holder) == (change.token, change.holder)
        return Landed.YES if mine else Landed.NO

    def _tells_of_commit(self, change: Self, expected: Self) -> Landed:
        if change.recent[-1] in self.recent:
            return Landed.YES
        if self.generation != change.generation:
            return Landed.UNTOLD  # it may have landed and been rewound since
        # Our commit would stand right behind the one it was built on. If that one is still
        # remembered, so would ours be.
        complete = len(self.recent) < RECENT_MAX
        remembered = bool(expected.recent) and expected.recent[-1] in self.recent
        return Landed.NO if complete or remembered else Landed.UNTOLD

    def claimed(self, job: JobName, holder: Holder) -> Self:
        """This HEAD under a new leader."""
        if self.job != job:
            raise Invalid(
                HEAD_KEY,
                f"belongs to job {self.job!r}, not to {job!r}",
                "give this job a root of its own",
            )
        return msgspec.structs.replace(self, token=next_ordinal("token", self.token), holder=holder)

    def advanced(self, manifest: Ref, commit: CommitId, floor: Epoch) -> Self:
        """This HEAD with one more epoch committed."""
        epoch = Epoch(next_ordinal("epoch", self.epoch))
        return msgspec.structs.replace(
            self,
            epoch=epoch,
            manifest=manifest,
            recent=(*self.recent, (epoch, commit))[-RECENT_MAX:],
            floor=max(self.floor, floor),
        )


def _decode(body: bytes) -> Head:
    return unseal(HEAD_KEY, body, Head, HEAD_FORMAT)


HEAD_REGISTER: Register[Head] = Register(HEAD_KEY, seal, _decode)
"""Where HEAD is and how it is written."""
