"""Timers of a key fire in the order of time, whoever set them, and wherever epochs are cut."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.state import firing
from penstock.state.keys import encode_key
from tests.runtime.test_processing import alone
from tests.support.in_process import (
    CLICKS,
    SETTINGS,
    LocalRun,
    OnePartition,
    Sent,
    append,
    click,
    clicks_log,
)
from tests.support.logs import new_log
from tests.support.state_engine import Engine

Rows = Iterator[dict[str, Any]]

Plan = dict[int, list[tuple[str, int]]]
"""What a firing timer does, by its time: sets or cancels some at other times."""


class Alarm:
    """A function that sets timers as its plan says, and tells of each that fires."""

    def __init__(self, plan: Plan, clock: str = "event") -> None:
        def alarm(
            user: str, events: ps.Events, wake: Annotated[ps.Timer, ps.by_clock(clock)]
        ) -> Rows:
            for event in events:
                wake.set(event.n)
            if wake.fired is not None:
                yield {"user": user, "at": wake.fired}
                for what, at in plan.get(wake.fired, []):
                    getattr(wake, what)(at)

        self.function = ps.stateful(emits="user string, at long")(alarm)


def fired(one: OnePartition, *until_ms: int, clock: str = "event") -> list[tuple[str, int]]:
    """Whose timers fire when time goes on to each of these, in turn."""
    name = {"event": "watermark_ms", "processing": "planned_ms"}[clock]
    rows = [one.run(**{name: at}).rows("out", "user", "at") for at in until_ms]
    return [row for done in rows for row in done]


def times(one: OnePartition, *until_ms: int, clock: str = "event") -> list[int]:
    """The same, where there is only one user."""
    return [at for _, at in fired(one, *until_ms, clock=clock)]


@pytest.mark.parametrize("clock", ["event", "processing"])
@pytest.mark.parametrize("cuts", [(30,), (10, 20, 30), (15, 30)])
def test_a_timer_that_a_firing_one_sets_takes_its_place(
    tmp_path: Path, clock: str, cuts: tuple[int, ...]
) -> None:
    """A function that keeps the latest of what it saw would otherwise depend on the epochs."""
    one = alone(Alarm({10: [("set", 20)]}, clock).function, tmp_path)
    one.run(Sent([click("ada", 10), click("ada", 30)]), planned_ms=1)

    assert times(one, *cuts, clock=clock) == [10, 20, 30]


def test_a_timer_set_to_before_the_one_firing_fires_next(tmp_path: Path) -> None:
    """Its time has passed, so it is the earliest there is: of its key, and of all keys."""
    one = alone(Alarm({20: [("set", 5)]}).function, tmp_path)
    one.run(Sent([click("ada", 20), click("ada", 30), click("bob", 25)]))

    assert fired(one, 40) == [("ada", 20), ("ada", 5), ("bob", 25), ("ada", 30)]


def test_a_timer_set_to_the_very_time_that_fires_fires_again(tmp_path: Path) -> None:
    """Once for each time it is set, and before everything later."""
    again = [("set", 10)]
    plan: Plan = {10: again}
    one = alone(Alarm(plan).function, tmp_path)
    one.run(Sent([click("ada", 10), click("ada", 11)]))
    done = one.attempt(watermark_ms=20)
    plan.clear()

    assert done.rows("out", "at") == [(10,)] * (1 + firing.BEHIND_MAX)
    assert times(one, 20) == [10, 11]


def test_a_timer_cancelled_by_an_earlier_one_does_not_fire(tmp_path: Path) -> None:
    """Whether it was there before, or was set by one that fired; set once more, it does."""
    plan: Plan = {
        10: [("cancel", 20), ("set", 12), ("set", 13)],
        12: [("cancel", 13), ("cancel", 30), ("set", 30)],
    }
    one = alone(Alarm(plan).function, tmp_path)
    one.run(Sent([click("ada", 10), click("ada", 20), click("ada", 30)]))

    assert times(one, 40) == [10, 12, 30]


@ps.stateful(emits="user string, name string, at long")
def several(user: str, events: ps.Events, b: ps.Timer, a: ps.Timer, c: ps.Timer) -> Rows:
    """Timers of several names."""
    for event in events:
        for timer in (b, a, c):
            timer.set(event.n)
    for name, timer in (("a", a), ("b", b), ("c", c)):
        if timer.fired is not None:
            yield {"user": user, "name": name, "at": timer.fired}
            if name == "b":
                a.set(timer.fired)  # fires before c, which has the same time


def test_timers_of_the_same_time_fire_in_the_order_of_their_names(tmp_path: Path) -> None:
    """Also where one of them sets another."""
    one = alone(several, tmp_path)
    one.run(Sent([click("ada", 10), click("bob", 10)]))
    done = one.run(watermark_ms=10)

    assert sorted(done.rows("out", "user", "name"), key=lambda row: row[0]) == [
        (user, name) for user in ("ada", "bob") for name in ("a", "b", "a", "c")
    ]


def test_keys_fire_by_time_whatever_their_timers_set(tmp_path: Path) -> None:
    """The order between keys is that of time too, so it is the same on every attempt."""
    plan: Plan = {10: [("set", 14)], 12: [("set", 13)]}
    one = alone(Alarm(plan).function, tmp_path)
    one.run(Sent([click("ada", 10), click("bob", 12), click("cleo", 20)]))
    first, again = (one.attempt(watermark_ms=30).rows("out", "user", "at") for _ in range(2))

    assert first == [("ada", 10), ("bob", 12), ("bob", 13), ("ada", 14), ("cleo", 20)]
    assert again == first


def test_a_timer_of_an_undone_call_does_not_fire(tmp_path: Path) -> None:
    """What raises in an operator that quarantines has set nothing and cancelled nothing."""

    @ps.stateful(emits="user string, at long")
    def fails(user: str, events: ps.Events, wake: ps.Timer) -> Rows:
        for event in events:
            wake.set(event.n)
        if wake.fired is not None:
            yield {"user": user, "at": wake.fired}
        if wake.fired == 10:
            wake.set(15)
            wake.cancel(20)
            raise ValueError("not this one")

    job = ps.Job("clicks", partitions=1)
    stream = job.read(new_log(CLICKS), name="clicks", event_time="at").key_by("user")
    stream.process(fails, on_error="quarantine").write(ps.Table("out"))
    one = OnePartition(job, tmp_path)
    one.run(Sent([click("ada", 10), click("ada", 20)]))

    assert times(one, 30) == [20]


def test_what_has_to_wait_is_not_passed(tmp_path: Path) -> None:
    """A key that goes round in circles waits for the next epoch, whole, so that its order stays;
    other keys do not wait for it."""
    plan: Plan = {12: [("set", 11)], 11: [("set", 12)]}
    one = alone(Alarm(plan).function, tmp_path)
    one.run(Sent([click("ada", 12), click("ada", 13), click("bob", 30)]))
    found = fired(one, 40)
    plan.clear()

    rounds = [("ada", 12), ("ada", 11)] * firing.BEHIND_MAX
    assert found == [*rounds, ("bob", 30)]
    assert times(one, 40) == [12, 13]


@ps.stateful(emits="ticks long", each=True)
def tick(user: str, event: ps.Event | None, ticks: ps.Value[int], wake: ps.Timer) -> Rows:
    """Counts the seconds, and tells how many it has counted."""
    if event is None:
        ticks.set(ticks.get(0) + 1)
        wake.set((wake.fired or 0) + 1000)
    else:
        yield {"ticks": ticks.get(0)}
        wake.set(1000 + event.n)


@pytest.mark.parametrize("step_s", [3000, 1500, 500])
def test_an_event_finds_every_timer_before_it_fired(tmp_path: Path, step_s: int) -> None:
    """However many timers one sets off the other, and however far the watermark comes at once."""
    one = alone(tick, tmp_path)
    one.run(Sent([click("ada", 0, 0)]))
    for at_s in range(step_s, 3000, step_s):
        one.run(watermark_ms=at_s * 1000)
    done = one.run(Sent([click("ada", 1, 3001)], first=1), watermark_ms=3_000_000)

    assert done.rows("out", "ticks") == [(3000,)]


def test_a_key_whose_timers_do_not_come_to_an_end_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tick of a millisecond on a watermark that comes years ahead would look like a hang."""
    monkeypatch.setattr(firing, "CHAINED_MAX", 99)
    one = alone(tick, tmp_path)
    one.run(Sent([click("ada", 0, 0)]))

    assert one.attempt(watermark_ms=100_000).report.rows_in == {"clicks": 0}
    failure = one.attempt(watermark_ms=101_000).failure
    assert (failure.kind, failure.subject, failure.found) == (
        "Invalid",
        "operator 'tick', key 'ada'",
        "set more than 99 timers that were due already, one after the other",
    )


