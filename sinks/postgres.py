"""`Postgres`: rows in a table of a Postgres database, each exactly once.

Every shard has a row in the table `penstock_cursors` of the same schema. The rows of an epoch are
copied, and the cursor is moved, in one transaction, which begins by taking the cursor's row lock:
so whoever comes second, a zombie or a new leader, finds the cursor where the first one left it.
When the answer to COMMIT is lost, the cursor tells what became of it.

Without a key rows are appended. With one they are copied into a temporary table, and take the
place of the rows of the same key from there. Two shards should not write the same key: which of
their rows stays is not said.

A cursor belongs to a job, a sink and a table's name. Whoever empties the table, restores it or
puts another in its place moves the cursor as well: `penstock sinks accept`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.errors import Invalid
from penstock.ids import check_name
from penstock.sinks.guarantee import Guarantee
from penstock.sinks.keyed import Keyed, as_key
from penstock.sinks.postgres_check import check_columns, check_values
from penstock.sinks.postgres_names import CURSORS, Place, check_identifier
from penstock.sinks.protocol import PLACE, PROVENANCE, Target
from penstock.sinks.staged import own_columns

if TYPE_CHECKING:
    from penstock.sinks.postgres_holding import PostgresHolding
    from penstock.sinks.postgres_writer import PostgresWriter

__all__ = ["Postgres"]


@dataclass(frozen=True, slots=True)
class Postgres:
    """Rows in a table, appended or, with a key, the last one of each."""

    name: str
    connection: str = field(repr=False)
    """A URL or a list of settings, as libpq knows them: `postgresql://etl:${PG_PASSWORD}@db/shop`
    or `host=db dbname=shop user=etl password=${PG_PASSWORD}`. What a reference stands for is taken
    as it is, so a password is written nowhere in another way; `${DATABASE_URL}` alone stands for
    all of it."""
    _: KW_ONLY
    table: str | None = None
    """The name of the sink unless told."""
    schema: str = "public"
    key: str | Sequence[str] = ()
    """The columns that tell rows apart; the table has a unique index on exactly these."""
    deletes: str | None = None
    """A boolean column, not written: a row in which it is true takes its key away."""
    create: bool = False
    """Whether to make the table if it is not there."""
    provenance: bool = False
    """Whether to write where each row comes from: `_epoch`, `_partition`, `_sequence`, `_input`."""

    def __post_init__(self) -> None:
        check_name("sink", self.name)
        object.__setattr__(self, "key", as_key(self.key))
        check_identifier(f"{self._where}, schema {self.schema!r}", self.schema)
        check_identifier(f"{self._where}, table {self._table!r}", self._table)
        if self._table == CURSORS:
            found = "is where sinks keep their cursors"
            raise Invalid(f"{self._where}, table {CURSORS}", found, "name another")
        if len(set(self.key)) < len(self.key) or self.deletes in self.key:
            found = f"has the key {self.key!r}, in which a column has two meanings"
            raise Invalid(self._where, found, "name each column of its key once")

    @property
    def guarantee(self) -> Guarantee:
        """Rows and cursor are one transaction."""
        return Guarantee.EXACTLY_ONCE

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that tell its rows apart."""
        return as_key(self.key)

    def shards(self, partitions: int) -> int:
        """One per partition: they are written at the same time."""
        return partitions

    def check(self, rows: pa.Table) -> None:
        """Refuse rows without a key, or with values that no table of Postgres holds."""
        self.keyed.check(rows)
        written = rows if self.deletes is None else rows.drop_columns([self.deletes])
        check_columns(self._where, own_columns(written).schema, as_key(self.key))
        check_values(self._where, written, as_key(self.key))

    def open(self, target: Target) -> "PostgresWriter":
        """Connect, and see that the table takes such rows."""
        with self._needing_client():
            from penstock.sinks.postgres_writer import open_writer
        return open_writer(self, target, self._columns(target, PROVENANCE.names))

    def read_back(self, target: Target) -> "PostgresHolding":
        """Connect, to look at the table. It is not made."""
        with self._needing_client():
            from penstock.sinks.postgres_holding import hold
        return hold(self, target, self._columns(target, PLACE))

    @contextmanager
    def _needing_client(self) -> Iterator[None]:
        try:
            yield
        except ImportError as missing:
            if (missing.name or "psycopg").partition(".")[0] != "psycopg":
                raise
            found = "needs the package psycopg, which is not installed"
            raise Invalid(self._where, found, "pip install 'penstock[postgres]'") from None

    def _columns(self, target: Target, kept: Sequence[str]) -> pa.Schema:
        """Those of the table that the sink writes; of where rows come from, these."""
        self.check(target.columns.empty_table())
        columns = [each for each in target.columns if each.name != self.deletes]
        if self.provenance:
            columns += [PROVENANCE.field(name) for name in kept]
        return pa.schema(columns)

    @property
    def place(self) -> Place:
        """What messages call it."""
        return Place(self.name, self.schema, self._table)

    @property
    def keyed(self) -> Keyed:
        """How it tells its rows apart."""
        return Keyed(self._where, as_key(self.key), self.deletes)

    @property
    def _where(self) -> str:
        return f"sink {self.name}"

    @property
    def _table(self) -> str:
        return self.name if self.table is None else self.table
