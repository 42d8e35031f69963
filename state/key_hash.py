"""The key hash: the very number that Spark's `xxhash64` gives, for whole columns at once.

Which key group a row belongs to is decided by Spark when it shuffles and by Penstock when it
looks a key up. Both must say the same for ever, so the hash is Spark's own, with its rules:

    bool, int8 to int32, date32   as 4 bytes, with the sign carried on
    int64, timestamp              as 8 bytes; a moment in microseconds, whatever its unit or zone
    float32, float64              as their bits; both zeros are one, and so are all NaNs
    strings, binaries             as their bytes
    decimal128                    up to 18 digits as 8 bytes, above as the fewest big-endian bytes

The hash of a column is the seed of the next; a null leaves the seed as it is. Nothing is made
per row, but for strings of more than `VECTOR_BYTES_MAX`: all rows of a piece take the same step
of XXH64 at once, and those that are too short for it sit it out.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import xxhash
from numpy.typing import NDArray

from penstock.errors import Invalid
from penstock.state.key_groups import GROUPS
from penstock.state.layout import GROUPS_MAX

__all__ = ["SEED", "VECTOR_BYTES_MAX", "hash_keys", "key_groups"]

SEED = 42
"""Spark's, for the first column."""

VECTOR_BYTES_MAX = 256
"""Longer strings take more steps than they are worth, and are hashed one by one."""

PIECE_ROWS = 1 << 15
"""Larger columns are worked off in pieces, which stay in the processor's cache."""

_PRIME_1, _PRIME_2, _PRIME_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_PRIME_4, _PRIME_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_WORD_BYTES, _STRIPE_BYTES = 8, 32
_LONG_DIGITS = 18
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}

Hashes = NDArray[np.uint64]
Positions = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]


def hash_keys(columns: Sequence[pa.Array | pa.ChunkedArray], seed: int = SEED) -> NDArray[np.int64]:
    """The hash of each row over all `columns`, as `xxhash64(column, …)` of Spark gives it; with
    another seed, a hash that has nothing to do with that one."""
    hashes = np.full(_rows(columns), seed, np.uint64)
    for number, column in enumerate(columns, 1):
        hasher = _hasher(column.type, f"key column {number} of {len(columns)}")
        begin = 0
        for piece in _pieces(column):
            _fold(piece, hasher, hashes[begin : begin + len(piece)])
            begin += len(piece)
    return hashes.view(np.int64)


def key_groups(
    columns: Sequence[pa.Array | pa.ChunkedArray], groups: int = GROUPS
) -> NDArray[np.uint16]:
    """The key group of each row: `pmod(xxhash64(column, …), groups)`."""
    if not 1 <= groups <= GROUPS_MAX:
        found = f"cannot be shared out over {groups} key groups"
        raise Invalid("the key space", found, f"use 1 to {GROUPS_MAX} key groups")
    return (hash_keys(columns) % groups).astype(np.uint16)


def _rows(columns: Sequence[pa.Array | pa.ChunkedArray]) -> int:
    lengths = [len(column) for column in columns]
    if not lengths or min(lengths) != max(lengths):
        found = f"has columns of {lengths} rows" if lengths else "has no column"
        raise Invalid("the key", found, "give one column or more, all equally long")
    return lengths[0]


