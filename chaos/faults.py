"""Faults as data: what can go wrong with one request or one process, and who decides when.

The world asks its fault plan once per request. A seeded plan answers at random, within a
budget; a script answers by the number of the request, for exhaustive runs.
"""

import random
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from penstock.chaos.world import Accept
from penstock.checkpoint.fork import Copy, InFork
from penstock.effects import Create, Delete, Digest, Effect, Fetch, Get, Page, Put, Replace
from penstock.points import Point
from penstock.sinks import Apply, ReadCursor

__all__ = ["Fault", "FaultPlan", "Script", "SeededFaults"]


class Fault(StrEnum):
    """What happens to a request, or to the process that sends it."""

    NONE = "none"

    CRASH_BEFORE = "killed before the request"
    CRASH_AFTER = "killed after the request was done"
    PAUSE = "paused for a moment"
    PAUSE_PAST_LEASE = "paused for longer than the lease"
    ZOMBIE = "paused until another leader has finished everything"
    CLOCK_JUMP = "its wall clock jumps"
    CLOCK_YEAR = "its wall clock jumps by a year"

    LOST = "request lost"
    ACK_LOST = "done, but the answer lost"
    DONE_5XX = "done, but answered with 5xx"
    REFUSED_503 = "answered with 503"
    FORBIDDEN_403 = "answered with 403"
    DONE_403 = "done, sent again by a proxy, answered with 403"
    CONFLICT_409 = "answered with 409"
    OWN_412 = "done, sent again by a proxy, answered with 412"
    OWN_409 = "done, sent again by a proxy, answered with 409"
    ACK_LOST_PAUSED = "done, but the answer lost and the process paused past the lease"
    SLOW = "slow"
    DELAYED = "no answer now, and the request arrives much later"
    MINUTES_LATE = "no answer now, and the request arrives minutes later"
    DUPLICATED = "done, and the same request arrives again much later"

    ABSENT_404 = "answered with 404 although it is there"
    RESET = "connection reset while reading"
    TRUNCATED = "read only in part"
    FLIPPED = "read with one bit flipped"
    STALE = "read as it was before its last change"
    LISTED_SHORT = "a page of a listing ends early"
    LISTED_STALE = "listed without what was written last"


PROCESS_FAULTS = (
    Fault.CRASH_BEFORE,
    Fault.CRASH_AFTER,
    Fault.PAUSE,
    Fault.PAUSE_PAST_LEASE,
    Fault.CLOCK_JUMP,
    Fault.CLOCK_YEAR,
)
ANY_REQUEST = (Fault.LOST, Fault.REFUSED_503, Fault.FORBIDDEN_403, Fault.SLOW)
WRITES = (
    Fault.ACK_LOST,
    Fault.ACK_LOST_PAUSED,
    Fault.DONE_5XX,
    Fault.DONE_403,
    Fault.DELAYED,
    Fault.MINUTES_LATE,
    Fault.DUPLICATED,
)
CONDITIONAL = (*WRITES, Fault.CONFLICT_409, Fault.OWN_409, Fault.OWN_412)
READS = (Fault.RESET, Fault.TRUNCATED, Fault.FLIPPED, Fault.STALE, Fault.ABSENT_404)
LISTINGS = 6 * (Fault.LISTED_SHORT, Fault.LISTED_STALE)
"""Several times, for most listings have nothing that could be left out."""

ALTERED = frozenset(
    {Fault.TRUNCATED, Fault.FLIPPED, Fault.STALE, Fault.ABSENT_404, Fault.LISTED_STALE}
)
"""Answers that are wrong rather than missing. Two in a row are survivable, no end of them is
not: whoever is lied to for ever must call it damage."""

ALTERED_RUN_MAX = 2
DECISIVE = 4
"""How much likelier a fault is on the few requests that decide something."""

DECISIVE_POINTS = frozenset(
    {Point.COLLECT_PIN, Point.COLLECT_PINS, Point.PIN_WRITE, Point.PIN_CHECK, Point.PIN_REMOVE}
)

