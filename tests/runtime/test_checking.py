"""Whether an epoch is whole: nothing is committed that somebody has not vouched for."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock.checkpoint.formats import Ref
from penstock.checkpoint.manifest import Delta, Output, PartitionState, Range, SourceProgress
from penstock.checkpoint.snapshots import SnapshotPolicy
from penstock.errors import Unavailable
from penstock.ids import Attempt, Epoch, Generation, Key, Token
from penstock.runtime.checking import EpochFailed, Outcome, checked_draft
from penstock.runtime.planning import EpochPlan, Planner
from penstock.runtime.position import Position
from penstock.runtime.topology import Topology
from penstock.runtime.wire import Failure, Plan, RangeRead, Report
from tests.support.driving import CountingChance, ManualClock
from tests.support.in_process import CLICKS, append, click, no_spark
from tests.support.logs import new_log


@ps.stateful(emits="user string")
def see(user: str, events: ps.Events, seen: ps.Value[int]) -> Any:
    """Passes keys on."""
    yield {"user": user}


@dataclass
class Scene:
    """A plan of one source, two partitions and two operators, and what its tasks say."""

    topology: Topology
    plan: EpochPlan
    run: Plan
    reports: list[Report]

    @classmethod
    def whole(cls) -> "Scene":
        """Every task has done its work."""
        log = new_log(CLICKS, partitions=2)
        for partition in (0, 1):
            append(log, [click("ada", n, 10 * partition + n) for n in range(3)], partition)
        job = ps.Job("clicks", partitions=2)
        seen = job.read(log, name="clicks", event_time="at").key_by("user").process(see)
        seen.write(ps.Table("out")).key_by("user").process(see, name="again")
        topology = job.topology("memory://root", no_spark)
        clock, chance = ManualClock(), CountingChance()
        planner = Planner(topology, ps.Limits(), SnapshotPolicy(), 2, clock, chance)
        plan = planner.plan(Position(epoch=Epoch(0), generation=Generation(1)))
        run = planner.run(plan, Token(1))
        reports = [read_report(run, number) for number in range(len(run.tasks))]
        for stage in (1, 2):
            reports += [report(run, stage, partition) for partition in (0, 1)]
        return cls(topology, plan, run, reports)

    def checked(self, **observed: Any) -> Any:
        outcome = Outcome(self.reports, [], observed)
        return checked_draft(self.topology, self.plan, self.run, outcome, {})

    def flaw(self) -> str:
        """What is said of an epoch that is not whole."""
        with pytest.raises(EpochFailed) as caught:
            self.checked()
        assert isinstance(caught.value, Unavailable)
        return str(caught.value)


def read_report(run: Plan, number: int) -> Report:
    reads = tuple(
        RangeRead(wanted=each, rows=each.stop - each.start, latest_ms=int(each.partition) * 10_000)
        for each in run.tasks[number].ranges
    )
    return Report(run=run.run, stage=0, partition=number, reads=reads)


def ref(name: str) -> Ref:
    return Ref(key=Key(name), sha256="0" * 64, size_bytes=1)


def report(run: Plan, stage: int, partition: int) -> Report:
    name = f"{stage}-{partition}"
    output = Output(partition=partition, ref=ref(f"out-{name}"), rows=1)
    return Report(
        run=run.run,
        stage=stage,
        partition=partition,
        rows_in={"clicks": 2 + 2 * partition} if stage == 1 else {"see": 1},
        delta=Delta(attempt=Attempt(name), ref=ref(f"delta-{name}")),
        outputs={"out": output} if stage == 1 else {},
    )


def test_a_whole_epoch_becomes_a_draft() -> None:
    """With everything its tasks staged, and where to read on."""
    scene = Scene.whole()
    draft = scene.checked()

    assert draft.rows_in == 6
    assert draft.operators == {
        operator: {
            partition: PartitionState(
                delta=Delta(
                    attempt=Attempt(f"{stage}-{partition}"), ref=ref(f"delta-{stage}-{partition}")
                )
            )
            for partition in (0, 1)
        }
        for stage, operator in enumerate(("see", "again"), 1)
    }
    assert [output.ref.key for output in draft.sinks["out"]] == ["out-1-0", "out-1-1"]
    assert draft.planned_ms == scene.plan.planned_ms
    assert draft.sources == {
        "clicks": SourceProgress(
            ranges={"0": Range(start=0, stop=3), "1": Range(start=0, stop=3)},
            resume_at={"0": 3, "1": 3},
            watermark_ms=0,
            seen_ms={"0": 0, "1": 10_000},
            active_ms={"0": 1_000_000, "1": 1_000_000},
        )
    }


def test_a_missing_report_is_named() -> None:
    """A partition nobody speaks of would keep its old state with new offsets."""
    scene = Scene.whole()
    scene.reports = [r for r in scene.reports if (r.stage, r.partition) != (2, 1)]

    assert scene.flaw() == "epoch 1 has no report of stage 2, partition 1: it is tried again."


def test_a_doubled_report_is_named() -> None:
    """Two attempts, and nobody knows whose rows were sent on."""
    scene = Scene.whole()
    scene.reports.append(scene.reports[-2])

    assert scene.flaw() == "epoch 1 has two reports of stage 2, partition 0: it is tried again."


def test_a_report_of_another_run_is_named() -> None:
    """A task of an epoch that was given up may still be at it."""
    scene = Scene.whole()
    scene.reports[-1] = msgspec.structs.replace(scene.reports[-1], run="old")

    assert scene.flaw() == "epoch 1 has reports of another run, old: it is tried again."


@pytest.mark.parametrize("cut", ["missing", "doubled", "shorter"])
def test_ranges_that_were_not_read_once_to_their_end_are_named(cut: str) -> None:
    """The resume offset would go past events that nobody has seen."""
    scene = Scene.whole()
    first = scene.reports[0]
    [read] = first.reads
    shorter = msgspec.structs.replace(read.wanted, stop=read.wanted.stop - 1)
    reads = {
        "missing": (),
        "doubled": (read, read),
        "shorter": (msgspec.structs.replace(read, wanted=shorter),),
    }[cut]
    scene.reports[0] = msgspec.structs.replace(first, reads=reads)

    count = {"missing": 1, "doubled": 3, "shorter": 2}[cut]
    assert scene.flaw() == f"epoch 1 has read {count} ranges of 2: it is tried again."


@pytest.mark.parametrize("came", [1, 3])
def test_rows_that_were_lost_or_doubled_on_their_way_are_named(came: int) -> None:
    """As many must come to an operator as were read for it."""
    scene = Scene.whole()
    scene.reports[2] = msgspec.structs.replace(scene.reports[2], rows_in={"clicks": came})

    assert scene.flaw() == (
        f"epoch 1 brought {came + 4} rows of 'clicks' to 'see', of 6 sent: it is tried again."
    )


def failure(code: str) -> Failure:
    return Failure(
        run="run", stage=1, partition=0, kind="Unavailable", code=code, subject="", found="",
        advice="",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("codes", "worst"),
    [
        (["Misaligned", "UserError", "Misaligned"], "UserError"),
        (["UserError", "Misplaced", "Misaligned"], "Misplaced"),
        (["Misaligned"], "Misaligned"),
        ([], None),
    ],
)
def test_the_failure_that_explains_the_others_is_told(codes: list[str], worst: str | None) -> None:
    """A task that misses another's rows says so too, but the other knows why."""
    found = Outcome([], [failure(code) for code in codes], {}).worst()

    assert (found and found.code) == worst
