"""Rows as they were when they were yielded.

A function may change a dict after it has yielded it, or a list inside it; rows become columns only
some thousands later. So each is copied at the yield, before the function goes on: the dict alone if
its columns hold nothing that can change, and whatever is inside it otherwise.

A function that never stops yielding would take all memory there is; a call has a limit instead.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from sys import getsizeof
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.errors import Invalid
from penstock.runtime.functions import Side

__all__ = ["CALL_BYTES_MAX", "CALL_ROWS_MAX", "STEP_ROWS", "Take", "drained", "taker"]

Take: TypeAlias = Callable[[Any], Any]
"""Gives a row that stays what it is."""

CALL_ROWS_MAX = 1_000_000
"""How many rows one call may yield."""
CALL_BYTES_MAX = 1 << 30
"""How many bytes they may take, as Python objects."""
STEP_ROWS = 8192
"""After so many rows a call is watched."""

_NOTHING_INSIDE = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_temporal,
)


def taker(schemas: Iterable[pa.Schema]) -> Take:
    """How rows of these columns are copied."""
    kinds = [field.type for schema in schemas for field in schema]
    if all(any(is_it(kind) for is_it in _NOTHING_INSIDE) for kind in kinds):
        return _take
    return _take_deeply


def drained(rows: Iterator[Any], where: str) -> Iterator[Any]:
    """All further rows of a call that has yielded `STEP_ROWS` already; `Invalid` for too many."""
    count, size_bytes = STEP_ROWS, 0
    while step := list(islice(rows, STEP_ROWS)):
        yield from step
        count += len(step)
        size_bytes += sum(map(_size_bytes, step))
        if count > CALL_ROWS_MAX or size_bytes > CALL_BYTES_MAX:
            found = f"yielded {count:,} rows of about {size_bytes:,} bytes in one call"
            limit = f"{CALL_ROWS_MAX:,} rows and {CALL_BYTES_MAX:,} bytes"
            raise Invalid(where, found, f"see that it ends; one call may yield {limit}")


def _take(row: Any) -> Any:
    return row.copy() if type(row) is dict else _take_other(row, _take)


def _take_deeply(row: Any) -> Any:
    if type(row) is dict:
        return {name: _copied(value) for name, value in row.items()}
    return _take_other(row, _take_deeply)


def _take_other(row: Any, take: Take) -> Any:
    if isinstance(row, Side):
        return Side(row.output, take(row.row))
    if isinstance(row, Mapping):
        return take(dict(row))
    return row  # no row, which is said where it is sorted out


def _copied(value: Any) -> Any:
    """A value with no part that its function could still change."""
    if isinstance(value, list | tuple):
        return [_copied(each) for each in value]
    if isinstance(value, Mapping):
        return {name: _copied(each) for name, each in value.items()}
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return value.copy() if isinstance(value, np.ndarray) else value


def _size_bytes(row: Any) -> int:
    values = row.values() if isinstance(row, dict) else ()
    return getsizeof(row) + sum(map(getsizeof, values))
