"""A topic small enough to be simulated many times, built of the production protocols.

Producers append numbered rows under names of their own, and are started again until every row
has been acknowledged; some of their former lives go on as zombies. A janitor expires, compacts and
sweeps beside them; a reader reads. Segments are JSON here: what is in them is not the protocol's
business.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.chaos.host import Host
from penstock.effects import Steps, Wait
from penstock.errors import Unavailable
from penstock.fencing.register import Seen
from penstock.points import Point
from penstock.sources.log_append import Batch, Outdated, Staged, Writer, append, claim, stage
from penstock.sources.log_compact import Made, compact
from penstock.sources.log_expire import LogRetention, expire
from penstock.sources.log_look import read_tail, steadily
from penstock.sources.log_pieces import body_of, covering
from penstock.sources.log_sweep import sweep
from penstock.sources.log_tail import Piece, Tail

__all__ = [
    "KEYS",
    "PARTITIONS",
    "TOPIC",
    "LogProgram",
    "LogWorkload",
    "ModelRewriter",
    "Row",
    "rows_of",
]

TOPIC = "model"
PARTITIONS = 2
KEYS = 3
SEGMENT_ROWS = 3
"""What compaction makes a segment of."""

Row = tuple[int, str, int, int]
"""Offset (-1 while it is not known), producer, the producer's number for it, key."""


@dataclass(frozen=True, slots=True)
class LogWorkload:
    """What is done to the topic."""

    producers: int
    batches: int
    """Of each producer, for each partition."""
    batch_rows_max: int
    compacts: bool
    expires: bool
    remembered: int
    """How many keys a compaction can remember."""
    grows_s: float
    """When the topic gets its last partition."""

    @staticmethod
    def make(rng: random.Random) -> "LogWorkload":
        """Some producers, some housekeeping."""
        return LogWorkload(
            rng.randint(1, 3),
            rng.randint(1, 4),
            rng.randint(1, 3),
            rng.random() < 0.6,
            rng.random() < 0.4,
            rng.choice((1, 2, 100)),
            rng.choice((0.0, 0.0, 0.05, 0.5, 3.0)),
        )

    def batch(self, producer: str, partition: int, sequence: int) -> list[Row]:
        """The rows of one batch: the same whichever life of the producer makes them."""
        rng = random.Random(f"{producer}/{partition}/{sequence}")
        first = sequence * self.batch_rows_max
        count = rng.randint(1, self.batch_rows_max)
        return [(-1, producer, first + n, rng.randrange(KEYS)) for n in range(count)]


