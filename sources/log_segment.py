"""Segments: rows of one partition as one compressed Arrow file.

A plain segment has the topic's columns, and its rows have consecutive offsets. A compacted one has
two more: the offset each row was given when it was appended, and when that was.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.sources.event_times import as_times
from penstock.sources.log_tail import Piece
from penstock.sources.protocol import META, META_NAME, TIME, Range

__all__ = ["AT", "OFFSET", "decode", "encode", "event_max_ms", "event_times", "rows_between"]

BATCH_ROWS = 1 << 16
OFFSET, AT = "_offset", "_at_ms"
_COUNTING = pa.array(np.arange(BATCH_ROWS, dtype=np.int64))
_ZEROS = pa.array(np.zeros(BATCH_ROWS, dtype=np.int64))
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def encode(table: pa.Table) -> bytes:
    """The bytes of a segment."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=_OPTIONS) as writer:
        writer.write_table(table, max_chunksize=BATCH_ROWS)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def decode(body: bytes) -> Iterator[pa.RecordBatch]:
    """The batches of a segment, one at a time."""
    reader = pa.ipc.open_file(pa.py_buffer(body))
    for number in range(reader.num_record_batches):
        yield reader.get_batch(number)


def rows_between(
    piece: Piece,
    body: bytes,
    wanted: Range,
    schema: pa.Schema,
    event_time: str | None,
    planned_ms: int,
) -> Iterator[pa.RecordBatch]:
    """The rows of a segment whose offsets are in a range, with `_meta`."""
    at = piece.first
    for batch in decode(body):
        cut, offsets = _cut(batch, at, wanted)
        at += batch.num_rows
        if cut.num_rows:
            columns = [_column(cut, field) for field in schema]
            meta = _meta(piece, cut, offsets, event_time, planned_ms)
            yield pa.RecordBatch.from_arrays(
                [*columns, meta], schema=schema.append(pa.field(META_NAME, META))
            )


def _cut(batch: pa.RecordBatch, first: int, wanted: Range) -> tuple[pa.RecordBatch, pa.Array]:
    """The part of a batch that is wanted, and its offsets."""
    if OFFSET in batch.schema.names:
        stored = batch.column(OFFSET).to_numpy()
        start, stop = np.searchsorted(stored, (wanted.start, wanted.stop))
        cut = batch.slice(start, stop - start)
        return cut, cut.column(OFFSET)
    start = max(0, wanted.start - first)
    count = max(0, min(batch.num_rows, wanted.stop - first) - start)
    return batch.slice(start, count), _risen(_COUNTING, first + start, count)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    """A column; one that was added to the topic later is null in older segments."""
    at = batch.schema.get_field_index(field.name)
    return pa.nulls(batch.num_rows, field.type) if at < 0 else batch.column(at)


def _meta(
    piece: Piece, batch: pa.RecordBatch, offsets: pa.Array, event_time: str | None, planned_ms: int
) -> pa.Array:
    count = batch.num_rows
    event = None if event_time is None else event_times(batch, event_time)
    arrays = [
        offsets,
        pa.nulls(count, TIME) if event is None else event,
        _taken_in(piece, batch),
        _constant(planned_ms, count),
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(META))


def _taken_in(piece: Piece, batch: pa.RecordBatch) -> pa.Array:
    if AT in batch.schema.names:
        return pc.multiply(batch.column(AT), 1000).cast(TIME)
    return _constant(piece.at_ms, batch.num_rows)


def _constant(time_ms: int, count: int) -> pa.Array:
    return _risen(_ZEROS, time_ms * 1000, count).view(TIME)


def _risen(numbers: pa.Array, by: int, count: int) -> pa.Array:
    """The first `count` numbers, each increased. In Arrow's memory, which is used again; numpy's
    would come from the kernel, page by page, every time."""
    if count > len(numbers):  # written when batches were larger
        longer = np.arange(count) if numbers is _COUNTING else np.zeros(count, np.int64)
        return pa.array(longer + by)
    return pc.add(numbers.slice(0, count), by)


def event_times(rows: pa.RecordBatch | pa.Table, column: str) -> pa.Array | pa.ChunkedArray:
    """The column of event times as the moments they are; whole numbers are milliseconds."""
    return as_times(rows.column(column))


def event_max_ms(table: pa.Table, column: str | None) -> int | None:
    """The latest event time of some rows."""
    if column is None or column not in table.column_names:
        return None
    latest = pc.max(event_times(table, column)).cast(pa.int64()).as_py()
    return None if latest is None else latest // 1000
