"""The producer: appends rows to a topic, in batches, and says when they are durable.

Rows of one producer come into a partition in the order they were appended. A retry, here or below,
adds nothing. A producer with a name can be started again after a crash: the new one takes over,
the old one is refused, and `last_sequence` tells what the log has of it.
"""

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.errors import Invalid, PenstockError, Unavailable
from penstock.fencing.register import Seen
from penstock.sources.log_lane import ENTRY_BYTES, Lane, Placed, Wiring
from penstock.sources.log_rows import Rows, check_moments, fitted, from_json_lines
from penstock.sources.log_tail import Tail
from penstock.sources.log_topic import Topic
from penstock.state.key_groups import GROUPS
from penstock.state.key_hash import key_groups

__all__ = ["Ack", "Producer"]

THREADS_MAX = 4
ROUND_ROBIN = "round robin"
MAKE_NEW = "make a new one"


@dataclass(frozen=True, slots=True)
class Ack:
    """The rows of one call on their way."""

    _parts: "list[Future[Placed]]"

    @property
    def is_done(self) -> bool:
        """Whether all of them are durable, or will never be."""
        return all(part.done() for part in self._parts)

    def wait(self, timeout_s: float | None = None) -> list[Placed]:
        """Where they went, once all of them are durable. `Unavailable` if that takes longer."""
        late = wait(self._parts, timeout_s).not_done
        if late:
            raise Unavailable(
                "rows that were appended",
                f"are not all durable after {timeout_s} s",
                "wait again; they are still on their way",
            )
        return [part.result() for part in self._parts]


