"""The timers that fire in one attempt, in the order of time, whoever set them and when.

A call that a timer sets off may set others that are due already. They take their place among
those that are left: a key sees its timers in the order of time, as it would if an epoch had ended
between any two of them. One that is set to an earlier time than the one firing fires next.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from penstock.errors import Invalid
from penstock.state.keys import decode_key

__all__ = ["BEHIND_MAX", "CHAINED_MAX", "Firing", "Pending"]

BEHIND_MAX = 1_000
"""How many timers fire for a key in one epoch that a firing one has set to its own time or an
earlier one. The rest of the key's timers wait for the next, in their order: a function that always
sets one in the past must not hold its job up for ever. Timers that go forward in time need no such
bound, for they end at the watermark; and must have none, because what an event sees, and what has
not ended when a timer fires, would depend on how far the watermark came in one epoch."""

CHAINED_MAX = 1_000_000
"""How many timers that were set by firing ones may fire for a key in one epoch at all. More are a
mistake in the function, which is told of it."""


class Pending(NamedTuple):
    """A timer that is due. They fire in the order of these fields: by key group before the key, so
    that the order does not depend on how many partitions the groups are spread over."""

    at_ms: int
    group: int
    key: bytes
    """Encoded."""
    state: str
    is_chained: bool
    """Whether a firing timer has set it."""
    set_ms: int
    """Its time; or that of the call that set it, if that is later. So the call it sets off does not
    lie before the one that asked for it."""
    is_behind: bool = False
    """Whether the timer that set it was not earlier."""


class Firing:
    """Hands out timers, the earliest first, and takes in what is set meanwhile."""

    def __init__(self, found: Iterable[Pending], operator: str) -> None:
        self._heap = sorted(found)
        self._operator = operator
        self._firing_ms = 0
        self._behind: Counter[tuple[int, bytes]] = Counter()
        self._chained: Counter[tuple[int, bytes]] = Counter()

    def add(self, pending: Pending) -> None:
        """Take in a timer that the firing one has set."""
        heappush(self._heap, pending._replace(is_behind=pending.at_ms <= self._firing_ms))

    def __iter__(self) -> Iterator[Pending]:
        """The next one, until none is left of a key that may go on. Some may have been cancelled
        since: the caller knows, and says of those that fire that they do."""
        while self._heap:
            pending = heappop(self._heap)
            if self._behind[pending.group, pending.key] < BEHIND_MAX:
                yield pending

    def fires(self, pending: Pending) -> None:
        """Count a timer that does fire."""
        self._firing_ms = pending.at_ms
        place = (pending.group, pending.key)
        self._behind[place] += pending.is_behind
        self._chained[place] += pending.is_chained
        if self._chained[place] > CHAINED_MAX:
            raise Invalid(
                f"operator {self._operator!r}, key {decode_key(pending.key)[0]!r}",
                f"set more than {CHAINED_MAX:,} timers that were due already, one after the other",
                "let a firing timer set the next one further ahead, or beyond the watermark",
            )
