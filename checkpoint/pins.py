"""Pins: an epoch kept by name, whatever retention says.

Pinning must not race with collecting, and it does so without a lock or a clock. The collector
reads HEAD's floor, then lists the pins. Whoever pins writes the pin first, and reads the floor
after. If the floor then still allows the epoch, every collector that could give it up has yet
to list the pins, and will find this one. Both looks must be fresh: this is the one place that
needs the store to show its latest HEAD and its latest listing, as every store here promises.

Each pin is an object of its own, named by a mark as well as by its name, and is only ever
removed by that full name: a request that arrives late cannot touch somebody else's pin.

An object below `pins/` that is no readable pin may be one that was damaged. What it keeps is not
known, so nothing is collected while it is there; no job stops for it, and only a person removes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.checkpoint.chain import Chain, is_listed
from penstock.checkpoint.formats import Ref, Sealed, seal, unseal
from penstock.checkpoint.head import Head
from penstock.checkpoint.layout import PIN_PREFIX, pin_key, pin_name_of, pin_prefix
from penstock.checkpoint.manifest import Manifest
from penstock.effects import Delete, Entry, Get, Page, Put, Steps, Wait
from penstock.errors import Corrupt, Gone, Invalid, PenstockError
from penstock.fields import FormatNumber, Name
from penstock.ids import Epoch, Generation, Key
from penstock.points import Point

__all__ = ["PIN_FORMAT", "Pin", "Pins", "list_pins", "pin", "read_pins", "unpin"]

PIN_FORMAT = 1
READS_MAX = 4
"""How often a pin that does not unseal is read again: a wire may flip a bit, once."""

PAUSE_S = 0.1

SIZE_BYTES_MAX = 1 << 16
"""No pin is larger: what is, is not read."""


class Pin(Sealed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One epoch that is to be kept."""

    format: FormatNumber = PIN_FORMAT
    name: Name
    mark: Name
    """Unique. Part of the object's name."""
    generation: Generation
    epoch: Epoch
    manifest: Ref


@dataclass(slots=True)
class Pins:
    """What is below `pins/`."""

    pins: list[Pin] = field(default_factory=list)
    unreadable: list[PenstockError] = field(default_factory=list)
    """One for each object that is no readable pin, with what to do about it."""

    def names(self) -> list[str]:
        """The names that pins have, readable or not."""
        damaged = (pin_name_of(error.subject) for error in self.unreadable)
        return sorted({pin.name for pin in self.pins} | {name for name in damaged if name})


def pin(chain: Chain, name: str, mark: str, epoch: Epoch | None = None) -> Steps[Pin]:
    """Keep `epoch`, by default the last committed one, until `unpin`. `mark` must be unique.

    1. Find the epoch's manifest; refuse a name that is taken.
    2. Write the pin.
    3. Look at HEAD again: if its floor has passed the epoch, or history was rewound, the pin
       may have come too late. Take it back and say so.
    """
    head = (yield from chain.head(Point.PIN_TARGET)).document
    at, ref = yield from _target(chain, head, epoch)  # 1
    if (yield Page(Point.PIN_TARGET, pin_prefix(name), "")):
        raise Invalid(f"pin {name}", "exists already", "choose another name or remove it first")
    wanted = Pin(name=name, mark=mark, generation=head.generation, epoch=at, manifest=ref)
    yield Put(Point.PIN_WRITE, pin_key(name, mark), seal(wanted))  # 2
    now = (yield from chain.head(Point.PIN_CHECK)).document
    if now.floor <= wanted.epoch and now.generation == head.generation:  # 3
        return wanted
    yield Delete(Point.PIN_REMOVE, pin_key(name, mark))
    raise _gone(wanted.epoch, now)


def unpin(name: str, mark: str | None = None) -> Steps[None]:
    """Let go of the pin with that mark, or of whatever is pinned by that name now, readable or
    not. An object that no pin is called stays where it is.

    Letting go twice is no error.
    """
    if mark is not None:
        yield Delete(Point.PIN_REMOVE, pin_key(name, mark))
        return
    after = ""
    while page := (yield Page(Point.PIN_REMOVE, pin_prefix(name), after)):
        for entry in page:
            if pin_name_of(entry.key) == name:
                yield Delete(Point.PIN_REMOVE, entry.key)
        after = page[-1].key