class Producer:
    """Appends to one topic. Use it as a context: leaving it sends what is left."""

    def __init__(
        self, name: str, topic: Topic, wiring: Wiring, tails: dict[int, Seen[Tail]] | None = None
    ) -> None:
        self.name = name
        self._topic = topic
        self._schema = topic.schema
        self._wiring = wiring
        self._lanes = [self._lane(number, tails or {}) for number in range(topic.partitions)]
        self._pool = ThreadPoolExecutor(THREADS_MAX, "penstock-producer")
        self._room = threading.Condition()
        self._waiting_bytes = 0
        self._unsent: set[Future[Placed]] = set()
        self._timers: dict[int, threading.Timer] = {}
        self._turn = 0
        self._is_closed = False

    def last_sequence(self, partition: int) -> int:
        """The number of the last batch that the log is known to have of this producer."""
        return self._lanes[self._checked(partition)].taken

    def append(
        self, rows: Rows, partition: int | str | None = None, sequence: int | None = None
    ) -> Ack:
        """Add rows: by their key, or in turn if the topic has none; or to a partition given.

        With a `sequence`, which needs a partition, the rows are one batch of that number. It must
        be greater than all before; a batch that the log has already is not added again. Batches of
        a producer have numbers all, or none.
        """
        if self._is_closed:
            raise Invalid(
                self._wiring.log, "was given rows after its producer closed", "make a new one"
            )
        table = self._fitted(rows)
        if sequence is not None:
            return self._append_numbered(table, partition, sequence)
        parts = [(n, part) for n, part in self._routed(table, partition) if part.num_rows]
        for number, _ in parts:  # all of them first: rows go to all lanes, or to none
            self._lanes[number].check()
        added = [self._add(number, part, None) for number, part in parts]
        return Ack([placed for placed in added if placed is not None])

    def _fitted(self, rows: Rows) -> pa.Table:
        """The rows as the topic keeps them; all of them, or none."""
        try:
            table = fitted(self._wiring.log, rows, self._schema)
            if self._wiring.event_time is not None:
                check_moments(self._wiring.log, table, self._wiring.event_time)
        except Invalid as refused:
            advice = f"{refused.advice}; nothing was appended"
            raise Invalid(refused.subject, refused.found, advice) from refused
        return table

    def append_lines(self, lines: Iterable[str | bytes], partition: int | str | None = None) -> Ack:
        """Add rows written as JSON, one object per line."""
        return self.append(from_json_lines(self._wiring.log, lines), partition)

    def flush(self) -> None:
        """Return when everything appended so far is durable; raise if something never will be."""
        with self._room:
            unsent = list(self._unsent)
        for lane in self._lanes:
            self._send(lane)
        for placed in unsent:
            placed.result()
        for lane in self._lanes:
            lane.check()

    def close(self) -> None:
        """Send what is left, and let go."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.flush()
        finally:
            for timer in list(self._timers.values()):
                timer.cancel()
            self._pool.shutdown()
            closed = Invalid(self._wiring.log, "was given rows by a closed producer", MAKE_NEW)
            for lane in self._lanes:  # whoever appended meanwhile is told, and not left waiting
                lane.fail(closed)

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
        return Lane(self._wiring, number, seen, 0 if mark is None else mark.sequence)

    def _append_numbered(self, table: pa.Table, partition: int | str | None, sequence: int) -> Ack:
        if not isinstance(partition, int) or sequence < 1 or not table.num_rows:
            raise Invalid(
                self._wiring.log,
                f"was given batch {sequence} with {table.num_rows} rows for {partition!r}",
                "give a number of 1 or more, a partition, and rows",
            )
        placed = self._add(self._checked(partition), table, sequence)
        return Ack([] if placed is None else [placed])

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
                f"{self._wiring.log}, partition {partition!r}",
                "is none",
                f"give a number, {ROUND_ROBIN!r} or nothing",
            )

    def _by_key(self, table: pa.Table, count: int) -> Iterator[tuple[int, pa.Table]]:
        groups = key_groups([table.column(name) for name in self._topic.key])
        numbers = (groups.astype(np.int64) * count // GROUPS).astype(np.uint8)  # sorted by radix
        order = np.argsort(numbers, kind="stable")
        ordered = table.take(order)
        ends = np.cumsum(np.bincount(numbers, minlength=count)).tolist()
        for number, (start, stop) in enumerate(zip([0, *ends], ends, strict=False)):
            yield number, ordered.slice(start, stop - start)

    def _add(self, number: int, table: pa.Table, sequence: int | None) -> "Future[Placed] | None":
        lane, size_bytes = self._lanes[number], table.nbytes + ENTRY_BYTES
        self._wait_for_room(size_bytes)
        try:
            placed = lane.add(table, sequence)
        except BaseException:
            self._make_room(size_bytes)
            raise
        if placed is None:
            self._make_room(size_bytes)
            return None
        with self._room:
            is_new = placed not in self._unsent
            self._unsent.add(placed)
        if is_new:
            placed.add_done_callback(lambda done: self._sent(done, size_bytes))
        else:
            self._make_room(size_bytes)
        if lane.is_full():
            self._send(lane)
        else:
            self._send_later(lane)
        return placed

    def _wait_for_room(self, size_bytes: int) -> None:
        most = self._wiring.batching.waiting_bytes_max
        with self._room:
            while self._waiting_bytes and self._waiting_bytes + size_bytes > most:
                for lane in self._lanes:
                    self._send(lane)
                self._room.wait(1.0)
            self._waiting_bytes += size_bytes

    def _sent(self, done: "Future[Placed]", size_bytes: int) -> None:
        with self._room:
            self._unsent.discard(done)
        self._make_room(size_bytes)

    def _make_room(self, size_bytes: int) -> None:
        with self._room:
            self._waiting_bytes -= size_bytes
            self._room.notify_all()

    def _send(self, lane: Lane) -> None:
        """Have what waits in a lane sent, if nobody does already."""
        if lane.enter():
            try:
                self._pool.submit(self._send_and_go_on, lane)
            except RuntimeError as error:  # closed meanwhile
                lane.fail(Invalid(self._wiring.log, f"cannot send ({error})", MAKE_NEW))

    def _send_and_go_on(self, lane: Lane) -> None:
        """One group, then back to the end of the queue, so that no lane starves another."""
        lane.send()
        self._send(lane)

    def _send_later(self, lane: Lane) -> None:
        with self._room:
            if lane.partition in self._timers:
                return
            timer = threading.Timer(self._wiring.batching.linger_s, self._send_now, (lane,))
            timer.daemon = True
            self._timers[lane.partition] = timer
        timer.start()

    def _send_now(self, lane: Lane) -> None:
        with self._room:  # first: rows that come from here on get a timer of their own
            self._timers.pop(lane.partition, None)
        self._send(lane)

    def _checked(self, partition: int) -> int:
        if not 0 <= partition < len(self._lanes):
            raise Invalid(
                f"{self._wiring.log}, partition {partition}",
                f"does not exist: there are {len(self._lanes)}",
                f"use 0 to {len(self._lanes) - 1}",
            )
        return partition
