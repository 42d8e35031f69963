"""Event times that no calendar has: refused or set aside by name, and never a deadly watermark."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner

import penstock as ps
from penstock.calendar import FIRST_MS, LAST_MS, datetime_of
from penstock.checkpoint.manifest import Draft, PartitionState, SourceProgress
from penstock.ids import Epoch
from penstock.runtime.cli import app
from penstock.runtime.events import Moment
from penstock.runtime.view import PlainView
from penstock.sources import Range
from tests.support.in_process import (
    CLICKS,
    SETTINGS,
    LocalRun,
    OnePartition,
    Sent,
    append,
    click,
    clicks_log,
    no_spark,
)
from tests.support.logs import AT_ONCE, new_log

Rows = Iterator[dict[str, Any]]
TWO_A_TIME = replace(SETTINGS, limits=ps.Limits(records=2))
NONSENSE_US = 1_700_000_000_000_000_000
"""Nanoseconds that somebody took for microseconds: the year 55840."""


@ps.stateful(emits="user string, total long, mark timestamp")
def total(user: str, events: ps.Events, moment: ps.Moment, so_far: ps.Value[int]) -> Rows:
    """Sums per user, and says how far event time had come."""
    so_far.set(so_far.get(0) + sum(events.values("n")))
    yield {"user": user, "total": so_far.get(), "mark": moment.watermark}


def clicks_at(*times_us: int) -> pa.Table:
    """Clicks at any times; the n-th counts n."""
    times = pa.array(times_us, pa.int64()).cast(CLICKS.field("at").type)
    numbers = pa.array(range(1, len(times_us) + 1), pa.int64())
    return pa.table([pa.array(["ada"] * len(times_us)), numbers, times], schema=CLICKS)


def topic_of(folder: Path, *times_us: int, **settings: Any) -> ps.Log:
    log = clicks_log(folder, **settings)
    with log.producer(batching=AT_ONCE) as producer:
        producer.append(clicks_at(*times_us), 0)
    return log


def run_of(log: Any, folder: Path, **how: Any) -> LocalRun:
    job = ps.Job("clicks", partitions=2)
    stream = job.read(log, name="clicks", **how).key_by("user")
    stream.process(total).write(ps.Table("totals"))
    return LocalRun(job, folder)


REFUSED = (
    "source 'clicks', partition 0 has an event at offset 2 that cannot be decoded: its event time, "
    "{time} µs since 1970, is outside of the years 1 to 9999{column}: correct its unit where it is "
    "sent, or set such events aside by on_undecodable='quarantine'; of Files, by "
    "poison='quarantine'."
)


@pytest.mark.parametrize("time_us", [NONSENSE_US, 253_402_300_800_000_000, -62_135_596_800_000_001])
def test_a_nonsense_time_stops_the_job_with_its_place(tmp_path: Path, time_us: int) -> None:
    """Nothing of its epoch is committed, and the epochs before it stand."""
    run = run_of(topic_of(tmp_path, 0, 1, time_us), tmp_path, event_time="at")
    with pytest.raises(ps.Invalid) as caught:
        run.run(TWO_A_TIME)

    assert str(caught.value) == REFUSED.format(time=time_us, column=" (column 'at')")
    assert [manifest.epoch for manifest in run.root.history()] == [1]


def test_a_topics_own_event_time_is_looked_at_too(tmp_path: Path) -> None:
    """It makes no difference who says which column it is."""
    log = topic_of(tmp_path, 0, 1, NONSENSE_US, event_time="at")
    with pytest.raises(ps.Invalid) as caught:
        run_of(log, tmp_path).run()

    assert str(caught.value) == REFUSED.format(time=NONSENSE_US, column="")


def test_a_nonsense_time_is_set_aside_in_the_same_commit(tmp_path: Path) -> None:
    """The events beside it count, event time goes on, and the next life of the job does too."""
    log = topic_of(tmp_path, 0, NONSENSE_US, 5_000_000)
    run = run_of(log, tmp_path, event_time="at", on_undecodable="quarantine")
    ran = run.run(TWO_A_TIME)
    append(log, [click("ada", 10, 7)])
    run.run(TWO_A_TIME)

    assert run.rows("totals", "total", "mark") == [
        (1, None),
        (4, datetime(1970, 1, 1, tzinfo=UTC)),
        (14, datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)),
    ]
    [left] = ps.read_table(run.url, "clicks.undecodable").to_pylist()
    assert (left["_source"], left["_source_partition"], left["_offset"]) == ("clicks", "0", 1)
    assert left["_error"] == (
        f"its event time, {NONSENSE_US} µs since 1970, is outside of the years 1 to 9999"
    )
    assert json.loads(left["value"]) == {"user": "ada", "n": 2, "at": NONSENSE_US}
    assert left["_input"] == [{"from": "clicks/0", "first": 1, "last": 1}]
    assert ran.quarantined == 1
    assert run.root.check().clean


def test_a_range_of_nothing_but_nonsense_is_passed(tmp_path: Path) -> None:
    """A producer that has the unit wrong has it wrong in every event."""
    log = topic_of(tmp_path, *[NONSENSE_US + n for n in range(5)])
    run = run_of(log, tmp_path, event_time="at", on_undecodable="quarantine")
    run.run()

    assert run.rows("clicks.undecodable", "_offset") == [(n,) for n in range(5)]
    newest = run.root.newest()
    assert newest is not None
    assert (newest.rows_in, newest.sources["clicks"].resume_at["0"]) == (0, 5)
    assert newest.sources["clicks"].watermark_ms is None


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("ms", "Asia/Tokyo")])
def test_a_time_that_microseconds_cannot_tell_is_one_of_them(tmp_path: Path, kind: Any) -> None:
    """Only the job takes the column for a time, so only the job can say that it is none."""
    schema = pa.schema([("user", pa.string()), ("n", pa.int64()), ("at", kind)])
    log = ps.Log.create(str(tmp_path / "log"), schema)
    times = pa.array([0, (1 << 63) - 1], pa.int64()).cast(kind)
    with log.producer(batching=AT_ONCE) as producer:
        producer.append(pa.table([["ada", "ada"], [1, 2], times], schema=schema), 0)
    strict = run_of(log, tmp_path / "strict", event_time="at")
    with pytest.raises(ps.Invalid, match=r"partition 0 has an event at offset 1 that cannot be"):
        strict.run()
    lenient = run_of(log, tmp_path / "ok", event_time="at", on_undecodable="quarantine")
    lenient.run()

    assert lenient.rows("totals", "total") == [(1,)]
    assert lenient.rows("clicks.undecodable", "_offset") == [(1,)]


def files_of(folder: Path, name: str, poison: Any, event_time: str | None = None) -> ps.Files:
    """A folder with one file of two rows, the second at a nonsense time."""
    (folder / "in").mkdir(exist_ok=True)
    pq.write_table(clicks_at(0, NONSENSE_US), folder / "in" / "a.parquet")
    return ps.Files(
        str(folder / "in"),
        record=str(folder / name),
        settle_s=0,
        poison=poison,
        event_time=event_time,
    )


def test_a_nonsense_time_of_a_file_is_a_row_that_cannot_be_read(tmp_path: Path) -> None:
    """The policy of files is the one that is there: the row stops the job, or is left out."""
    strict = run_of(files_of(tmp_path, "r1", "fail", "at"), tmp_path / "strict")
    with pytest.raises(ps.Invalid, match=r"row 1, which is offset 1 of partition 0 \(its event ti"):
        strict.run()
    files = files_of(tmp_path, "r2", "quarantine", "at")
    lenient = run_of(files, tmp_path / "lenient")
    lenient.run()

    assert lenient.rows("totals", "total") == [(1,)]
    assert [each.offset for each in files.dropped("0", Range(start=0, stop=2))] == [1]


def test_files_that_leave_rows_out_set_aside_what_the_job_finds(tmp_path: Path) -> None:
    """A column that only the job takes for a time is the job's affair, by the same policy."""
    strict = run_of(files_of(tmp_path, "r1", "fail"), tmp_path / "strict", event_time="at")
    with pytest.raises(ps.Invalid, match="partition 0 has an event at offset 1 that cannot be"):
        strict.run()
    lenient = run_of(files_of(tmp_path, "r2", "quarantine"), tmp_path / "ok", event_time="at")
    lenient.run()

    assert lenient.rows("totals", "total") == [(1,)]
    assert lenient.rows("clicks.undecodable", "_offset") == [(1,)]


