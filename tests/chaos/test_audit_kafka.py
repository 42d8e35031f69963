"""What topics of Kafka hold against what was committed: a real broker, each damage by its name."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from typer.testing import CliRunner

import penstock as ps
from penstock.__main__ import app
from penstock.chaos.findings import Check, Verdict
from penstock.clock import SystemChance
from penstock.runtime.loading import load_job
from penstock.sinks.cursors import Cursor
from penstock.sinks.protocol import Target
from tests.support.audits import JOB_FILE, ROWS, Scene, assert_valid, check_of, ran, unknown, wrong
from tests.support.kafka import CALL_S_MAX, Cluster, until
from tests.support.kafka_case import new_prefix


@dataclass
class Told:
    """A job that writes to a topic of Kafka, and somebody else who can write there too."""

    cluster: Cluster
    scene: Scene
    sink: ps.KafkaSink

    def messages(self) -> list[Message]:
        """What a reader finds."""
        return self.cluster.read(self.sink.topic)

    def write(self, *messages: Message, value: bytes | None = None) -> None:
        """Messages once more, or with another value, by somebody else."""
        producer = self.cluster.producer()
        for each in messages:
            body = each.value() if value is None else value
            told: Any = (each.key(), each.partition())
            producer.produce(self.sink.topic, body, *told, headers=each.headers() or [])
        assert producer.flush(CALL_S_MAX) == 0

    def anew(self) -> list[Message]:
        """Make the topic anew, empty, with the cursors that it had; what was in it."""
        found = self.messages()
        self.cluster.delete(self.sink.topic)
        self.cluster.topic(self.sink.topic, partitions=2)
        topology, head = self.scene.topology, self.scene.root.head()
        [node] = [each for each in topology.sinks if each.name == self.sink.name]
        assert node.columns is not None
        job, store = topology.job, self.scene.store
        with closing(
            self.sink.open(Target(job=job, columns=node.columns, partitions=2, store=store))
        ) as writer:
            for shard in range(2):
                writer.accept(shard, Cursor.at(self.scene.manifest(head.epoch)), head.token)
        return found

    def check(self, **scope: Any) -> Check:
        """What an audit says of the sink."""
        return check_of(self.scene.look(**scope), f"sink {self.sink.name}")


def told(folder: Path, cluster: Cluster, topic: str = "", **settings: Any) -> Told:
    """A job that has written to a topic."""
    topic = topic or cluster.topic(partitions=2)
    given = {"key_column": "user", "transaction_prefix": new_prefix(), **settings}
    sink = ps.KafkaSink("told", cluster.bootstrap, topic, **given)
    return Told(cluster, ran(folder, sink), sink)


KAFKA: dict[str, dict[str, Any]] = {
    "named": {"provenance": True},
    "nameless": {},
    "deleting": {"deletes": "gone"},
    "without keys": {"key_column": (), "provenance": True},
}


@pytest.mark.parametrize("kind", KAFKA)
def test_messages_of_kafka_are_found_one_by_one(
    tmp_path: Path, kafka_broker: Cluster, kind: str
) -> None:
    """By where they come from, or counted; a tombstone is one of them."""
    job = told(tmp_path, kafka_broker, **KAFKA[kind])
    found = job.scene.look()

    assert_valid(found)
    assert check_of(found, "sink told").counted["rows compared"] == 24
    assert (found.sinks["told"].rows, found.sinks["told"].upto) == (24, 4)


def test_a_message_that_is_doubled_is_named(tmp_path: Path, kafka_broker: Cluster) -> None:
    """Whether or not messages say where they come from."""
    for kind in ("named", "nameless"):
        (tmp_path / kind).mkdir()
        job = told(tmp_path / kind, kafka_broker, **KAFKA[kind])
        job.write(job.messages()[3])
        (said,) = job.check().violations

        assert said.invariant == "I2"
        assert said.subject.startswith("sink told, the row of epoch ")
        assert said.found.startswith("is there 2 times, and was committed once: {'user': 'u")


def test_a_message_that_nobody_committed_is_named(tmp_path: Path, kafka_broker: Cluster) -> None:
    """Kafka lets anybody write; what is in it is shown."""
    for kind, found in (
        ("named", "is there, and does not say where it comes from"),
        ("nameless", "is there, and nobody committed it"),
    ):
        (tmp_path / kind).mkdir()
        job = told(tmp_path / kind, kafka_broker, **KAFKA[kind])
        kafka_broker.write(job.sink.topic, [b'{"user":"mallory"}'], keys=[b"mallory"])
        (said,) = job.check().violations

        assert (said.invariant, said.subject) == ("I8", "sink told, a row,")
        assert said.found.startswith(f"{found}: in the sink {{'key': b'mallory'")


def test_a_message_that_is_lost_is_named(tmp_path: Path, kafka_broker: Cluster) -> None:
    """Nobody can delete one; but a topic can be made anew with one less."""
    for kind in ("named", "nameless"):
        (tmp_path / kind).mkdir()
        job = told(tmp_path / kind, kafka_broker, **KAFKA[kind])
        job.write(*job.anew()[1:])
        (said,) = job.check().violations

        assert said.invariant == "I4"
        assert said.found.startswith("is missing: {'user': 'u")


def test_a_message_that_was_altered_is_named(tmp_path: Path, kafka_broker: Cluster) -> None:
    """By what it is and what it was; without a name, it is one that is lost and one of nobody."""
    for kind, found in (
        ("named", {"is there with other values"}),
        ("nameless", {"is missing", "is there, and nobody committed it"}),
    ):
        (tmp_path / kind).mkdir()
        job = told(tmp_path / kind, kafka_broker, **KAFKA[kind])
        first, *rest = job.anew()
        job.write(*rest)
        job.write(first, value=b'{"user":"u1","n":4711}')
        said = job.check().violations

        assert {each.found.partition(":")[0] for each in said} == found
        assert any("4711" in each.found for each in said)


def test_a_topic_that_retention_was_at_is_not_blamed(tmp_path: Path, kafka_broker: Cluster) -> None:
    """What it has removed cannot be told from what was lost; what is too much can."""
    job = told(tmp_path, kafka_broker)
    extra = job.messages()[-1]
    kafka_broker.delete_records(job.sink.topic, 2, extra.partition() or 0)
    found = job.scene.look()

    assert (found.verdict, wrong(found)) == (Verdict.UNKNOWN, [])
    assert unknown(found)[0].endswith("is missing: its retention has removed messages")
    job.write(extra)
    assert "is there 2 times" in wrong(job.scene.look())[0]


def test_a_compacted_topic_of_kafka_is_not_blamed(tmp_path: Path, kafka_broker: Cluster) -> None:
    """As long as all is there, it is; then nobody can tell any more."""
    settings = {"min_cleanable_dirty_ratio": 0.001, "max_compaction_lag_ms": 1, "segment_ms": 100}
    topic = kafka_broker.topic(partitions=2, cleanup_policy="compact", **settings)
    job = told(tmp_path, kafka_broker, topic, deletes="gone")
    for _ in until("the broker has compacted the topic"):
        job.scene.epochs(1, rows=ROWS)  # a segment ends only when something comes
        if len(job.messages()) < job.scene.clicks:
            break
    found = job.scene.look()

    assert (found.verdict, wrong(found)) == (Verdict.UNKNOWN, [])
    assert unknown(found)[0].endswith("is missing: the topic is compacted")


def test_a_topic_of_kafka_that_two_sinks_write_to(tmp_path: Path, kafka_broker: Cluster) -> None:
    """A message too many may be the other's; one too few is nobody else's."""
    topic = kafka_broker.topic(partitions=2)
    given = {"key_column": "user", "transaction_prefix": new_prefix(), "provenance": True}
    both = [ps.KafkaSink(name, kafka_broker.bootstrap, topic, **given) for name in ("one", "two")]
    scene = ran(tmp_path, *both)
    found = scene.look()

    assert (found.verdict, wrong(found)) == (Verdict.UNKNOWN, [])


def test_a_topic_whose_cursors_kafka_has_forgotten_is_unknown(
    tmp_path: Path, kafka_broker: Cluster
) -> None:
    """Its messages are not those of nobody."""
    job = told(tmp_path, kafka_broker)
    groups = [f"{job.sink.transaction_prefix}/counts/told/{shard}" for shard in range(2)]
    for each in kafka_broker.admin.delete_consumer_groups(groups).values():
        each.result()
    found = job.scene.look()

    assert (found.verdict, wrong(found)) == (Verdict.UNKNOWN, [])
    assert "Kafka has no cursor of it any more" in unknown(found)[0]


@pytest.mark.parametrize("kind", ["named", "nameless"])
def test_a_job_that_writes_to_kafka_meanwhile(
    tmp_path: Path, kafka_broker: Cluster, kind: str
) -> None:
    """Epochs come while somebody looks, again and again: none is missed, none is too many."""
    job = told(tmp_path, kafka_broker, **KAFKA[kind])
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(job.scene.epochs, 12)
        looks = []
        while not going.done():
            looks.append(job.scene.look())
        going.result()
    looks.append(job.scene.look())

    assert [wrong(found) for found in looks] == [[]] * len(looks)
    assert all("behind HEAD" in said for found in looks for said in unknown(found))
    assert len({found.sinks["told"].upto for found in looks if "told" in found.sinks}) > 1
    assert_valid(looks[-1])


WRITES = 'counts.write(ps.KafkaSink("told", "BROKERS", "TOPIC", key_column="user", create=True))\n'


def test_the_command_calls_a_job_that_writes_to_kafka_valid(
    tmp_path: Path, kafka_broker: Cluster
) -> None:
    """As a person asks: with the job's file. One message more, and it is not."""
    topic, file = f"t-{SystemChance().unique()[:12]}", tmp_path / "job.py"
    places = {"LOG": str(tmp_path / "clicks"), "BROKERS": kafka_broker.bootstrap, "TOPIC": topic}
    text = JOB_FILE + WRITES
    for name, place in places.items():
        text = text.replace(name, place)
    file.write_text(text)
    scene = Scene(tmp_path, lambda log: load_job(str(file)))
    scene.epochs(3)
    asked = ["audit", scene.local.url, "--job", str(file)]
    done = CliRunner().invoke(app, asked)

    assert done.exit_code == 0, done.output
    assert "valid   sink told: " in done.stdout
    kafka_broker.write(topic, [b"{}"], keys=[b"mallory"])
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 1, done.output
    assert "is there, and nobody committed it" in done.stdout.replace("\n", " ")
