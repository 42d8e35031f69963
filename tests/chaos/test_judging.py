"""The judgement on a run, on made-up histories and real roots: what is wrong is named."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.chaos.conductor import Conducted
from penstock.chaos.findings import Check, Verdict
from penstock.chaos.history import Ended, Happening, Led, Started
from penstock.chaos.judging import NO_ROW, Evidence, judged
from penstock.chaos.local_state import check_local_state
from penstock.chaos.possible import EVERY, impossible, points_of
from penstock.checkpoint.root import Root
from penstock.points import Point
from penstock.sources.protocol import Limits
from tests.support.in_process import (
    SETTINGS,
    LocalRun,
    append,
    click,
    clicks_log,
    no_spark,
)
from tests.support.replays import replayed


@ps.stateful(emits="user string, seen long, share double")
def counted(user: str, events: ps.Events, seen: ps.Value[int]) -> Iterator[dict[str, Any]]:
    """How many clicks there were, and a number that is none."""
    seen.set(seen.get(0) + len(events))
    yield {"user": user, "seen": seen.get(), "share": math.nan}


@ps.stateful(emits="user string")
def stateless(user: str, events: ps.Events) -> Iterator[dict[str, Any]]:
    """Keeps nothing."""
    yield {"user": user}


@ps.stateful(emits="user string", sides={"rare": "user string"})
def silent(user: str, events: ps.Events, seen: ps.Value[int]) -> Iterator[Any]:
    """Tells of users with more clicks than anybody has, and a few of them aside."""
    seen.set(seen.get(0) + len(events))
    if user == "user-3":
        yield ps.to("rare", {"user": user})
    if seen.get() > 1_000:
        yield {"user": user}


def job_of(folder: Path, function: Any = counted, partitions: int = 2) -> ps.Job:
    log = clicks_log(folder, partitions=1)
    append(log, [click(f"user-{n % 5}", n, at_s=n) for n in range(40)], 0)
    job = ps.Job("clicks", partitions=partitions)
    rows = job.read(log, name="clicks", event_time="at").key_by("user").process(function)
    rows.write(ps.Table("rows"))
    if function is silent:
        rows.side("rare").write(ps.Table("rare"))
    return job


def checks(
    folder: Path,
    happenings: tuple[Happening, ...] = (),
    *,
    stuck: str | None = None,
    epochs: int | None = None,
    faults: dict[str, int] | None = None,
    impossible: dict[str, str] | None = None,
    job: ps.Job | None = None,
) -> dict[str, Check]:
    """What is said of a run that had such a history."""
    job = job or job_of(folder)
    run = LocalRun(job, folder)
    run.run(replace(SETTINGS, limits=Limits(records=7), epochs_max=epochs))

    def replay(number: int) -> Root:
        return replayed(job, run.root, folder / f"replay-{number}")

    evidence = Evidence(
        root=run.root,
        topology=job.topology(run.url, no_spark),
        conducted=Conducted(happenings, faults or {"executor.kill": 1}, stuck),
        folder=folder / "laid",
        job_state=folder / "state" / "clicks",
        replay=replay,
        drained=frozenset({"clicks"}),
        impossible=impossible or {},
    )
    (folder / "laid").mkdir()
    return {check.name: check for check in judged(evidence)}


def led(driver: int) -> Led:
    return Led(at_s=0.0, driver=driver, epoch=0)


def ended(driver: int, code: int, said: str = "") -> Ended:
    return Ended(at_s=1.0, driver=driver, code=code, said=said)


GOOD = (Started(at_s=0.0, driver=1), led(1), ended(1, 0))


def test_a_right_run_is_valid(tmp_path: Path) -> None:
    """Also with numbers that are none in it: one is as good as another."""
    found = checks(tmp_path, GOOD)

    assert {name: check.verdict for name, check in found.items()} == dict.fromkeys(
        found, Verdict.VALID
    )
    assert {"faults", "progress", "drivers", "chain", "sources", "local state"} <= found.keys()
    assert {"replay", "function", "table rows", "output"} <= found.keys()
    assert found["output"].counted == {"sinks": 1, "rows": 30}


def test_events_that_nobody_read_are_lost(tmp_path: Path) -> None:
    """A job that says it is done and is not has a chain without a gap, and a replay that agrees."""
    progress = checks(tmp_path, GOOD, epochs=3)["progress"]

    assert [(each.invariant, str(each)) for each in progress.violations] == [
        ("I1", "source clicks, partition 0 was read up to 21, and ends at 40")
    ]


def test_a_run_that_got_stuck_is_invalid(tmp_path: Path) -> None:
    """When the faults are over, a job must go on."""
    progress = checks(tmp_path, GOOD, stuck="nothing was committed for 300 s")["progress"]

    assert [each.invariant for each in progress.violations] == ["I15"]


@pytest.mark.parametrize(
    ("ending", "verdict", "invariant"),
    [
        (ended(1, 2, "Corrupt: HEAD is damaged"), Verdict.INVALID, "I18"),
        (ended(1, 2, "Bug: this cannot be"), Verdict.INVALID, "I18"),
        (ended(1, 1, "Unexpected: KeyError: 'x'"), Verdict.UNKNOWN, None),
        (ended(1, 2, "Unavailable: the store"), Verdict.VALID, None),
        (ended(1, 3, "Fenced: was taken over"), Verdict.VALID, None),
        (ended(1, -9), Verdict.VALID, None),
        (ended(1, 0), Verdict.INVALID, "I6"),
    ],
    ids=lambda each: each.said or str(each.code) if isinstance(each, Ended) else "",
)
def test_how_a_deposed_driver_ends_is_looked_at(
    tmp_path: Path, ending: Ended, verdict: Verdict, invariant: str | None
) -> None:
    """It may die of anything, but not cry damage, nor believe that it led to the end."""
    drivers = checks(tmp_path, (led(1), led(2), ending, ended(2, 0)))["drivers"]

    assert drivers.verdict is verdict
    assert [each.invariant for each in drivers.violations] == ([invariant] if invariant else [])


def test_what_did_not_happen_is_unknown(tmp_path: Path) -> None:
    """A fault that never came about was not survived."""
    happened = {"disk.swap": 0, "disk.full": 2}
    found = checks(tmp_path, GOOD, faults=happened, impossible={"sink": "there is none"})
    faults = found["faults"]

    assert faults.verdict is Verdict.UNKNOWN
    assert [each.subject for each in faults.unknown] == ["faults of sink", "fault disk.swap"]


def test_a_sink_that_got_no_row_is_unknown(tmp_path: Path) -> None:
    """Nothing is like nothing: such a run says that it is right, and proves none of it."""
    found = checks(tmp_path, GOOD, job=job_of(tmp_path, silent))
    output = found["output"]

    assert output.verdict is Verdict.UNKNOWN
    assert [(each.subject, each.why) for each in output.unknown] == [("sink rows", NO_ROW)]
    assert output.counted["sinks"] == 2
    assert 0 < output.counted["rows"] <= 8
    others = {name: check.verdict for name, check in found.items() if name != "output"}
    assert others == dict.fromkeys(others, Verdict.VALID)


def test_an_empty_disk_proves_nothing(tmp_path: Path) -> None:
    """Comparing a store with itself cannot fail."""
    found = checks(tmp_path / "one", GOOD)
    assert found["local state"].counted["partitions"] == 2
    job = job_of(tmp_path / "two")
    run = LocalRun(job, tmp_path / "two")
    run.run()

    check = check_local_state(run.root, tmp_path / "nowhere", tmp_path / "scratch")
    assert check.verdict is Verdict.UNKNOWN


def test_a_job_is_spared_what_cannot_happen_to_it(tmp_path: Path) -> None:
    """Or every run of it would be unknown, after minutes of waiting."""
    plain = job_of(tmp_path / "a").topology(str(tmp_path / "root"), no_spark)
    cannot = impossible(plain, [], "local[2]", has_proxy=False)
    left = {nemesis.name for nemesis in EVERY} - cannot.keys()

    assert {name for name in left if name.startswith(("store", "sink", "line"))} == set()
    assert not {"executor.kill", "host.lose", "pause.executor"} & left
    assert {"worker.kill", "driver.kill", "disk.swap", "clock.back"} <= left
    assert impossible(plain, [], "spark://host:7077", True).keys() >= {"worker.kill", "disk.full"}
    bare = job_of(tmp_path / "b", stateless, 1).topology(str(tmp_path / "root"), no_spark)
    assert "the job keeps no state" in impossible(bare, [], "local[2]", True).values()
    assert points_of(bare) & {Point.STAGE_DELTA, Point.STAGE_SNAPSHOT, Point.SINK_OUTPUT} == set()
    assert Point.STAGE_OUTPUT in points_of(bare)
