"""The tables of the model job: what the loop knows of them between two epochs.

Listing what an index lacks, extending the index and sweeping are the production protocols.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.chaos.host import Host
from penstock.checkpoint import Chain, Manifest
from penstock.checkpoint.layout import table_key
from penstock.checkpoint.manifest import TableIndex
from penstock.checkpoint.tally import Tally
from penstock.effects import Steps
from penstock.ids import Attempt, Epoch, Key
from penstock.sinks.table_index import TableFile, extend_index
from penstock.sinks.table_tail import TableTail, table_tails

__all__ = ["INDEX_EVERY", "TABLE", "ModelTables", "table_file"]

TABLE = "rows"
INDEX_EVERY = 2


def table_file(epoch: Epoch, partition: int, attempt: Attempt) -> Key:
    """Where one attempt's file of the table of rows goes."""
    return table_key(TABLE, epoch, f"{partition}-{attempt}.arrow")


@dataclass(slots=True)
class ModelTables:
    """The tables of a job as its leader knows them."""

    indexes: Mapping[str, TableIndex] = field(default_factory=dict)
    tails: dict[str, TableTail] = field(default_factory=dict)
    tally: Tally | None = None

    @staticmethod
    def found(chain: Chain, newest: Manifest | None, names: Sequence[str]) -> Steps["ModelTables"]:
        """The tables as of the last committed epoch."""
        if not names:
            return ModelTables()
        tails = yield from table_tails(chain, newest, names)
        if newest is None:
            return ModelTables(tails=tails)
        return ModelTables(newest.tables, tails, newest.tally)

    def extended(self, chain: Chain, publishing: Epoch, host: Host) -> Steps[dict[str, TableIndex]]:
        """The indexes for the next epoch to name, extended where they have fallen behind."""
        found = dict(self.indexes)
        for table, tail in self.tails.items():
            index = found.get(table)
            due = 1 if index is None else index.epoch + INDEX_EVERY
            if publishing - 1 >= due:
                attempt = Attempt(host.chance.unique())
                extending = extend_index(chain, table, tail, publishing, attempt, self.tally)
                found[table] = yield from extending
        return found

    def unlisted(self) -> dict[str, tuple[TableFile, ...]]:
        """The files of each table that its index does not list yet."""
        return {table: tuple(tail.files()) for table, tail in self.tails.items()}

    def committed(self, manifest: Manifest) -> None:
        """Take one more epoch in."""
        for table, tail in self.tails.items():
            added = manifest.sinks.get(table, ())
            self.tails[table] = tail.after(added, manifest.tables.get(table))
        self.indexes, self.tally = manifest.tables, manifest.tally
