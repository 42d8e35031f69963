"""A workspace: one attempt's work on one partition's state, from open to delta.

It binds the declared states to one key after the other, fires timers, lets entries expire, and
ends as one delta file or, if nothing changed, as nothing. What expires and what fires is decided
by the epoch's own times, which are part of the plan: the same on every attempt and every host.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import Invalid
from penstock.state.columns import Columns
from penstock.state.database import PartitionDatabase
from penstock.state.declare import StateClock, StateSpec, check_schemas
from penstock.state.delta import DeltaFile, Marker, write_delta
from penstock.state.keys import decode_key, encode_key
from penstock.state.kinds import (
    NOT_FETCHED,
    TIME_MS_MAX,
    List,
    Map,
    PlainValue,
    Timer,
    Value,
    timer_range,
)
from penstock.state.layout import (
    DATA,
    EVERYTHING,
    EXPIRY,
    MARKER_KEY,
    SCHEMA_KEY,
    TIMER,
    after_prefix,
    section_prefix,
    time_bytes,
    time_from,
)
from penstock.state.overlay import Overlay
from penstock.state.settings import StateSettings
from penstock.state.values import Codec, MapKeys

__all__ = ["Cell", "Due", "EpochTimes", "Workspace"]

_KINDS = {"value": Value, "list": List, "map": Map, "timer": Timer}
_CLOCK_BYTES = {StateClock.EVENT: b"\x00", StateClock.PROCESSING: b"\x01"}
_HEADER = len(section_prefix(0, DATA))
_TIME_BYTES = 8
UNSET_MS = -(1 << 62)
"""The stamp of an entry written before its clock had a time; it starts to age with the first."""

STATES_MAX = 250

VISITED_AT_ONCE = 8192
"""Values are fetched for so many keys at a time."""


@dataclass(frozen=True, slots=True)
class EpochTimes:
    """The times of an epoch, decided when it was planned."""

    watermark_ms: int | None
    planned_ms: int

    def now_ms(self, clock: StateClock) -> int | None:
        """What that clock says in this epoch."""
        return self.watermark_ms if clock is StateClock.EVENT else self.planned_ms


@dataclass(frozen=True, slots=True)
class Due:
    """A timer that fires."""

    at_ms: int
    group: int
    key: Any
    state: str


class _StoredState(msgspec.Struct, frozen=True):
    """A state as the database knows it."""

    number: int
    description: dict[str, Any]


class Workspace:
    """The states of one operator on one partition, during one attempt."""

    def __init__(
        self,
        database: PartitionDatabase,
        operator: str,
        specs: list[StateSpec],
        groups: range,
        times: EpochTimes,
    ) -> None:
        self.overlay = Overlay(database, database.settings.fetched_bytes)
        self._database = database
        self.times = times
        self.prefix = b""
        self.group = 0
        self.key = b""
        self._groups = groups
        self._stored = _read_schemas(database.schemas)
        check_schemas({n: s.description for n, s in self._stored.items()}, specs, operator)
        self._stored = _numbered(self._stored, specs)
        self._cells = {
            spec.name: Cell(self, spec, self._stored[spec.name])
            for spec in specs
            if spec.kind != "columns"
        }
        self.states: dict[str, Any] = {spec.name: self._handle(spec) for spec in specs}
        """The handles, by name, as a function's arguments."""
        self._plain = sorted(
            (state for state in self.states.values() if isinstance(state, PlainValue)),
            key=lambda state: state.number,
        )
        self._names = {stored.number: name for name, stored in self._stored.items()}

    def bind(self, group: int, key: bytes) -> None:
        """Let every handle mean this key from now on. `key` is encoded."""
        self.group, self.key = group, key
        self.prefix = section_prefix(group, DATA) + key
        for state in self._plain:
            state.entry, state.committed = self.prefix + state.number, NOT_FETCHED

    def visit(self, groups: list[int], keys: list[bytes]) -> Iterator[None]:
        """Bind one key after the other, each with its values fetched. Nothing else may be bound
        between two steps. Keys are encoded; in the order of their groups and bytes they are
        fetched fastest."""
        for start in range(0, len(keys), VISITED_AT_ONCE):
            stop = start + VISITED_AT_ONCE
            yield from self._visit(groups[start:stop], keys[start:stop])

    def _visit(self, groups: list[int], keys: list[bytes]) -> Iterator[None]:
        heads = {group: section_prefix(group, DATA) for group in set(groups)}
        prefixes = [heads[group] + key for group, key in zip(groups, keys, strict=True)]
        self._prefetch_ageing(prefixes)
        places = zip(groups, keys, prefixes, strict=True)
        if len(self._plain) == 1:
            state = self._plain[0]
            entries = [prefix + state.number for prefix in prefixes]
            fetched = self.overlay.committed(entries)
            values = zip(places, entries, fetched, strict=True)
            for (self.group, self.key, self.prefix), state.entry, state.committed in values:
                yield
            return
        count, numbers = len(self._plain), [state.number for state in self._plain]
        entries = [prefix + number for prefix in prefixes for number in numbers]
        fetched = self.overlay.committed(entries) if entries else []
        for at, (self.group, self.key, self.prefix) in enumerate(places):
            for nth, state in enumerate(self._plain, at * count):
                state.entry, state.committed = entries[nth], fetched[nth]
            yield

    def _prefetch_ageing(self, prefixes: list[bytes]) -> None:
        numbers = sorted(c.number for c in self._cells.values() if c.is_ageing_value)
        if numbers:
            self.overlay.prefetch([prefix + n for prefix in prefixes for n in numbers])

    def expire(self) -> int:
        """Remove every entry whose time to live is over; how many."""
        return sum(
            self._expire(cell, group)
            for cell in self._cells.values()
            if cell.spec.ttl is not None
            for group in self._groups
        )

    def due(self) -> Iterator[Due]:
        """Timers whose time has come, in order of time, key group and key; each is removed as it
        fires."""
        found = [
            due
            for clock in StateClock
            if any(c.spec.kind == "timer" and c.spec.clock is clock for c in self._cells.values())
            for group in self._groups
            for due in self._due(group, clock)
        ]
        # By key group before the key, so that the order does not depend on how many partitions
        # the groups are spread over.
        for due in sorted(found, key=lambda d: (d.at_ms, d.group, encode_key(d.key), d.state)):
            self.bind(due.group, encode_key(due.key))
            if self._cells[due.state].was_removed(time_bytes(due.at_ms)):
                continue  # cancelled by what an earlier one set off
            self.states[due.state].cancel(due.at_ms)
            yield due

    def next_due(self, clock: StateClock) -> int | None:
        """When the next timer of that clock is due, in milliseconds since 1970."""
        moments = []
        for group in self._groups:
            start, stop = timer_range(group, _CLOCK_BYTES[clock], TIME_MS_MAX)
            first = next(self.overlay.scan(section_prefix(group, TIMER), start, stop), None)
            moments += [] if first is None else [time_from(first[0], len(start))]
        return min(moments, default=None)

    def finish(self, path: Path, marker: Marker, settings: StateSettings) -> DeltaFile | None:
        """Write what has changed as one delta; None if nothing has."""
        if not self.overlay.changes:
            return None
        schemas = msgspec.json.encode(self._stored)
        return write_delta(path, marker, self.overlay.changes, schemas, settings)

    def changed(self, marker: Marker, whole: bool) -> Iterator[tuple[bytes, bytes | None]]:
        """What has changed, for a changelog that is kept elsewhere; None for a removed entry. If
        `whole`, all that was there before comes first. The marker comes last, also if nothing has
        changed: then it is that of the version before, or none if there is none."""
        if whole:
            yield from self._database.scan(*EVERYTHING)
        if self.overlay.changes:
            yield from self.overlay.changes.items()
            yield SCHEMA_KEY, msgspec.json.encode(self._stored)
            yield MARKER_KEY, msgspec.json.encode(marker)
        else:
            yield MARKER_KEY, self._database.get(MARKER_KEY)

    def _handle(self, spec: StateSpec) -> Any:
        if spec.kind == "value" and spec.ttl is None:
            cell = self._cells[spec.name]
            return PlainValue(cell, cell.codec, self.overlay)
        if spec.kind != "columns":
            return _KINDS[spec.kind](self._cells[spec.name])
        number = self._stored[spec.name].number
        return Columns(self.overlay, spec.name, number, spec.key_type, spec.value_type)

    def _due(self, group: int, clock: StateClock) -> Iterator[Due]:
        now_ms = self.times.now_ms(clock)
        if now_ms is None:
            return
        start, stop = timer_range(group, _CLOCK_BYTES[clock], now_ms)
        for entry, _ in self.overlay.scan(section_prefix(group, TIMER), start, stop):
            key, end = decode_key(entry, len(start) + _TIME_BYTES)
            name = self._names[entry[end]]
            if name in self._cells:  # those of a state nobody declares any more wait for its return
                yield Due(time_from(entry, len(start)), group, key, name)

    def _expire(self, cell: "Cell", group: int) -> int:
        now_ms = self.times.now_ms(cell.ttl_clock)
        if now_ms is None:
            return 0
        scope = section_prefix(group, EXPIRY) + cell.number
        removed = 0
        stop = scope + time_bytes(now_ms + 1)
        for index, _ in list(self.overlay.scan(scope, scope, stop)):
            entry = section_prefix(group, DATA) + index[len(scope) + _TIME_BYTES :]
            self.overlay.put_scoped(scope, index, None)
            removed += cell.expire(group, entry, now_ms)
        return removed


