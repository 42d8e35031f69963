"""The tally: the files and rows that each table was given, counted along the chain of manifests.

A table's index is a list that the leader makes now and then; the tally is a count that every
commit carries on from its parent. Neither is made of the other, so an index that leaves a file
out, or lists one twice, disagrees with the tally of its epoch: whoever extends, reads, sweeps or
audits a table can see it, also when the manifests that added the files were given up long ago.

A tally begins with the first epoch of a root. A root that an older version began has one from its
next commit on: `since` is the last epoch that it does not count.
"""

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from penstock.checkpoint.formats import Ref
from penstock.checkpoint.layout import is_table_key
from penstock.fields import Count, HexHash, Name, PartitionNumber
from penstock.ids import Epoch

__all__ = ["NOTHING", "Output", "TableTotal", "Tally", "tally_after"]


class Output(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows staged for a sink by one task."""

    partition: PartitionNumber
    ref: Ref
    rows: Count


class TableTotal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The files of one table, in order of epoch and partition."""

    files: Count = 0
    rows: Count = 0
    sha256: HexHash = ""
    """The hash of the total before the last file, and of that file's epoch, partition, hash and
    rows; empty without a file."""

    def plus(self, epoch: Epoch, outputs: Iterable[Output]) -> "TableTotal":
        """This total after one more epoch. Objects for sinks that are no tables do not count."""
        total = self
        for output in sorted(outputs, key=lambda each: each.partition):
            if is_table_key(output.ref.key):
                total = total._with(epoch, output)
        return total

    def _with(self, epoch: Epoch, output: Output) -> "TableTotal":
        line = f"{self.sha256} {epoch} {output.partition} {output.ref.sha256} {output.rows}"
        return TableTotal(
            files=self.files + 1,
            rows=self.rows + output.rows,
            sha256=hashlib.sha256(line.encode()).hexdigest(),
        )


NOTHING = TableTotal()


class Tally(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The totals of all tables, of the epochs above `since`."""

    since: Epoch
    tables: dict[Name, TableTotal] = {}
    """Those that have a file. A sink that is not named has none that counts."""

    def total(self, table: str) -> TableTotal:
        """What a table was given."""
        return self.tables.get(table, NOTHING)

    def plus(self, epoch: Epoch, sinks: Mapping[str, Iterable[Output]]) -> "Tally":
        """This tally after one more epoch."""
        totals = {name: self.total(name).plus(epoch, outputs) for name, outputs in sinks.items()}
        changed = {name: total for name, total in totals.items() if total.files}
        return Tally(since=self.since, tables={**self.tables, **changed})


def tally_after(before: Tally | None, epoch: Epoch, sinks: Mapping[str, Iterable[Output]]) -> Tally:
    """The tally of an epoch, given its parent's; None if the parent has none, or there is none."""
    begun = Tally(since=Epoch(epoch - 1)) if before is None else before
    return begun.plus(epoch, sinks)
