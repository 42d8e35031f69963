"""Whole jobs in one process, against a few lines of plain Python that say what is right."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from tests.support.in_process import SETTINGS, LocalRun, append, click, clicks_log

Rows = Iterator[dict[str, Any]]
SMALL_EPOCHS = replace(SETTINGS, limits=ps.Limits(records=40))


@ps.stateful(emits="user string, total long")
def count(user: str, events: ps.Events, so_far: ps.Value[int]) -> Rows:
    """Sums per user."""
    so_far.set(so_far.get(0) + sum(events.values("n")))
    yield {"user": user, "total": so_far.get()}


def some_clicks(count: int, seed: int = 1) -> list[dict[str, Any]]:
    """Clicks of eleven users, their times shuffled and all different."""
    random = Random(seed)
    times = random.sample(range(count), count)
    return [click(f"user {random.randrange(11)}", n, at) for n, at in enumerate(times)]


def sums(rows: list[dict[str, Any]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows:
        found[row["user"]] = found.get(row["user"], 0) + row["n"]
    return found


def latest(run: LocalRun, table: str, key: str, value: str) -> dict[Any, Any]:
    """The last row of each key."""
    rows = ps.read_table(run.url, table, latest_by=key).to_pylist()
    return {row[key]: row[value] for row in rows}


@pytest.mark.parametrize("partitions", [1, 2, 4, 8])
@pytest.mark.parametrize("topic", [{}, {"partitions": 4, "key": "user"}], ids=["plain", "keyed"])
def test_a_count_per_key_is_right(tmp_path: Path, partitions: int, topic: dict[str, Any]) -> None:
    """Over several epochs, shuffled or read where it is kept."""
    rows, log = some_clicks(200), clicks_log(tmp_path, **topic)
    append(log, rows)
    job = ps.Job("clicks", partitions=partitions)
    job.read(log, event_time="at").key_by("user").process(count).write(ps.Table("totals"))
    run = LocalRun(job, tmp_path)
    ran = run.run(SMALL_EPOCHS)

    assert latest(run, "totals", "user", "total") == sums(rows)
    assert (ran.epochs, ran.rows_in, ran.retries) == (5, 200, 0)
    assert run.runners[0].plans[0].direct == (bool(topic) and partitions <= 4)
    assert run.root.check().clean


@ps.stateful(emits="bucket long, n long", sides={"woken": "bucket long, n long"}, each=True)
def spread(user: str, event: ps.Event | None, wake: ps.Timer) -> Iterator[Any]:
    """Passes every event on under another key, and once more a while later."""
    if event is None:
        yield ps.to("woken", {"bucket": 0, "n": wake.fired})
        return
    yield {"bucket": event.n % 3, "n": event.n}
    wake.set(1000 * (event.n % 7) + 20_000)


@ps.stateful(emits="bucket long, n long, digest long")
def digest(bucket: int, events: ps.Events, so_far: ps.Value[int]) -> Rows:
    """A number that depends on every event and on their order."""
    for event in events:
        so_far.set((so_far.get(7) * 31 + event.n) % 1_000_003)
        yield {"bucket": bucket, "n": event.n, "digest": so_far.get()}


def chain(folder: Path, log: ps.Log, partitions: int, order: str) -> LocalRun:
    """Two operators, the second fed with both outputs of the first."""
    job = ps.Job("clicks", partitions=partitions, order=order)
    spreading = job.read(log, event_time="at").key_by("user").process(spread)
    both = ps.merge(spreading.key_by("bucket"), spreading.side("woken").key_by("bucket"))
    both.process(digest).write(ps.Table("digests"))
    run = LocalRun(job, folder, seed=partitions)
    run.run(replace(SMALL_EPOCHS, read_tasks=partitions))
    return run


@pytest.mark.parametrize("order", ["event-time", "log"])
def test_a_chain_gives_the_same_rows_whatever_the_partitions(tmp_path: Path, order: str) -> None:
    """Timers, side outputs and equal times included: results are a matter of the input alone."""
    log = clicks_log(tmp_path, partitions=2)
    for partition, rows in enumerate((some_clicks(40), some_clicks(40, seed=2))):
        append(log, rows, partition)
    found = {
        partitions: chain(tmp_path / str(partitions), log, partitions, order).rows(
            "digests", "_epoch", "bucket", "n", "digest"
        )
        for partitions in (1, 2, 4, 8)
    }

    assert len(found[1]) > 80
    assert found[2] == found[1]
    assert found[4] == found[1]
    assert found[8] == found[1]


def test_a_chain_sees_events_in_the_order_of_their_own_times(tmp_path: Path) -> None:
    """An event's time goes on with what is made of it, not that of its key's last."""
    rows, log = some_clicks(100), clicks_log(tmp_path)
    append(log, rows)
    job = ps.Job("clicks", partitions=4)
    spreading = job.read(log, event_time="at").key_by("user").process(spread)
    spreading.key_by("bucket").process(digest).write(ps.Table("digests"))
    run = LocalRun(job, tmp_path)
    run.run(SMALL_EPOCHS)

    digests = dict.fromkeys(range(3), 7)
    for first in range(0, 100, 40):
        for row in sorted(rows[first : first + 40], key=lambda row: row["at"]):
            bucket = row["n"] % 3
            digests[bucket] = (digests[bucket] * 31 + row["n"]) % 1_000_003
    assert latest(run, "digests", "bucket", "digest") == digests


@ps.stateful(emits="key long, clicks long")
def both_ends(key: int, events: ps.Events, so_far: ps.Value[int]) -> Rows:
    """Counts."""
    so_far.set(so_far.get(0) + len(events))
    yield {"key": key, "clicks": so_far.get()}


def test_one_source_can_feed_an_operator_by_two_keys(tmp_path: Path) -> None:
    """Every row comes twice, once by each."""
    log = ps.Log.create(
        str(tmp_path / "calls"), pa.schema([("caller", pa.int64()), ("called", pa.int64())])
    )
    append(log, [{"caller": n % 3, "called": n % 4} for n in range(24)])
    job = ps.Job("calls", partitions=4)
    calls = job.read(log)
    ends = ps.merge(calls.key_by("caller"), calls.key_by("called")).process(both_ends)
    ends.write(ps.Table("ends"))
    run = LocalRun(job, tmp_path)
    run.run()

    assert latest(run, "ends", "key", "clicks") == {0: 14, 1: 14, 2: 14, 3: 6}


def test_a_source_is_written_as_it_is(tmp_path: Path) -> None:
    """Every row once, with where it is from."""
    log = clicks_log(tmp_path, partitions=2)
    for partition in (0, 1):
        append(log, [click("ada", n, n) for n in range(3)], partition)
    job = ps.Job("clicks", partitions=2)
    job.read(log).write(ps.Table("copies"))
    run = LocalRun(job, tmp_path)
    ran = run.run()

    assert run.rows("copies", "user", "n") == [("ada", n) for n in (0, 0, 1, 1, 2, 2)]
    assert ran.rows_out == 6


@ps.stateful(emits="user string, closed_ms long, clicks long")
def windows(user: str, events: ps.Events, open_: ps.Map[int, int], close: ps.Timer) -> Rows:
    """Clicks per ten seconds, told when they are over."""
    if close.fired is not None:
        yield {"user": user, "closed_ms": close.fired, "clicks": open_.get(close.fired)}
        open_.remove(close.fired)
    for event in events:
        end_ms = (int(event.at.timestamp()) // 10 + 1) * 10_000
        open_.set(end_ms, open_.get(end_ms, 0) + 1)
        close.set(end_ms)


def test_caught_up_means_that_timers_have_fired_too(tmp_path: Path) -> None:
    """Windows that the last events have closed are told without waiting for more events."""
    log = clicks_log(tmp_path)
    append(log, [click("ada", 1, 3), click("bob", 1, 9), click("ada", 1, 4), click("bob", 1, 25)])
    job = ps.Job("clicks", partitions=2)
    job.read(log, event_time="at").key_by("user").process(windows).write(ps.Table("windows"))
    run = LocalRun(job, tmp_path)
    run.run()

    assert run.rows("windows", "user", "closed_ms", "clicks", "_input") == [
        ("ada", 10_000, 2, []),
        ("bob", 10_000, 1, []),
    ]


def test_a_timer_that_is_set_too_late_fires_all_the_same(tmp_path: Path) -> None:
    """Time does not move on with a late event, so nothing else would wake its window."""
    log = clicks_log(tmp_path)
    job = ps.Job("clicks", partitions=1)
    job.read(log, event_time="at").key_by("user").process(windows).write(ps.Table("windows"))
    run = LocalRun(job, tmp_path)
    for at_s in (100, 5):
        append(log, [click("ada", 1, at_s)])
        run.run()

    assert run.rows("windows", "closed_ms", "clicks") == [(10_000, 1)]
    assert run.run().epochs <= 1


@pytest.mark.parametrize("idle", [None, "5 s"])
def test_a_silent_partition_is_waited_for_unless_it_may_be_idle(
    tmp_path: Path, idle: str | None
) -> None:
    """The clock alone brings time on then, with nothing new to read."""
    log = clicks_log(tmp_path, partitions=2)
    append(log, [click("ada", 1, 3), click("ada", 1, 25)], 0)
    job = ps.Job("clicks", partitions=1)
    stream = job.read(log, event_time="at", idle=idle).key_by("user")
    stream.process(windows).write(ps.Table("windows"))
    run = LocalRun(job, tmp_path)
    started_s = run.clock.monotonic()
    run.run(replace(SETTINGS, until=None), stopped=lambda: run.clock.monotonic() - started_s > 30)

    told = ps.read_table(run.url, "windows")
    assert told.num_rows == (0 if idle is None else 1)


def test_a_job_goes_on_exactly_where_it_was(tmp_path: Path) -> None:
    """However often it is stopped, on whichever host, every event counts once."""
    rows, log = some_clicks(300), clicks_log(tmp_path, partitions=3, key="user")
    job = ps.Job("clicks", partitions=3)
    job.read(log, event_time="at").key_by("user").process(count).write(ps.Table("totals"))
    run = LocalRun(job, tmp_path)
    for life, first in enumerate(range(0, 300, 60)):
        append(log, rows[first : first + 60])
        run.run(replace(SMALL_EPOCHS, state_folder=str(tmp_path / f"host {life}")))

    assert latest(run, "totals", "user", "total") == sums(rows)
    assert run.run().epochs == 0
    spans = [task.ranges for runner in run.runners for plan in runner.plans for task in plan.tasks]
    assert sum(each.stop - each.start for ranges in spans for each in ranges) == 300


def test_a_job_that_starts_at_the_end_sees_what_comes_then(tmp_path: Path) -> None:
    """The end is that of its first start, not of the last time it looked."""
    log = clicks_log(tmp_path)
    append(log, [click("ada", 100)])
    job = ps.Job("clicks", partitions=1)
    stream = job.read(log, event_time="at", start="latest").key_by("user")
    stream.process(count).write(ps.Table("totals"))
    run = LocalRun(job, tmp_path)
    run.run()
    append(log, [click("ada", 1), click("ada", 2)])
    run.run()

    assert run.rows("totals", "user", "total") == [("ada", 3)]


def test_letters_are_kept_in_the_same_commit(tmp_path: Path) -> None:
    """What failed and what did not add up to what was read."""

    @ps.stateful(emits="user string, n long", each=True)
    def picky(user: str, event: ps.Event | None) -> Rows:
        assert event is not None
        yield {"user": user, "n": 100 // event.n}

    log = clicks_log(tmp_path)
    append(log, [click("ada", 0), click("bob", 5), click(None, 1), click("ada", 4)])
    job = ps.Job("clicks", partitions=2)
    stream = job.read(log).key_by("user").process(picky, on_error="quarantine")
    stream.write(ps.Table("out"))
    run = LocalRun(job, tmp_path)
    ran = run.run()

    assert run.rows("out", "user", "n") == [("ada", 25), ("bob", 20)]
    assert sorted(run.rows("picky.dead-letters", "_offset", "_key", "_error")) == [
        (0, "'ada'", "ZeroDivisionError: integer division or modulo by zero"),
        (2, "None", "the key is null"),
    ]
    assert (ran.rows_in, ran.rows_out, ran.quarantined) == (4, 4, 2)
