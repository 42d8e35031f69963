"""The time of a job, under a wall clock that is wrong for a while."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.runtime.telling import EpochDone, Silent
from penstock.steady_time import BELIEVED_AFTER_S, LEAP_MS, PACE, SteadyTime
from tests.support.driving import Stage
from tests.support.history import led, work
from tests.support.in_process import SETTINGS, LocalRun, append, click, clicks_log

YEAR_S = 365 * 86_400.0
START_MS = 1_000_000


@dataclass
class TwoHands:
    """A clock whose wall can be set; its monotonic side only goes on."""

    passed_s: float = 0.0
    off_s: float = 0.0

    def wall(self) -> float:
        return 1000.0 + self.passed_s + self.off_s

    def monotonic(self) -> float:
        return self.passed_s

    def sleep(self, seconds: float) -> None:
        self.passed_s += seconds


class Job:
    """Looks at the time as a job does, and writes down what it is told."""

    def __init__(self, last_ms: int = 0) -> None:
        self.clock = TwoHands()
        self.last_ms = last_ms
        self._time = SteadyTime(self.clock)

    def after(self, seconds: float, off_s: float | None = None) -> int:
        """The time so much later, with the wall clock so much wrong from then on."""
        self.clock.sleep(seconds)
        self.clock.off_s = self.clock.off_s if off_s is None else off_s
        before, self.last_ms = self.last_ms, self._time.now_ms(self.last_ms)
        assert self.last_ms >= before
        return self.last_ms

    def restart(self) -> None:
        """A new process, which knows what was written down."""
        self._time = SteadyTime(self.clock)


def test_a_right_clock_is_followed_exactly() -> None:
    """Also one that is corrected by a little, and one that has drifted."""
    job = Job()

    assert job.after(0) == START_MS
    assert job.after(7200) == START_MS + 7_200_000
    assert job.after(1, off_s=5) == START_MS + 7_206_000
    assert job.after(1, off_s=4.95) == START_MS + 7_206_950


def test_one_bad_reading_moves_nothing() -> None:
    """A year ahead and back: time has gone on as if nothing had been."""
    job = Job()
    job.after(0)

    assert job.after(1, off_s=YEAR_S) == START_MS + 1000
    assert job.after(1, off_s=0) == START_MS + 2000
    assert job.after(1200) == START_MS + 1_202_000


@pytest.mark.parametrize("readings", [3, 7])
def test_a_clock_that_stays_where_it_leapt_is_believed(readings: int) -> None:
    """A machine that slept for hours wakes up with the right time, and the job takes it."""
    job, step_s = Job(), BELIEVED_AFTER_S / (readings - 1)
    job.after(0)
    leapt = [job.after(1, off_s=3600), *(job.after(step_s) for _ in range(readings - 1))]

    waited_ms = 1000 + round((readings - 2) * step_s * 1000)
    assert leapt[-2] == START_MS + waited_ms
    assert leapt[-1] == round(job.clock.wall() * 1000)


def test_a_clock_that_leaps_about_is_not_believed() -> None:
    """A minute of readings that contradict each other proves nothing."""
    job = Job()
    job.after(0)
    for number in range(1, 21):
        assert job.after(10, off_s=number * YEAR_S) == START_MS + number * 10_000


def test_time_that_is_ahead_goes_on_and_meets_the_clock_again() -> None:
    """An hour ahead that was believed is worked off, and never by going back."""
    job = Job()
    job.after(0, off_s=3600)

    assert job.after(1200, off_s=0) == START_MS + 3_600_000 + round(1_200_000 * PACE)
    lead_s = (job.last_ms - job.clock.wall() * 1000) / 1000
    assert job.after(lead_s / (1 - PACE)) == round(job.clock.wall() * 1000)
    assert job.after(60) == round(job.clock.wall() * 1000)


def test_a_root_that_was_carried_a_year_ahead_goes_on() -> None:
    """What is written down cannot be taken back; from there time passes, life after life."""
    ahead_ms = START_MS + round(YEAR_S * 1000)
    job = Job(ahead_ms)

    assert job.after(0) == ahead_ms
    assert job.after(1200) == ahead_ms + round(1_200_000 * PACE)
    job.restart()
    assert job.after(0) == ahead_ms + round(1_200_000 * PACE)
    assert job.after(1200) == ahead_ms + 2 * round(1_200_000 * PACE)


def test_a_job_that_was_stopped_for_a_week_takes_the_time_at_once() -> None:
    """A run that only catches up is over in seconds: it cannot wait for a clock to prove itself."""
    job = Job()
    job.after(0)
    job.restart()

    assert job.after(7 * 86_400) == START_MS + 7 * 86_400_000


def test_it_says_when_a_clock_is_wrong_and_not_twice(caplog: pytest.LogCaptureFixture) -> None:
    """A person must hear of it; a log full of it would be no help."""
    job = Job()
    job.after(0)
    with caplog.at_level(logging.WARNING, "penstock.clock"):
        for _ in range(5):
            job.after(1, off_s=YEAR_S)
        for _ in range(5):
            job.after(1, off_s=-7200)

    assert [record.getMessage() for record in caplog.records] == [
        "the wall clock has leapt 31536000 s ahead; the job follows if it stays so for 60 s",
        "the wall clock is 7200 s behind the time of the job, which goes on at 90 % of its pace "
        "until the clock has caught up",
    ]


def test_how_far_it_leaps_at_once_is_bounded() -> None:
    """By a minute, which is what the lead over a right clock can be."""
    job = Job()
    job.after(0)

    assert job.after(0, off_s=LEAP_MS / 1000) == START_MS + LEAP_MS
    assert job.after(0, off_s=LEAP_MS / 1000 + 61) == START_MS + LEAP_MS


@given(
    st.lists(
        st.tuples(st.floats(0, 1e5), st.one_of(st.just(0.0), st.floats(-1e9, 1e9))), max_size=30
    )
)
def test_under_any_clock_it_neither_falls_nor_stands_still(
    steps: list[tuple[float, float]],
) -> None:
    """Nine tenths of the time that has passed is the least it goes on by."""
    job = Job()
    before_ms = job.after(0)
    for elapsed_s, off_s in steps:
        now_ms = job.after(elapsed_s, off_s)
        assert now_ms - before_ms >= PACE * elapsed_s * 1000 - 1
        before_ms = now_ms


@ps.stateful(emits="user string, slept_s long")
def nap(
    user: str,
    events: ps.Events,
    moment: ps.Moment,
    since: ps.Value[int],
    wake: Annotated[ps.Timer, ps.by_clock("processing")],
) -> Iterator[dict[str, Any]]:
    """Wakes up ten minutes after its first event, and says how long that was."""
    now_ms = round(moment.time.timestamp() * 1000)
    if wake.fired is None:
        since.set(now_ms)
        wake.set(now_ms + 600_000)
    else:
        yield {"user": user, "slept_s": (now_ms - since.get(0)) // 1000}


def napping(folder: Path, wrong: Callable[[float], float]) -> tuple[LocalRun, list[float]]:
    """A job that naps for twenty minutes; `wrong` says how far off the wall clock is when. How
    long it ran until its table had a row is measured by the monotonic side."""
    log, job, clock = clicks_log(folder), ps.Job("clicks", partitions=1), TwoHands()
    stream = job.read(log, name="clicks").key_by("user")
    stream.process(nap).write(ps.Table("out"))
    append(log, [click("ada", 1)])
    run, woke = LocalRun(job, folder, clock), []

    class Watch(Silent):
        def committed(self, done: EpochDone) -> None:
            if done.rows_out:
                woke.append(clock.passed_s)

    def stopped() -> bool:
        clock.off_s = wrong(clock.passed_s)
        return clock.passed_s > 1200

    run.run(replace(SETTINGS, until=None, poll_s=10.0), stopped=stopped, listener=Watch())
    return run, woke


def test_a_timer_fires_in_time_though_the_clock_leapt(tmp_path: Path) -> None:
    """Neither a year early, nor a year late."""
    run, woke = napping(tmp_path, lambda at_s: YEAR_S if 100 <= at_s < 120 else 0.0)

    assert run.rows("out", "slept_s") == [(600,)]
    assert woke == [600.0]


def test_a_timer_fires_though_the_clock_went_back(tmp_path: Path) -> None:
    """A tenth late, by a clock that is an hour wrong, where it would have been an hour late."""
    run, woke = napping(tmp_path, lambda at_s: -3600.0 if at_s >= 100 else 0.0)

    [(slept_s,)] = run.rows("out", "slept_s")
    assert 600 <= slept_s < 610
    assert 600.0 < woke[0] <= 600.0 / PACE + 10


def test_planned_time_strictly_grows_and_goes_on_in_an_old_root(tmp_path: Path) -> None:
    """Its newest manifest was planned a year ahead of the clock: timers would wait for a year."""
    log, job, clock = clicks_log(tmp_path), ps.Job("clicks", partitions=1), TwoHands(off_s=YEAR_S)
    job.read(log, name="clicks").key_by("user").process(nap).write(ps.Table("out"))
    append(log, [click("ada", 1)])
    run = LocalRun(job, tmp_path, clock)
    run.run()
    clock.off_s = 0.0
    settings = replace(SETTINGS, until=None, poll_s=10.0)
    run.run(settings, stopped=lambda: clock.passed_s > 700)
    planned = [manifest.planned_ms for manifest in run.root.history()][::-1]

    assert planned[0] == START_MS + round(YEAR_S * 1000)
    assert all(later > before for before, later in pairwise(planned))
    [(slept_s,)] = run.rows("out", "slept_s")
    assert 600 <= slept_s < 610


def test_commits_are_not_carried_away_by_one_reading() -> None:
    """Epochs before it would all count as a year old, and those after it as just committed."""
    clock = TwoHands()
    stage = Stage(clock=clock)  # type: ignore[arg-type]
    leader, chance = led(stage)
    written = []
    for number in range(8):
        clock.off_s = YEAR_S if number in (3, 4) else 0.0
        written.append(stage.run(work(leader, chance)).at_ms)
        clock.sleep(10)

    assert written == [START_MS + number * 10_000 for number in range(8)]


def test_commits_go_on_in_a_root_that_is_a_year_ahead() -> None:
    """Age is told by the difference of two of them: none would ever be old enough to be removed."""
    clock = TwoHands(off_s=YEAR_S)
    stage = Stage(clock=clock)  # type: ignore[arg-type]
    leader, chance = led(stage)
    ahead = stage.run(work(leader, chance)).at_ms
    clock.off_s = 0.0
    leader, chance = led(stage, "two")
    written = []
    for _ in range(3):
        written.append(stage.run(work(leader, chance)).at_ms)
        clock.sleep(1000)

    assert written == [ahead + number * round(1_000_000 * PACE) for number in range(3)]
