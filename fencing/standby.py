"""The standby: waits until the leader has been silent for a lease, then says so.

Silence is measured on this process's own monotonic clock, from what it saw change with its
own eyes. A wrong guess deposes a healthy leader, which loses time and nothing else.
"""

from collections.abc import Callable
from typing import TypeVar

from penstock.clock import Clock
from penstock.effects import Get, Steps, Stored, Wait
from penstock.errors import Unavailable
from penstock.fencing.heartbeat import decode_beat, heartbeat_key
from penstock.fencing.register import Led, Register, Seen, read
from penstock.ids import Holder
from penstock.points import Point

__all__ = ["Silence", "is_led", "stand_by"]


FIRST_TRIES_MAX = 5
"""How often a store that has never answered is tried: its address may simply be wrong."""

TRIES_MAX = 5
"""How often in a row somebody who only asks puts up with a store that does not answer."""

D = TypeVar("D", bound=Led)


class Silence:
    """How long nothing has changed. Events in: what was seen and when; out: too long or not."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._last: object = None
        self._since_s: float | None = None

    def lasts(self, sign: object, now_s: float) -> bool:
        """Whether `sign` is all that has been seen for at least a lease."""
        if self._since_s is None or sign != self._last:
            self._last, self._since_s = sign, now_s
        return now_s - self._since_s >= self._lease_s


def stand_by(register: Register[D], clock: Clock, lease_s: float, poll_s: float) -> Steps[None]:
    """Return when it is worth trying to take over.

    That is: there is no leader yet, the leader has released the job, or neither the register
    nor the leader's heartbeat has changed for a lease.
    """
    silence = Silence(lease_s)
    tries_left = FIRST_TRIES_MAX
    while True:
        try:
            seen = yield from read(register, Point.STANDBY_HEAD)
            tries_left = -1  # reached once: from now on it can only be away
            if seen is None:
                return
            beat = yield Get(Point.STANDBY_BEAT, heartbeat_key(seen.document.token))
        except Unavailable:
            # Not having heard is not silence: our own link may be the broken one.
            silence = Silence(lease_s)
            tries_left -= 1
            if tries_left == 0:
                raise
        else:
            sign = (seen.etag, None if beat is None else beat.etag)
            if _released(beat) or silence.lasts(sign, clock.monotonic()):
                return
        yield Wait(poll_s)


def is_led(
    register: Register[D],
    clock: Clock,
    lease_s: float,
    poll_s: float,
    is_gone: Callable[[Holder], bool],
) -> Steps[Holder | None]:
    """Who leads and lives; None if nobody does.

    1. Nobody, if there is no register yet, its leader has released the job, or `is_gone` knows
       that the leader's process is certainly dead.
    2. Its holder, as soon as the register or the heartbeat changes before our eyes.
    3. Nobody, if neither has changed for a lease.
    """
    silence, first, tries_left = Silence(lease_s), None, TRIES_MAX
    while True:
        try:
            seen, beat = yield from _look(register)
            tries_left = TRIES_MAX
        except Unavailable:
            silence = Silence(lease_s)  # not having heard is not silence
            tries_left -= 1
            if tries_left == 0:
                raise  # what cannot be known is not answered with "nobody"
        else:
            if seen is None or _released(beat) or is_gone(seen.document.holder):
                return None  # 1
            sign = (seen.etag, None if beat is None else beat.etag)
            if first is not None and sign != first:
                return seen.document.holder  # 2
            first = sign
            if silence.lasts(sign, clock.monotonic()):
                return None  # 3
        yield Wait(poll_s)


def _look(register: Register[D]) -> Steps[tuple[Seen[D] | None, Stored | None]]:
    """The register and its leader's heartbeat."""
    seen = yield from read(register, Point.STANDBY_HEAD)
    if seen is None:
        return None, None
    beat = yield Get(Point.STANDBY_BEAT, heartbeat_key(seen.document.token))
    return seen, beat


def _released(beat: Stored | None) -> bool:
    # One that cannot be read is a sign of life like any other: wait for the lease.
    found = None if beat is None else decode_beat(beat.body)
    return found is not None and found.released
