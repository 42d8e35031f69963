"""A topic of a real Kafka for the contract of sources."""

import json
from typing import Any

from penstock.sources.kafka import Kafka
from tests.support.kafka import Cluster
from tests.support.supplies import COLUMNS, PARTITIONS, ROUNDS, ROWS, Deliveries, Supply

FIRST_MS, ROUND_MS = 1_700_000_000_000, 10_000
"""When the first round was made, and how long after it the next."""


def kafka_supply(cluster: Cluster) -> Supply:
    """A topic of JSON, whose producer says when each message was made."""
    topic = cluster.topic(partitions=len(PARTITIONS), retention_ms=-1)
    deliveries, producer = Deliveries(), cluster.producer(linger_ms=0)
    source = Kafka(cluster.bootstrap, topic, value="json", columns=COLUMNS)
    rounds = 0

    def add() -> None:
        nonlocal rounds
        at_ms = FIRST_MS + rounds * ROUND_MS
        rounds += 1
        for partition in PARTITIONS:
            for number, row in enumerate(deliveries.next(partition)):
                producer.produce(
                    topic, _body(row), partition=int(partition), timestamp=at_ms + number
                )
        assert producer.flush() == 0

    def expire() -> None:
        for partition in PARTITIONS:
            cluster.delete_records(topic, ROWS, int(partition))
            del deliveries.rows[partition][:ROWS]

    def grow() -> None:
        cluster.add_partitions(topic, len(PARTITIONS) + 1)

    for _ in range(ROUNDS):
        add()
    return Supply(
        source=source,
        rows=deliveries.rows,
        add=add,
        end=lambda partition: source.spans()[partition].latest,
        expire=expire,
        grow=grow,
    )


def _body(row: dict[str, Any]) -> bytes:
    return json.dumps(row, default=str).encode()
