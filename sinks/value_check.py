"""Values that could never be written, refused by the task that emitted them.

Once an epoch is committed its rows must be applied, and no later version of the job can take them
back. So a task looks at every value before it stages rows: with one pass of a compiled loop over
each column, and row by row only where a value is refused, to name it.

- **Sound**: the bytes of a column are what its type says. Text is UTF-8, a time of day is within
  the day, a date is a whole number of days. Asked of the rows of every sink.
- **In the calendar**: a time lies in the years 1 to 9999, a duration within a billion days. Arrow
  counts further than Python, and than most clients and readers. Asked by every sink that makes
  other values of Arrow's.
- **Told apart**: a map has no text twice among its keys. As an object of JSON it would keep one
  of the two. Asked by every sink that spells values.

All look into lists, structs and maps as well.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.errors import Invalid
from penstock.sinks.protocol import PROVENANCE

__all__ = ["Unfit", "check_calendar", "check_each", "check_sound", "check_spelling", "leaves"]

Unfit = Callable[[pa.ChunkedArray], tuple[str, str] | None]
"""Says of a column what is wrong with one of its values, and what to do about it; None: nothing."""

DAYS = (-719_162, 2_932_896)
"""From the first of the year 1 to the last of the year 9999, counted from 1970."""
DURATION_DAYS_MAX = 999_999_999
"""The longest duration that Python has, and the shortest if it is negative."""
NO_TIME = -(1 << 63)
"""In nanoseconds, what pandas takes for no value."""
INPUTS_SHOWN_MAX = 3

_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000}
_UTF8 = "UTF8"


def check_sound(where: str, rows: pa.Table) -> None:
    """Raise `Invalid` if a column holds bytes that are no values of its type."""
    check_each(where, rows, _unsound)


def check_calendar(where: str, rows: pa.Table) -> None:
    """Raise `Invalid` if there is a time that no calendar has, or a duration beyond all time."""
    check_each(where, rows, _beyond)


def check_spelling(where: str, rows: pa.Table) -> None:
    """Raise `Invalid` if a value has no spelling, or one that says less than the value."""
    check_calendar(where, rows)
    check_each(where, rows, _repeated)


def check_each(where: str, rows: pa.Table, unfit: Unfit) -> None:
    """Raise `Invalid` for the first row that `unfit` finds something wrong with, by its column,
    its number and, if it is known, what it was computed from."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if name in PROVENANCE.names or unfit(column) is None:
            continue
        at = _first(column, unfit)
        found, advice = unfit(column.take([at])) or ("holds a value that is refused", "look at it")
        raise Invalid(f"{where}, column {name!r}, row {at}", found + _origin(rows, at), advice)


def leaves(values: pa.Array) -> Iterator[pa.Array]:
    """The arrays that a nested one consists of."""
    kind = values.type
    if pa.types.is_struct(kind):
        parts = values.flatten()
    elif pa.types.is_map(kind):
        first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
        parts = [part.slice(first, last - first) for part in (values.keys, values.items)]
    elif pa.types.is_dictionary(kind):
        parts = [values.dictionary_decode()]
    elif pa.types.is_nested(kind) and not pa.types.is_union(kind):
        parts = [values.flatten()]
    else:
        yield values
        return
    for part in parts:
        yield from leaves(part)


