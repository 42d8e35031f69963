"""`Redis` against the contract: what is in a real server, read by a plain client."""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis

from penstock.chaos.tcp_proxy import TcpProxy
from penstock.clock import SystemChance
from penstock.sinks.redis import Redis
from tests.support import databases
from tests.support.sink_cases import Row, SinkCase


@contextmanager
def redis_case(request: pytest.FixtureRequest, folder: Path) -> Iterator[SinkCase]:
    """A prefix of its own in the server that all tests share."""
    del folder
    server: databases.Redis = request.getfixturevalue("redis_server")
    request.getfixturevalue("passwords")
    prefix = f"{SystemChance().unique()}:"

    def make(columns: pa.Schema, deletes: str | None, proxy: TcpProxy | None) -> Redis:
        del columns
        url = server.url(proxy.port if proxy else None)
        return Redis("people", url, key="user", prefix=prefix, deletes=deletes)

    with plain_client(server) as client:
        yield SinkCase(
            make,
            lambda columns: rows_in(client, prefix, columns),
            server_port=server.port,
            keeps_all=False,
        )


@contextmanager
def plain_client(server: databases.Redis) -> Iterator[redis.Redis]:
    """Somebody else's client."""
    with redis.Redis(port=server.port, password=databases.PASSWORD, protocol=2) as client:
        yield client


def start_again(server: databases.Redis) -> None:
    """Start a server that was killed, and wait until it has read what it wrote down: it listens
    before that."""
    server.start()
    with plain_client(server) as client:
        while True:
            try:
                client.ping()
                return
            except redis.exceptions.BusyLoadingError:
                continue


def hashes_in(client: redis.Redis, prefix: str) -> dict[str, dict[str, str]]:
    """Every hash whose key starts so, tombstones too, by the rest of its key."""
    keys = [key for key in client.scan_iter(count=10_000) if key.startswith(prefix.encode())]
    with client.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.hgetall(key)
        found = pipeline.execute()
    return {
        key.decode().removeprefix(prefix): {
            name.decode(): text.decode() for name, text in each.items()
        }
        for key, each in zip(keys, found, strict=True)
    }


def rows_in(client: redis.Redis, prefix: str, columns: pa.Schema) -> list[Row]:
    """The rows below a prefix, made of the texts of their fields."""
    return [
        {column.name: value_of(texts.get(column.name), column.type) for column in columns}
        for texts in hashes_in(client, prefix).values()
        if "_deleted" not in texts
    ]


def value_of(text: str | None, kind: pa.DataType) -> Any:
    """The value that a reader who knows the type makes of a text."""
    if text is None or pa.types.is_string(kind):
        return text
    for is_such, read in READERS.items():
        if is_such(kind):
            return read(text)
    return json.loads(text)


READERS: dict[Callable[[pa.DataType], bool], Callable[[str], Any]] = {
    pa.types.is_decimal: Decimal,
    pa.types.is_timestamp: datetime.fromisoformat,
    pa.types.is_date: date.fromisoformat,
    pa.types.is_binary: base64.b64decode,
}
