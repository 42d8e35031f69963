"""Values for stores without types: one spelling for each, as JSON or as text.

Numbers and truths are JSON's own. What JSON has no word for is text: a decimal in full, so that no
reader makes a float of it; a moment as ISO 8601, in UTC if it has a zone; bytes as base64; a float
that is no number by its name. The same value is always the same text, so a row that is written
twice is the same row.

A version is text as well: it sorts as the rows came, in every store that can compare text.
"""

import base64
import json
import math
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.errors import Invalid

__all__ = [
    "as_plain",
    "as_text",
    "bytes_bound",
    "check_plain",
    "is_bytes",
    "is_text",
    "place_of_version",
    "python_values",
    "rank_text",
    "row_versions",
    "trimmed_number",
]

Spelling = Callable[[Any], Any]

ESCAPED_BYTES_MAX = 6
"""What one byte of text takes at most as JSON: `\\u0000`."""
FIXED_BYTES_MAX = 128
"""What a value takes at most whose type has a width: a decimal in full is the longest."""

_MICROSECOND = timedelta(microseconds=1)
_VERSION = re.compile(r"\d+\.(\d+)\.(\d+)\.(\d+)", re.ASCII)


def as_plain(kind: pa.DataType) -> Spelling:
    """How values of a type are spelt in JSON. None stays None."""
    spell = _spelling(kind)
    assert spell is not None, "check_plain refuses other types"
    return lambda value: None if value is None else spell(value)


def as_text(kind: pa.DataType) -> Callable[[Any], str]:
    """How values of a type are spelt where there is nothing but text. There is none for None."""
    if pa.types.is_integer(kind):
        return str
    plain = as_plain(kind)

    def text(value: Any) -> str:
        found = plain(value)
        return found if isinstance(found, str) else _json(found)

    return text


def python_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Values as Python has them. Times are taken in UTC: Python has the years 1 to 9999 in every
    zone, and the same time may be of another year elsewhere, or in a zone that no host knows."""
    kind = _in_utc(column.type)
    found: list[Any] = (column if kind == column.type else column.cast(kind)).to_pylist()
    return found


def check_plain(where: str, columns: pa.Schema) -> None:
    """Raise `Invalid` if there is a column whose values have no spelling."""
    for column in columns:
        if _spelling(column.type) is None:
            raise Invalid(
                f"{where}, column {column.name!r}",
                f"is {column.type}, and there is no one text for its values",
                "cast it, or leave it out",
            )


def row_versions(rows: pa.Table) -> Iterator[str]:
    """Where each row comes from, as text that sorts by epoch, partition and sequence."""
    places = zip(
        *(rows.column(name).to_pylist() for name in ("_epoch", "_partition", "_sequence")),
        strict=True,
    )
    return (f"{epoch:012}.{partition:06}.{sequence:012}" for epoch, partition, sequence in places)


def place_of_version(version: str) -> tuple[int | None, int | None, int | None]:
    """Epoch, partition and sequence of the row that has this version; nothing if it has none."""
    found = _VERSION.fullmatch(version)
    return (None, None, None) if found is None else (int(found[1]), int(found[2]), int(found[3]))


def rank_text(rank: int) -> str:
    """What stands before the version of a row: rows of a higher rank win, whatever their epoch."""
    return f"{rank:06}."


def trimmed_number(text: str) -> str:
    """A number in full, without zeros at its end: equal numbers are one text. What is no number
    stays as it is."""
    try:
        written = format(Decimal(text), "f")
    except (ArithmeticError, ValueError):
        return text
    if "." in written:
        written = written.rstrip("0").rstrip(".")
    return "0" if written == "-0" else written


def bytes_bound(rows: pa.Table) -> npt.NDArray[np.int64]:
    """For each row, what it does not exceed as text, nor as JSON, names included: found from the
    lengths alone, without looking at values."""
    total = np.zeros(rows.num_rows, np.int64)
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        chunks = [_bounds(chunk) for chunk in column.chunks]
        total += np.concatenate([np.zeros(0, np.int64), *chunks]) + len(name.encode())
    return total


def _in_utc(kind: pa.DataType) -> pa.DataType:
    """The same type with UTC for every zone in it."""
    types = pa.types
    if types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if types.is_list(kind) or types.is_large_list(kind):
        inner = kind.value_field.with_type(_in_utc(kind.value_type))
        return pa.list_(inner) if types.is_list(kind) else pa.large_list(inner)
    if types.is_struct(kind):
        return pa.struct([field.with_type(_in_utc(field.type)) for field in kind])
    if types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(
            key.with_type(_in_utc(key.type)), item.with_type(_in_utc(item.type)), kind.keys_sorted
        )
    return kind


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _spelling(kind: pa.DataType) -> Spelling | None:
    """None: the type has none."""
    types = pa.types
    if types.is_list(kind) or types.is_large_list(kind):
        return _list_spelling(kind)
    if types.is_struct(kind):
        return _struct_spelling(kind)
    if types.is_map(kind):
        return _map_spelling(kind)
    for is_such, spell in _SPELLINGS:
        if is_such(kind):
            return spell
    return None


def _list_spelling(kind: pa.DataType) -> Spelling | None:
    inner = _spelling(kind.value_type)
    return inner and (lambda values: [_or_none(inner, value) for value in values])


def _struct_spelling(kind: pa.DataType) -> Spelling | None:
    fields = [kind.field(n) for n in range(kind.num_fields)]
    inner = {field.name: spell for field in fields if (spell := _spelling(field.type))}
    if len(inner) < len(fields):  # also if two have one name
        return None
    return lambda value: {name: _or_none(spell, value[name]) for name, spell in inner.items()}


def _map_spelling(kind: pa.DataType) -> Spelling | None:
    """An object if its keys are text, else a list of pairs."""
    key, inner = _spelling(kind.key_type), _spelling(kind.item_type)
    if key is None or inner is None:
        return None
    if is_text(kind.key_type):
        return lambda pairs: {name: _or_none(inner, value) for name, value in pairs}
    return lambda pairs: [[key(name), _or_none(inner, value)] for name, value in pairs]


def _or_none(spell: Spelling, value: Any) -> Any:
    return None if value is None else spell(value)


def is_text(kind: pa.DataType) -> bool:
    """Whether values are text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether values are bytes."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_duration(kind: pa.DataType) -> bool:
    return bool(pa.types.is_duration(kind) and kind.unit != "ns")


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_time(kind) and kind.unit != "ns")


