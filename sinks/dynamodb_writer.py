"""An open `DynamoDB`: the rows of an epoch on their way into it, a transaction at a time.

Every write holds only under its condition, so each may be sent again: after a lost answer the rows
are found to be there, and the cursor tells whether it was moved.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from botocore.exceptions import ClientError

from penstock.checkpoint.open_store import without_secrets
from penstock.checkpoint.s3_client import retrying
from penstock.checkpoint.s3_errors import code_of
from penstock.clock import SystemChance, SystemClock
from penstock.errors import Unavailable
from penstock.ids import Token
from penstock.sinks.cursors import Apply, Cursor, is_applied
from penstock.sinks.dynamodb_client import new_client
from penstock.sinks.dynamodb_cursor import SHARD, Seen, cursor_item, cursor_update
from penstock.sinks.dynamodb_errors import explained, refusal
from penstock.sinks.dynamodb_rows import EXPIRES, DynamoDBRows
from penstock.sinks.dynamodb_tables import TableShape, make_table, see_table
from penstock.sinks.dynamodb_values import key_kind
from penstock.sinks.protocol import Target
from penstock.sinks.staged import rows_of

__all__ = ["DynamoDBWriter"]

LOOKS_MAX = 5
"""How often an epoch is begun again because the cursor changed under it."""
CANCELLED = "TransactionCanceledException"
FAILED = "ConditionalCheckFailed"
"""The reason for which a transaction is cancelled if a condition does not hold. `None` is the
reason of an action that would have been done."""


class DynamoDBWriter:
    """Safe to use from several threads."""

    def __init__(self, rows: DynamoDBRows, cursors: str, target: Target) -> None:
        self._rows = rows
        self._cursors = cursors
        self._target = target
        self._clock = SystemClock()
        self._retrying = retrying(self._clock, SystemChance())
        self._endpoint = "the endpoint"
        with self._explained(rows.table):
            self._client = new_client()
        self._endpoint = without_secrets(self._client.meta.endpoint_url)

    def see_tables(self, *, create: bool) -> None:
        """Look at both tables; make those that are missing, if that was asked for."""
        columns = self._target.columns
        kinds = [(name, key_kind(columns.field(name).type) or "S") for name in self._rows.keyed.key]
        for shape in (
            TableShape(self._rows.table, tuple(kinds), EXPIRES),
            TableShape(self._cursors, ((SHARD, "S"),)),
        ):
            self._retrying(self._see_table, shape, create)

    def read_cursor(self, shard: int) -> Cursor | None:
        """How far the shard is."""
        return self._seen(shard).cursor

    def apply(self, asked: Apply) -> None:
        """Rows in batches, then the cursor.

        1. Read the cursor, and decide.
        2. Every batch but the last, each only if the cursor is still what was read.
        3. The last one, which moves the cursor in the same transaction.

        A cursor that has changed meanwhile is read and decided on again.
        """
        for _ in range(LOOKS_MAX):
            seen = self._seen(asked.shard)  # 1
            if is_applied(asked, seen.held(asked)) or self._is_written(asked, seen):
                return
        raise Unavailable(
            f"{self._rows.keyed.where}, shard {asked.shard}",
            "has a cursor that others keep changing",
            "see who else writes there",
        )

    def accept(self, shard: int, cursor: Cursor, token: Token) -> None:
        """Put the cursor here; rows that come after it win over those that are there."""
        moved = self._seen(shard).moved_to(cursor, token)
        self._retrying(self._put_cursor, cursor_item(self._rows.shard_key(shard), moved))

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    def _is_written(self, asked: Apply, seen: Seen) -> bool:
        """Write all of the epoch; False if the cursor is not what was seen any more."""
        table = rows_of(asked.outputs, self._target.columns, ("_input",))
        rank, now_s = asked.cursor.generation + seen.lift, int(self._clock.wall())
        shard = self._rows.shard_key(asked.shard)
        for puts, is_last in _with_last(self._rows.batches(table, rank, now_s)):
            update = cursor_update(self._cursors, shard, seen, asked, moves=is_last)
            if not self._retrying(self._is_sent, update, puts):  # 2, 3
                return False
        return True

    def _is_sent(self, update: Any, puts: list[Any]) -> bool:
        """Send one batch, without the rows of which newer ones are there; False if the cursor
        refuses. If none is left, the cursor has still to hear of us."""
        while True:
            reasons = self._reasons([update, *puts])
            if not reasons:
                return True
            if reasons[0] == FAILED:
                return False
            if FAILED not in reasons:
                why = next((reason for reason in reasons if reason != "None"), CANCELLED)
                raise refusal(self._subject(self._rows.table), why)
            puts = [put for put, why in zip(puts, reasons[1:], strict=True) if why != FAILED]

    def _reasons(self, actions: list[Any]) -> list[str]:
        """Send a transaction. If it was cancelled, why, for each action; else nothing."""
        with self._explained(self._rows.table):
            try:
                self._client.transact_write_items(TransactItems=actions)
            except ClientError as error:
                reasons: list[Any] = error.response.get("CancellationReasons", [])
                if code_of(error) != CANCELLED or len(reasons) != len(actions):
                    raise
                return [str(reason.get("Code", "None")) for reason in reasons]
        return []

    def _seen(self, shard: int) -> Seen:
        return self._retrying(self._read, self._rows.shard_key(shard))

    def _read(self, shard: str) -> Seen:
        with self._explained(self._cursors):
            found = self._client.get_item(
                TableName=self._cursors, Key={SHARD: {"S": shard}}, ConsistentRead=True
            )
        return Seen.of(found.get("Item", {}))

    def _put_cursor(self, item: Any) -> None:
        with self._explained(self._cursors):
            self._client.put_item(TableName=self._cursors, Item=item)

    def _see_table(self, shape: TableShape, create: bool) -> None:
        subject = self._subject(shape.name)
        with self._explained(shape.name):
            if create:
                make_table(self._client, subject, shape, self._clock)
            else:
                see_table(self._client, subject, shape)

    def _subject(self, table: str) -> str:
        return f"{self._rows.keyed.where}, table {table}"

    def _explained(self, table: str) -> AbstractContextManager[None]:
        return explained(self._subject(table), self._endpoint)


def _with_last(batches: Iterable[list[Any]]) -> Iterator[tuple[list[Any], bool]]:
    """Each batch, and whether it is the last; there is always one, if only an empty one."""
    held: list[Any] = []
    for batch in batches:
        if held:
            yield held, False
        held = batch
    yield held, True
