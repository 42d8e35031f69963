"""A Kafka sink on a broker that is well: what is in the topic, and what is said beforehand."""

import json
import pickle  # noqa: TID251 - Spark pickles sinks on their way to its workers
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from penstock.checkpoint import MemoryStore
from penstock.errors import Fenced, Invalid
from penstock.ids import Token
from penstock.sinks import AppliedSink, Guarantee
from penstock.sinks.kafka import KafkaSink
from penstock.sinks.kafka_writer import KafkaWriter
from tests.support.kafka import Cluster
from tests.support.kafka_case import new_prefix, row_of, rows_in, target
from tests.support.sink_cases import JOB, PEOPLE, apply, cursor, in_order, people

HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no broker": ({"bootstrap": " "}, "names no broker"),
    "no topic": ({"topic": ""}, "has the topic '', which Kafka cannot have"),
    "a topic of slashes": ({"topic": "a/b"}, "has the topic 'a/b'"),
    "a topic of dots": ({"topic": ".."}, "has the topic '..'"),
    "a topic of lines": ({"topic": "a\n"}, "has the topic 'a\\n'"),
    "a topic too long": ({"topic": "a" * 250}, "has the topic 'aaa"),
    "an unknown format": ({"value": "xml"}, "has value='xml'"),
    "an unknown format of keys": ({"key": "xml", "key_column": "user"}, "has key='xml'"),
    "a key without a column": ({"key": "string"}, "has key='string' and no key_column"),
    "a text of two columns": (
        {"key": "string", "key_column": ["a", "b"]}, "has key='string' of 2 columns",
    ),
    "a column twice": ({"key_column": "a", "deletes": "a"}, "has a column with two meanings"),
    "an unknown partitioner": ({"partitioner": "mine"}, "has partitioner='mine'"),
    "an unknown compression": ({"compression": "zip"}, "has compression='zip'"),
    "no patience": ({"timeout_s": 0}, "has timeout_s=0"),
    "no partitions": ({"partitions": 0}, "has partitions=0"),
    "a prefix of spaces": ({"transaction_prefix": "a b"}, "has transaction_prefix='a b'"),
    "a setting that is no text": (
        {"settings": {"error_cb": print}}, "has settings with 'error_cb', which is a builtin",
    ),
    "a limit that is no number": (
        {"settings": {"message.max.bytes": "${X}"}}, "has the setting 'message.max.bytes'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_mistake_is_told_when_it_is_written(case: str) -> None:
    """Not when the job has started, and not by a broker."""
    given, found = REFUSED[case]

    with pytest.raises(Invalid) as caught:
        KafkaSink(**{"name": "people", "bootstrap": "127.0.0.1:1", "topic": "people", **given})

    assert caught.value.found.startswith(found)


PROMISED = {
    "transactional.id": "mine",
    "enable.idempotence": False,
    "acks": 1,
    "request.required.acks": "0",
    "isolation.level": "read_uncommitted",
    "group.id": "mine",
    "bootstrap.servers": "elsewhere:9092",
    "compression.type": "zstd",
    "partitioner": "random",
    "queue.buffering.max.messages": 1,
    "log_level": 0,
}


@pytest.mark.parametrize("name", PROMISED)
def test_a_setting_that_would_break_the_promise_is_refused(name: str) -> None:
    """Obeyed it would lose or double rows; overruled in silence it would be a riddle."""
    with pytest.raises(Invalid) as caught:
        KafkaSink("people", "127.0.0.1:1", "people", settings={name: PROMISED[name]})

    assert caught.value.found == f"has the setting {name!r}"


def test_a_setting_that_says_what_is_true_anyway_is_taken() -> None:
    """Whoever copies the settings of a careful producer need not weed them."""
    settings = {"acks": "all", "enable.idempotence": True, "linger.ms": 1.5}

    assert KafkaSink("people", "127.0.0.1:1", "people", settings=settings).settings == settings


@pytest.mark.parametrize(
    "name", ["sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.client.secret"]
)
def test_a_secret_that_is_written_out_is_refused_and_not_repeated(name: str) -> None:
    """It would be in every task that Spark sends, and in every dump of one."""
    with pytest.raises(Invalid) as caught:
        KafkaSink("people", "127.0.0.1:1", "people", settings={name: "hunter2"})

    assert caught.value.found == f"has {name!r} written out in its settings"
    assert "hunter2" not in str(caught.value)


def test_a_description_can_be_sent_and_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes to every worker, and into messages."""
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    settings = {"sasl.password": "${KAFKA_PASSWORD}", "sasl.username": "etl"}
    sink = KafkaSink("people", "a:1", "people", key_column="user", settings=settings)
    sent = pickle.dumps(sink)

    assert pickle.loads(sent) == sink
    assert isinstance(sink, AppliedSink)
    assert (sink.guarantee, sink.shards(7)) == (Guarantee.EXACTLY_ONCE, 7)
    assert b"hunter2" not in sent
    assert "settings" not in repr(sink)


def test_without_the_client_it_says_what_to_install() -> None:
    """The client is an extra; everything before a connection goes without it."""
    code = (
        "import sys; sys.modules['confluent_kafka'] = None\n"
        "import pyarrow as pa\n"
        "from penstock.checkpoint import MemoryStore\n"
        "from penstock.errors import Invalid\n"
        "from penstock.sinks import KafkaSink, Target\n"
        "columns = pa.schema([('n', pa.int64())])\n"
        "sink = KafkaSink('people', 'a:1', 'people')\n"
        "sink.check(columns.empty_table())\n"
        "try:\n"
        "    sink.open(Target(job='j', columns=columns, partitions=1, store=MemoryStore()))\n"
        "except Invalid as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == (
        "sink people needs the package confluent-kafka, which is not installed: "
        "pip install 'penstock[kafka]'.\n"
    )


def opened(cluster: Cluster, topic: str, **given: Any) -> KafkaWriter:
    """A sink of people, in a topic of the test's own."""
    columns = given.pop("columns", PEOPLE)
    store = given.pop("store", None)
    sink = KafkaSink("people", cluster.bootstrap, topic, **given)
    return sink.open(target(columns, store))


def test_a_message_is_what_its_row_says(kafka_broker: Cluster) -> None:
    """Key, value, headers, time and tombstones, as another client sees them."""
    columns = pa.schema(
        [*PEOPLE, ("gone", pa.bool_()), ("at", pa.timestamp("ms", tz="UTC")), ("heads", HEADERS)]
    )
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    row = {"user": "ada", "n": 1, "gone": False, "at": at}
    heads = [{"name": "trace", "value": b"\x00\xff"}, {"name": "none", "value": None}]
    topic = kafka_broker.topic(retention_ms=-1)  # or the broker takes what is of last spring away
    writer = opened(
        kafka_broker, topic, columns=columns, key_column="user", deletes="gone", headers="heads",
        event_time="at", provenance=True, transaction_prefix=new_prefix(),
    )  # fmt: skip
    writer.apply(apply(1, [{**row, "heads": heads}, {**row, "gone": True}], columns=columns))
    first, second = kafka_broker.read(topic)

    assert (first.key(), first.timestamp()[1]) == (b"ada", 1_772_366_400_000)
    assert json.loads(first.value() or b"") == {"user": "ada", "n": 1, "at": "2026-03-01T12:00:00Z"}
    assert first.headers() == [
        ("trace", b"\x00\xff"), ("none", None),
        ("penstock.epoch", b"1"), ("penstock.partition", b"0"), ("penstock.sequence", b"0"),
    ]  # fmt: skip
    assert (second.key(), second.value(), len(second.headers() or ())) == (b"ada", None, 3)


HOSTILE = ["", "\x00", "\n", "김민수 🚀", "\u2028", '"', "x" * 100_000, "/", "${HOME}", "-1"]


def test_hostile_keys_and_values_come_back(kafka_broker: Cluster) -> None:
    """Nothing in a row is taken for anything else, and equal keys go to one partition."""
    topic = kafka_broker.topic("-.hostile_Topic.." + new_prefix(), partitions=3)
    rows = [{"user": text, "n": n} for n, text in enumerate(HOSTILE)]
    writer = opened(kafka_broker, topic, key_column="user", transaction_prefix=new_prefix())
    for epoch in (1, 2):
        writer.apply(apply(epoch, rows))
    found = kafka_broker.read(topic)
    again = KafkaSink("people", kafka_broker.bootstrap, topic, key_column="user")

    assert in_order(rows_in(found, PEOPLE)) == in_order(rows + rows)
    assert {message.key() for message in found} == {text.encode() for text in HOSTILE}
    places = {(message.key(), message.partition()) for message in found}
    assert len(places) == len(HOSTILE)
    assert again.open(target()).read_cursor(0) is None  # its prefix is another


def test_keys_go_where_java_puts_them(kafka_broker: Cluster) -> None:
    """Murmur2 of the key, so that other producers of the topic agree."""
    topic = kafka_broker.topic(partitions=7)
    opened(kafka_broker, topic, key_column="user", transaction_prefix=new_prefix()).apply(
        apply(1, people(1, 50))
    )
    plain = kafka_broker.topic(partitions=7)
    producer = kafka_broker.producer(partitioner="murmur2")
    for row in people(1, 50):
        producer.produce(plain, b"", row["user"])
    producer.flush()

    assert {(m.key(), m.partition()) for m in kafka_broker.read(topic)} == {
        (m.key(), m.partition()) for m in kafka_broker.read(plain)
    }


def test_rows_keep_their_order(kafka_broker: Cluster) -> None:
    """Within a partition, over chunks and epochs."""
    topic = kafka_broker.topic()
    writer = opened(kafka_broker, topic, transaction_prefix=new_prefix())
    count = 15_000
    for epoch in (1, 2):
        rows = [{"user": str(epoch), "n": epoch * count + n} for n in range(count)]
        writer.apply(apply(epoch, rows))
    found = [row_of(json.loads(m.value() or b""), PEOPLE)["n"] for m in kafka_broker.read(topic)]

    assert found == list(range(count, 3 * count))


def test_a_topic_is_made_if_that_was_asked_for(kafka_broker: Cluster) -> None:
    """With as many partitions as were said, or as the job has."""
    said, left = f"made-{new_prefix()}", f"made-{new_prefix()}"
    opened(kafka_broker, said, create=True, partitions=3)
    opened(kafka_broker, said, create=True, partitions=2)  # it may have more
    opened(kafka_broker, left, create=True)

    assert [len(kafka_broker.leaders(topic)) for topic in (said, left)] == [3, 2]
    with pytest.raises(Invalid, match="has 2 partitions, and 3 are needed"):
        opened(kafka_broker, left, create=True, partitions=3)


TOPICS: dict[str, tuple[dict[str, Any], str]] = {
    "compacted without a key": (
        {"cleanup_policy": "compact"}, "is compacted, and takes no message without a key",
    ),
    "of small messages": (
        {"max_message_bytes": 1000},
        "takes messages of 1,000 bytes, and the sink may send 1,000,000",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TOPICS)
def test_a_topic_that_would_refuse_messages_is_refused(case: str, kafka_broker: Cluster) -> None:
    """When the sink is opened: after an epoch is decided it would be too late."""
    config, found = TOPICS[case]
    topic = kafka_broker.topic(**config)

    with pytest.raises(Invalid) as caught:
        opened(kafka_broker, topic)

    assert caught.value.found == found
    assert str(caught.value).startswith(f"sink people, topic {topic} of Kafka at 127.0.0.1:")


def test_looking_at_a_cursor_disturbs_nobody(kafka_broker: Cluster) -> None:
    """`penstock sinks list` runs beside the job."""
    topic, given = kafka_broker.topic(), {"transaction_prefix": new_prefix()}
    writer = opened(kafka_broker, topic, **given)
    writer.apply(apply(1, people(1)))
    shard = writer._shards[0]
    assert opened(kafka_broker, topic, **given).read_cursor(0) == cursor(1)
    writer.apply(apply(2, people(2)))

    assert writer._shards[0] is shard
    assert opened(kafka_broker, topic, **given).read_cursor(0) == cursor(2)


def test_another_topic_is_another_cursor(kafka_broker: Cluster) -> None:
    """A new target begins anew, though job, sink and transactional id are the same."""
    store, prefix = MemoryStore(), new_prefix()
    first, second = kafka_broker.topic(), kafka_broker.topic()
    opened(kafka_broker, first, store=store, transaction_prefix=prefix).apply(apply(1, people(1)))
    other = opened(kafka_broker, second, store=store, transaction_prefix=prefix)

    assert other.read_cursor(0) is None
    other.apply(apply(1, people(1)))
    assert [len(kafka_broker.read(topic)) for topic in (first, second)] == [3, 3]


def test_a_claim_fences_too(kafka_broker: Cluster) -> None:
    """A shard that has heard of a later leader and taken nothing yet refuses an older one."""
    topic, given = kafka_broker.topic(), {"transaction_prefix": new_prefix()}
    new, old = (opened(kafka_broker, topic, **given) for _ in range(2))
    new._guarded(0, lambda: [new._begun(0, Token(2))])  # type: ignore[arg-type, return-value]

    assert new.read_cursor(0) is None
    with pytest.raises(Fenced) as caught:
        old.apply(apply(1, people(1), token=1))
    assert (caught.value.held, caught.value.newest) == (1, 2)
    new.apply(apply(1, people(1), token=2))
    assert len(kafka_broker.read(topic)) == 3


def test_a_cursor_says_what_it_is_to_whoever_looks(kafka_broker: Cluster) -> None:
    """The offset is the epoch, so the tools of Kafka show how far a job is."""
    topic, prefix = kafka_broker.topic(), new_prefix()
    opened(kafka_broker, topic, transaction_prefix=prefix).apply(apply(1, people(1), token=7))
    [(offset, note)] = kafka_broker.committed(f"{prefix}/{JOB}/people/0", topic).values()

    assert (offset, note) == (1, f"1 7 1 1 {cursor(1).mark:x}")
