"""A job that writes the same rows to a sink of every kind.

It is run as it is, from this file, by `penstock run`; where everything is comes by the environment.
"""

import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

import penstock as ps

PARTITIONS = 3
ORDERS = pa.schema([("user", pa.string()), ("amount", pa.int64())])
OWN = ("user", "orders", "total", "gone")
PLACED = ("_epoch", "_partition", "_sequence", *OWN)
LEAVES_EVERY = 7
"""A user is forgotten with every so many orders, and comes back with the next."""


@ps.stateful(emits="user string, orders long, total long, gone boolean")
def totals(user: str, events: ps.Events, orders: ps.Value[int], total: ps.Value[int]) -> Any:
    """Every order of a user, and what it has come to by then."""
    for event in events:
        orders.set(orders.get(0) + 1)
        total.set(total.get(0) + event.amount)
        gone = orders.get() % LEAVES_EVERY == 0
        yield {"user": user, "orders": orders.get(), "total": total.get(), "gone": gone}


def make_job(at: Mapping[str, str]) -> ps.Job:
    """The job; `at` says where its log and its sinks are."""
    job = ps.Job("six", partitions=PARTITIONS)
    rows = job.read(ps.Log(at["SIX_LOG"]), name="orders").key_by("user").process(totals)
    latest: dict[str, Any] = {"key": "user", "deletes": "gone"}
    rows.write(ps.Table("everything"))
    rows.write(ps.Postgres("history", at["SIX_POSTGRES"], create=True, provenance=True))
    rows.write(ps.Postgres("latest", at["SIX_POSTGRES"], create=True, **latest))
    rows.write(ps.Redis("cache", at["SIX_REDIS"], **latest))
    rows.write(ps.DynamoDB("items", create=True, **latest))
    rows.write(ps.Delta("lake", at["SIX_LAKE"], provenance=True))
    rows.write(ps.LogSink("topic", at["SIX_TOPIC"], partitions=2, key="user"))
    return job


if "SIX_LOG" in os.environ:
    job = make_job(os.environ)
