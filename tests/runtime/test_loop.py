"""The epoch loop: what fails in passing is tried again, what does not is said, in order."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.checkpoint.collector import Retention
from penstock.errors import Unavailable
from penstock.ids import Generation
from penstock.runtime import loop as epoch_loop
from penstock.runtime.checking import Outcome
from penstock.runtime.loop import Runner, position_of
from penstock.runtime.telling import EpochDone
from penstock.runtime.wire import Plan
from tests.support.driving import ManualClock
from tests.support.in_process import SETTINGS, LocalRun, append, click, clicks_log

Rows = Iterator[dict[str, Any]]


@ps.stateful(emits="user string, total long")
def count(user: str, events: ps.Events, so_far: ps.Value[int]) -> Rows:
    """Sums per user."""
    so_far.set(so_far.get(0) + sum(events.values("n")))
    yield {"user": user, "total": so_far.get()}


SMALL_EPOCHS = replace(SETTINGS, limits=ps.Limits(records=2))


def counting(folder: Path, rows: int = 4, **topic: Any) -> LocalRun:
    """A job that sums, and a topic with some rows."""
    log = clicks_log(folder, **topic)
    append(log, [click("ada", 1, n) for n in range(rows)])
    job = ps.Job("clicks", partitions=2)
    job.read(log, event_time="at").key_by("user").process(count).write(ps.Table("totals"))
    return LocalRun(job, folder)


@dataclass
class Failing:
    """A runner that fails before, or after, somebody else has done the work."""

    inner: Runner
    failures: list[Callable[[], None]]
    """What happens at each run, until there is no more of it."""
    alive: bool = True
    runs: int = 0

    def run(self, plan: Plan) -> Outcome:
        self.runs += 1
        if self.failures:
            self.failures.pop(0)()
        return self.inner.run(plan)

    def is_alive(self) -> bool:
        return self.alive


def lost() -> None:
    raise Unavailable("Spark", "failed (executor lost)", "the epoch is tried again")


def nothing() -> None:
    """Lets a run be."""


def around(*failures: Callable[[], None], alive: bool = True) -> Callable[[Runner], Runner]:
    return lambda runner: Failing(runner, list(failures), alive)


def test_what_fails_in_passing_is_tried_again(tmp_path: Path) -> None:
    """Whole, after waiting twice as long each time, and it counts once."""
    run = counting(tmp_path)
    clock = run.clock
    assert isinstance(clock, ManualClock)
    before_s = clock.now_s
    ran = run.run(around=around(lost, lost, lost))

    assert (ran.epochs, ran.retries) == (1, 3)
    assert clock.now_s - before_s == 1 + 2 + 4
    assert run.rows("totals", "user", "total") == [("ada", 4)]


def test_it_gives_up_with_a_reason_and_something_to_do(tmp_path: Path) -> None:
    """Nothing of the epoch is committed, and the next start goes on from there."""
    run = counting(tmp_path)
    with pytest.raises(Unavailable) as caught:
        run.run(replace(SETTINGS, retries_max=2), around=around(lost, lost, lost))

    assert str(caught.value) == (
        "job clicks gave epoch 1 up after 3 tries (the last time Spark failed (executor lost)): "
        "mend that and start the job again; it goes on from the last committed epoch."
    )
    assert run.root.newest() is None
    assert run.run().epochs == 1
    assert run.rows("totals", "user", "total") == [("ada", 4)]


def test_it_does_not_try_again_without_spark(tmp_path: Path) -> None:
    """A driver that has lost its executors for good should be started anew."""
    run = counting(tmp_path)
    with pytest.raises(Unavailable) as caught:
        run.run(around=around(lost, alive=False))

    assert str(caught.value) == (
        "job clicks lost Spark during epoch 1 (Spark failed (executor lost)): "
        "start the job again; it goes on from the last committed epoch."
    )


def test_a_mistake_in_the_job_is_not_tried_again(tmp_path: Path) -> None:
    """It would fail in the same way; the epochs before it stay committed."""

    @ps.stateful()
    def picky(user: str, events: ps.Events, seen: ps.Value[int]) -> None:
        seen.set(100 // sum(events.values("n")))

    log = clicks_log(tmp_path)
    append(log, [click("ada", 1), click("ada", 1), click("ada", 0)])
    job = ps.Job("clicks", partitions=1)
    job.read(log).key_by("user").process(picky)
    run = LocalRun(job, tmp_path)
    with pytest.raises(ps.Invalid, match="operator 'picky', key 'ada' raised ZeroDivisionError"):
        run.run(SMALL_EPOCHS)

    assert len(run.runners[0].plans) == 2
    assert run.root.head().epoch == 1


def test_an_epoch_that_is_not_whole_is_tried_again(tmp_path: Path) -> None:
    """A report that got lost, in this case."""

    class Forgetful(Failing):
        def run(self, plan: Plan) -> Outcome:
            outcome = super().run(plan)
            cut = outcome.reports[:-1] if self.runs == 1 else outcome.reports
            return Outcome(cut, outcome.failures, outcome.observed)

    run = counting(tmp_path)
    ran = run.run(around=lambda runner: Forgetful(runner, []))

    assert (ran.epochs, ran.retries) == (1, 1)
    assert run.rows("totals", "user", "total") == [("ada", 4)]


def test_a_leader_that_was_deposed_stops_for_good(tmp_path: Path) -> None:
    """Its epoch was complete, and is not there; the one that took over is not disturbed."""
    run = counting(tmp_path, rows=6)

    def depose() -> None:
        run.root.lead("clicks")

    with pytest.raises(ps.Fenced) as caught:
        run.run(SMALL_EPOCHS, around=around(nothing, depose))

    assert (caught.value.held, caught.value.newest) == (1, 2)
    assert run.root.head().epoch <= 1
    run.run(SMALL_EPOCHS)
    assert ps.read_table(run.url, "totals").column("total").to_pylist() == [2, 4, 6]


def test_rows_that_are_not_where_their_key_says_are_shuffled(tmp_path: Path) -> None:
    """A topic may have been appended to by partition; then its key says nothing."""
    log = clicks_log(tmp_path, partitions=2, key="user")
    for partition in (0, 1):
        append(log, [click(f"user {n}", 1) for n in range(5)], partition)
    job = ps.Job("clicks", partitions=2)
    job.read(log).key_by("user").process(count).write(ps.Table("totals"))
    run = LocalRun(job, tmp_path)
    ran = run.run(replace(SETTINGS, limits=ps.Limits(records=4)))

    found = ps.read_table(run.url, "totals", latest_by="user").select(["user", "total"])
    assert sorted(map(tuple, map(dict.values, found.to_pylist()))) == [
        (f"user {n}", 2) for n in range(5)
    ]
    assert ran.retries == 1
    assert [plan.direct for plan in run.runners[0].plans] == [True, False, False, False]


def test_a_run_ends_when_it_is_told_to(tmp_path: Path) -> None:
    """By a signal, after the epoch under way; or by the number of an epoch."""
    run = counting(tmp_path, rows=8)
    asked = iter([False, True])

    assert run.run(SMALL_EPOCHS, stopped=lambda: next(asked)).last_epoch == 1
    assert run.run(replace(SMALL_EPOCHS, epochs_max=3)).last_epoch == 3
    assert run.run(SMALL_EPOCHS).last_epoch == 4
    assert run.rows("totals", "total") == [(2,), (4,), (6,), (8,)]


def test_with_nothing_to_do_nothing_is_committed(tmp_path: Path) -> None:
    """An idle job looks now and then, and costs no epochs."""
    run = counting(tmp_path, rows=0)
    clock = run.clock
    stop_s = clock.monotonic() + 10
    ran = run.run(replace(SETTINGS, until=None), stopped=lambda: clock.monotonic() >= stop_s)

    assert (ran.epochs, run.root.newest()) == (0, None)


def test_epochs_begin_at_least_so_far_apart(tmp_path: Path) -> None:
    """Fewer, larger epochs, for those who pay by the request."""
    run = counting(tmp_path)
    assert isinstance(run.clock, ManualClock)
    before_s = run.clock.now_s
    run.run(replace(SMALL_EPOCHS, every_s=5.0))

    assert run.clock.now_s - before_s == 2 * 5.0


@dataclass
class Heard:
    """A listener that keeps what it hears."""

    done: list[EpochDone]
    why: list[str]

    def committed(self, done: EpochDone) -> None:
        self.done.append(done)

    def retried(self, epoch: int, why: str) -> None:
        self.why.append(f"{epoch}: {why}")


def test_every_epoch_is_told_once_it_is_real(tmp_path: Path) -> None:
    """With what is left to read, and why it took more than one try."""
    run, heard = counting(tmp_path), Heard([], [])
    run.run(SMALL_EPOCHS, around=around(lost), listener=heard)

    assert [(d.epoch, d.rows_in, d.rows_out, d.retries) for d in heard.done] == [
        (1, 2, 1, 1),
        (2, 2, 1, 0),
    ]
    assert heard.done[0].lag == {"clicks": {"0": 2}}
    assert heard.why == ["1: Spark failed (executor lost): the epoch is tried again."]


def test_the_chain_says_where_the_loop_stands(tmp_path: Path, monkeypatch: Any) -> None:
    """A successor finds the very position that the leader had in its head, indexes and all."""
    monkeypatch.setattr(epoch_loop, "INDEX_EVERY", 3)
    run = counting(tmp_path, rows=17)
    run.run(SMALL_EPOCHS)
    newest = run.root.newest()
    assert newest is not None

    assert newest.epoch == 9
    assert newest.tables["totals"].epoch == 7
    topology = run.loops[0].planner.topology
    assert position_of(run.root, newest, Generation(1), topology) == run.loops[0].position


def test_a_table_stays_whole_while_history_is_given_up(tmp_path: Path, monkeypatch: Any) -> None:
    """Its index names what the manifests that are gone have added."""
    monkeypatch.setattr(epoch_loop, "INDEX_EVERY", 3)
    run = counting(tmp_path, rows=24)
    short = Retention(epochs=1, age_s=0, grace_s=0)
    run.run(replace(SMALL_EPOCHS, collect_every=4, retention=short))

    assert run.rows("totals", "total") == [(2 * n,) for n in range(1, 13)]
    assert run.root.head().floor > 1
    assert run.root.check().clean
