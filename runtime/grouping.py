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
from penstock.state.keys import encode_keys

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
    keys, codes, encoded = _merged(*_codes(columns))
    groups_of_keys = np.zeros(len(keys), np.uint16)
    groups_of_keys[codes] = groups
    sequence = _sequence(keys, encoded, groups_of_keys)
    place = np.empty(len(keys), np.int64)
    place[sequence] = np.arange(len(keys))
    places = place[codes] if base is None else place[codes[base]]
    # The position in the lower half makes every number different, so the fastest sort will do.
    mixed = (places << 32) | np.arange(len(places))
    mixed.sort()
    order = mixed & _LOW_HALF
    stops = np.cumsum(np.bincount(places, minlength=len(keys)))
    chosen = sequence.tolist()
    return Grouped(
        order if base is None else base[order],
        [keys[at] for at in chosen],
        [encoded[at] for at in chosen],
        groups_of_keys[sequence].tolist(),
        [0, *stops[:-1].tolist()] if len(keys) else [],
        stops.tolist(),
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


def _sequence(
    keys: list[Any], encoded: list[bytes], groups: NDArray[np.uint16]
) -> NDArray[np.int64]:
    """The keys in the order of their key group and their bytes."""
    if keys and type(keys[0]) is int:  # their bytes stand in the order of the numbers
        return np.lexsort((np.array(keys, np.int64), groups))
    numbers = groups.tolist()
    marked = [(number, key) for number, key in zip(numbers, encoded, strict=True)]
    return np.array(sorted(range(len(keys)), key=marked.__getitem__), np.int64)
