"""The one place that asks the machine for the time, a pause, or something random.

Everything else takes a `Clock` and a `Chance` by its constructor, so that a test or the
simulator can hand in its own and get the same run from the same seed. The linter refuses
`time`, `random` and `uuid` everywhere but here.
"""

import random
import time
import uuid
from typing import Protocol

__all__ = ["Chance", "Clock", "SystemChance", "SystemClock"]


class Clock(Protocol):
    """Promise: `monotonic` never goes back in one process; `wall` may, and is never compared
    between hosts to decide who is right."""

    def wall(self) -> float:
        """Seconds since 1970, as this host believes."""

    def monotonic(self) -> float:
        """Seconds since some moment of this process's own."""

    def sleep(self, seconds: float) -> None:
        """Return after at least `seconds`."""


class Chance(Protocol):
    """Promise: no two calls of `unique`, in any process, ever give the same name."""

    def unique(self) -> str:
        """A new name, safe in a key."""

    def fraction(self) -> float:
        """A number from 0 up to, not including, 1: for spreading retries."""


class SystemClock:
    """The machine's clocks."""

    def wall(self) -> float:
        """Seconds since 1970, as this host believes."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since some moment of this process's own."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Return after at least `seconds`."""
        time.sleep(seconds)


class SystemChance:
    """The machine's randomness."""

    def unique(self) -> str:
        """A new name, safe in a key."""
        return uuid.uuid4().hex

    def fraction(self) -> float:
        """A number from 0 up to, not including, 1."""
        return random.random()
