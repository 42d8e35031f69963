"""Whether a table takes what a job emits: asked once, before the first row.

Everything that would stop an epoch after it was committed and can be known before is looked for:
columns, types, rules for keys, what this user may do. Tables that are to be made are made in the
same transaction, under a lock of their own: two processes that start at once both find them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
from psycopg import sql

from penstock.errors import Invalid, Unavailable
from penstock.sinks import postgres_cursors
from penstock.sinks.postgres import Postgres
from penstock.sinks.postgres_catalog import (
    Found,
    ServerFacts,
    begin,
    columns_of,
    find,
    find_schema,
    lacking_privileges,
    unique_keys,
)
from penstock.sinks.postgres_lines import Line
from penstock.sinks.postgres_names import CURSORS, Place
from penstock.sinks.postgres_types import Column, fits, made_as

__all__ = ["prepare"]

VERSION_MIN = 120_000
"""As the server counts: 12."""

MAKING = int.from_bytes(b"penstock")
"""The advisory lock that is held while tables are made."""

_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence"}
_TABLES = ("r", "p")
_FUZZY = ("bpchar", "citext", "jsonb")
"""Types in which different texts are one value."""


def prepare(line: Line, sink: Postgres, columns: pa.Schema) -> None:
    """See that rows of these columns can be written, and cursors kept.

    1. Begin. The server must be one that we know and may write to.
    2. Make what is missing: the table if that was asked for, and the table of cursors.
    3. Compare the table with the rows.
    4. Commit. If anything was refused, nothing was made.
    """
    place = sink.place
    _check_server(place, begin(line), needs_temporary=bool(sink.keyed.key))  # 1
    _check_schema(line, place)
    table = _found_or_made(line, sink, columns)  # 2
    cursors = _found_or_made_cursors(line, place)
    have = {column.name: column for column in columns_of(line, table)}  # 3
    _check_table(place, table, is_copied_into=not sink.keyed.key)
    _check_columns(place, columns, have)
    _check_key(line, place, table, [have[name] for name in sink.keyed.key])
    _check_privileges(line, place, table, _Needs.of(sink, columns.names))
    _check_cursors(line, place, cursors)
    line.run(sql.SQL("COMMIT"))  # 4


def _check_server(place: Place, facts: ServerFacts, *, needs_temporary: bool) -> None:
    if facts.version < VERSION_MIN:
        found = f"is in a server of version {facts.version // 10_000}, which is too old"
        raise Invalid(str(place), found, f"use version {VERSION_MIN // 10_000} or later")
    if facts.is_read_only:
        found = "is in a database that is read-only now"
        raise Unavailable(str(place), found, "let it be written again: the job goes on by itself")
    if needs_temporary and not facts.may_make_temporary:
        found = "has a key, and this user may make no temporary tables"
        raise Invalid(str(place), found, "GRANT TEMPORARY ON DATABASE to this user")


def _check_schema(line: Line, place: Place) -> None:
    may_use = find_schema(line, place.schema)
    if may_use is not True:
        where = f"sink {place.sink}, schema {place.schema!r}"
        if may_use is None:
            raise Invalid(where, "is not there", "create it, or name another")
        raise Invalid(where, "may not be used by this user", "GRANT USAGE ON SCHEMA to this user")


def _found_or_made(line: Line, sink: Postgres, columns: pa.Schema) -> Found:
    place = sink.place
    found = find(line, place.schema, place.table)
    if found is None and not sink.create:
        raise Invalid(str(place), "is not there", "create it, or say create=True")
    if found is None:
        found = _made(line, place.schema, place.table, _new_table(place, columns, sink.keyed.key))
    return found


def _found_or_made_cursors(line: Line, place: Place) -> Found:
    found = find(line, place.schema, CURSORS)
    return found or _made(line, place.schema, CURSORS, postgres_cursors.made(place.schema))


def _made(line: Line, schema: str, table: str, how: sql.Composed) -> Found:
    """Make a table, unless somebody else has done so while we waited for our turn."""
    line.run(sql.SQL("SELECT pg_advisory_xact_lock({})").format(sql.Literal(MAKING)))
    found = find(line, schema, table)
    if found is None:
        line.run(how)
        found = find(line, schema, table)
    assert found is not None, "what was just made is there"
    return found


def _new_table(place: Place, columns: pa.Schema, key: Sequence[str]) -> sql.Composed:
    parts: list[sql.Composable] = []
    for column in columns:
        kind = made_as(column.type)
        if kind is None:
            found = f"is {column.type}, and there is no type to make it with"
            raise Invalid(place.column(column.name), found, "cast it, or make the table yourself")
        parts.append(sql.SQL("{} " + kind).format(sql.Identifier(column.name)))
    if key:
        names = sql.SQL(", ").join(map(sql.Identifier, key))
        parts.append(sql.SQL("PRIMARY KEY ({})").format(names))
    return sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(
        sql.Identifier(place.schema, place.table), sql.SQL(", ").join(parts)
    )


def _check_table(place: Place, table: Found, *, is_copied_into: bool) -> None:
    if table.kind not in _TABLES:
        found = f"is {_KINDS.get(table.kind, 'no table')}"
        raise Invalid(str(place), found, "name a table")
    if table.persistence != "p":
        found = "is unlogged: a crash of the server empties it, and not the cursors"
        raise Invalid(str(place), found, "ALTER TABLE it SET LOGGED")
    if is_copied_into and table.has_row_security:
        found = "has row security for this user, who cannot copy into it"
        raise Invalid(str(place), found, "use a user with BYPASSRLS, or disable it")


def _check_columns(place: Place, columns: pa.Schema, have: dict[str, Column]) -> None:
    for column in columns:
        at = place.column(column.name)
        mine = have.get(column.name)
        if mine is None:
            found = "is in the rows, and not in the table"
            raise Invalid(at, found, "add it to the table, or emit rows without it")
        if mine.is_made:
            found = "is computed by the table, and the rows have it as well"
            raise Invalid(at, found, "emit rows without it")
        if not fits(column.type, mine):
            found = f"is {mine.shown} in the table, and the rows have {column.type}"
            raise Invalid(at, found, "cast it, or alter the table")
    for name, theirs in have.items():
        if theirs.must_be_given and name not in columns.names:
            found = "takes no null and has no default, and the rows do not have it"
            raise Invalid(place.column(name), found, "emit it, or give it a default")


def _check_key(line: Line, place: Place, table: Found, key: Sequence[Column]) -> None:
    if not key:
        return
    for column in key:
        if column.base in _FUZZY or not column.is_exact:
            found = f"is its key, and is {column.shown}, in which different texts are equal"
            raise Invalid(place.column(column.name), found, "make it text with a plain collation")
    names = [column.name for column in key]
    if frozenset(names) not in unique_keys(line, table):
        shown = ", ".join(names)
        found = f"has no unique index on exactly the key ({shown}), or one that is deferred"
        raise Invalid(str(place), found, "make these columns its primary key")


@dataclass(frozen=True, slots=True)
class _Needs:
    """What a user has to be allowed."""

    columns: Sequence[str]
    on_columns: tuple[str, ...]
    on_table: tuple[str, ...]

    @classmethod
    def of(cls, sink: Postgres, columns: Sequence[str]) -> "_Needs":
        on_columns = ("SELECT", "INSERT", "UPDATE") if sink.keyed.key else ("INSERT",)
        return cls(columns, on_columns, ("DELETE",) if sink.deletes else ())


def _check_privileges(line: Line, place: Place, table: Found, needs: _Needs) -> None:
    lacking = lacking_privileges(line, table, needs.columns, needs.on_columns, needs.on_table)
    if lacking:
        found = f"does not let this user {', '.join(lacking)}"
        raise Invalid(str(place), found, f"GRANT {', '.join(lacking)} ON it to this user")


def _check_cursors(line: Line, place: Place, cursors: Found) -> None:
    where = Place(place.sink, place.schema, CURSORS)
    names = tuple(column.name for column in columns_of(line, cursors))
    if names != postgres_cursors.COLUMNS or cursors.kind != "r" or cursors.persistence != "p":
        found = "is not the table of cursors that this version of Penstock makes"
        raise Invalid(str(where), found, "rename it, if it is somebody else's")
    needs = _Needs(names, ("SELECT", "INSERT", "UPDATE"), ())
    _check_privileges(line, where, cursors, needs)
