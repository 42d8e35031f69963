"""The log against plain lists: producers and their zombies, crashes, retention, compaction, growth.

What the lists hold is exactly what the log must hold: every row at its offset, when it was taken
in, and where each partition begins and ends. `PENSTOCK_LOG_MACHINE_EXAMPLES` says how many runs of
40 steps are made.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.clock import SystemChance
from penstock.errors import Fenced, Gone, Invalid
from penstock.sources import Batching, Limits, Log, Producer, Range, Span, log_rewrite
from penstock.sources.log_append import Batch, Outdated, Staged, Writer, append, stage
from penstock.sources.log_layout import version_of
from penstock.sources.log_pieces import walk
from penstock.sources.log_segment import encode
from penstock.sources.log_tail import Piece
from penstock.state.key_groups import GROUPS
from penstock.state.key_hash import key_groups
from tests.support.driving import ManualClock
from tests.support.logs import narrow, new_url, objects, placed, run, segments

EXAMPLES = int(os.environ.get("PENSTOCK_LOG_MACHINE_EXAMPLES", "120"))
SHARES = 3
STEPS = 40
PARTITIONS, PARTITIONS_MAX = 2, 4
PRODUCERS_MAX = 5
COLUMNS_MAX = 3
GRACE_S = 8
COLUMNS = pa.schema([("k", pa.string()), ("v", pa.int64())])
NAMES = ["ada", "bob"]
EACH = Batching(rows=1, linger_s=3600.0)
"""Every call is a batch of its own."""

Row = dict[str, Any]
keys = st.sampled_from(["a", "b", "c", "d"])
values = st.none() | st.integers(0, 9)
some_rows = st.lists(
    st.builds(lambda k, v: {"k": k, "v": v}, st.none() | keys, values), min_size=1, max_size=4
)
which = st.integers(0, 11)
names = st.none() | st.sampled_from(NAMES)
skips = st.lists(st.integers(1, 3), max_size=2)


@dataclass
class Kept:
    """One partition, as it should be."""

    earliest: int = 0
    latest: int = 0
    at_ms: int = 0
    rows: dict[int, tuple[Row, int]] = field(default_factory=dict)
    """Each row that is there, and when it was taken in, by offset."""
    compacted_to: int = 0

    def append(self, rows: Sequence[Row], now_ms: int) -> tuple[int, int]:
        start, self.at_ms = self.latest, max(self.at_ms, now_ms)
        self.rows |= {start + n: (row, self.at_ms) for n, row in enumerate(rows)}
        self.latest += len(rows)
        return start, self.latest

    def expire(self, earliest: int) -> None:
        self.earliest = earliest
        self.rows = {offset: kept for offset, kept in self.rows.items() if offset >= earliest}

    def compact(self, stop: int, horizon_ms: int) -> None:
        """Below `stop`, keep the last row of each key; but no removals older than the horizon."""
        last = {row["k"]: offset for offset, (row, _) in self.rows.items() if offset < stop}
        for offset, (row, at_ms) in list(self.rows.items()):
            is_keyed = offset < stop and row["k"] is not None
            is_removal = all(value is None for name, value in row.items() if name != "k")
            if is_keyed and (last[row["k"]] > offset or (is_removal and at_ms < horizon_ms)):
                del self.rows[offset]
        self.compacted_to = stop


@dataclass
class Hand:
    """A producer at work, or one that was replaced and does not know."""

    producer: Producer
    lanes: int
    columns: int
    name: str | None
    is_numbered: bool
    made: list[int]
    """The number of its last batch, for each partition."""


@dataclass
class Pending:
    """A batch that is on the store and not in the log: its producer has died, or is slow."""

    writer: Writer
    partition: int
    staged: Staged
    rows: list[Row]


class LogMachine(RuleBasedStateMachine):
    """One topic, and everybody who works on it."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.hands: list[Hand] = []
        self.zombies: list[Hand] = []
        self.pending: list[Pending] = []
        self.partitions = [Kept() for _ in range(PARTITIONS)]
        self.columns = 0
        self.touched: set[int] = set()

    @initialize(compacted=st.booleans(), fan=st.sampled_from([1, 2, 32]))
    def create(self, compacted: bool, fan: int) -> None:
        grace = timedelta(seconds=GRACE_S)
        self.log = Log.create(
            new_url(),
            COLUMNS,
            partitions=PARTITIONS,
            key="k",
            compacted=compacted,
            tombstone_grace=grace,
            clock=self.clock,
        )
        narrow(self.log, fan)
        self.compacted = compacted

    def teardown(self) -> None:
        for hand in self.hands:
            hand.producer.close()
        for hand in self.zombies:
            hand.producer._pool.shutdown()
        if hasattr(self, "log"):
            self.touched = set(range(len(self.partitions)))
            self.same()

    @property
    def now_ms(self) -> int:
        return round(self.clock.wall() * 1000)

    def took(self, partition: int, rows: Sequence[Row]) -> tuple[int, int, int]:
        self.touched.add(partition)
        return (partition, *self.partitions[partition].append(rows, self.now_ms))

    def filled(self, row: Row) -> Row:
        return {"k": None, "v": None, **{f"c{n}": None for n in range(self.columns)}, **row}

    # Producers.

    def hand(self, number: int, name: str | None = None, is_numbered: bool = False) -> Hand:
        """Some producer; a new one now and then, if there may be more."""
        able = [hand for hand in self.hands if hand.is_numbered == is_numbered]
        if number < len(able) or (able and len(self.hands) >= PRODUCERS_MAX):
            return able[number % len(able)]
        if len(self.hands) >= PRODUCERS_MAX:
            self.hands.pop().producer.close()
        return self.start(name, is_numbered)

    def start(self, name: str | None, is_numbered: bool) -> Hand:
        producer = self.log.producer(name, EACH)
        lanes = len(self.partitions)
        made = [producer.last_sequence(partition) for partition in range(lanes)]
        for other in [hand for hand in self.hands if name is not None and hand.name == name]:
            assert made == other.made + [0] * (lanes - other.lanes)
            self.hands.remove(other)
            self.zombies.append(other)
        hand = Hand(producer, lanes, self.columns, name, is_numbered, made)
        self.hands.append(hand)
        return hand

    @rule(name=st.sampled_from(NAMES), is_numbered=st.booleans())
    def restart(self, name: str, is_numbered: bool) -> None:
        """A producer of that name is started; one that is still there is a zombie from now on."""
        known = any(hand.name == name for hand in self.hands)
        if known or len(self.hands) < PRODUCERS_MAX:
            self.start(name, is_numbered)

    @rule(number=which, name=names, calls=st.lists(some_rows, max_size=3))
    def append_by_key(self, number: int, name: str | None, calls: list[list[Row]]) -> None:
        """Several calls on their way at once, each to the partitions that its keys belong to."""
        hand = self.hand(number, name)
        acks = [hand.producer.append(rows) for rows in calls]
        hand.producer.flush()
        for rows, ack in zip(calls, acks, strict=True):
            shares = routed(rows, hand.lanes)
            expected = [self.took(partition, share) for partition, share in shares.items()]
            for partition in shares:
                hand.made[partition] += 1
            assert placed(ack.wait()) == expected

    @rule(number=which, to=which, rows=some_rows, wider=st.booleans())
    def append_to(self, number: int, to: int, rows: list[Row], wider: bool) -> None:
        """To one partition, whatever the key; perhaps with a column that was added."""
        hand = self.hand(number)
        partition = to % hand.lanes
        if wider and hand.columns:
            rows = [{**row, f"c{hand.columns - 1}": "x"} for row in rows]
        ack = hand.producer.append(rows, partition)
        hand.producer.flush()
        hand.made[partition] += 1
        assert placed(ack.wait()) == [self.took(partition, rows)]
        assert hand.producer.last_sequence(partition) == hand.made[partition]

    @rule(number=which, name=names, to=which, skips=skips, rows=some_rows, again=st.booleans())
    def append_numbered(
        self,
        number: int,
        name: str | None,
        to: int,
        skips: list[int],
        rows: list[Row],
        again: bool,
    ) -> None:
        """Batches with numbers, on their way at once; and the last again, which adds nothing."""
        hand = self.hand(number, name, is_numbered=True)
        partition, acks = to % hand.lanes, []
        for skip in skips:
            hand.made[partition] += skip
            acks.append(hand.producer.append(rows, partition, hand.made[partition]))
        hand.producer.flush()
        expected = [[self.took(partition, rows)] for _ in skips]
        assert [placed(ack.wait()) for ack in acks] == expected
        assert hand.producer.last_sequence(partition) == hand.made[partition]
        if again and hand.made[partition]:
            assert hand.producer.append(rows, partition, hand.made[partition]).wait() == []

    @precondition(lambda self: self.zombies)
    @rule(number=which, to=which, rows=some_rows)
    def wake_a_zombie(self, number: int, to: int, rows: list[Row]) -> None:
        """It believes to be the producer of its name, and is refused."""
        zombie = self.zombies[number % len(self.zombies)]
        partition = to % zombie.lanes
        sequence = zombie.made[partition] + 1 if zombie.is_numbered else None
        with pytest.raises(Fenced):
            zombie.producer.append(rows, partition, sequence).wait()

    @rule(to=which, rows=some_rows)
    def stage_only(self, to: int, rows: list[Row]) -> None:
        """A producer stages a batch, and is not heard of for a while, or for ever."""
        partition, chance = to % len(self.partitions), SystemChance()
        tail = self.log.tails()[partition]
        table = pa.Table.from_pylist(rows, COLUMNS)
        batch = Batch(1, 0, len(rows), None, encode(table))
        staged = run(self.log, stage(partition, batch, tail.version, chance))
        writer = Writer(tail.topic, f"slow-{chance.unique()}", 0)
        self.pending.append(Pending(writer, partition, staged, rows))

    @precondition(lambda self: self.pending)
    @rule(number=which, times=st.integers(1, 3))
    def finish_staged(self, number: int, times: int) -> None:
        """It comes back, and tries once or several times, as if it had not heard the answer."""
        pending = self.pending.pop(number % len(self.pending))
        partition = pending.partition
        is_swept = pending.staged.version < self.log.tails()[partition].floor
        _, start, stop = (0, 0, 0) if is_swept else self.took(partition, pending.rows)
        for _ in range(times):
            appending = append(
                pending.writer, partition, [pending.staged], self.now_ms, SystemChance()
            )
            if is_swept:
                with pytest.raises(Outdated):
                    run(self.log, appending)
            else:
                assert run(self.log, appending).stops == {1: stop}
        assert stop - start == (0 if is_swept else len(pending.rows))

    # Housekeeping.

    @rule(age_s=st.none() | st.sampled_from([0, 1, 5, 20]), keep=st.none() | which)
    def expire(self, age_s: int | None, keep: int | None) -> None:
        """By age, by size, or by both: the first segments that a rule lets go."""
        sizes = [piece.size_bytes for piece in segments(self.log)]
        size = None if keep is None else sum(sizes[-keep:]) if keep else 0
        age_ms = None if age_s is None else age_s * 1000
        self.log.change(retention_age_ms=age_ms, retention_bytes=size)
        expected = [self.first_kept(n, age_ms, size) for n in range(len(self.partitions))]

        assert [expired.earliest for expired in self.log.expire()] == expected
        for kept, earliest in zip(self.partitions, expected, strict=True):
            kept.expire(earliest)
        self.touched |= set(range(len(expected)))

    def first_kept(self, partition: int, age_ms: int | None, size: int | None) -> int:
        pieces = segments(self.log, partition)
        earliest = self.partitions[partition].earliest
        excess = 0 if size is None else sum(piece.size_bytes for piece in pieces) - size
        for piece in pieces:
            if excess < piece.size_bytes:
                break
            earliest, excess = piece.stop, excess - piece.size_bytes
        return earliest if age_ms is None else max(earliest, self.behind_the_old(pieces, age_ms))

    def behind_the_old(self, pieces: list[Piece], age_ms: int) -> int:
        """A clock that is ahead tells nothing; one that was behind makes nothing older."""
        told = [piece for piece in pieces if piece.wall_ms <= self.now_ms]
        young = (n for n, piece in enumerate(told) if piece.wall_ms >= self.now_ms - age_ms)
        return max((piece.stop for piece in told[: next(young, None)]), default=0)

    @rule(keys_max=st.sampled_from([0, 1, 2, 3, 1000]), after_s=st.sampled_from([0, GRACE_S + 1]))
    def compact(self, keys_max: int, after_s: int) -> None:
        """As far as it gets; offsets and rows that stay are what they were."""
        self.clock.now_s += after_s
        done = self.log.compact(keys_max)
        assert len(done) == len(self.partitions)
        for kept, compacted in zip(self.partitions, done, strict=True):
            if self.compacted:
                assert min(kept.latest, kept.compacted_to + 1) <= compacted.stop <= kept.latest
                kept.compact(compacted.stop, self.now_ms - GRACE_S * 1000)
        self.touched |= set(range(len(done)))

    @rule()
    def turn_compaction(self) -> None:
        """Topics may be compacted from some day on, and up to some day."""
        self.compacted = not self.compacted
        assert self.log.change(compacted=self.compacted).compacted == self.compacted

    @rule()
    def sweep(self) -> None:
        """Below the floor nothing is left that the log does not need."""
        self.log.sweep()
        for tail in self.log.tails():
            reached = {piece.key for piece in run(self.log, walk(tail.pieces))}
            for key in objects(self.log, f"partitions/{tail.partition:06d}/"):
                version = version_of(key)
                assert version is None or version >= tail.floor or key in reached
        self.touched |= set(range(len(self.partitions)))

    # Growth, and time.

    @precondition(lambda self: self.columns < COLUMNS_MAX)
    @rule()
    def evolve(self) -> None:
        """A column more; producers that are at work do not know it."""
        self.log.change(schema=self.log.schema().append(pa.field(f"c{self.columns}", pa.string())))
        self.columns += 1
        self.touched |= set(range(len(self.partitions)))

    @precondition(lambda self: len(self.partitions) < PARTITIONS_MAX)
    @rule()
    def grow(self) -> None:
        """A partition more; producers that are at work do not use it."""
        self.partitions.append(Kept())
        self.log.change(partitions=len(self.partitions))

    @rule(seconds=st.sampled_from([0.001, 1, 5, 20, -3]))
    def pass_time(self, seconds: float) -> None:
        """Clocks go on, and now and then back."""
        self.clock.now_s += seconds

    # Looking.

    @rule(to=which, start=st.integers(-2, 30), length=st.integers(-1, 20))
    def read_some(self, to: int, start: int, length: int) -> None:
        """Any range: its rows, or why there are none."""
        partition = to % len(self.partitions)
        kept, stop = self.partitions[partition], start + length
        if not 0 <= start <= stop or stop > kept.latest:
            with pytest.raises(Invalid):
                self.read(partition, start, stop)
        elif start < kept.earliest:
            with pytest.raises(Gone):
                self.read(partition, start, stop)
        else:
            rows = {n: kept.rows[n][0] for n in kept.rows if start <= n < stop}
            found = {n: row for n, (row, _) in self.read(partition, start, stop).items()}
            assert found == {n: self.filled(row) for n, row in rows.items()}

    @rule(records=st.none() | st.integers(0, 9), size=st.none() | st.integers(0, 4000), at=which)
    def plan(self, records: int | None, size: int | None, at: int) -> None:
        """From some offset in every partition: as many rows as are allowed, and no gap for ever."""
        resume = {
            str(n): min(kept.latest, kept.earliest + at) for n, kept in enumerate(self.partitions)
        }
        ranges = self.log.plan(resume, Limits(records=records, size_bytes=size))
        rows = sum(self.rows_in(n, each.start, each.stop) for n, each in ranges.items())
        left = sum(self.rows_in(n, start, 1 << 60) for n, start in resume.items())

        for partition, each in ranges.items():
            latest = self.partitions[int(partition)].latest
            assert resume[partition] == each.start < each.stop <= latest
            assert each.stop == latest or self.rows_in(partition, each.start, each.stop)
        assert (rows > 0) == (left > 0)
        assert records is None or rows <= max(1, records)
        assert size is not None or rows == min(left, left if records is None else max(1, records))

    def rows_in(self, partition: str, start: int, stop: int) -> int:
        return sum(start <= offset < stop for offset in self.partitions[int(partition)].rows)

    def read(self, partition: int, start: int, stop: int) -> dict[int, tuple[Row, datetime]]:
        found: dict[int, tuple[Row, datetime]] = {}
        for batch in self.log.read(str(partition), Range(start=start, stop=stop)):
            for row in batch.to_pylist():
                meta = row.pop("_meta")
                assert meta["offset"] not in found
                found[meta["offset"]] = (row, meta["broker_time"])
        return found

    @invariant()
    def same(self) -> None:
        """The log against the lists: all ends, and every row of what was touched."""
        if not hasattr(self, "log"):
            return
        spans = {str(n): Span(kept.earliest, kept.latest) for n, kept in enumerate(self.partitions)}
        assert self.log.spans() == spans
        for partition in sorted(self.touched):
            kept = self.partitions[partition]
            found = self.read(partition, kept.earliest, kept.latest)
            assert list(found) == sorted(found)
            assert found == {
                offset: (self.filled(row), datetime.fromtimestamp(at_ms / 1000, UTC))
                for offset, (row, at_ms) in kept.rows.items()
            }
        self.touched.clear()


def routed(rows: list[Row], lanes: int) -> dict[int, list[Row]]:
    """Which rows go where, by their keys."""
    groups = key_groups([pa.array([row["k"] for row in rows], pa.string())]).tolist()
    shares: dict[int, list[Row]] = {}
    for group, row in sorted(zip(groups, rows, strict=True), key=lambda pair: pair[0]):
        shares.setdefault(group * lanes // GROUPS, []).append(row)
    return {
        partition: [row for row in rows if any(row is each for each in share)]
        for partition, share in shares.items()
    }


@pytest.mark.parametrize("share", range(SHARES))
def test_the_log_is_a_list_that_survives(share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is done in whatever order, it holds what was appended, once and in order."""
    monkeypatch.setattr(log_rewrite, "SEGMENT_ROWS", 3)  # so that compactions make several
    # A class of its own for each share, or else a derandomised run would make the same runs twice.
    run_state_machine_as_test(
        type(f"LogMachine{share}", (LogMachine,), {}),
        settings=settings(
            max_examples=-(-EXAMPLES // SHARES),
            stateful_step_count=STEPS,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
