"""One of every source there is, each with rows that are known and a way to get more.

A new source joins the contract with one function here and one line in `tests/contracts`.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.clock import SystemChance
from penstock.sources import META_NAME, Log, Range, Rate, Source
from penstock.sources.files import Files
from penstock.sources.files_settings import World
from tests.support.driving import ManualClock
from tests.support.logs import AT_ONCE

COLUMNS = pa.schema([("n", pa.int64()), ("text", pa.string()), ("at", pa.timestamp("us", "UTC"))])
PARTITIONS = ("0", "1")
ROUNDS, ROWS = 3, 4
"""Every partition begins with so many deliveries of so many rows."""

DELIVERED_EVERY_S = 10.0
Rows = dict[str, list[dict[str, Any]]]


@dataclass
class Supply:
    """A source, what it should have, and how it gets more."""

    source: Source
    rows: Rows
    """What each partition holds, in order; goes on as more is added."""
    add: Callable[[], None]
    """Let every partition have more rows."""
    end: Callable[[str], int]
    """The offset behind the last that can ever be asked for, as things are."""
    timed_by: str = "broker_time"
    """What `offsets_at` goes by."""
    expire: Callable[[], None] | None = None
    """Let every partition forget its first rows, if the source can."""
    grow: Callable[[], None] | None = None
    """Let there be one more partition, if there can."""


@dataclass
class Deliveries:
    """Rows that can be told apart, and happened out of order."""

    rows: Rows = field(default_factory=lambda: {partition: [] for partition in PARTITIONS})
    made: int = 0

    def next(self, partition: str) -> list[dict[str, Any]]:
        """Some more for a partition."""
        return [self._row(partition) for _ in range(ROWS)]

    def _row(self, partition: str) -> dict[str, Any]:
        self.made += 1
        at = datetime.fromtimestamp(1000 + self.made * 7 % 10 / 4, UTC)
        row = {"n": self.made, "text": f"row {self.made}" if self.made % 5 else None, "at": at}
        self.rows[partition].append(row)
        return row


def log_supply(url: str, event_time: str | None = "at") -> Supply:
    """A topic, on whatever store the URL names."""
    clock, deliveries = ManualClock(), Deliveries()
    log = Log.create(url, COLUMNS, partitions=len(PARTITIONS), event_time=event_time, clock=clock)

    def add() -> None:
        with log.producer(batching=AT_ONCE) as producer:
            for partition in PARTITIONS:
                producer.append(deliveries.next(partition), int(partition))
        clock.sleep(DELIVERED_EVERY_S)

    def expire() -> None:
        log.change(retention_age_ms=round((ROUNDS - 0.5) * DELIVERED_EVERY_S * 1000))
        for partition in PARTITIONS:
            del deliveries.rows[partition][:ROWS]
        log.expire()

    def grow() -> None:
        log.change(partitions=len(PARTITIONS) + 1)

    for _ in range(ROUNDS):
        add()
    return Supply(
        source=log,
        rows=deliveries.rows,
        add=add,
        end=lambda partition: log.spans()[partition].latest,
        timed_by="broker_time" if event_time is None else "event_time",
        expire=expire,
        grow=grow,
    )


def rate_supply() -> Supply:
    """Made-up rows, a millisecond apart; some are still to come."""
    clock, there = ManualClock(), ROUNDS * ROWS
    start = datetime.fromtimestamp(clock.wall() - (there - 1) / 1000, UTC)
    endless = {"partitions": len(PARTITIONS), "rows_per_s": 1000, "start": start}
    source = Rate(**endless, rows=2 * there, clock=clock)
    rows: Rows = {partition: [] for partition in PARTITIONS}

    def look(count: int) -> None:
        for partition, known in rows.items():
            fresh = Rate(**endless).read(partition, Range(start=len(known), stop=count))
            known += [plain(row) for batch in fresh for row in batch.to_pylist()]

    def add() -> None:
        clock.sleep(ROWS / 1000)
        look(len(rows["0"]) + ROWS)

    look(there)
    return Supply(source=source, rows=rows, add=add, end=lambda _: 2 * there)


def files_supply(folder: Path, ending: str) -> Supply:
    """A folder in which files arrive, dealt out to the partitions in turn."""
    clock, deliveries = ManualClock(), Deliveries()
    folder.mkdir()
    record = f"memory://{SystemChance().unique()}"
    world = World(clock=clock)
    source = Files(
        str(folder),
        record=record,
        schema=COLUMNS,
        partitions=len(PARTITIONS),
        event_time="at",
        world=world,
    )

    def add() -> None:
        for partition in PARTITIONS:
            clock.sleep(DELIVERED_EVERY_S)
            arrived_s = clock.wall() - DELIVERED_EVERY_S
            path = folder / f"{deliveries.made:04d}.{ending}"
            path.write_bytes(_file(deliveries.next(partition), ending))
            os.utime(path, (arrived_s, arrived_s))

    for _ in range(ROUNDS):
        add()
    return Supply(
        source=source,
        rows=deliveries.rows,
        add=add,
        end=lambda partition: source.spans()[partition].latest,
    )


def _file(rows: list[dict[str, Any]], ending: str) -> bytes:
    if ending == "jsonl":
        return b"".join(json.dumps(row, default=str).encode() + b"\n" for row in rows)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, COLUMNS), sink, row_group_size=3)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what is known of it besides its columns."""
    return {name: value for name, value in row.items() if name != META_NAME}
