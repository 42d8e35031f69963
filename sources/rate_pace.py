"""The pace of generated rows: when each of a partition happens, by its offset alone.

So many come in so many seconds. After every burst of rows nothing happens for a while, if that is
asked for: first for the first of some pauses, then for the second, and so on in turn. Then rows of
one burst are close together and bursts are far apart, as events are that come from people, and what
waits for silence, for the end of a window or for a state to expire has something to wait for.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from penstock.sources.rate_columns import Ints

__all__ = ["Pace"]

_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Pace:
    """So many rows in so many seconds, without an end and without rounding errors that add up."""

    start_us: int
    rows: int
    seconds: int
    burst_rows: int | None = None
    """After so many rows there is a pause. None: never."""
    pauses_us: Sequence[int] = ()
    """How long each pause is, in turn."""

    def micros(self, offsets: Ints) -> Ints:
        """When the rows come. Whole rounds are split off, so that no product is too large."""
        round_us = self.seconds * _SECOND_US
        rounds, rest = np.divmod(offsets, self.rows)
        micros: Ints = self.start_us + rounds * round_us + rest * round_us // self.rows
        return micros if self.burst_rows is None else micros + self._paused(offsets)

    def first_at(self, at_us: int) -> int:
        """The first row that comes at `at_us` or after it."""
        steady = max(0, -(-(at_us - self.start_us) * self.rows // (self.seconds * _SECOND_US)))
        if self.burst_rows is None:
            return steady
        return bisect_left(range(steady), at_us, key=self._at)  # pauses only make rows later

    def _at(self, offset: int) -> int:
        """The same of one row, however far it is: whole numbers of Python have no end."""
        rounds, rest = divmod(offset, self.rows)
        round_us = self.seconds * _SECOND_US
        turns, number = divmod(offset // (self.burst_rows or 1), len(self.pauses_us))
        paused_us = turns * sum(self.pauses_us) + sum(self.pauses_us[:number])
        return self.start_us + rounds * round_us + rest * round_us // self.rows + paused_us

    def _paused(self, offsets: Ints) -> Ints:
        """The pauses before each row, together."""
        before = np.array([0, *accumulate(self.pauses_us)], np.int64)
        assert self.burst_rows is not None, "asked for only if there are pauses"
        turns, rest = np.divmod(offsets // self.burst_rows, len(self.pauses_us))
        paused: Ints = turns * before[-1] + before[rest]
        return paused
