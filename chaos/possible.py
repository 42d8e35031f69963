"""Which faults can happen to a job at all: nobody waits for one that cannot, nor survives it."""

from collections.abc import Sequence

from penstock.chaos.nemesis import Nemesis
from penstock.chaos.nemesis_disk import DISK_NEMESES
from penstock.chaos.nemesis_outside import (
    CLOCK_NEMESES,
    LINE_NEMESES,
    SINK_NEMESES,
    STORE_NEMESES,
)
from penstock.chaos.nemesis_processes import PROCESS_NEMESES
from penstock.chaos.sink_faults import Unsteady, unsteady
from penstock.points import Point
from penstock.runtime.topology import Topology
from penstock.sinks.postgres import Postgres

__all__ = ["EVERY", "impossible", "points_of"]

EVERY: Sequence[Nemesis] = (
    *PROCESS_NEMESES,
    *STORE_NEMESES,
    *DISK_NEMESES,
    *SINK_NEMESES,
    *LINE_NEMESES,
    *CLOCK_NEMESES,
)
"""Every kind of fault there is."""

_ON_EXECUTORS = ("executor.kill", "host.lose", "pause.executor")
_ON_WORKERS = ("worker.kill", "daemon.kill", "worker.point", "pause.worker", "pause.daemon")
_ON_DISK = tuple(nemesis.name for nemesis in DISK_NEMESES)


def impossible(
    topology: Topology, lines: Sequence[str], master: str, has_proxy: bool
) -> dict[str, str]:
    """The kinds of faults that cannot happen, and why. `lines` are sinks with one of their own."""
    found: dict[str, str] = {}
    if master.startswith("local["):
        found |= dict.fromkeys(_ON_EXECUTORS, f"{master} has no executors of its own")
    elif not master.startswith("local-cluster["):
        why = f"the executors of {master} are not processes of the driver"
        found |= dict.fromkeys((*_ON_EXECUTORS, *_ON_WORKERS, *_ON_DISK), why)
    if not has_proxy:
        why = "nothing stands between the job and its store"
        found |= {nemesis.name: why for nemesis in STORE_NEMESES}
    partitions = topology.partitions * sum(bool(each.wrapped.states) for each in topology.operators)
    if not partitions:
        found |= dict.fromkeys(_ON_DISK, "the job keeps no state")
    elif partitions == 1:
        found["disk.swap"] = "the job has one partition of state"
    return found | _of_sinks(topology, lines)


def _of_sinks(topology: Topology, lines: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    if not any(isinstance(unsteady(node.sink, ""), Unsteady) for node in topology.applied):
        found |= {each.name: "the job has no sink outside its root" for each in SINK_NEMESES}
    if not lines:
        why = "no sink of the job is a server that a proxy can stand before"
        found |= {nemesis.name: why for nemesis in LINE_NEMESES}
    elif not any(isinstance(n.sink, Postgres) for n in topology.applied if n.name in lines):
        found["line.commit"] = "no sink of the job is a Postgres"
    return found


def points_of(topology: Topology) -> frozenset[Point]:
    """The points at which processes of this job can be made to die."""
    cannot = set() if topology.applied else {Point.SINK_OUTPUT}
    cannot |= set() if topology.sinks else {Point.STAGE_OUTPUT}
    if not any(operator.wrapped.states for operator in topology.operators):
        cannot |= {Point.STAGE_DELTA, Point.STAGE_SNAPSHOT}
    return frozenset(Point) - cannot
