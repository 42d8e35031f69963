"""A job of two operators, timers, side output and two tables, and what it must give.

It is run as it is, from this file, by `penstock run`; the log it reads is named by the environment.
The reference is plain Python: it is told which offsets each epoch read and replays them.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

import penstock as ps
from penstock.checkpoint import Manifest, Root
from penstock.sources import Range

SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("country", pa.string()),
        ("amount", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
START = datetime(2026, 1, 1, tzinfo=UTC)
QUIET_MS = 60_000
DELAY_MS = 5_000
BIG = 97


@ps.stateful(
    emits="user string, country string, orders long, total long",
    sides={"big": "user string, amount long"},
)
def totals(
    user: str,
    events: ps.Events,
    count: ps.Value[int],
    spent: ps.Map[str, int],
    quiet: ps.Timer,
) -> Any:
    """Orders and spending per user; a user who is quiet for a minute is told of."""
    if quiet.fired is not None:
        yield {"user": user, "country": "quiet", "orders": count.get(0), "total": 0}
        return
    for event in events:
        count.set(count.get(0) + 1)
        spent.set(event.country, spent.get(event.country, 0) + event.amount)
        if event.amount >= BIG:
            yield ps.to("big", {"user": user, "amount": event.amount})
    quiet.clear()
    last = max(event.at for event in events)
    quiet.set(last + timedelta(milliseconds=QUIET_MS))
    country = events[len(events) - 1].country
    yield {
        "user": user,
        "country": country,
        "orders": count.get(),
        "total": spent.get(country),
    }


@ps.stateful(emits="country string, seen long, users array<string>")
def by_country(country: str, events: ps.Events, seen: ps.Value[int], last: ps.List[str]) -> Any:
    """How many updates a country had, and the users in the order they came."""
    seen.set(seen.get(0) + len(events))
    last.clear()
    last.extend(event.user for event in events)
    yield {"country": country, "seen": seen.get(), "users": list(last)[:5]}


def make_job(log: str, partitions: int = 4, order: str = "event-time") -> ps.Job:
    """The job on a log."""
    job = ps.Job("shop", partitions=partitions, order=order)
    users = (
        job.read(ps.Log(log), name="orders", event_time="at", delay=f"{DELAY_MS} ms")
        .key_by("user")
        .process(totals)
        .write(ps.Table("totals"))
    )
    users.side("big").write(ps.Table("big"))
    users.key_by("country").process(by_country).write(ps.Table("countries", format="parquet"))
    return job


def fill(url: str, rows: int, *, key: str | tuple[str, ...] = (), partitions: int = 3) -> ps.Log:
    """A log of orders that are slightly out of order."""
    log = ps.Log.create(url, SCHEMA, partitions=partitions, key=key)
    random = np.random.default_rng(7)
    seconds = np.arange(rows) * 0.01 + random.uniform(0, 3, rows)
    table = pa.table(
        {
            # Every user comes for a while and then no more, so that timers have something to tell.
            "user": [f"user-{n}" for n in random.integers(0, 60, rows) + np.arange(rows) // 60],
            "country": np.array(["KR", "DE", "BR", "US"])[random.integers(0, 4, rows)],
            "amount": random.integers(1, 100, rows),
            "at": pa.array(
                [START + timedelta(seconds=float(s)) for s in seconds.round(3)],
                SCHEMA.field("at").type,
            ),
        },
        schema=SCHEMA,
    )
    with log.producer() as producer:
        for start in range(0, rows, 1000):
            producer.append(table.slice(start, 1000))
            producer.flush()
    return log


Rows = list[tuple[Any, ...]]


class Reference:
    """The same job in plain Python, epoch by epoch."""

    def __init__(self) -> None:
        self.count: dict[str, int] = defaultdict(int)
        self.spent: dict[tuple[str, str], int] = defaultdict(int)
        self.quiet: dict[str, int] = {}
        self.seen: dict[str, int] = defaultdict(int)
        self.tables: dict[str, Rows] = {"totals": [], "big": [], "countries": []}

    def epoch(self, number: int, events: list[dict[str, Any]], watermark_ms: int | None) -> None:
        """One epoch: timers that are due, then each user's events in their order."""
        emitted: list[tuple[Any, ...]] = []
        if watermark_ms is not None:
            for user, at in sorted(self.quiet.items(), key=lambda each: each[1]):
                if at <= watermark_ms:
                    del self.quiet[user]
                    emitted.append((number, user, "quiet", self.count[user], 0))
        by_user: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for event in sorted(events, key=lambda e: (e["at"], e["_partition"], e["_offset"])):
            by_user[event["user"]].append(event)
        for user, mine in by_user.items():
            for event in mine:
                self.count[user] += 1
                self.spent[user, event["country"]] += event["amount"]
                if event["amount"] >= BIG:
                    self.tables["big"].append((number, user, event["amount"]))
            last = max(event["at"] for event in mine)
            self.quiet[user] = (last - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
                milliseconds=1
            ) + QUIET_MS
            country = mine[-1]["country"]
            total = self.spent[user, country]
            emitted.append((number, user, country, self.count[user], total))
        self.tables["totals"] += emitted
        for country in sorted({row[2] for row in emitted}):
            self.seen[country] += sum(row[2] == country for row in emitted)
            self.tables["countries"].append((number, country, self.seen[country]))


def expected(root: Root, log: ps.Log) -> Mapping[str, Rows]:
    """What the tables must hold by the committed ranges alone."""
    reference = Reference()
    watermark_ms: int | None = None
    for manifest in reversed(list(root.history())):
        reference.epoch(manifest.epoch, list(_events(log, manifest)), watermark_ms)
        watermark_ms = manifest.sources["orders"].watermark_ms
    return {name: sorted(rows) for name, rows in reference.tables.items()}


def _events(log: ps.Log, manifest: Manifest) -> Iterable[dict[str, Any]]:
    for partition, range_ in manifest.sources["orders"].ranges.items():
        for batch in log.read(partition, Range(start=range_.start, stop=range_.stop)):
            for row in batch.to_pylist():
                meta = row.pop("_meta")
                yield {**row, "_partition": int(partition), "_offset": meta["offset"]}


COLUMNS = {
    "totals": ("_epoch", "user", "country", "orders", "total"),
    "big": ("_epoch", "user", "amount"),
    "countries": ("_epoch", "country", "seen"),
}


def found(root: str) -> Mapping[str, Rows]:
    """What the tables hold."""
    tables = {name: ps.read_table(root, name) for name in COLUMNS}
    return {
        name: sorted(zip(*(tables[name][c].to_pylist() for c in columns), strict=True))
        for name, columns in COLUMNS.items()
    }


def in_full(root: str) -> Mapping[str, list[str]]:
    """What the tables hold, with where each row comes from; what follows from the number of
    partitions is left out."""
    hidden = ("_partition", "_sequence")
    full = {}
    for name in COLUMNS:
        table = ps.read_table(root, name)
        kept = [column for column in table.column_names if column not in hidden]
        if name == "countries":  # its input is another operator's rows, counted per partition
            kept.remove("_input")
        full[name] = sorted(repr(row) for row in table.select(kept).to_pylist())
    return full


if "PENSTOCK_SHOP_LOG" in os.environ:
    job = make_job(
        os.environ["PENSTOCK_SHOP_LOG"], int(os.environ.get("PENSTOCK_SHOP_PARTITIONS", "4"))
    )