@dataclass(slots=True)
class LogProgram:
    """What the processes of the scenario run."""

    host: Host
    work: LogWorkload

    def producer(self, name: str) -> Steps[None]:
        """Claim the name, and append what earlier lives have not: the marks tell."""
        now_ms = self._now_ms()
        epoch, tails = yield from claim(TOPIC, self._count, name, now_ms, self.host.chance)
        self.host.report("claimed", name, epoch)
        writer = Writer(TOPIC, name, epoch)
        for partition in range(PARTITIONS):
            while partition >= (yield from self._count()):
                yield Wait(0.1)
            yield from self._append_rest(writer, partition, tails.get(partition))
        self.host.report("produced", name)

    def janitor(self) -> Steps[None]:
        """Expire, compact and sweep, a few times."""
        for _ in range(3):
            yield Wait(self.host.rng.random() * 2)
            for partition in range(PARTITIONS):
                yield from self._housekeeping(partition)

    def reader(self) -> Steps[None]:
        """Read whatever there is, twice, a while apart."""
        for _ in range(2):
            yield Wait(self.host.rng.random())
            for partition in range(PARTITIONS):
                found: Sequence[Row] = yield from steadily(TOPIC, partition, _everything)
                self.host.report("read", partition, tuple(found))

    def closer(self) -> Steps[None]:
        """Sweep until no orphan can be left, and look at everything once more."""
        for _ in range(2):
            for partition in range(PARTITIONS):
                yield from sweep(TOPIC, partition, self.host.chance)
        for partition in range(PARTITIONS):
            found = yield from steadily(TOPIC, partition, _everything)
            self.host.report("read", partition, tuple(found))

    def _count(self) -> Steps[int]:
        """How many partitions there are now."""
        yield Wait(0.0)
        return PARTITIONS if self.host.clock.monotonic() >= self.work.grows_s else PARTITIONS - 1

    def _append_rest(self, writer: Writer, partition: int, seen: Seen[Tail] | None) -> Steps[None]:
        done = 0 if seen is None else seen.document.marks[writer.producer].sequence
        while done < self.work.batches:
            group = self.host.rng.randint(1, self.work.batches - done)
            numbers = range(done + 1, done + 1 + group)
            batches = [self._batch(writer.producer, partition, number) for number in numbers]
            seen = yield from self._append(writer, partition, batches, seen)
            done += group

    def _append(
        self, writer: Writer, partition: int, batches: Sequence[Batch], seen: Seen[Tail] | None
    ) -> Steps[Seen[Tail]]:
        """One group, again and again until it is in."""
        staged: list[Staged] = []
        for _ in range(20):
            version = 0 if seen is None else seen.document.version
            try:
                staged = staged or (yield from self._stage(partition, batches, version))
                done = yield from append(
                    writer, partition, staged, self._now_ms(), self.host.chance, seen
                )
            except Outdated:
                staged, seen = [], (yield from read_tail(TOPIC, partition)) or seen
            except Unavailable:
                yield Wait(0.5)  # perhaps it is in: the mark will tell
            else:
                self._acknowledge(writer, partition, batches, done.stops)
                return done.tail
        raise Unavailable("the log", "does not answer", "try later")

    def _stage(self, partition: int, batches: Sequence[Batch], version: int) -> Steps[list[Staged]]:
        staged = []
        for batch in batches:
            staged.append((yield from stage(partition, batch, version, self.host.chance)))
        return staged

    def _acknowledge(
        self, writer: Writer, partition: int, batches: Sequence[Batch], stops: dict[int, int]
    ) -> None:
        for batch in batches:
            first = stops[batch.sequence] - batch.rows
            self.host.report(
                "acknowledged", writer.producer, writer.epoch, partition, batch.sequence, first
            )

    def _batch(self, producer: str, partition: int, sequence: int) -> Batch:
        rows = self.work.batch(producer, partition, sequence)
        return Batch(sequence, sequence - 1, len(rows), None, json.dumps(rows).encode())

    def _housekeeping(self, partition: int) -> Steps[None]:
        chance = self.host.chance
        if self.work.expires:
            rule = LogRetention(size_bytes=self.host.rng.choice((40, 150, 400)))
            done = yield from expire(TOPIC, partition, rule, self._now_ms(), chance)
            self.host.report("expired", partition, done.earliest)
        if self.work.compacts:
            thorough = self.host.rng.random() < 0.7
            yield from compact(
                TOPIC, partition, lambda: ModelRewriter(self.work.remembered, thorough), chance
            )
        if self.host.rng.random() < 0.7:
            yield from sweep(TOPIC, partition, chance)

    def _now_ms(self) -> int:
        return round(self.host.clock.wall() * 1000)


@dataclass(slots=True)
class ModelRewriter:
    """Keeps the last row of each key, of segments that are lists in JSON."""

    remembered: int
    is_thorough: bool = True
    """If not, all rows stay, in fewer segments."""
    last: dict[int, int] = field(default_factory=dict)
    made: list[Row] = field(default_factory=list)
    times: list[int] = field(default_factory=list)

    def note(self, piece: Piece, body: bytes) -> bool:
        """Where each key comes last; a first segment is always taken."""
        if not self.is_thorough:
            return True
        last = {**self.last, **{key: offset for offset, _, _, key in rows_of(piece, body)}}
        if self.last and len(last) > self.remembered:
            return False
        self.last = last
        return True

    def rewrite(self, piece: Piece, body: bytes) -> Sequence[Made]:
        """Rows that are not followed by another of their key."""
        for row in rows_of(piece, body):
            if self.last.get(row[3], row[0]) <= row[0]:
                self.made.append(row)
        self.times += [piece.at_ms]
        full = []
        while len(self.made) > SEGMENT_ROWS:
            rows, self.made = self.made[:SEGMENT_ROWS], self.made[SEGMENT_ROWS:]
            full.append(self._segment(rows, self.made[0][0]))
        return full

    def finish(self, stop: int) -> Sequence[Made]:
        """What is left, reaching to the end, even if it is nothing."""
        return [self._segment(self.made, stop)] if self.times else []

    def _segment(self, rows: list[Row], stop: int) -> Made:
        return Made(
            stop, len(rows), max(self.times), max(self.times), None, json.dumps(rows).encode()
        )


def _everything(seen: Seen[Tail] | None) -> Steps[list[Row]]:
    rows: list[Row] = []
    if seen is not None:
        tail = seen.document
        for piece in (yield from covering(tail.pieces, tail.earliest, tail.latest)):
            rows += rows_of(piece, (yield from body_of(piece, Point.LOG_READ_SEGMENT)))
    return rows


def rows_of(piece: Piece, body: bytes) -> list[Row]:
    """The rows of a segment with their offsets: written with them, or counted from the first."""
    return [
        (piece.first + at if offset < 0 else offset, producer, number, key)
        for at, (offset, producer, number, key) in enumerate(json.loads(body))
    ]
