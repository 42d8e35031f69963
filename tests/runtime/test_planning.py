"""Planning: which ranges, by which tasks, under which orders."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.checkpoint.manifest import SourceProgress
from penstock.checkpoint.snapshots import SnapshotPolicy
from penstock.ids import Epoch, Generation, Token
from penstock.runtime import planning
from penstock.runtime.planning import Planner
from penstock.runtime.position import Position
from penstock.runtime.topology import Topology
from tests.support.driving import CountingChance, ManualClock
from tests.support.in_process import CLICKS, append, click, no_spark
from tests.support.logs import new_log

START = Position(epoch=Epoch(0), generation=Generation(1))


@ps.stateful()
def see(user: str, events: ps.Events, seen: ps.Value[int]) -> None:
    """Does nothing."""


def planner(topology: Topology, records: int | None = None, tasks: int = 2) -> Planner:
    return Planner(
        topology,
        ps.Limits(records=records),
        SnapshotPolicy(every_epochs=3),
        tasks,
        ManualClock(),
        CountingChance(),
    )


def of_logs(partitions: int = 2, key: str = "user", **logs: ps.Log) -> Topology:
    """A job that reads some topics into one operator."""
    job = ps.Job("clicks", partitions=partitions)
    streams = [job.read(log, name=name).key_by(key) for name, log in logs.items()]
    ps.merge(*streams).process(see)
    return job.topology("memory://root", no_spark)


def filled(rows: int, **settings: Any) -> ps.Log:
    log = new_log(CLICKS, **settings)
    if rows:
        append(log, [click(f"user {n}", n) for n in range(rows)])
    return log


def ranges(plan: planning.EpochPlan) -> dict[str, dict[str, tuple[int, int]]]:
    return {
        source: {partition: (each.start, each.stop) for partition, each in found.items()}
        for source, found in plan.ranges.items()
    }


def test_an_epoch_reads_on_from_where_the_last_ended() -> None:
    """The same position and limits give the same ranges, so a replay is the same epoch."""
    make = planner(of_logs(clicks=filled(10)), records=4)
    progress = {"clicks": SourceProgress(resume_at={"0": 4})}
    later = Position(epoch=Epoch(1), generation=Generation(1), sources=progress)

    assert ranges(make.plan(START)) == {"clicks": {"0": (0, 4)}}
    assert ranges(make.plan(later)) == ranges(make.plan(later)) == {"clicks": {"0": (4, 8)}}
    assert (make.plan(later).epoch, make.plan(later).rows) == (2, 4)


def test_the_planned_time_grows_even_if_the_clock_does_not() -> None:
    """Two epochs at one moment could not be told apart by what they wrote."""
    make = planner(of_logs(clicks=filled(1)))
    behind = Position(epoch=Epoch(1), generation=Generation(1), planned_ms=5_000_000)

    assert make.plan(START).planned_ms == 1_000_000
    assert make.plan(behind).planned_ms == 5_000_001


@pytest.mark.parametrize(
    ("records", "wanted"),
    [
        (None, {"a": 10, "b": 3, "c": 5}),
        (18, {"a": 10, "b": 3, "c": 5}),
        (11, {"a": 4, "b": 3, "c": 4}),
        (1, {"a": 1, "b": 1, "c": 1}),
    ],
)
def test_limits_hold_over_all_sources_together(records: int | None, wanted: dict[str, int]) -> None:
    """The workers have one memory; who has little leaves the rest to others, and none starves."""
    make = planner(of_logs(a=filled(10), b=filled(3), c=filled(5), d=filled(0)), records)
    plan = make.plan(START)

    assert {source: plan.ranges[source]["0"].stop for source in plan.ranges} == wanted


def test_where_a_source_begins_is_part_of_the_plan() -> None:
    """It is written down with the first epoch."""
    job = ps.Job("clicks", partitions=1)
    job.read(filled(3), name="old").key_by("user").process(see)
    job.read(filled(5), name="new", start="latest").key_by("user").process(see, name="other")
    plan = planner(job.topology("memory://root", no_spark)).plan(START)

    assert ranges(plan) == {"old": {"0": (0, 3)}}
    assert plan.starts == {"old": {"0": 0}, "new": {"0": 5}}


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    tasks=st.integers(1, 5),
    share=st.integers(1, 6),
)
def test_tasks_cover_exactly_the_ranges(rows: list[int], tasks: int, share: int) -> None:
    """However ranges are cut and spread, every offset is read once, and by few tasks."""
    log = new_log(CLICKS, partitions=len(rows))
    for partition, count in enumerate(rows):
        append(log, [click("ada", n) for n in range(count)], partition)
    make = planner(of_logs(clicks=log), tasks=tasks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "SPLIT_ROWS", share)
        plan = make.plan(START)
        run = make.run(plan, Token(1))

    pieces = [each for task in run.tasks for each in task.ranges]
    read = sorted((each.partition, at) for each in pieces for at in range(each.start, each.stop))
    assert read == [(str(p), at) for p, count in enumerate(rows) for at in range(count)]
    assert 1 <= len(run.tasks) <= tasks
    loads = [sum(each.stop - each.start for each in task.ranges) for task in run.tasks]
    assert max(loads) - min(loads) <= max([share, -(-sum(rows) // tasks)])


def test_every_partition_of_every_operator_gets_its_orders_once() -> None:
    """Also in an epoch that reads nothing: somebody must pass them on."""
    make = planner(of_logs(partitions=4, clicks=filled(0)))
    run = make.run(make.plan(START), Token(7))

    assert [(stage, to) for stage, to, _ in run.tasks[0].orders] == [(1, to) for to in range(4)]
    [orders] = {orders for _, _, orders in run.tasks[0].orders}
    assert (orders.run, orders.epoch, orders.token) == (run.run, 1, 7)
    assert (orders.deltas, orders.files, orders.cuts_snapshot) == ((), (), False)
    assert orders.origins == (("clicks", 1),)


def test_a_retry_is_the_same_plan_as_another_run() -> None:
    """Reports of the first can be told from those of the second."""
    make = planner(of_logs(clicks=filled(5)))
    plan = make.plan(START)
    first, second = make.run(plan, Token(1)), make.run(plan, Token(1))

    assert first.run != second.run
    assert [task.ranges for task in first.tasks] == [task.ranges for task in second.tasks]
    assert first.planned_ms == second.planned_ms


@pytest.mark.parametrize(
    ("partitions", "topic", "key", "direct"),
    [
        (2, {"partitions": 4, "key": "user"}, "user", True),
        (4, {"partitions": 4, "key": "user"}, "user", True),
        (8, {"partitions": 4, "key": "user"}, "user", False),
        (3, {"partitions": 4, "key": "user"}, "user", False),
        (2, {"partitions": 4, "key": "n"}, "user", False),
        (2, {"partitions": 4, "key": ("user", "n")}, "user", False),
        (2, {"partitions": 4}, "user", False),
    ],
)
def test_rows_stay_where_they_are_only_if_they_are_there_already(
    partitions: int, topic: dict[str, Any], key: str, direct: bool
) -> None:
    """The topic's key must be the job's, and its partitions must fit into the job's."""
    make = planner(of_logs(partitions, key, clicks=filled(20, **topic)))
    plan = make.plan(START)

    assert plan.direct == direct
    assert not make.shuffled(plan).direct
    if direct:
        tasks = make.run(plan, Token(1)).tasks
        step = topic["partitions"] // partitions
        assert len(tasks) == partitions
        for number, task in enumerate(tasks):
            assert {int(each.partition) // step for each in task.ranges} <= {number}
            assert [(s, to, o.origins) for s, to, o in task.orders] == [
                (1, number, (("clicks", 0),))
            ]


def test_one_source_that_is_not_parted_makes_all_travel() -> None:
    """An operator has one way of getting its rows."""
    parted = filled(5, partitions=2, key="user")
    assert not planner(of_logs(a=parted, b=filled(5))).plan(START).direct
    assert planner(of_logs(a=parted, b=filled(5, partitions=4, key="user"))).plan(START).direct
