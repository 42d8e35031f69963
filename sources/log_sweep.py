"""Sweeping: removes what nothing names and nothing will, beside producers at work.

A producer that dies between staging and its swap leaves a segment that no TAIL names; so does a
lost compaction. Whether such an object is still wanted cannot be asked, but it can be ruled out:
TAIL's floor, raised by swap, promises that nothing named below it is ever taken in. A sweep raises
the floor to where TAIL stood at the sweep before, so whoever is slower than the time between two
sweeps must stage again, and nobody else notices.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.clock import Chance
from penstock.effects import Delete, Entry, Page, Steps, Wait
from penstock.fencing.register import Seen, Won
from penstock.ids import CommitId
from penstock.points import Point
from penstock.sources.log_layout import partition_prefix, version_of
from penstock.sources.log_look import RACES_MAX, SPREAD_S, outrun, read_tail, steadily, swap_tail
from penstock.sources.log_pieces import reach
from penstock.sources.log_tail import Tail

__all__ = ["Swept", "sweep"]


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep of a partition removed."""

    objects: int
    size_bytes: int


def sweep(topic: str, partition: int, chance: Chance) -> Steps[Swept]:
    """Remove orphans.

    1. Raise the floor: from here on nothing below it can become part of the log.
    2. Walk from the TAIL that has this floor: what it reaches is part of the log now. Others may
       take from it meanwhile, and delete for themselves; nobody can add anything below the floor.
    3. Remove what is below the floor and was not reached.
    """
    seen = yield from _raise_floor(topic, partition, chance)  # 1
    if seen is None:
        return Swept(0, 0)
    floor, version = seen.document.floor, seen.document.version
    reached = yield from steadily(topic, partition, _reached, version)  # 2
    objects = size_bytes = 0
    for folder in ("segments/", "pages/"):
        after, prefix = "", partition_prefix(partition) + folder
        while page := (yield Page(Point.LOG_LIST, prefix, after)):
            after = page[-1].key
            for entry in _garbage(page, floor, reached):  # 3
                yield Delete(Point.LOG_DELETE, entry.key)
                objects, size_bytes = objects + 1, size_bytes + entry.size_bytes
    return Swept(objects, size_bytes)


def _reached(seen: Seen[Tail] | None) -> Steps[set[int]]:
    """Hashes of the names that TAIL reaches."""
    assert seen is not None, "it has had a version before"
    return (yield from reach(seen.document.pieces))


def _raise_floor(topic: str, partition: int, chance: Chance) -> Steps[Seen[Tail] | None]:
    for _ in range(RACES_MAX):
        seen = yield from read_tail(topic, partition)
        if seen is None:
            return None
        tail = seen.document
        raised = tail.changed(
            CommitId(chance.unique()), floor=tail.next_floor, next_floor=tail.version + 1
        )
        outcome = yield from swap_tail(partition, seen, raised)
        if isinstance(outcome, Won):
            return outcome.seen
        yield Wait(chance.fraction() * SPREAD_S)
    raise outrun(partition)


def _garbage(page: Sequence[Entry], floor: int, reached: set[int]) -> list[Entry]:
    found = []
    for entry in page:
        version = version_of(entry.key)
        if version is not None and version < floor and hash(entry.key) not in reached:
            found.append(entry)
    return found
