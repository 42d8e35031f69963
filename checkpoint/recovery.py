"""Recovery: from HEAD back to each partition's last snapshot, and not one step further.

A manifest holds only what its epoch added. To rebuild a partition one needs its newest
snapshot and every delta since, so the walk ends when each partition has both; how long it is
depends on how often snapshots are cut, never on how long the job has lived.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.formats import Ref
from penstock.checkpoint.manifest import Delta, Manifest, PartitionState, Snapshot, SnapshotFile
from penstock.effects import Steps
from penstock.errors import Gone
from penstock.ids import Attempt, Epoch
from penstock.points import Point

__all__ = ["Lineage", "LineageWalk", "PartitionName", "recover", "whole_changelog"]

PartitionName = tuple[str, int]
"""An operator and one of its partitions."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """How one partition's state came about: files, and the deltas since, oldest first."""

    files: tuple[SnapshotFile, ...]
    deltas: tuple[tuple[Epoch, Delta], ...]
    files_at: tuple[Epoch, Attempt] | None = None
    """The last delta that is in the files."""

    @property
    def version(self) -> tuple[Epoch, Attempt] | None:
        """The last delta of all: what the marker of a database at this version says."""
        if self.deltas:
            epoch, delta = self.deltas[-1]
            return epoch, delta.attempt
        return self.files_at

    def extended(self, epoch: Epoch, state: PartitionState) -> "Lineage":
        """This lineage after one more epoch."""
        base = self
        if state.snapshot is not None:
            snapshot = state.snapshot
            base = Lineage(snapshot.files, snapshot.tail, snapshot.files_at)
        if state.delta is None:
            return base
        return Lineage(base.files, (*base.deltas, (epoch, state.delta)), base.files_at)

    def refs(self) -> Iterator[Ref]:
        """Every object it takes to rebuild the partition, in the order they are needed."""
        yield from (file.ref for file in self.files)
        yield from (delta.ref for _, delta in self.deltas)


@dataclass(slots=True)
class _Strand:
    """One partition while walking back."""

    snapshot: Snapshot | None = None
    deltas: list[tuple[Epoch, Delta]] = field(default_factory=list)
    is_born: bool = False
    """Whether the walk has passed the epoch that named the partition first."""

    def add(self, epoch: Epoch, state: PartitionState) -> None:
        if self.done_at(epoch):
            return
        if state.delta is not None:
            self.deltas.append((epoch, state.delta))
        if self.snapshot is None:
            self.snapshot = state.snapshot

    def done_at(self, epoch: Epoch) -> bool:
        """Whether nothing of `epoch` or earlier is needed."""
        return self.is_born or (self.snapshot is not None and epoch <= self.snapshot.epoch)

    def lineage(self) -> Lineage:
        since = tuple(reversed(self.deltas))
        if self.snapshot is None:
            return Lineage((), since)
        snapshot = self.snapshot
        return Lineage(snapshot.files, snapshot.tail + since, snapshot.files_at)


class LineageWalk:
    """Manifests in, newest first; out: whether older ones are needed, and the lineages."""

    def __init__(self) -> None:
        self._strands: dict[PartitionName, _Strand] | None = None

    def add(self, manifest: Manifest) -> None:
        """Take one more step back. The first manifest says which partitions there are. One that
        an older manifest does not name was added to the job later, and has no past there."""
        states = {
            (operator, partition): state
            for operator, partitions in manifest.operators.items()
            for partition, state in partitions.items()
        }
        if self._strands is None:
            self._strands = {name: _Strand() for name in states}
        for name, strand in self._strands.items():
            if name in states:
                strand.add(manifest.epoch, states[name])
            else:
                strand.is_born = True

    def needs(self, epoch: Epoch) -> bool:
        """Whether some partition still needs something from `epoch`."""
        strands = self._strands
        return strands is None or any(not s.done_at(epoch) for s in strands.values())

    def lineages(self) -> Mapping[PartitionName, Lineage]:
        """What was found."""
        return {name: strand.lineage() for name, strand in (self._strands or {}).items()}


def whole_changelog(
    chain: Chain, newest: Manifest | None, name: PartitionName, at: Point = Point.RECOVER_MANIFEST
) -> Steps[Lineage | None]:
    """The lineage of one partition without any snapshot: every delta since its first epoch.

    None if history no longer reaches back that far: a part of a changelog rebuilds nothing.
    """
    operator, partition = name
    deltas: list[tuple[Epoch, Delta]] = []
    manifest = newest
    while manifest is not None and newest is not None:
        state = manifest.operators.get(operator, {}).get(partition)
        if state is not None and state.delta is not None:
            deltas.append((manifest.epoch, state.delta))
        if manifest.parent is None or state is None:
            return Lineage((), tuple(reversed(deltas)))
        try:
            manifest = yield from chain.manifest(manifest.parent, Epoch(manifest.epoch - 1), at)
        except Gone:
            return None
    return None


def recover(
    chain: Chain, newest: Manifest | None, at: Point = Point.RECOVER_MANIFEST
) -> Steps[Mapping[PartitionName, Lineage]]:
    """The lineage of every partition as of `newest`, following parents as far as needed."""
    walk = LineageWalk()
    manifest = newest
    while manifest is not None and newest is not None:
        walk.add(manifest)
        if manifest.parent is None or not walk.needs(Epoch(manifest.epoch - 1)):
            break
        manifest = yield from chain.manifest(manifest.parent, newest.epoch, at)
    return walk.lineages()
