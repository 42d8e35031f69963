"""A cell: one declared state at the key its workspace is bound to, as entries of the overlay.

It knows where entries stand, turns values into bytes, and stamps and judges those that have a time
to live. What their author sees of it are the kinds of state (`kinds`).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.state.declare import StateClock, StateSpec
from penstock.state.firing import Pending
from penstock.state.keys import decode_key
from penstock.state.layout import (
    DATA,
    EXPIRY,
    TIMER,
    after_prefix,
    group_of_entry,
    section_prefix,
    time_bytes,
)
from penstock.state.stamps import STAMP_BYTES, UNSET_MS, Life, stamped_ms
from penstock.state.values import Codec, MapKeys

if TYPE_CHECKING:
    from penstock.state.workspace import Workspace

__all__ = ["CLOCK_BYTES", "Cell"]

CLOCK_BYTES = {StateClock.EVENT: b"\x00", StateClock.PROCESSING: b"\x01"}
_HEADER = len(section_prefix(0, DATA))


class Cell:
    """One declared state, at the key its workspace is bound to."""

    def __init__(
        self, space: "Workspace", spec: StateSpec, number: int, latest_ms: int | None
    ) -> None:
        self.spec = spec
        self.number = bytes([number])
        self.clock_byte = CLOCK_BYTES[spec.clock]
        self._space = space
        self._overlay = space.overlay
        self._codec: Codec[Any] | None = (
            None if spec.kind == "timer" else Codec(spec.value_type, spec.where)
        )
        self._keys = MapKeys(spec.key_type, spec.where) if spec.kind == "map" else None
        self._skip = 0 if spec.ttl is None else STAMP_BYTES
        self.life: Life | None = None
        """How long its entries live, if not for ever."""
        if spec.ttl is not None:
            clock_ms = space.times.now_ms(spec.ttl.clock)
            self.life = Life(spec.ttl, clock_ms, latest_ms, space.call)
        self._written: dict[bytes, None] = {}
        """Entries with a time to live that were written, in the order of the first time."""

    @property
    def codec(self) -> Codec[Any]:
        """How its values become bytes."""
        assert self._codec is not None
        return self._codec

    @property
    def is_ageing_value(self) -> bool:
        """Whether it is one value per key, with a time to live."""
        return self.spec.kind == "value" and self.spec.ttl is not None

    @property
    def ttl_clock(self) -> StateClock:
        """The clock its entries age by."""
        return StateClock.EVENT if self.spec.ttl is None else self.spec.ttl.clock

    def place(self, key: Any) -> bytes:
        """Where a map keeps the value of `key`."""
        assert self._keys is not None
        return self._keys.encode(key)

    def bound(self, key: Any) -> bytes:
        """Where a scan of a map begins or ends."""
        assert self._keys is not None
        return self._keys.encode_bound(key)

    def read(self, sub: bytes, default: Any) -> Any:
        """The value under `sub`, or `default`."""
        assert self._codec is not None
        raw = self._overlay.get(self._space.prefix + self.number + sub)
        if raw is None or (self.life is not None and self.life.is_over(raw)):
            return default
        return self._codec.decode(raw[self._skip :])

    def holds(self, sub: bytes) -> bool:
        """Whether there is a value under `sub`."""
        raw = self._overlay.get(self._space.prefix + self.number + sub)
        return raw is not None and not (self.life is not None and self.life.is_over(raw))

    def read_raw(self, sub: bytes) -> bytes | None:
        """What is stored under `sub`, as it is, whether it has ended or not; or None."""
        raw = self._overlay.get(self._space.prefix + self.number + sub)
        return None if raw is None else raw[self._skip :]

    def is_set(self, timer: Pending) -> bool:
        """Whether a timer that was found due is still set. One that a firing timer has set is among
        the changes, unless the call that set it was undone."""
        entry = self._space.prefix + self.number + time_bytes(timer.at_ms)
        return self._overlay.changes.get(entry, None if timer.is_chained else b"") is not None

    def set_timer(self, at_ms: int) -> None:
        """Have this state's timer fire at `at_ms`."""
        space, place, set_ms = self._space, time_bytes(at_ms), at_ms
        if space.follows_events and self.spec.clock is StateClock.EVENT:
            call_ms = space.call_ms()
            set_ms = at_ms if call_ms is None else max(at_ms, call_ms)
        self.write_raw(place, b"")
        body = b"" if set_ms == at_ms else time_bytes(set_ms)
        self.write_index(TIMER, self.clock_byte + place, body)
        if space.firing is not None:
            space.timer_was_set(self, at_ms, set_ms)

    def cancel_timer(self, at_ms: int) -> None:
        """Have it not fire at `at_ms`."""
        self.write_raw(time_bytes(at_ms), None)
        self.write_index(TIMER, self.clock_byte + time_bytes(at_ms), None)

    def encode(self, value: Any) -> bytes:
        """The bytes of a value, without writing it."""
        assert self._codec is not None
        return self._codec.encode(value)

    def write(self, sub: bytes, value: Any) -> None:
        """Change a value that is never scanned."""
        assert self._codec is not None
        key = self._space.prefix + self.number + sub
        encoded = self._codec.encode(value)  # first: what is refused leaves no trace
        self._overlay.put(key, encoded if self.life is None else self._stamped(key) + encoded)

    def write_scoped(self, sub: bytes, value: Any) -> None:
        """Change a value that scans must find."""
        self.write_raw(sub, self.encode(value))

    def write_raw(self, sub: bytes, body: bytes | None) -> None:
        """Change an entry that scans must find, given its bytes; None removes it."""
        key = self._space.prefix + self.number + sub
        if body is not None and self.life is not None:
            body = self._stamped(key) + body
        self._overlay.put_scoped(self._space.prefix, key, body)

    def write_new(self, sub: bytes, body: bytes) -> None:
        """Add an entry that scans must find and that is not there."""
        key = self._space.prefix + self.number + sub
        if self.life is not None:
            self._written[key] = None
            body = self.life.first_stamp() + body
        self._overlay.put_scoped(self._space.prefix, key, body)

    def write_index(self, section: bytes, place: bytes, body: bytes | None) -> None:
        """Change an entry of an index that is ordered by something else than the key."""
        scope = section_prefix(self._space.group, section)
        key = scope + place + self._space.key + self.number
        self._overlay.put_scoped(scope, key, body)

    def remove(self, sub: bytes) -> None:
        """Remove a value that is never scanned, if it is there."""
        key = self._space.prefix + self.number + sub
        if self._overlay.get(key) is not None:
            self._overlay.put(key, None)

    def remove_scoped(self, sub: bytes) -> None:
        """Remove a value that scans find, if it is there."""
        key = self._space.prefix + self.number + sub
        if self._overlay.get(key) is not None:
            self._overlay.put_scoped(self._space.prefix, key, None)

    def remove_all(self) -> None:
        """Remove every entry of this state at this key."""
        for sub, _ in list(self.scan_raw(b"", None)):
            self._overlay.put_scoped(
                self._space.prefix, self._space.prefix + self.number + sub, None
            )

    def scan(self, low: bytes, high: bytes | None) -> Iterator[tuple[bytes, Any]]:
        """What comes after this state's own prefix, and the value, in order."""
        assert self._codec is not None
        for sub, raw in self.scan_raw(low, high):
            if self.life is None or not self.life.is_over(raw):
                yield sub, self._codec.decode(raw[self._skip :])

    def count(self, low: bytes) -> int:
        """How many values there are from `low` on."""
        life, entries = self.life, self.scan_raw(low, None)
        return sum(1 for _, raw in entries if life is None or not life.is_over(raw))

    def scan_raw(self, low: bytes, high: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """The same, with the bytes as they are stored, of entries that have ended, too."""
        prefix = self._space.prefix + self.number
        stop = after_prefix(prefix) if high is None else prefix + high
        for entry, raw in self._overlay.scan(self._space.prefix, prefix + low, stop):
            yield entry[len(prefix) :], raw

    def expire(self, entry: bytes, now_ms: int) -> int:
        """Remove an entry whose index says its time is over, unless it lives longer now.

        It was written since, or its state was given a longer time to live.
        """
        raw = self._overlay.get(entry)
        if raw is None or self.life is None or entry in self._written:
            return 0
        key_end = decode_key(entry, _HEADER)[1]
        at_ms = stamped_ms(raw)
        if at_ms == UNSET_MS:  # its clock has only just begun
            body = time_bytes(now_ms) + raw[STAMP_BYTES:]
            self._overlay.put_scoped(entry[:key_end], entry, body)
            self._index(entry, now_ms + self.life.length_ms)
            return 0
        if at_ms + self.life.length_ms > now_ms:
            index = self._index_key(entry, at_ms + self.life.length_ms)
            if self._overlay.get(index) is None:
                self._index(entry, at_ms + self.life.length_ms)
            return 0
        self._overlay.put_scoped(entry[:key_end], entry, None)
        # A list's counter goes with its last element, and is not one.
        return int(self.spec.kind != "list" or len(entry) > key_end + len(self.number))

    def index_written(self) -> None:
        """Write down when the entries that were written end: once for each, however often it was
        written."""
        for entry in self._written:
            raw = self._overlay.get(entry)
            if raw is not None and self.life is not None:
                self._index(entry, self.life.kept_until_ms(raw))

    def _stamped(self, entry: bytes) -> bytes:
        """What stands before a value with a time to live: when it was written."""
        assert self.life is not None
        self._written[entry] = None
        before = self._overlay.changes.get(entry)
        if before is None and not self.life.is_newest():
            before = self._overlay.get(entry)
        return self.life.next_stamp(before)

    def _index(self, entry: bytes, ends_ms: int) -> None:
        scope = section_prefix(group_of_entry(entry), EXPIRY) + self.number
        self._overlay.put_scoped(scope, self._index_key(entry, ends_ms), b"")

    def _index_key(self, entry: bytes, ends_ms: int) -> bytes:
        scope = section_prefix(group_of_entry(entry), EXPIRY) + self.number
        return scope + time_bytes(ends_ms) + entry[_HEADER:]
