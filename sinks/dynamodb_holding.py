"""What a DynamoDB table holds of a sink: every item it has written, each value as one text.

A table is scanned while others go on writing, so later rows may be among its items; each says by
its version which row it is. Tombstones are no rows, and what others have written is not shown.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.checkpoint.open_store import without_secrets
from penstock.checkpoint.s3_client import retrying
from penstock.clock import SystemChance, SystemClock
from penstock.sinks.cursors import Cursor
from penstock.sinks.dynamodb_client import new_client
from penstock.sinks.dynamodb_cursor import SHARD, Seen
from penstock.sinks.dynamodb_errors import explained
from penstock.sinks.dynamodb_rows import DELETED, RESERVED, VERSION, WRITER, DynamoDBRows
from penstock.sinks.dynamodb_values import canonical, items_of
from penstock.sinks.keyed import Changes
from penstock.sinks.plain_values import place_of_version
from penstock.sinks.protocol import PLACE, PROVENANCE, Target, Traits
from penstock.sinks.staged import own_columns, with_places

__all__ = ["DynamoDBHolding"]

EXTRA = "_extra"
"""Attributes of an item that are no columns of the rows. There should be none."""


class DynamoDBHolding:
    """The items of one sink."""

    def __init__(self, rows: DynamoDBRows, cursors: str, target: Target) -> None:
        self._rows = rows
        self._cursors = cursors
        self._columns = [name for name in target.columns.names if name != rows.keyed.deletes]
        self._retrying = retrying(SystemClock(), SystemChance())
        self._endpoint = "the endpoint"
        with self._explained(rows.table):
            self._client = new_client()
        self._endpoint = without_secrets(self._client.meta.endpoint_url)

    @property
    def traits(self) -> Traits:
        """Items have a key and a version."""
        return Traits(key=self._rows.keyed.key, has_places=True, is_settled=False)

    def read_cursor(self, shard: int) -> Cursor | None:
        """How far the shard is."""
        return self._retrying(self._read, self._rows.shard_key(shard)).cursor

    def expected(self, rows: pa.Table) -> Changes:
        """Each value as one text."""
        changes = self._rows.keyed.changes(rows)
        return Changes(self._spelt(changes.puts), self._spelt(changes.gone))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Every item of ours that is no tombstone, a page at a time."""
        start: Any = {}
        while start is not None:
            page = self._retrying(self._page, start)
            rows = [self._row(item) for item in page["Items"] if self._is_row(item)]
            if rows:
                yield pa.RecordBatch.from_pylist(rows, self._schema())
            last = page.get("LastEvaluatedKey")
            start = {"ExclusiveStartKey": last} if last else None

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    def _read(self, shard: str) -> Seen:
        with self._explained(self._cursors):
            found = self._client.get_item(
                TableName=self._cursors, Key={SHARD: {"S": shard}}, ConsistentRead=True
            )
        return Seen.of(found.get("Item", {}))

    def _page(self, start: Any) -> Any:
        with self._explained(self._rows.table):
            return self._client.scan(TableName=self._rows.table, ConsistentRead=True, **start)

    def _spelt(self, rows: pa.Table) -> pa.Table:
        own = own_columns(rows)
        shown = [{**_texts(item, own.column_names), EXTRA: ""} for item in items_of(own)]
        table = pa.Table.from_pylist(shown, pa.schema(self._texts_schema()))
        return with_places(table, rows)

    def _is_row(self, item: Mapping[str, Any]) -> bool:
        return item.get(WRITER) == {"S": self._rows.writer} and DELETED not in item

    def _row(self, item: Mapping[str, Any]) -> dict[str, Any]:
        version = item.get(VERSION, {}).get("S", "")
        places = zip(PLACE, place_of_version(version), strict=True)
        extra = ", ".join(sorted(item.keys() - {*self._columns, *RESERVED}))
        return {**_texts(item, self._columns), EXTRA: extra, **dict(places)}

    def _texts_schema(self) -> list[pa.Field]:
        return [pa.field(name, pa.large_string()) for name in (*self._columns, EXTRA)]

    def _schema(self) -> pa.Schema:
        return pa.schema([*self._texts_schema(), *(PROVENANCE.field(name) for name in PLACE)])

    def _explained(self, table: str) -> AbstractContextManager[None]:
        return explained(f"{self._rows.keyed.where}, table {table}", self._endpoint)


def _texts(item: Mapping[str, Any], columns: list[str]) -> dict[str, str | None]:
    return {name: canonical(item[name]) if name in item else None for name in columns}
