"""How the rows of a sink become records: by what they are told apart, and what of them counts."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from penstock.chaos.audit_compare import gathered
from penstock.chaos.row_hash import Hashes, hash_rows
from penstock.chaos.spill import Records, records
from penstock.sinks.protocol import PLACE, Traits

__all__ = ["Lens"]


@dataclass(frozen=True, slots=True)
class Lens:
    """Rows as they are compared.

    They are told apart by the sink's key; else by where they come from, if they say so; else by all
    that is in them, and counted. Where others write too, somebody else's row may say the same of
    where it comes from: then all that is in them counts as well.
    """

    traits: Traits

    @property
    def by_place(self) -> bool:
        """Whether rows are named by where they come from."""
        return self.traits.has_places and not self.traits.is_shared

    @property
    def is_counted(self) -> bool:
        """Whether rows have no name, and only their number tells."""
        return not self.traits.key and not self.by_place

    def keys(self, rows: pa.Table | pa.RecordBatch) -> Hashes:
        """By what each row is told apart."""
        return hash_rows(rows, self.traits.key or (PLACE if self.by_place else self._own(rows)))

    def records(self, rows: pa.Table | pa.RecordBatch, *, is_gone: bool = False) -> Records:
        """A record of each row; of equal ones without a name, one for all."""
        whole = hash_rows(rows, self._own(rows))
        made = records(whole if self.is_counted else self.keys(rows), whole)
        made["gone"] = is_gone
        if set(PLACE) <= set(rows.schema.names):
            for name in PLACE:
                made[name[1:]] = _numbers(rows.column(name))
        return gathered(made) if self.is_counted else made

    def _own(self, rows: pa.Table | pa.RecordBatch) -> list[str]:
        """The columns that count: of where a row comes from, only if a sink shows it and its rows
        go by nothing else."""
        hidden = set() if self.traits.has_places and self.is_counted else set(PLACE)
        return sorted(set(rows.schema.names) - hidden)


def _numbers(column: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    """Whole numbers; -1 where there is none."""
    filled = column.cast(pa.int64()).fill_null(-1)
    return np.asarray(filled.to_numpy(), np.int64)
