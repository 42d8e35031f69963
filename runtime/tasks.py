"""What Spark calls in its workers: one function per stage, over parts.

The job itself is sent as bytes inside each function, and opened once per worker process.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark import TaskContext

from penstock.errors import Unavailable
from penstock.runtime.inbox import Inbox
from penstock.runtime.processing import failure_part, process
from penstock.runtime.reading import read
from penstock.runtime.sending import packed, unpacked_job
from penstock.runtime.transforming import pack_rows, read_rows
from penstock.runtime.wire import Kind, Part, Plan, batches_of, decode, parts_of
from penstock.runtime.workshop import Workshop

__all__ = [
    "Misplaced",
    "OperatorStage",
    "PackStage",
    "ReadStage",
    "RowsStage",
    "packed_workshop",
]

Batches = Iterable[pa.RecordBatch]


class Misplaced(Unavailable):
    """A row is in another partition of its topic than its key says: the topic was appended to by
    partition. Such a topic must be shuffled."""


def packed_workshop(shop: Workshop) -> bytes:
    """A job on its way to the workers."""
    return packed(shop)


@lru_cache(maxsize=4)
def _workshop(body: bytes) -> Workshop:
    shop: Workshop = unpacked_job(body)
    return shop


def _partition() -> int:
    context = TaskContext.get()
    assert context is not None, "Spark calls this"
    return int(context.partitionId())


@dataclass(frozen=True, slots=True)
class ReadStage:
    """Stage 0. Each row of its input is a plan and the number of a task in it."""

    packed: bytes

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """The stage's work on one of Spark's partitions."""
        shop = _workshop(self.packed)
        yield from batches_of(self._parts(shop, batches))

    def _parts(self, shop: Workshop, batches: Batches) -> Iterator[Part]:
        for plan, number in _assignments(batches):
            parts = read(shop, plan, number)
            yield from _direct(shop, parts, number, plan.run) if plan.direct else parts


def _direct(shop: Workshop, parts: Iterator[Part], number: int, run: str) -> Iterator[Part]:
    """Reading and the first operator as one task: nothing of it travels."""
    inbox = Inbox(1)
    for part in parts:
        if part.stage != 1:
            yield part
        elif part.to == number:
            inbox.add(part)
        elif part.kind is Kind.ROWS:
            found = f"holds {part.rows} rows whose key belongs to partition {part.to}"
            error = Misplaced(f"partition {number}", found, "the epoch is shuffled instead")
            yield failure_part(error, run, 1, number)
            return
    yield from process(shop, inbox, number)


@dataclass(frozen=True, slots=True)
class OperatorStage:
    """A stage of an operator: what is for it is processed, the rest is handed on."""

    packed: bytes
    stage: int

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """The stage's work on one of Spark's partitions."""
        shop = _workshop(self.packed)
        yield from batches_of(self._parts(shop, batches))

    def _parts(self, shop: Workshop, batches: Batches) -> Iterator[Part]:
        inbox = Inbox(self.stage)
        for part in parts_of(batches):
            if part.stage == self.stage:
                inbox.add(part)
            else:
                yield part
        yield from process(shop, inbox, _partition())


@dataclass(frozen=True, slots=True)
class RowsStage:
    """Reads a source that is transformed."""

    packed: bytes
    source: str

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """The stage's work on one of Spark's partitions."""
        shop = _workshop(self.packed)
        for plan, number in _assignments(batches):
            yield from read_rows(shop, plan, number, self.source)


@dataclass(frozen=True, slots=True)
class PackStage:
    """Packs what came out of a transform."""

    packed: bytes
    feed: tuple[int, int]
    run: str

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """The stage's work on one of Spark's partitions."""
        shop = _workshop(self.packed)
        yield from batches_of(pack_rows(shop, self.feed, self.run, _partition(), batches))


def _assignments(batches: Batches) -> Iterator[tuple[Plan, int]]:
    for batch in batches:
        rows: Any = zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        for plan, number in rows:
            yield decode(plan, Plan), number
