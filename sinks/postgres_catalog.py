"""What Postgres says about itself and its tables, as values. Nothing is judged here."""

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from penstock.sinks.postgres_lines import Line, start
from penstock.sinks.postgres_types import Column

__all__ = [
    "Found",
    "ServerFacts",
    "begin",
    "columns_of",
    "find",
    "find_schema",
    "lacking_privileges",
    "unique_keys",
]


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What must be known of a server."""

    version: int
    is_read_only: bool
    may_make_temporary: bool


@dataclass(frozen=True, slots=True)
class Found:
    """A table, or something else with the name of one."""

    oid: int
    kind: str
    """`relkind` of its catalogue: `r` for a table, `p` for a partitioned one."""
    persistence: str
    """`relpersistence`: `p` for one that survives a crash."""
    has_row_security: bool
    """Whether this user sees and writes only some rows."""


def begin(line: Line) -> ServerFacts:
    """Begin a transaction, and look who is at the other end."""
    ((version, is_read_only, may),) = line.run(
        start(
            sql.SQL(
                "SELECT current_setting('server_version_num')::int, "
                "current_setting('transaction_read_only')::bool, "
                "has_database_privilege(current_database(), 'TEMPORARY')"
            )
        )
    )
    return ServerFacts(version, is_read_only, may)


def find_schema(line: Line, name: str) -> bool | None:
    """Whether this user may use a schema; None: there is none."""
    found = line.run(
        sql.SQL(
            "SELECT has_schema_privilege(oid, 'USAGE') FROM pg_catalog.pg_namespace "
            "WHERE nspname = {}"
        ).format(sql.Literal(name))
    )
    return bool(found[0][0]) if found else None


def find(line: Line, schema: str, name: str) -> Found | None:
    """What has that name."""
    found = line.run(
        sql.SQL(
            "SELECT c.oid::bigint, c.relkind::text, c.relpersistence::text, "
            "row_security_active(c.oid) "
            "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = {} AND c.relname = {}"
        ).format(sql.Literal(schema), sql.Literal(name))
    )
    return Found(*found[0]) if found else None


def columns_of(line: Line, table: Found) -> list[Column]:
    """Its columns, in their order."""
    found = line.run(
        sql.SQL(
            "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), "
            "coalesce(b.typname, t.typname)::text, coalesce(b.typtype, t.typtype) = 'e', "
            "CASE WHEN b.oid IS NULL THEN a.atttypmod ELSE t.typtypmod END, "
            "(a.attnotnull OR t.typnotnull) AND NOT "
            "(a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL), "
            "a.attgenerated <> '' OR a.attidentity = 'a', "
            "coalesce(c.collisdeterministic, true) "
            "FROM pg_catalog.pg_attribute a "
            "JOIN pg_catalog.pg_type t ON t.oid = a.atttypid "
            "LEFT JOIN pg_catalog.pg_type b ON b.oid = t.typbasetype AND t.typtype = 'd' "
            "LEFT JOIN pg_catalog.pg_collation c ON c.oid = a.attcollation "
            "WHERE a.attrelid = {}::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
        ).format(sql.Literal(table.oid))
    )
    return [
        Column(
            name=name,
            shown=shown,
            base=base,
            is_enum=is_enum,
            modifier=modifier,
            must_be_given=must,
            is_made=made,
            is_exact=exact,
        )
        for name, shown, base, is_enum, modifier, must, made, exact in found
    ]


def unique_keys(line: Line, table: Found) -> set[frozenset[str]]:
    """The columns of each unique index that ON CONFLICT can go by."""
    found = line.run(
        sql.SQL(
            "SELECT array_agg(a.attname::text) FROM pg_catalog.pg_index i "
            "CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(number, place) "
            "JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number "
            "WHERE i.indrelid = {}::oid AND i.indisunique AND i.indisvalid AND i.indimmediate "
            "AND i.indpred IS NULL AND i.indexprs IS NULL AND k.place <= i.indnkeyatts "
            "GROUP BY i.indexrelid"
        ).format(sql.Literal(table.oid))
    )
    return {frozenset(names) for (names,) in found}


def lacking_privileges(
    line: Line,
    table: Found,
    columns: Sequence[str],
    on_columns: Sequence[str],
    on_table: Sequence[str],
) -> list[str]:
    """Which of these privileges this user lacks, on the table or on one of the columns."""
    found = line.run(
        sql.SQL(
            "SELECT p FROM unnest({on_columns}::text[]) p WHERE EXISTS (SELECT "
            "FROM unnest({columns}::text[]) c WHERE NOT has_column_privilege({oid}::oid, c, p)) "
            "UNION ALL SELECT p FROM unnest({on_table}::text[]) p "
            "WHERE NOT has_table_privilege({oid}::oid, p)"
        ).format(
            on_columns=_texts(on_columns),
            columns=_texts(columns),
            on_table=_texts(on_table),
            oid=sql.Literal(table.oid),
        )
    )
    return [privilege for (privilege,) in found]


def _texts(values: Sequence[str]) -> sql.Composed:
    return sql.SQL("ARRAY[{}]").format(sql.SQL(", ").join(map(sql.Literal, values)))