def _itself(value: Any) -> Any:
    return value


def _float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _decimal(value: Decimal) -> str:
    return format(value, "f")


def _moment(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat()
    return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def _duration(value: timedelta) -> str:
    seconds, rest = divmod(abs(value) // _MICROSECOND, 1_000_000)
    fraction = f".{rest:06}" if rest else ""
    return f"{'-' if value < timedelta(0) else ''}PT{seconds}{fraction}S"


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


_SPELLINGS: tuple[tuple[Callable[[pa.DataType], bool], Spelling], ...] = (
    (is_text, _itself),
    (pa.types.is_integer, _itself),
    (pa.types.is_boolean, _itself),
    (pa.types.is_null, _itself),
    (pa.types.is_floating, _float),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_timestamp, _moment),
    (pa.types.is_date, lambda value: value.isoformat()),
    (_is_time, lambda value: value.isoformat()),
    (_is_duration, _duration),
    (is_bytes, _base64),
)


def _bounds(values: pa.Array) -> npt.NDArray[np.int64]:
    kind = values.type
    if is_text(kind) or is_bytes(kind):
        lengths = pc.fill_null(pc.binary_length(values).cast(pa.int64()), 0)
        bytes_: npt.NDArray[np.int64] = lengths.to_numpy(zero_copy_only=False)
        return bytes_ * ESCAPED_BYTES_MAX + FIXED_BYTES_MAX
    if pa.types.is_struct(kind):
        fields = [values.field(n) for n in range(kind.num_fields)]
        names = sum(len(kind.field(n).name) for n in range(kind.num_fields)) * ESCAPED_BYTES_MAX
        own = np.full(len(values), FIXED_BYTES_MAX + names, np.int64)
        return sum((_bounds(field) for field in fields), own)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        inner = np.concatenate([[0], np.cumsum(_inner_bounds(values))])
        offsets = values.offsets.to_numpy(zero_copy_only=False)
        sums: npt.NDArray[np.int64] = inner[offsets[1:]] - inner[offsets[:-1]]
        return sums + FIXED_BYTES_MAX
    return np.full(len(values), FIXED_BYTES_MAX, np.int64)


def _inner_bounds(values: pa.Array) -> npt.NDArray[np.int64]:
    """Of every element of lists, one list after the other."""
    if pa.types.is_map(values.type):
        return _bounds(values.keys) + _bounds(values.items)
    return _bounds(values.values)
