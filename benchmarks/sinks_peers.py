"""Every sink with its server, and the plain bulk write of the same rows with the same client."""

import io
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import psycopg
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.csv as pc  # type: ignore[import-untyped]
import redis
from deltalake import DeltaTable, write_deltalake

import penstock as ps
from benchmarks.sinks_data import COLUMNS, SHARDS, Peer
from tests.support import databases, servers

__all__ = ["peers"]

ROWS, SLOW_ROWS, SLOWEST_ROWS = 200_000, 20_000, 200
"""Of an epoch: for bulk loads, for Redis, and for moto's DynamoDB, which is no fast server."""
BAR = 0.25
HASHES_AT_ONCE = 1_000
REGION = "us-east-1"
CREATE = 'CREATE TABLE {} ("user" text, clicks bigint, spent double precision, at timestamptz{})'
UPSERT = (
    'INSERT INTO {} SELECT * FROM pg_temp.fresh ON CONFLICT ("user") DO UPDATE SET '
    "clicks = EXCLUDED.clicks, spent = EXCLUDED.spent, at = EXCLUDED.at"
)

Making = Callable[[Path], Any]


@contextmanager
def postgres(folder: Path) -> Iterator[list[Peer]]:
    """COPY, and COPY with an upsert out of a temporary table."""
    os.environ["PG_PASSWORD"] = databases.PASSWORD
    with databases.postgres("max_wal_size=4GB") as server:
        lines = [_line(server) for _ in range(SHARDS)]
        lines[0].execute(CREATE.format("plain_rows", ""))
        lines[0].execute(CREATE.format("plain_keyed", ', PRIMARY KEY ("user")'))
        lines[0].commit()
        yield [
            Peer(
                name="Postgres, append",
                sink=ps.Postgres("rows", server.dsn(), create=True),
                plain=_at_once(lines, lambda line, rows: _copied(line, rows, "plain_rows")),
                how="psycopg, COPY of CSV made by pyarrow, one transaction per shard",
                rows=ROWS,
                bar=BAR,
            ),
            Peer(
                name="Postgres, upsert",
                sink=ps.Postgres("keyed", server.dsn(), key="user", create=True),
                plain=_at_once(lines, lambda line, rows: _upserted(line, rows, "plain_keyed")),
                how="the same into a temporary table, then INSERT … ON CONFLICT DO UPDATE",
                rows=ROWS // 2,
                bar=BAR,
            ),
        ]
        for line in lines:
            line.close()


def _line(server: databases.Postgres) -> Any:
    where = f"host=127.0.0.1 port={server.port} dbname=shop user=etl"
    return psycopg.connect(where, password=databases.PASSWORD)


def _copied(line: Any, rows: pa.Table, table: str) -> None:
    body = io.BytesIO()
    options = pc.WriteOptions(include_header=False, quoting_style="needed")
    pc.write_csv(rows, body, options)
    with line.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN (FORMAT csv)") as copy:
        copy.write(body.getbuffer())
    line.commit()


def _upserted(line: Any, rows: pa.Table, table: str) -> None:
    line.execute(f"CREATE TEMPORARY TABLE fresh (LIKE {table}) ON COMMIT DROP")
    body = io.BytesIO()
    pc.write_csv(rows, body, pc.WriteOptions(include_header=False, quoting_style="needed"))
    with line.cursor() as cursor, cursor.copy("COPY fresh FROM STDIN (FORMAT csv)") as copy:
        copy.write(body.getbuffer())
    line.execute(UPSERT.format(table))
    line.commit()


def _at_once(lines: Sequence[Any], work: Callable[[Any, pa.Table], None]) -> Any:
    """A plain way that writes every shard over a connection of its own."""

    def plain(tables: Sequence[pa.Table]) -> None:
        with ThreadPoolExecutor(len(lines)) as pool:
            list(pool.map(work, lines, tables))

    return plain


