"""A lane: one producer's way into one partition, one group of batches after the other.

While a group is on its way, what is appended waits, and goes together as the next group. So the
slower the store, or the stronger the competition, the larger the groups.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.checkpoint.perform import Handlers, perform
from penstock.clock import Chance, Clock
from penstock.errors import Bug, Invalid, PenstockError, Unavailable
from penstock.fencing.register import Seen
from penstock.sources.log_append import Appended, Batch, Outdated, Staged, Writer, append, stage
from penstock.sources.log_look import read_tail
from penstock.sources.log_segment import encode, event_max_ms
from penstock.sources.log_tail import Tail
from penstock.sources.protocol import Range

__all__ = ["Batching", "Lane", "Placed", "Way"]

PAUSE_S, PAUSE_S_MAX = 0.1, 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """When rows are sent, and how much may wait."""

    rows: int = 100_000
    size_bytes: int = 8 << 20
    """Of a segment, before compression."""
    linger_s: float = 0.05
    """How long rows wait for company."""
    waiting_bytes_max: int = 64 << 20
    """Whoever appends more waits until there is room."""
    give_up_s: float = 120.0
    """How long a store that does not answer is asked again."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Where rows went."""

    partition: int
    offsets: Range


@dataclass(frozen=True, slots=True)
class Way:
    """What a lane needs of its producer."""

    log: str
    """How messages call the topic."""
    writer: Writer
    event_time: str | None
    handlers: Handlers
    clock: Clock
    chance: Chance
    batching: Batching


@dataclass(slots=True)
class _Waiting:
    """Rows of one call, and who waits for them."""

    rows: pa.Table
    sequence: int | None
    placed: "Future[Placed]"


@dataclass(slots=True)
class _Group:
    """What one batch is made of."""

    batch: Batch
    parts: list[_Waiting]


@dataclass(slots=True)
class Lane:
    """Promise: rows are taken in in the order they were added, each once; after a failure no
    more are taken."""

    way: Way
    partition: int
    seen: Seen[Tail] | None = None
    sequence: int = 0
    """Of the last batch that was made."""
    failure: PenstockError | None = None
    _waiting: list[_Waiting] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _running: bool = False
    _added: int = 0
    """The last number that was given to a batch by whoever appends."""

    def add(self, rows: pa.Table, sequence: int | None) -> "Future[Placed]":
        """Let rows wait their turn."""
        waiting = _Waiting(rows, sequence, Future())
        with self._lock:
            if self.failure is not None:
                raise self.failure
            if sequence is not None and sequence <= self._added:
                raise Invalid(f"batch {sequence}", "was appended before", "give each its number")
            self._added = sequence or self._added
            self._waiting.append(waiting)
        return waiting.placed

    def is_full(self) -> bool:
        """Whether a batch's worth is waiting."""
        with self._lock:
            rows = sum(each.rows.num_rows for each in self._waiting)
            size_bytes: int = sum(each.rows.nbytes for each in self._waiting)
        return rows >= self.way.batching.rows or size_bytes >= self.way.batching.size_bytes

    def enter(self) -> bool:
        """Whether the caller is the one to drain it now."""
        with self._lock:
            if self._running or not self._waiting:
                return False
            self._running = True
            return True

    def drain(self) -> None:
        """Send what is waiting, and what comes meanwhile, until nothing is left."""
        while taken := self._take():
            try:
                self._send(taken)
            except PenstockError as failure:
                self._fail(failure, taken)
            except Exception as error:  # noqa: BLE001 - nobody may wait for rows in vain
                self._fail(Bug(self.way.log, f"failed ({error!r})", "report this"), taken)

    def _take(self) -> list[_Waiting]:
        with self._lock:
            taken, self._waiting = self._waiting, []
            self._running = bool(taken)
        return taken

    def _send(self, taken: Sequence[_Waiting]) -> None:
        groups = [self._batch(parts) for parts in _batches(taken, self.way.batching)]
        appended = self._append([group.batch for group in groups])
        self.seen = appended.tail
        for group in groups:
            start = appended.stops[group.batch.sequence] - group.batch.rows
            for part in group.parts:
                stop = start + part.rows.num_rows
                part.placed.set_result(Placed(self.partition, Range(start=start, stop=stop)))
                start = stop

    def _batch(self, parts: list[_Waiting]) -> _Group:
        rows = pa.concat_tables([part.rows for part in parts])
        rows = rows.combine_chunks() if rows.num_rows else rows
        follows, given = self.sequence, parts[0].sequence
        self.sequence = follows + 1 if given is None else given
        latest_ms = event_max_ms(rows, self.way.event_time)
        return _Group(Batch(self.sequence, follows, rows.num_rows, latest_ms, encode(rows)), parts)

    def _append(self, batches: list[Batch]) -> Appended:
        """Stage and append, again and again until it is done or hopeless."""
        started_s, pause_s = self.way.clock.monotonic(), PAUSE_S
        staged: list[Staged] = []
        while True:
            try:
                staged = staged or [self._stage(batch) for batch in batches]
                return self._perform_append(staged)
            except Outdated:
                staged = []
                looking = read_tail(self.way.writer.topic, self.partition)
                self.seen = perform(looking, self.way.handlers)
            except Unavailable:  # perhaps it is in: the mark will tell
                if self.way.clock.monotonic() - started_s > self.way.batching.give_up_s:
                    raise
                self.way.clock.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _stage(self, batch: Batch) -> Staged:
        version = 0 if self.seen is None else self.seen.document.version
        staging = stage(self.partition, batch, version, self.way.chance)
        return perform(staging, self.way.handlers)

    def _perform_append(self, staged: list[Staged]) -> Appended:
        now_ms = round(self.way.clock.wall() * 1000)
        appending = append(
            self.way.writer, self.partition, staged, now_ms, self.way.chance, self.seen
        )
        return perform(appending, self.way.handlers)

    def _fail(self, failure: PenstockError, taken: Sequence[_Waiting]) -> None:
        with self._lock:
            self.failure = failure
            lost, self._waiting = [*taken, *self._waiting], []
        for each in lost:
            if not each.placed.done():
                each.placed.set_exception(failure)


def _batches(taken: Sequence[_Waiting], batching: Batching) -> list[list[_Waiting]]:
    """Rows that make a batch together. Numbered ones are a batch each."""
    batches: list[list[_Waiting]] = []
    rows = size_bytes = 0
    for each in taken:
        rows, size_bytes = rows + each.rows.num_rows, size_bytes + each.rows.nbytes
        full = rows > batching.rows or size_bytes > batching.size_bytes
        numbered = each.sequence is not None or (batches and batches[-1][0].sequence is not None)
        if not batches or full or numbered:
            batches.append([])
            rows, size_bytes = each.rows.num_rows, each.rows.nbytes
        batches[-1].append(each)
    return batches
