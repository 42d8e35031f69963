"""A job with everything that can go wrong in it: two operators, a map, timers, ages, five sinks.

It is run as it is, from this file, by `penstock chaos`; where its sinks are comes by the
environment, and those that are nowhere are left out.
"""

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

import pyarrow as pa

import penstock as ps

ORDERS = pa.schema(
    [
        ("user", pa.string()),
        ("shop", pa.int64()),
        ("amount", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
SHOPS = 7
QUIET = timedelta(seconds=2)


@ps.stateful(emits="user string, shop long, orders long, spent long")
def spending(
    user: str,
    events: ps.Events,
    orders: ps.Value[int],
    spent: ps.Map[int, int],
    lately: Annotated[ps.List[int], ps.ttl("3 s")],
    quiet: ps.Timer,
) -> Any:
    """Every order of a user and what it comes to by then; who is quiet for long is told of."""
    if quiet.fired is not None:
        yield {"user": user, "shop": -1, "orders": orders.get(0), "spent": len(list(lately))}
        return
    for event in events:
        shop, amount = event.shop % SHOPS, event.amount % 1_000
        orders.set(orders.get(0) + 1)
        spent.set(shop, spent.get(shop, 0) + amount)
        lately.append(amount)
        yield {"user": user, "shop": shop, "orders": orders.get(), "spent": spent.get(shop)}
    quiet.clear()
    quiet.set(max(event.at for event in events) + QUIET)


@ps.stateful(emits="shop long, rows long, users long")
def shops(shop: int, events: ps.Events, rows: ps.Value[int], users: ps.Map[str, bool]) -> Any:
    """How many rows of a shop there were, and of how many users."""
    rows.set(rows.get(0) + len(events))
    for event in events:
        users.set(event.user, True)
    yield {"shop": shop, "rows": rows.get(), "users": len(dict(users.items()))}


def make_job(at: Mapping[str, str]) -> ps.Job:
    """The job; `at` says where its sinks are."""
    job = ps.Job("ordeal", partitions=4)
    source = ps.Rate(columns=ORDERS, partitions=2, rows=50_000, key="user", keys=400)
    rows = job.read(source, name="orders", event_time="at", delay="2 s").key_by("user")
    per_user = rows.process(spending).write(ps.Table("orders"))
    if "ORDEAL_POSTGRES" in at:
        per_user.write(ps.Postgres("history", at["ORDEAL_POSTGRES"], create=True, provenance=True))
        latest = ps.Postgres("latest", at["ORDEAL_POSTGRES"], create=True, key=("user", "shop"))
        per_user.write(latest)
    if "ORDEAL_TOPIC" in at:
        per_user.write(ps.LogSink("topic", at["ORDEAL_TOPIC"], partitions=2, key="user"))
    if "ORDEAL_KAFKA" in at:
        servers, topic = at["ORDEAL_KAFKA"].split("/")
        per_user.write(ps.KafkaSink("events", servers, topic, key_column="user"))
    per_user.key_by("shop").process(shops).write(ps.Table("shops", format="parquet"))
    return job


@ps.invariant
def every_order_is_counted(found: ps.Observed) -> str:
    """Each event makes one row, and the counts of all users add up to the events."""
    events, rows = found.events("orders").num_rows, found.table("orders").to_pylist()
    made = sum(row["shop"] >= 0 for row in rows)
    counted = sum(each["orders"] for each in found.state("spending").values())
    return "" if events == made == counted else f"{events} events, {made} rows, {counted} counted"


job = make_job(os.environ)
