"""Which types of Postgres hold which values: decided before the first row is written.

A type fits if it holds every value of the rows' type as it is, or refuses it aloud: a column of
`varchar(3)` is a rule about values, and the server keeps it. What would be rounded, cut or moved to
another zone without a word does not fit.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["Column", "fits", "is_bytes", "is_text", "made_as", "plain_type"]

_DIGITS = {"s": 0, "ms": 3, "us": 6}
"""Digits of a second that a unit has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column as the server has it."""

    name: str
    shown: str
    """Its type as SQL writes it."""
    base: str
    """The name of its type, that of the underlying one if it is a domain."""
    is_enum: bool
    modifier: int
    """What stands in parentheses behind the type, as the server keeps it; -1: nothing."""
    must_be_given: bool
    """Whether a row without it is refused: it takes no null and has no default."""
    is_made: bool
    """Whether the table computes it itself."""
    is_exact: bool
    """Whether two texts are equal only if they are the same."""


@dataclass(frozen=True, slots=True)
class _Kind:
    made_as: str
    """The type of a column that is made for it."""
    held_by: frozenset[str]


def _kind(made_as: str, *held_by: str) -> _Kind:
    return _Kind(made_as, frozenset(held_by))


_BYTE = _kind("smallint", "int2", "int4", "int8", "numeric", "float4", "float8")
_SHORT = _kind("integer", "int4", "int8", "numeric", "float4", "float8")
_LONG = _kind("bigint", "int8", "numeric", "float8")
_TEXT = _kind("text", "text", "varchar", "bpchar", "citext", "uuid", "json", "jsonb")
_BYTES = _kind("bytea", "bytea")

_BY_NAME = {
    "bool": _kind("boolean", "bool"),
    "int8": _BYTE,
    "uint8": _BYTE,
    "int16": _BYTE,
    "uint16": _SHORT,
    "int32": _kind("integer", "int4", "int8", "numeric", "float8"),
    "uint32": _LONG,
    "int64": _kind("bigint", "int8", "numeric"),
    "uint64": _kind("numeric(20, 0)", "numeric"),
    "halffloat": _kind("real", "float4", "float8"),
    "float": _kind("real", "float4", "float8"),
    "double": _kind("double precision", "float8"),
    "string": _TEXT,
    "large_string": _TEXT,
    "binary": _BYTES,
    "large_binary": _BYTES,
    "date32[day]": _kind("date", "date"),
}

_BY_FAMILY: tuple[tuple[Callable[[pa.DataType], bool], _Kind], ...] = (
    (pa.types.is_decimal, _kind("numeric", "numeric")),
    (pa.types.is_time, _kind("time", "time")),
    (pa.types.is_nested, _kind("jsonb", "jsonb", "json")),
)

_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (pa.types.is_string_view, pa.large_string()),
    (pa.types.is_binary_view, pa.large_binary()),
    (pa.types.is_fixed_size_binary, pa.large_binary()),
    (pa.types.is_date64, pa.date32()),
    (pa.types.is_time64, pa.time64("us")),
)


def made_as(kind: pa.DataType) -> str | None:
    """The type of a column that is made for such values; None: there is none."""
    kind = plain_type(kind)
    found = _kind_of(kind)
    if found is None:
        return None
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= kind.precision:
        return f"numeric({kind.precision}, {kind.scale})"
    return found.made_as


def fits(kind: pa.DataType, column: Column) -> bool:
    """Whether a column takes values of that type as they are."""
    kind = plain_type(kind)
    if pa.types.is_null(kind):
        return True
    found = _kind_of(kind)
    if found is None:
        return False
    held = column.base in found.held_by or (column.is_enum and found is _TEXT)
    return held and not _rounds(kind, column)


def is_text(kind: pa.DataType) -> bool:
    """Whether values are text."""
    return _kind_of(kind) is _TEXT


def is_bytes(kind: pa.DataType) -> bool:
    """Whether values are bytes."""
    return _kind_of(kind) is _BYTES


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type that stands for it in this sink: Postgres has no dictionaries, no views, and no
    nanoseconds."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    for is_such, plain in _PLAIN:
        if is_such(kind):
            return plain
    return kind


def _kind_of(kind: pa.DataType) -> _Kind | None:
    if pa.types.is_timestamp(kind):
        name = "timestamp" if kind.tz is None else "timestamptz"
        return _kind(name, name)
    for is_such, found in _BY_FAMILY:
        if is_such(kind):
            return found
    return _BY_NAME.get(str(kind))


def _rounds(kind: pa.DataType, column: Column) -> bool:
    """Whether digits behind the point could be lost without a word."""
    if column.modifier < 0:
        return False
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return _DIGITS[kind.unit] > column.modifier
    if column.base == "numeric":
        scale = kind.scale if pa.types.is_decimal(kind) else 0
        return bool(scale > _scale(column.modifier))
    return False


def _scale(modifier: int) -> int:
    """The digits behind the point of a numeric; negative: so many before it are zeros."""
    return ((modifier - 4 & 0x7FF) ^ 0x400) - 0x400
