"""What travels between the driver and its tasks, and between the tasks of one epoch.

It is all one table of *parts*. Rows of events go as Arrow streams, whole: Spark moves a few large
values and never looks at a row. Barriers, orders, reports and failures go in-band beside them, so
they have come from the very attempt that the rows have come from.

    to      the partition it is for
    stage   the stage it is for: 0 reads, 1 and up are the operators, in order
    kind    rows, barrier, orders, report, failure
    rows    how many events are in it
    head    what it is, as JSON
    body    rows only: an Arrow stream

A stage handles what is for it and hands on the rest. What is for nobody further is the driver's.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.checkpoint.formats import Ref
from penstock.checkpoint.manifest import (
    Delta,
    Output,
    Snapshot,
    SnapshotFile,
)
from penstock.checkpoint.recovery import Lineage
from penstock.errors import Bug, Corrupt, Fenced, Gone, Invalid, PenstockError, Unavailable
from penstock.ids import Attempt, Epoch, Generation, Token

__all__ = [
    "DRIVER",
    "PARTS",
    "PARTS_DDL",
    "Barrier",
    "Failure",
    "Kind",
    "Narrow",
    "Orders",
    "Part",
    "Plan",
    "RangeRead",
    "ReadTask",
    "Report",
    "RowsHead",
    "WantedRange",
    "batches_of",
    "decode",
    "encode",
    "parts_of",
]

PARTS = pa.schema(
    [
        ("to", pa.int32()),
        ("stage", pa.int32()),
        ("kind", pa.string()),
        ("rows", pa.int64()),
        ("head", pa.binary()),
        ("body", pa.binary()),
    ]
)
PARTS_DDL = "to int, stage int, kind string, rows long, head binary, body binary"

DRIVER = 1 << 30
"""The stage of what is for the driver."""

BATCH_BYTES = 64 << 20
"""Parts without rows are handed to Spark in batches of about so much."""


class Kind(StrEnum):
    """What a part is."""

    ROWS = "rows"
    BARRIER = "barrier"
    ORDERS = "orders"
    REPORT = "report"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Part:
    """One row of the table."""

    to: int
    stage: int
    kind: Kind
    head: bytes
    rows: int = 0
    body: Any = None
    """An Arrow stream; within one process also a table."""


class Narrow(msgspec.Struct, frozen=True, kw_only=True):
    """A column that holds the distance from a number, and not the number itself."""

    least: int
    kind: str
    """What it is otherwise."""


class RowsHead(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows are in a part."""

    feed: int
    """Which of the operator's feeds they are of."""
    source: str | None
    """The source or operator they come from; None: each row says so itself."""
    partition: str
    rank: tuple[int, int]
    """Where they stand among the rows of their feed: the first offset, or the task, and a count."""
    narrowed: dict[str, Narrow] = {}
    """Columns that hold distances."""


class Barrier(msgspec.Struct, frozen=True, kw_only=True):
    """One upstream task has sent this partition everything it has."""

    run: str
    feed: int
    """Which of the operator's feeds it is of."""
    origin: str
    task: int
    tasks: int
    """How many tasks of that origin there are; 0 if nobody can know."""
    rows: int
    """How many rows of its own it has sent to this partition."""


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What one partition of one operator does in an epoch."""

    run: str
    """Unique for each try of an epoch."""
    epoch: Epoch
    generation: Generation
    token: Token
    watermark_ms: int | None
    planned_ms: int
    files: tuple[SnapshotFile, ...]
    deltas: tuple[tuple[Epoch, Delta], ...]
    files_at: tuple[Epoch, Attempt] | None
    cuts_snapshot: bool
    seeds_changelog: bool = False
    """Whether a changelog that is kept elsewhere begins with this epoch, so that it is given all
    that was before too."""
    origins: tuple[tuple[str, int], ...]
    """For each feed, where it comes from and how many tasks must send a barrier; 0 if nobody can
    know."""

    @property
    def lineage(self) -> Lineage:
        """The committed version it begins with."""
        return Lineage(self.files, self.deltas, self.files_at)


class WantedRange(msgspec.Struct, frozen=True, kw_only=True):
    """A range of a source, or a piece of one, for one task."""

    source: str
    partition: str
    start: int
    stop: int
    letters: Ref | None = None
    """The file that holds the range, if it is one of replayed dead letters."""


class ReadTask(msgspec.Struct, frozen=True, kw_only=True):
    """What one reading task does."""

    ranges: tuple[WantedRange, ...] = ()
    orders: tuple[tuple[int, int, Orders], ...] = ()
    """Orders it passes on: stage, partition, orders. Those of its own, if reading and the first
    operator are one task."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One try of an epoch, as every reading task is told."""

    run: str
    epoch: Epoch
    planned_ms: int
    direct: bool
    """Whether each reading task is also the partition of the first operator its rows are for."""
    tasks: tuple[ReadTask, ...]


