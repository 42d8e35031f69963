"""Stamps: when an entry with a time to live was last written, in eight bytes before its value.

There are two kinds, told apart by the number itself, because they are judged by different clocks.

An *own* stamp is the event time of the call that wrote the entry. A call sees it as long as its
own event time is before the end of the entry: which calls see it does not depend on where epochs
were cut. A *clock* stamp is what the clock of the state said when the entry was written: the
planned time, or the watermark if the call had no event time of its own. It is judged by that
clock. Entries of versions that knew only the watermark carry clock stamps, and end as they did.

An entry is removed when the watermark, or the planned time, has passed its end. What was written
behind the watermark is kept as if it had been written at the watermark, so that events that are
late together find it; whether a call sees it is told by its stamp alone.
"""

from penstock.state.declare import StateClock, Ttl
from penstock.state.layout import time_bytes, time_from

__all__ = ["STAMP_BYTES", "UNSET_MS", "CallTime", "Life", "stamped_ms"]

STAMP_BYTES = 8
UNSET_MS = -(1 << 62)
"""The stamp of an entry written before its clock had a time; it starts to age with the first."""

_OWN = 1 << 62
"""Added to a time, it makes an own stamp. No time is near it: event times end with year 9999."""
_OWN_LEAST = _OWN - (1 << 60)
_TIME_LEAST_MS = -(1 << 60)


def stamped_ms(raw: bytes) -> int:
    """The time in the stamp that stands before a value, whichever its kind."""
    found = time_from(raw, 0)
    return found - _OWN if found >= _OWN_LEAST else found


class CallTime:
    """The event time of the present call, shared by all states that age by it."""

    __slots__ = ("own_ms",)

    def __init__(self) -> None:
        self.own_ms: int | None = None
        """None if the call has none."""


class Life:
    """The time to live of a state's entries, as the present call sees it.

    `latest_ms` is the latest own stamp among the committed entries, or later: a call that is not
    older can write without looking at what it writes over.
    """

    def __init__(
        self, ttl: Ttl, clock_ms: int | None, latest_ms: int | None, call: CallTime
    ) -> None:
        self.length_ms = ttl.length_ms
        self.follows_events = ttl.clock is StateClock.EVENT
        self.latest_ms = latest_ms
        """With what is written in this epoch."""
        self._call = call if self.follows_events else CallTime()
        self._clock_ms = UNSET_MS if clock_ms is None else clock_ms
        self._clock_stamp = time_bytes(self._clock_ms)
        self._own_ms: int | None = None
        self._own_stamp = b""
        """What a call at that time writes."""
        self._over_clock = self._clock_ms - self.length_ms
        self._settled_ms = max(self._clock_ms, UNSET_MS if latest_ms is None else latest_ms)

    def is_over(self, raw: bytes) -> bool:
        """Whether an entry has ended for the present call."""
        stamp = time_from(raw, 0)
        if stamp < _OWN_LEAST:
            return UNSET_MS < stamp <= self._over_clock
        own_ms = self._call.own_ms
        now_ms = self._clock_ms if own_ms is None else max(own_ms, _TIME_LEAST_MS)
        return stamp - _OWN + self.length_ms <= now_ms

    def is_newest(self) -> bool:
        """Whether no committed entry can have a later stamp than what the present call writes."""
        own_ms = self._call.own_ms
        return self._clock_ms >= self._settled_ms if own_ms is None else own_ms >= self._settled_ms

    def first_stamp(self) -> bytes:
        """What stands before the value of an entry that was not there."""
        own_ms = self._call.own_ms
        if own_ms is None:
            return self._clock_stamp
        if own_ms != self._own_ms:
            self._own_ms, at_ms = own_ms, max(own_ms, _TIME_LEAST_MS)
            self._own_stamp = time_bytes(at_ms + _OWN)
            self.latest_ms = at_ms if self.latest_ms is None else max(at_ms, self.latest_ms)
        return self._own_stamp

    def next_stamp(self, before: bytes | None) -> bytes:
        """What stands before the new value of an entry; an older call does not shorten its life."""
        mine = self.first_stamp()
        if before is None or before.startswith(mine):
            return mine
        if stamped_ms(before) <= stamped_ms(mine) or self.is_over(before):
            return mine
        return before[:STAMP_BYTES]

    def kept_until_ms(self, raw: bytes) -> int:
        """When an entry that was written in this epoch may be removed."""
        at_ms = stamped_ms(raw)
        return at_ms if at_ms == UNSET_MS else max(at_ms, self._clock_ms) + self.length_ms
