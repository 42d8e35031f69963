"""Rows on their way into a topic: tables, dicts or JSON lines, made to fit its schema or refused.

All rows of a call fit, or none is taken: the first that does not is named, with its column.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.errors import Invalid
from penstock.sources.event_times import out_of_reach
from penstock.sources.exact_casts import check_castable, exact_cast
from penstock.sources.exact_values import NotExact, exact_array
from penstock.sources.log_segment import event_times

__all__ = ["Rows", "check_moments", "fitted", "from_json_lines"]

Rows: TypeAlias = "pa.Table | pa.RecordBatch | Mapping[str, Any] | Sequence[Mapping[str, Any]]"
"""What can be appended: columns, or one or several rows."""

UNFIT = (pa.ArrowException, ArithmeticError, ValueError, TypeError, KeyError)
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
        return exact_array(values, field.type)
    except UNFIT as error:
        for number, value in enumerate(values):
            refusal = _refusal(value, field.type)
            if refusal is not None:
                raise Invalid(
                    f"{name}, row {number}, column {field.name!r}",
                    f"is {str(value)[:80]!r}, not {field.type}",
                    refusal,
                ) from error
        raise Invalid(f"{name}, column {field.name!r}", f"{error}", "correct it") from error


def _refusal(value: Any, kind: pa.DataType) -> str | None:
    """What to do about a value that a column cannot hold; None for one that it can."""
    try:
        exact_array([value], kind)
    except NotExact as why:
        return why.advice
    except UNFIT:
        return "correct this row"
    return None


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
        check_castable(column.type, field.type)
    except ValueError as error:
        found = f"is of type {column.type}, not {field.type}"
        raise Invalid(f"{name}, column {field.name!r}", found, "cast it first") from error
    try:
        return exact_cast(column, field.type)
    except UNFIT as error:
        number = _first_that_cannot(column, field.type)
        raise Invalid(
            f"{name}, row {number}, column {field.name!r}",
            f"is {str(column[number])[:80]!r} of type {column.type}, not {field.type}",
            "correct this row",
        ) from error


def _first_that_cannot(column: pa.ChunkedArray, kind: pa.DataType) -> int:
    """The first row that cannot be cast, by halving."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            # Taken and not sliced: a slice of lists is cast with all that is in the others.
            exact_cast(column.take(pa.array(range(low, middle))), kind)
        except UNFIT:
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
                "fill it",
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
            "use milliseconds since 1970, or a timestamp",
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
        "correct its name, or add it to the columns first",
    )
