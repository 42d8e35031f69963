"""How far event time has come: per source partition, per source, per operator.

A partition's time is the latest event it has shown, less the delay that is allowed. A source's
watermark is the least of its partitions; one that has been silent for the idle time does not hold
the others back. It never falls: a partition that comes back late finds its events late, and the
function sees that by `Moment.watermark`. An operator follows the slowest of its sources.

Operators are told times that a datetime can hold, whatever is written down: a root may have been
carried beyond the year 9999 by one event before such events were refused, or before the year 1 by a
delay.
"""

from collections.abc import Iterable, Mapping

from penstock.calendar import within
from penstock.checkpoint.manifest import Range, SourceProgress
from penstock.runtime.topology import OperatorNode, SourceNode, Topology
from penstock.sources.protocol import Identified

__all__ = ["advanced", "operator_watermark", "source_watermark"]


def advanced(
    node: SourceNode,
    before: SourceProgress,
    ranges: Mapping[str, Range],
    latest_ms: Mapping[str, int],
    planned_ms: int,
    starts: Mapping[str, int],
) -> SourceProgress:
    """A source's progress after an epoch that read `ranges` and saw `latest_ms` in them.

    `starts` is where partitions begin that the progress before knows nothing of.
    """
    resume_at = {**starts, **before.resume_at, **{p: each.stop for p, each in ranges.items()}}
    seen = dict(before.seen_ms)
    for partition, moment in latest_ms.items():
        seen[partition] = max(moment, seen.get(partition, moment))
    # What the operators were told in this epoch does not fall, even if a partition that was
    # idle by then has come back in it.
    told = source_watermark(node, before, planned_ms)
    active = {partition: before.active_ms.get(partition, planned_ms) for partition in resume_at}
    active.update(dict.fromkeys(ranges, planned_ms))
    return SourceProgress(
        ranges=dict(ranges),
        resume_at=resume_at,
        watermark_ms=_watermark(node, told, seen, active, planned_ms),
        seen_ms=seen,
        active_ms=active,
        identities=_identities(node, before),
    )


def _identities(node: SourceNode, before: SourceProgress) -> dict[str, str]:
    """What is known of the source's logs by now: once seen, a log is the one it is."""
    if not isinstance(node.source, Identified):
        return before.identities
    return {**node.source.identities(), **before.identities}


def source_watermark(node: SourceNode, progress: SourceProgress, at_ms: int) -> int | None:
    """A source's watermark at some moment: partitions may have become idle since its last epoch."""
    return _watermark(node, progress.watermark_ms, progress.seen_ms, progress.active_ms, at_ms)


def _watermark(
    node: SourceNode,
    before: int | None,
    seen: Mapping[str, int],
    active: Mapping[str, int],
    planned_ms: int,
) -> int | None:
    idle_ms = node.idle_ms
    waiting = [p for p, at in active.items() if idle_ms is None or planned_ms - at < idle_ms]
    if waiting and any(partition not in seen for partition in waiting):
        return before
    # With all of them idle, the furthest that any has shown is as far as time has come.
    moments = [seen[p] for p in waiting] or [max(seen.values())] if seen else []
    if not moments:
        return before
    found = min(moments) - node.delay_ms
    return found if before is None else max(before, found)


def operator_watermark(
    topology: Topology, operator: OperatorNode, sources: Mapping[str, SourceProgress], at_ms: int
) -> int | None:
    """The least watermark of the sources that lead to an operator; None while one has none.

    Replayed letters are out of time by nature and hold nothing back. It is within the calendar,
    also where the sources' own are not.
    """
    names: Iterable[str] = topology.sources_of(operator)
    marks = [
        source_watermark(topology.sources[name], sources.get(name, SourceProgress()), at_ms)
        for name in names
        if not topology.sources[name].is_replay
    ]
    known = [mark for mark in marks if mark is not None]
    return within(min(known)) if known and len(known) == len(marks) else None
