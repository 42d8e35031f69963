"""Times of a zone that this host does not know: another host wrote them, and they are times."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from typer.testing import CliRunner

import penstock as ps
from penstock.runtime.cli import app
from penstock.runtime.row_values import python_rows
from tests.support.in_process import LocalRun
from tests.support.logs import AT_ONCE

UNKNOWN = pa.timestamp("us", "Mars/Olympus")
BEYOND = 1 << 60
"""Microseconds: of no year."""


def moments(*micros: int | None) -> pa.Array:
    return pa.array(micros, pa.int64()).cast(UNKNOWN)


def test_times_of_an_unknown_zone_are_told_in_utc() -> None:
    """Also inside other values; one of no year is a number, as in any zone."""
    nested = pa.StructArray.from_arrays([moments(0, 1, None)], ["t"])
    table = pa.table({"t": moments(0, BEYOND, None), "in": nested})

    assert python_rows(table) == [
        {"t": datetime(1970, 1, 1, tzinfo=UTC), "in": {"t": datetime(1970, 1, 1, tzinfo=UTC)}},
        {"t": BEYOND, "in": {"t": datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)}},
        {"t": None, "in": {"t": None}},
    ]


@ps.stateful(emits="n long, said string")
def tell(user: str, events: ps.Events) -> Iterator[dict[str, Any]]:
    """Says what it is given."""
    for event in events:
        yield {"n": event.n, "said": str(event.there)}


def run_of(folder: Path, users: list[str | None], at: list[int]) -> LocalRun:
    """A job that sets aside what it cannot decode, and what it cannot process."""
    rows = pa.table(
        {
            "user": users,
            "n": pa.array(range(len(users)), pa.int64()),
            "at": pa.array(at, pa.int64()).cast(pa.timestamp("us", "UTC")),
            "there": moments(*range(len(users))),
        }
    )
    log = ps.Log.create(str(folder / "log"), rows.schema)
    with log.producer(batching=AT_ONCE) as producer:
        producer.append(rows, 0)
    job = ps.Job("job", partitions=2)
    stream = job.read(log, name="log", event_time="at", on_undecodable="quarantine")
    stream.key_by("user").process(tell, name="op", on_error="quarantine").write(ps.Table("out"))
    return LocalRun(job, folder)


def test_an_event_with_such_a_time_is_set_aside_as_any_other(tmp_path: Path) -> None:
    """An event of no year is set aside as text, with all its columns."""
    run = run_of(tmp_path, ["ada", "bob"], [0, BEYOND])
    run.run()

    assert run.rows("out", "n", "said") == [(0, "1970-01-01 00:00:00+00:00")]
    values = [json.loads(value) for (value,) in run.rows("log.undecodable", "value")]
    assert [(value["user"], value["there"]) for value in values] == [
        ("bob", "1970-01-01T00:00:00.000001Z")
    ]


def test_letters_with_such_a_time_are_shown_and_replayed(tmp_path: Path) -> None:
    """The zone is a column's affair; the letters must be of use on every host."""
    run = run_of(tmp_path, ["ada", None], [0, 0])
    run.run()
    shown = CliRunner().invoke(app, ["dead-letters", "list", run.url, "--json"])
    assert [letter["event"] for letter in json.loads(shown.stdout)] == ["log/0@1"]

    replayed = CliRunner().invoke(app, ["dead-letters", "replay", run.url])
    run.run()
    assert "1 letter will be processed again" in replayed.stdout
    letters = ps.read_table(run.url, "op.dead-letters").column("there")
    assert (letters.type, letters.cast(pa.int64()).to_pylist()) == (UNKNOWN, [1, 1])
