"""Whole jobs from topic to topic: what is read, written, told, waited for and refused."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.clock import SystemChance
from penstock.errors import Invalid
from penstock.runtime.telling import Silent
from tests.support.in_process import SETTINGS, LocalRun
from tests.support.kafka import Cluster

Rows = Iterator[dict[str, Any]]
SMALL_EPOCHS = replace(SETTINGS, limits=ps.Limits(records=20))


@ps.stateful(emits="user string, total long, gone boolean")
def count(user: str, events: ps.Events, so_far: ps.Value[int]) -> Rows:
    """Sums per user, one row for each event; a sum of a hundred and more is taken back."""
    for event in events:
        so_far.set(so_far.get(0) + event.n)
        yield {"user": user, "total": so_far.get(), "gone": so_far.get() >= 100}


class Topics:
    """A topic to read and one to write, of one test."""

    def __init__(self, cluster: Cluster) -> None:
        unique = SystemChance().unique()[:8]
        self.cluster = cluster
        self.source = cluster.topic(f"{unique}.clicks", partitions=2)
        self.target = cluster.topic(f"{unique}.totals", partitions=2)
        self.group = f"{unique}.group"
        self.expected: dict[str, list[int]] = {}
        self._sent = 0

    def send(self, count: int) -> None:
        """So many more clicks of three users, each in a partition of its own."""
        for number in range(self._sent, self._sent + count):
            user = f"user {number % 3}"
            body = json.dumps({"user": user, "n": number % 5}).encode()
            self.cluster.write(self.source, [body], partition=number % 3 % 2)
            sums = self.expected.setdefault(user, [])
            sums.append((sums[-1] if sums else 0) + number % 5)
        self._sent += count

    def job(self, to_table: bool = False) -> ps.Job:
        job = ps.Job("counting", partitions=2, order="log")
        clicks = ps.Kafka(
            self.cluster.bootstrap,
            self.source,
            value="json",
            columns="user string, n long",
            group=self.group,
            timeout_s=2,
        )
        target = ps.Kafka(
            self.cluster.bootstrap,
            self.target,
            value="json",
            key="string",
            key_column="user",
            deletes="gone",
            timeout_s=2,
        )
        rows = job.read(clicks).key_by("user").process(count)
        rows.write(ps.Table("totals") if to_table else target)
        return job

    def found(self) -> dict[str, list[int | None]]:
        """What a reader of the results meets of every user."""
        rows: dict[str, list[int | None]] = {}
        for message in self.cluster.read(self.target):
            value, key = message.value(), (message.key() or b"").decode()
            row = None if value is None else json.loads(value)
            rows.setdefault(key, []).append(None if row is None else row["total"])
        return rows


@pytest.fixture
def topics(kafka_broker: Cluster) -> Topics:
    return Topics(kafka_broker)


def test_results_are_in_the_topic_once_and_in_order(topics: Topics, tmp_path: Path) -> None:
    """Over several epochs and lives of the job; what is taken back is a tombstone."""
    for _ in range(3):
        topics.send(60)
        LocalRun(topics.job(), tmp_path).run(SMALL_EPOCHS)

    assert topics.found() == {
        user: [total if total < 100 else None for total in sums]
        for user, sums in topics.expected.items()
    }
    assert any(None in sums for sums in topics.found().values())


def test_the_group_is_told_after_every_epoch(topics: Topics, tmp_path: Path) -> None:
    """As far as the chain says, and by the name that the job gave it."""
    topics.send(30)
    run = LocalRun(topics.job(), tmp_path)
    run.run(SMALL_EPOCHS)

    newest = run.root.newest()
    assert newest is not None
    told = topics.cluster.committed(topics.group, topics.source)
    progress = newest.sources[topics.source]
    assert {str(number): offset for number, (offset, _) in told.items()} == progress.resume_at


def test_partitions_that_are_new_are_read_by_the_next_epoch(topics: Topics, tmp_path: Path) -> None:
    """From their first message on, whatever the job had seen before."""
    topics.send(30)
    run = LocalRun(topics.job(), tmp_path)
    run.run(SMALL_EPOCHS)
    topics.cluster.add_partitions(topics.source, 3)
    body = json.dumps({"user": "new", "n": 7}).encode()
    topics.cluster.write(topics.source, [body], partition=2)
    run.run(SMALL_EPOCHS)

    assert topics.found()["new"] == [7]


def test_a_topic_that_was_made_anew_between_two_lives_is_refused(
    topics: Topics, tmp_path: Path
) -> None:
    """The chain remembers which topic its offsets are of."""
    topics.send(10)
    LocalRun(topics.job(), tmp_path).run(SMALL_EPOCHS)
    topics.cluster.delete(topics.source)
    topics.cluster.topic(topics.source, partitions=2)
    topics.send(30)

    with pytest.raises(Invalid, match="was deleted and made anew"):
        LocalRun(topics.job(), tmp_path).run(SMALL_EPOCHS)


class Waiting(Silent):
    """Brings the broker back when it has been missed."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.heard: list[str] = []

    def retried(self, epoch: int, why: str) -> None:
        self._hear(why)

    def held(self, sinks: Mapping[str, str]) -> None:
        for why in sinks.values():
            self._hear(why)

    def _hear(self, why: str) -> None:
        self.heard.append(why)
        if not self.cluster.alive():
            self.cluster.brokers[0].start()


def test_a_source_that_is_away_is_waited_for(topics: Topics, tmp_path: Path) -> None:
    """However long, and it is said; the job goes on by itself."""
    topics.send(20)
    topics.cluster.brokers[0].kill()
    listener = Waiting(topics.cluster)
    run = LocalRun(topics.job(to_table=True), tmp_path)
    run.run(SMALL_EPOCHS, listener=listener)

    assert listener.heard and all("does not answer" in why for why in listener.heard)
    assert len(run.rows("totals", "user", "total")) == 20


def test_a_sink_that_is_away_holds_the_job(topics: Topics, tmp_path: Path) -> None:
    """It is said by name, nothing is lost, and it goes on by itself."""
    topics.send(20)
    LocalRun(topics.job(), tmp_path).run(SMALL_EPOCHS)
    topics.send(20)
    shards = [f"penstock/counting/{topics.target}/{shard}" for shard in range(2)]
    topics.cluster.settle(topics.target, *shards)
    topics.cluster.brokers[0].kill()
    listener = Waiting(topics.cluster)
    LocalRun(topics.job(), tmp_path).run(SMALL_EPOCHS, listener=listener)

    assert listener.heard[0].startswith(f"sink {topics.target}")
    assert topics.found() == topics.expected


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "several topics": ({"topic": ["a", "b"]}, "is not one topic by name"),
    "a pattern": ({"topic": None, "pattern": "a.*"}, "is not one topic by name"),
    "a registered format": (
        {"value": "avro", "schema_registry": "http://127.0.0.1:1"},
        "has value='avro'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_can_be_read_and_not_written_is_refused(case: str) -> None:
    """When the job is described, and by name."""
    options, found = REFUSED[case]
    job = ps.Job("counting")
    rows = job.read(ps.Rate(rows=1)).key_by("user")
    topic = ps.Kafka(**{"bootstrap": "127.0.0.1:1", "topic": "a", **options})

    with pytest.raises(Invalid, match=found):
        rows.process(count).write(topic)
