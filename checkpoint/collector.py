"""The collector: removes what nothing retained can reach, and is safe at any moment.

It may run in several processes, beside a leader, in a leader that was deposed hours ago and
does not know. It asks no clock and no uploader, because of three rules:

- **An object's name says its epoch, and no name is used twice.** Only the manifest of epoch e
  may be the first to name an object of epoch e; later ones may name it again only as long as
  it is part of the lineage that is committed. So once HEAD has passed e, what HEAD's retained
  history does not reach never will be reached. What is above HEAD is somebody's work in
  progress: not ours.
- **HEAD's floor is the promise.** Everything from the floor up is kept, with whatever is
  needed to rebuild its state. The leader raises the floor in a commit; a collector only obeys
  the floor it has read. So giving up and deleting are two steps with a commit between them.
- **Pins are listed after the floor was read** (see `penstock.checkpoint.pins` for the other half).

The grace is a courtesy on top, for readers that hold an old listing: an object is left alone
until HEAD has been written `grace_s` after it, both by the store's own clock.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.head import Head
from penstock.checkpoint.layout import EPOCH_PREFIXES, HEAD_KEY, epoch_of, token_of
from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.pins import Pin, list_pins
from penstock.checkpoint.recovery import LineageWalk
from penstock.effects import Delete, Entry, Page, Steps
from penstock.errors import Corrupt, Gone, Invalid
from penstock.fencing.heartbeat import HEARTBEAT_PREFIX
from penstock.ids import Epoch, Key
from penstock.points import Point

__all__ = ["Collected", "Retention", "collect"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much history to keep. An epoch is given up only when every rule allows it."""

    epochs: int = 100
    """At least this many of the last epochs."""
    age_s: float = 3600.0
    """Every epoch that was the last one less than this long before the present last one, by the
    steady time of the leaders: one bad reading of a clock makes no epoch older or younger."""
    grace_s: float = 600.0
    """How much older than HEAD's last write, by the store's clock, garbage must be."""

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.age_s < 0 or self.grace_s < 0:
            raise Invalid(
                "retention",
                f"of {self.epochs} epochs, {self.age_s} s, grace {self.grace_s} s keeps nothing",
                "keep at least one epoch, and no negative times",
            )


@dataclass(frozen=True, slots=True)
class Collected:
    """What one collection saw and did."""

    floor: Epoch
    """The floor it obeyed."""
    next_floor: Epoch
    """The floor that the retention allows: for `Leader.raise_floor`."""
    kept: int
    removed: int
    removed_bytes: int
    unreadable: tuple[str, ...] = ()
    """Why nothing was removed, and the floor stays: objects below `pins/` that are no readable
    pins. What they keep is unknown, so everything is kept."""


@dataclass(slots=True)
class _Reach:
    """The keys that must stay, gathered while walking."""

    keys: set[Key]
    next_floor: Epoch
    sinks: frozenset[str] = frozenset()
    """Every sink of the last epoch."""


def collect(
    chain: Chain, retention: Retention, needed: Mapping[str, Epoch] | None = None
) -> Steps[Collected]:
    """Remove what is out of reach. `needed` is, per sink, the oldest epoch it has yet to apply;
    a sink that is not in it is taken to need everything, so the floor stays where it is.

    1. Read HEAD: its floor is what we obey from here on, however long we take.
    2. Walk from HEAD to the floor, and on as far as the floor's state needs.
    3. List the pins, and walk from each. Only now: see `pins`. If one cannot be read, stop.
    4. Page through the objects. After each page look at HEAD again: if history was rewound
       since 1, stop, for epochs above the pin are being written anew.
    5. Remove what belongs to an epoch HEAD had reached in 1, and was not met in 2 or 3.
    """
    head = (yield from chain.head(Point.COLLECT_HEAD)).document  # 1
    reach = yield from _from_head(chain, head, retention)  # 2
    found = yield from list_pins(Point.COLLECT_PINS, Point.COLLECT_PIN)  # 3
    if found.unreadable:
        return Collected(head.floor, head.floor, 0, 0, 0, tuple(map(str, found.unreadable)))
    for pin in found.pins:
        try:
            yield from _from_pin(chain, pin, reach.keys)
        except Corrupt as damage:
            return Collected(head.floor, head.floor, 0, 0, 0, (_does_not_hold(pin, damage),))
    kept, removed, removed_bytes = yield from _sweep(chain, head, reach.keys, retention)
    floors = [(needed or {}).get(sink, head.floor) for sink in reach.sinks]
    next_floor = max(head.floor, min([reach.next_floor, *floors]))
    return Collected(head.floor, next_floor, kept, removed, removed_bytes)


