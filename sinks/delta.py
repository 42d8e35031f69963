"""`Delta`: rows in a Delta Lake table, each exactly once.

One commit of the table holds the rows of an epoch, of all partitions, and the cursor. A leader that
was deposed while it wrote is refused by the log itself; when an answer is lost, the cursor tells.
Others may read, append to, compact and vacuum the table meanwhile, with any client that commits by
conditional writes. Without a key rows are appended. With one they are merged: files that hold a key
of the epoch are written anew.

Each epoch adds a commit and at least one file. The log is checkpointed on the way; small files are
put together by whoever owns the table (`OPTIMIZE`, `DeltaTable.optimize.compact()`), and those that
nothing names any more are removed by `VACUUM`.

A cursor is part of its table. Whoever restores an older version, or empties the table, changes the
rows and not the cursor, and moves that with `penstock sinks accept`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.errors import Invalid
from penstock.ids import check_name
from penstock.sinks.delta_columns import check_columns, check_key, check_partitions, check_values
from penstock.sinks.delta_place import as_url
from penstock.sinks.guarantee import Guarantee
from penstock.sinks.keyed import Keyed, as_key
from penstock.sinks.protocol import PROVENANCE, Target
from penstock.sinks.staged import own_columns
from penstock.sinks.value_check import check_calendar

if TYPE_CHECKING:
    from penstock.sinks.delta_holding import DeltaHolding
    from penstock.sinks.delta_writer import DeltaWriter

__all__ = ["Delta"]


@dataclass(frozen=True, slots=True)
class Delta:
    """Rows in a table, appended or, with a key, the last one of each."""

    name: str
    url: str
    """A folder or s3://bucket/prefix, which is reached with the usual AWS settings."""
    _: KW_ONLY
    key: str | Sequence[str] = ()
    """The columns that tell rows apart."""
    deletes: str | None = None
    """A boolean column, not written: a row in which it is true takes its key away."""
    partition_by: str | Sequence[str] = ()
    """The columns by whose values the table is laid out in folders."""
    provenance: bool = False
    """Whether to write where each row comes from: `_epoch`, `_partition`, `_sequence`, `_input`."""
    create: bool = True
    """Whether to make the table if it is not there."""

    def __post_init__(self) -> None:
        check_name("sink", self.name)
        object.__setattr__(self, "url", as_url(self._where, self.url))
        object.__setattr__(self, "key", as_key(self.key))
        object.__setattr__(self, "partition_by", as_key(self.partition_by))
        for names in (self.key, self.partition_by):
            if len(set(names)) < len(names) or self.deletes in names:
                found = f"names {', '.join(names)}, in which a column has two meanings"
                raise Invalid(self._where, found, "name each column once")

    @property
    def guarantee(self) -> Guarantee:
        """Rows and cursor are one commit."""
        return Guarantee.EXACTLY_ONCE

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that tell its rows apart."""
        return as_key(self.key)

    def shards(self, partitions: int) -> int:
        """One: a table has one log, and an epoch is one entry in it."""
        del partitions
        return 1

    def check(self, rows: pa.Table) -> None:
        """Refuse rows without a key, or with what no Delta table holds."""
        check_calendar(self._where, rows)
        self.keyed.check(rows)
        written = self._written(own_columns(rows))
        check_columns(self._where, written.schema)
        check_key(self._where, written.schema, as_key(self.key))
        check_partitions(self._where, written, as_key(self.partition_by))
        check_values(self._where, self._written(rows))

    def open(self, target: Target) -> "DeltaWriter":
        """Find the table, or make it, and see that it takes such rows."""
        with self._needing_client():
            from penstock.sinks.delta_writer import open_writer
        return open_writer(self, target, self._columns(target))

    def read_back(self, target: Target) -> "DeltaHolding":
        """The table as it is now. It is not made."""
        with self._needing_client():
            from penstock.sinks.delta_holding import hold
        return hold(self, target, self._columns(target))

    @property
    def keyed(self) -> Keyed:
        """How it tells its rows apart."""
        return Keyed(self._where, as_key(self.key), self.deletes)

    @property
    def _where(self) -> str:
        return f"sink {self.name}"

    @contextmanager
    def _needing_client(self) -> Iterator[None]:
        try:
            yield
        except ImportError as missing:
            if (missing.name or "deltalake").partition(".")[0] != "deltalake":
                raise
            found = "needs the package deltalake, which is not installed"
            raise Invalid(self._where, found, "pip install 'penstock[delta]'") from None

    def _columns(self, target: Target) -> pa.Schema:
        """Those of the table that the sink writes."""
        rows = target.columns.empty_table()
        self.check(rows)
        return pa.schema([*self._written(rows).schema, *(PROVENANCE if self.provenance else ())])

    def _written(self, rows: pa.Table) -> pa.Table:
        return rows if self.deletes is None else rows.drop_columns([self.deletes])