class RangeRead(msgspec.Struct, frozen=True, kw_only=True):
    """What one range turned out to hold."""

    wanted: WantedRange
    rows: int
    latest_ms: int | None
    """The latest event time in it."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What one task did. Of a reading task only `reads` is filled in."""

    run: str
    stage: int
    partition: int
    reads: tuple[RangeRead, ...] = ()
    rows_in: dict[str, int] = {}
    """Rows that came, by origin."""
    rows_out: int = 0
    delta: Delta | None = None
    snapshot: Snapshot | None = None
    outputs: dict[str, Output] = {}
    quarantined: int = 0
    restored: str = ""
    """How the state was brought up, in words."""
    restore_bytes: int = 0
    next_timer_ms: int | None = None
    """When the next timer by processing time is due."""
    seconds: dict[str, float] = {}


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A task that could not do its work, and why. It is a value, not an exception, so that the
    driver gets it word for word, and Spark does not try again what cannot succeed."""

    run: str
    stage: int
    partition: int
    kind: str
    """Which of our errors the driver raises."""
    code: str
    """The class of the error."""
    subject: str
    found: str
    advice: str
    trace: str = ""
    """Where in the user's code."""

    def error(self) -> PenstockError:
        """The same as an exception, with `code` and `trace` as facts."""
        kinds: dict[str, type[PenstockError]] = {
            kind.__name__: kind for kind in (Unavailable, Corrupt, Invalid, Gone, Bug)
        }
        made = kinds.get(self.kind, Bug)(self.subject, self.found, self.advice)
        vars(made).update(trace=self.trace, code=self.code)
        return made

    @staticmethod
    def of(
        error: PenstockError, run: str, stage: int, partition: int, trace: str = ""
    ) -> "Failure":
        """What is said of an error."""
        kind = "Bug" if isinstance(error, Fenced) else _kind(error)
        return Failure(
            run=run,
            stage=stage,
            partition=partition,
            kind=kind,
            code=type(error).__name__,
            subject=error.subject,
            found=error.found,
            advice=error.advice,
            trace=trace,
        )


def _kind(error: PenstockError) -> str:
    known = (Unavailable, Corrupt, Gone, Invalid)
    return next((kind.__name__ for kind in known if isinstance(error, kind)), "Bug")


T = TypeVar("T")


def encode(head: msgspec.Struct) -> bytes:
    """The head of a part."""
    return msgspec.json.encode(head)


def decode(head: bytes | str, kind: type[T]) -> T:
    """What a head says."""
    return msgspec.json.decode(head, type=kind)


def batches_of(parts: Iterable[Part]) -> Iterator[pa.RecordBatch]:
    """Parts as Spark takes them. One with rows is a batch of its own, so that they are not copied
    once more on the way."""
    held: list[Part] = []
    size_bytes = 0
    for part in parts:
        if part.body is not None:
            yield _batch([part], _as_one_value(part.body))
            continue
        held.append(part)
        size_bytes += len(part.head)
        if size_bytes >= BATCH_BYTES:
            yield _batch(held, pa.nulls(len(held), pa.binary()))
            held, size_bytes = [], 0
    if held:
        yield _batch(held, pa.nulls(len(held), pa.binary()))


def _as_one_value(body: Any) -> pa.Array:
    """A column of one binary, which is that buffer."""
    buffer = pa.py_buffer(body)
    stops = pa.py_buffer(np.array([0, buffer.size], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, stops, buffer])


def _batch(parts: list[Part], bodies: pa.Array) -> pa.RecordBatch:
    columns: list[Any] = [
        [part.to for part in parts],
        [part.stage for part in parts],
        [part.kind.value for part in parts],
        [part.rows for part in parts],
        [part.head for part in parts],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, PARTS, strict=False)]
    return pa.RecordBatch.from_arrays([*arrays, bodies], schema=PARTS)


def parts_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Part]:
    """Parts as Spark hands them over. Bodies are views of its buffers, not copies."""
    for batch in batches:
        to, stage, kind, rows, head, body = (batch.column(name) for name in PARTS.names)
        for number in range(batch.num_rows):
            buffer = body[number].as_buffer() if body[number].is_valid else None
            yield Part(
                to[number].as_py(),
                stage[number].as_py(),
                Kind(kind[number].as_py()),
                head[number].as_py(),
                rows[number].as_py(),
                buffer,
            )
