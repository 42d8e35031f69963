from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.chaos.comparing import Comparison, Difference
from penstock.chaos.findings import Ledger, Verdict
from penstock.chaos.local_state import check_local_state
from penstock.chaos.reading_along import ReadersAlong
from penstock.chaos.replaying import recorded
from penstock.checkpoint.root import Root
from penstock.clock import SystemClock
from penstock.sources.protocol import Limits
from tests.mutants import epochs
from tests.support.driving import ManualClock
from tests.support.in_process import SETTINGS, LocalRun, append, click, clicks_log
from tests.support.letters import Letters
from tests.support.replays import replayed

SMALL = replace(SETTINGS, limits=Limits(records=7))


@ps.stateful(emits="user string, n long, seen long")
def counted(
    user: str, events: ps.Events, seen: ps.Value[int], by: ps.Map[int, int], quiet: ps.Timer
) -> Iterator[dict[str, Any]]:
    """Every click and how many there were; who is quiet is told of."""
    if quiet.fired is not None:
        yield {"user": user, "n": -1, "seen": seen.get(0)}
        return
    for event in events:
        seen.set(seen.get(0) + 1)
        by.set(event.n, by.get(event.n, 0) + 1)
        yield {"user": user, "n": event.n, "seen": seen.get()}
    quiet.clear()
    quiet.set(max(event.at for event in events) + timedelta(seconds=15))


class Odd:
    """Gives another number each time it is asked."""

    calls = 0

    @classmethod
    def number(cls) -> int:
        cls.calls += 1
        return cls.calls


@ps.stateful(emits="user string, n long, seen long")
def moody(user: str, events: ps.Events, seen: ps.Value[int]) -> Iterator[dict[str, Any]]:
    """What it yields depends on how often anything was called."""
    seen.set(seen.get(0) + len(events))
    yield {"user": user, "n": Odd.number(), "seen": seen.get()}


def made(folder: Path, function: Any = counted, rows: int = 60) -> LocalRun:
    """A job that has run, in several lives."""
    log = clicks_log(folder, partitions=2)
    clicks = [click(f"user-{number // 6}", number % 3, at_s=number) for number in range(rows)]
    for partition in (0, 1):
        append(log, clicks[partition::2], partition)
    job = ps.Job("clicks", partitions=3)
    stream = job.read(log, name="clicks", event_time="at", delay="2 s").key_by("user")
    stream.process(function).write(ps.Table("rows"))
    run = LocalRun(job, folder, ManualClock())
    for last in (3, 6, None):
        run.run(replace(SMALL, epochs_max=last))
    return run


def differences(ours: Root, calm: Root, scratch: Path) -> list[Difference]:
    comparison = Comparison(ours, calm, scratch, Ledger("replay", ""))
    return list(comparison.differences(recorded(ours), recorded(calm)))


def test_a_replay_gives_the_same_rows_times_and_state(tmp_path: Path) -> None:
    """Epoch by epoch, whatever lives the leader had, and whether rows were shuffled or not."""
    run = made(tmp_path / "run")

    calm = replayed(run.job, run.root, tmp_path / "calm")

    assert len(recorded(calm)) == len(recorded(run.root)) > 6
    assert differences(run.root, calm, tmp_path / "scratch") == []
    assert any(n == -1 for (n,) in run.rows("rows", "n")), "timers have fired"


def test_a_function_that_is_not_deterministic_is_found(tmp_path: Path) -> None:
    """Two replays differ from each other as well."""
    run = made(tmp_path / "run", moody)
    calm = replayed(run.job, run.root, tmp_path / "calm")
    again = replayed(run.job, run.root, tmp_path / "again")

    first = differences(run.root, calm, tmp_path / "one")[0]
    assert (first.invariant, first.epoch) == ("I16", 1)
    assert "has n=" in first.found
    assert differences(again, calm, tmp_path / "two")


@pytest.mark.parametrize("what", ["rows", "state"])
def test_what_a_fault_has_done_is_told(tmp_path: Path, what: str) -> None:
    """A job that saw one event more: it is in the rows of its epoch and in the state after it."""
    run = made(tmp_path / "run")
    other = made(tmp_path / "other", rows=61)
    calm = replayed(other.job, other.root, tmp_path / "calm")

    found = differences(run.root, calm, tmp_path / "scratch")

    kinds = {"rows": {"I1", "I2", "I16"}, "state": {"I3"}}[what]
    assert any(each.invariant in kinds for each in found)


def test_the_disk_holds_what_the_chain_vouches_for(tmp_path: Path) -> None:
    """Every partition opens from the disk as it was left, and equals what the root gives."""
    run = made(tmp_path / "run")

    check = check_local_state(run.root, tmp_path / "run" / "state" / "clicks", tmp_path / "scratch")

    assert check.verdict is Verdict.VALID
    assert check.counted["partitions"] == 3
    assert check.counted["opened by: database on this host"] >= 2, "a partition may have no key"
    assert check.counted["entries"] > 10


def test_readers_see_a_table_grow(tmp_path: Path) -> None:
    """Epoch after epoch, and nothing of it goes."""
    readers = ReadersAlong(str(tmp_path / "run" / "root"), SystemClock())
    run = made(tmp_path / "run")

    check = readers.finish()

    assert check.verdict is Verdict.VALID
    assert check.counted == {"looks at tables": 1}
    table = ps.read_table(run.url, "rows")
    readers.saw("rows", table.slice(0, table.num_rows - 1))
    told = readers.ledger.check()
    assert told.verdict is Verdict.INVALID
    assert told.violations[0].invariant == "I12"


def test_trouble_leaves_no_trace() -> None:
    """With no bug planted, what planted ones are caught by finds nothing."""
    assert epochs.by_replay() is None


def test_replayed_letters_are_gone_through_once_more(tmp_path: Path) -> None:
    """The same letters in the same epochs, read from the root whose story it is."""
    job = Letters.begun(tmp_path / "here", 1, 100, 2)
    job.replay()
    job.run()
    calm = replayed(job.local().job, job.root, tmp_path / "calm")
    comparison = Comparison(job.root, calm, tmp_path / "scratch")

    assert len(job.listed()) == 2
    assert list(comparison.differences(recorded(job.root), recorded(calm))) == []
