"""Events that no function can be given: without a key, with a key that cannot be stored, or with a
time that no calendar has.

They are found when a partition's events are gathered, whatever way they came. In an operator that
quarantines they become dead letters in the same commit; in any other the first of them stops the
epoch, named by its source, partition, offset and column.

Columns are looked at as a whole for values that might not be a key. Only those are then tried one
by one, as the very bytes they would be stored as. A vectorised function stores its keys itself, by
a type of fixed width, so its keys need only be there and in the calendar.
"""

from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from penstock.calendar import FIRST_US, LAST_US
from penstock.errors import Invalid
from penstock.runtime.dead_letters import dead_letters_table
from penstock.runtime.events import python_values
from penstock.runtime.functions import Form
from penstock.runtime.inbox import NO_TIME, Gathered
from penstock.runtime.topology import OperatorNode
from penstock.sources.event_times import as_times, outside_calendar, why_outside
from penstock.state.keys import KEY_BYTES_MAX, encode_key

__all__ = ["without_unfit"]

Rows = NDArray[np.bool_]
Unfit = dict[int, tuple[str, str]]
"""What is wrong with some rows: as a failure says it of the operator, and as a dead letter does."""

FIXED_BYTES_MAX = 48
"""What a key takes at most whose type has a width: a decimal of 38 digits is the longest."""

KEY_CHARS_SHOWN = 200

_DAY_US = 86_400_000_000
_FIRST_DAY, _LAST_DAY = FIRST_US // _DAY_US, LAST_US // _DAY_US


def without_unfit(
    operator: OperatorNode, gathered: Gathered, base: NDArray[np.int64] | None
) -> tuple[Gathered, NDArray[np.int64] | None, pa.Table | None]:
    """The events that a function can be given, their order, and the others as dead letters."""
    found = {**_unkeyed(operator, gathered.keys), **_untimely(gathered.times_us)}
    if not found:
        return gathered, base, None
    bad = sorted(found)
    if operator.on_error != "quarantine":
        raise _refused(operator, gathered, bad[0], found[bad[0]][0])
    fit = np.ones(len(gathered.groups), np.bool_)
    fit[bad] = False
    rows = np.arange(len(fit)) if base is None else base
    kept = rows[fit[rows]]
    errors, keys = [found[row][1] for row in bad], _keys_at(gathered.keys, bad)
    shown = [repr(key[0] if len(key) == 1 else key)[:KEY_CHARS_SHOWN] for key in keys]
    dead = dead_letters_table(gathered, np.array(bad, np.int64), errors, shown)
    order = None if base is None else np.argsort(np.argsort(kept))
    return gathered.taken(np.sort(kept)), order, _told_times(dead)


def _refused(operator: OperatorNode, gathered: Gathered, row: int, what: str) -> Invalid:
    meta = gathered.origins.of(row)
    return Invalid(
        f"operator {operator.name!r}",
        f"{what}, at offset {meta.offset} of {meta.source}, partition {meta.partition}",
        "filter such events out in a transform, or use on_error='quarantine'",
    )


def _told_times(dead: pa.Table) -> pa.Table:
    """Letters without the event times that no calendar has, so that every reader can show them."""
    beyond = outside_calendar(dead.column("_event_time"))
    if beyond is None:
        return dead
    place = dead.column_names.index("_event_time")
    told = pc.if_else(pa.array(beyond), None, dead.column(place))
    return dead.set_column(place, "_event_time", told)


def _untimely(times_us: NDArray[np.int64]) -> Unfit:
    """Events whose time no calendar has: a transform may have made it."""
    beyond = ((times_us < FIRST_US) | (times_us > LAST_US)) & (times_us != NO_TIME)
    reasons = {row: why_outside(int(times_us[row])) for row in np.flatnonzero(beyond).tolist()}
    return {
        row: (f"was given an event of no year ({reason})", reason)
        for row, reason in reasons.items()
    }