class Cell:
    """One declared state, at the key its workspace is bound to."""

    def __init__(self, space: Workspace, spec: StateSpec, stored: _StoredState) -> None:
        self.spec = spec
        self.number = bytes([stored.number])
        self.clock_byte = _CLOCK_BYTES[spec.clock]
        self._space = space
        self._overlay = space.overlay
        self._codec: Codec[Any] | None = (
            None if spec.kind == "timer" else Codec(spec.value_type, spec.where)
        )
        self._keys = MapKeys(spec.key_type, spec.where) if spec.kind == "map" else None
        self._skip = 0 if spec.ttl is None else _TIME_BYTES

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
        return default if raw is None else self._codec.decode(raw[self._skip :])

    def read_raw(self, sub: bytes) -> bytes | None:
        """What is stored under `sub`, as it is, or None."""
        raw = self._overlay.get(self._space.prefix + self.number + sub)
        return None if raw is None else raw[self._skip :]

    def was_removed(self, sub: bytes) -> bool:
        """Whether this attempt has removed what was under `sub`."""
        return self._overlay.changes.get(self._space.prefix + self.number + sub, b"") is None

    def encode(self, value: Any) -> bytes:
        """The bytes of a value, without writing it."""
        assert self._codec is not None
        return self._codec.encode(value)

    def write(self, sub: bytes, value: Any) -> None:
        """Change a value that is never scanned."""
        assert self._codec is not None
        key = self._space.prefix + self.number + sub
        encoded = self._codec.encode(value)  # first: what is refused leaves no trace
        self._overlay.put(key, self._stamped(key) + encoded)

    def write_scoped(self, sub: bytes, value: Any) -> None:
        """Change a value that scans must find."""
        self.write_raw(sub, self.encode(value))

    def write_raw(self, sub: bytes, body: bytes | None) -> None:
        """Change an entry that scans must find, given its bytes; None removes it."""
        key = self._space.prefix + self.number + sub
        stamped = None if body is None else self._stamped(key) + body
        self._overlay.put_scoped(self._space.prefix, key, stamped)

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
            yield sub, self._codec.decode(raw[self._skip :])

    def scan_raw(self, low: bytes, high: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """The same, with the bytes as they are stored."""
        prefix = self._space.prefix + self.number
        stop = after_prefix(prefix) if high is None else prefix + high
        for entry, raw in self._overlay.scan(self._space.prefix, prefix + low, stop):
            yield entry[len(prefix) :], raw

    def expire(self, group: int, entry: bytes, now_ms: int) -> int:
        """Remove an entry whose index says its time is over, unless it lives longer now.

        It was written since, or its state was given a longer time to live.
        """
        raw = self._overlay.get(entry)
        if raw is None or self.spec.ttl is None:
            return 0
        key_end = decode_key(entry, _HEADER)[1]
        stamp_ms = time_from(raw, 0)
        if stamp_ms == UNSET_MS:  # its clock has only just begun
            body = time_bytes(now_ms) + raw[_TIME_BYTES:]
            self._overlay.put_scoped(entry[:key_end], entry, body)
            self._index(group, entry, now_ms)
            return 0
        if stamp_ms + self.spec.ttl.length_ms > now_ms:
            index = self._index_key(group, entry, stamp_ms)
            if self._overlay.get(index) is None:
                self._index(group, entry, stamp_ms)
            return 0
        self._overlay.put_scoped(entry[:key_end], entry, None)
        # A list's counter goes with its last element, and is not one.
        return int(self.spec.kind != "list" or len(entry) > key_end + len(self.number))

    def _stamped(self, entry: bytes) -> bytes:
        """What stands before a value with a time to live: when it was written."""
        if self.spec.ttl is None:
            return b""
        now_ms = self._space.times.now_ms(self.ttl_clock)
        stamp_ms = UNSET_MS if now_ms is None else now_ms
        self._index(self._space.group, entry, stamp_ms)
        return time_bytes(stamp_ms)

    def _index(self, group: int, entry: bytes, stamp_ms: int) -> None:
        scope = section_prefix(group, EXPIRY) + self.number
        self._overlay.put_scoped(scope, self._index_key(group, entry, stamp_ms), b"")

    def _index_key(self, group: int, entry: bytes, stamp_ms: int) -> bytes:
        assert self.spec.ttl is not None
        expires_ms = stamp_ms if stamp_ms == UNSET_MS else stamp_ms + self.spec.ttl.length_ms
        return (
            section_prefix(group, EXPIRY) + self.number + time_bytes(expires_ms) + entry[_HEADER:]
        )


def _read_schemas(body: bytes | None) -> dict[str, _StoredState]:
    return {} if body is None else msgspec.json.decode(body, type=dict[str, _StoredState])


def _numbered(stored: dict[str, _StoredState], specs: list[StateSpec]) -> dict[str, _StoredState]:
    """Every state with a number of its own; one that has had a number keeps it for ever."""
    numbered = dict(stored)
    for spec in specs:
        known = numbered.get(spec.name)
        number = known.number if known else len(numbered)
        if number >= STATES_MAX:
            raise Invalid(
                spec.where,
                f"is one more than the {STATES_MAX} states an operator can ever have had",
                "use a Map where there are so many",
            )
        numbered[spec.name] = _StoredState(number, spec.description())
    return numbered
