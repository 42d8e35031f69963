"""Segments: rows of one partition as one compressed Arrow file.

A plain segment has the topic's columns, and its rows have consecutive offsets. A compacted one has
two more: the offset each row was given when it was appended, and when that was.

What a segment holds is compared with what its piece and its topic say of it: with fewer rows than
that, events would be lost without a word, and with more, counted twice.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.errors import Corrupt
from penstock.fields import TIME_MS_MAX, TIME_MS_MIN
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


def decode(piece: Piece, body: bytes, schema: pa.Schema | None = None) -> Iterator[pa.RecordBatch]:
    """The batches of a segment, one at a time; `Corrupt` if they are not what its piece says, or
    have a column of another type than in `schema`."""
    with _damage_told(piece):
        reader = pa.ipc.open_file(pa.py_buffer(body))
        _check_types(reader.schema, schema or ())
        at = piece.first
        rows = 0
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            at = _checked(piece, batch, at)
            rows += batch.num_rows
            if rows > piece.rows:
                break
            yield batch
        if rows != piece.rows:
            raise ValueError(f"it has not the {piece.rows} rows that its piece says")


def _check_types(told: pa.Schema, schema: Iterable[pa.Field]) -> None:
    for field in schema:
        at = told.get_field_index(field.name)
        if at >= 0 and told.field(at).type != field.type:
            what = f"its column {field.name!r} is {told.field(at).type}, not {field.type}"
            raise ValueError(what)


@contextmanager
def _damage_told(piece: Piece) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as damage:
        raise Corrupt(
            f"segment {piece.key}",
            f"is not what the log says of it ({damage})",
            "restore it from a copy: it was altered or forged",
        ) from damage


def _checked(piece: Piece, batch: pa.RecordBatch, at: int) -> int:
    """Raise unless the offsets of a batch go on from `at` and are the piece's; where they end."""
    if OFFSET not in batch.schema.names:
        if piece.rows != piece.stop - piece.first or at + batch.num_rows > piece.stop:
            raise ValueError(f"its offsets are not those from {piece.first} to {piece.stop}")
        return at + int(batch.num_rows)
    for name in (OFFSET, AT):
        column = batch.column(name)
        if column.type != pa.int64() or column.null_count:
            raise ValueError(f"its column {name} is {column.type}, or null in some row")
    stored = batch.column(OFFSET).to_numpy()
    if not len(stored):
        return at
    if stored[0] < at or stored[-1] >= piece.stop or bool((np.diff(stored) <= 0).any()):
        raise ValueError(f"its offsets do not rise from {piece.first} to {piece.stop}")
    return int(stored[-1]) + 1


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
    for batch in decode(piece, body, schema):
        with _damage_told(piece):
            cut, offsets = _cut(batch, at, wanted)
            at += batch.num_rows
            if not cut.num_rows:
                continue
            columns = [_column(cut, field) for field in schema]
            meta = _meta(piece, cut, offsets, event_time, planned_ms)
            rows = pa.RecordBatch.from_arrays(
                [*columns, meta], schema=schema.append(pa.field(META_NAME, META))
            )
        yield rows


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
    within = min(max(time_ms, TIME_MS_MIN), TIME_MS_MAX)
    return _risen(_ZEROS, within * 1000, count).view(TIME)


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
