"""Splitmix64 on columns of words: for hashes that are kept and numbers that are made again.

What comes out is part of stored layouts and of generated streams, so it never changes. It is not
the hash that routes keys, which is Spark's: see `penstock.state.key_hash`.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["GOLDEN", "stir"]

GOLDEN = 0x9E3779B97F4A7C15
"""What a counter is multiplied by, or a hash increased by, before it is stirred."""

_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def stir(words: NDArray[np.uint64]) -> None:
    """Let every bit of each word depend on all of them, in place."""
    words ^= words >> 30
    words *= _FIRST
    words ^= words >> 27
    words *= _SECOND
    words ^= words >> 31
