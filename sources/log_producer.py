"""The producer: appends rows to a topic, in batches, and says when they are durable.

Rows of one producer come into a partition in the order they were appended. A retry, here or below,
adds nothing. A producer with a name can be started again after a crash: the new one takes over,
the old one is refused, and `last_sequence` tells what the log has of it.
"""

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.errors import Invalid, PenstockError
from penstock.fencing.register import Seen
from penstock.sources.log_lane import Lane, Placed, Way
from penstock.sources.log_rows import Rows, fitted, from_json_lines
from penstock.sources.log_tail import Tail
from penstock.sources.log_topic import Topic
from penstock.state.key_groups import GROUPS
from penstock.state.key_hash import key_groups

__all__ = ["Ack", "Producer"]

THREADS_MAX = 4
ROUND_ROBIN = "round robin"


@dataclass(frozen=True, slots=True)
class Ack:
    """The rows of one call on their way."""

    _parts: "list[Future[Placed]]"

    @property
    def is_done(self) -> bool:
        """Whether all of them are durable, or will never be."""
        return all(part.done() for part in self._parts)

    def wait(self, timeout_s: float | None = None) -> list[Placed]:
        """Where they went, once all of them are durable."""
        return [part.result(timeout_s) for part in self._parts]


class Producer:
    """Appends to one topic. Use it as a context: leaving it sends what is left."""

    def __init__(
        self, name: str, topic: Topic, way: Way, tails: dict[int, Seen[Tail]] | None = None
    ) -> None:
        self.name = name
        self._topic = topic
        self._schema = topic.schema
        self._way = way
        self._lanes = [self._lane(number, tails or {}) for number in range(topic.partitions)]
        self._pool = ThreadPoolExecutor(THREADS_MAX, "penstock-producer")
        self._room = threading.Condition()
        self._waiting_bytes = 0
        self._unsent: set[Future[Placed]] = set()
        self._timers: dict[int, threading.Timer] = {}
        self._turn = 0
        self._is_closed = False

    def last_sequence(self, partition: int) -> int:
        """The number of the last batch that was taken from a producer of this name, or made."""
        return self._lanes[self._checked(partition)].sequence

    def append(
        self, rows: Rows, partition: int | str | None = None, sequence: int | None = None
    ) -> Ack:
        """Add rows: by their key, or in turn if the topic has none; or to a partition given.

        With a `sequence`, which needs a partition, the rows are one batch of that number. It must
        be greater than all before; a batch the log has already is not added again.
        """
        if self._is_closed:
            raise Invalid(
                self._way.log, "was given rows after its producer closed", "make a new one"
            )
        table = fitted(self._way.log, rows, self._schema)
        if sequence is not None:
            return self._append_numbered(table, partition, sequence)
        parts = self._routed(table, partition)
        return Ack([self._add(number, part, None) for number, part in parts if part.num_rows])

    def append_lines(self, lines: Iterable[str | bytes], partition: int | str | None = None) -> Ack:
        """Add rows written as JSON, one object per line."""
        return self.append(from_json_lines(self._way.log, lines), partition)

    def flush(self) -> None:
        """Return when everything appended so far is durable; raise if something never will be."""
        for lane in self._lanes:
            self._send(lane)
        with self._room:
            unsent = list(self._unsent)
        for placed in unsent:
            placed.result()
        for lane in self._lanes:
            if lane.failure is not None:
                raise lane.failure

    def close(self) -> None:
        """Send what is left, and let go."""
        if not self._is_closed:
            try:
                self.flush()
            finally:
                self._is_closed = True
                for timer in list(self._timers.values()):
                    timer.cancel()
                self._pool.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            with suppress(PenstockError):  # what went wrong first is what is told
                self.close()

    def _lane(self, number: int, tails: dict[int, Seen[Tail]]) -> Lane:
        seen = tails.get(number)
        mark = None if seen is None else seen.document.marks.get(self.name)
        return Lane(self._way, number, seen, 0 if mark is None else mark.sequence)

    def _append_numbered(self, table: pa.Table, partition: int | str | None, sequence: int) -> Ack:
        if not isinstance(partition, int) or sequence < 1 or not table.num_rows:
            raise Invalid(
                self._way.log,
                f"was given batch {sequence} with {table.num_rows} rows for {partition!r}",
                "give a number of 1 or more, a partition, and rows",
            )
        lane = self._lanes[self._checked(partition)]
        if sequence <= lane.sequence:
            return Ack([])
        return Ack([self._add(partition, table, sequence)])

    def _routed(
        self, table: pa.Table, partition: int | str | None
    ) -> Iterator[tuple[int, pa.Table]]:
        count = len(self._lanes)
        if isinstance(partition, int):
            yield self._checked(partition), table
        elif partition == ROUND_ROBIN or (partition is None and not self._topic.key):
            self._turn = (self._turn + 1) % count
            yield self._turn, table
        elif partition is None and count == 1:
            yield 0, table
        elif partition is None:
            yield from self._by_key(table, count)
        else:
            raise Invalid(
                f"{self._way.log}, partition {partition!r}",
                "is none",
                f"give a number, {ROUND_ROBIN!r} or nothing",
            )

    def _by_key(self, table: pa.Table, count: int) -> Iterator[tuple[int, pa.Table]]:
        groups = key_groups([table.column(name) for name in self._topic.key])
        numbers = groups.astype(np.int64) * count // GROUPS
        order = np.argsort(numbers, kind="stable")
        ordered = table.take(order)
        ends = np.cumsum(np.bincount(numbers, minlength=count)).tolist()
        for number, (start, stop) in enumerate(zip([0, *ends], ends, strict=False)):
            yield number, ordered.slice(start, stop - start)

    def _add(self, number: int, table: pa.Table, sequence: int | None) -> "Future[Placed]":
        lane, size_bytes = self._lanes[number], table.nbytes
        self._wait_for_room(size_bytes)
        placed = lane.add(table, sequence)
        with self._room:
            self._unsent.add(placed)
        placed.add_done_callback(lambda done: self._make_room(done, size_bytes))
        if lane.is_full():
            self._send(lane)
        else:
            self._send_later(lane)
        return placed

    def _wait_for_room(self, size_bytes: int) -> None:
        most = self._way.batching.waiting_bytes_max
        with self._room:
            while self._waiting_bytes and self._waiting_bytes + size_bytes > most:
                for lane in self._lanes:
                    self._send(lane)
                self._room.wait(1.0)
            self._waiting_bytes += size_bytes

    def _make_room(self, done: "Future[Placed]", size_bytes: int) -> None:
        with self._room:
            self._waiting_bytes -= size_bytes
            self._unsent.discard(done)
            self._room.notify_all()

    def _send(self, lane: Lane) -> None:
        if lane.enter():
            self._pool.submit(lane.drain)

    def _send_later(self, lane: Lane) -> None:
        with self._room:
            if lane.partition in self._timers:
                return
            timer = threading.Timer(self._way.batching.linger_s, self._send_now, (lane,))
            timer.daemon = True
            self._timers[lane.partition] = timer
        timer.start()

    def _send_now(self, lane: Lane) -> None:
        with self._room:  # first: rows that come from here on get a timer of their own
            self._timers.pop(lane.partition, None)
        with suppress(RuntimeError):  # closed meanwhile, and so flushed
            self._send(lane)

    def _checked(self, partition: int) -> int:
        if not 0 <= partition < len(self._lanes):
            raise Invalid(
                f"{self._way.log}, partition {partition}",
                f"does not exist: there are {len(self._lanes)}",
                f"use 0 to {len(self._lanes) - 1}",
            )
        return partition
