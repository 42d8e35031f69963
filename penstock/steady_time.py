"""The time of a job: near the wall clock, and neither stopped nor carried away by it.

The time of an epoch and of a commit is written down and never falls. Were it the larger of what
the wall clock says and what was written last, one reading a year ahead would stop it for a year:
timers, idleness and retention by age with it. So it is made of three things: what was written
last, how long ago that was by the monotonic clock, and what the wall clock says now.

    the wall clock is                  the time is
    up to a minute ahead               the wall clock's
    further ahead                      moved on by the monotonic clock. The wall clock is believed
                                       once it has said the same for a minute, in three readings
    behind                             moved on at nine tenths of the monotonic clock's pace, until
                                       the wall clock has caught up

How long a job was not running no clock of a new process can say but the wall clock, so the first
look believes it: the middle one of three readings (docs/adr/0022-the-time-of-a-job-is-steady.md).
"""

import logging
from dataclasses import dataclass

from penstock.clock import Clock

__all__ = ["BELIEVED_AFTER_S", "LEAP_MS", "PACE", "SteadyTime"]

LEAP_MS = 60_000
"""How far the wall clock may run ahead at once. Drift, a correction by NTP and a stop of the
process are less, or the monotonic clock knows of them too."""

BELIEVED_AFTER_S = 60.0
"""For how long the wall clock must have said the same to be followed further than that."""

READINGS_MIN = 3
"""And in how many readings."""

PACE = 0.9
"""How fast time goes while it is ahead of the wall clock: what is timed in minutes hardly notices,
and a lead of a minute is gone in ten."""

log = logging.getLogger("penstock.clock")


@dataclass(frozen=True, slots=True)
class _Leap:
    """The wall clock is further ahead than it may be at once."""

    off_ms: float
    """Wall clock less monotonic clock: the same as long as it goes on from there."""
    since_s: float
    readings: int


class SteadyTime:
    """The time of one job in one process. What it tells never falls, and never stands still."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told: tuple[float, float] | None = None
        """The monotonic clock and the time at the last look; None before the first."""
        self._leap: _Leap | None = None
        self._is_behind = False

    def now_ms(self, last_ms: int) -> int:
        """The time now, not before `last_ms`, which is the last one that was written down."""
        at_s = self._clock.monotonic()
        if self._told is None:
            now_ms = max(self._first_reading(), float(last_ms))
        else:
            before_s, told_ms = self._told
            elapsed_ms = max(0.0, at_s - before_s) * 1000
            # What was written down is rounded, and one more if two looks came at one moment: were
            # it taken as it is, time would run ahead by a fraction with every look.
            now_ms = self._moved_on(at_s, max(told_ms, last_ms - 1.0), elapsed_ms)
        self._told = at_s, now_ms
        return max(last_ms, round(now_ms))

    def _first_reading(self) -> float:
        return sorted(self._clock.wall() for _ in range(READINGS_MIN))[READINGS_MIN // 2] * 1000

    def _moved_on(self, at_s: float, before_ms: float, elapsed_ms: float) -> float:
        wall_ms = self._clock.wall() * 1000
        steady_ms = before_ms + elapsed_ms
        self._warn_if_behind(wall_ms, steady_ms)
        if wall_ms - steady_ms > LEAP_MS:
            is_believed = self._has_stayed(at_s, wall_ms, wall_ms - steady_ms)
            return wall_ms if is_believed else steady_ms
        self._leap = None
        return max(wall_ms, before_ms + PACE * elapsed_ms)

    def _has_stayed(self, at_s: float, wall_ms: float, ahead_ms: float) -> bool:
        """Whether the wall clock has leapt and gone on from there for long enough."""
        off_ms, leap = wall_ms - at_s * 1000, self._leap
        if leap is None or abs(off_ms - leap.off_ms) > LEAP_MS:
            self._leap = _Leap(off_ms, at_s, 1)
            log.warning(
                "the wall clock has leapt %.0f s ahead; the job follows if it stays so for %.0f s",
                ahead_ms / 1000,
                BELIEVED_AFTER_S,
            )
            return False
        self._leap = leap = _Leap(leap.off_ms, leap.since_s, leap.readings + 1)
        if leap.readings < READINGS_MIN or at_s - leap.since_s < BELIEVED_AFTER_S:
            return False
        self._leap = None
        log.warning("the job follows the wall clock %.0f s ahead", ahead_ms / 1000)
        return True

    def _warn_if_behind(self, wall_ms: float, steady_ms: float) -> None:
        was_behind, self._is_behind = self._is_behind, steady_ms - wall_ms > LEAP_MS
        if self._is_behind and not was_behind:
            log.warning(
                "the wall clock is %.0f s behind the time of the job, which goes on at %.0f %% of "
                "its pace until the clock has caught up",
                (steady_ms - wall_ms) / 1000,
                100 * PACE,
            )
