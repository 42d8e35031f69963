"""The table of cursors: how far each shard is, beside the rows it has taken.

A shard's row is locked before anything else is done for it, and changed last, in the same
transaction. Its first one is inserted, not put: of two leaders that find none, the second fails.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from penstock.ids import Epoch, Generation, Token
from penstock.sinks.cursors import Cursor, Held
from penstock.sinks.postgres_names import CURSORS

__all__ = ["COLUMNS", "CursorTable", "held_of", "made"]

COLUMNS = ("job", "sink", "target", "shard", "generation", "epoch", "mark", "token")


def made(schema: str) -> sql.Composed:
    """How the table is made."""
    return sql.SQL(
        "CREATE TABLE IF NOT EXISTS {} (job text, sink text, target text, shard integer, "
        "generation bigint NOT NULL, epoch bigint NOT NULL, mark bigint NOT NULL, "
        "token bigint NOT NULL, PRIMARY KEY (job, sink, target, shard))"
    ).format(sql.Identifier(schema, CURSORS))


def held_of(rows: Sequence[tuple[Any, ...]]) -> Held | None:
    """What a shard keeps, made of the row that was found, if any."""
    for generation, epoch, mark, token in rows:
        return Held(Cursor(Generation(generation), Epoch(epoch), mark), Token(token))
    return None


@dataclass(frozen=True, slots=True)
class CursorTable:
    """The cursors of one sink of one job, as statements."""

    schema: str
    job: str
    sink: str
    target: str
    """The table that the rows go to: another one is at no epoch yet."""

    def read(self, shard: int) -> sql.Composed:
        """Look where a shard is."""
        return self._formed(
            "SELECT generation, epoch, mark, token FROM {cursors} WHERE {this}", shard
        )

    def others(self) -> sql.Composed:
        """Look whether another sink, or another job, has cursors for the same target."""
        return sql.SQL(
            "SELECT 1 FROM {} WHERE target = {} AND (job, sink) <> ({}, {}) LIMIT 1"
        ).format(
            sql.Identifier(self.schema, CURSORS),
            *map(sql.Literal, (self.target, self.job, self.sink)),
        )

    def lock(self, shard: int) -> sql.Composed:
        """Look where it is, and let nobody change that before this transaction ends."""
        return self.read(shard) + sql.SQL(" FOR UPDATE")

    def first(self, shard: int, held: Held) -> sql.Composed:
        """Give a shard that has none its cursor; it fails if it has one."""
        return self._formed("INSERT INTO {cursors} VALUES ({key}, {held})", shard, held)

    def move(self, shard: int, held: Held) -> sql.Composed:
        """Change the cursor of a shard that has one."""
        return self._formed(
            "UPDATE {cursors} SET (generation, epoch, mark, token) = ({held}) WHERE {this}",
            shard,
            held,
        )

    def put(self, shard: int, held: Held) -> sql.Composed:
        """Put a shard's cursor there, whatever it is now."""
        return self.first(shard, held) + sql.SQL(
            " ON CONFLICT (job, sink, target, shard) DO UPDATE SET (generation, epoch, mark, token)"
            " = (EXCLUDED.generation, EXCLUDED.epoch, EXCLUDED.mark, EXCLUDED.token)"
        )

    def _formed(self, text: str, shard: int, held: Held | None = None) -> sql.Composed:
        key = sql.SQL(", ").join(
            map(sql.Literal, (self.job, self.sink, self.target, shard)),
        )
        numbers: tuple[int, ...] = ()
        if held is not None:
            cursor = held.cursor
            numbers = (cursor.generation, cursor.epoch, cursor.mark, held.token)
        return sql.SQL(text).format(
            cursors=sql.Identifier(self.schema, CURSORS),
            this=sql.SQL("(job, sink, target, shard) = ({})").format(key),
            key=key,
            held=sql.SQL(", ").join(map(sql.Literal, numbers)),
        )