def read_pins(list_at: Point, read_at: Point) -> Steps[list[Pin]]:
    """Every pin there is. One that cannot be read raises: better to keep all than lose one."""
    found = yield from list_pins(list_at, read_at)
    if found.unreadable:
        raise found.unreadable[0]
    return found.pins


def list_pins(list_at: Point, read_at: Point) -> Steps[Pins]:
    """Every pin there is, and what else is there. Whoever removes something must not if any of
    it is unreadable: a pin may be among it."""
    found, after = Pins(), ""
    while page := (yield from _page(list_at, after, found)):
        for entry in page:
            try:
                pin = yield from _looked_at(entry, list_at, read_at)
            except Corrupt as damage:
                pin = damage
            if isinstance(pin, PenstockError):
                found.unreadable.append(pin)
            elif pin is not None:
                found.pins.append(pin)
        after = page[-1].key
    return found


def _page(list_at: Point, after: str, found: Pins) -> Steps[Sequence[Entry]]:
    """The next entries; none, with the reason in `found`, if there is something that cannot be
    listed, such as a link."""
    try:
        page: Sequence[Entry] = yield Page(list_at, PIN_PREFIX, after)
    except Corrupt as damage:
        found.unreadable.append(damage)
        return ()
    return page


def _looked_at(entry: Entry, list_at: Point, read_at: Point) -> Steps[Pin | PenstockError | None]:
    """A pin that was listed; what is wrong with an object that is none; None if it is gone. A store
    that refuses the request says nothing about the object: that is raised."""
    name = pin_name_of(entry.key)
    if name is None or entry.size_bytes > SIZE_BYTES_MAX:
        found = f"is no pin ({entry.size_bytes:,} bytes), and nothing is collected beside it"
        return Invalid(entry.key, found, "move it elsewhere if it is yours")
    try:
        pin = yield from _read(entry, list_at, read_at)
    except Corrupt as damage:
        raise _damaged(entry.key, damage.found, name) from damage
    if isinstance(pin, Pin) and f"{PIN_PREFIX}{pin.name}/{pin.mark}.json" != entry.key:
        raise _damaged(entry.key, f"says that it is pin {pin.name}", name)
    return pin


def _damaged(key: Key, found: str, name: str) -> Corrupt:
    return Corrupt(
        key,
        f"{found}; what it keeps is unknown, and nothing is collected",
        f"restore it from a copy, or let go of it with `penstock savepoint ROOT {name} --remove`",
    )


def _read(entry: Entry, list_at: Point, read_at: Point) -> Steps[Pin | Invalid | None]:
    """A pin that was listed, or why this version cannot read it. It is gone only if a new listing
    no longer shows it."""
    for remaining in reversed(range(READS_MAX)):
        stored = yield Get(read_at, entry.key)
        try:
            if stored is not None:
                return _decoded(entry.key, stored.body)
            if not (yield from is_listed(entry.key, list_at)):
                return None
            raise Corrupt(entry.key, "is listed and cannot be read", "look at the store")
        except Corrupt:
            if not remaining:
                raise
        yield Wait(PAUSE_S)
    raise AssertionError("unreachable: the last read returns or raises")


def _decoded(key: Key, body: bytes) -> Pin | Invalid:
    try:
        return unseal(key, body, Pin, PIN_FORMAT)
    except Invalid as newer:
        return newer


def _target(chain: Chain, head: Head, epoch: Epoch | None) -> Steps[tuple[Epoch, Ref]]:
    ref, at = head.manifest, head.epoch
    wanted = head.epoch if epoch is None else epoch
    if ref is None or not 1 <= wanted <= head.epoch:
        raise Invalid(
            f"epoch {wanted}",
            f"cannot be pinned: the last committed epoch is {head.epoch}",
            "choose a committed epoch",
        )
    if wanted < head.floor:
        raise _gone(wanted, head)
    while at > wanted:
        manifest: Manifest = yield from chain.manifest(ref, at, Point.PIN_TARGET)
        if manifest.parent is None:
            raise Corrupt(ref.key, "names no parent", "run `penstock fsck`")
        ref, at = manifest.parent, Epoch(at - 1)
    return at, ref


def _gone(epoch: Epoch, head: Head) -> Gone:
    return Gone(
        f"epoch {epoch}",
        f"is no longer kept: epochs below {head.floor} of generation {head.generation} "
        "have been given up",
        "pin a later epoch",
    )
