"""Rows as a Delta table holds them: which type each column gets there, and what has none.

A type that Delta lacks is replaced by one that holds all its values, or it is refused by name. What
is refused here is refused before an epoch is decided; what passes can be written, unless the table
itself is against it. So a value that would come back as another one is refused as well: the empty
text as the name of a partition, which Delta reads as no value, or a moment between two
microseconds.
"""

from collections.abc import Callable, Iterable, Sequence
from urllib.parse import quote

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.errors import Invalid
from penstock.sinks.value_check import check_each

__all__ = ["as_kept", "check_columns", "check_key", "check_partitions", "check_values", "kept_as"]

FOLDER_NAME_BYTES_MAX = 255
"""A partition is a folder, and this is what most file systems give its name."""

DECIMAL_DIGITS_MAX = 38
_UTC = pa.timestamp("us", tz="UTC")
_NOT_IN_A_PARTITION = (pa.types.is_nested, pa.types.is_floating, pa.types.is_binary)


def kept_as(kind: pa.DataType) -> pa.DataType | None:
    """The type a table gives such a column; None: there is none that holds every value of it."""
    for fits, kept in _KEPT:
        if fits(kind):
            return kept(kind)
    return None


def check_columns(where: str, columns: pa.Schema) -> None:
    """Raise `Invalid` if a table could not have these columns."""
    for field in columns:
        if kept_as(field.type) is None:
            found = f"is {field.type}, and Delta has no such type"
            raise Invalid(f"{where}, column {field.name!r}", found, "cast it to one that it has")
    double = _double(columns.names)
    if double is not None:
        found = f"is there twice: Delta takes {double!r} for the same name"
        raise Invalid(f"{where}, column {double!r}", found, "give one of them another name")
    if "" in columns.names:
        raise Invalid(f"{where}, column ''", "has no name", "give it one")


def check_key(where: str, columns: pa.Schema, key: Sequence[str]) -> None:
    """Raise `Invalid` if a key is made of what cannot be compared."""
    for name in key:
        kind = columns.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_floating(kind):
            found = f"is its key, and is {kind}"
            raise Invalid(
                f"{where}, column {name!r}", found, "use a text, a number that is exact, or a time"
            )


def check_partitions(where: str, rows: pa.Table, partition_by: Sequence[str]) -> None:
    """Raise `Invalid` if the rows cannot be laid out by these columns."""
    for name in partition_by:
        subject = f"{where}, column {name!r}"
        if name not in rows.column_names:
            found = f"parts the table, and the rows have only {', '.join(rows.column_names)}"
            raise Invalid(subject, found, "emit it, or name another")
        kind = kept_as(rows.schema.field(name).type)
        if any(bad(kind) for bad in _NOT_IN_A_PARTITION):
            found = f"parts the table, and is {kind}"
            raise Invalid(subject, found, "part it by a text, a whole number or a day")
        if pa.types.is_string(kind):
            _check_names(subject, name, rows.column(name).unique().to_pylist())
    if partition_by and set(rows.column_names) == set(partition_by):
        found = "has no column besides those that part its table"
        raise Invalid(where, found, "emit another column, or part the table by fewer")


def _check_names(subject: str, column: str, values: Iterable[str | None]) -> None:
    for value in values:
        if value == "":
            found = "parts the table, and is the empty text, which Delta reads as no value"
            raise Invalid(subject, found, "emit another text, or null")
        folder = f"{quote(column, safe='')}={quote(value or '', safe='')}"
        if len(folder) > FOLDER_NAME_BYTES_MAX:
            found = f"parts the table, and {folder[:60]}… is too long for the name of a folder"
            raise Invalid(subject, found, "part the table by another column")


def check_values(where: str, rows: pa.Table) -> None:
    """Raise `Invalid` if a value is lost where a column changes its type."""
    check_each(where, rows, _lossy)


def _lossy(column: pa.ChunkedArray) -> tuple[str, str] | None:
    kept = kept_as(column.type)
    try:
        column.cast(kept)
    except pa.ArrowException as error:
        found = f"is {column.type} and cannot be kept as {kept} ({error})"
        return found, "cast it to a type that Delta has"
    return None


def as_kept(rows: pa.Table) -> pa.Table:
    """Rows that were checked, with the types that a table gives them."""
    fields = [pa.field(field.name, kept_as(field.type)) for field in rows.schema]
    return rows.cast(pa.schema(fields))


def _double(names: Sequence[str]) -> str | None:
    """A name that was there before in other letters."""
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            return name
        seen.add(name.casefold())
    return None


def _decimal(kind: pa.DataType) -> pa.DataType | None:
    digits, behind = kind.precision, kind.scale
    is_known = digits <= DECIMAL_DIGITS_MAX and 0 <= behind <= digits
    return pa.decimal128(digits, behind) if is_known else None


def _list(kind: pa.DataType) -> pa.DataType | None:
    value = kept_as(kind.value_type)
    return None if value is None else pa.list_(value)


def _map(kind: pa.DataType) -> pa.DataType | None:
    key, value = kept_as(kind.key_type), kept_as(kind.item_type)
    return None if key is None or value is None else pa.map_(key, value)


def _struct(kind: pa.DataType) -> pa.DataType | None:
    fields = [(field.name, kept_as(field.type)) for field in kind]
    names = [name for name, _ in fields]
    if not fields or _double(names) is not None or any(kept is None for _, kept in fields):
        return None
    return pa.struct(fields)


_KEPT: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], pa.DataType | None]]] = [
    (pa.types.is_uint8, lambda kind: pa.int16()),
    (pa.types.is_uint16, lambda kind: pa.int32()),
    (pa.types.is_uint32, lambda kind: pa.int64()),
    (pa.types.is_signed_integer, lambda kind: kind),
    (pa.types.is_float16, lambda kind: pa.float32()),
    (pa.types.is_floating, lambda kind: kind),
    (pa.types.is_boolean, lambda kind: kind),
    (pa.types.is_string, lambda kind: kind),
    (pa.types.is_large_string, lambda kind: pa.string()),
    (pa.types.is_string_view, lambda kind: pa.string()),
    (pa.types.is_binary, lambda kind: kind),
    (pa.types.is_large_binary, lambda kind: pa.binary()),
    (pa.types.is_binary_view, lambda kind: pa.binary()),
    (pa.types.is_fixed_size_binary, lambda kind: pa.binary()),
    (pa.types.is_date, lambda kind: pa.date32()),
    (pa.types.is_timestamp, lambda kind: pa.timestamp("us") if kind.tz is None else _UTC),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_dictionary, lambda kind: kept_as(kind.value_type)),
    (pa.types.is_map, _map),
    (pa.types.is_list, _list),
    (pa.types.is_large_list, _list),
    (pa.types.is_fixed_size_list, _list),
    (pa.types.is_struct, _struct),
]
"""What each kind of column becomes, the first that fits. Others have no place in a Delta table."""