@contextmanager
def delta(folder: Path) -> Iterator[list[Peer]]:
    """Appends and merges into a table in a folder."""

    def appended(tables: Sequence[pa.Table]) -> None:
        write_deltalake(str(folder / "plain"), pa.concat_tables(tables), mode="append")

    def merged(tables: Sequence[pa.Table]) -> None:
        path, rows = str(folder / "plain-keyed"), pa.concat_tables(tables)
        if not DeltaTable.is_deltatable(path):
            write_deltalake(path, rows)
            return
        merging = DeltaTable(path).merge(
            rows, 'target."user" = source."user"', source_alias="source", target_alias="target"
        )
        merging.when_matched_update_all().when_not_matched_insert_all().execute()

    yield [
        Peer(
            name="Delta, append",
            sink=ps.Delta("lake", str(folder / "lake")),
            plain=appended,
            how="write_deltalake, one commit per epoch",
            rows=ROWS,
            bar=BAR,
        ),
        Peer(
            name="Delta, merge",
            sink=ps.Delta("merged", str(folder / "merged"), key="user"),
            plain=merged,
            how="DeltaTable.merge, one commit per epoch",
            rows=ROWS // 2,
            bar=BAR,
        ),
    ]


@contextmanager
def topic(folder: Path) -> Iterator[list[Peer]]:
    """A topic in a folder."""
    log = ps.Log.create(str(folder / "plain-topic"), COLUMNS, partitions=SHARDS, key="user")
    with log.producer() as producer:

        def appended(tables: Sequence[pa.Table]) -> None:
            for table in tables:
                producer.append(table)
            producer.flush()

        yield [
            Peer(
                name="LogSink",
                sink=ps.LogSink("topic", str(folder / "topic"), partitions=SHARDS, key="user"),
                plain=appended,
                how="a producer without a name, flushed after every epoch",
                rows=ROWS,
            )
        ]


@contextmanager
def cache(folder: Path) -> Iterator[list[Peer]]:
    """Hashes in Redis."""
    os.environ["REDIS_PASSWORD"] = databases.PASSWORD
    with databases.redis() as server:
        client = redis.Redis(port=server.port, password=databases.PASSWORD)

        def written(rows: pa.Table) -> None:
            for start in range(0, rows.num_rows, HASHES_AT_ONCE):
                pipe = client.pipeline(transaction=False)
                for row in rows.slice(start, HASHES_AT_ONCE).to_pylist():
                    fields = {name: str(value) for name, value in row.items()}
                    pipe.hset(f"plain:{row['user']}", mapping=fields)
                pipe.execute()

        yield [
            Peer(
                name="Redis",
                sink=ps.Redis("cache", server.url(), key="user"),
                plain=_in_threads(written),
                how="redis-py, HSET in pipelines of 1,000; the server syncs before it answers",
                rows=SLOW_ROWS,
            )
        ]


@contextmanager
def items(folder: Path) -> Iterator[list[Peer]]:
    """Items in moto's DynamoDB."""
    with servers.moto(folder) as endpoint:
        os.environ.update(endpoint.settings())
        client = boto3.client("dynamodb", region_name=REGION)
        client.create_table(
            TableName="plain",
            KeySchema=[{"AttributeName": "user", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "user", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        table = boto3.resource("dynamodb", region_name=REGION).Table("plain")

        def written(rows: pa.Table) -> None:
            with table.batch_writer() as batch:
                for row in rows.to_pylist():
                    fields = {name: str(value) for name, value in row.items()}
                    batch.put_item(Item={**fields, "clicks": row["clicks"]})

        yield [
            Peer(
                name="DynamoDB (moto)",
                sink=ps.DynamoDB("items", key="user", create=True),
                plain=_in_threads(written),
                how="boto3's batch_writer, 25 items a call, without conditions. moto copies its "
                "whole database for every transaction: its figure says little of DynamoDB itself",
                rows=SLOWEST_ROWS,
            )
        ]


def _in_threads(work: Callable[[pa.Table], None]) -> Any:
    def plain(tables: Sequence[pa.Table]) -> None:
        with ThreadPoolExecutor(SHARDS) as pool:
            list(pool.map(work, tables))

    return plain


def peers() -> dict[str, Making]:
    """Every kind of server, and how to have it."""
    return {
        "postgres": postgres,
        "delta": delta,
        "topic": topic,
        "redis": cache,
        "dynamodb": items,
    }
