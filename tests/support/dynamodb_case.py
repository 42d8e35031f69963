"""`DynamoDB` against the contract: what is in moto's tables, read by a plain client."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow as pa
import pytest

from penstock.chaos.s3_proxy import Answer, Mode, Request, Upstream, proxy
from penstock.chaos.tcp_proxy import TcpProxy
from penstock.clock import SystemChance
from penstock.sinks.dynamodb import DynamoDB
from tests.support.servers import Endpoint
from tests.support.sink_cases import Row, SinkCase

if TYPE_CHECKING:
    from types_boto3_dynamodb.client import DynamoDBClient

SECRET = "SECRET-THE-ENDPOINT-SENT"
ENDPOINT = "AWS_ENDPOINT_URL_DYNAMODB"


@contextmanager
def dynamodb_case(request: pytest.FixtureRequest, folder: Path) -> Iterator[SinkCase]:
    """Tables of its own in the moto that all tests share."""
    del folder
    endpoint: Endpoint = request.getfixturevalue("moto_server")
    request.getfixturevalue("use")(endpoint)
    settings: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    table, port = f"people-{SystemChance().unique()}", port_of(endpoint)

    def make(columns: pa.Schema, deletes: str | None, proxy: TcpProxy | None) -> DynamoDB:
        del columns
        settings.setenv(ENDPOINT, f"http://127.0.0.1:{proxy.port if proxy else port}")
        cursors = f"{table}-cursors"
        return DynamoDB(
            "people", key="user", table=table, deletes=deletes, create=True, cursors=cursors
        )

    client = plain_client(endpoint)
    yield SinkCase(
        make,
        lambda columns: rows_in(client, table, columns),
        server_port=port,
        keeps_all=False,
        empty_keys=False,
        many=300,  # moto copies its whole table for every action of a transaction
    )


@dataclass
class Faults:
    """Answers requests of one operation by itself, in turn, instead of passing them on."""

    operation: str
    answers: list[Answer | Callable[[], None] | None] = field(default_factory=list)
    """What to answer; or what to do before the request is passed on; None: just pass it on."""
    bodies: list[Any] = field(default_factory=list)
    """What was asked, of this operation."""

    def __call__(self, request: Request, upstream: Upstream) -> Answer:
        if (request.header("x-amz-target") or "").endswith(f".{self.operation}"):
            self.bodies.append(json.loads(request.body))
            found = self.answers.pop(0) if self.answers else None
            if isinstance(found, Answer):
                return found
            if found is not None:
                found()
        return upstream(request)


def error(code: str, status: int = 400, **more: Any) -> Answer:
    """An error as DynamoDB tells it, with a message that nobody may repeat."""
    told = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": SECRET, **more}
    return Answer(status, {"Content-Type": "application/x-amz-json-1.0"}, json.dumps(told).encode())


def cancelled(*codes: str) -> Answer:
    """A transaction that was not done, with a reason for each of its actions."""
    reasons = [{"Code": code, "Message": SECRET} for code in codes]
    return error("TransactionCanceledException", CancellationReasons=reasons)


@contextmanager
def faulty(endpoint: Endpoint, faults: Mode) -> Iterator[str]:
    """The URL of a proxy before moto that answers some requests by itself."""
    server = proxy(endpoint.url, 0, faults)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def port_of(endpoint: Endpoint) -> int:
    return int(endpoint.url.rpartition(":")[2])


def plain_client(endpoint: Endpoint) -> "DynamoDBClient":
    """Somebody else's client."""
    return boto3.client(
        "dynamodb",
        endpoint_url=endpoint.url,
        aws_access_key_id=endpoint.access_key,
        aws_secret_access_key=endpoint.secret_key,
        region_name="us-east-1",
    )


def items_in(client: "DynamoDBClient", table: str) -> list[dict[str, Any]]:
    """Every item of a table, tombstones too, as DynamoDB tells it."""
    pages = client.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
    return [dict(item) for page in pages for item in page["Items"]]


def rows_in(client: "DynamoDBClient", table: str, columns: pa.Schema) -> list[Row]:
    """The rows of a table, made of the attributes of its items."""
    return [
        {column.name: value_of(item.get(column.name), column.type) for column in columns}
        for item in items_in(client, table)
        if "_deleted" not in item
    ]


def value_of(found: dict[str, Any] | None, kind: pa.DataType) -> Any:
    """The value that a reader who knows the type makes of an attribute."""
    if found is None or "NULL" in found:
        return None
    ((letter, value),) = found.items()
    if letter == "L":
        return [value_of(each, kind.value_type) for each in value]
    if letter == "M":
        fields = [kind.field(n) for n in range(kind.num_fields)]
        return {field.name: value_of(value.get(field.name), field.type) for field in fields}
    for is_such, read in READERS.items():
        if is_such(kind):
            return read(value)
    return pa.scalar(value).cast(kind).as_py() if letter == "N" else value


READERS: dict[Callable[[pa.DataType], bool], Callable[[str], Any]] = {
    pa.types.is_timestamp: datetime.fromisoformat,
    pa.types.is_date: date.fromisoformat,
}
