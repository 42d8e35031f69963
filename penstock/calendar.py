"""The years that a datetime can hold, and times outside of them.

A time in a log, a manifest or a timer is a whole number since 1970 and can name any year. Python
and most sinks know the years 1 to 9999. So a number becomes a datetime here, in one place, and
never raises: a time before the first year is the first moment there is, one after the last year
the last.
"""

from datetime import UTC, datetime, timedelta

__all__ = ["FIRST_MS", "FIRST_US", "LAST_MS", "LAST_US", "datetime_of", "told", "within"]

FIRST_US = -62_135_596_800_000_000
"""The beginning of the year 1, in microseconds since 1970."""
LAST_US = 253_402_300_799_999_999
"""The end of the year 9999."""
FIRST_MS = FIRST_US // 1000
LAST_MS = LAST_US // 1000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def within(time_ms: int) -> int:
    """The nearest time that a datetime can hold."""
    return min(max(time_ms, FIRST_MS), LAST_MS)


def datetime_of(time_ms: int) -> datetime:
    """A time as a datetime in UTC; the first or the last one there is, if it lies beyond."""
    return _EPOCH + timedelta(milliseconds=within(time_ms))


def told(time_ms: int) -> str:
    """A time for a person, whatever it is."""
    if time_ms != within(time_ms):
        return f"{time_ms} ms since 1970"
    return datetime_of(time_ms).isoformat()
