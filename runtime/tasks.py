"""What Spark calls in its workers: one function per stage, over parts.

The job itself is sent as bytes inside each function, and opened once per worker process.
"""

import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

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
    "PlanHere",
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
    """The job, opened, and the process made ready for task after task.

    Whatever is loaded by now stays for good, so it is kept out of the search for cycles that Spark
    makes after each task: that would take longer than a small task. And Arrow takes its memory from
    the system's own pool, which keeps what was freed: the pages of each epoch's rows are the last
    one's, and not new ones that must be mapped first.
    """
    shop: Workshop = unpacked_job(body)
    pa.set_memory_pool(pa.system_memory_pool())
    gc.collect()
    gc.freeze()
    return shop


def _partition() -> int:
    context = TaskContext.get()
    assert context is not None, "Spark calls this"
    return int(context.partitionId())


@dataclass(frozen=True, slots=True)
class PlanHere:
    """Where a reading task finds its plan: in the function itself, or in a setting that Spark
    hands to every task of the query. With a setting the function stays the same from epoch to
    epoch, and so does most of what Spark makes of it."""

    body: bytes | None = None
    setting: str = ""

    def found(self) -> Plan:
        """The plan."""
        body: bytes | str | None = self.body
        if body is None:
            context = TaskContext.get()
            body = None if context is None else context.getLocalProperty(self.setting)
            assert body is not None, "the driver sets it before the query begins"
        return decode(body, Plan)


@dataclass(frozen=True, slots=True)
class ReadStage:
    """Stage 0. Each row of its input is the number of a task in the plan."""

    packed: bytes
    plan: PlanHere

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """The stage's work on one of Spark's partitions."""
        shop = _workshop(self.packed)
        yield from batches_of(self._parts(shop, batches))

    def _parts(self, shop: Workshop, batches: Batches) -> Iterator[Part]:
        plan = self.plan.found()
        for number in _numbers(batches):
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
    plan: PlanHere
    source: str

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """The stage's work on one of Spark's partitions."""
        shop, plan = _workshop(self.packed), self.plan.found()
        for number in _numbers(batches):
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


def _numbers(batches: Batches) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()
