"""Rows as DynamoDB is given them: puts that hold only where there is no newer row, in batches.

A batch and the cursor fit in one transaction.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.sinks.dynamodb_values import Item, item_bytes, items_of
from penstock.sinks.keyed import Keyed
from penstock.sinks.plain_values import rank_text, row_versions
from penstock.sinks.protocol import PLACE
from penstock.sinks.staged import own_columns

__all__ = ["DELETED", "EXPIRES", "RESERVED", "VERSION", "WRITER", "DynamoDBRows"]

VERSION, WRITER, DELETED, EXPIRES = "_version", "_writer", "_deleted", "_expires"
RESERVED = (VERSION, WRITER, DELETED, EXPIRES)
"""The attributes of an item that are not the row's."""

BATCH_ROWS_MAX = 99
"""DynamoDB takes a hundred actions at once, and one is the cursor's."""
BATCH_BYTES_MAX = 3 << 20
"""It takes 4 MB, counted in a way of its own."""
PART_ROWS = 1_000
"""How many rows are spelt at a time."""
TOMBSTONE_S = 86_400

_CONDITION = "attribute_not_exists(#version) OR #version < :version OR #writer <> :writer"
_NAMES = {"#version": VERSION, "#writer": WRITER}


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoDBRows:
    """How the rows of one sink of one job are written."""

    table: str
    keyed: Keyed
    writer: str
    """The job and the sink: versions of other ones do not compare."""

    def shard_key(self, shard: int) -> str:
        """The name of a shard's cursor. The table is last: it may be named by an address with
        slashes, the others have none."""
        return f"{self.writer}/{shard}/{self.table}"

    def batches(self, rows: pa.Table, rank: int, now_s: int) -> Iterator[list[Any]]:
        """What an epoch leaves of each key, as actions of transactions; no batch is empty."""
        batch, size_bytes = list[Any](), 0
        for item in self._items(rows, rank, now_s):
            item_size = item_bytes(item)
            full = len(batch) == BATCH_ROWS_MAX or size_bytes + item_size > BATCH_BYTES_MAX
            if batch and full:
                yield batch
                batch, size_bytes = [], 0
            batch.append(self._put(item))
            size_bytes += item_size
        if batch:
            yield batch

    def _items(self, rows: pa.Table, rank: int, now_s: int) -> Iterator[Item]:
        changes = self.keyed.changes(rows)
        gone = {DELETED: {"BOOL": True}, EXPIRES: {"N": str(now_s + TOMBSTONE_S)}}
        going = changes.gone.select([*self.keyed.key, *PLACE])
        for table, mark in ((changes.puts, {}), (going, gone)):
            for start in range(0, table.num_rows, PART_ROWS):
                part = table.slice(start, PART_ROWS)
                spelt = items_of(own_columns(part))
                for item, version in zip(spelt, row_versions(part), strict=True):
                    item[VERSION] = {"S": rank_text(rank) + version}
                    item[WRITER] = {"S": self.writer}
                    yield item | mark

    def _put(self, item: Item) -> Any:
        return {
            "Put": {
                "TableName": self.table,
                "Item": item,
                "ConditionExpression": _CONDITION,
                "ExpressionAttributeNames": _NAMES,
                "ExpressionAttributeValues": {":version": item[VERSION], ":writer": item[WRITER]},
            }
        }
