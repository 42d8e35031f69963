"""Values of a Postgres table and of staged rows, made comparable: how each column is asked for.

A table may keep a value in another type than the rows have it in: a whole number as `numeric`, a
text as `uuid`, a list as `jsonb`. So for each column there is one form that both sides are brought
into, such that equal values are equal there and different ones are not. Moments and days are asked
for as numbers, because a server writes them down as its settings say. A column without such a
form is left out, and whoever compares is told.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from psycopg import sql

from penstock.sinks.plain_values import trimmed_number
from penstock.sinks.postgres_types import Column
from penstock.sinks.postgres_values import hexadecimal, json_column

__all__ = ["Shown", "shown"]

TEXT = pa.large_string()
ENDLESS = 1 << 62
"""What stands for `infinity` among moments and days: no row has it."""

Form = Callable[[pa.Array], pa.Array]

_MICROSECONDS = (
    "CASE WHEN NOT isfinite({0}) THEN {1} ELSE "
    "extract(epoch FROM date_trunc('second', {0}))::bigint * 1000000 "
    "+ mod(extract(microseconds FROM {0})::bigint, 1000000) END"
)
"""Exact for every moment: the seconds are whole, and a float of 64 bits holds them all."""


@dataclass(frozen=True, slots=True)
class Shown:
    """How one column is asked for, and brought into its form."""

    name: str
    asked: str
    """SQL, with the column as `{0}`."""
    kind: pa.DataType
    """What the answer is read as."""
    ours: Form
    """From staged values, as `plain_rows` gives them."""
    theirs: Form

    def select(self) -> sql.Composed:
        """What stands in a list of columns."""
        return sql.SQL(self.asked).format(sql.Identifier(self.name), sql.Literal(ENDLESS))


def shown(column: Column, kind: pa.DataType) -> Shown | None:
    """The form for a column that holds staged values of a type; None: there is none."""
    base = "text" if column.is_enum else column.base
    if pa.types.is_null(kind):
        return Shown(column.name, "{0}::text", TEXT, _as(TEXT), _same)
    if base in _NESTED and pa.types.is_nested(kind):
        theirs, ours = _NESTED[base]
        return Shown(column.name, "{0}::text", TEXT, ours, theirs)
    found = _FORMS.get(base)
    return None if found is None else Shown(column.name, *found)


def _same(values: pa.Array) -> pa.Array:
    return values


def _as(kind: pa.DataType) -> Form:
    return lambda values: values.cast(kind)


def _in_text(change: Form) -> Form:
    return lambda values: change(values.cast(TEXT))


def _each(spell: Callable[[str], str]) -> Form:
    """A form that is made value by value."""

    def form(values: pa.Array) -> pa.Array:
        texts = values.to_pylist()
        return pa.array([None if each is None else spell(each) for each in texts], TEXT)

    return form


def _number_texts(values: pa.Array) -> pa.Array:
    if pa.types.is_decimal(values.type):
        texts = [None if each is None else format(each, "f") for each in values.to_pylist()]
        return _each(trimmed_number)(pa.array(texts, TEXT))
    return values.cast(TEXT)


def _without_spaces(values: pa.Array) -> pa.Array:
    return pc.utf8_rtrim(values, " ")


def _uuids(values: pa.Array) -> pa.Array:
    """A UUID may be written with braces, and hyphens anywhere."""
    return pc.utf8_lower(pc.replace_substring_regex(values, "[{}-]", ""))


def _ticks(values: pa.Array) -> pa.Array:
    """Microseconds, of a moment or of a time of the day."""
    if pa.types.is_time(values.type):
        return values.cast(pa.time64("us")).cast(pa.int64())
    return values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())


def _days(values: pa.Array) -> pa.Array:
    return values.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())


def _canonical_json(text: str) -> str:
    """One text for all that `jsonb` takes for equal. A NUL, which it cannot hold, marks numbers."""

    def number(found: str) -> str:
        return "\0" + trimmed_number(found)

    try:
        value: Any = json.loads(text, parse_int=number, parse_float=number)
    except ValueError:
        return text
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


_JSON = _each(_canonical_json)
_NESTED: dict[str, tuple[Form, Form]] = {
    "json": (_same, json_column),
    "jsonb": (_JSON, lambda values: _JSON(json_column(values))),
}
"""For columns of lists, structs and maps: the form of theirs, and of ours."""

_PLAIN_TEXT = ("{0}::text", TEXT, _as(TEXT), _same)
_WHOLE = ("{0}", pa.int64(), _as(pa.int64()), _same)
_FLOAT = ("{0}::float8", pa.float64(), _as(pa.float64()), _same)
_MOMENT = (_MICROSECONDS, pa.int64(), _ticks, _same)
_FORMS: dict[str, tuple[str, pa.DataType, Form, Form]] = {
    "bool": ("{0}", pa.bool_(), _same, _same),
    "int2": _WHOLE,
    "int4": _WHOLE,
    "int8": _WHOLE,
    "float4": _FLOAT,
    "float8": _FLOAT,
    "numeric": ("{0}::text", TEXT, _number_texts, _each(trimmed_number)),
    "text": _PLAIN_TEXT,
    "varchar": _PLAIN_TEXT,
    "citext": _PLAIN_TEXT,
    "json": _PLAIN_TEXT,
    "bpchar": ("{0}::text", TEXT, _in_text(_without_spaces), _without_spaces),
    "uuid": ("{0}::text", TEXT, _in_text(_uuids), _uuids),
    "jsonb": ("{0}::text", TEXT, _in_text(_JSON), _JSON),
    "bytea": (
        "'\\x' || encode({0}, 'hex')",
        TEXT,
        lambda values: pc.utf8_lower(hexadecimal(values.cast(pa.large_binary()))),
        _same,
    ),
    "date": (
        "CASE WHEN NOT isfinite({0}) THEN {1} ELSE {0} - date '1970-01-01' END",
        pa.int64(),
        _days,
        _same,
    ),
    "timestamp": _MOMENT,
    "timestamptz": _MOMENT,
    "time": ("(extract(epoch FROM {0}) * 1000000)::bigint", pa.int64(), _ticks, _same),
}
"""By the type that the table has."""
