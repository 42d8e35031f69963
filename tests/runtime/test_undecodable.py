"""Messages that cannot be decoded: kept in the same commit as all that can, and found again."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock.clock import SystemChance
from penstock.errors import Invalid
from penstock.runtime.cli import app
from penstock.runtime.transforming import read_reports, read_rows
from penstock.runtime.wire import Report
from tests.support.in_process import SETTINGS, LocalRun, no_spark, workshop
from tests.support.kafka import Cluster

Rows = Iterator[dict[str, Any]]
SMALL_EPOCHS = replace(SETTINGS, limits=ps.Limits(records=4))
LETTER = ("key", "value", "_error", "_key", "_source", "_source_partition", "_offset", "_epoch")
NO_BRACES = "it is not an object in braces"


@ps.stateful(emits="user string, total long")
def count(user: str, events: ps.Events, so_far: ps.Value[int]) -> Rows:
    """Sums per user."""
    so_far.set(so_far.get(0) + sum(events.values("n")))
    yield {"user": user, "total": so_far.get()}


def source_of(cluster: Cluster, topic: str, policy: Any = "quarantine") -> ps.Kafka:
    return ps.Kafka(
        cluster.bootstrap,
        topic,
        value="json",
        columns="user string, n long",
        on_undecodable=policy,
    )


def run_of(source: ps.Kafka, folder: Path) -> LocalRun:
    job = ps.Job("clicks", partitions=2)
    job.read(source, name="clicks").key_by("user").process(count).write(ps.Table("totals"))
    return LocalRun(job, folder)


@pytest.fixture
def topic(kafka_broker: Cluster) -> str:
    """Six messages that count, three that do not."""
    name = kafka_broker.topic(f"clicks-{SystemChance().unique()[:8]}")
    bodies = [json.dumps({"user": "ada", "n": n}).encode() for n in range(9)]
    keys: list[bytes | None] = [b"k%d" % n for n in range(9)]
    bodies[1], bodies[4], bodies[8] = b"\xff", b"[1]", b"oops"
    keys[4], keys[8] = None, b"\xfe"
    kafka_broker.write(name, bodies, keys=keys)
    return name


def test_they_are_rows_of_a_table_of_their_own(
    tmp_path: Path, kafka_broker: Cluster, topic: str
) -> None:
    """As they came, with why and where, in the very epoch that passed them."""
    run = run_of(source_of(kafka_broker, topic), tmp_path)
    ran = run.run(SMALL_EPOCHS)

    assert run.rows("totals", "total")[-1] == (0 + 2 + 3 + 5 + 6 + 7,)
    table = ps.read_table(run.url, "clicks.undecodable")
    assert [tuple(row.values()) for row in table.select(LETTER).to_pylist()] == [
        (b"k1", b"\xff", "it is not UTF-8", "k1", "clicks", "0", 1, 1),
        (None, b"[1]", NO_BRACES, "", "clicks", "0", 4, 2),
        (b"\xfe", b"oops", NO_BRACES, "\\xfe", "clicks", "0", 8, 3),
    ]
    assert table.column("_input").to_pylist() == [
        [{"from": "clicks/0", "first": offset, "last": offset}] for offset in (1, 4, 8)
    ]
    assert ran.quarantined == 3
    assert run.root.check().clean


def test_they_are_shown_among_the_dead_letters(
    tmp_path: Path, kafka_broker: Cluster, topic: str
) -> None:
    """Where people look; and they are not played again, since they never were events."""
    run = run_of(source_of(kafka_broker, topic), tmp_path)
    run.run(SMALL_EPOCHS)
    shown = CliRunner().invoke(app, ["dead-letters", "list", run.url, "--json"])
    letters = json.loads(shown.stdout)

    assert [(letter["operator"], letter["event"]) for letter in letters] == [
        ("clicks", "clicks/0@1"),
        ("clicks", "clicks/0@4"),
        ("clicks", "clicks/0@8"),
    ]
    one = CliRunner().invoke(app, ["dead-letters", "list", run.url, "--operator", "clicks"])
    assert one.exit_code == 0 and one.stdout.count("clicks/0@") == 3
    replayed = CliRunner().invoke(app, ["dead-letters", "replay", run.url])
    assert "0 letters will be processed again" in replayed.stdout
    named = CliRunner().invoke(
        app, ["dead-letters", "replay", run.url, "--letter", letters[0]["letter"]]
    )
    assert (named.exit_code, "could not be decoded" in named.stderr) == (2, True)


def test_a_source_that_fails_stops_the_job_before_the_epoch(
    tmp_path: Path, kafka_broker: Cluster, topic: str
) -> None:
    """It says where, nothing of the epoch is committed, and another policy goes on from there."""
    strict = run_of(source_of(kafka_broker, topic, "fail"), tmp_path)
    with pytest.raises(Invalid, match="has a message at offset 1 that cannot be decoded"):
        strict.run(SMALL_EPOCHS)
    assert strict.root.newest() is None

    lenient = run_of(source_of(kafka_broker, topic), tmp_path)
    lenient.run(SMALL_EPOCHS)
    assert lenient.rows("clicks.undecodable", "_offset") == [(1,), (4,), (8,)]
    with pytest.raises(Invalid, match="the quarantine of source 'clicks' was on and is off"):
        run_of(source_of(kafka_broker, topic, "fail"), tmp_path).run(SMALL_EPOCHS)


def test_they_are_kept_before_a_transform_too(
    tmp_path: Path, kafka_broker: Cluster, topic: str
) -> None:
    """Those rows take another way through Spark; what is left out is the same."""
    run = run_of(source_of(kafka_broker, topic), tmp_path)
    topology = replace(run.job.topology(run.url, no_spark), transformed=frozenset({"clicks"}))
    shop = workshop(topology, tmp_path)
    run.run(replace(SMALL_EPOCHS, limits=ps.Limits()))
    [plan] = run.runners[0].plans

    rows = [
        row
        for task in range(len(plan.tasks))
        for batch in read_rows(shop, plan, task, "clicks")
        for row in batch.to_pylist()
    ]
    reports = [each for each in read_reports(shop, topology, plan) if isinstance(each, Report)]

    assert [row["n"] for row in rows] == [0, 2, 3, 5, 6, 7]
    assert [each.outputs["clicks.undecodable"].rows for each in reports] == [3]
