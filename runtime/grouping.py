"""Bringing a partition's events into order: key by key, and within a key always the same.

Keys stand in the order of their key group and their bytes, which is the order of the database and
of the delta. Within a key events stand in log order (feed, source, partition, offset), or by event
time with log order deciding between equals. Neither depends on the number of partitions, on how
the rows travelled, or on the attempt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from penstock.runtime.events import python_values
from penstock.state.keys import encode_ints, encode_keys

__all__ = ["Grouped", "by_time", "group_by_key"]

_LOW_HALF = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Grouped:
    """Events key by key. Position i of every list is of the same key."""

    order: NDArray[np.int64]
    """Which row of the table comes when."""
    keys: list[Any]
    encoded: list[bytes]
    groups: list[int]
    starts: list[int]
    stops: list[int]


def by_time(times: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The order by time, equals as they stand; None if they stand so already."""
    if len(times) < 2 or bool((times[1:] >= times[:-1]).all()):
        return None
    return np.argsort(times, kind="stable")


def group_by_key(
    columns: Sequence[pa.ChunkedArray],
    groups: NDArray[np.uint16],
    base: NDArray[np.int64] | None,
) -> Grouped:
    """Group rows by the key in `columns`, which has no nulls. `base` is their order before."""
    known = _int_keys(columns[0], groups) if _is_int(columns) else _keys(columns, groups)
    place = np.empty(len(known.keys), np.int64)
    place[known.sequence] = np.arange(len(known.keys))
    places = place[known.codes] if base is None else place[known.codes[base]]
    # The position in the lower half makes every number different, so the fastest sort will do.
    mixed = (places << 32) | np.arange(len(places))
    mixed.sort()
    order = mixed & _LOW_HALF
    stops = np.cumsum(np.bincount(places, minlength=len(known.keys)))
    return Grouped(
        order if base is None else base[order],
        known.keys,
        known.encoded,
        known.groups,
        [0, *stops[:-1].tolist()] if known.keys else [],
        stops.tolist(),
    )


@dataclass(frozen=True, slots=True)
class _Known:
    """Each key once, in order, with its bytes and its key group."""

    keys: list[Any]
    encoded: list[bytes]
    groups: list[int]
    codes: NDArray[np.int64]
    """For each row, which key it has, by when that was first seen."""
    sequence: NDArray[np.int64]
    """Which of them by that number comes when."""


def _is_int(columns: Sequence[pa.ChunkedArray]) -> bool:
    return len(columns) == 1 and bool(pa.types.is_signed_integer(columns[0].type))


def _int_keys(column: pa.ChunkedArray, groups: NDArray[np.uint16]) -> _Known:
    """Numbers need not become Python's before all is in order; their bytes sort as they do."""
    found = _combined(column).dictionary_encode()
    numbers, codes = found.dictionary.to_numpy().astype(np.int64), found.indices.to_numpy()
    groups_of_keys = np.zeros(len(numbers), np.uint16)
    groups_of_keys[codes] = groups
    by_number = np.argsort(numbers)
    sequence = by_number[np.argsort(groups_of_keys[by_number], kind="stable")]
    ordered = numbers[sequence]
    return _Known(
        ordered.tolist(), encode_ints(ordered), groups_of_keys[sequence].tolist(), codes, sequence
    )


def _keys(columns: Sequence[pa.ChunkedArray], groups: NDArray[np.uint16]) -> _Known:
    keys, codes, encoded = _merged(*_codes(columns))
    groups_of_keys = np.zeros(len(keys), np.uint16)
    groups_of_keys[codes] = groups
    marked = list(zip(groups_of_keys.tolist(), encoded, strict=True))
    chosen = sorted(range(len(keys)), key=marked.__getitem__)
    sequence = np.array(chosen, np.int64)
    return _Known(
        [keys[at] for at in chosen],
        [encoded[at] for at in chosen],
        groups_of_keys[sequence].tolist(),
        codes,
        sequence,
    )


def _codes(columns: Sequence[pa.ChunkedArray]) -> tuple[list[Any], NDArray[np.int64]]:
    """Each key once, and for each row which it has. A key of several columns is a tuple."""
    if len(columns) == 1:
        found = _combined(columns[0]).dictionary_encode()
        return python_values(pa.chunked_array([found.dictionary])), found.indices.to_numpy()
    known: dict[tuple[Any, ...], int] = {}
    rows = zip(*(python_values(column) for column in columns), strict=True)
    codes = [known.setdefault(key, len(known)) for key in rows]
    return list(known), np.array(codes, np.int64)


def _merged(
    keys: list[Any], codes: NDArray[np.int64]
) -> tuple[list[Any], NDArray[np.int64], list[bytes]]:
    """The same with their bytes, which tell what one key is: both zeros are, for instance."""
    encoded = encode_keys(keys)
    if len(set(encoded)) == len(keys):
        return keys, codes, encoded
    first = {key: at for at, key in reversed(list(enumerate(encoded)))}
    chosen = sorted(first.values())
    place = {encoded[at]: number for number, at in enumerate(chosen)}
    moved = np.array([place[key] for key in encoded], np.int64)
    return [keys[at] for at in chosen], moved[codes], [encoded[at] for at in chosen]


def _combined(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    if isinstance(found, pa.ChunkedArray):
        found = found.chunk(0) if found.num_chunks else pa.array([], column.type)
    return found
