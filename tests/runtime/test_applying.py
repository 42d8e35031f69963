"""Sinks with a cursor of their own are brought up to HEAD by the loop."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.checkpoint.layout import output_key
from penstock.errors import Fenced, Unavailable
from penstock.ids import Attempt, Epoch, Key
from penstock.sinks import Apply, Cursor, ReadCursor
from penstock.sinks.guarantee import Guarantee
from tests.support.in_process import SETTINGS, LocalRun, append, click, clicks_log

SHELVES: dict[str, dict[int, tuple[Cursor, int, list[dict[str, Any]]]]] = {}
"""What is outside the root, by sink: cursor, token and rows of each shard."""


@dataclass(frozen=True)
class Shelf:
    """A sink in this process's memory."""

    name: str
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    away: list[int] = field(default_factory=list, compare=False)
    """How often it has refused so far, while it is away."""

    def encode(self, rows: pa.Table) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
        return bytes(sink.getvalue())

    def key(self, epoch: Epoch, partition: int, attempt: Attempt) -> Key:
        return output_key(self.name, epoch, partition, attempt)

    def read_cursor(self, asked: ReadCursor) -> Cursor | None:
        held = SHELVES.setdefault(self.name, {}).get(asked.shard)
        return None if held is None else held[0]

    def apply(self, asked: Apply) -> None:
        if self.away:
            self.away.pop()
            raise Unavailable("shelf", "is away", "wait")
        none: tuple[Cursor | None, int, list[Any]] = (None, 0, [])
        cursor, token, rows = SHELVES[self.name].get(asked.shard, none)
        if asked.token < token:
            raise Fenced("shelf", held=asked.token, newest=token, by="another")
        assert (0 if cursor is None else cursor.epoch) == asked.follows
        new = [row for body in asked.outputs for row in _rows(body)]
        SHELVES[self.name][asked.shard] = (asked.cursor, asked.token, [*rows, *new])


def _rows(body: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.ipc.open_file(body).read_all().to_pylist()
    return found


@ps.stateful(emits="user string, total long")
def total(user: str, events: ps.Events, spent: ps.Value[int]) -> Any:
    spent.set(spent.get(0) + sum(events.values("n")))
    yield {"user": user, "total": spent.get()}


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(f"shelf-{tmp_path.name}")


def started(folder: Path, shelf: Shelf) -> LocalRun:
    job = ps.Job("shop", partitions=2)
    stream = job.read(ps.Log(str(folder / "clicks"))).key_by("user").process(total)
    stream.write(shelf).write(ps.Table("totals"))
    return LocalRun(job, folder)


def on(shelf: Shelf) -> list[tuple[int, str, int]]:
    return sorted(
        (row["_epoch"], row["user"], row["total"])
        for _, _, rows in SHELVES[shelf.name].values()
        for row in rows
    )


def test_every_committed_row_is_applied_once(tmp_path: Path, shelf: Shelf) -> None:
    """What the chain says is what the sink holds."""
    log = clicks_log(tmp_path)
    append(log, [click(f"user-{n % 5}", n) for n in range(40)])
    run = started(tmp_path, shelf)
    run.run(ps.RunSettings(until="caught-up", read_tasks=2, limits=ps.Limits(records=9)))

    assert on(shelf) == run.rows("totals", "_epoch", "user", "total")
    assert {cursor.epoch for cursor, _, _ in SHELVES[shelf.name].values()} == {
        run.root.head().epoch
    }


def test_what_an_earlier_leader_committed_is_applied_at_the_start(
    tmp_path: Path, shelf: Shelf
) -> None:
    """A sink that was away when the leader died is not behind for ever."""
    append(clicks_log(tmp_path), [click("ada", n) for n in range(4)])
    run = started(tmp_path, Shelf(shelf.name, away=[0] * 100))
    with pytest.raises(Unavailable, match="shelf is away"):
        run.run()
    assert (run.root.head().epoch, SHELVES[shelf.name]) == (1, {})

    started(tmp_path, shelf).run(SETTINGS)

    assert on(shelf) == [(1, "ada", 6)]


def test_a_sink_that_promises_too_little_is_refused(tmp_path: Path) -> None:
    """A guarantee is never lowered silently."""
    from penstock.runtime.run import check_guarantees
    from tests.support.in_process import no_spark

    clicks_log(tmp_path)
    job = started(tmp_path, Shelf("post", Guarantee.AT_LEAST_ONCE)).job
    topology = job.topology(str(tmp_path / "root"), no_spark)
    check_guarantees(topology, "at-least-once")

    with pytest.raises(ps.Invalid, match="'post' gives at-least-once, and exactly-once is requi"):
        check_guarantees(topology, "exactly-once")
