"""Rows on their way into a topic: tables, dicts or JSON lines, made to fit its schema or refused.

All rows of a call fit, or none is taken: the first that does not is named, with its column.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.errors import Invalid

__all__ = ["Rows", "fitted", "from_json_lines"]

Rows: TypeAlias = "pa.Table | pa.RecordBatch | Mapping[str, Any] | Sequence[Mapping[str, Any]]"
"""What can be appended: columns, or one or several rows."""


def fitted(name: str, rows: Rows, schema: pa.Schema) -> pa.Table:
    """The rows as a table of exactly that schema; `Invalid` names the column and the row."""
    if isinstance(rows, pa.RecordBatch):
        table = pa.Table.from_batches([rows])
    elif isinstance(rows, pa.Table):
        table = rows
    elif isinstance(rows, Mapping):
        return _from_dicts(name, [rows], schema)
    elif isinstance(rows, Sequence) and not isinstance(rows, str | bytes):
        return _from_dicts(name, rows, schema)
    else:
        raise Invalid(
            name, f"was given a {type(rows).__name__}", "give an Arrow table, a dict or dicts"
        )
    return table if table.schema.equals(schema) and _whole(schema) else _cast(name, table, schema)


def from_json_lines(
    name: str, lines: Iterable[str | bytes], first: int = 1
) -> list[dict[str, Any]]:
    """One dict per line; empty lines are left out. `first` is the number of the first line."""
    rows = []
    for number, line in enumerate(lines, first):
        if not line.strip():
            continue
        try:
            rows.append(msgspec.json.decode(line, type=dict[str, Any]))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Invalid(
                f"{name}, line {number}", f"is no JSON object ({error})", "correct it"
            ) from error
    return rows


def _whole(schema: pa.Schema) -> bool:
    """Whether any column may be null, so that there is nothing to check."""
    return all(field.nullable for field in schema)


def _from_dicts(name: str, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    known = set(schema.names)
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise Invalid(f"{name}, row {number}", "is no dict", "give one dict per row")
        for column in row:
            if column not in known:
                raise _unknown(name, column, schema)
    columns = [_column(name, field, [row.get(field.name) for row in rows]) for field in schema]
    return _checked_nulls(name, pa.table(columns, schema=schema))


def _column(name: str, field: pa.Field, values: list[Any]) -> pa.Array:
    try:
        return _array(values, field.type)
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        number = next((n for n, value in enumerate(values) if not _fits(value, field.type)), None)
        if number is None:
            raise Invalid(f"{name}, column {field.name!r}", f"{error}", "correct it") from error
        raise Invalid(
            f"{name}, row {number}, column {field.name!r}",
            f"is {str(values[number])[:80]!r}, not {field.type}",
            "correct this row; nothing was appended",
        ) from error


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Values as Arrow sees them. Times and decimals may also be written out, as in JSON."""
    written = (pa.types.is_temporal(kind) or pa.types.is_decimal(kind)) and any(
        isinstance(value, str) for value in values
    )
    return pa.array(values, pa.string()).cast(kind) if written else pa.array(values, kind)


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        _array([value], kind)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        return False
    return True


def _cast(name: str, table: pa.Table, schema: pa.Schema) -> pa.Table:
    for column in table.column_names:
        if schema.get_field_index(column) < 0:
            raise _unknown(name, column, schema)
    columns = [_cast_column(name, table, field) for field in schema]
    return _checked_nulls(name, pa.table(columns, schema=schema))


def _cast_column(name: str, table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    at = table.schema.get_field_index(field.name)
    if at < 0:
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    column = table.column(at)
    if column.type.equals(field.type):
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        number = _first_that_cannot(column, field.type)
        raise Invalid(
            f"{name}, row {number}, column {field.name!r}",
            f"is {str(column[number])[:80]!r} of type {column.type}, not {field.type}",
            "correct this row; nothing was appended",
        ) from error


def _first_that_cannot(column: pa.ChunkedArray, kind: pa.DataType) -> int:
    """The first row that cannot be cast, by halving."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            column.slice(low, middle - low).cast(kind)
        except pa.ArrowException:
            high = middle
        else:
            low = middle
    return low


def _checked_nulls(name: str, table: pa.Table) -> pa.Table:
    for field in table.schema:
        column = table.column(field.name)
        if not field.nullable and column.null_count:
            number = pc.index(column.is_null(), True).as_py()
            raise Invalid(
                f"{name}, row {number}, column {field.name!r}",
                "is null or missing, and may not be",
                "fill it; nothing was appended",
            )
    return table


def _unknown(name: str, column: str, schema: pa.Schema) -> Invalid:
    return Invalid(
        f"{name}, column {column!r}",
        f"is not one of {', '.join(schema.names)}",
        "correct its name, or add it to the topic first; nothing was appended",
    )
