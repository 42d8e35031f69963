"""A job from topic to topic: every order of a user, and what it has come to by then.

It is run as it is, from this file, by `penstock run`; where everything is comes by the environment.
"""

import os
from collections.abc import Mapping
from typing import Any

import penstock as ps

PARTITIONS = 3


@ps.stateful(emits="user string, orders long, total long, number long")
def totals(user: str, events: ps.Events, orders: ps.Value[int], total: ps.Value[int]) -> Any:
    """One row for each order."""
    for event in events:
        orders.set(orders.get(0) + 1)
        total.set(total.get(0) + event.amount)
        row = {"user": user, "orders": orders.get(), "total": total.get()}
        yield {**row, "number": event.number}


def make_job(at: Mapping[str, str]) -> ps.Job:
    """The job; `at` says where the brokers are and what the topics are called."""
    brokers = at["ORDERS_BROKERS"]
    changelog = ps.KafkaChangelog(brokers) if at.get("ORDERS_CHANGELOG") else None
    job = ps.Job("orders", partitions=PARTITIONS, order="log", changelog=changelog)
    columns = "user string, amount long, number long"
    orders = ps.Kafka(
        brokers, at["ORDERS_IN"], value="json", columns=columns, group="orders-job", timeout_s=60
    )
    rows = job.read(orders, name="orders").key_by("user").process(totals)
    rows.write(ps.Kafka(brokers, at["ORDERS_OUT"], value="json", key="string", key_column="user"))
    return job


if "ORDERS_BROKERS" in os.environ:
    job = make_job(os.environ)
