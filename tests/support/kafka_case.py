"""`KafkaSink` against the contract: what is in a real broker, read by a plain consumer.

A client of Kafka goes where the broker tells it to, not where it first called. So the broker gets
one listener more, which it announces under the port of a relay; what goes through the relay goes
through the proxy of a test, if there is one, and then to that listener.
"""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Message

from penstock.chaos.tcp_proxy import TcpProxy
from penstock.checkpoint import MemoryStore
from penstock.clock import SystemChance
from penstock.sinks import Target
from penstock.sinks.kafka import KafkaSink
from tests.support.kafka import Broker, Cluster
from tests.support.servers import free_port
from tests.support.sink_cases import JOB, PEOPLE, Row, SinkCase

QUICK = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100}
"""For clients whose lines are cut."""

_RELAYS: dict[int, "Relay"] = {}
"""By the port of their broker: one each, for as long as there are tests."""


@contextmanager
def kafka_case(request: pytest.FixtureRequest, folder: Path) -> Iterator[SinkCase]:
    """A topic of its own, in the broker that all tests share."""
    del folder
    cluster: Cluster = request.getfixturevalue("kafka_broker")
    relay, topic = relayed(cluster), cluster.topic(partitions=2)
    prefix = new_prefix()
    is_deleting = False

    def make(columns: pa.Schema, deletes: str | None, proxy: TcpProxy | None) -> KafkaSink:
        nonlocal is_deleting
        del columns
        is_deleting = is_deleting or deletes is not None
        bootstrap = cluster.bootstrap if proxy is None else relay.through(proxy)
        return KafkaSink(
            "people", bootstrap, topic, key_column="user", deletes=deletes,
            transaction_prefix=prefix, settings=QUICK,
        )  # fmt: skip

    def rows(columns: pa.Schema) -> list[Row]:
        messages = cluster.read(topic)
        return rows_in(last_of_each(messages) if is_deleting else messages, columns)

    yield SinkCase(make, rows, server_port=relay.listener, cut_every=5)


def new_prefix() -> str:
    """Transactional ids and groups that no other test has."""
    return f"test-{SystemChance().unique()[:12]}"


def target(columns: pa.Schema = PEOPLE, store: MemoryStore | None = None, job: str = JOB) -> Target:
    """For whom a sink is opened."""
    return Target(job=job, columns=columns, partitions=2, store=store or MemoryStore())


def rows_in(messages: list[Message], columns: pa.Schema) -> list[Row]:
    """Messages as rows, made of the JSON of their values."""
    return [row_of(json.loads(message.value() or b""), columns) for message in messages]


def row_of(found: dict[str, Any], columns: pa.Schema) -> Row:
    return {column.name: value_of(found[column.name], column.type) for column in columns}


def last_of_each(messages: list[Message]) -> list[Message]:
    """What compaction leaves."""
    last = {message.key(): message for message in messages}
    return [message for message in last.values() if message.value() is not None]


def value_of(found: Any, kind: pa.DataType) -> Any:
    """The value that a reader who knows the type makes of JSON."""
    if found is None:
        return None
    for is_such, read in READERS.items():
        if is_such(kind):
            return read(found)
    return found


READERS: dict[Callable[[pa.DataType], bool], Callable[[str], Any]] = {
    pa.types.is_decimal: Decimal,
    pa.types.is_timestamp: datetime.fromisoformat,
    pa.types.is_date: date.fromisoformat,
    pa.types.is_binary: base64.b64decode,
}


@dataclass
class Relay:
    """Where a broker says that it is."""

    line: TcpProxy
    listener: int
    """Where it really listens."""

    def through(self, proxy: TcpProxy) -> str:
        """From now on all lines go through a proxy; what a client is told to call."""
        self.line._server = ("127.0.0.1", proxy.port)
        return f"127.0.0.1:{self.line.port}"


def relayed(cluster: Cluster) -> Relay:
    """A relay before the only broker, which is started anew for it, once."""
    [broker] = cluster.brokers
    if broker.port not in _RELAYS:
        listener = free_port()
        relay = Relay(TcpProxy(listener).__enter__(), listener)
        broker.kill()
        announce(broker, listener, relay.line.port)
        broker.start()
        _RELAYS[broker.port] = relay
    return _RELAYS[broker.port]


def announce(broker: Broker, listener: int, relay: int) -> None:
    """Let a broker listen on one port more, and say that it is another."""
    settings = broker.folder / "server.properties"
    lines = dict(line.split("=", 1) for line in settings.read_text().splitlines())
    open_ = f"PLAINTEXT://{broker.address},SASL_PLAINTEXT://{broker.secured_address}"
    lines["listeners"] += f",RELAYED://127.0.0.1:{listener}"
    lines["advertised.listeners"] = f"{open_},RELAYED://127.0.0.1:{relay}"
    lines["listener.security.protocol.map"] += ",RELAYED:PLAINTEXT"
    settings.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
