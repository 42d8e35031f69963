"""An open table of Postgres: one transaction per shard and epoch.

The cursor's row is locked first and moved last, so of all who would write a shard there is one at a
time, and each finds what the one before it has done. The last message of a transaction moves the
cursor and commits: a server that has not heard of it has changed nothing.
"""

from collections.abc import Sequence

import psycopg
import pyarrow as pa  # type: ignore[import-untyped]
from psycopg import sql

from penstock.ids import Token
from penstock.sinks.cursors import Apply, Cursor, Held, is_applied
from penstock.sinks.keyed import Changes
from penstock.sinks.postgres import Postgres
from penstock.sinks.postgres_copy import Bulk
from penstock.sinks.postgres_cursors import CursorTable, held_of
from penstock.sinks.postgres_lines import Line, Lines, settings_of, start
from penstock.sinks.postgres_table import prepare
from penstock.sinks.postgres_values import plain_rows
from penstock.sinks.protocol import PROVENANCE, Target
from penstock.sinks.staged import rows_of

__all__ = ["PostgresWriter", "commit", "lock_cursor", "move_cursor", "open_writer"]


def open_writer(sink: Postgres, target: Target, columns: pa.Schema) -> "PostgresWriter":
    """Connect, and see that the table takes rows of these columns."""
    place = sink.place
    lines = Lines(place, settings_of(f"sink {sink.name}", sink.connection))
    with lines.line() as line:
        prepare(line, sink, columns)
    return PostgresWriter(sink, target, lines)


class PostgresWriter:
    """One sink of one job. Threads share its connections."""

    def __init__(self, sink: Postgres, target: Target, lines: Lines) -> None:
        place = sink.place
        self._sink = sink
        self._columns = target.columns
        self._cursors = CursorTable(place.schema, target.job, place.sink, place.table)
        self.lines = lines
        self.bulk = Bulk(place.schema, place.table, sink.keyed.key)

    def read_cursor(self, shard: int) -> Cursor | None:
        """How far the shard is."""
        with self.lines.line() as line:
            found = line.run(start(self._cursors.read(shard) + sql.SQL("; ROLLBACK")))
        held = held_of(found)
        return None if held is None else held.cursor

    def apply(self, asked: Apply) -> None:
        """Rows and cursor, or neither.

        1. Take the cursor's row. A shard's first transaction finds none to take; it fails in 4 if
           another one was faster.
        2. Applied already, or to be refused: change nothing.
        3. Write the rows.
        4. Move the cursor.
        5. Commit, in one message with 4. Without an answer nobody knows, and the cursor tells.
        """
        changes = self.changes(asked.outputs)
        with self.lines.line() as line:
            held = lock_cursor(line, self._cursors, asked.shard)  # 1
            if is_applied(asked, held):  # 2
                line.run(sql.SQL("ROLLBACK"))
                return
            self.bulk.write(line, changes)  # 3
            commit(line, move_cursor(self._cursors, asked, held))  # 4, 5

    def accept(self, shard: int, cursor: Cursor, token: Token) -> None:
        """Put the cursor here."""
        with self.lines.line() as line:
            commit(line, start(self._cursors.put(shard, Held(cursor, token))))

    def close(self) -> None:
        """Close the spare connections."""
        self.lines.close()

    def changes(self, outputs: Sequence[bytes]) -> Changes:
        """What staged rows make of the table."""
        unwanted = () if self._sink.provenance else PROVENANCE.names
        rows = rows_of(outputs, self._columns, unwanted)
        return self._sink.keyed.changes(plain_rows(rows))


def lock_cursor(line: Line, cursors: CursorTable, shard: int) -> Held | None:
    """Begin a transaction that nobody else can write this shard beside."""
    return held_of(line.run(start(cursors.lock(shard))))


def move_cursor(cursors: CursorTable, asked: Apply, held: Held | None) -> sql.Composed:
    """The statement that says the epoch is there."""
    new = Held(asked.cursor, asked.token)
    return (cursors.first if held is None else cursors.move)(asked.shard, new)


def commit(line: Line, last: sql.Composed) -> None:
    """The last statement of a transaction, and its end."""
    with line.cursor() as cursor:
        cursor.execute(last + sql.SQL("; COMMIT"))
        while cursor.nextset():
            pass
        done = cursor.statusmessage
    if done != "COMMIT":
        raise psycopg.OperationalError(f"the server ended a transaction with {done}")
