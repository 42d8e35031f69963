"""`Postgres` against the contract: what is in a real server, read by a plain client."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from penstock.chaos.tcp_proxy import TcpProxy
from penstock.checkpoint import MemoryStore
from penstock.clock import SystemChance
from penstock.sinks import Target
from penstock.sinks.postgres import Postgres
from tests.support import databases
from tests.support.sink_cases import JOB, PEOPLE, Row, SinkCase

Client = psycopg.Connection[tuple[Any, ...]]


@contextmanager
def postgres_append_case(request: pytest.FixtureRequest, folder: Path) -> Iterator[SinkCase]:
    """A table of its own, to which rows are added."""
    del folder
    with _case(request, ()) as case:
        yield case


@contextmanager
def postgres_upsert_case(request: pytest.FixtureRequest, folder: Path) -> Iterator[SinkCase]:
    """A table of its own, with a key."""
    del folder
    with _case(request, "user") as case:
        yield case


@contextmanager
def _case(request: pytest.FixtureRequest, key: str | tuple[str, ...]) -> Iterator[SinkCase]:
    server: databases.Postgres = request.getfixturevalue("postgres_server")
    request.getfixturevalue("passwords")
    table = new_table()

    def make(columns: pa.Schema, deletes: str | None, proxy: TcpProxy | None) -> Postgres:
        del columns
        dsn = server.dsn(proxy.port if proxy else None)
        return Postgres("people", dsn, table=table, key=key, deletes=deletes, create=True)

    with plain_client(server) as client:
        yield SinkCase(
            make,
            lambda columns: rows_in(client, table, columns.names),
            server_port=server.port,
            keeps_all=not key,
        )


def new_table() -> str:
    """A name that no other test uses."""
    return f"people_{SystemChance().unique()[:16]}"


@contextmanager
def plain_client(server: databases.Postgres, **settings: str) -> Iterator[Client]:
    """Somebody else's client, each of whose statements is a transaction."""
    given = {
        "host": "127.0.0.1",
        "port": str(server.port),
        "dbname": "shop",
        "user": "etl",
        "password": databases.PASSWORD,
        **settings,
    }
    with psycopg.connect(autocommit=True, **given) as client:
        client.execute("SET TimeZone = 'UTC'")
        yield client


def rows_in(client: Client, table: str, columns: list[str], schema: str = "public") -> list[Row]:
    """The rows of a table, or none if there is no such table."""
    name = sql.Identifier(schema, table)
    listed = sql.SQL(", ").join(map(sql.Identifier, columns))
    with client.cursor() as cursor:
        try:
            cursor.execute(sql.SQL("SELECT {} FROM {}").format(listed, name))
        except psycopg.errors.UndefinedTable:
            return []
        return [dict(zip(columns, row, strict=True)) for row in cursor]


@contextmanager
def own_database(server: databases.Postgres) -> Iterator[str]:
    """A database that nobody else is in, which a test may change as it likes; its name."""
    name = f"shop_{SystemChance().unique()[:16]}"
    with plain_client(server) as client:
        client.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield name
        finally:
            client.execute(sql.SQL("DROP DATABASE {} (FORCE)").format(sql.Identifier(name)))


def within(server: databases.Postgres, database: str, port: int | None = None) -> str:
    """What a sink needs to write to another database than `shop`."""
    return f"{server.dsn(port).removesuffix('/shop')}/{database}"


def target(columns: pa.Schema = PEOPLE, job: str = JOB) -> Target:
    """For whom a sink is opened, where nothing but the columns matters."""
    return Target(job=job, columns=columns, partitions=2, store=MemoryStore())