def test_what_is_done_every_minute_catches_up_in_a_whole_job(tmp_path: Path) -> None:
    """The loop runs epochs without input until no timer is left that is due."""
    plan: Plan = {at: [("set", at + 1)] for at in range(1, 2500)}
    log = ps.Log.create(str(tmp_path / "log"), CLICKS)
    append(log, [click("ada", 1, 0), click("bob", 0, 100)])
    job = ps.Job("clicks", partitions=2)
    stream = job.read(log, name="clicks", event_time="at").key_by("user")
    stream.process(Alarm(plan).function).write(ps.Table("out"))
    run = LocalRun(job, tmp_path)
    run.run()

    assert [at for _, at in run.rows("out", "user", "at") if at] == list(range(1, 2501))


ACTS_MAX = 40
"""A plan may go round in circles: after so many firings of a key it does nothing more."""

moments = st.integers(0, 12)
plans = st.dictionaries(
    moments,
    st.lists(st.tuples(st.sampled_from(["set", "set", "cancel"]), moments), max_size=3),
    max_size=8,
)


class Firings:
    """A key's timers on the engine itself: many examples in little time."""

    def __init__(self, folder: Path, clock: str, plan: Plan) -> None:
        def function(wake: Annotated[ps.Timer, ps.by_clock(clock)]) -> None: ...

        self.engine = Engine(folder, function)
        self.clock = clock
        self.plan = plan
        self.seen: list[tuple[str, int]] = []

    def set_first(self, first: dict[str, set[int]]) -> None:
        space = self.engine.space()
        for key, some in first.items():
            space.bind(0, encode_key(key))
            for at in sorted(some):
                space.states["wake"].set(at)
        self.engine.commit(space)

    def epoch(self, until_ms: int) -> list[tuple[str, int]]:
        """The timers that fire in one epoch, which is committed."""
        event = self.clock == "event"
        space = self.engine.space(until_ms if event else None, -1 if event else until_ms)
        found = []
        for due in space.due():
            found.append((due.key, due.at_ms))
            seen = sum(1 for key, _ in (*self.seen, *found) if key == due.key)
            for what, at in self.plan.get(due.at_ms, []) if seen <= ACTS_MAX else []:
                getattr(space.states["wake"], what)(at)
        self.engine.commit(space)
        self.seen += found
        return found

    def run(self, cuts: list[int]) -> dict[str, list[int]]:
        """What fires for each key, however many epochs it takes."""
        for until_ms in cuts:
            self.epoch(until_ms)
        while self.epoch(cuts[-1]):
            pass
        self.engine.database.close()
        sequences: dict[str, list[int]] = {}
        for key, at in self.seen:
            sequences.setdefault(key, []).append(at)
        return sequences


