"""The kinds of state a function can declare, as its author uses them.

Each is a handle on the state of the key that is being processed; the workspace moves all of
them from key to key. What they do is only reading and changing entries of the overlay.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.errors import Invalid
from penstock.state.keys import decode_key
from penstock.state.layout import TIMER, after_prefix, section_prefix, time_bytes, time_from

if TYPE_CHECKING:
    from penstock.state.cell import Cell
    from penstock.state.overlay import Overlay
    from penstock.state.values import Codec

__all__ = [
    "NOT_FETCHED",
    "TIME_MS_MAX",
    "List",
    "Map",
    "PlainValue",
    "Timer",
    "Value",
    "timer_prefix",
    "timer_range",
]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
INDEX_BYTES = 8
_FIRST = bytes(INDEX_BYTES)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
TIME_MS_MAX = 1 << 62
"""Some hundred million years: a number beyond it is not in milliseconds."""


NOT_FETCHED = object()
"""Stands where the committed bytes are not known yet."""


class Value(Generic[T]):
    """One value per key."""

    def __init__(self, cell: "Cell") -> None:
        self._cell = cell

    def get(self, default: Any = None) -> Any:
        """The value, or `default` if there is none."""
        return self._cell.read(b"", default)

    def set(self, value: T) -> None:
        """Change the value."""
        self._cell.write(b"", value)

    def clear(self) -> None:
        """Remove the value."""
        self._cell.remove(b"")


class PlainValue(Value[T]):
    """A value that never ages, which most are, without a step too many: it is read and changed
    once for every key of every epoch."""

    def __init__(self, cell: "Cell", codec: "Codec[T]", overlay: "Overlay") -> None:
        super().__init__(cell)
        self.number = cell.number
        self.entry = b""
        """Where the value of the present key stands."""
        self.committed: Any = NOT_FETCHED
        """Its committed bytes, None if there are none."""
        self._codec = codec
        self._overlay = overlay
        self._changes = overlay.changes

    def get(self, default: Any = None) -> Any:
        """The value, or `default` if there is none."""
        raw = self._changes.get(self.entry, self.committed)
        if raw is NOT_FETCHED:
            raw = self._overlay.get(self.entry)
        return default if raw is None else self._codec.decode(raw)

    def set(self, value: T) -> None:
        """Change the value."""
        encoded = self._codec.encode(value)
        if self.committed is NOT_FETCHED or self._overlay.is_noting:
            self._overlay.put(self.entry, encoded)
        elif encoded == self.committed:
            self._changes.pop(self.entry, None)
        else:
            self._changes[self.entry] = encoded

    def clear(self) -> None:
        """Remove the value."""
        if self.committed is NOT_FETCHED or self._overlay.is_noting:
            super().clear()
        elif self.committed is None:
            self._changes.pop(self.entry, None)
        else:
            self._changes[self.entry] = None


class Map(Generic[K, V]):
    """Values by a second key, in the order of that key."""

    def __init__(self, cell: "Cell") -> None:
        self._cell = cell

    def get(self, key: K, default: Any = None) -> Any:
        """The value of `key`, or `default`."""
        return self._cell.read(self._cell.place(key), default)

    def set(self, key: K, value: V) -> None:
        """Change the value of `key`."""
        self._cell.write_scoped(self._cell.place(key), value)

    def remove(self, key: K) -> None:
        """Remove `key`; no error if it is not there."""
        self._cell.remove_scoped(self._cell.place(key))

    def __contains__(self, key: K) -> bool:
        return self._cell.holds(self._cell.place(key))

    def items(self, start: Any = None, stop: Any = None) -> Iterator[tuple[K, V]]:
        """Keys and values in order, from `start` up to, not including, `stop`.

        Where the keys are tuples, a shorter tuple stands before all that begin with it.
        """
        low = b"" if start is None else self._cell.bound(start)
        high = None if stop is None else self._cell.bound(stop)
        for sub, value in self._cell.scan(low, high):
            yield decode_key(sub)[0], value

    def keys(self) -> Iterator[K]:
        """The keys in order."""
        return (key for key, _ in self.items())

    def clear(self) -> None:
        """Remove all of them."""
        self._cell.remove_all()


class List(Generic[T]):
    """Values in the order they were appended."""

    def __init__(self, cell: "Cell") -> None:
        self._cell = cell

    def append(self, value: T) -> None:
        """Add a value at the end."""
        self.extend((value,))

    def extend(self, values: Iterable[T]) -> None:
        """Add several values at the end: all of them, or none if one is refused."""
        last = int.from_bytes(self._cell.read_raw(b"") or b"\0", "big")
        bodies = [self._cell.encode(value) for value in values]
        for number, body in enumerate(bodies, last + 1):
            self._cell.write_new(number.to_bytes(INDEX_BYTES, "big"), body)
        # The number of the last one ever appended stands before them all, under the empty key. Its
        # stamp is the newest of them all, so it goes with the last of them. Until then it counts,
        # also for a call that sees none of them any more.
        if bodies:
            self._cell.write_raw(b"", (last + len(bodies)).to_bytes(INDEX_BYTES, "big"))

    def __iter__(self) -> Iterator[T]:
        return (value for _, value in self._cell.scan(_FIRST, None))

    def __len__(self) -> int:
        return self._cell.count(_FIRST)

    def clear(self) -> None:
        """Remove all of them."""
        self._cell.remove_all()


class Timer:
    """Moments at which the function is called again for this key, in the order of time."""

    def __init__(self, cell: "Cell") -> None:
        self._cell = cell
        self.fired: int | None = None
        """The moment that has come, in milliseconds since 1970, in a call that this timer set off;
        None in every other call."""

    def set(self, at: datetime | int) -> None:
        """Call again at `at`, a datetime with a zone or milliseconds since 1970. A time that has
        passed means as soon as timers fire: at once, and before all later ones of the key, if this
        call was set off by a timer; else in the next epoch."""
        self._cell.set_timer(_ms(at))

    def cancel(self, at: datetime | int) -> None:
        """Do not call at `at`; no error if it was not set."""
        self._cell.cancel_timer(_ms(at))

    def pending(self) -> list[int]:
        """The moments set, in order, in milliseconds since 1970."""
        return [time_from(sub, 0) for sub, _ in self._cell.scan_raw(b"", None)]

    def clear(self) -> None:
        """Cancel all of them."""
        for at in self.pending():
            self.cancel(at)


def _ms(at: datetime | int) -> int:
    if isinstance(at, datetime) and at.tzinfo is None:
        raise Invalid(f"timer at {at}", "has no time zone", "use datetime(..., tzinfo=UTC)")
    at_ms = (at - _EPOCH) // _MILLISECOND if isinstance(at, datetime) else at
    if not isinstance(at_ms, int) or abs(at_ms) > TIME_MS_MAX:
        raise Invalid(
            f"timer at {at!r}",
            "is no moment",
            "use a datetime with a zone, or whole milliseconds since 1970",
        )
    return at_ms


def timer_prefix(group: int, clock_byte: bytes) -> bytes:
    """What every timer of one clock in a key group starts with."""
    return section_prefix(group, TIMER) + clock_byte


def timer_range(group: int, clock_byte: bytes, until_ms: int) -> tuple[bytes, bytes]:
    """Where the timers due at `until_ms` are."""
    prefix = timer_prefix(group, clock_byte)
    stop = prefix + time_bytes(until_ms + 1)
    return prefix, min(stop, after_prefix(prefix))
