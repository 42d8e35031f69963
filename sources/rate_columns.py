"""Generated columns: each value follows from a stream and a counter, and from nothing else.

Nothing is drawn in turn. The word at a counter is the counter mixed with the number of its
stream (splitmix64), so any rows can be made alone, in any order, by any process. Only whole
numbers decide; floats are made of them exactly, so no processor rounds a row into another one.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from penstock.errors import Invalid
from penstock.state.mixing import GOLDEN, stir

__all__ = [
    "SHARE_BITS",
    "YEAR_START_DAYS",
    "Counters",
    "Ints",
    "Stream",
    "Words",
    "check_type",
    "make_column",
    "moments",
    "unscaled",
    "with_nulls",
]

TEXT_BYTES_MIN, TEXT_BYTES_MAX = 4, 16
LIST_ITEMS_MAX = 3
SHARE_BITS = 53
"""Of a word, to compare with a share: as many as a float holds exactly."""
YEAR_START_DAYS = 20_454
"""The first of January 2026."""

_YEAR_DAYS = 365
_DAY_US = 86_400_000_000
_TICKS_US = {"s": 1_000_000, "ms": 1_000, "us": 1}
_DECIMAL_DIGITS_MAX = 18

Words = NDArray[np.uint64]
Counters = NDArray[np.uint64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Stream:
    """A line of random words, each found by its counter. Streams of other names share nothing."""

    name: str
    numbers_below: int | None = None
    """What the numbers made of it stay below; None: they may be all that their type has."""

    def sub(self, name: object) -> "Stream":
        """The stream of a part: of a column, of its nulls, of a field in it."""
        return Stream(f"{self.name}/{name!r}", self.numbers_below)

    def words(self, counters: Counters) -> Words:
        """The words at some counters."""
        number = hashlib.blake2b(self.name.encode(), digest_size=8).digest()
        words = counters * np.uint64(GOLDEN)
        words += int.from_bytes(number, "little")
        stir(words)
        return words

    def below(self, share: float, counters: Counters) -> Mask:
        """True at a `share` of all counters; where it is true for some, it is for any larger."""
        chosen: Mask = self.words(counters) >> (64 - SHARE_BITS) < int(share * 2**SHARE_BITS)
        return chosen

    def upto(self, limit: int, counters: Counters) -> Ints:
        """Whole numbers from 0 up to, not including, `limit`."""
        return (self.words(counters) % np.uint64(limit)).astype(np.int64)


def check_type(kind: pa.DataType, where: str) -> None:
    """Raise unless values of this type can be made."""
    if _is_list(kind):
        return check_type(kind.value_type, f"{where}[]")
    if pa.types.is_struct(kind) and kind.num_fields:
        for field in _fields(kind):
            check_type(field.type, f"{where}.{field.name}")
        return None
    if pa.types.is_struct(kind) or not any(is_it(kind) for is_it, _ in _MAKERS):
        raise Invalid(
            where,
            f"is a {kind}, which cannot be made up",
            "use booleans, numbers, strings, binaries, dates, timestamps, and lists and structs "
            "of them",
        )
    return None


def make_column(kind: pa.DataType, stream: Stream, counters: Counters) -> pa.Array:
    """A value of a type for each counter."""
    maker = next(maker for is_it, maker in _MAKERS if is_it(kind))
    return maker(kind, stream, counters)


def with_nulls(column: pa.Array, missing: Mask) -> pa.Array:
    """The column without some of its values."""
    places = pa.array(np.arange(len(column)), mask=missing)
    return column.take(places)


def moments(micros: Ints, kind: pa.DataType) -> pa.Array:
    """Microseconds since 1970 as timestamps; what a coarser unit cannot tell is cut off."""
    ticks = micros * 1_000 if kind.unit == "ns" else micros // _TICKS_US[kind.unit]
    return pa.array(ticks, pa.int64()).view(kind)


def unscaled(numbers: Ints, kind: pa.DataType) -> pa.Array:
    """Whole numbers, none of them negative, as the digits of decimals."""
    halves = np.zeros((len(numbers), 2), "<i8")
    halves[:, 0] = numbers
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(halves)])


def _booleans(kind: pa.DataType, stream: Stream, counters: Counters) -> pa.Array:
    return pa.array(stream.below(0.5, counters), kind)


def _integers(kind: pa.DataType, stream: Stream, counters: Counters) -> pa.Array:
    """All there are, or those from 0 up to a limit, equally often."""
    if stream.numbers_below is not None:
        room = 1 << kind.bit_width - 1
        return pa.array(stream.upto(min(stream.numbers_below, room), counters)).cast(kind)
    shift = np.uint64(64 - kind.bit_width)
    unsigned = (stream.words(counters) >> shift).astype(f"u{kind.bit_width // 8}")
    return pa.array(unsigned.view(kind.to_pandas_dtype()), kind)


def _floats(kind: pa.DataType, stream: Stream, counters: Counters) -> pa.Array:
    """Multiples of 1/128 below 128: their sum is exact, whatever the order they are added in."""
    return pa.array((stream.upto(1 << 14, counters) / 128).astype(kind.to_pandas_dtype()), kind)


def _decimals(kind: pa.DataType, stream: Stream, counters: Counters) -> pa.Array:
    """Not negative, with all the digits there are up to 18, or up to a limit."""
    room = 10 ** min(kind.precision, _DECIMAL_DIGITS_MAX)
    return unscaled(stream.upto(min(stream.numbers_below or room, room), counters), kind)


def _texts(kind: pa.DataType, stream: Stream, counters: Counters) -> pa.Array:
    """Of 4 to 16 of the letters a to p."""
    raw = _raw(stream, counters, TEXT_BYTES_MAX // 2)
    letters = np.concatenate([raw >> 4, raw & 15], axis=1) + np.uint8(ord("a"))
    return _of_some_length(pa.string(), letters, stream, counters).cast(kind)


def _binaries(kind: pa.DataType, stream: Stream, counters: Counters) -> pa.Array:
    """Of 4 to 16 bytes."""
    raw = _raw(stream, counters, TEXT_BYTES_MAX)
    return _of_some_length(pa.binary(), raw, stream, counters).cast(kind)


def _fixed_binaries(kind: pa.DataType, stream: Stream, counters: Counters) -> pa.Array:
    raw = np.ascontiguousarray(_raw(stream, counters, kind.byte_width))
    return pa.Array.from_buffers(kind, len(counters), [None, pa.py_buffer(raw)])


def _dates(kind: pa.DataType, stream: Stream, counters: Counters) -> pa.Array:
    """Days of the year 2026."""
    days = stream.upto(_YEAR_DAYS, counters) + YEAR_START_DAYS
    return pa.array(days.astype(np.int32), pa.int32()).view(kind)


def _moments(kind: pa.DataType, stream: Stream, counters: Counters) -> pa.Array:
    """Moments of the year 2026."""
    micros = stream.upto(_YEAR_DAYS * _DAY_US, counters)
    return moments(micros + YEAR_START_DAYS * _DAY_US, kind)


def _lists(kind: pa.DataType, stream: Stream, counters: Counters) -> pa.Array:
    """Of up to three items, which have counters of their own."""
    room = LIST_ITEMS_MAX + 1
    lengths = stream.sub("length").upto(room, counters)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    places = np.arange(ends[-1]) - np.repeat(ends[:-1], lengths)
    within = np.repeat(counters * np.uint64(room), lengths) + places.astype(np.uint64)
    items = make_column(kind.value_type, stream.sub("item"), within)
    if pa.types.is_large_list(kind):
        return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), items, type=kind)
    return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32), pa.int32()), items, type=kind)


def _structs(kind: pa.DataType, stream: Stream, counters: Counters) -> pa.Array:
    fields = _fields(kind)
    parts = [make_column(field.type, stream.sub(field.name), counters) for field in fields]
    return pa.StructArray.from_arrays(parts, fields=fields)


def _raw(stream: Stream, counters: Counters, width: int) -> NDArray[np.uint8]:
    """As many bytes as asked for, as one row for each counter."""
    count = -(-width // 8)
    words = np.empty((len(counters), count), "<u8")
    for number in range(count):
        words[:, number] = stream.sub(number).words(counters)
    return words.view(np.uint8).reshape(len(counters), count * 8)[:, :width]


def _of_some_length(
    kind: pa.DataType, raw: NDArray[np.uint8], stream: Stream, counters: Counters
) -> pa.Array:
    """The first bytes of each row, as many as the stream says."""
    lengths = stream.sub("length").upto(TEXT_BYTES_MAX - TEXT_BYTES_MIN + 1, counters)
    lengths += TEXT_BYTES_MIN
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    kept = raw[np.arange(raw.shape[1]) < lengths[:, None]]
    return pa.Array.from_buffers(
        kind, len(counters), [None, pa.py_buffer(ends), pa.py_buffer(kept)]
    )


def _fields(kind: pa.DataType) -> list[Any]:
    return [kind.field(number) for number in range(kind.num_fields)]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


_MAKERS: tuple[
    tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, Stream, Counters], pa.Array]], ...
] = (
    (pa.types.is_boolean, _booleans),
    (pa.types.is_integer, _integers),
    (pa.types.is_floating, _floats),
    (pa.types.is_decimal128, _decimals),
    (_is_text, _texts),
    (_is_bytes, _binaries),
    (pa.types.is_fixed_size_binary, _fixed_binaries),
    (pa.types.is_date32, _dates),
    (pa.types.is_timestamp, _moments),
    (_is_list, _lists),
    (pa.types.is_struct, _structs),
)
