"""Two jobs in a row: the first writes to a topic, the second reads it, and the first one's leaders
die in the middle of writing. What the second has counted is what there was to count."""

import dataclasses
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.checkpoint.perform import armed
from penstock.sinks import Guarantee, Target
from penstock.sinks.log_sink import LogSink
from penstock.sinks.log_sink_writer import LogWriter
from tests.support.in_process import LocalRun, append, click, clicks_log
from tests.support.log_sink_case import rows_in
from tests.support.log_sinking import Died, Mortal

SMALL = ps.RunSettings(until="caught-up", read_tasks=2, limits=ps.Limits(records=12))
DEATHS_MAX = 60
CLICKS_PER_LIFE = 20

FATES: list[Mortal] = []
"""What the next leaders meet, the last of them first."""


@dataclass(frozen=True)
class Deadly:
    """A sink that its leader may not survive."""

    sink: LogSink

    @property
    def name(self) -> str:
        return self.sink.name

    @property
    def guarantee(self) -> Guarantee:
        return self.sink.guarantee

    def shards(self, partitions: int) -> int:
        return self.sink.shards(partitions)

    def check(self, rows: pa.Table) -> None:
        self.sink.check(rows)

    def open(self, target: Target) -> LogWriter:
        writer = self.sink.open(target)
        if not FATES:
            return writer
        fate = FATES.pop()
        return dataclasses.replace(writer, handlers=armed(writer.handlers, fate.before, fate.after))


@ps.stateful(emits="user string, n long")
def per_epoch(user: str, events: ps.Events, seen: ps.Value[int]) -> Any:
    """What a user has clicked in an epoch; most epochs have many users."""
    seen.set(seen.get(0) + len(events))
    yield {"user": user, "n": sum(events.values("n"))}


@ps.stateful(emits="user string, total long")
def total(user: str, events: ps.Events, spent: ps.Value[int]) -> Any:
    """What a user has clicked in all."""
    spent.set(spent.get(0) + sum(events.values("n")))
    yield {"user": user, "total": spent.get()}


@pytest.mark.parametrize("heard", [False, True], ids=["before", "after"])
def test_a_chain_of_jobs_counts_every_click_once(tmp_path: Path, heard: bool) -> None:
    """Leaders of the first die at every request of an apply; new clicks come all the time."""
    clicks = clicks_log(tmp_path)
    topic = LogSink("sums", str(tmp_path / "sums"), partitions=3, key="user")
    first = LocalRun(summing(clicks, Deadly(topic)), tmp_path / "first")
    second = LocalRun(totalling(ps.Log(topic.url)), tmp_path / "second")
    first.run(SMALL)  # makes the topic
    truth: Counter[str] = Counter()
    for number in range(1, DEATHS_MAX):
        rows = [click(f"user-{n % 7}", number + n) for n in range(CLICKS_PER_LIFE)]
        append(clicks, rows)
        for row in rows:
            truth[row["user"]] += row["n"]
        FATES.append(Mortal(number, heard=heard))
        is_dead = dies(first)
        if number % 5 == 0:
            second.run(SMALL)  # reads what is there, perhaps half an epoch of it
        if not is_dead:
            break
    else:
        pytest.fail(f"two epochs take more than {DEATHS_MAX} requests")
    first.run(SMALL)
    second.run(SMALL)

    written = sorted((row["user"], row["n"]) for row in rows_in(topic.url))
    assert written == first.rows("sums_table", "user", "n")
    largest = Counter[str]()
    for user, found in second.rows("totals", "user", "total"):
        largest[user] = max(largest[user], found)
    assert largest == truth
    assert number > 20, "there were too few requests to die at"


def summing(clicks: ps.Log, sink: Any) -> ps.Job:
    """The first job: it writes the same rows to the topic and to a table."""
    job = ps.Job("summing", partitions=2)
    stream = job.read(clicks).key_by("user").process(per_epoch)
    stream.write(sink)
    stream.write(ps.Table("sums_table"))
    return job


def totalling(sums: ps.Log) -> ps.Job:
    """The second."""
    job = ps.Job("totalling", partitions=2)
    job.read(sums).key_by("user").process(total).write(ps.Table("totals"))
    return job


def dies(run: LocalRun) -> bool:
    """Whether a leader does not live to see the end of the log."""
    try:
        run.run(SMALL)
    except Died:
        return True
    finally:
        FATES.clear()
    return False