FRESH_READS = frozenset({Point.PIN_CHECK, Point.LOG_CLAIMS})
"""A pin, and a producer new to a partition, need the store to show what is there now, which every
store here promises."""

FRESH_LISTINGS = frozenset(
    {
        Point.COLLECT_PINS,
        Point.PIN_CHECK,
        Point.READ_OBJECT,
        Point.RECOVER_HEAD,
        Point.LOG_CLAIMS,
    }
)
"""Where a listing has the last word on what is there: which pins there are, whether an object is
missing. Every store here promises to list what was written before. Elsewhere a listing that lacks
the newest objects must cost nothing but garbage that stays a little longer."""

POSSIBLE: Mapping[type[Effect], tuple[Fault, ...]] = {
    Get: (*ANY_REQUEST, *READS),
    Fetch: (*ANY_REQUEST, Fault.RESET, Fault.TRUNCATED, Fault.FLIPPED, Fault.ABSENT_404),
    Digest: (*ANY_REQUEST, Fault.RESET),
    Page: (*ANY_REQUEST, Fault.RESET, *LISTINGS),
    Put: (*ANY_REQUEST, *WRITES),
    Delete: (*ANY_REQUEST, *WRITES),
    Create: (*ANY_REQUEST, *CONDITIONAL),
    Replace: (*ANY_REQUEST, *CONDITIONAL),
    ReadCursor: (*ANY_REQUEST, Fault.RESET),
    Apply: (*ANY_REQUEST, *WRITES),
    Accept: ANY_REQUEST,
    Copy: (*ANY_REQUEST, Fault.RESET, Fault.ACK_LOST),
}
IN_FORK: Mapping[type[Effect], tuple[Fault, ...]] = {
    Get: (*ANY_REQUEST, Fault.RESET),
    Page: (*ANY_REQUEST, Fault.RESET),
    Create: POSSIBLE[Create],
}
"""The same for what is asked of a root that is being made."""


class FaultPlan(Protocol):
    """Promise: asked exactly once per request, in order."""

    def choose(self, number: int, effect: Effect) -> Fault:
        """What happens to request `number`."""


class SeededFaults:
    """Random faults at a random rate, up to a random budget, then none."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._rate = rng.choice((0.0, 0.01, 0.03, 0.08, 0.15))
        self._budget = rng.randint(1, 12)
        self._altered: Counter[str] = Counter()
        """How often in a row each object was shown altered."""

    def choose(self, number: int, effect: Effect) -> Fault:
        """NONE most of the time."""
        del number
        fault = self._draw(effect)
        key = getattr(effect, "key", "") or getattr(effect, "prefix", "")
        if fault not in ALTERED:
            self._altered[key] = 0
        elif self._altered[key] >= ALTERED_RUN_MAX or self._must_be_fresh(fault, effect):
            return Fault.NONE
        else:
            self._altered[key] += 1
        if fault is not Fault.NONE:
            self._budget -= 1
        return fault

    def _must_be_fresh(self, fault: Fault, effect: Effect) -> bool:
        if fault is Fault.LISTED_STALE:
            return effect.at in FRESH_LISTINGS
        return fault is Fault.STALE and effect.at in FRESH_READS

    def _draw(self, effect: Effect) -> Fault:
        decides = isinstance(effect, Create | Replace | Apply) or effect.at in DECISIVE_POINTS
        rate = self._rate * (DECISIVE if decides else 1)
        if self._budget <= 0 or self._rng.random() >= rate:
            return Fault.NONE
        return self._rng.choice((*PROCESS_FAULTS, *_possible(effect)))


def _possible(effect: Effect) -> tuple[Fault, ...]:
    if isinstance(effect, InFork):
        return IN_FORK[type(effect.effect)]
    return POSSIBLE[type(effect)]


class Script:
    """Exactly these faults, by the number of the request."""

    def __init__(self, faults: Mapping[int, Fault]) -> None:
        self._faults = faults

    def choose(self, number: int, effect: Effect) -> Fault:
        """The fault written down for this request."""
        del effect
        return self._faults.get(number, Fault.NONE)