def test_a_source_with_a_policy_of_its_own_is_told_by_it(tmp_path: Path) -> None:
    """Two places for one policy would be one too many."""
    run = run_of(files_of(tmp_path, "r", "fail"), tmp_path, on_undecodable="quarantine")
    with pytest.raises(ps.Invalid) as caught:
        run.run()

    assert str(caught.value) == (
        "source 'clicks' is read with on_undecodable='quarantine', and has a policy of its own: "
        "say it there: Files(…, poison=…)."
    )


@pytest.mark.parametrize("policy", ["fail", "quarantine"])
def test_the_policy_of_kafka_holds_for_times_that_the_job_finds(policy: Any) -> None:
    """What the source cannot decode and what the job cannot date go the same way."""
    columns = "user string, n long, at timestamp"
    kafka = ps.Kafka("nowhere:9", "clicks", value="json", columns=columns, on_undecodable=policy)
    job = ps.Job("clicks")
    job.read(kafka, event_time="at").key_by("user").process(total).write(ps.Table("totals"))
    topology = job.topology("memory://root", no_spark)

    is_kept = policy == "quarantine"
    assert topology.sources["clicks"].sets_aside is is_kept
    assert (topology.undecodable_of("clicks") is not None) is is_kept


MARKS = [LAST_MS + 1, 1 << 50, (1 << 63) - 1, -1, FIRST_MS - 1, -(1 << 63) + 1]


