"""`penstock chaos` on jobs of every other shape, by the ways their events come: on real Spark."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps
from penstock import chaos
from penstock.chaos.chaos_run import Result
from penstock.chaos.findings import Check, Verdict
from penstock.chaos.history import Family, commits, strikes
from penstock.clock import SystemClock

pytestmark = pytest.mark.slow

CLICKS = pa.schema([("user", pa.string()), ("n", pa.int64())])

ENDLESS = """
from datetime import datetime
import pyarrow as pa
import penstock as ps

COLUMNS = pa.schema([("user", pa.string()), ("n", pa.int64())])

@ps.stateful
def count(user: str, events: ps.Events, seen: ps.Value[int]) -> None:
    seen.set(seen.get(0) + len(events))

job = ps.Job("endless", partitions=2)
begin = datetime.fromisoformat({begin!r})
clicks = ps.Rate(columns=COLUMNS, rows_per_s=100, start=begin, key="user", keys=50)
job.read(clicks, name="clicks").key_by("user").process(count)

@ps.invariant
def every_click_is_counted(found):
    counted = sum(each["seen"] for each in found.state("count").values())
    events = found.events("clicks").num_rows
    return "" if counted == events > 0 else f"{{counted}} of {{events}}"
"""
"""State and nothing else: no sink, no event time, no end."""

HOOKED = """
import pyarrow as pa
import penstock as ps

@ps.stateful(emits="user string, n long")
def count(user: str, events: ps.Events, seen: ps.Value[int]):
    seen.set(seen.get(0) + sum(event.n for event in events))
    yield {{"user": user, "n": seen.get()}}

def post(epoch, batches):
    with open({posted!r}, "a") as file:
        for batch in batches:
            file.write(f"{{epoch.id}} {{batch.num_rows}}\\n")

COLUMNS = pa.schema([("user", pa.string()), ("n", pa.int64())])
job = ps.Job("hooked", partitions=2)
clicks = job.read(ps.Log({elsewhere!r}), name="clicks")
views = job.read(ps.Rate(columns=COLUMNS, rows=7, key="user"), name="views")
counts = ps.merge(clicks.key_by("user"), views.key_by("user")).process(count)
counts.write(ps.ForEachEpoch(post)).write(ps.Table("counts"))
"""
"""What it posts is gone; where its clicks come from is nowhere to be found here."""


def check_of(result: Result, name: str) -> Check:
    [found] = (check for check in result.run.checks if check.name == name)
    return found


def told(result: Result) -> list[str]:
    """Whatever is wrong or unknown, but for faults that a slow machine had no time for."""
    found = [each for check in result.run.checks for each in (*check.violations, *check.unknown)]
    return [line for line in map(str, found) if "did not come about" not in line]


def test_a_job_of_state_alone_runs_for_so_many_seconds(tmp_path: Path) -> None:
    """Its own source has no end, so the run ends it; that there is no sink to look at is no
    fault of the job's."""
    now = datetime.fromtimestamp(SystemClock().wall(), tz=UTC)
    file = tmp_path / "endless.py"
    file.write_text(ENDLESS.format(begin=now.isoformat()))

    result = chaos.run(
        file, seed=4, root="folder", duration_s=120.0, epoch_records=250, count=2, evenly=True,
        faults=frozenset({Family.EXECUTOR, Family.WORKER}),
    )  # fmt: skip

    assert told(result) == []
    assert strikes(result.run.happenings)
    epochs = len(commits(result.run.happenings))
    assert epochs >= 2
    assert check_of(result, "replay").counted["epochs"] == epochs
    assert "--duration 120.0" in result.run.command
    assert result.run.asked["sinks"] == "none"


def test_what_cannot_be_read_back_is_never_valid(tmp_path: Path) -> None:
    """Recorded clicks, and views that are made up and come at a rate: the rows of the table are
    judged, those that were posted are unknown."""
    recorded = ps.Log.create(str(tmp_path / "recorded"), CLICKS, partitions=2, key="user")
    with recorded.producer() as producer:
        producer.append([{"user": f"u{n % 40}", "n": n} for n in range(1_000)])
    file, posted = tmp_path / "hooked.py", tmp_path / "posted.txt"
    file.write_text(HOOKED.format(posted=str(posted), elsewhere=str(tmp_path / "elsewhere")))

    result = chaos.run(
        file, seed=2, root="folder", inputs={"clicks": str(tmp_path / "recorded")},
        rate=40.0, duration_s=75.0, epoch_records=200, count=3, evenly=True,
        faults=frozenset({Family.WORKER, Family.SINK}),
    )  # fmt: skip

    assert result.verdict is Verdict.UNKNOWN
    assert told(result) == ["sink post: what a ForEachEpoch sink holds cannot be read"]
    assert sum(each.rows_in for each in commits(result.run.happenings)) >= 400
    assert strikes(result.run.happenings)
    assert check_of(result, "table counts").verdict is Verdict.VALID
    assert check_of(result, "replay").verdict is Verdict.VALID
    assert posted.read_text(), "it was really written to"
    with pytest.raises(AssertionError, match="unknown:"):
        result.assert_valid()
