"""The standby: waits until the leader has been silent for a lease, then says so.

Silence is measured on this process's own monotonic clock, from what it saw change with its
own eyes. A wrong guess deposes a healthy leader, which loses time and nothing else.
"""

from typing import TypeVar

import msgspec

from penstock.clock import Clock
from penstock.effects import Get, Steps, Stored, Wait
from penstock.errors import Unavailable
from penstock.fencing.heartbeat import Beat, heartbeat_key
from penstock.fencing.register import Led, Register, read
from penstock.points import Point

__all__ = ["Silence", "stand_by"]


FIRST_TRIES_MAX = 5
"""How often a store that has never answered is tried: its address may simply be wrong."""

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


def _released(beat: Stored | None) -> bool:
    if beat is None:
        return False
    try:
        return msgspec.json.decode(beat.body, type=Beat).released
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False  # unreadable is a sign of life like any other: wait for the lease
