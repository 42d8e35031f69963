"""Rows on their way into a topic: tables, dicts or JSON lines, made to fit its schema or refused.

All rows of a call fit, or none is taken: the first that does not is named, with its column.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.errors import Invalid
from penstock.sources.event_times import out_of_reach
from penstock.sources.log_segment import event_times

__all__ = ["Rows", "check_moments", "fitted", "from_json_lines"]

Rows: TypeAlias = "pa.Table | pa.RecordBatch | Mapping[str, Any] | Sequence[Mapping[str, Any]]"
"""What can be appended: columns, or one or several rows."""

FLOAT32_MAX = 3.4028234663852886e38
_UNIT_US = {"s": 1_000_000, "ms": 1000}
UNFIT = (pa.ArrowException, OverflowError, ValueError, TypeError, KeyError)
"""What Arrow and we raise for a value that is not of a type."""


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
    lenient = all(_is_lenient(field) for field in schema)
    return table if lenient and table.schema.equals(schema) else _cast(name, table, schema)


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


def _is_lenient(field: pa.Field) -> bool:
    """Whether a column, and whatever is inside it, may be null: then there is nothing to check."""
    kind = field.type
    inside = [kind.field(n) for n in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    inside = [kind.item_field] if pa.types.is_map(kind) else inside
    return field.nullable and all(_is_lenient(each) for each in inside)


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
    except UNFIT as error:
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
    for value in values:
        _check_value(value, kind)
    written = (pa.types.is_temporal(kind) or pa.types.is_decimal(kind)) and any(
        isinstance(value, str) for value in values
    )
    return pa.array(values, pa.string()).cast(kind) if written else pa.array(values, kind)


def _check_value(value: Any, kind: pa.DataType) -> None:
    """Raise for what Arrow would quietly cut down: a fraction, a field that a struct lacks."""
    if value is None:
        return
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        for name, inside in value.items():
            _check_value(inside, kind.field(name).type)  # KeyError: there is no such field
    elif pa.types.is_map(kind):
        for key, inside in value.items() if isinstance(value, Mapping) else value:
            _check_value(key, kind.key_type)
            _check_value(inside, kind.item_type)
    elif _is_list(kind):
        for inside in value:
            _check_value(inside, kind.value_type)
    elif _is_cut_down(value, kind):
        raise ValueError("would come out as another value")


def _is_list(kind: pa.DataType) -> bool:
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_one(kind) for is_one in kinds)


def _is_cut_down(value: Any, kind: pa.DataType) -> bool:
    if isinstance(value, datetime | timedelta) and not pa.types.is_date(kind):
        micros = value.microsecond if isinstance(value, datetime) else value.microseconds
        return bool(micros % _UNIT_US.get(getattr(kind, "unit", "us"), 1))
    is_fraction = isinstance(value, float | Decimal | np.floating) and value != value // 1
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return is_fraction
    if pa.types.is_float32(kind) and isinstance(value, int | float):
        return FLOAT32_MAX < abs(value) < float("inf")
    return False


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        _array([value], kind)
    except UNFIT:
        return False
    return True


def _cast(name: str, table: pa.Table, schema: pa.Schema) -> pa.Table:
    for column in table.column_names:
        if schema.get_field_index(column) < 0:
            raise _unknown(name, column, schema)
        if table.column_names.count(column) > 1:
            raise Invalid(f"{name}, column {column!r}", "comes twice", "give it once")
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
        if not len(column):
            found = f"is of type {column.type}, not {field.type}"
            raise Invalid(f"{name}, column {field.name!r}", found, "cast it first") from error
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
            # Taken and not sliced: a slice of lists is cast with all that is in the others.
            column.take(pa.array(range(low, middle))).cast(kind)
        except pa.ArrowException:
            high = middle
        else:
            low = middle
    return low


def _checked_nulls(name: str, table: pa.Table) -> pa.Table:
    for field in table.schema:
        if _is_lenient(field):
            continue
        rows = _rows_with_nulls(table.column(field.name).combine_chunks(), field)
        if rows:
            raise Invalid(
                f"{name}, row {min(rows)}, column {field.name!r}",
                "is null or missing, in whole or in part, and may not be",
                "fill it; nothing was appended",
            )
    return table


def _rows_with_nulls(array: pa.Array, field: pa.Field) -> set[int]:
    """The rows in which something is null that may not be, at any depth."""
    kind = array.type
    found: set[int] = set()
    if not field.nullable and array.null_count:
        found.update(pc.indices_nonzero(array.is_null()).to_pylist())
    if pa.types.is_struct(kind):
        there = array.is_valid()
        for number in range(kind.num_fields):
            inside = _rows_with_nulls(pc.struct_field(array, [number]), kind.field(number))
            found.update(row for row in inside if there[row].as_py())
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        parents = pc.list_parent_indices(array)
        inside = _rows_with_nulls(pc.list_flatten(array), kind.value_field)
        found.update(parents[row].as_py() for row in inside)
    return found


def check_moments(name: str, table: pa.Table, column: str) -> None:
    """Raise unless every value of the event time's column is a moment."""
    beyond = out_of_reach(event_times(table, column))
    if beyond is not None:
        number = int(beyond.argmax())
        raise Invalid(
            f"{name}, row {number}, column {column!r}",
            f"is {_shown(table.column(column)[number])}, which is no moment",
            "use milliseconds since 1970, or a timestamp; nothing was appended",
        )


def _shown(value: pa.Scalar) -> str:
    """A value for a message; times that Python has no words for as the number they are."""
    try:
        return repr(str(value))[:80]
    except (OverflowError, ValueError):
        return repr(str(value.cast(pa.int64())))


def _unknown(name: str, column: str, schema: pa.Schema) -> Invalid:
    return Invalid(
        f"{name}, column {column!r}",
        f"is not one of {', '.join(schema.names)}",
        "correct its name, or add it to the topic first; nothing was appended",
    )
