"""What a Delta table holds: one version of it, with the cursor that is part of that version.

A version never changes, so rows and cursor are of one moment, whatever is committed meanwhile. It
cannot be read to its end any more once VACUUM has removed a file of it; then that is said.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import DeltaTable

from penstock.sinks.cursors import Cursor
from penstock.sinks.delta_columns import as_kept
from penstock.sinks.delta_errors import explained
from penstock.sinks.delta_table import TableAt
from penstock.sinks.delta_writer import cursor_names, held_in, table_at
from penstock.sinks.keyed import Changes, as_key
from penstock.sinks.protocol import PLACE, Target, Traits

if TYPE_CHECKING:
    from penstock.sinks.delta import Delta

__all__ = ["DeltaHolding", "hold"]

BATCH_ROWS = 1 << 16


def hold(sink: "Delta", target: Target, columns: pa.Schema) -> "DeltaHolding":
    """The table as it is now."""
    at = table_at(sink, columns)
    return DeltaHolding(sink, target, at, at.load())


class DeltaHolding:
    """One version of a table."""

    def __init__(self, sink: "Delta", target: Target, at: TableAt, table: DeltaTable) -> None:
        self._sink = sink
        self._names = cursor_names(target.job, sink.name)
        self._at = at
        self._table = table
        self.traits = Traits(
            key=as_key(sink.key),
            has_places=sink.provenance,
            others="anybody may append to a Delta table",
        )

    def read_cursor(self, shard: int) -> Cursor | None:
        """How far the table is."""
        del shard  # there is one
        held = held_in(self._table, self._at, self._names)
        return None if held is None else held.cursor

    def expected(self, rows: pa.Table) -> Changes:
        """With the types that the table gives them."""
        return self._sink.keyed.changes(as_kept(rows.drop_columns(["_input"])))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of all files."""
        hidden = {"_input", *(() if self._sink.provenance else PLACE)}
        columns = pa.schema([each for each in self._at.shape.columns if each.name not in hidden])
        with explained(str(self._at), self._at.place):
            files = self._table.to_pyarrow_dataset()
            # One file at a time, and few batches ahead: a table may be larger than memory.
            for batch in files.to_batches(
                columns=columns.names,
                batch_size=BATCH_ROWS,
                batch_readahead=2,
                fragment_readahead=1,
            ):
                yield batch.cast(columns)

    def close(self) -> None:
        """Nothing is held."""