def _from_head(chain: Chain, head: Head, retention: Retention) -> Steps[_Reach]:
    """Everything from HEAD down to the floor, and the floor that the retention would allow."""
    reach = _Reach(set(), head.floor)
    ref, newest, later, floor_met = head.manifest, None, None, False
    while ref is not None:
        epoch = Epoch(later.epoch - 1) if later is not None else head.epoch
        manifest = yield from chain.manifest(ref, epoch, Point.COLLECT_MANIFEST)
        if newest is None:
            newest, reach.sinks = manifest, frozenset(manifest.sinks)
        reach.keys.add(ref.key)
        if not floor_met and not _keeps(retention, manifest, later, newest):
            reach.next_floor, floor_met = Epoch(manifest.epoch + 1), True
        if manifest.epoch <= head.floor:
            yield from _walk(chain, manifest, head.floor, reach.keys)
            break
        reach.keys.update(named.key for named in manifest.refs())
        later, ref = manifest, manifest.parent
    return reach


def _from_pin(chain: Chain, pin: Pin, keys: set[Key]) -> Steps[None]:
    """Everything a pin keeps. One whose manifest is really gone was never confirmed to anybody:
    its request arrived after its writer had given up. It keeps nothing and must not stop us."""
    keys.add(pin.manifest.key)
    with suppress(Gone):
        newest = yield from chain.manifest(pin.manifest, pin.epoch, Point.COLLECT_MANIFEST)
        yield from _walk(chain, newest, pin.epoch, keys)


def _does_not_hold(pin: Pin, damage: Corrupt) -> str:
    """Damage, or a pin whose request arrived after its writer had given up: nothing tells which,
    so everything is kept."""
    why = f"pin {pin.name} of epoch {pin.epoch} does not hold ({damage.subject} {damage.found})"
    return f"{why}: let go of it with `penstock savepoint ROOT {pin.name} --remove`."


def _keeps(
    retention: Retention, manifest: Manifest, later: Manifest | None, newest: Manifest
) -> bool:
    """Whether the retention wants this epoch. Its age counts from when it was superseded: an
    epoch that was the last one for a week is a second old when the next one comes."""
    if later is None or newest.epoch - manifest.epoch < retention.epochs:
        return True
    return (newest.at_ms - later.at_ms) / 1000 < retention.age_s


def _walk(chain: Chain, oldest: Manifest, floor: Epoch, keys: set[Key]) -> Steps[None]:
    """Keep all of `oldest`, and of its past what its state is made of."""
    walk = LineageWalk()
    manifest = oldest
    keys.update(ref.key for ref in manifest.refs())
    while True:
        walk.add(manifest)
        epoch = Epoch(manifest.epoch - 1)
        if manifest.parent is None or not walk.needs(epoch):
            break
        keys.add(manifest.parent.key)
        manifest = yield from chain.manifest(manifest.parent, floor, Point.COLLECT_MANIFEST)
    for lineage in walk.lineages().values():
        keys.update(ref.key for ref in lineage.refs())
    yield from _keep_tail(chain, oldest, floor, keys)


def _keep_tail(chain: Chain, manifest: Manifest, floor: Epoch, keys: set[Key]) -> Steps[None]:
    """Keep the manifests that name files of a table which its index does not list yet: whoever
    goes back to this epoch needs them."""
    listed = min((index.epoch for index in manifest.tables.values()), default=manifest.epoch)
    while manifest.parent is not None and (
        manifest.epoch > listed + 1 or manifest.follows_unlisted_files()
    ):
        keys.add(manifest.parent.key)
        manifest = yield from chain.manifest(manifest.parent, floor, Point.COLLECT_MANIFEST)


def _sweep(
    chain: Chain, head: Head, reachable: set[Key], retention: Retention
) -> Steps[tuple[int, int, int]]:
    horizon_s = yield from _horizon(retention)
    kept = removed = removed_bytes = 0
    for prefix in (*EPOCH_PREFIXES, HEARTBEAT_PREFIX):
        after = ""
        while page := (yield Page(Point.COLLECT_LIST, prefix, after)):  # 4
            after = page[-1].key
            now = (yield from chain.head(Point.COLLECT_RECHECK)).document
            if now.generation != head.generation:
                return kept, removed, removed_bytes
            garbage = _garbage(page, head, reachable, horizon_s)
            for entry in garbage:  # 5
                yield Delete(Point.COLLECT_DELETE, entry.key)
            kept += len(page) - len(garbage)
            removed += len(garbage)
            removed_bytes += sum(entry.size_bytes for entry in garbage)
    return kept, removed, removed_bytes


def _horizon(retention: Retention) -> Steps[float]:
    """Garbage must have been written before this, by the store's clock."""
    for entry in (yield Page(Point.COLLECT_LIST, HEAD_KEY, "")):
        if entry.key == HEAD_KEY:
            return float(entry.modified_s - retention.grace_s)
    return float("-inf")


def _garbage(
    page: Sequence[Entry], head: Head, reachable: set[Key], horizon_s: float
) -> list[Entry]:
    return [
        entry
        for entry in page
        if entry.modified_s <= horizon_s
        and entry.key not in reachable
        and _is_past(entry.key, head)
    ]


def _is_past(key: Key, head: Head) -> bool:
    epoch, token = epoch_of(key), token_of(key)
    if epoch is not None:
        return epoch <= head.epoch
    return token is not None and token < head.token
