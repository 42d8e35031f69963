"""The hash of a row: 128 bits, the same wherever and however its columns lie in memory.

Two hashes of 64 bits are taken side by side with seeds of their own. A null hashes to the seed. It
tells whether rows are equal beyond any accident; against somebody who makes rows up so that their
sums agree it is no proof.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from penstock.state.key_hash import hash_keys
from penstock.state.mixing import GOLDEN, stir

__all__ = ["Hashes", "hash_rows"]

Hashes = NDArray[np.uint64]
"""Two words for each row."""

_SEEDS = (0x70656E73746F636B, 0x6175646974)
_AS_IT_IS = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_decimal128,
    pa.types.is_int64,
)


def hash_rows(rows: pa.Table | pa.RecordBatch, columns: Sequence[str]) -> Hashes:
    """The hash of each row over these columns, in this order."""
    hashes = np.zeros((rows.num_rows, len(_SEEDS)), np.uint64)
    for name in columns:
        column = rows.column(name)
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        plain = [_plain(chunk) for chunk in chunks]
        for word, seed in enumerate(_SEEDS):
            mixed = hashes[:, word] * np.uint64(GOLDEN)
            mixed += _hashed(plain, seed)
            stir(mixed)
            hashes[:, word] = mixed
    return hashes


def _hashed(chunks: list[pa.Array], seed: int) -> NDArray[np.uint64]:
    parts = [hash_keys([chunk], seed).view(np.uint64) for chunk in chunks]
    return np.concatenate([np.empty(0, np.uint64), *parts])


def _plain(values: pa.Array) -> pa.Array:
    """Values of a type that has a hash, equal where they were equal."""
    if pa.types.is_dictionary(values.type):
        return _plain(values.dictionary_decode())
    for is_it, plain in _AS_PLAIN:
        if is_it(values.type):
            return plain(values)
    return _spelt(values)


def _whole(values: pa.Array) -> pa.Array:
    return values.view(pa.int64()) if pa.types.is_uint64(values.type) else values.cast(pa.int64())


def _bits(values: pa.Array) -> pa.Array:
    """Floats as the numbers that their bits are; every NaN is the same one."""
    floats: NDArray[Any] = values.cast(pa.float64()).fill_null(0.0).to_numpy().copy()
    floats[np.isnan(floats)] = np.nan
    nulls = values.is_null().to_numpy(zero_copy_only=False)
    return pa.array(floats.view(np.int64), pa.int64(), mask=nulls)


def _ticks(values: pa.Array) -> pa.Array:
    """Moments, days, times and lengths of time as whole numbers."""
    narrow = pa.types.is_date32(values.type) or pa.types.is_time32(values.type)
    return values.cast(pa.int32()).cast(pa.int64()) if narrow else values.cast(pa.int64())


def _spelt(values: pa.Array) -> pa.Array:
    """Lists, structs, maps and whatever else there is, value by value."""
    texts = [None if value is None else repr(value) for value in values.to_pylist()]
    return pa.array(texts, pa.large_string())


_AS_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]], ...] = (
    *((is_it, lambda values: values) for is_it in _AS_IT_IS),
    (pa.types.is_floating, _bits),
    (pa.types.is_boolean, _whole),
    (pa.types.is_integer, _whole),
    (pa.types.is_temporal, _ticks),
    (pa.types.is_null, lambda values: pa.nulls(len(values), pa.int64())),
)
"""How values of each type are hashed, the first that fits; any other is spelt."""
