"""Sources whose rows go through Spark's own operations before they are keyed.

Rows go out as rows, with `_meta` as a column of each, and come back as whatever the user's
transform made of them. What a transform does cannot be counted through, so a reading task leaves
its report on the store, under a name of the run, and Spark counts the rows that come out.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.checkpoint.layout import output_key
from penstock.checkpoint.store import fetch
from penstock.errors import PenstockError, Unavailable
from penstock.ids import Attempt, Epoch, Key
from penstock.runtime.packing import Packer
from penstock.runtime.processing import failure_part
from penstock.runtime.reading import ROWS_META, RangeReader, report_of, rows_schema
from penstock.runtime.topology import Topology
from penstock.runtime.wire import Failure, Part, Plan, Report, decode, encode
from penstock.runtime.workshop import Workshop
from penstock.sources.protocol import META_NAME, TIME

__all__ = ["pack_rows", "read_reports", "read_rows"]

BATCH_ROWS = 1 << 16
_KNOWN = ("offset", "event_time", "broker_time")


def read_rows(shop: Workshop, plan: Plan, number: int, source: str) -> Iterator[pa.RecordBatch]:
    """The rows of one source that one task reads; its report goes to the store."""
    schema = rows_schema(shop.topology.sources[source])
    readers: list[RangeReader] = []
    try:
        for wanted in plan.tasks[number].ranges:
            if wanted.source != source:
                continue
            reader = RangeReader(shop.topology, wanted, plan.planned_ms)
            for table in reader.tables():
                yield from _as_rows(table, schema, reader).to_batches(max_chunksize=BATCH_ROWS)
            readers.append(reader)
        body = encode(report_of(shop, plan, number, readers))
    except PenstockError as error:
        body = encode(Failure.of(error, plan.run, 0, number))
    shop.store.put(_report_key(plan, source, number), body)


def _as_rows(table: pa.Table, schema: pa.Schema, reader: RangeReader) -> pa.Table:
    rows = table.num_rows
    ingest = pa.array([reader.planned_ms * 1000], pa.int64()).cast(TIME)[0]
    meta = pa.StructArray.from_arrays(
        [
            pa.repeat(reader.wanted.source, rows),
            pa.repeat(reader.wanted.partition, rows),
            *(
                table.column(f"_{n}").combine_chunks()
                for n in ("offset", "event_time", "broker_time")
            ),
            pa.repeat(ingest, rows),
        ],
        fields=list(ROWS_META),
    )
    own = table.select([name for name in schema.names if name != META_NAME])
    return own.append_column(schema.field(META_NAME), meta)


def pack_rows(
    shop: Workshop,
    feed: tuple[int, int],
    run: str,
    task: int,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[Part]:
    """What came out of a transform, to the partitions of its keys. `feed` is stage and number."""
    topology = shop.topology
    stage, number = feed
    target = topology.operator(stage).feeds[number]
    packer = Packer.to(topology, stage, number, target, run)
    try:
        for count, batch in enumerate(batches):
            if batch.num_rows:
                table = _unpicked(pa.Table.from_batches([batch]), target.schema)
                yield from packer.pack(table, None, str(task), (task, count))
    except PenstockError as error:
        yield failure_part(error, run, stage, task)
        return
    yield from packer.barriers(task, 0)


def _unpicked(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """`_meta` as columns of our own, again."""
    meta = table.column(META_NAME).combine_chunks()
    if isinstance(meta, pa.ChunkedArray):
        meta = meta.chunk(0)
    table = table.select(schema.names).cast(schema)
    for name in ("source", "partition", *_KNOWN):
        table = table.append_column(f"_{name}", meta.field(name))
    return table


def _report_key(plan: Plan, source: str, number: int) -> Key:
    """Below the outputs of a sink that no job can have, so the collector knows what it is."""
    return output_key(f"_reads-{source}", Epoch(plan.epoch), number, Attempt(plan.run))


def read_reports(shop: Workshop, topology: Topology, plan: Plan) -> list[Report | Failure]:
    """What the reading tasks of transformed sources left on the store."""
    found: list[Report | Failure] = []
    for source in sorted(topology.transformed):
        for number, task in enumerate(plan.tasks):
            if not any(wanted.source == source for wanted in task.ranges):
                continue
            key = _report_key(plan, source, number)
            body = fetch(shop.store, key)
            if body is None:
                raise Unavailable(key, "was not left by its task", "the epoch is tried again")
            found.append(
                decode(body, Failure) if b'"subject":' in body[:400] else decode(body, Report)
            )
    return found
