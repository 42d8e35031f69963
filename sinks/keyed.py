"""Rows with a key: what an epoch leaves of each, and which of them are to go.

A sink with a key holds the last row of it. A function takes one back by emitting a row whose
`deletes` column is true; of such a row only the key counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.errors import Invalid
from penstock.sinks.plain_values import python_values

__all__ = ["Changes", "Keyed", "as_key"]


def as_key(key: str | Sequence[str]) -> tuple[str, ...]:
    """A key as it is kept: the names of its columns."""
    return (key,) if isinstance(key, str) else tuple(key)


@dataclass(frozen=True, slots=True)
class Changes:
    """What an epoch makes of a shard: each key at most once in one of the two, in the order in
    which their last rows came."""

    puts: pa.Table
    """Rows to be there, without the `deletes` column."""
    gone: pa.Table
    """Rows whose keys are to go, with all the columns of `puts`."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """How a sink tells its rows apart."""

    where: str
    """The sink, as messages call it."""
    key: tuple[str, ...]
    deletes: str | None = None

    def check(self, rows: pa.Table) -> None:
        """Raise `Invalid` if the rows have no such key, or one without a value."""
        for column in self.key:
            if column not in rows.column_names:
                found = f"is its key, and the rows have only {', '.join(_own(rows))}"
                raise Invalid(f"{self.where}, column {column!r}", found, "emit it, or name another")
            if rows.column(column).null_count:
                at = pc.index(rows.column(column).is_null(), True).as_py()
                found = f"is its key, and has no value in the row {self._shown(rows, at)}"
                raise Invalid(f"{self.where}, column {column!r}", found, "emit no row without it")
        self._check_deletes(rows)

    def _check_deletes(self, rows: pa.Table) -> None:
        if self.deletes is None:
            return
        where = f"{self.where}, column {self.deletes!r}"
        if not self.key:
            raise Invalid(where, "deletes rows, and the sink has no key", "give it a key")
        if self.deletes not in rows.column_names:
            raise Invalid(where, "deletes rows, and there is no such column", "emit it")
        kind = rows.schema.field(self.deletes).type
        if not pa.types.is_boolean(kind):
            raise Invalid(where, f"deletes rows, and is {kind}", "make it a boolean")

    def changes(self, rows: pa.Table) -> Changes:
        """The last row of each key, parted into those that stay and those that go. Rows are
        taken to come in their order."""
        last = rows.take(self._last(rows)) if self.key else rows
        if self.deletes is None:
            return Changes(last, last.slice(0, 0))
        going = pc.fill_null(last.column(self.deletes), False)
        kept = last.drop_columns([self.deletes])
        return Changes(kept.filter(pc.invert(going)), kept.filter(going))

    def _last(self, rows: pa.Table) -> pa.Array:
        """The places of the last row of each key, in order."""
        places = pa.array(np.arange(rows.num_rows, dtype=np.int64))
        numbered = rows.select(list(self.key)).append_column("_place", places)
        last = numbered.group_by(list(self.key)).aggregate([("_place", "max")])
        return pa.array(np.sort(last.column("_place_max").to_numpy()))

    def _shown(self, rows: pa.Table, at: int) -> str:
        row = rows.select(_own(rows)).slice(at, 1)
        named = zip(row.column_names, row.columns, strict=True)
        return str({name: python_values(column)[0] for name, column in named})[:120]


def _own(rows: pa.Table) -> list[str]:
    return [name for name in rows.column_names if not name.startswith("_")]
