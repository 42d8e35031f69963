"""Where a job stands: what the chain says about it, as far as the next epoch needs to know.

A position is a value. Each epoch gives the next one, whether its commit is confirmed yet or not;
one that is given up is simply forgotten, and the job goes on from what HEAD says.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.checkpoint.formats import Ref
from penstock.checkpoint.manifest import Draft, SourceProgress, TableIndex
from penstock.checkpoint.recovery import Lineage, PartitionName
from penstock.checkpoint.tally import Tally, tally_after
from penstock.ids import Epoch, Generation
from penstock.runtime.description import JobDescription
from penstock.sinks.changelog import is_changelog
from penstock.sinks.table_tail import TableTail

__all__ = ["Position", "changelogs_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The state of a job after an epoch."""

    epoch: Epoch
    generation: Generation
    sources: Mapping[str, SourceProgress] = field(default_factory=dict)
    lineages: Mapping[PartitionName, Lineage] = field(default_factory=dict)
    tables: Mapping[str, TableIndex] = field(default_factory=dict)
    tails: Mapping[str, TableTail] = field(default_factory=dict)
    """What each table of the job was given behind its index."""
    tally: Tally | None = None
    """What every table was given, as the chain counts it."""
    planned_ms: int = 0
    changelogs: frozenset[str] = frozenset()
    """The changelogs outside the root that there ever were: a manifest names every sink that its
    parent names."""
    description: Ref | None = None
    """What the chain remembers of the job."""
    undescribed: JobDescription | None = None
    """What it is to remember from the next epoch on; None if it does already."""

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
            tails={
                table: tail.after(draft.sinks.get(table, ()), draft.tables.get(table))
                for table, tail in self.tails.items()
            },
            tally=tally_after(self.tally, epoch, draft.sinks),
            planned_ms=draft.planned_ms,
            changelogs=changelogs_of(draft.sinks),
            description=draft.description,
            undescribed=None,
        )


def changelogs_of(sinks: Iterable[str]) -> frozenset[str]:
    """Those of some sinks that take state changes."""
    return frozenset(filter(is_changelog, sinks))
