"""A job that writes one table, made of the production parts: for tests that need files in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.checkpoint import (
    Chain,
    Collected,
    Draft,
    Manifest,
    MemoryStore,
    ObjectStore,
    Output,
    Retention,
    Root,
    perform,
    ref_to,
)
from penstock.checkpoint.manifest import TableIndex
from penstock.ids import Attempt, Epoch
from penstock.sinks import PROVENANCE, Table, extend_index, table_tails
from tests.support.driving import CountingChance, ManualClock

LAST = Retention(epochs=1, age_s=0, grace_s=0)


def table_rows(epoch: int, partition: int, columns: Mapping[str, Any]) -> pa.Table:
    """Rows with their provenance, as the runtime appends it: row i was computed from offset i."""
    rows = pa.table(columns)
    inputs = [[{"from": "clicks/0", "first": i, "last": i}] for i in range(len(rows))]
    added: dict[str, Any] = {
        "_epoch": [epoch] * len(rows),
        "_partition": [partition] * len(rows),
        "_sequence": range(len(rows)),
        "_input": inputs,
    }
    for column in PROVENANCE:
        rows = rows.append_column(column, pa.array(added[column.name], column.type))
    return rows


@dataclass
class TableJob:
    """Commits epochs that add files to a table, indexes them, and gives history up."""

    store: ObjectStore = field(default_factory=MemoryStore)
    table: Table = field(default_factory=lambda: Table("totals"))

    def __post_init__(self) -> None:
        self.chance = CountingChance()
        self.root = Root(self.store, ManualClock(), self.chance)
        self.session = self.root.lead("clicks")

    @property
    def next_epoch(self) -> Epoch:
        return Epoch(self.session.head.epoch + 1)

    def write(
        self, files: Mapping[int, Mapping[str, Any]] | None = None, *, index: bool = False
    ) -> Manifest:
        """One epoch with a file per partition; before it, perhaps, an index of those so far."""
        outputs = tuple(
            self.stage(partition, columns) for partition, columns in (files or {}).items()
        )
        tables = {} if self.session.manifest is None else dict(self.session.manifest.tables)
        if index:
            tables[self.table.name] = self.publish()
        return self.session.commit(Draft(sinks={self.table.name: outputs}, tables=tables))

    def write_users(self, *names: str, index: bool = False) -> Manifest:
        """One epoch with one file of one column."""
        return self.write({0: {"user": list(names)}}, index=index)

    def stage(self, partition: int, columns: Mapping[str, Any]) -> Output:
        """Store a file that nothing names yet."""
        rows = table_rows(self.next_epoch, partition, columns)
        return self.stage_body(partition, self.table.encode(rows), len(rows))

    def stage_body(self, partition: int, body: bytes, rows: int = 1) -> Output:
        key = self.table.key(self.next_epoch, partition, Attempt(self.chance.unique()))
        self.store.put(key, body)
        return Output(partition=partition, ref=ref_to(key, body), rows=rows)

    def publish(self) -> TableIndex:
        """Store an index of everything committed, for the next epoch to name."""
        newest = self.session.manifest
        assert newest is not None
        name, attempt = self.table.name, Attempt(self.chance.unique())
        tail = perform(table_tails(Chain(), newest, [name]), self.root.handlers)[name]
        steps = extend_index(Chain(), name, tail, self.next_epoch, attempt, newest.tally)
        return perform(steps, self.root.handlers)

    def collect(self) -> Collected:
        """Give up all but the last epoch, as far as the table's index allows."""
        newest = self.session.manifest
        assert newest is not None
        index = newest.tables.get(self.table.name)
        needed = {} if index is None else {self.table.name: Epoch(index.epoch + 1)}
        return self.session.collect(LAST, needed)
