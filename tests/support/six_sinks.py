"""The sinks of the job of six sinks: where they are, what is in them, and what must be."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import psycopg
import redis
from deltalake import DeltaTable

import penstock as ps
from tests.support.databases import PASSWORD, Postgres, Redis
from tests.support.servers import Endpoint
from tests.support.six_sinks_job import OWN, PLACED


@dataclass
class Places:
    """Where everything is, and what is in it."""

    folder: Path
    postgres: Postgres
    redis: Redis
    dynamodb: Endpoint

    def settings(self) -> dict[str, str]:
        """The environment of the job."""
        return {
            "SIX_LOG": str(self.folder / "log"),
            "SIX_LAKE": str(self.folder / "lake"),
            "SIX_TOPIC": str(self.folder / "topic"),
            "SIX_POSTGRES": self.postgres.dsn(),
            "SIX_REDIS": self.redis.url(),
            "PG_PASSWORD": PASSWORD,
            "REDIS_PASSWORD": PASSWORD,
            **self.dynamodb.settings(),
        }

    def committed(self) -> list[tuple[Any, ...]]:
        """Every row that the chain says there is, in its order."""
        table = ps.read_table(str(self.folder / "root"), "everything")
        return sorted(zip(*(table[name].to_pylist() for name in PLACED), strict=True))

    def found(self) -> dict[str, Any]:
        """What is in each sink."""
        return {
            "history": sorted(self._sql(PLACED, "history")),
            "latest": sorted(self._sql(OWN[:3], "latest")),
            "cache": sorted(self._cached()),
            "items": sorted(self._items()),
            "lake": self._lake(),
            "topic": self._topic(),
        }

    def expected(self) -> dict[str, Any]:
        """What must be in each sink, by what was committed."""
        rows = self.committed()
        last = {row[3]: row[3:] for row in rows}
        there = sorted(row[:3] for row in last.values() if not row[3])
        by_user: dict[str, list[tuple[Any, ...]]] = {}
        for row in rows:
            by_user.setdefault(row[3], []).append(row[3:])
        return {
            "history": rows,
            "latest": there,
            "cache": there,
            "items": there,
            "lake": rows,
            "topic": by_user,
        }

    def _sql(self, columns: tuple[str, ...], table: str) -> list[tuple[Any, ...]]:
        dsn = f"host=127.0.0.1 port={self.postgres.port} dbname=shop user=etl"
        with psycopg.connect(dsn, password=PASSWORD) as connection:
            names = ", ".join(f'"{name}"' for name in columns)
            return list(connection.execute(f"SELECT {names} FROM {table}"))

    def _cached(self) -> list[tuple[Any, ...]]:
        client = redis.Redis(port=self.redis.port, password=PASSWORD, decode_responses=True)
        hashes = [client.hgetall(key) for key in client.scan_iter("cache:*", count=1000)]
        return [
            (h["user"], int(h["orders"]), int(h["total"])) for h in hashes if "_deleted" not in h
        ]

    def _items(self) -> list[tuple[Any, ...]]:
        client = boto3.client(
            "dynamodb",
            endpoint_url=self.dynamodb.url,
            region_name="us-east-1",
            aws_access_key_id=self.dynamodb.access_key,
            aws_secret_access_key=self.dynamodb.secret_key,
        )
        pages = client.get_paginator("scan").paginate(TableName="items")
        return [
            (item["user"]["S"], int(item["orders"]["N"]), int(item["total"]["N"]))
            for page in pages
            for item in page["Items"]
            if "_deleted" not in item
        ]

    def _lake(self) -> list[tuple[Any, ...]]:
        table = DeltaTable(str(self.folder / "lake")).to_pyarrow_table()
        return sorted(zip(*(table[name].to_pylist() for name in PLACED), strict=True))

    def _topic(self) -> dict[str, list[tuple[Any, ...]]]:
        """The rows of each user in the order in which a reader meets them."""
        log, found = ps.Log(str(self.folder / "topic")), dict[str, list[tuple[Any, ...]]]()
        for partition, range_ in log.plan({}, ps.Limits()).items():
            for batch in log.read(partition, range_):
                for row in batch.to_pylist():
                    found.setdefault(row["user"], []).append(tuple(row[name] for name in OWN))
        return found
