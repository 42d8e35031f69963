"""Time to live follows the event times of calls: where epochs are cut makes no difference."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import penstock as ps
from tests.runtime.test_processing import LOG, alone
from tests.support.in_process import LocalRun, OnePartition, Sent, append, click, clicks_log

Rows = Iterator[dict[str, Any]]
Click = dict[str, Any]
HOUR = 3_600
MINUTE = 60

Seen = Annotated[ps.Value[int], ps.ttl("2 h")]


@ps.stateful(emits="user string, n long, known boolean", each=True)
def recognise(user: str, event: ps.Event | None, seen: Seen) -> Rows:
    """Whether a card was seen in the two hours before."""
    assert event is not None
    yield {"user": user, "n": event.n, "known": seen.get() is not None}
    seen.set(event.n)


def known(one: OnePartition, epochs: list[list[Click]], delay_ms: int = 0) -> list[Any]:
    """What the rows of all epochs say, each epoch with the watermark that those before it give."""
    found, first, latest_ms = [], 0, None
    for rows in epochs:
        watermark_ms = None if latest_ms is None else latest_ms - delay_ms
        done = one.run(Sent(rows, first=first), watermark_ms=watermark_ms)
        found += [row["known"] for row in done.outputs.get("out", [])]
        first += len(rows)
        moments = [round(row["at"].timestamp() * 1000) for row in rows if row["at"] is not None]
        latest_ms = max([*moments, *([] if latest_ms is None else [latest_ms])], default=None)
    return found


@pytest.mark.parametrize("epochs", [(1, 1, 1), (3,), (1, 2), (2, 1)])
def test_a_card_is_known_for_two_hours_after_it_was_seen(
    tmp_path: Path, epochs: tuple[int, ...]
) -> None:
    """And neither for less, where an epoch ends in between, nor for more, where none does."""
    one = alone(recognise, tmp_path)
    clicks = [click("ada", n, at) for n, at in enumerate((0, 179 * MINUTE, 181 * MINUTE))]
    cut = iter(clicks)

    assert known(one, [[next(cut) for _ in range(size)] for size in epochs]) == [
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("size", [3, 7, 100])
def test_alerts_do_not_depend_on_the_size_of_epochs(tmp_path: Path, size: int) -> None:
    """A fraud job that finds more with larger epochs finds too little, or too much."""
    one = alone(recognise, tmp_path)
    clicks = [click(f"card {n % 9}", n, n * n * 137 % 600 * 4 * MINUTE) for n in range(100)]
    clicks.sort(key=lambda row: row["at"])
    seen: dict[str, Any] = {}
    expected = {}
    for row in clicks:
        before = seen.get(row["user"])
        expected[row["n"]] = before is not None and before + timedelta(hours=2) > row["at"]
        seen[row["user"]] = row["at"]
    found, at_ms = {}, None
    for start in range(0, len(clicks), size):
        rows = clicks[start : start + size]
        done = one.run(Sent(rows, first=start), watermark_ms=at_ms)
        found.update({row["n"]: row["known"] for row in done.outputs["out"]})
        at_ms = round(rows[-1]["at"].timestamp() * 1000)

    assert found == expected
    assert 20 < sum(expected.values()) < 80


def test_all_events_of_a_key_are_judged_by_the_latest(tmp_path: Path) -> None:
    """A call has one time. What has ended for its latest event is not seen, what it writes lives as
    if written at the latest."""

    @ps.stateful(emits="user string, known boolean")
    def together(user: str, events: ps.Events, seen: Seen) -> Rows:
        yield {"user": user, "known": seen.get() is not None}
        seen.set(len(events))

    one = alone(together, tmp_path)
    clicks = [click("ada", 1, at * HOUR) for at in (0, 1, 3, 4, 5)]

    assert known(one, [clicks[:1], clicks[1:3], clicks[3:4], clicks[4:]]) == [
        False,
        False,
        True,
        True,
    ]


def test_an_event_without_a_time_ages_by_the_watermark(tmp_path: Path) -> None:
    """There is nothing better to go by; before there is one, nothing ages."""
    one = alone(recognise, tmp_path)
    clicks = [[click("ada", n, None)] for n in range(4)]
    marks = (None, None, 5 * HOUR * 1000, 7 * HOUR * 1000)
    found = [
        one.run(Sent(rows, first=n), watermark_ms=mark).outputs["out"][0]["known"]
        for n, (rows, mark) in enumerate(zip(clicks, marks, strict=True))
    ]

    assert found == [False, True, True, False]


def test_events_that_are_late_together_see_each_other(tmp_path: Path) -> None:
    """A source partition that comes back after hours is behind the watermark, and still in order:
    what its events write is kept for as long as if it were new, and has ended for newer events."""
    one = alone(recognise, tmp_path)
    late = [[click("bob", 0, 9 * HOUR)]]
    late += [[click("ada", n, HOUR + n * 30 * MINUTE)] for n in range(3)]
    late += [[click("ada", 9, 9 * HOUR)]]

    assert known(one, late) == [False, False, True, True, False]


@ps.stateful(emits="user string, at long, known string")
def watch(
    user: str,
    events: ps.Events,
    seen: Annotated[ps.Value[str], ps.ttl("10 s")],
    wake: ps.Timer,
) -> Rows:
    """Remembers events, and what timers have seen; tells of both at each timer."""
    if wake.fired is not None:
        yield {"user": user, "at": wake.fired, "known": seen.get("nothing")}
        if wake.fired == 5_000:
            seen.set("a timer")
    for event in events:
        seen.set("an event")
        for at_ms in (5_000, 9_000, 14_999, 15_000):
            wake.set(at_ms + event.n)


@pytest.mark.parametrize("marks", [[30], [5, 9, 14, 15], [8, 16], [14, 15, 16]])
def test_a_timer_sees_and_writes_at_its_own_time(tmp_path: Path, marks: list[int]) -> None:
    """The watermark that lets it fire is somewhere beyond, depending on the epochs."""
    one = alone(watch, tmp_path)
    one.run(Sent([click("ada", 0, 0)]))
    rows = [one.run(watermark_ms=at * 1000).rows("out", "at", "known") for at in marks]

    assert [row for some in rows for row in some] == [
        (5_000, "an event"),
        (9_000, "a timer"),
        (14_999, "a timer"),
        (15_000, "nothing"),
    ]


@ps.stateful(emits="at long, known boolean")
def every_second(
    user: str,
    events: ps.Events,
    seen: Annotated[ps.Value[bool], ps.ttl("25 min")],
    wake: ps.Timer,
) -> Rows:
    """Sees an event once, and says every second whether it still knows."""
    if wake.fired is not None:
        yield {"at": wake.fired, "known": seen.get(False)}
    if len(events):
        seen.set(True)
    wake.set((wake.fired or 0) + 1000)


@pytest.mark.parametrize("marks", [[3000], [1000, 2000, 3000], [1600, 3000]])
def test_timers_that_catch_up_see_what_lived_at_their_time(
    tmp_path: Path, marks: list[int]
) -> None:
    """However many there are to catch up with: what they see is not removed before them."""
    one = alone(every_second, tmp_path)
    one.run(Sent([click("ada", 0, 0)]))
    rows = [one.run(watermark_ms=at * 1000).rows("out", "at", "known") for at in marks]

    assert [row for some in rows for row in some] == [
        (at * 1000, at < 25 * 60) for at in range(1, 3001)
    ]


@ps.stateful(emits="user string, known boolean")
def at_once(
    user: str,
    events: ps.Events,
    seen: Annotated[ps.Value[bool], ps.ttl("10 s")],
    wake: ps.Timer,
) -> Rows:
    """Asks to be called at once, and remembers that it was."""
    if wake.fired is not None:
        seen.set(True)
    for event in events:
        yield {"user": user, "known": seen.get(False)}
        wake.set(event.n)


@pytest.mark.parametrize("asked", [0, 99_999, 100_000])
def test_a_timer_set_in_the_past_has_the_time_of_who_set_it(tmp_path: Path, asked: int) -> None:
    """What it writes would otherwise have ended before it was written."""
    one = alone(at_once, tmp_path)
    one.run(Sent([click("ada", asked, 100)]), watermark_ms=90_000)
    one.run(watermark_ms=101_000)
    clicks = [Sent([click("ada", 0, at)], first=at) for at in (109, 110)]
    done = [one.attempt(sent, watermark_ms=101_000).rows("out", "known") for sent in clicks]

    assert done == [[(True,)], [(False,)]]


def test_a_timer_by_processing_time_goes_by_the_watermark(tmp_path: Path) -> None:
    """It has a time, but not an event time."""

    @ps.stateful(emits="user string, known boolean")
    def later(
        user: str,
        events: ps.Events,
        seen: Annotated[ps.Value[bool], ps.ttl("10 s")],
        nap: Annotated[ps.Timer, ps.by_clock("processing")],
    ) -> Rows:
        if nap.fired is not None:
            yield {"user": user, "known": seen.get(False)}
        for event in events:
            seen.set(True)
            nap.set(event.n)

    one = alone(later, tmp_path)
    one.run(Sent([click("ada", 2_000, 50)]), planned_ms=1_000, watermark_ms=40_000)
    marks = {at: one.attempt(planned_ms=3_000, watermark_ms=at) for at in (59_999, 60_000)}

    assert {at: done.rows("out", "known") for at, done in marks.items()} == {
        59_999: [(True,)],
        60_000: [(False,)],
    }


def test_time_to_live_by_processing_time_goes_by_the_epoch(tmp_path: Path) -> None:
    """Whatever the times of the events and of the timers."""

    @ps.stateful(emits="user string, known boolean", each=True)
    def real(
        user: str,
        event: ps.Event | None,
        seen: Annotated[ps.Value[bool], ps.ttl("10 s", clock="processing")],
        wake: ps.Timer,
    ) -> Rows:
        yield {"user": user, "known": seen.get(False)}
        if event is not None:
            seen.set(True)
            wake.set(event.n)

    one = alone(real, tmp_path)
    one.run(Sent([click("ada", 7, 50)]), planned_ms=1_000)
    done = {
        at: one.attempt(Sent([click("ada", 7, 990)], first=1), planned_ms=at, watermark_ms=7)
        for at in (10_999, 11_000)
    }

    assert {at: each.rows("out", "known") for at, each in done.items()} == {
        10_999: [(True,), (True,)],
        11_000: [(False,), (False,)],
    }


def test_rows_that_timers_make_age_by_the_time_of_the_timer(tmp_path: Path) -> None:
    """Further down a chain of functions too, whatever the watermark that let it fire."""

    @ps.stateful(emits="user string, n long", each=True)
    def upstream(user: str, event: ps.Event | None, wake: ps.Timer) -> Rows:
        if wake.fired is not None:
            yield {"user": user, "n": wake.fired}
        if event is not None:
            wake.set(event.n)

    found = []
    for number, cuts in enumerate([[7], [5, 6, 7]]):
        log = clicks_log(tmp_path / str(number))
        job = ps.Job("clicks", partitions=1)
        source = job.read(log, name="clicks", event_time="at").key_by("user")
        woken = source.process(upstream).key_by("user")
        woken.process(recognise).write(ps.Table("out"))
        run = LocalRun(job, tmp_path / str(number))
        wakes = [0, 100 * MINUTE, 219 * MINUTE, 339 * MINUTE]
        clicks = [click("ada", at * 1000, 0) for at in wakes]
        clicks += [click("bob", 10**15, at * MINUTE) for at in (110, 230, 400)]
        for start, stop in pairwise([0, *cuts]):
            append(log, clicks[start:stop])
            run.run()
        found.append(run.rows("out", "n", "known"))

    assert found == [[(at * 1000, at in wakes[1:3]) for at in wakes]] * 2


TTL_S, DELAY_S = 10, 5
Short = ps.ttl(f"{TTL_S} s")


@ps.stateful(emits="n long, seen string", each=True)
def keep(
    user: str,
    event: ps.Event | None,
    value: Annotated[ps.Value[int], Short],
    entries: Annotated[ps.Map[int, int], Short],
    elements: Annotated[ps.List[int], Short],
) -> Rows:
    """Does one thing after it has looked at everything."""
    assert event is not None
    number, act, which = event.n // 100, event.n // 10 % 10, event.n % 10
    assert len(elements) == len(list(elements))
    assert (which in entries) == (entries.get(which) is not None)
    shown = (value.get(), list(entries.items()), list(elements))
    yield {"n": number, "seen": repr(shown)}
    match act:
        case 0:
            value.set(number)
        case 1:
            entries.set(which, number)
        case 2:
            elements.append(number)
        case 3:
            value.clear()
        case 4:
            entries.remove(which)
        case 5:
            elements.clear()


@dataclass
class Model:
    """The same for one key, with plain dicts and lists: nothing in it knows of epochs."""

    value: dict[None, tuple[int, int]] = field(default_factory=dict)
    entries: dict[int, tuple[int, int]] = field(default_factory=dict)
    elements: list[tuple[int, int]] = field(default_factory=list)

    def take(self, number: int, act: int, which: int, at_s: int) -> str:
        """What a call at that time sees, before it does its one thing."""

        def lives(stamped: tuple[int, int]) -> bool:
            return stamped[1] + TTL_S > at_s

        values = [each[0] for each in self.value.values() if lives(each)]
        entries = [(k, v[0]) for k, v in sorted(self.entries.items()) if lives(v)]
        elements = [each[0] for each in self.elements if lives(each)]
        match act:
            case 0:
                self.value[None] = (number, max(at_s, self.value.get(None, (0, at_s))[1]))
            case 1:
                self.entries[which] = (number, max(at_s, self.entries.get(which, (0, at_s))[1]))
            case 2:
                self.elements.append((number, at_s))
            case 3:
                self.value.clear()
            case 4:
                self.entries.pop(which, None)
            case 5:
                self.elements.clear()
        return repr((values[0] if values else None, entries, elements))


acts = st.tuples(
    st.sampled_from("abc"),
    st.sampled_from([0, 0, 1, 1, 1, 2, 2, 2, 3, 4, 5]),
    st.integers(0, 2),
    st.sampled_from([0, 1, 3, 9, 10, 11]),
    st.integers(0, DELAY_S),
)
"""Of which key, what is done, with which entry, how long after the last one, how far behind."""
Act = tuple[str, int, int, int, int]


def of_acts(some: list[Act]) -> tuple[list[Click], list[tuple[int, str]]]:
    """The events, up to the allowed delay out of order, and what the model sees at each."""
    clicks, seen, now_s = [], [], 100
    models: dict[str, Model] = {}
    for number, (user, act, which, later_s, behind_s) in enumerate(some):
        now_s += later_s
        at_s = now_s - behind_s
        clicks.append(click(user, number * 100 + act * 10 + which, at_s))
        seen.append((number, models.setdefault(user, Model()).take(number, act, which, at_s)))
    return clicks, seen


def cut(clicks: list[Click], cuts: set[int]) -> list[list[Click]]:
    """The events of each epoch."""
    bounds = [0, *sorted(at for at in cuts if 0 < at < len(clicks)), len(clicks)]
    return [clicks[start:stop] for start, stop in pairwise(bounds)]


EXPIRED: list[Act] = [("a", 2, 0, 0, 0), ("a", 2, 0, 11, 0), ("a", 2, 0, 0, 5)]
"""An element, one after it has ended, and a call a little earlier, which sees both."""


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(some=st.lists(acts, min_size=1, max_size=25), cuts=st.sets(st.integers(1, 24)))
@example(some=EXPIRED, cuts={1, 2})
@example(some=EXPIRED, cuts=set())
def test_any_epochs_give_what_a_dict_gives(
    tmp_path_factory: pytest.TempPathFactory, some: list[Act], cuts: set[int]
) -> None:
    """Event by event, each judged by its own time; also out of order, within the delay."""
    clicks, expected = of_acts(some)
    job = ps.Job("clicks", partitions=1, order="log")
    read = job.read(LOG, name="clicks", event_time="at").key_by("user")
    read.process(keep).write(ps.Table("out"))
    one = OnePartition(job, tmp_path_factory.mktemp("one"))
    found, latest_ms, first = [], None, 0
    for rows in cut(clicks, cuts):
        watermark_ms = None if latest_ms is None else latest_ms - DELAY_S * 1000
        done = one.run(Sent(rows, first=first), watermark_ms=watermark_ms)
        found += done.rows("out", "n", "seen")
        moments = [round(row["at"].timestamp() * 1000) for row in rows]
        latest_ms = max([*moments, *([] if latest_ms is None else [latest_ms])])
        first += len(rows)

    assert sorted(found) == expected


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    some=st.lists(acts, min_size=8, max_size=20),
    cuts=st.sets(st.integers(1, 19), max_size=4),
    partitions=st.integers(1, 4),
)
def test_any_number_of_partitions_gives_what_a_dict_gives(
    tmp_path_factory: pytest.TempPathFactory, some: list[Act], cuts: set[int], partitions: int
) -> None:
    """The same of a whole job, whose watermark comes from two partitions of its source."""
    clicks, expected = of_acts(some)
    folder = tmp_path_factory.mktemp("job")
    log = clicks_log(folder, partitions=2, key="user")
    job = ps.Job("clicks", partitions=partitions, order="log")
    read = job.read(log, name="clicks", event_time="at", delay=f"{DELAY_S} s").key_by("user")
    read.process(keep).write(ps.Table("out"))
    run = LocalRun(job, folder)
    for rows in cut(clicks, cuts):
        append(log, rows)
        run.run()

    assert run.rows("out", "n", "seen") == expected