def _unkeyed(operator: OperatorNode, keys: list[pa.ChunkedArray]) -> Unfit:
    """Events whose key is null, or cannot be stored."""
    found: Unfit = {}
    named = f"was given a null as its key ({', '.join(operator.key)})"
    for column in keys:
        if column.null_count:
            nulls = np.flatnonzero(column.is_null().to_numpy()).tolist()
            found.update(dict.fromkeys(nulls, (named, "the key is null")))
    suspects = [row for row in _suspects(operator, keys) if row not in found]
    for row, key in zip(suspects, _keys_at(keys, suspects), strict=True):
        reason = _why_no_key(operator, keys, key)
        if reason is not None:
            found[row] = (f"was given a key that cannot be stored ({reason})", reason)
    return found


def _suspects(operator: OperatorNode, keys: list[pa.ChunkedArray]) -> list[int]:
    """Rows whose key may be none; all others are surely fit."""
    doubts = [_beyond_calendar(column) for column in keys if pa.types.is_temporal(column.type)]
    if operator.wrapped.form is not Form.PER_PARTITION:
        floats = (column for column in keys if pa.types.is_floating(column.type))
        doubts += [pc.is_nan(column) for column in floats]
        doubts.append(_too_long(keys))
    found: set[int] = set()
    for doubt in doubts:
        if doubt is not None and pc.any(doubt).as_py():
            found.update(np.flatnonzero(doubt.fill_null(False).to_numpy()).tolist())
    return sorted(found)


def _beyond_calendar(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Times at which the calendar of some zone ends, or later, or earlier than it begins."""
    if pa.types.is_date32(column.type):
        numbers, first, last = column.cast(pa.int32()), _FIRST_DAY, _LAST_DAY
    else:
        numbers = as_times(column).cast(pa.int64())
        first, last = FIRST_US + _DAY_US, LAST_US - _DAY_US
    ends = pc.min_max(numbers)
    if ends["min"].as_py() is None or first <= ends["min"].as_py() <= ends["max"].as_py() <= last:
        return None
    return pc.or_(pc.less(numbers, first), pc.greater(numbers, last))


def _too_long(keys: list[pa.ChunkedArray]) -> pa.ChunkedArray | None:
    """Keys that may take more bytes than a key may: a byte of text takes two at most."""
    texts = [column for column in keys if not _has_width(column.type)]
    rest = 2 + 2 * len(texts) + FIXED_BYTES_MAX * (len(keys) - len(texts))
    lengths = [pc.binary_length(column).cast(pa.int64()) for column in texts]
    longest = sum(pc.max(length).as_py() or 0 for length in lengths)
    if 2 * longest + rest <= KEY_BYTES_MAX:
        return None
    total = lengths[0].fill_null(0)
    for length in lengths[1:]:
        total = pc.add(total, length.fill_null(0))
    return pc.greater(total, (KEY_BYTES_MAX - rest) // 2)


def _has_width(kind: pa.DataType) -> bool:
    wide = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    return not any(is_it(kind) for is_it in (*wide, pa.types.is_large_binary, _is_fixed_binary))


def _is_fixed_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_binary(kind)) and not pa.types.is_decimal(kind)


def _why_no_key(
    operator: OperatorNode, keys: list[pa.ChunkedArray], parts: tuple[Any, ...]
) -> str | None:
    """Why a key of these parts cannot be stored; None if it can."""
    for name, column, part in zip(operator.key, keys, parts, strict=True):
        if pa.types.is_temporal(column.type) and isinstance(part, int):
            return f"column {name!r} holds {part}, a time outside of the years 1 to 9999"
    if operator.wrapped.form is Form.PER_PARTITION:
        return None
    for name, part in zip(operator.key, parts, strict=True):
        refusal = _refusal(part)
        if refusal is not None:
            return f"column {name!r}: {refusal}"
    refusal = _refusal(parts) if len(parts) > 1 else None
    return None if refusal is None else f"columns {', '.join(operator.key)}: {refusal}"


def _refusal(key: Any) -> str | None:
    try:
        encode_key(key)
    except Invalid as refused:
        return f"{refused.subject} {refused.found}"
    return None


def _keys_at(keys: list[pa.ChunkedArray], rows: list[int]) -> list[tuple[Any, ...]]:
    """The keys of some rows, column by column; a time that no calendar has is a number."""
    places = pa.array(rows, pa.int64())
    if not keys:
        return [()] * len(rows)
    return list(zip(*(python_values(column.take(places)) for column in keys), strict=True))
