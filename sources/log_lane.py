"""A lane: one producer's way into one partition, one group of batches after the other.

While a group is on its way, what is appended waits, and goes together as the next group. So the
slower the store, or the stronger the competition, the larger the groups.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from copy import copy
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
from penstock.sources.log_topic import read_topic
from penstock.sources.protocol import Range

__all__ = ["ENTRY_BYTES", "Batching", "Lane", "Placed", "Wiring"]

PAUSE_S, PAUSE_S_MAX = 0.1, 2.0
OUTDATED_MAX = 3
"""How often in a row what was staged may be swept before there is a pause."""
ENTRY_BYTES = 4096
"""What the rows of one call take in memory beside their bytes, about."""


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
class Wiring:
    """What a lane needs of its producer."""

    log: str
    """How messages call the topic."""
    writer: Writer
    event_time: str | None
    handlers: Handlers
    clock: Clock
    chance: Chance
    batching: Batching

    def check_topic(self) -> None:
        """Raise if the topic is not the one that was opened."""
        if perform(read_topic(self.log), self.handlers).document.id != self.writer.topic:
            raise Invalid(
                self.log,
                "was removed and made anew since this producer was made",
                "make a new producer",
            )


@dataclass(slots=True)
class _Waiting:
    """Rows of one call, and who waits for them."""

    rows: pa.Table
    size_bytes: int
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
    more are taken, and nobody is left waiting."""

    wiring: Wiring
    partition: int
    seen: Seen[Tail] | None = None
    taken: int = 0
    """The sequence of the last batch that is known to be in the log."""
    _made: int = 0
    _pending: "dict[int, Future[Placed]]" = field(default_factory=dict)
    """By number, the batches that are numbered by whoever appends, and not in yet."""
    _is_numbered: bool | None = None
    """Whether batches are numbered by whoever appends: all of a lane's, or none."""
    _failure: PenstockError | None = None
    _waiting: list[_Waiting] = field(default_factory=list)
    _rows: int = 0
    _size_bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _running: bool = False

    def __post_init__(self) -> None:
        self._made = self.taken

    def check(self) -> None:
        """Raise if no more rows are taken."""
        if self._failure is not None:
            raise copy(self._failure)  # a copy: the original would keep every refused table alive

    def add(self, rows: pa.Table, sequence: int | None) -> "Future[Placed] | None":
        """Let rows wait their turn. Those of a number that waits already are not added again, nor
        those of a number the log has: for these there is nothing to wait for."""
        with self._lock:
            self.check()
            if sequence is not None and sequence <= self.taken:
                return None
            if self._is_numbered not in (None, sequence is not None):
                raise Invalid(
                    f"{self.wiring.log}, partition {self.partition}",
                    "was given rows with a number and rows without",
                    "number all of a producer's batches, or none",
                )
            self._is_numbered = sequence is not None
            if sequence is not None and sequence in self._pending:
                return self._pending[sequence]
            newest = max(self._made, next(reversed(self._pending), 0))
            if sequence is not None and sequence <= newest:
                raise Invalid(
                    f"{self.wiring.log}, batch {sequence}", "comes after a later one", "count up"
                )
            waiting = _Waiting(rows, rows.nbytes, sequence, Future())
            self._waiting.append(waiting)
            self._rows += rows.num_rows
            self._size_bytes += waiting.size_bytes
            if sequence is not None:
                self._pending[sequence] = waiting.placed
            return waiting.placed

    def is_full(self) -> bool:
        """Whether a batch's worth is waiting."""
        batching = self.wiring.batching
        return self._rows >= batching.rows or self._size_bytes >= batching.size_bytes

    def enter(self) -> bool:
        """Whether the caller is the one to send what waits now."""
        with self._lock:
            if self._running or not self._waiting:
                return False
            self._running = True
            return True

    def send(self) -> None:
        """Send what is waiting, as one group. Only for whoever has entered."""
        with self._lock:
            taken, self._waiting = self._waiting, []
            self._rows = self._size_bytes = 0
        try:
            self._send(taken)
        except PenstockError as failure:
            self.fail(failure, taken)
        except Exception as error:  # noqa: BLE001 - nobody may wait for rows in vain
            self.fail(Bug(self.wiring.log, f"failed ({error!r})", "report this"), taken)
        finally:
            with self._lock:
                self._running = False

    def fail(self, failure: PenstockError, taken: Sequence[_Waiting] = ()) -> None:
        """Take no more rows, and tell everybody who waits."""
        with self._lock:
            self._failure = self._failure or failure
            lost, self._waiting = [*taken, *self._waiting], []
        for each in lost:
            if not each.placed.done():
                each.placed.set_exception(copy(failure))

    def _send(self, taken: Sequence[_Waiting]) -> None:
        groups = [self._batch(parts) for parts in _batches(taken, self.wiring.batching)]
        appended = self._append([group.batch for group in groups])
        with self._lock:
            self.seen, self.taken = appended.tail, groups[-1].batch.sequence
            for group in groups:
                self._pending.pop(group.batch.sequence, None)
        for group in groups:
            start = appended.stops[group.batch.sequence] - group.batch.rows
            for part in group.parts:
                stop = start + part.rows.num_rows
                part.placed.set_result(Placed(self.partition, Range(start=start, stop=stop)))
                start = stop

    def _batch(self, parts: list[_Waiting]) -> _Group:
        rows = pa.concat_tables([part.rows for part in parts]).combine_chunks()
        follows, given = self._made, parts[0].sequence
        self._made = follows + 1 if given is None else given
        latest_ms = event_max_ms(rows, self.wiring.event_time)
        return _Group(Batch(self._made, follows, rows.num_rows, latest_ms, encode(rows)), parts)

    def _append(self, batches: list[Batch]) -> Appended:
        """Stage and append, again and again until it is done or hopeless."""
        clock = self.wiring.clock
        started_s, pause_s = clock.monotonic(), PAUSE_S
        staged: list[Staged] = []
        is_outdated, tries = False, 0
        while True:
            try:
                if self.seen is None or is_outdated or tries:
                    self.wiring.check_topic()
                if self.seen is None or is_outdated:
                    self._look()
                staged = staged or [self._stage(batch) for batch in batches]
                return self._append_staged(staged)
            except Unavailable as failure:  # perhaps it is in: the mark will tell
                is_outdated = isinstance(failure, Outdated)
                staged = [] if is_outdated else staged
                tries += 1
                if not is_outdated or tries > OUTDATED_MAX:
                    clock.sleep(pause_s)
                if clock.monotonic() - started_s > self.wiring.batching.give_up_s:
                    self.wiring.check_topic()
                    raise self._given_up(failure) from failure
                pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _given_up(self, failure: Unavailable) -> Unavailable:
        return Unavailable(
            f"{self.wiring.log}, partition {self.partition}",
            f"does not say whether it took rows in ({failure.subject} {failure.found})",
            "start a producer of this name again: its last_sequence tells; or read the end",
        )

    def _look(self) -> None:
        looking = read_tail(self.wiring.writer.topic, self.partition)
        self.seen = perform(looking, self.wiring.handlers)

    def _stage(self, batch: Batch) -> Staged:
        version = 0 if self.seen is None else self.seen.document.version
        staging = stage(self.partition, batch, version, self.wiring.chance)
        return perform(staging, self.wiring.handlers)

    def _append_staged(self, staged: list[Staged]) -> Appended:
        wiring = self.wiring
        now_ms = round(wiring.clock.wall() * 1000)
        appending = append(wiring.writer, self.partition, staged, now_ms, wiring.chance, self.seen)
        return perform(appending, wiring.handlers)


def _batches(taken: Sequence[_Waiting], batching: Batching) -> list[list[_Waiting]]:
    """Rows that make a batch together. Numbered ones are a batch each."""
    batches: list[list[_Waiting]] = []
    rows = size_bytes = 0
    for each in taken:
        rows, size_bytes = rows + each.rows.num_rows, size_bytes + each.size_bytes
        is_full = rows > batching.rows or size_bytes > batching.size_bytes
        if not batches or is_full or each.sequence is not None:
            batches.append([])
            rows, size_bytes = each.rows.num_rows, each.size_bytes
        batches[-1].append(each)
    return batches
