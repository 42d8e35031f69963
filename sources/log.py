"""`Log`: a partitioned, append-only log on any object store. No broker is needed.

    log = Log.create("data/clicks", pa.schema(...), partitions=4, key="user")
    with log.producer() as producer:
        producer.append({"user": "ada", "clicks": 1})

Readers leave no trace in it: any number of jobs may read, each from where it likes. Offsets of a
partition are dense as they are appended; compaction leaves gaps and moves none.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.checkpoint.open_store import absolute_url, open_store, without_secrets
from penstock.checkpoint.perform import Handlers, perform, store_handlers
from penstock.clock import Chance, Clock, SystemChance, SystemClock
from penstock.effects import Steps
from penstock.errors import Corrupt, Invalid, PenstockError
from penstock.fencing.register import Seen
from penstock.ids import CommitId, check_name
from penstock.points import Point
from penstock.sources.log_append import Writer, claim
from penstock.sources.log_compact import Compacted, compact
from penstock.sources.log_expire import Expired, LogRetention, expire
from penstock.sources.log_lane import Batching, Wiring
from penstock.sources.log_look import read_tail, steadily
from penstock.sources.log_pieces import Moved, body_of, covering
from penstock.sources.log_plan import rows_from, stop_after
from penstock.sources.log_producer import Producer
from penstock.sources.log_rewrite import KEYS_MAX, ArrowRewriter
from penstock.sources.log_segment import rows_between
from penstock.sources.log_sweep import Swept, sweep
from penstock.sources.log_tail import Piece, Tail
from penstock.sources.log_times import first_at
from penstock.sources.log_topic import (
    Topic,
    change_topic,
    create_topic,
    read_topic,
    with_columns,
)
from penstock.sources.planning import check_range, checked_starts, share_rows
from penstock.sources.protocol import Limits, Range, Span

__all__ = ["Log"]

LOOKS_AT_ONCE = 8
PLANS_MAX = 5

R = TypeVar("R")


class Log:
    """A topic at a URL. Opening it asks nothing; it can be sent to another process."""

    def __init__(
        self, url: str, *, clock: Clock | None = None, chance: Chance | None = None
    ) -> None:
        self.url = str(url)
        self._clock = clock or SystemClock()
        self._chance = chance or SystemChance()

    @classmethod
    def create(  # noqa: PLR0913 - everything a topic can be told, by name
        cls,
        url: str,
        schema: pa.Schema,
        *,
        partitions: int = 1,
        key: str | Sequence[str] = (),
        event_time: str | None = None,
        compacted: bool = False,
        keep: timedelta | None = None,
        keep_bytes: int | None = None,
        tombstone_grace: timedelta = timedelta(days=1),
        clock: Clock | None = None,
    ) -> "Log":
        """Make a topic. `keep` and `keep_bytes` (of a partition) are its retention: see `expire`.

        Rows with equal `key` go to one partition, and `compacted` keeps the last of them.
        """
        log = cls(url, clock=clock)
        names = (key,) if isinstance(key, str) else tuple(key)
        topic = Topic(
            id=log._chance.unique(),
            partitions=partitions,
            columns=with_columns(log.name, None, schema),
            key=names,
            event_time=event_time,
            compacted=compacted,
            retention_age_ms=None if keep is None else keep // timedelta(milliseconds=1),
            retention_bytes=keep_bytes,
            tombstone_grace_ms=tombstone_grace // timedelta(milliseconds=1),
            recent=(CommitId(log._chance.unique()),),
        )
        perform(create_topic(log.name, topic), log._handlers)
        return log

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"log {without_secrets(self.url)}"

    def located(self) -> "Log":
        """The same topic by a name that means the same in every process's working folder."""
        return Log(absolute_url(self.url), clock=self._clock, chance=self._chance)

    def schema(self) -> pa.Schema:
        """The columns of its rows, without `_meta`."""
        return self.topic().schema

    def anchors(self) -> Mapping[str, str]:
        """Its id: a topic that was made anew is another one, and a copy of it is not."""
        return {"topic": self.topic().id}

    def spans(self) -> Mapping[str, Span]:
        """Every partition there is now, and the offsets it has."""
        return {str(tail.partition): Span(tail.earliest, tail.latest) for tail in self.tails()}

    def offsets_at(self, at_ms: int) -> Mapping[str, int]:
        """Per partition, the first offset of a row as late as `at_ms`: by event time if the topic
        has one, else by when the log took it in; its end if there is none."""
        topic = self.topic()

        def look(partition: int) -> int:
            def find(seen: Seen[Tail] | None) -> Steps[int]:
                return first_at(seen, at_ms, topic.event_time)

            return perform(steadily(topic.id, partition, find), self._handlers)

        return {str(partition): look(partition) for partition in range(topic.partitions)}

    def plan(self, resume: Mapping[str, int], limits: Limits) -> Mapping[str, Range]:
        """What to read next. Bytes are those of the compressed segments."""
        for remaining in reversed(range(PLANS_MAX)):
            try:
                return self._plan(self.tails(), resume, limits)
            except Moved:  # compacted meanwhile
                if not remaining:
                    raise
        raise AssertionError("unreachable: the last plan returns or raises")

    def read(self, partition: str, wanted: Range, planned_ms: int = 0) -> Iterator[pa.RecordBatch]:
        """The rows of a range in order of their offsets, with `_meta` as the last column."""
        topic = self.topic()
        number = self._number(topic, partition)
        schema, at, missing = topic.schema, wanted.start, ""
        while True:
            rest = Range(start=at, stop=wanted.stop)
            pieces = self._pieces(topic, number, rest)
            for piece in pieces:
                try:
                    body = perform(body_of(piece, Point.LOG_READ_SEGMENT), self._handlers)
                except Moved as moved:  # others have compacted or expired it: look again
                    if missing == piece.key:
                        raise _lost(piece) from moved
                    missing = piece.key
                    break
                rows = rows_between(piece, body, rest, schema, topic.event_time, planned_ms)
                del body  # so that the next one finds its memory free
                yield from rows
                at = piece.stop
            else:
                return

    def producer(self, name: str | None = None, batching: Batching | None = None) -> Producer:
        """A producer. One with a name takes over from any other of that name."""
        topic = self.topic()
        epoch, tails = 0, dict[int, Seen[Tail]]()
        if name is None:
            named = f"nameless-{self._chance.unique()}"
        else:
            named = check_name("producer", name)
            claiming = claim(topic.id, self._count, named, self._now_ms(), self._chance)
            epoch, tails = perform(claiming, self._handlers)
        wiring = Wiring(
            self.name,
            Writer(topic.id, named, epoch),
            topic.event_time,
            self._handlers,
            self._clock,
            self._chance,
            batching or Batching(),
        )
        return Producer(named, topic, wiring, tails)

    def expire(self) -> list[Expired]:
        """Give up what the topic's retention does not keep."""
        topic = self.topic()
        rule, now_ms = _retention(topic), self._now_ms()
        return self._each(
            topic, lambda number: expire(topic.id, number, rule, now_ms, self._chance)
        )

    def compact(self, keys_max: int = KEYS_MAX) -> list[Compacted]:
        """Keep the last row of each key, if the topic is compacted; fewer segments in any case.

        `keys_max` bounds what is held in memory: beyond it, the rest waits for the next time.
        """
        topic = self.topic()
        now_ms = self._now_ms()

        def rewriter() -> ArrowRewriter:
            return ArrowRewriter(topic, now_ms, keys_max)

        return self._each(topic, lambda number: compact(topic.id, number, rewriter, self._chance))

    def sweep(self) -> list[Swept]:
        """Remove what crashed producers and compactions have left behind."""
        topic = self.topic()
        return self._each(topic, lambda number: sweep(topic.id, number, self._chance))

    def change(self, **fields: Any) -> Topic:
        """Change the topic: `schema` (with columns added), `partitions` (more of them),
        `retention_age_ms`, `retention_bytes`, `compacted`."""
        return perform(change_topic(self.name, self._chance, **fields), self._handlers)

    def topic(self) -> Topic:
        """What the topic is."""
        return perform(read_topic(self.name), self._handlers).document

    def tails(self) -> list[Tail]:
        """What each partition holds."""
        topic = self.topic()

        def look(number: int) -> Tail:
            seen = perform(read_tail(topic.id, number), self._handlers)
            return Tail(topic=topic.id, partition=number) if seen is None else seen.document

        with ThreadPoolExecutor(min(LOOKS_AT_ONCE, topic.partitions)) as pool:
            return list(pool.map(look, range(topic.partitions)))

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.url, self._clock, self._chance)

    @cached_property
    def _handlers(self) -> Handlers:
        return store_handlers(open_store(self.url), self._clock)

    def _count(self) -> Steps[int]:
        return (yield from read_topic(self.name)).document.partitions

    def _plan(
        self, tails: Sequence[Tail], resume: Mapping[str, int], limits: Limits
    ) -> Mapping[str, Range]:
        spans = {str(tail.partition): Span(tail.earliest, tail.latest) for tail in tails}
        starts = checked_starts(self.name, spans, resume)
        behind = {str(t.partition): t for t in tails if t.latest > starts[str(t.partition)]}
        lags = {
            partition: perform(rows_from(tail, starts[partition]), self._handlers)
            for partition, tail in behind.items()
        }
        row_bytes = {partition: _row_bytes(tail) for partition, tail in behind.items()}
        shares = share_rows(lags, limits, row_bytes)
        shares |= {partition: 0 for partition, rows in lags.items() if not rows}
        stops = {
            # All rows there are reach to the end, whatever gap comes behind them.
            partition: behind[partition].latest
            if rows == lags[partition]
            else perform(stop_after(behind[partition], starts[partition], rows), self._handlers)
            for partition, rows in sorted(shares.items())
        }
        return {p: Range(start=starts[p], stop=stop) for p, stop in stops.items()}

    def _each(self, topic: Topic, work: Callable[[int], Steps[R]]) -> list[R]:
        """Do something with every partition; what goes wrong with one is raised after all."""
        done: list[R] = []
        failure: PenstockError | None = None
        for number in range(topic.partitions):
            try:
                done.append(perform(work(number), self._handlers))
            except PenstockError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return done

    def _pieces(self, topic: Topic, number: int, wanted: Range) -> list[Piece]:
        def find(seen: Seen[Tail] | None) -> Steps[list[Piece]]:
            tail = Tail(topic=topic.id, partition=number) if seen is None else seen.document
            check_range(self.name, str(number), wanted, Span(tail.earliest, tail.latest))
            return (yield from covering(tail.pieces, wanted.start, wanted.stop))

        return perform(steadily(topic.id, number, find), self._handlers)

    def _number(self, topic: Topic, partition: str) -> int:
        known = {str(number): number for number in range(topic.partitions)}
        if partition not in known:
            raise Invalid(
                f"{self.name}, partition {partition}",
                f"does not exist: there are {topic.partitions}",
                f"use 0 to {topic.partitions - 1}",
            )
        return known[partition]

    def _now_ms(self) -> int:
        return round(self._clock.wall() * 1000)


def _reopened(url: str, clock: Clock, chance: Chance) -> Log:
    return Log(url, clock=clock, chance=chance)


def _row_bytes(tail: Tail) -> float:
    rows = sum(piece.rows for piece in tail.pieces)
    return sum(piece.size_bytes for piece in tail.pieces) / rows if rows else 0.0


def _retention(topic: Topic) -> LogRetention:
    return LogRetention(age_ms=topic.retention_age_ms, size_bytes=topic.retention_bytes)


def _lost(piece: Piece) -> Corrupt:
    return Corrupt(
        piece.key,
        f"is missing: offsets {piece.first} up to {piece.stop} cannot be read",
        "restore this object from a copy; what is before and after it can be read",
    )
