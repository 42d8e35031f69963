"""`Delta` against the contract: what is in a table, read by deltalake alone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from penstock.chaos.tcp_proxy import TcpProxy
from penstock.checkpoint import MemoryStore
from penstock.clock import SystemChance
from penstock.sinks import Target
from penstock.sinks.delta import Delta
from tests.support.servers import BUCKET, Endpoint
from tests.support.sink_cases import JOB, PEOPLE, Row, SinkCase


@contextmanager
def delta_append_case(request: pytest.FixtureRequest, folder: Path) -> Iterator[SinkCase]:
    """A table in a folder, to which rows are added."""
    del request
    yield _in_folder(folder / "people", ())


@contextmanager
def delta_merge_case(request: pytest.FixtureRequest, folder: Path) -> Iterator[SinkCase]:
    """A table in a folder, with a key."""
    del request
    yield _in_folder(folder / "people", "user")


@contextmanager
def delta_s3_case(request: pytest.FixtureRequest, folder: Path) -> Iterator[SinkCase]:
    """A table in a bucket, to which rows are added."""
    del folder
    endpoint: Endpoint = request.getfixturevalue("atomic_moto")
    use: Callable[[Endpoint], None] = request.getfixturevalue("use")
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    use(endpoint)
    url = f"s3://{BUCKET}/{SystemChance().unique()}/people"

    def make(columns: pa.Schema, deletes: str | None, proxy: TcpProxy | None) -> Delta:
        del columns
        through = f"http://127.0.0.1:{proxy.port}" if proxy else endpoint.url
        monkeypatch.setenv("AWS_ENDPOINT_URL", through)
        return Delta("people", url, deletes=deletes)

    yield SinkCase(
        make,
        lambda columns: rows_at(url, columns, bucket_options(endpoint)),
        server_port=urlsplit(endpoint.url).port,
        cut_every=13,
    )


def _in_folder(path: Path, key: str | tuple[str, ...]) -> SinkCase:
    def make(columns: pa.Schema, deletes: str | None, proxy: TcpProxy | None) -> Delta:
        del columns, proxy
        return Delta("people", str(path), key=key, deletes=deletes)

    return SinkCase(make, lambda columns: rows_at(str(path), columns), keeps_all=not key)


def rows_at(url: str, columns: pa.Schema, options: dict[str, str] | None = None) -> list[Row]:
    """The rows of a table, or none if there is no table."""
    try:
        table = DeltaTable(url, storage_options=options)
    except TableNotFoundError:
        return []
    return rows_of(table.to_pyarrow_table(), columns)


def rows_of(table: pa.Table, columns: pa.Schema) -> list[Row]:
    """Some columns of a table, as far as it has them."""
    found: list[Row] = table.select(
        [n for n in columns.names if n in table.column_names]
    ).to_pylist()
    return found


def bucket_options(endpoint: Endpoint) -> dict[str, str]:
    """What a plain client needs for a table in the bucket."""
    return {
        "aws_endpoint": endpoint.url,
        "aws_access_key_id": endpoint.access_key,
        "aws_secret_access_key": endpoint.secret_key,
        "aws_region": "us-east-1",
        "allow_http": "true",
    }


def target(columns: pa.Schema = PEOPLE, job: str = JOB, **others: Any) -> Target:
    """For whom a sink is opened, where nothing but the columns matters."""
    return Target(job=job, columns=columns, partitions=2, store=MemoryStore(), **others)
