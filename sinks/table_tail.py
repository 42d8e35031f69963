"""The tail of a table: what manifests have added to it behind its newest index, without a gap.

An index is extended by the tail, so a tail that leaves an epoch out loses the files of that epoch
for good: the next sweep takes them for garbage. Two rules prevent it. A tail is positional: it has
one place for every epoch behind the index, also for those that added nothing. And the walk that
finds it goes back to the index, wherever HEAD's floor is: a restore and a fork put the floor above
the index, and the collector keeps the manifests between the two for exactly this walk.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.layout import is_table_key
from penstock.checkpoint.manifest import Manifest, Output, TableIndex
from penstock.effects import Steps
from penstock.errors import Bug
from penstock.ids import Epoch
from penstock.points import Point

__all__ = ["TableFile", "TableTail", "TailWalk", "table_tails"]

BEFORE_ALL = Epoch(0)


class TableFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a table, and the epoch that added it."""

    epoch: Epoch
    output: Output


@dataclass(frozen=True, slots=True)
class TableTail:
    """What the epochs behind an index have added to a table, one place for each."""

    index: TableIndex | None = None
    """The newest index; None before the first."""
    born: Epoch = BEFORE_ALL
    """Without an index: the last epoch before the table was there."""
    added: tuple[tuple[Output, ...], ...] = ()
    """The files of each epoch from `base` + 1 on, in order of partitions."""

    @property
    def base(self) -> Epoch:
        """The last epoch that is not part of the tail."""
        return self.born if self.index is None else self.index.epoch

    @property
    def upto(self) -> Epoch:
        """The last epoch that is."""
        return Epoch(self.base + len(self.added))

    def files(self) -> list[TableFile]:
        """All files, in order of epoch and partition."""
        return [
            TableFile(Epoch(self.base + 1 + number), output)
            for number, outputs in enumerate(self.added)
            for output in outputs
        ]

    def after(self, outputs: Iterable[Output], index: TableIndex | None) -> "TableTail":
        """The tail once the next epoch is committed, whose manifest names `index`."""
        longer = replace(self, added=(*self.added, _in_order(outputs)))
        if index is None or index == self.index:
            return longer
        if not self.base <= index.epoch <= self.upto:
            raise Bug(
                "the index of a table",
                f"covers epochs up to {index.epoch}, and its tail those from {self.base + 1} "
                f"to {self.upto}",
                "report this",
            )
        return TableTail(index, index.epoch, longer.added[index.epoch - self.base :])


@dataclass(slots=True)
class TailWalk:
    """Manifests in, newest first; out: whether older ones are needed, and the tail."""

    table: str
    index: TableIndex | None = None
    born: Epoch | None = None
    done: bool = False
    _added: list[tuple[Output, ...]] = field(default_factory=list)

    def add(self, manifest: Manifest) -> None:
        """Take one more step back. The first manifest says which index there is."""
        if self.done:
            return
        if not self._added and self.index is None:
            self.index = manifest.tables.get(self.table)
        if self.index is not None:
            self._back_to(manifest, self.index.epoch)
        elif self.table not in manifest.sinks:
            self.born, self.done = manifest.epoch, True
        else:
            self._added.append(_in_order(manifest.sinks[self.table]))
            if manifest.parent is None:
                self.born, self.done = Epoch(manifest.epoch - 1), True

    def tail(self) -> TableTail:
        """What was found, once it is done."""
        born = self.born or BEFORE_ALL
        return TableTail(self.index, born if self.index is None else self.index.epoch, self.added)

    @property
    def added(self) -> tuple[tuple[Output, ...], ...]:
        """The files of each epoch so far, oldest first."""
        return tuple(reversed(self._added))

    def _back_to(self, manifest: Manifest, covered: Epoch) -> None:
        if manifest.epoch > covered:
            self._added.append(_in_order(manifest.sinks.get(self.table, ())))
        self.done = manifest.epoch <= covered + 1 or manifest.parent is None


def table_tails(
    chain: Chain, newest: Manifest | None, tables: Sequence[str]
) -> Steps[dict[str, TableTail]]:
    """The tail of each table as of `newest`, in one walk back to the oldest of their indexes."""
    if newest is None:
        return {table: TableTail() for table in tables}
    walks = [TailWalk(table) for table in tables]
    manifest = newest
    while True:
        for walk in walks:
            walk.add(manifest)
        if manifest.parent is None or all(walk.done for walk in walks):
            return {walk.table: walk.tail() for walk in walks}
        manifest = yield from chain.manifest(manifest.parent, newest.epoch, Point.READ_MANIFEST)


def _in_order(outputs: Iterable[Output]) -> tuple[Output, ...]:
    """Those of a sink's outputs that are files of a table, in order of partitions."""
    files = (output for output in outputs if is_table_key(output.ref.key))
    return tuple(sorted(files, key=lambda output: output.partition))
