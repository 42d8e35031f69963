"""The witness of a simulated topic: knows what really became part of the log.

It reads TAIL and segments from the store as plain JSON and shares no code with the protocols it
judges. At every change of a TAIL it works out all rows anew and compares them with those before.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.chaos.log_model import PARTITIONS, LogWorkload, Row
from penstock.chaos.world import World
from penstock.ids import Key

__all__ = ["LogTruth"]

HEIGHT, FIRST, KEY = 0, 1, 8
"""Where things stand in a piece."""

Rows = dict[int, tuple[str, int, int]]
"""By offset: the producer, its number for the row, the row's key."""


@dataclass(slots=True)
class _Partition:
    """What one partition holds, and every row it ever held."""

    tail: dict[str, Any] = field(default_factory=lambda: {"earliest": 0, "latest": 0, "marks": {}})
    rows: Rows = field(default_factory=dict)
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    """Of every row ever taken in, by producer and number."""
    past: set[tuple[Row, ...]] = field(default_factory=lambda: {()})
    """All its rows, at each version."""


class LogTruth:
    """Everything that became part of the log, and every promise found broken so far."""

    def __init__(self, world: World, work: LogWorkload, producers: Iterable[str]) -> None:
        self.broken: list[str] = []
        self._world = world
        self._work = work
        self._producers = list(producers)
        self._partitions = [_Partition() for _ in range(PARTITIONS)]
        self._claims: dict[str, int] = {}

    # What the world shows.

    def wrote(self, key: str) -> None:
        """An object was written. If it was a TAIL: judge the new one."""
        for number, partition in enumerate(self._partitions):
            if key == f"partitions/{number:06d}/TAIL":
                self._judge(partition, self._json(key))

    def deleted(self, key: str) -> None:
        """An object is about to go: no TAIL may need it."""
        if key in self._reachable():
            self._break("lost", f"{key} was removed while a TAIL needs it")

    def applied(self, effect: Any) -> None:
        """There is no sink here."""

    # What the processes claim.

    def heard(self, process: str, what: str, *facts: Any) -> None:
        """A process told its user something. It had better be true."""
        if what == "claimed":
            name, epoch = facts
            self._claims[name] = max(epoch, self._claims.get(name, 0))
        elif what == "acknowledged":
            self._judge_acknowledged(*facts)
        elif what == "read" and tuple(facts[1]) not in self._partitions[facts[0]].past:
            self._break("reordered", f"{process} read what partition {facts[0]} never held")
        elif what == "alarm":
            self._break("alarm", f"{process} cried {facts[0]}")

    def finish(self) -> None:
        """Every row must have been taken in, and nothing may be left over."""
        for number, partition in enumerate(self._partitions):
            for name in self._producers:
                for sequence in range(1, self._work.batches + 1):
                    self._judge_taken_in(partition, name, number, sequence)
        left = set(self._objects()) - self._reachable()
        if left:
            self._break("garbage", f"{sorted(left)[0]} stays, {len(left)} in all")

    def _judge(self, partition: _Partition, tail: dict[str, Any]) -> None:
        before, partition.tail = partition.tail, tail
        rows = self._rows(tail["pieces"])
        if tail["latest"] < before["latest"] or tail["earliest"] < before["earliest"]:
            self._break("lost", "offsets went back")
        self._judge_kept(partition.rows, rows, tail["earliest"], before["latest"])
        new = {offset: row for offset, row in rows.items() if offset >= before["latest"]}
        if sorted(new) != list(range(before["latest"], tail["latest"])):
            self._break("lost", f"offsets from {before['latest']} on are not dense")
        self._judge_new(partition, tail, new)
        partition.rows = rows
        partition.past.add(tuple((offset, *row) for offset, row in sorted(rows.items())))

    def _judge_kept(self, before: Rows, rows: Rows, earliest: int, latest: int) -> None:
        """Old rows stay as they are, or a later one of their key has taken their place."""
        for offset, row in before.items():
            followed = any(later > offset and each[2] == row[2] for later, each in before.items())
            if offset >= earliest and rows.get(offset, row if followed else None) != row:
                self._break("lost", f"row {row} at {offset} was lost or changed")
        added = [offset for offset in rows if offset < latest and offset not in before]
        if added:
            self._break("doubled", f"a row appeared at offset {added[0]}")

    def _judge_new(self, partition: _Partition, tail: dict[str, Any], new: Rows) -> None:
        for offset, (producer, number, _) in sorted(new.items()):
            if (producer, number) in partition.offsets:
                self._break("doubled", f"row {number} of {producer} at {offset}")
            others = [n for name, n in partition.offsets if name == producer]
            if others and max(others) > number:
                self._break("reordered", f"row {number} of {producer} after {max(others)}")
            partition.offsets[producer, number] = offset
            if tail["marks"][producer][0] < self._claims.get(producer, 0):
                self._break("zombie", f"{producer} appended in a life that was replaced")

    def _judge_acknowledged(
        self, name: str, epoch: int, partition: int, sequence: int, first: int
    ) -> None:
        del epoch
        taken_in = self._partitions[partition].offsets
        for at, (_, producer, number, _) in enumerate(self._work.batch(name, partition, sequence)):
            if taken_in.get((producer, number)) != first + at:
                self._break("lost", f"row {number} of {name} was acknowledged at {first + at}")

    def _judge_taken_in(self, partition: _Partition, name: str, number: int, sequence: int) -> None:
        for _, producer, row, _ in self._work.batch(name, number, sequence):
            if (producer, row) not in partition.offsets:
                self._break("lost", f"row {row} of {name} never came into partition {number}")

    # What the store holds.

    def _rows(self, pieces: list[list[Any]]) -> Rows:
        rows: Rows = {}
        for piece in pieces:
            inside = self._json(piece[KEY])
            if piece[HEIGHT]:
                rows |= self._rows(inside)
                continue
            for at, (offset, producer, number, key) in enumerate(inside):
                rows[piece[FIRST] + at if offset < 0 else offset] = (producer, number, key)
        return rows

    def _reachable(self) -> set[str]:
        found: set[str] = set()
        for partition in self._partitions:
            self._reach(partition.tail.get("pieces", []), found)
        return found

    def _reach(self, pieces: list[list[Any]], found: set[str]) -> None:
        for piece in pieces:
            found.add(piece[KEY])
            if piece[HEIGHT]:
                self._reach(self._json(piece[KEY]), found)

    def _objects(self) -> Iterable[str]:
        after = ""
        while page := self._world.store.list("partitions/", after):
            after = page[-1].key
            yield from (entry.key for entry in page if not entry.key.endswith("/TAIL"))

    def _json(self, key: str) -> Any:
        stored = self._world.store.get(Key(key))
        if stored is None:
            self._break("lost", f"{key} is needed and missing")
            return []
        return json.loads(stored.body)

    def _break(self, promise: str, what: str) -> None:
        self.broken.append(f"{promise}: {what}")
