"""Where a job stands: what the chain says about it, as far as the next epoch needs to know.

A position is a value. Each epoch gives the next one, whether its commit is confirmed yet or not;
one that is given up is simply forgotten, and the job goes on from what HEAD says.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.checkpoint.manifest import Draft, Manifest, Output, SourceProgress, TableIndex
from penstock.checkpoint.recovery import Lineage, PartitionName
from penstock.checkpoint.rewind import is_table_file
from penstock.errors import Invalid
from penstock.ids import Epoch, Generation
from penstock.runtime.topology import CHANGES, UNDECODABLE, Topology
from penstock.sinks.changelog import is_changelog
from penstock.sinks.table_index import TableFile

__all__ = ["Position", "changelogs_of", "check_same_job", "table_files"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The state of a job after an epoch."""

    epoch: Epoch
    generation: Generation
    sources: Mapping[str, SourceProgress] = field(default_factory=dict)
    lineages: Mapping[PartitionName, Lineage] = field(default_factory=dict)
    tables: Mapping[str, TableIndex] = field(default_factory=dict)
    unlisted: Mapping[str, tuple[TableFile, ...]] = field(default_factory=dict)
    """The files of each table that its index does not list yet."""
    planned_ms: int = 0
    changelogs: frozenset[str] = frozenset()
    """The changelogs outside the root that there ever were: a manifest names every sink that its
    parent names."""

    def progress(self, source: str) -> SourceProgress:
        """How far a source has been read."""
        return self.sources.get(source, SourceProgress())

    def lineage(self, name: PartitionName) -> Lineage:
        """What a partition's state is made of."""
        return self.lineages.get(name, Lineage((), ()))

    def after(self, draft: Draft) -> "Position":
        """The position once `draft` is committed as the next epoch."""
        epoch = Epoch(self.epoch + 1)
        lineages = dict(self.lineages)
        for operator, partitions in draft.operators.items():
            for partition, state in partitions.items():
                name = (operator, partition)
                lineages[name] = self.lineage(name).extended(epoch, state)
        return replace(
            self,
            epoch=epoch,
            sources=draft.sources,
            lineages=lineages,
            tables=draft.tables,
            unlisted=_unlisted(self.unlisted, draft, epoch),
            planned_ms=draft.planned_ms,
            changelogs=changelogs_of(draft.sinks),
        )


def _unlisted(
    before: Mapping[str, tuple[TableFile, ...]], draft: Draft, epoch: Epoch
) -> dict[str, tuple[TableFile, ...]]:
    found = {}
    for table, outputs in draft.sinks.items():
        index = draft.tables.get(table)
        files = (*before.get(table, ()), *table_files(epoch, outputs))
        found[table] = tuple(f for f in files if index is None or f.epoch > index.epoch)
    return found


def table_files(epoch: Epoch, outputs: Iterable[Output]) -> list[TableFile]:
    """Those of a sink's outputs that stay: the files of a table."""
    return [TableFile(epoch=epoch, output=each) for each in outputs if is_table_file(each.ref)]


def changelogs_of(sinks: Iterable[str]) -> frozenset[str]:
    """Those of some sinks that take state changes."""
    return frozenset(filter(is_changelog, sinks))


def check_same_job(topology: Topology, newest: Manifest | None, root: str) -> None:
    """Raise if the root was written by a job of another shape, with what to do about it."""
    if newest is None:
        return
    operators = {operator.name for operator in topology.operators if operator.wrapped.states}
    for name, partitions in newest.operators.items():
        if name not in operators:
            found = f"holds the state of operator {name!r}, which the job has no more"
            raise Invalid(root, found, "give the job a new root, or put the operator back")
        if len(partitions) != topology.partitions:
            raise Invalid(
                root,
                f"was written with {len(partitions)} partitions, and the job now has "
                f"{topology.partitions}",
                f"run it with partitions={len(partitions)}, or give it a new root and let it read "
                "its sources again",
            )
    _check_changelogs(root, topology, newest)
    _check_names(root, "sink", set(newest.sinks), {node.name for node in topology.sinks})
    _check_names(root, "source", set(newest.sources), set(topology.sources))


def _check_changelogs(root: str, topology: Topology, newest: Manifest) -> None:
    """A changelog that was given up has missed changes, and must not be gone on with. One that was
    not has something staged for it in every epoch."""
    for node in topology.sinks:
        if node.output == CHANGES and newest.sinks.get(node.name) == ():
            found = f"has not told changelog {node.name!r} of all changes since it was begun"
            raise Invalid(root, found, "give the changelog another prefix: it begins anew")


def _check_names(root: str, what: str, before: set[str], now: set[str]) -> None:
    for name in sorted(before - now):
        if is_changelog(name):
            continue  # state is kept without it; a new one begins with all there is
        operator = name.removesuffix(".replays").removesuffix(".dead-letters")
        if operator != name:
            found = f"has dead letters of operator {operator!r}, which quarantines no more"
            raise Invalid(root, found, "process it with on_error='quarantine', or use a new root")
        if name.endswith(f".{UNDECODABLE}"):
            found = f"has undecodable messages of {name.removesuffix(f'.{UNDECODABLE}')!r}"
            advice = "read it with on_undecodable='quarantine', or use a new root"
            raise Invalid(root, f"{found}, which keeps none any more", advice)
        found = f"knows a {what} {name!r}, which the job has no more"
        raise Invalid(root, found, f"put the {what} back, or give the job a new root")
