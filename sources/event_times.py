"""Event times of whole columns: in microseconds, and those that no calendar has.

A column of times may be of any unit. What it cannot say in microseconds stays as far away as those
reach, so that nothing here raises on a value: the caller finds it outside of the calendar and
decides what becomes of the row.
"""

from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from penstock.calendar import FIRST_US, LAST_US
from penstock.sources.protocol import TIME

__all__ = ["as_times", "out_of_reach", "outside_calendar", "why_outside"]

_SCALES = {"s": 1_000_000, "ms": 1_000}
_LONG = np.iinfo(np.int64)
_REACH_US = _LONG.max // 1_000_000 * 1_000_000
"""Whole seconds that microseconds can tell. What they cannot is told as this, or further away."""


def as_times(column: Any) -> Any:
    """Timestamps of any unit, whole milliseconds, dates or text as times. What is finer is cut
    off; what has no zone is UTC."""
    kind = column.type
    if pa.types.is_integer(kind):
        return _scaled(column, 1_000)
    if not pa.types.is_timestamp(kind):
        return column.cast(TIME)
    if kind.unit in _SCALES:
        return _scaled(column.cast(pa.int64()), _SCALES[kind.unit])
    return column.cast(pa.timestamp("us", kind.tz), safe=False).cast(TIME)


def _scaled(numbers: Any, scale: int) -> Any:
    """Each number times the scale, or as near to that as a number of 64 bits comes."""
    reach = _LONG.max // scale
    if numbers.type == pa.uint64():
        numbers = pc.min_element_wise(numbers, pa.scalar(reach, pa.uint64()), skip_nulls=False)
    whole = numbers.cast(pa.int64())
    low = pc.max_element_wise(whole, pa.scalar(-reach, pa.int64()), skip_nulls=False)
    near = pc.min_element_wise(low, pa.scalar(reach, pa.int64()), skip_nulls=False)
    return pc.multiply(near, scale).cast(TIME)


def outside_calendar(times: Any) -> NDArray[np.bool_] | None:
    """Which times lie outside of the years 1 to 9999; None if none does. A null is no time."""
    return _outside(times, FIRST_US, LAST_US)


def out_of_reach(times: Any) -> NDArray[np.bool_] | None:
    """Which times microseconds could not tell; None if they could tell all."""
    return _outside(times, 1 - _REACH_US, _REACH_US - 1)


def _outside(times: Any, first_us: int, last_us: int) -> NDArray[np.bool_] | None:
    micros = times.cast(pa.int64())
    ends = pc.min_max(micros)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if least is None or first_us <= least <= most <= last_us:
        return None
    beyond = pc.or_(pc.less(micros, first_us), pc.greater(micros, last_us)).fill_null(False)
    found: NDArray[np.bool_] = np.asarray(beyond.to_numpy(zero_copy_only=False), np.bool_)
    return found


def why_outside(micros: int) -> str:
    """What is wrong with such a time."""
    return f"its event time, {micros} µs since 1970, is outside of the years 1 to 9999"
