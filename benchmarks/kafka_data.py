"""What goes from topic to topic: the events, what must come of them, and whether it did.

Events are JSON objects of a user, an amount and a moment. For each event one row is to come out:
how many events of that user there were by then, and what they come to. Every row of every system
is checked: it must be there once, and must say what the events before it make.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.json as pj  # type: ignore[import-untyped]

__all__ = ["KEYS", "PARTITIONS", "Events", "Steps", "Truth", "rate_of", "results_in"]

KEYS = 100_000
PARTITIONS = 2
AMOUNT_MAX = 10_000
PREFIX = "customer-"
RESULT = pa.schema([("user", pa.string()), ("count", pa.int64()), ("total", pa.int64())])

Array = Any
"""A numpy array."""
Steps = Sequence[tuple[float, int]]
"""Moments, in seconds, and how many rows were done by then; one for each time they grew."""


@dataclass(frozen=True)
class Events:
    """Events in the order in which they are sent, the same on every run."""

    users: Array
    amounts: Array

    @classmethod
    def make(cls, rows: int) -> "Events":
        """So many events of random users."""
        random = np.random.default_rng(rows)
        return cls(random.integers(0, KEYS, rows), random.integers(1, AMOUNT_MAX, rows))

    def __len__(self) -> int:
        return len(self.users)

    def messages(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Partition, key and value of each. A user's events are all in one partition."""
        moments = np.datetime64("2026-01-01T00:00:00.000") + np.arange(len(self))
        shown = np.datetime_as_string(moments, unit="ms")
        pairs = zip(self.users.tolist(), self.amounts.tolist(), shown.tolist(), strict=True)
        for user, amount, at in pairs:
            name = f"{PREFIX}{user:010d}"
            body = f'{{"user": "{name}", "amount": {amount}, "at": "{at}Z"}}'
            yield user % PARTITIONS, name.encode(), body.encode()


class Truth:
    """What each user has come to after each event."""

    def __init__(self, events: Events) -> None:
        order = np.argsort(events.users, kind="stable")
        running = np.concatenate(([0], np.cumsum(events.amounts[order])))
        self._sizes = np.bincount(events.users, minlength=KEYS)
        self._firsts = np.cumsum(self._sizes) - self._sizes
        self._totals = running[1:] - np.repeat(running[self._firsts], self._sizes)

    def flaw(self, results: pa.Table, *, is_whole: bool) -> str | None:
        """What is wrong with the results of all events, or of those that somebody got to; None
        if nothing is."""
        users = _numbers(results["user"])
        counts, totals = results["count"].to_numpy(), results["total"].to_numpy()
        if is_whole and len(users) != self.rows:
            return f"{len(users):,} results, where there were {self.rows:,} events"
        if ((counts < 1) | (counts > self._sizes[users])).any():
            return "a user has more events, or fewer than one"
        places = self._firsts[users] + counts - 1
        if len(places) and np.bincount(places).max() > 1:
            return "an event has more than one result"
        if (self._totals[places] != totals).any():
            return f"{(self._totals[places] != totals).sum():,} results have a wrong total"
        highest = np.zeros(KEYS, np.int64)
        np.maximum.at(highest, users, counts)
        if (highest != np.bincount(users, minlength=KEYS)).any():
            return "an event before another one has no result"
        return None

    @cached_property
    def rows(self) -> int:
        """How many events there are."""
        return len(self._totals)


def _numbers(names: pa.ChunkedArray) -> Array:
    """The numbers of users, from their names."""
    return pc.utf8_slice_codeunits(names, len(PREFIX)).cast(pa.int64()).to_numpy()


def results_in(bodies: Sequence[bytes]) -> pa.Table:
    """Messages of an output topic as columns."""
    options = pj.ParseOptions(explicit_schema=RESULT, unexpected_field_behavior="error")
    return pj.read_json(pa.BufferReader(b"\n".join(bodies)), parse_options=options)


def rate_of(steps: Steps, warmup_s: float) -> float | None:
    """Rows per second after so many seconds of rows that do not count, from one growth to another;
    None if there were too few."""
    if not steps:
        return None
    counted = [step for step in steps if step[0] >= steps[0][0] + warmup_s]
    if len(counted) < 2:
        return None
    (start_s, before), (stop_s, after) = counted[0], counted[-1]
    return (after - before) / (stop_s - start_s)
