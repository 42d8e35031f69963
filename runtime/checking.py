"""Whether an epoch is whole, before anything of it is committed.

Every partition of every operator has reported once, all of the same run; every range was read to
its end; every row that was read has come to every operator it was meant for. Only then is there a
draft.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.checkpoint.manifest import Draft, Output, PartitionState, SourceProgress, TableIndex
from penstock.errors import Invalid, Unavailable
from penstock.runtime.letters import replayed_name
from penstock.runtime.planning import EpochPlan
from penstock.runtime.topology import Topology
from penstock.runtime.watermarks import advanced
from penstock.runtime.wire import Failure, Plan, RangeRead, Report

__all__ = ["EpochFailed", "Outcome", "checked_draft"]

_PRECEDENCE = {"Misaligned": 2, "Misplaced": 0}
"""A task that misses another's rows says so too, but the other knows better why."""


class EpochFailed(Unavailable):
    """An epoch is not whole. It is tried again."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came back from the tasks of one run."""

    reports: Sequence[Report]
    failures: Sequence[Failure]
    observed: Mapping[tuple[int, int], int]
    """Rows that came out of the transforms, by stage and feed."""

    def worst(self) -> Failure | None:
        """The failure that explains the others."""
        return min(self.failures, key=lambda f: _PRECEDENCE.get(f.code, 1), default=None)


def checked_draft(
    topology: Topology,
    plan: EpochPlan,
    run: Plan,
    outcome: Outcome,
    tables: Mapping[str, TableIndex],
) -> Draft:
    """What the epoch makes real; `EpochFailed` if it is not whole."""
    strangers = {report.run for report in outcome.reports} - {run.run}
    if strangers:
        raise _failed(plan, f"has reports of another run, {min(strangers)}")
    reads = [read for report in outcome.reports for read in report.reads]
    _check_reads(plan, run, reads)
    by_place = _by_place(topology, plan, outcome.reports)
    _check_rows(topology, plan, by_place, reads, outcome.observed)
    _check_letters(topology, plan, by_place)
    return Draft(
        rows_in=sum(read.rows for read in reads),
        sources=_progress(topology, plan, reads),
        operators={
            operator.name: {
                partition: _state(by_place[operator.stage, partition])
                for partition in range(topology.partitions)
            }
            for operator in topology.operators
            if operator.wrapped.states
        },
        sinks={
            **dict.fromkeys(plan.position.changelogs, ()),  # also those that were given up
            **{node.name: _outputs(outcome.reports, node.name) for node in topology.sinks},
            **{replayed_name(operator): (each,) for operator, each in plan.letters.items()},
        },
        tables=dict(tables),
        planned_ms=plan.planned_ms,
    )


def _by_place(
    topology: Topology, plan: EpochPlan, reports: Iterable[Report]
) -> dict[tuple[int, int], Report]:
    found: dict[tuple[int, int], Report] = {}
    for report in reports:
        place = (report.stage, report.partition)
        if report.stage and place in found:
            raise _failed(plan, f"has two reports of stage {place[0]}, partition {place[1]}")
        if report.stage:
            found[place] = report
    wanted = {
        (operator.stage, partition)
        for operator in topology.operators
        for partition in range(topology.partitions)
    }
    if missing := wanted - found.keys():
        stage, partition = min(missing)
        raise _failed(plan, f"has no report of stage {stage}, partition {partition}")
    return found


def _check_letters(
    topology: Topology, plan: EpochPlan, by_place: Mapping[tuple[int, int], Report]
) -> None:
    """Raise `Invalid` if an operator has set more events aside than it may."""
    for operator in topology.operators:
        if operator.at_most is None:
            continue
        mine = [by_place[operator.stage, number] for number in range(topology.partitions)]
        letters = sum(report.quarantined for report in mine)
        events = sum(sum(report.rows_in.values()) for report in mine)
        if operator.at_most.is_passed(letters, events):
            raise Invalid(
                f"operator {operator.name!r}, epoch {plan.epoch}",
                f"set {letters:,} of {events:,} events aside, and may set aside {operator.at_most}",
                "mend the function, or allow more with ps.quarantine(at_most=…); nothing of this "
                "epoch was committed",
            )


def _check_reads(plan: EpochPlan, run: Plan, reads: Sequence[RangeRead]) -> None:
    wanted = [each for task in run.tasks for each in task.ranges]
    read = [each.wanted for each in reads]
    if len(read) != len(wanted) or set(read) != set(wanted):
        raise _failed(plan, f"has read {len(read)} ranges of {len(wanted)}")


def _check_rows(
    topology: Topology,
    plan: EpochPlan,
    by_place: Mapping[tuple[int, int], Report],
    reads: Sequence[RangeRead],
    observed: Mapping[tuple[int, int], int],
) -> None:
    """Rows that left a source, or its transform, against rows that came to each operator."""
    for source in topology.sources:
        read = sum(each.rows for each in reads if each.wanted.source == source)
        for operator in topology.operators:
            feeds = [n for n, feed in enumerate(operator.feeds) if feed.origin == source]
            sent = sum(
                observed[operator.stage, number] if source in topology.transformed else read
                for number in feeds
            )
            came = sum(
                by_place[operator.stage, partition].rows_in.get(source, 0)
                for partition in range(topology.partitions)
            )
            if feeds and sent != came:
                found = f"brought {came} rows of {source!r} to {operator.name!r}, of {sent} sent"
                raise _failed(plan, found)


def _progress(
    topology: Topology, plan: EpochPlan, reads: Sequence[RangeRead]
) -> dict[str, SourceProgress]:
    found = {}
    for name, node in topology.sources.items():
        ranges = plan.ranges.get(name, {})
        latest: dict[str, int] = {}
        for read in reads:
            if read.wanted.source == name and read.latest_ms is not None:
                before = latest.get(read.wanted.partition, read.latest_ms)
                latest[read.wanted.partition] = max(before, read.latest_ms)
        before_epoch = plan.position.progress(name)
        starts = plan.starts.get(name, {})
        found[name] = advanced(node, before_epoch, ranges, latest, plan.planned_ms, starts)
    return found


def _state(report: Report) -> PartitionState:
    return PartitionState(delta=report.delta, snapshot=report.snapshot)


def _outputs(reports: Iterable[Report], sink: str) -> tuple[Output, ...]:
    """What was staged for a sink, by operators or by reading tasks, in order of the partitions."""
    found = [report.outputs[sink] for report in reports if sink in report.outputs]
    return tuple(sorted(found, key=lambda output: output.partition))


def _failed(plan: EpochPlan, found: str) -> EpochFailed:
    return EpochFailed(f"epoch {plan.epoch}", found, "it is tried again")
