"""`LogSink` in the contract of sinks: a topic of two partitions, in a folder and on S3."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from penstock.chaos.tcp_proxy import TcpProxy
from penstock.clock import SystemChance
from penstock.sinks.log_sink import LogSink
from penstock.sources import Log, Range
from tests.support.servers import BUCKET, Endpoint
from tests.support.sink_cases import Row, SinkCase


@contextmanager
def log_sink_case(request: pytest.FixtureRequest, folder: Path) -> Iterator[SinkCase]:
    """A topic in a folder, parted by the user."""
    sink = LogSink("people", str(folder / "topic"), partitions=2, key="user")
    yield SinkCase(lambda columns, deletes, proxy: sink, lambda columns: rows_in(sink.url))


@contextmanager
def log_sink_s3_case(request: pytest.FixtureRequest, folder: Path) -> Iterator[SinkCase]:
    """A topic on S3, parted as the job is, over a line that can be cut."""
    endpoint: Endpoint = request.getfixturevalue("atomic_moto")
    port = urlsplit(endpoint.url).port
    assert port is not None
    sink = LogSink("people", f"s3://{BUCKET}/{SystemChance().unique()}", partitions=2)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in endpoint.settings().items():
            patch.setenv(name, value)

        def make(columns: pa.Schema, deletes: str | None, proxy: TcpProxy | None) -> LogSink:
            # A store finds its endpoint when it is first asked, which opening a sink does.
            patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port if proxy else port}")
            return sink

        def rows(columns: pa.Schema) -> list[Row]:
            patch.setenv("AWS_ENDPOINT_URL", endpoint.url)
            return rows_in(sink.url)

        yield SinkCase(make, rows, server_port=port, cut_every=7)


def rows_in(url: str) -> list[Row]:
    """What a reader of the topic finds, partition by partition; nothing, if there is none."""
    return [row for rows in parts_of(url) for row in rows]


def parts_of(url: str) -> list[list[Row]]:
    """The rows of each partition."""
    log = Log(url)
    found: list[list[Row]] = []
    for number, span in log.spans().items():
        batches = log.read(number, Range(start=span.earliest, stop=span.latest))
        found.append([row for batch in batches for row in batch.to_pylist()])
        for row in found[-1]:
            del row["_meta"]
    return found