def by_hand(first: dict[str, set[int]], plan: Plan) -> dict[str, list[int]]:
    """The earliest timer of a set fires, and changes the set: that is all there is to it."""
    sequences: dict[str, list[int]] = {}
    for key, some in first.items():
        left, seen = set(some), []
        while left:
            at = min(left)
            left.remove(at)
            seen.append(at)
            for what, other in plan.get(at, []) if len(seen) <= ACTS_MAX else []:
                left.add(other) if what == "set" else left.discard(other)
        if seen:
            sequences[key] = seen
    return sequences


@pytest.mark.parametrize("clock", ["event", "processing"])
@pytest.mark.parametrize("behind_max", [1_000, 2])
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    first=st.dictionaries(st.sampled_from("abc"), st.sets(moments, max_size=4), max_size=3),
    plan=plans,
    cuts=st.lists(moments, max_size=6),
)
@example(first={"a": {1, 3}}, plan={1: [("set", 2)]}, cuts=[])
def test_any_epochs_give_the_same_sequence(
    tmp_path_factory: pytest.TempPathFactory,
    clock: str,
    behind_max: int,
    first: dict[str, set[int]],
    plan: Plan,
    cuts: list[int],
) -> None:
    """Per key; also where a key has to wait, because it sets too many timers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(firing, "BEHIND_MAX", behind_max)
        firings = Firings(tmp_path_factory.mktemp("engine"), clock, plan)
        firings.set_first(first)

        assert firings.run([*sorted(cuts), 12]) == by_hand(first, plan)


@ps.stateful(emits="user string, at long", each=True)
def backward(user: str, event: ps.Event | None, wake: ps.Timer) -> Rows:
    """Sets three timers for its first event; the last of them sets one to an earlier time."""
    if event is not None:
        for at_s in (10, 20, 30) if event.n == 0 else ():
            wake.set(at_s * 1000)
        return
    if wake.fired == 30_000:
        wake.set(15_000)
    yield {"user": user, "at": wake.fired}


@ps.stateful(emits="seen array<long>", each=True)
def remembered(user: str, event: ps.Event, seen: ps.List[int]) -> Rows:
    """All that came so far, in order."""
    seen.append(event.at)
    yield {"seen": list(seen)}


@pytest.mark.parametrize("records", [1, 1000])
def test_the_next_operator_sees_timers_in_the_order_they_fired(
    tmp_path: Path, records: int
) -> None:
    """Also one that was set to an earlier time: its rows came before those of the timer that had
    set it, at another place for every cut."""
    log = clicks_log(tmp_path)
    append(log, [click("a", 0, 0), *(click("z", 1, at) for at in (12, 22, 32, 33))])
    job = ps.Job("timers", partitions=1, order="log")
    fired = job.read(log, name="clicks", event_time="at").key_by("user").process(backward)
    fired.key_by("user").process(remembered).write(ps.Table("seen"))
    run = LocalRun(job, tmp_path)
    run.run(replace(SETTINGS, limits=ps.Limits(records=1), epochs_max=1))
    run.run(replace(SETTINGS, limits=ps.Limits(records=records)))

    assert run.rows("seen", "seen")[-1] == ([10_000, 20_000, 30_000, 15_000],)
