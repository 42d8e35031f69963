"""A workspace: one attempt's work on one partition's state, from open to delta.

It binds the declared states to one key after the other, fires timers, lets entries expire, and
ends as one delta file or, if nothing changed, as nothing. What expires and what fires is decided
by the times of events and by the epoch's own, which are part of the plan: the same on every attempt
and every host. An entry that has ended is hidden at once (`stamps`), and removed when the clock of
its state has passed its end: after the calls of an epoch, because timers fire at their own times,
which are before the watermark.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import Invalid
from penstock.fields import Count, Int64, Text
from penstock.state.cell import CLOCK_BYTES, Cell
from penstock.state.columns import Columns
from penstock.state.database import PartitionDatabase
from penstock.state.declare import StateClock, StateSpec, check_schemas
from penstock.state.delta import DeltaFile, Marker, write_delta
from penstock.state.firing import Firing, Pending
from penstock.state.keys import decode_key
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
    section_prefix,
    time_bytes,
    time_from,
)
from penstock.state.overlay import Overlay
from penstock.state.settings import StateSettings
from penstock.state.stamps import CallTime

__all__ = ["Cell", "Due", "EpochTimes", "Workspace"]

_KINDS = {"value": Value, "list": List, "map": Map, "timer": Timer}
_TIME_BYTES = 8

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


class _StoredState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A state as the database knows it."""

    number: Count
    description: dict[Text, Any]
    latest_ms: Int64 | None = None
    """The latest event time that an entry of it was ever stamped with, or later."""


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
        self._operator = operator
        self._groups = groups
        self._stored = _read_schemas(database.schemas)
        check_schemas({n: s.description for n, s in self._stored.items()}, specs, operator)
        self._stored = _numbered(self._stored, specs)
        self.call = CallTime()
        self._cells = {
            spec.name: Cell(self, spec, stored.number, stored.latest_ms)
            for spec, stored in ((spec, self._stored[spec.name]) for spec in specs)
            if spec.kind != "columns"
        }
        self.states: dict[str, Any] = {spec.name: self._handle(spec) for spec in specs}
        """The handles, by name, as a function's arguments."""
        self._plain = sorted(
            (state for state in self.states.values() if isinstance(state, PlainValue)),
            key=lambda state: state.number,
        )
        self._names = {stored.number: name for name, stored in self._stored.items()}
        lives = [cell.life for cell in self._cells.values()]
        self.follows_events = any(life is not None and life.follows_events for life in lives)
        """Whether it must be told the event time of every call: some entries age by it."""
        self.firing: Firing | None = None
        """Timers that are due, while they fire."""

    def call_at(self, own_ms: int | None) -> None:
        """Give the calls that follow this event time; None for those that have none."""
        self.call.own_ms = own_ms

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
        """Remove every entry whose time to live is over by its clock, unless it was written in this
        attempt; how many."""
        return sum(
            self._expire(cell, group)
            for cell in self._cells.values()
            if cell.life is not None
            for group in self._groups
        )

    def due(self) -> Iterator[Due]:
        """Timers whose time has come, in order of time, key group and key, among them those that
        are set meanwhile; each is removed as it fires, and the call it sets off has its time."""
        clocks = {c.spec.clock for c in self._cells.values() if c.spec.kind == "timer"}
        found = [p for clock in clocks for group in self._groups for p in self._due(group, clock)]
        self.firing = Firing(found, self._operator)
        for pending in self.firing:
            self.bind(pending.group, pending.key)
            cell = self._cells[pending.state]
            if not cell.is_set(pending):
                continue  # cancelled by what an earlier one set off
            self.firing.fires(pending)
            self.states[pending.state].cancel(pending.at_ms)
            by_event = cell.spec.clock is StateClock.EVENT
            self.call_at(pending.set_ms if by_event else None)
            key, _ = decode_key(pending.key)
            yield Due(pending.at_ms, pending.group, key, pending.state)
        self.firing = None
        self.call_at(None)

    def timer_was_set(self, cell: Cell, at_ms: int, set_ms: int) -> None:
        """Let a timer that a firing one has set fire among the others, if its time has come."""
        now_ms = self.times.now_ms(cell.spec.clock)
        if self.firing is not None and now_ms is not None and at_ms <= now_ms:
            self.firing.add(Pending(at_ms, self.group, self.key, cell.spec.name, True, set_ms))

    def call_ms(self) -> int | None:
        """The time of the present call in event time: its own, or the watermark."""
        return self.times.watermark_ms if self.call.own_ms is None else self.call.own_ms

    def next_due(self, clock: StateClock) -> int | None:
        """When the next timer of that clock is due, in milliseconds since 1970."""
        moments = []
        for group in self._groups:
            start, stop = timer_range(group, CLOCK_BYTES[clock], TIME_MS_MAX)
            first = next(self.overlay.scan(section_prefix(group, TIMER), start, stop), None)
            moments += [] if first is None else [time_from(first[0], len(start))]
        return min(moments, default=None)

    def finish(self, path: Path, marker: Marker, settings: StateSettings) -> DeltaFile | None:
        """Write what has changed as one delta; None if nothing has."""
        for name, cell in self._cells.items():
            cell.index_written()
            if cell.life is not None:
                known = self._stored[name]
                latest_ms = cell.life.latest_ms
                self._stored[name] = msgspec.structs.replace(known, latest_ms=latest_ms)
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

    def _due(self, group: int, clock: StateClock) -> Iterator[Pending]:
        now_ms = self.times.now_ms(clock)
        if now_ms is None:
            return
        start, stop = timer_range(group, CLOCK_BYTES[clock], now_ms)
        first = len(start) + _TIME_BYTES
        for entry, body in self.overlay.scan(section_prefix(group, TIMER), start, stop):
            _, end = decode_key(entry, first)
            name, at_ms = self._names[entry[end]], time_from(entry, len(start))
            if name in self._cells:  # those of a state nobody declares any more wait for its return
                set_ms = time_from(body, 0) if body else at_ms
                yield Pending(at_ms, group, entry[first:end], name, False, set_ms)

    def _expire(self, cell: Cell, group: int) -> int:
        now_ms = self.times.now_ms(cell.ttl_clock)
        if now_ms is None:
            return 0
        scope = section_prefix(group, EXPIRY) + cell.number
        removed = 0
        stop = scope + time_bytes(now_ms + 1)
        for index, _ in list(self.overlay.scan(scope, scope, stop)):
            entry = section_prefix(group, DATA) + index[len(scope) + _TIME_BYTES :]
            self.overlay.put_scoped(scope, index, None)
            removed += cell.expire(entry, now_ms)
        return removed


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
        latest_ms = known.latest_ms if known else None
        numbered[spec.name] = _StoredState(number, spec.description(), latest_ms)
    return numbered
