"""The state engine against plain dicts: attempts, zombies, crashes and moves, in any order.

What the dicts hold is exactly what the database must hold: every entry, its stamp, and the
indices of timers and expiry. `PENSTOCK_MACHINE_EXAMPLES` says how many runs of 50 steps are made.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.ids import Attempt, Epoch, Generation
from penstock.state.database import PartitionDatabase
from penstock.state.declare import StateClock, StateSpec, by_clock, declared, ttl
from penstock.state.delta import DeltaFile, Marker
from penstock.state.keys import decode_key, encode_key
from penstock.state.kinds import List, Map, Timer, Value
from penstock.state.layout import DATA, EXPIRY, TIMER, group_of_entry, time_from
from penstock.state.settings import StateSettings
from penstock.state.stamps import UNSET_MS, stamped_ms
from penstock.state.workspace import Due, EpochTimes, Workspace

EXAMPLES = int(os.environ.get("PENSTOCK_MACHINE_EXAMPLES", "250"))
SHARES = 6
STEPS = 50
ATTEMPTS_MAX = 3
WORK_MAX = 8
"""After so many steps of work some attempt is committed, if none was before."""
TTL_MS = 10
IN_MEMORY = Path("/dev/shm")

SETTINGS = StateSettings(block_cache_bytes=1 << 20)
GROUPS = range(3)


def states(
    *,
    count: Value[int],
    last: Annotated[Value[int], ttl("10 ms")],
    seen: Map[int, int],
    recent: Annotated[Map[int, int], ttl("10 ms")],
    real: Annotated[Map[int, int], ttl("10 ms", clock="processing")],
    rows: List[int],
    queue: Annotated[List[int], ttl("10 ms")],
    wake: Timer,
    nap: Annotated[Timer, by_clock("processing")],
) -> None: ...


SPECS = {spec.name: spec for spec in declared(states)}
NUMBERS = dict(enumerate(SPECS))
Place = tuple[int, Any]
"""A key, and the key group it is in."""
PLACES: list[Place] = [(0, ""), (0, "\0"), (2, ("a", 1))]
COUNTER = 0
"""Under this number a list keeps that of its last element."""


def named(kind: str) -> st.SearchStrategy[str]:
    return st.sampled_from([name for name, spec in SPECS.items() if spec.kind == kind])


def several(strategy: st.SearchStrategy[int]) -> st.SearchStrategy[set[int]]:
    return st.sets(strategy, min_size=1, max_size=4)


attempts = st.integers(0, ATTEMPTS_MAX - 1)
places = st.sampled_from(PLACES)
values = st.integers(0, 3)
subs = st.integers(-2, 3)
passing = st.sampled_from([0, TTL_MS // 2, TTL_MS, 3 * TTL_MS])
moments = st.sampled_from([-2, 0, 3, 6, 9, 12, 20, 30])


@dataclass(frozen=True)
class Kept:
    """An entry: its value, when it was written, and whether that is the event time of a call."""

    value: Any
    stamp_ms: int | None = None
    is_own: bool = False


@dataclass(frozen=True)
class Call:
    """The times by which a function reads and writes."""

    times: EpochTimes
    own_ms: int | None = None

    def now_ms(self, state: str) -> int | None:
        own = self.own_ms if ttl_clock(SPECS[state]) is StateClock.EVENT else None
        return self.clock_ms(state) if own is None else own

    def clock_ms(self, state: str) -> int | None:
        clock = ttl_clock(SPECS[state])
        return None if clock is None else self.times.now_ms(clock)

    def is_over(self, state: str, kept: Kept) -> bool:
        now_ms = self.now_ms(state) if kept.is_own else self.clock_ms(state)
        if now_ms is None or kept.stamp_ms is None:
            return False
        return kept.stamp_ms + TTL_MS <= now_ms

    def stamped(self, state: str, value: Any, before: Kept | None) -> Kept:
        now_ms = self.now_ms(state)
        if before is not None and not self.is_over(state, before) and _is_later(before, now_ms):
            return Kept(value, before.stamp_ms, before.is_own)
        is_own = ttl_clock(SPECS[state]) is StateClock.EVENT and self.own_ms is not None
        return Kept(value, now_ms, is_own)


def _is_later(kept: Kept, now_ms: int | None) -> bool:
    return kept.stamp_ms is not None and (now_ms is None or now_ms < kept.stamp_ms)


Where = tuple[Place, str]


@dataclass
class Model:
    """Entries by key and state: what is under which sub-key; and when each may be removed."""

    entries: dict[Where, dict[Any, Kept]] = field(default_factory=dict)
    ends: set[tuple[int, Place, str, Any]] = field(default_factory=set)
    written: set[tuple[Place, str, Any]] = field(default_factory=set)
    """By this attempt."""

    def copy(self) -> "Model":
        entries = {where: dict(found) for where, found in self.entries.items() if found}
        return Model(entries, set(self.ends))

    def at(self, place: Place, state: str) -> dict[Any, Kept]:
        return self.entries.setdefault((place, state), {})

    def put(self, place: Place, state: str, sub: Any, value: Any, call: Call) -> None:
        found = self.at(place, state)
        found[sub] = call.stamped(state, value, found.get(sub))
        self.written.add((place, state, sub))

    def append(self, place: Place, state: str, added: list[int], call: Call) -> None:
        last = self.at(place, state).get(COUNTER, Kept(0)).value
        for number, value in enumerate(added, last + 1):
            self.at(place, state).pop(number, None)
            self.put(place, state, number, value, call)
        if added:
            self.put(place, state, COUNTER, last + len(added), call)

    def index(self, times: EpochTimes) -> None:
        """Write down when the entries that were written may be removed."""
        for place, state, sub in self.written:
            clock, kept = ttl_clock(SPECS[state]), self.at(place, state).get(sub)
            if clock is not None and kept is not None:
                now_ms = times.now_ms(clock)
                known = [at for at in (kept.stamp_ms, now_ms) if at is not None]
                ends_ms = UNSET_MS if kept.stamp_ms is None else max(known) + TTL_MS
                self.ends.add((ends_ms, place, state, sub))

    def expire(self, times: EpochTimes) -> int:
        removed = 0
        for end in list(self.ends):
            ends_ms, place, state, sub = end
            clock = ttl_clock(SPECS[state])
            now_ms = None if clock is None else times.now_ms(clock)
            if now_ms is not None and ends_ms <= now_ms:
                self.ends.remove(end)
                removed += self.expire_entry((place, state, sub), now_ms)
        return removed

    def expire_entry(self, where: tuple[Place, str, Any], now_ms: int) -> int:
        place, state, sub = where
        found = self.at(place, state)
        if sub not in found or where in self.written:
            return 0
        kept = found[sub]
        if kept.stamp_ms is None:
            kept = found[sub] = Kept(kept.value, now_ms)
        assert kept.stamp_ms is not None
        if kept.stamp_ms + TTL_MS > now_ms:
            self.ends.add((kept.stamp_ms + TTL_MS, place, state, sub))
            return 0
        del found[sub]
        return int(SPECS[state].kind != "list" or sub != COUNTER)

    def due(self, times: EpochTimes) -> list[Due]:
        found = []
        for ((group, key), state), entries in self.entries.items():
            now_ms = times.now_ms(SPECS[state].clock) if SPECS[state].kind == "timer" else None
            if now_ms is not None:
                found += [Due(at, group, key, state) for at in entries if at <= now_ms]
        return sorted(found, key=lambda due: (due.at_ms, due.group, encode_key(due.key), due.state))

    def seen_by(self, place: Place, state: str, call: Call) -> Any:
        """What a function sees."""
        found = {s: k for s, k in self.at(place, state).items() if not call.is_over(state, k)}
        match SPECS[state].kind:
            case "value":
                return found[None].value if found else None
            case "map":
                return [(sub, found[sub].value) for sub in sorted(found)]
            case "list":
                return [found[number].value for number in sorted(found) if number != COUNTER]
            case _:
                return sorted(found)


def ttl_clock(spec: StateSpec) -> StateClock | None:
    return None if spec.ttl is None else spec.ttl.clock


def shown(handle: Any) -> Any:
    match handle:
        case Value():
            return handle.get()
        case Map():
            return list(handle.items())
        case List():
            assert len(handle) == len(list(handle))
            return list(handle)
        case _:
            return handle.pending()


def read_back(database: PartitionDatabase) -> tuple[Model, set[Any], set[Any]]:
    """What a database holds, byte for byte: entries, timers, and what expires when."""
    model, timers, expiring = Model(), set(), set()
    for entry, raw in database.scan(b"\x01", b"\x02"):
        group, section, start = group_of_entry(entry), entry[3:4], 4
        if section == DATA:
            place, state, sub = parsed(group, entry, start)
            model.at(place, state)[sub] = body(state, sub, raw)
        elif section == TIMER:
            place, state, _ = parsed(group, entry, start + 9)
            timers.add((entry[start], time_from(entry, start + 1), place, state))
        else:
            assert section == EXPIRY
            place, state, sub = parsed(group, entry, start + 9)
            assert NUMBERS[entry[start]] == state
            expiring.add((time_from(entry, start + 1), place, state, sub))
    return model, timers, expiring


def parsed(group: int, entry: bytes, start: int) -> tuple[Place, str, Any]:
    key, end = decode_key(entry, start)
    state, sub = NUMBERS[entry[end]], entry[end + 1 :]
    readings: dict[str, Callable[[], Any]] = {
        "value": lambda: None,
        "map": lambda: decode_key(sub)[0],
        "list": lambda: int.from_bytes(sub, "big"),
        "timer": lambda: time_from(sub, 0) if sub else None,
    }
    return (group, key), state, readings[SPECS[state].kind]()


def body(state: str, sub: Any, raw: bytes) -> Kept:
    spec, stamp_ms, is_own = SPECS[state], None, False
    if spec.ttl is not None:
        is_own, stamp_ms = time_from(raw, 0) > 1 << 61, stamped_ms(raw)
        stamp_ms, raw = None if stamp_ms == UNSET_MS else stamp_ms, raw[8:]
    if spec.kind == "timer":
        return Kept(raw or None)
    if spec.kind == "list" and sub == COUNTER:
        return Kept(int.from_bytes(raw, "big"), stamp_ms, is_own)
    return Kept(msgspec.msgpack.decode(raw), stamp_ms, is_own)


@dataclass
class Host:
    """A folder with a database in it, and how much of the chain it has taken in."""

    folder: Path
    database: PartitionDatabase
    version: int = 0


@dataclass
class Try:
    """One attempt at one epoch, and what it should have made of the committed state."""

    host: Host
    epoch: int
    name: str
    space: Workspace
    model: Model
    finished: Model | None = None
    """What it was when its delta was written; what it does afterwards is of no effect."""
    delta: DeltaFile | None = None


class EngineMachine(RuleBasedStateMachine):
    """One partition; as many hosts and attempts as it takes."""

    def __init__(self) -> None:
        super().__init__()
        root = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-machine-", dir=root))
        self.committed = Model()
        self.chain: list[DeltaFile] = []
        self.epoch = 0
        self.times = EpochTimes(None, 0)
        self.is_planned = False
        self.hosts: list[Host] = []
        self.tries: list[Try] = []
        self.made = 0
        self.worked = 0

    def teardown(self) -> None:
        for host in self.hosts:
            host.database.close()
        shutil.rmtree(self.folder)

    def pick(self, which: int) -> Try:
        """Some attempt. There always is one that can be committed, and now and then one is."""
        self.worked += 1
        if self.worked % WORK_MAX == 0 and self.fresh():
            self.commit(which)
        if not self.fresh():
            del self.tries[ATTEMPTS_MAX - 1 :]
            self.attempt(TTL_MS // 2, TTL_MS // 2, which == 0)
        return self.tries[which % len(self.tries)]

    def fresh(self) -> list[Try]:
        """Attempts at the epoch that comes next. The others are zombies."""
        return [attempt for attempt in self.tries if attempt.epoch == self.epoch + 1]

    def edited(self, which: int, place: Place) -> tuple[dict[str, Any], Model, Call]:
        """The handles of an attempt at a key, what mirrors them, and the times of the call: one in
        four has no event time of its own, one is late."""
        attempt = self.pick(which)
        ahead_ms = (None, 3, -TTL_MS - 2, TTL_MS + 2)[self.worked % 4]
        watermark_ms = attempt.space.times.watermark_ms or 0
        call = Call(attempt.space.times, None if ahead_ms is None else watermark_ms + ahead_ms)
        attempt.space.call_at(call.own_ms)
        group, key = place[0], encode_key(place[1])
        if (which + group) % 2:
            next(attempt.space.visit([group], [key]))
        else:
            attempt.space.bind(group, key)
        return attempt.space.states, attempt.model, call

    # The life of attempts and hosts.

    @precondition(lambda self: len(self.tries) < ATTEMPTS_MAX)
    @rule(event=st.none() | passing, real=passing, expire=st.booleans())
    def attempt(self, event: int | None, real: int, expire: bool) -> None:
        """Begin an attempt: the first at its epoch, or another while the others still run."""
        self.plan(event, real)
        host = self.brought_up()
        space = Workspace(host.database, "op", list(SPECS.values()), GROUPS, self.times)
        self.made += 1
        name = f"a{self.made}"
        self.tries.append(Try(host, self.epoch + 1, name, space, self.committed.copy()))
        if expire:
            self.expired(self.tries[-1])

    def plan(self, event: int | None, real: int) -> None:
        """The times of an epoch are decided once, whatever becomes of its attempts."""
        if not self.is_planned:
            before = self.times.watermark_ms
            after = before if event is None else (before or 0) + event
            self.times = EpochTimes(after, self.times.planned_ms + real)
            self.is_planned = True

    def brought_up(self) -> Host:
        """A host nobody works on, with every committed delta; else a new one."""
        used = [attempt.host for attempt in self.tries]
        host = next((host for host in self.hosts if host not in used), None)
        if host is None:
            self.made += 1
            folder = self.folder / f"db{self.made}"
            host = Host(folder, PartitionDatabase(folder, SETTINGS))
            self.hosts.append(host)
        host.database.ingest([delta.path for delta in self.chain[host.version :]])
        host.version = len(self.chain)
        assert host.database.marker == (self.chain[-1].marker if self.chain else None)
        return host

    @precondition(lambda self: self.tries)
    @rule(which=attempts)
    def finish(self, which: int) -> None:
        """Write the delta; whether it becomes real is decided elsewhere."""
        self.write(self.tries[which % len(self.tries)])

    def write(self, attempt: Try) -> Model:
        if attempt.finished is not None:
            return attempt.finished
        marker = Marker(
            job="job",
            operator="op",
            partition=0,
            generation=Generation(1),
            epoch=Epoch(attempt.epoch),
            attempt=Attempt(attempt.name),
        )
        path = self.folder / f"{attempt.epoch}-{attempt.name}.sst"
        attempt.delta = attempt.space.finish(path, marker, SETTINGS)
        attempt.model.index(attempt.space.times)
        attempt.finished = attempt.model.copy()
        return attempt.finished

    @precondition(lambda self: self.fresh())
    @rule(which=attempts)
    def commit(self, which: int) -> None:
        """Make one attempt real. Others at the same epoch go on and do not know."""
        attempt = self.fresh()[which % len(self.fresh())]
        self.committed = self.write(attempt)
        self.tries.remove(attempt)
        self.epoch += 1
        self.is_planned = False
        if attempt.delta is not None:
            self.chain.append(attempt.delta)
        attempt.host.database.ingest([delta.path for delta in self.chain[attempt.host.version :]])
        attempt.host.version = len(self.chain)
        self.same(attempt.host.database)

    @rule(mishap=st.sampled_from(["abandon", "crash", "move"]), which=attempts)
    def go_wrong(self, mishap: str, which: int) -> None:
        """One rule for all that ends attempts, or else few would live to be committed."""
        match mishap:
            case "abandon" if self.tries:
                self.tries.pop(which % len(self.tries))  # nothing to undo: nothing was done
            case "crash":
                self.crash()
            case _:
                self.move()

    def crash(self) -> None:
        """Every process dies; what is on the disks is opened again."""
        self.tries.clear()
        for host in self.hosts:
            host.database.close()
            host.database = PartitionDatabase(host.folder, SETTINGS)
            expected = self.chain[host.version - 1].marker if host.version else None
            assert host.database.marker == expected

    def move(self) -> None:
        """Give up every folder that is not in use; the next attempt restores from the deltas."""
        used = [attempt.host for attempt in self.tries]
        for host in [host for host in self.hosts if host not in used]:
            self.hosts.remove(host)
            host.database.close()
            shutil.rmtree(host.folder)
        if not self.tries:
            self.same(self.brought_up().database)

    def same(self, database: PartitionDatabase) -> None:
        """A database against the dicts, whole."""
        found, timers, expiring = read_back(database)
        assert found.entries == self.committed.copy().entries
        assert database.marker == (self.chain[-1].marker if self.chain else None)
        clock_bytes = {StateClock.EVENT: 0, StateClock.PROCESSING: 1}
        wanted_timers = {
            (clock_bytes[SPECS[state].clock], sub, place, state)
            for (place, state), entries in found.entries.items()
            for sub in entries
            if SPECS[state].kind == "timer"
        }
        assert timers == wanted_timers
        assert expiring == self.committed.ends

    # What a function does with its state.

    @rule(which=attempts, place=places, state=named("value"), value=values)
    def set_value(self, which: int, place: Place, state: str, value: int) -> None:
        handles, model, call = self.edited(which, place)
        handles[state].set(value)
        model.put(place, state, None, value, call)

    @rule(which=attempts, place=places, state=named("map"), some=several(subs), value=values)
    def set_entries(self, which: int, place: Place, state: str, some: set[int], value: int) -> None:
        handles, model, call = self.edited(which, place)
        for sub in some:
            handles[state].set(sub, value)
            model.put(place, state, sub, value, call)

    @rule(which=attempts, place=places, state=named("map"), some=several(subs))
    def remove_entries(self, which: int, place: Place, state: str, some: set[int]) -> None:
        handles, model, _ = self.edited(which, place)
        for sub in some:
            handles[state].remove(sub)
            model.at(place, state).pop(sub, None)

    @rule(which=attempts, place=places, state=named("map"), start=subs, stop=subs)
    def scan(self, which: int, place: Place, state: str, start: int, stop: int) -> None:
        handles, model, call = self.edited(which, place)
        found = dict(model.seen_by(place, state, call))
        expected = [(sub, found[sub]) for sub in sorted(found) if start <= sub < stop]
        assert list(handles[state].items(start, stop)) == expected
        assert (start in handles[state]) == (start in found)
        assert handles[state].get(start, -1) == found.get(start, -1)

    @rule(which=attempts, place=places, state=named("list"), added=st.lists(values, max_size=3))
    def append(self, which: int, place: Place, state: str, added: list[int]) -> None:
        handles, model, call = self.edited(which, place)
        handles[state].extend(added)
        model.append(place, state, added, call)

    @rule(which=attempts, place=places, state=named("timer"), some=several(moments))
    def set_timers(self, which: int, place: Place, state: str, some: set[int]) -> None:
        handles, model, call = self.edited(which, place)
        for at in some:
            handles[state].set(at)
            model.put(place, state, at, None, call)

    @rule(which=attempts, place=places, state=named("timer"), some=several(moments))
    def cancel_timers(self, which: int, place: Place, state: str, some: set[int]) -> None:
        handles, model, _ = self.edited(which, place)
        for at in some:
            handles[state].cancel(at)
            model.at(place, state).pop(at, None)

    @rule(which=attempts, delay=st.none() | st.integers(1, 9), clear=st.booleans())
    def fire(self, which: int, delay: int | None, clear: bool) -> None:
        """Each timer that fires may set the next one, and may cancel others that are due."""
        attempt = self.pick(which)
        model, handles, times = attempt.model, attempt.space.states, attempt.space.times
        for due in attempt.space.due():
            place = (due.group, due.key)
            assert due == model.due(times)[0]
            del model.at(place, due.state)[due.at_ms]
            if clear:
                handles["wake"].clear()
                model.at(place, "wake").clear()
            if delay is not None:
                handles["nap"].set(due.at_ms + delay)
                model.put(place, "nap", due.at_ms + delay, None, Call(times))
        assert model.due(times) == []

    @rule(which=attempts)
    def expire(self, which: int) -> None:
        self.expired(self.pick(which))

    def expired(self, attempt: Try) -> None:
        assert attempt.space.expire() == attempt.model.expire(attempt.space.times)

    @rule(which=attempts, place=places, state=st.sampled_from(sorted(SPECS)))
    def clear(self, which: int, place: Place, state: str) -> None:
        handles, model, _ = self.edited(which, place)
        handles[state].clear()
        model.at(place, state).clear()

    @rule(which=attempts, place=places)
    def look(self, which: int, place: Place) -> None:
        """Every state of a key, as a function sees it."""
        handles, model, call = self.edited(which, place)
        for state, handle in handles.items():
            assert shown(handle) == model.seen_by(place, state, call)

    @rule(which=attempts)
    def visit(self, which: int) -> None:
        """Every key in turn, its values fetched with those of all others."""
        attempt = self.pick(which)
        attempt.space.call_at(None)
        call = Call(attempt.space.times)
        groups, keys = [group for group, _ in PLACES], [encode_key(key) for _, key in PLACES]
        for place, _ in zip(PLACES, attempt.space.visit(groups, keys), strict=True):
            for state, handle in attempt.space.states.items():
                assert shown(handle) == attempt.model.seen_by(place, state, call)


@pytest.mark.parametrize("share", range(SHARES))
def test_the_engine_is_a_dict_that_survives(share: int) -> None:
    """Whatever is done in whatever order, the state is what was committed, and nothing else."""
    # A class of its own for each share, or else a derandomised run would make the same runs twice.
    run_state_machine_as_test(
        type(f"EngineMachine{share}", (EngineMachine,), {}),
        settings=settings(
            max_examples=-(-EXAMPLES // SHARES),
            stateful_step_count=STEPS,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