def _pieces(column: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        for begin in range(0, len(chunk), PIECE_ROWS):
            piece = chunk.slice(begin, PIECE_ROWS)
            yield piece.dictionary_decode() if pa.types.is_dictionary(piece.type) else piece


def _fold(piece: pa.Array, hasher: "Hasher", hashes: Hashes) -> None:
    """Replace each seed by the hash of its row, except where the row is null."""
    hashed = hasher(piece, hashes)
    valid = piece.is_valid().to_numpy(zero_copy_only=False) if piece.null_count else True
    np.copyto(hashes, hashed, where=valid)


Hasher = Callable[[pa.Array, Hashes], Hashes]
"""From the rows of a piece and their seeds to their hashes. What it gives for a null is dropped."""


def _hasher(kind: pa.DataType, where: str) -> Hasher:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    for is_it, hasher in _HASHERS:
        if is_it(plain):
            return hasher
    raise Invalid(
        where,
        f"is a {kind}, which is no key",
        "use strings, binaries, whole numbers with a sign, floats, decimals, booleans, dates "
        "or timestamps, or the fields of it that make up the key",
    )


def _hash_boolean(piece: pa.Array, seeds: Hashes) -> Hashes:
    return _hash_integer(piece.cast(pa.int32()), seeds)


def _hash_integer(piece: pa.Array, seeds: Hashes) -> Hashes:
    return _hash_ints(_numbers(piece).astype(np.int32, copy=False), seeds)


def _hash_date(piece: pa.Array, seeds: Hashes) -> Hashes:
    return _hash_integer(piece.view(pa.int32()), seeds)


def _hash_long(piece: pa.Array, seeds: Hashes) -> Hashes:
    return _hash_longs(_numbers(piece), seeds)


def _hash_timestamp(piece: pa.Array, seeds: Hashes) -> Hashes:
    ticks = _numbers(piece.view(pa.int64()))
    if piece.type.unit == "ns":
        return _hash_longs(ticks // 1_000, seeds)
    scale, longs = _MICROSECONDS[piece.type.unit], np.iinfo(np.int64)
    if not longs.min <= int(ticks.min()) * scale <= int(ticks.max()) * scale <= longs.max:
        found = f"has a moment outside the years that {piece.type} and Spark share"
        raise Invalid("a key", found, "repair such rows first")
    return _hash_longs(ticks * scale, seeds)


def _hash_float(piece: pa.Array, seeds: Hashes) -> Hashes:
    return _hash_ints(_canonical(_numbers(piece)).view(np.int32), seeds)


def _hash_double(piece: pa.Array, seeds: Hashes) -> Hashes:
    return _hash_longs(_canonical(_numbers(piece)).view(np.int64), seeds)


def _hash_decimal(piece: pa.Array, seeds: Hashes) -> Hashes:
    unscaled = _fixed_width(piece, 16)
    if piece.type.precision <= _LONG_DIGITS:
        return _hash_longs(unscaled[:, :_WORD_BYTES].copy().view("<i8")[:, 0], seeds)
    digits = np.ascontiguousarray(unscaled[:, ::-1])
    lengths = _fewest_bytes(digits)
    starts = np.arange(1, len(piece) + 1) * 16 - lengths
    return _hash_bytes(digits.reshape(-1), starts, lengths, seeds)


def _hash_fixed_binary(piece: pa.Array, seeds: Hashes) -> Hashes:
    width = piece.type.byte_width
    lengths = np.full(len(piece), width, np.int64)
    return _hash_bytes(
        _fixed_width(piece, width).reshape(-1), np.arange(len(piece)) * width, lengths, seeds
    )


def _hash_strings(piece: pa.Array, seeds: Hashes) -> Hashes:
    wide = pa.types.is_large_string(piece.type) or pa.types.is_large_binary(piece.type)
    _, places, data = piece.buffers()
    dtype = np.dtype(np.int64 if wide else np.int32)
    ends = np.frombuffer(places, dtype, len(piece) + 1, piece.offset * dtype.itemsize)
    begin, end = int(ends[0]), int(ends[-1])
    shared = np.frombuffer(data, np.uint8)[begin:end] if end > begin else np.empty(0, np.uint8)
    starts = ends[:-1].astype(np.int64) - begin
    return _hash_bytes(shared, starts, np.diff(ends).astype(np.int64), seeds)


_HASHERS: tuple[tuple[Callable[[pa.DataType], bool], Hasher], ...] = (
    (pa.types.is_boolean, _hash_boolean),
    (pa.types.is_int64, _hash_long),
    (pa.types.is_signed_integer, _hash_integer),
    (pa.types.is_date32, _hash_date),
    (pa.types.is_timestamp, _hash_timestamp),
    (pa.types.is_float32, _hash_float),
    (pa.types.is_float64, _hash_double),
    (pa.types.is_decimal128, _hash_decimal),
    (pa.types.is_fixed_size_binary, _hash_fixed_binary),
    (pa.types.is_string, _hash_strings),
    (pa.types.is_large_string, _hash_strings),
    (pa.types.is_binary, _hash_strings),
    (pa.types.is_large_binary, _hash_strings),
)


def _numbers(piece: pa.Array) -> NDArray[Any]:
    """The values as they lie in memory, with zero for a null."""
    numbers: NDArray[Any] = piece.fill_null(0).to_numpy()
    return numbers


def _canonical(floats: NDArray[Any]) -> NDArray[Any]:
    """Without a negative zero, and with the one NaN that Java knows."""
    canonical = floats.copy()
    canonical[np.isnan(floats)] = np.nan
    canonical += 0
    return canonical


def _fixed_width(piece: pa.Array, width: int) -> Bytes:
    """The bytes of each row as a row."""
    size = len(piece) * width
    raw = np.frombuffer(piece.buffers()[1] or b"", np.uint8)
    return raw[piece.offset * width :][:size].reshape(len(piece), width)


def _fewest_bytes(digits: Bytes) -> Positions:
    """How many of the last bytes of big-endian numbers are needed to tell them, with the sign."""
    magnitude = digits ^ (digits[:, :1] >> 7) * np.uint8(255)
    first = np.argmax(magnitude != 0, axis=1)
    leading = np.take_along_axis(magnitude, first[:, None], axis=1)[:, 0]
    lengths = digits.shape[1] - first + (leading >> 7)
    return np.where(leading == 0, 1, lengths)


def _hash_ints(ints: NDArray[np.int32], seeds: Hashes) -> Hashes:
    return _avalanche(_mix_half(seeds + (_PRIME_5 + 4), ints.view(np.uint32).astype(np.uint64)))


def _hash_longs(longs: NDArray[np.int64], seeds: Hashes) -> Hashes:
    return _avalanche(_mix_word(seeds + (_PRIME_5 + 8), longs.view(np.uint64)))


def _hash_bytes(data: Bytes, starts: Positions, lengths: Positions, seeds: Hashes) -> Hashes:
    """XXH64 of a span of `data` for each row."""
    long = lengths > VECTOR_BYTES_MAX
    if not long.any():
        return _hash_spans(data, starts, lengths, seeds)
    hashes = _hash_spans(data, starts, np.where(long, 0, lengths), seeds)
    raw = data.data
    for row in np.flatnonzero(long).tolist():
        begin = int(starts[row])
        span = raw[begin : begin + int(lengths[row])]
        hashes[row] = xxhash.xxh64_intdigest(span, int(seeds[row]))
    return hashes


def _hash_spans(data: Bytes, starts: Positions, lengths: Positions, seeds: Hashes) -> Hashes:
    """Every row takes, with all others, the steps that its length asks for.

    1. Stripes of 32 bytes, as long as there are any.
    2. Words of 8 bytes: at most three are left.
    3. The tail of up to 7 bytes: a half word if it has one, then byte by byte.
    """
    words = _words_anywhere(data)
    hashes = seeds + _PRIME_5
    rows = _those(lengths >= _STRIPE_BYTES)  # 1
    hashes[rows] = _striped(words, starts[rows], lengths[rows], seeds[rows])
    hashes += lengths.view(np.uint64)
    starts, lengths = starts + (lengths & -_STRIPE_BYTES), lengths & (_STRIPE_BYTES - 1)
    for begin in range(0, _STRIPE_BYTES - _WORD_BYTES, _WORD_BYTES):  # 2
        rows = _those(lengths >= begin + _WORD_BYTES)
        hashes[rows] = _mix_word(hashes[rows], words[starts[rows] + begin])
    tails = words[starts + (lengths & -_WORD_BYTES)]  # 3
    rows = _those(lengths & 4 > 0)
    hashes[rows] = _mix_half(hashes[rows], tails[rows] & np.uint64(0xFFFFFFFF))
    tails >>= (lengths.view(np.uint64) & 4) << 3
    for byte in range(3):
        rows = _those(lengths & 3 > byte)
        hashes[rows] = _mix_byte(hashes[rows], tails[rows] & np.uint64(255))
        tails >>= 8
    return _avalanche(hashes)


def _those(taking: Mask) -> NDArray[np.intp] | slice:
    """The rows that take a step. An index costs, and often all take part."""
    rows = np.flatnonzero(taking)
    return slice(None) if len(rows) == len(taking) else rows


def _words_anywhere(data: Bytes) -> Hashes:
    """The 8 bytes from each byte on as a number, without copying them; zeros follow the end."""
    padded = np.zeros(len(data) + _WORD_BYTES, np.uint8)
    padded[: len(data)] = data
    return np.ndarray(len(data) + 1, "<u8", padded, strides=(1,))


def _striped(words: Hashes, starts: Positions, lengths: Positions, seeds: Hashes) -> Hashes:
    """What the stripes of rows that have at least one make of their seeds."""
    lanes = [seeds + _PRIME_1 + _PRIME_2, seeds + _PRIME_2, seeds.copy(), seeds - _PRIME_1]
    for begin in range(0, int(lengths.max(initial=0)) - _STRIPE_BYTES + 1, _STRIPE_BYTES):
        rows = _those(lengths >= begin + _STRIPE_BYTES)
        for number, lane in enumerate(lanes):
            lane[rows] = _round(lane[rows], words[starts[rows] + (begin + number * _WORD_BYTES)])
    return _merged(lanes)


def _merged(lanes: list[Hashes]) -> Hashes:
    hashes = np.zeros_like(lanes[0])
    for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True):
        hashes += _rotated(lane, bits)
    for lane in lanes:
        hashes ^= _round(np.zeros_like(lane), lane)
        hashes *= _PRIME_1
        hashes += _PRIME_4
    return hashes


def _round(lane: Hashes, words: Hashes) -> Hashes:
    mixed = _rotated(lane + words * _PRIME_2, 31)
    mixed *= _PRIME_1
    return mixed


def _mix_word(hashes: Hashes, words: Hashes) -> Hashes:
    mixed = _rotated(words * _PRIME_2, 31)
    mixed *= _PRIME_1
    mixed = _rotated(mixed ^ hashes, 27)
    mixed *= _PRIME_1
    mixed += _PRIME_4
    return mixed


def _mix_half(hashes: Hashes, halves: Hashes) -> Hashes:
    mixed = _rotated(halves * _PRIME_1 ^ hashes, 23)
    mixed *= _PRIME_2
    mixed += _PRIME_3
    return mixed


def _mix_byte(hashes: Hashes, single: Hashes) -> Hashes:
    mixed = _rotated(single * _PRIME_5 ^ hashes, 11)
    mixed *= _PRIME_1
    return mixed


def _rotated(words: Hashes, bits: int) -> Hashes:
    turned = words << np.uint64(bits)
    turned |= words >> np.uint64(64 - bits)
    return turned


def _avalanche(hashes: Hashes) -> Hashes:
    hashes ^= hashes >> 33
    hashes *= _PRIME_2
    hashes ^= hashes >> 29
    hashes *= _PRIME_3
    hashes ^= hashes >> 32
    return hashes
