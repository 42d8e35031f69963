"""Generated keys: which of them a row has, and what it looks like.

A key is its rank: 0 is the most frequent. Ranks are chosen by whole numbers from a table, so every
process chooses the same; from the rank follows the value, and no two ranks have the same one.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate, pairwise
from math import log

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.errors import Invalid
from penstock.sources.rate_columns import (
    SHARE_BITS,
    YEAR_START_DAYS,
    Counters,
    Ints,
    Stream,
    Words,
    moments,
    unscaled,
)

__all__ = ["KEYS_MAX", "SKEW_MAX", "check_key", "key_column", "ranks"]

KEYS_MAX = 1 << 40
SKEW_MAX = 10.0
DATES_MAX = 1_000_000
"""Days after which no calendar goes on."""

_ALONE_RANKS = 1024
_DAY_US, _SECOND_US = 86_400_000_000, 1_000_000


def ranks(stream: Stream, counters: Counters, keys: int, skew: float) -> Ints:
    """Which of `keys` keys each row has: rank r is (r + 1) ** `skew` times as rare as rank 0.

    Ranks above 1024 are in ranges, each 1 % longer than the one before, and are equally rare
    within a range.
    """
    if skew == 0:
        return stream.upto(keys, counters)
    thresholds, firsts, widths = _zipf(keys, skew)
    words = stream.words(counters) >> np.uint64(64 - SHARE_BITS)
    found = np.searchsorted(thresholds, words, side="right")
    within = stream.sub("within").words(counters) % widths[found]
    return firsts[found] + within.astype(np.int64)


@lru_cache(maxsize=16)
def _zipf(keys: int, skew: float) -> tuple[Words, Ints, Words]:
    """Up to which word each range of ranks is chosen, its first rank, and how many it has."""
    edges = list(range(min(keys, _ALONE_RANKS) + 1))
    while edges[-1] < keys:
        edges.append(min(keys, edges[-1] * 101 // 100))
    sums = list(accumulate(_weight(begin, end, skew) for begin, end in pairwise(edges)))
    thresholds = [int(part / sums[-1] * 2**SHARE_BITS) for part in sums]
    return (
        np.array(thresholds, np.uint64),
        np.array(edges[:-1], np.int64),
        np.diff(edges).astype(np.uint64),
    )


def _weight(begin: int, end: int, skew: float) -> float:
    """How often some ranks are chosen, together: exact for one, the integral for more."""
    if end == begin + 1:
        return float(end**-skew)
    low, high = begin + 0.5, end + 0.5
    if skew == 1:
        return log(high / low)
    return float((high ** (1 - skew) - low ** (1 - skew)) / (1 - skew))


def check_key(kind: pa.DataType, keys: int, where: str) -> None:
    """Raise unless a column of this type can hold that many keys."""
    room = next((count(kind) for is_it, count, _ in _KINDS if is_it(kind)), 0)
    if not room:
        advice = "use whole numbers, strings, binaries, floats, decimals, dates or timestamps"
        raise Invalid(where, f"is a {kind}, which is no key", advice)
    if keys > room:
        found = f"is a {kind}, which tells {room} keys apart and not {keys}"
        raise Invalid(where, found, "use fewer keys or a wider type")


def key_column(kind: pa.DataType, name: str, chosen: Ints) -> pa.Array:
    """The keys of some ranks: the rank in one form or another, or `name-rank`."""
    maker = next(maker for is_it, _, maker in _KINDS if is_it(kind))
    return maker(kind, name, chosen)


def _as_number(kind: pa.DataType, _: str, chosen: Ints) -> pa.Array:
    return pa.array(chosen.astype(kind.to_pandas_dtype()), kind)


def _as_name(kind: pa.DataType, name: str, chosen: Ints) -> pa.Array:
    numbers = pa.array(chosen).cast(pa.string())
    return pc.binary_join_element_wise(pa.scalar(name), numbers, "-").cast(kind)


def _as_bytes(kind: pa.DataType, _: str, chosen: Ints) -> pa.Array:
    """The rank in big-endian, behind zeros if there is room for more."""
    width = kind.byte_width
    raw = np.zeros((len(chosen), width + 8), np.uint8)
    raw[:, width:] = chosen.astype(">u8").view(np.uint8).reshape(len(chosen), 8)
    last = np.ascontiguousarray(raw[:, 8:])
    return pa.Array.from_buffers(kind, len(chosen), [None, pa.py_buffer(last)])


def _as_digits(kind: pa.DataType, _: str, chosen: Ints) -> pa.Array:
    return unscaled(chosen, kind)


def _as_day(kind: pa.DataType, _: str, chosen: Ints) -> pa.Array:
    return pa.array((chosen + YEAR_START_DAYS).astype(np.int32), pa.int32()).view(kind)


def _as_second(kind: pa.DataType, _: str, chosen: Ints) -> pa.Array:
    return moments(YEAR_START_DAYS * _DAY_US + chosen * _SECOND_US, kind)


def _is_named(kind: pa.DataType) -> bool:
    checks = (pa.types.is_string, pa.types.is_large_string)
    return any(is_it(kind) for is_it in (*checks, pa.types.is_binary, pa.types.is_large_binary))


_KINDS: tuple[
    tuple[
        Callable[[pa.DataType], bool],
        Callable[[pa.DataType], int],
        Callable[[pa.DataType, str, Ints], pa.Array],
    ],
    ...,
] = (
    (_is_named, lambda _: KEYS_MAX, _as_name),
    (pa.types.is_boolean, lambda _: 2, _as_number),
    (
        pa.types.is_integer,
        lambda kind: int(np.iinfo(kind.to_pandas_dtype()).max) + 1,
        _as_number,
    ),
    (
        pa.types.is_floating,
        lambda kind: 2 << int(np.finfo(kind.to_pandas_dtype()).nmant),
        _as_number,
    ),
    (pa.types.is_decimal128, lambda kind: 10 ** min(kind.precision, 18), _as_digits),
    (pa.types.is_fixed_size_binary, lambda kind: 1 << 8 * kind.byte_width, _as_bytes),
    (pa.types.is_date32, lambda _: DATES_MAX, _as_day),
    (pa.types.is_timestamp, lambda _: 1 << 32, _as_second),
)
"""Of each type a key can be of: how many keys it tells apart, and how they are made."""