def _first(column: pa.ChunkedArray, unfit: Unfit) -> int:
    """The first row that is refused, by halving. Rows are taken and not sliced: a slice of lists is
    judged with all that is in the others."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        if unfit(column.take(pa.array(range(low, middle), pa.int64()))) is None:
            low = middle
        else:
            high = middle
    return low


def _origin(rows: pa.Table, at: int) -> str:
    """The events that a row was computed from, where the rows say so."""
    if "_input" not in rows.column_names:
        return ""
    inputs = rows.column("_input")[at].as_py() or []
    named = [_spelt_input(each) for each in inputs[:INPUTS_SHOWN_MAX]]
    more = [f"{len(inputs) - len(named)} more"] if len(inputs) > len(named) else []
    return f" (computed from {' and '.join(named + more)})" if named else ""


def _spelt_input(of: dict[str, Any]) -> str:
    first, last = of["first"], of["last"]
    return f"{of['from']}, " + (
        f"offset {first}" if first == last else f"offsets {first} to {last}"
    )


def _unsound(column: pa.ChunkedArray) -> tuple[str, str] | None:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        if _UTF8 in str(error):
            return "holds text that is not UTF-8", "emit it as bytes"
        return f"holds what is no {column.type} ({error})", "emit a value of that type, or none"
    return None


def _beyond(column: pa.ChunkedArray) -> tuple[str, str] | None:
    for chunk in column.chunks:
        for leaf in leaves(chunk):
            bounds = _bounds(leaf.type)
            unfit = None if bounds is None else _outside(leaf, *bounds)
            if unfit is not None:
                return _told(leaf.type, unfit)
    return None


def _repeated(column: pa.ChunkedArray) -> tuple[str, str] | None:
    for chunk in column.chunks:
        for each in _maps(chunk):
            first, last = each.offsets[0].as_py(), each.offsets[-1].as_py()
            keys = each.keys.slice(first, last - first)
            counts = np.diff(each.offsets.to_numpy(zero_copy_only=False))
            named = pa.table({"map": np.repeat(np.arange(len(each)), counts), "key": keys})
            told = named.group_by(["map", "key"]).aggregate([([], "count_all")])
            if told.num_rows < named.num_rows:
                at = pc.index(pc.greater(told.column("count_all"), 1), True).as_py()
                found = f"is a map that has the key {told.column('key')[at].as_py()[:60]!r} twice"
                return found, "emit each key once: an object of JSON keeps one of them"
    return None


def _maps(values: pa.Array) -> Iterator[pa.Array]:
    """The maps with keys of text, at any depth."""
    kind = values.type
    if pa.types.is_map(kind):
        if pa.types.is_string(kind.key_type) or pa.types.is_large_string(kind.key_type):
            yield values
        first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
        for part in (values.keys, values.items):
            yield from _maps(part.slice(first, last - first))
    elif pa.types.is_struct(kind):
        for part in values.flatten():
            yield from _maps(part)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _maps(values.flatten())


def _bounds(kind: pa.DataType) -> tuple[int, int] | None:
    """The least and the largest number that stands for a value; None: all do."""
    if pa.types.is_date32(kind):
        return DAYS
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind) or pa.types.is_duration(kind):
        unit = "ms" if pa.types.is_date64(kind) else kind.unit
        if unit == "ns":
            return NO_TIME + 1, -NO_TIME - 1
        first, last = DAYS
        if pa.types.is_duration(kind):
            first, last = -DURATION_DAYS_MAX, DURATION_DAYS_MAX
        return first * _PER_DAY[unit], (last + 1) * _PER_DAY[unit] - 1
    return None


def _outside(values: pa.Array, least: int, largest: int) -> pa.Array | None:
    """The first value that is not between the two, alone in an array, or None."""
    numbers = values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    reach = pc.min_max(numbers).as_py()
    if reach["min"] is None or (least <= reach["min"] and reach["max"] <= largest):
        return None
    value = reach["min"] if reach["min"] < least else reach["max"]
    return values.slice(pc.index(numbers, value).as_py(), 1)


def _told(kind: pa.DataType, value: pa.Array) -> tuple[str, str]:
    """What is wrong with a value, alone in an array, and what to do about it."""
    number = value.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())[0].as_py()
    unit = "days" if pa.types.is_date32(kind) else getattr(kind, "unit", "ms")
    if number == NO_TIME and unit == "ns":
        return f"is {number} ns, which stands for no value at all", "emit none in its place"
    if pa.types.is_duration(kind):
        found = f"is {number} {unit}, which is more than {DURATION_DAYS_MAX} days"
        return found, "emit a shorter duration, or a number"
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        value = value.cast(pa.timestamp(kind.unit, "UTC"))
    text = value.cast(pa.string())[0].as_py()
    shown = f"{number} {unit} since 1970" if text.startswith("<") else text
    found = f"is {shown}, which is outside the years 1 to 9999"
    return found, "emit a time that every reader can spell, or none"
