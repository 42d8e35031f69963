"""Rows as Python values, also those that hold something Python has no value for.

Arrow keeps times of any year and text of any bytes; one such value makes it refuse a whole table.
Rows that were set aside are likely to have one, and must be shown and replayed all the same.
"""

from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["decoded", "json_of_row", "python_column", "python_rows", "with_plain_nulls"]

_UNTOLD = (OverflowError, ValueError, KeyError, pa.ArrowException)
"""What Arrow raises for such values; a KeyError for a zone that this host does not know."""


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Every row as a dict. A time that no calendar has is the number that Arrow keeps, from which
    Arrow makes the same time again; one of a zone that this host does not know is in UTC; text that
    is not Unicode is its bytes."""
    try:
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows
    except _UNTOLD:
        found = zip(*map(python_column, table.columns), strict=True)
        return [dict(zip(table.column_names, row, strict=True)) for row in found]


def python_column(column: pa.ChunkedArray) -> list[Any]:
    """The same for one column."""
    try:
        values: list[Any] = column.to_pylist()
        return values
    except _UNTOLD:
        return [_value(each) for each in column]


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except _UNTOLD as refused:
        if isinstance(scalar, pa.StructScalar):
            return {name: _value(scalar[name]) for name in scalar}
        if isinstance(scalar, pa.ListScalar | pa.LargeListScalar):
            return [_value(each) for each in scalar.values]
        if isinstance(scalar, pa.StringScalar | pa.LargeStringScalar):
            return scalar.as_buffer().to_pybytes()
        if isinstance(scalar, pa.TimestampScalar) and isinstance(refused, KeyError):
            return _value(scalar.cast(pa.timestamp(scalar.type.unit, "UTC")))
        return getattr(scalar, "value", None)


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of a dictionary type as its values; any other as it is. A dictionary may hold values
    that no row has, and a null that no count of nulls knows."""
    kind = column.type
    if not pa.types.is_dictionary(kind):
        return column
    chunks = [chunk.dictionary.take(chunk.indices) for chunk in column.chunks]
    return pa.chunked_array(chunks, kind.value_type)


def with_plain_nulls(table: pa.Table) -> pa.Table:
    """The same rows with no null inside a dictionary: Arrow cannot bring such dictionaries
    together."""
    for place, column in enumerate(table.columns):
        if pa.types.is_dictionary(column.type) and any(
            chunk.dictionary.null_count for chunk in column.chunks
        ):
            chunks = [_encoded_again(chunk) for chunk in column.chunks]
            whole = pa.chunked_array(chunks, column.type)
            table = table.set_column(place, table.field(place), whole)
    return table


def _encoded_again(chunk: pa.DictionaryArray) -> pa.DictionaryArray:
    found = chunk.dictionary.take(chunk.indices).dictionary_encode()
    places = found.indices.cast(chunk.type.index_type)
    return pa.DictionaryArray.from_arrays(places, found.dictionary, ordered=chunk.type.ordered)


def json_of_row(row: dict[str, Any]) -> bytes:
    """A row for a person to read: what JSON has no word for is text."""
    return msgspec.json.encode(row, enc_hook=str)