def forge(run: LocalRun, mark_ms: int) -> None:
    """Commit an epoch that has read nothing and carried event time somewhere."""
    with run.root.lead(run.job.name) as session:
        newest = session.manifest
        assert newest is not None
        before = newest.sources["clicks"]
        session.commit(
            Draft(
                description=newest.description,
                sources={
                    "clicks": SourceProgress(
                        resume_at=before.resume_at,
                        watermark_ms=mark_ms,
                        seen_ms=dict.fromkeys(before.resume_at, mark_ms),
                        active_ms=before.active_ms,
                    )
                },
                operators={
                    name: dict.fromkeys(partitions, PartitionState())
                    for name, partitions in newest.operators.items()
                },
                sinks=dict.fromkeys(newest.sinks, ()),
                tables=newest.tables,
                planned_ms=newest.planned_ms + 1,
            )
        )


@pytest.mark.parametrize("mark_ms", MARKS)
def test_a_root_with_a_nonsense_watermark_runs_on(tmp_path: Path, mark_ms: int) -> None:
    """It was committed before such events were refused: the job counts on, and event time stands
    where the calendar ends."""
    log = topic_of(tmp_path, 0)
    run = run_of(log, tmp_path, event_time="at", delay="1 h")
    run.run()
    forge(run, mark_ms)
    append(log, [click("ada", 10, None)])
    run.run(listener=PlainView(Console(file=StringIO())))
    newest = run.root.newest()

    assert newest is not None
    assert newest.sources["clicks"].watermark_ms == mark_ms
    assert run.rows("totals", "total", "mark")[1:] == [(11, datetime_of(mark_ms))]
    assert CliRunner().invoke(app, ["status", run.url]).exit_code == 0
    assert CliRunner().invoke(app, ["status", run.url, "--json"]).exit_code == 0


@ps.stateful(emits="user string, n long")
def alarm(user: str, events: ps.Events, wake: ps.Timer) -> Rows:
    """Sets timers for times that no calendar has, and says when they fire."""
    for event in events:
        wake.set(event.n)
    if wake.fired is not None:
        yield {"user": user, "n": wake.fired}


@ps.stateful(emits="n long, at timestamp", each=True)
def seen(user: str, event: ps.Event | None) -> Rows:
    """Says when a row happened."""
    assert event is not None
    yield {"n": event.n, "at": event.meta.event_time}


def test_rows_of_a_timer_of_no_year_have_a_time(tmp_path: Path) -> None:
    """A timer can be set for any number; what it sets off goes on to the next operator."""
    log, job = clicks_log(tmp_path), ps.Job("clicks", partitions=2)
    woken = job.read(log, name="clicks", event_time="at").key_by("user").process(alarm)
    woken.key_by("user").process(seen).write(ps.Table("out"))
    run = LocalRun(job, tmp_path)
    append(log, [click("ada", -(1 << 62), 5)], 0)
    run.run()
    append(log, [click("ada", 1 << 61, 6)], 0)
    run.run()

    assert run.rows("out", "n", "at") == [(-(1 << 62), datetime(1, 1, 1, tzinfo=UTC))]


@pytest.mark.parametrize("mark_ms", MARKS)
def test_a_moment_can_be_made_of_any_watermark(mark_ms: int) -> None:
    """Every task of every epoch makes one."""
    moment = Moment("job", Epoch(1), mark_ms, mark_ms)

    assert moment.watermark == moment.time == datetime_of(mark_ms)
    assert FIRST_MS <= round(moment.time.timestamp() * 1000) <= LAST_MS


def quarantining(folder: Path, policy: str) -> OnePartition:
    job = ps.Job("clicks", partitions=1)
    stream = job.read(new_log(CLICKS), name="clicks", event_time="at").key_by("user")
    stream.process(total, on_error=policy).write(ps.Table("out"))
    return OnePartition(job, folder)


SENT = Sent([click("ada", 1), {**click("ada", 2), "at": NONSENSE_US}, click("bob", 3)], "4", 10)
"""Rows as they come out of a transform that has the unit wrong."""


def test_a_time_that_a_transform_made_is_refused_by_its_operator(tmp_path: Path) -> None:
    """Where the row comes from is known, so it is said."""
    failure = quarantining(tmp_path, "fail").attempt(SENT).failure

    assert str(failure.error()) == (
        f"operator 'total' was given an event of no year (its event time, {NONSENSE_US} µs since "
        "1970, is outside of the years 1 to 9999), at offset 11 of clicks, partition 4: filter "
        "such events out in a transform, or use on_error='quarantine'."
    )


def test_a_time_that_a_transform_made_is_a_letter(tmp_path: Path) -> None:
    """The time itself stands in the error: no reader of the letters can show it as one."""
    done = quarantining(tmp_path, "quarantine").run(SENT)
    [letter] = done.outputs["total.dead-letters"]

    assert sorted(done.rows("out", "user", "total")) == [("ada", 1), ("bob", 3)]
    assert {name: letter[name] for name in ("n", "at", "_key", "_offset", "_event_time")} == {
        "n": 2,
        "at": NONSENSE_US,
        "_key": "'ada'",
        "_offset": 11,
        "_event_time": None,
    }
    assert letter["_error"] == (
        f"its event time, {NONSENSE_US} µs since 1970, is outside of the years 1 to 9999"
    )
