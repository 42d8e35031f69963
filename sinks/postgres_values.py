"""Rows as the text that COPY reads: made column by column, not row by row.

A null is an empty field and everything else is quoted, as Postgres has it in CSV. Moments with a
zone are written in UTC, floats in full, bytes in hexadecimal; nested values become JSON, value by
value, by `penstock.sinks.plain_values`.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.csv as pacsv  # type: ignore[import-untyped]

from penstock.sinks.plain_values import as_text, python_values
from penstock.sinks.postgres_types import is_bytes, plain_type

__all__ = ["csv_pieces", "hexadecimal", "json_column", "plain_rows"]

PIECE_ROWS_MAX = 1 << 16
PIECE_BYTES = 8 << 20
"""About how much of the rows is made into text at a time."""

_OPTIONS = pacsv.WriteOptions(include_header=False, quoting_style="all_valid")


def plain_rows(rows: pa.Table) -> pa.Table:
    """The same rows in types that this sink knows. `pa.ArrowInvalid` if a value would change."""
    for at, field in enumerate(rows.schema):
        kind = plain_type(field.type)
        if kind != field.type:
            rows = rows.set_column(at, pa.field(field.name, kind), rows.column(at).cast(kind))
    return rows


def csv_pieces(rows: pa.Table) -> Iterator[memoryview]:
    """The rows as CSV, piece by piece; they are those that `plain_rows` gives."""
    fair = rows.num_rows * PIECE_BYTES // max(rows.nbytes, 1)
    for batch in rows.to_batches(max_chunksize=min(max(fair, 1), PIECE_ROWS_MAX)):
        columns = [_written(column) for column in batch.columns]
        sink = pa.BufferOutputStream()
        whole = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
        pacsv.write_csv(whole, sink, _OPTIONS)
        yield memoryview(sink.getvalue())


def _written(values: pa.Array) -> pa.Array:
    """Values whose CSV is what Postgres reads as them."""
    kind = values.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return values.cast(pa.timestamp(kind.unit, "UTC"))
    if pa.types.is_floating(kind):
        # The shortest text of a float of 32 bits is another number in a column of 64.
        return values.cast(pa.float64())
    if is_bytes(kind):
        return hexadecimal(values.cast(pa.large_binary()))
    if pa.types.is_nested(kind):
        return json_column(values)
    return values


def json_column(values: pa.Array) -> pa.Array:
    """Nested values as JSON."""
    spell = as_text(values.type)
    texts = [None if value is None else spell(value) for value in python_values(values)]
    return pa.array(texts, pa.large_string())


def hexadecimal(values: pa.Array) -> pa.Array:
    """Bytes as `\\x` and two digits for each."""
    offsets = np.frombuffer(values.buffers()[1], np.int64)
    offsets = offsets[values.offset : values.offset + len(values) + 1]
    data = values.buffers()[2]
    digits = b"" if data is None else data[offsets[0] : offsets[-1]].hex()
    digits = pa.py_buffer(digits)
    places = pa.py_buffer(2 * (offsets - offsets[0]))
    texts = pa.LargeStringArray.from_buffers(len(values), places, digits)
    if values.null_count:
        texts = pc.if_else(values.is_valid(), texts, None)
    prefix = pa.scalar("\\x", pa.large_string())
    return pc.binary_join_element_wise(prefix, texts, pa.scalar("", pa.large_string()))
