"""`DynamoDB`: the last row of each key, as an item of a table.

A transaction of DynamoDB holds a hundred items, and an epoch may have more. So each item carries
the version of the row it holds, and is put only where there is no newer one, whatever arrives late.
A row that is taken back leaves a tombstone with its version, for a while. So whatever is sent
again, the items come to hold the same.

Each transaction also asks the shard's cursor, an item of the table of cursors: a larger token
there, or a cursor that is elsewhere, and nothing is written. The last transaction of an epoch moves
the cursor; an epoch of fewer than a hundred rows is one transaction, and changes as a whole.

An item of another job or sink at the same key gives way, because their epochs do not compare.
Credentials, region and endpoint come from the usual AWS settings, AWS_ENDPOINT_URL_DYNAMODB
included. Readers must leave out items with `_deleted`.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.errors import Invalid
from penstock.ids import check_name
from penstock.sinks.dynamodb_rows import RESERVED, DynamoDBRows
from penstock.sinks.dynamodb_values import check_values
from penstock.sinks.guarantee import Guarantee
from penstock.sinks.keyed import Keyed, as_key
from penstock.sinks.protocol import Target
from penstock.sinks.staged import own_columns
from penstock.sinks.value_check import check_spelling

if TYPE_CHECKING:
    from penstock.sinks.dynamodb_holding import DynamoDBHolding
    from penstock.sinks.dynamodb_writer import DynamoDBWriter

__all__ = ["DynamoDB"]


@dataclass(frozen=True, slots=True)
class DynamoDB:
    """Rows as items: an attribute per column that has a value, and `_version`."""

    name: str
    _: KW_ONLY
    key: str | Sequence[str]
    """The column that is the partition key, or it and the one that is the sort key."""
    table: str | None = None
    """The name of the table; that of the sink unless told."""
    deletes: str | None = None
    """A boolean column: a row in which it is true takes its key away."""
    create: bool = False
    """Whether tables that are missing are made, with payment per request."""
    cursors: str = "penstock-cursors"
    """The table of cursors, whose key is the text `shard`. Jobs may share it."""

    def __post_init__(self) -> None:
        check_name("sink", self.name)
        key = as_key(self.key)
        object.__setattr__(self, "key", key)
        if len(key) not in (1, 2) or len(set(key)) < len(key):
            found = f"has the key {key!r}, and a table has a partition key and perhaps a sort key"
            raise Invalid(self._where, found, "name one column, or two")
        if self._table == self.cursors:
            found = f"keeps rows and cursors in one table, {self.cursors}"
            raise Invalid(self._where, found, "name two")

    @property
    def guarantee(self) -> Guarantee:
        """Items change some at a time, and come to hold their last row."""
        return Guarantee.CONVERGES

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that tell its rows apart."""
        return as_key(self.key)

    def shards(self, partitions: int) -> int:
        """One per partition."""
        return partitions

    def check(self, rows: pa.Table) -> None:
        """Refuse rows without a key, and what DynamoDB can never hold."""
        check_spelling(self._where, rows)
        self._keyed.check(rows)
        own = own_columns(rows)
        for name in RESERVED:
            if name in own.column_names:
                found = "has the name of an attribute that the sink keeps for itself"
                raise Invalid(f"{self._where}, column {name!r}", found, "rename it")
        check_values(self._where, as_key(self.key), own)

    def open(self, target: Target) -> "DynamoDBWriter":
        """See that both tables are there and have the right key; make them, if asked to."""
        # Imported here so that a job need not load boto3 in every worker.
        from penstock.sinks.dynamodb_writer import DynamoDBWriter

        writer = DynamoDBWriter(self._rows(target), self.cursors, target)
        try:
            writer.see_tables(create=self.create)
        except BaseException:
            writer.close()
            raise
        return writer

    def read_back(self, target: Target) -> "DynamoDBHolding":
        """Connect, to look at the items. Nothing is asked yet."""
        from penstock.sinks.dynamodb_holding import DynamoDBHolding

        return DynamoDBHolding(self._rows(target), self.cursors, target)

    def _rows(self, target: Target) -> DynamoDBRows:
        self.check(target.columns.empty_table())
        return DynamoDBRows(
            table=self._table, keyed=self._keyed, writer=f"{target.job}/{self.name}"
        )

    @property
    def _where(self) -> str:
        return f"sink {self.name}"

    @property
    def _table(self) -> str:
        return self.name if self.table is None else self.table

    @property
    def _keyed(self) -> Keyed:
        return Keyed(self._where, as_key(self.key), self.deletes)
