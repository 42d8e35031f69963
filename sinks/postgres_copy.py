"""Rows on their way into a table: COPY, and from a temporary table where there is a key.

Nothing here begins or ends a transaction, or knows of cursors: a plain bulk write would be this
and no more.
"""

from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
from psycopg import sql

from penstock.sinks.keyed import Changes
from penstock.sinks.postgres_lines import Line
from penstock.sinks.postgres_values import csv_pieces

__all__ = ["Bulk"]

_NEW = sql.Identifier("pg_temp", "penstock_new")
_GONE = sql.Identifier("pg_temp", "penstock_gone")


@dataclass(frozen=True, slots=True)
class Bulk:
    """How rows get into one table."""

    schema: str
    table: str
    key: tuple[str, ...]

    def write(self, line: Line, changes: Changes) -> None:
        """Make the table hold what the changes say, as part of the transaction there is."""
        if changes.gone.num_rows:
            self._delete(line, changes.gone.select(list(self.key)))
        if not changes.puts.num_rows:
            return
        if self.key:
            self._put(line, changes.puts)
        else:
            _copy(line, self._target, changes.puts)

    @property
    def _target(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.table)

    def _put(self, line: Line, rows: pa.Table) -> None:
        line.run(self._shaped_like_target(_NEW, rows))
        _copy(line, _NEW, rows)
        rest = [name for name in rows.column_names if name not in self.key]
        line.run(
            sql.SQL(
                "INSERT INTO {target} ({columns}) SELECT {columns} FROM {new} "
                "ON CONFLICT ({key}) {do}"
            ).format(
                target=self._target,
                columns=_listed(rows.column_names),
                new=_NEW,
                key=_listed(self.key),
                do=_taking_over(rest),
            )
        )

    def _delete(self, line: Line, keys: pa.Table) -> None:
        line.run(self._shaped_like_target(_GONE, keys))
        _copy(line, _GONE, keys)
        line.run(
            sql.SQL("DELETE FROM {target} AS old USING {gone} AS gone WHERE {same}").format(
                target=self._target,
                gone=_GONE,
                same=sql.SQL(" AND ").join(
                    sql.SQL("old.{0} = gone.{0}").format(sql.Identifier(name)) for name in self.key
                ),
            )
        )

    def _shaped_like_target(self, name: sql.Identifier, rows: pa.Table) -> sql.Composed:
        """A table that is gone with the transaction, with these columns as they are there now."""
        return sql.SQL(
            "CREATE TEMPORARY TABLE {name} ON COMMIT DROP AS "
            "SELECT {columns} FROM {target} WITH NO DATA"
        ).format(name=name, columns=_listed(rows.column_names), target=self._target)


def _copy(line: Line, into: sql.Identifier, rows: pa.Table) -> None:
    """Send rows to a table."""
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv, ENCODING 'UTF8')")
    with (
        line.cursor() as cursor,
        cursor.copy(statement.format(into, _listed(rows.column_names))) as sent,
    ):
        for piece in csv_pieces(rows):
            sent.write(piece)


def _listed(names: list[str] | tuple[str, ...]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _taking_over(columns: list[str]) -> sql.SQL | sql.Composed:
    """What becomes of a row whose key is there: every other column is taken from the new one."""
    if not columns:
        return sql.SQL("DO NOTHING")
    taken = (sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in columns)
    return sql.SQL("DO UPDATE SET ") + sql.SQL(", ").join(taken)
