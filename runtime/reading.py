"""Reading ranges of sources in a task, and sending the rows to the partitions of their keys."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.errors import PenstockError
from penstock.runtime.packing import Packer
from penstock.runtime.processing import failure_part
from penstock.runtime.replays import Replays
from penstock.runtime.topology import SourceNode, Topology
from penstock.runtime.undecodable import Left, count_left, stage_left, without_untimely
from penstock.runtime.wire import (
    DRIVER,
    Kind,
    Part,
    Plan,
    RangeRead,
    Report,
    WantedRange,
    encode,
)
from penstock.runtime.workshop import Workshop
from penstock.sources.event_times import as_times
from penstock.sources.protocol import META_NAME, TIME, Range, Sifting, Undecoded

__all__ = ["ROWS_META", "RangeReader", "read", "report_of", "rows_schema"]

CHUNK_ROWS = 1 << 19
"""Rows are hashed and packed in pieces of about so many: fewer, larger parts cost less."""

CHUNK_BYTES = 128 << 20
"""And of about so much, if rows are wide: a part must stay far from what one value may take."""

ROWS_META = pa.struct(
    [
        ("source", pa.string()),
        ("partition", pa.string()),
        ("offset", pa.int64()),
        ("event_time", TIME),
        ("broker_time", TIME),
        ("ingest_time", TIME),
    ]
)
"""What a transform sees of each row as `_meta`, and must keep."""


def read(shop: Workshop, plan: Plan, number: int) -> Iterator[Part]:
    """What one reading task sends: orders to pass on, rows, barriers, its report."""
    task = plan.tasks[number]
    topology = shop.topology
    for stage, partition, orders in task.orders:
        yield Part(partition, stage, Kind.ORDERS, encode(orders))
    packers = {
        (name, target.stage, feed_number): Packer.to(
            topology,
            target.stage,
            feed_number,
            feed,
            plan.run,
            travels=not (plan.direct and target.stage == 1),
        )
        for name in topology.sources
        if name not in topology.transformed
        for target, feed_number, feed in topology.feeds_from(name)
    }
    readers = []
    try:
        for wanted in task.ranges:
            if wanted.source in topology.transformed:
                continue
            reader = RangeReader(topology, wanted, plan.planned_ms)
            for count, table in enumerate(reader.tables()):
                for (name, _, _), packer in packers.items():
                    if name == wanted.source:
                        rank = (wanted.start, count)
                        yield from packer.pack(table, name, wanted.partition, rank)
            readers.append(reader)
        report = report_of(shop, plan, number, readers)
    except PenstockError as error:
        yield failure_part(error, plan.run, 0, number)
        return
    for packer in packers.values():
        yield from packer.barriers(number, len(plan.tasks))
    yield Part(0, DRIVER, Kind.REPORT, encode(report))


def report_of(shop: Workshop, plan: Plan, number: int, readers: "Sequence[RangeReader]") -> Report:
    """What one reading task has done. What it had to leave out is stored first."""
    left = [Left(each.wanted, sorted(each.left, key=_offset)) for each in readers]
    return Report(
        run=plan.run,
        stage=0,
        partition=number,
        reads=tuple(reader.result() for reader in readers),
        outputs=stage_left(shop, plan, number, left),
        quarantined=count_left(shop.topology, left),
    )


def _offset(left: Undecoded) -> int:
    return left.offset


@dataclass(slots=True)
class RangeReader:
    """One range, as tables of some size."""

    topology: Topology
    wanted: WantedRange
    planned_ms: int
    rows: int = 0
    latest: Any = field(default=None)
    left: list[Undecoded] = field(default_factory=list)
    """Messages that could not be decoded."""

    def tables(self) -> Iterator[pa.Table]:
        """The rows, with what is known of each in columns of our own."""
        return (table for table in map(self._table, self._chunks()) if table.num_rows)

    def _chunks(self) -> Iterator[list[pa.RecordBatch]]:
        held: list[pa.RecordBatch] = []
        count = size_bytes = 0
        for batch in self._batches():
            held.append(batch)
            count += batch.num_rows
            size_bytes += batch.nbytes
            if count >= CHUNK_ROWS or size_bytes >= CHUNK_BYTES:
                yield held
                held, count, size_bytes = [], 0, 0
        if held:
            yield held

    def result(self) -> RangeRead:
        """What the range turned out to hold."""
        latest_ms = None if self.latest is None else self.latest // 1000
        return RangeRead(wanted=self.wanted, rows=self.rows, latest_ms=latest_ms)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        source = self.topology.sources[self.wanted.source].source
        range_ = Range(start=self.wanted.start, stop=self.wanted.stop)
        if self.wanted.letters is not None and isinstance(source, Replays):
            return source.read_file(self.wanted.letters, range_)
        if isinstance(source, Sifting) and source.sifts:
            batches = self._sifted(source, range_)
        else:
            batches = source.read(self.wanted.partition, range_, self.planned_ms)
        return (batch for batch in batches if batch.num_rows)

    def _sifted(self, source: Sifting, range_: Range) -> Iterator[pa.RecordBatch]:
        """The rows of a range. What cannot be decoded is set aside."""
        found = source.read_with_dropped(self.wanted.partition, range_, self.planned_ms)
        for each in found:
            if isinstance(each, pa.RecordBatch):
                yield each
            else:
                self.left.append(each)

    def _table(self, batches: list[pa.RecordBatch]) -> pa.Table:
        node = self.topology.sources[self.wanted.source]
        whole = pa.Table.from_batches(batches)
        offsets, times, broker = _meta(whole)
        if node.event_time is not None:
            times = as_times(whole.column(node.event_time))
        table = whole.drop_columns([META_NAME])
        for name, column in (
            ("_offset", offsets),
            ("_event_time", times),
            ("_broker_time", broker),
        ):
            table = table.append_column(name, column)
        table, left = without_untimely(node, self.wanted.partition, table)
        self.left += left
        self.rows += table.num_rows
        self._move_on(pc.max(table.column("_event_time").cast(pa.int64())).as_py())
        return table

    def _move_on(self, latest: int | None) -> None:
        if latest is not None:
            self.latest = latest if self.latest is None else max(self.latest, latest)


def _meta(table: pa.Table) -> tuple[pa.ChunkedArray, pa.ChunkedArray, pa.ChunkedArray]:
    meta = table.column(META_NAME)
    names = ("offset", "event_time", "broker_time")
    chunks = [[chunk.field(name) for chunk in meta.chunks] for name in names]
    kinds = (pa.int64(), TIME, TIME)
    offset, event, broker = (
        pa.chunked_array(each, type=kind) for each, kind in zip(chunks, kinds, strict=True)
    )
    return offset, event, broker


def rows_schema(node: SourceNode) -> pa.Schema:
    """The rows of a source as a transform sees them."""
    return pa.schema([*node.schema, pa.field(META_NAME, ROWS_META)])
