"""Reading a topic of Kafka back: which messages are shown, up to where, and what they look like."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from threading import Lock
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from penstock.chaos.tcp_proxy import TcpProxy
from penstock.checkpoint import MemoryStore
from penstock.errors import Gone, Invalid, Unavailable
from penstock.sinks import ReadableSink
from penstock.sinks.kafka import KafkaSink
from penstock.sinks.kafka_holding import KafkaHolding
from penstock.sinks.kafka_writer import KafkaWriter
from penstock.sinks.protocol import PLACE
from penstock.sinks.staged import rows_of
from tests.support.kafka import CALL_S_MAX, PASSWORD, Cluster
from tests.support.kafka_case import QUICK, new_prefix, relayed, target
from tests.support.kafka_wire import Api, Before, Severed
from tests.support.sink_cases import JOB, PEOPLE, Row, apply, cursor, people, staged

LIST_OFFSETS = cast(Api, 2)
"""A request for where a partition begins or ends."""

HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
FULL = pa.schema(
    [
        ("user", pa.string()),
        ("value", pa.binary()),
        ("gone", pa.bool_()),
        ("heads", HEADERS),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
AT = datetime(2026, 3, 1, 9, 30, 15, 123999, UTC)
HEAD = [{"name": "a", "value": b"1"}, {"name": "a", "value": None}, {"name": "", "value": b""}]
MESSAGES: list[Row] = [
    {"user": "ada", "value": b"\x00\xff", "gone": False, "heads": HEAD, "at": AT},
    {"user": "", "value": b"", "gone": False, "heads": [], "at": AT},
    {"user": "bob", "value": None, "gone": True, "heads": None, "at": AT},
]
SHAPES: dict[str, dict[str, Any]] = {
    "no key": {"value": "json"},
    "a key": {"value": "json", "key_column": "user", "key_in_value": False},
    "tombstones": {"value": "bytes", "key_column": "user", "deletes": "gone"},
    "headers": {"value": "json", "headers": "heads"},
    "a time": {"value": "bytes", "key_column": "user", "deletes": "gone", "event_time": "at"},
    "all of it": {
        "value": "bytes", "key_column": "user", "deletes": "gone", "headers": "heads",
        "event_time": "at",
    },
}  # fmt: skip


@dataclass
class Shelf:
    """A topic, a root and names of its own."""

    cluster: Cluster
    topic: str
    prefix: str = field(default_factory=new_prefix)
    store: MemoryStore = field(default_factory=MemoryStore)

    def sink(self, **given: Any) -> KafkaSink:
        told = {"key_column": "user", "settings": QUICK, "transaction_prefix": self.prefix, **given}
        bootstrap = told.pop("bootstrap", self.cluster.bootstrap)
        return KafkaSink("people", bootstrap, told.pop("topic", self.topic), **told)

    def opened(self, columns: pa.Schema = PEOPLE, job: str = JOB, **given: Any) -> KafkaWriter:
        return self.sink(**given).open(target(columns, self.store, job))

    def look(self, columns: pa.Schema = PEOPLE, **given: Any) -> KafkaHolding:
        return self.sink(**given).read_back(target(columns, self.store))

    def group(self, shard: int = 0) -> str:
        return f"{self.prefix}/{JOB}/people/{shard}"


@pytest.fixture
def shelf(kafka_broker: Cluster) -> Shelf:
    relayed(kafka_broker)  # it starts the broker anew, once
    # Else a message whose time is long ago is removed as soon as it is there.
    return Shelf(kafka_broker, kafka_broker.topic(partitions=2, retention_ms=-1))


def shown(holding: KafkaHolding) -> list[Row]:
    """Every message, in an order of its own."""
    found = [row for batch in holding.batches() for row in batch.to_pylist()]
    return sorted(found, key=repr)


def wanted(holding: KafkaHolding, columns: pa.Schema, *epochs: list[Row]) -> list[Row]:
    """The messages that the rows of epochs become."""
    found: list[Row] = []
    for number, rows in enumerate(epochs, start=1):
        changes = holding.expected(rows_of(staged(number, rows, columns), columns))
        assert changes.gone.num_rows == 0
        own = changes.puts
        found += (own if holding.traits.has_places else own.drop_columns(list(PLACE))).to_pylist()
    return sorted(found, key=repr)


def assert_epochs(holding: KafkaHolding, epoch: int) -> None:
    """Cursor and messages are those of one moment: nothing is missing, nothing newer is there."""
    assert holding.read_cursor(0) == cursor(epoch)
    assert holding.traits.is_settled
    mine = wanted(holding, PEOPLE, *(people(n) for n in range(1, epoch + 1)))
    assert shown(holding) == mine


@pytest.mark.parametrize("provenance", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_message_is_shown_as_its_row_made_it(shelf: Shelf, shape: str, provenance: bool) -> None:
    """Keys, values, headers and times, also where they are empty or not there."""
    given = {"key_column": (), **SHAPES[shape], "provenance": provenance}
    rows = MESSAGES if "deletes" in given else [{**row, "value": b"x"} for row in MESSAGES]
    shelf.opened(FULL, **given).apply(apply(1, rows, columns=FULL))
    holding = shelf.look(FULL, **given)

    assert isinstance(shelf.sink(**given), ReadableSink)
    assert (holding.traits.has_places, holding.traits.left_out) == (provenance, ())
    assert shown(holding) == wanted(holding, FULL, rows)
    assert len(shown(holding)) == 3
    assert any(row["value"] is None for row in shown(holding)) == ("deletes" in given)


def test_a_tombstone_is_a_message_and_takes_none_away(shelf: Shelf) -> None:
    """A topic keeps all that was ever said of a key."""
    flagged = pa.schema([*PEOPLE, ("gone", pa.bool_())])
    rows = [{"user": "ada", "n": 1, "gone": False}, {"user": "ada", "n": 0, "gone": True}]
    shelf.opened(flagged, deletes="gone").apply(apply(1, rows, columns=flagged))
    holding = shelf.look(flagged, deletes="gone")

    assert holding.traits.key == ()
    assert shown(holding) == [
        {"key": b"ada", "value": None},
        {"key": b"ada", "value": b'{"user":"ada","n":1}'},
    ]


def test_messages_that_say_nothing_of_where_they_come_from(shelf: Shelf) -> None:
    """No headers, others, or some that only look like ours."""
    shelf.opened(provenance=True).apply(apply(1, people(1, 1)))
    told = [("penstock.epoch", b"1"), ("penstock.partition", b"0"), ("penstock.sequence", b"5")]
    said: list[Any] = [
        None, [], told[:2], told[::-1], [*told, ("more", b"")], [*told[:2], (told[2][0], b"x")],
        [*told[:2], (told[2][0], None)], [(told[0][0], b"9" * 19), *told[1:]], [("x", b"y"), *told],
    ]  # fmt: skip
    producer = shelf.cluster.producer()
    for headers in said:
        producer.produce(shelf.topic, b"v", b"k", 0, headers=headers)
    assert producer.flush(CALL_S_MAX) == 0
    places = [tuple(row[name] for name in PLACE) for row in shown(shelf.look(provenance=True))]

    assert sorted(places, key=repr) == [
        (1, 0, 0), (1, 0, 5), *[(None, None, None)] * (len(said) - 1)
    ]  # fmt: skip


def test_a_time_that_nobody_gave_is_not_compared(shelf: Shelf) -> None:
    """It is when the message was sent: no row says when that was."""
    given = SHAPES["a time"]
    holding = shelf.look(FULL, **given)
    rows = rows_of(staged(1, [{**MESSAGES[0], "at": None}], FULL), FULL)

    with pytest.raises(Invalid, match="has rows without a time"):
        holding.expected(rows)


def test_the_time_of_a_broker_is_not_compared(shelf: Shelf) -> None:
    """In such a topic no message has the time that it was given."""
    topic = shelf.cluster.topic(partitions=2, message_timestamp_type="LogAppendTime")
    shelf = replace(shelf, topic=topic)
    given = SHAPES["a time"]
    shelf.opened(FULL, **given).apply(apply(1, MESSAGES, columns=FULL))
    holding = shelf.look(FULL, **given)

    assert holding.traits.left_out == ("time",)
    assert shown(holding) == wanted(holding, FULL, MESSAGES)


def test_a_topic_that_is_not_there_is_not_made(shelf: Shelf) -> None:
    """Nor is a group, by looking for its cursor."""
    with pytest.raises(Invalid, match="does not exist"):
        shelf.look(topic="nowhere", create=True)
    shelf.look()

    assert "nowhere" not in shelf.cluster.admin.list_topics(timeout=CALL_S_MAX).topics
    groups = shelf.cluster.admin.list_consumer_groups().result().valid
    assert not any(group.group_id.startswith(shelf.prefix) for group in groups)


def test_whoever_looks_shuts_nobody_out(shelf: Shelf) -> None:
    """The producer of a shard goes on as if nothing had been."""
    shelf.opened().apply(apply(1, people(1)))
    producer = shelf.cluster.producer(transactional_id=shelf.group())
    producer.init_transactions(CALL_S_MAX)
    assert_epochs(shelf.look(), 1)

    producer.begin_transaction()
    producer.produce(shelf.topic, b"v", b"k")
    producer.commit_transaction(CALL_S_MAX)


@dataclass
class Going:
    """A leader that writes its next epoch whenever it is asked to."""

    writer: KafkaWriter
    epoch: int = 0
    lock: Lock = field(default_factory=Lock)

    def on(self) -> None:
        with self.lock:
            self.epoch += 1
            self.writer.apply(apply(self.epoch, people(self.epoch)))


@pytest.fixture
def line(shelf: Shelf) -> Iterator[TcpProxy]:
    """A line on which something can happen."""
    with TcpProxy(relayed(shelf.cluster).listener) as proxy:
        yield proxy


def through(shelf: Shelf, line: TcpProxy) -> str:
    return relayed(shelf.cluster).through(line)


@pytest.mark.parametrize("number", range(1, 8))
@pytest.mark.parametrize("api", [Api.OFFSET_FETCH, LIST_OFFSETS], ids=["cursor", "end"])
def test_an_epoch_that_comes_while_somebody_looks(
    shelf: Shelf, line: TcpProxy, api: Api, number: int
) -> None:
    """Before whichever cursor or end is read: what is shown is what the cursors say, no more and no
    less."""
    going = Going(shelf.opened())
    going.on()
    line.arm(Before(api, going.on, number))
    holding = shelf.look(bootstrap=through(shelf, line))
    line.arm(None)
    taken, latest = holding.read_cursor(0), going.epoch
    going.on()

    assert taken in (cursor(latest), cursor(1))
    assert_epochs(holding, latest if taken == cursor(latest) else 1)


def test_a_topic_that_never_rests_is_not_looked_at(
    shelf: Shelf, line: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless its messages say of which epoch they are: then the newer ones can be told."""
    monkeypatch.setattr("penstock.sinks.kafka_holding.LOOKS_MAX", 3)
    going = Going(shelf.opened(provenance=True))
    going.on()
    line.arm(Before(LIST_OFFSETS, going.on, None))
    with pytest.raises(Unavailable, match="changes faster than it can be looked at"):
        shelf.look(bootstrap=through(shelf, line))
    holding = shelf.look(bootstrap=through(shelf, line), provenance=True)
    line.arm(None)

    taken = holding.read_cursor(0)
    assert taken is not None
    assert not holding.traits.is_settled
    mine = [row for row in shown(holding) if row["_epoch"] <= taken.epoch]
    assert mine == wanted(holding, PEOPLE, *(people(n) for n in range(1, taken.epoch + 1)))
    assert len(mine) < len(shown(holding))


def test_what_was_taken_back_is_not_shown(shelf: Shelf) -> None:
    """Messages of a transaction that was aborted are there, and are nobody's."""
    shelf.opened().apply(apply(1, people(1)))
    producer = shelf.cluster.producer(transactional_id=f"{shelf.prefix}/other")
    producer.init_transactions(CALL_S_MAX)
    producer.begin_transaction()
    producer.produce(shelf.topic, b"v", b"k")
    assert producer.flush(CALL_S_MAX) == 0
    with pytest.raises(Unavailable, match="has a transaction open in partition"):
        shelf.look(timeout_s=1)
    producer.abort_transaction(CALL_S_MAX)

    assert_epochs(shelf.look(), 1)


def test_a_cursor_that_is_hidden_is_waited_for_and_not_uncovered(
    shelf: Shelf, line: TcpProxy
) -> None:
    """Whose transaction it is has to end it: whoever looks twice is told the same."""
    writer = shelf.opened(bootstrap=through(shelf, line), timeout_s=2)
    writer.apply(apply(1, people(1)))
    line.arm(Severed(Api.END_TXN))
    with pytest.raises(Unavailable):
        writer.apply(apply(2, people(2)))
    for _ in range(2):
        with pytest.raises(Unavailable, match="has its cursor hidden by a transaction"):
            shelf.look(timeout_s=2)

    shelf.opened().apply(apply(2, people(2), token=2))
    assert_epochs(shelf.look(), 2)


def test_a_cursor_that_kafka_has_forgotten_is_none_at_all(shelf: Shelf) -> None:
    """Else every message would be one that nobody committed."""
    shelf.opened().apply(apply(1, people(1)))
    shelf.cluster.admin.delete_consumer_groups([shelf.group()])[shelf.group()].result()

    with pytest.raises(Invalid, match="Kafka has no cursor of it any more"):
        shelf.look()


def test_what_retention_has_removed_is_forgotten(shelf: Shelf) -> None:
    """Before somebody looks, and while they do."""
    shelf.opened().apply(apply(1, people(1, 40)))
    before = shelf.look()
    assert before.traits.forgets == ""
    shelf.cluster.delete_records(shelf.topic, 1)

    with pytest.raises(Gone):
        shown(before)
    assert shelf.look().traits.forgets == "its retention has removed messages"
    assert len(shown(shelf.look())) == 39


def test_a_compacted_topic_forgets(shelf: Shelf) -> None:
    """Sooner or later."""
    topic = shelf.cluster.topic(partitions=2, cleanup_policy="compact,delete")

    assert shelf.look(topic=topic).traits.forgets == "the topic is compacted"


def test_a_topic_whose_settings_are_not_told_may_forget(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not known is held against nobody."""
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    rule = AclBinding(
        ResourceType.TOPIC, shelf.topic, ResourcePatternType.LITERAL, "User:*", "*",
        AclOperation.DESCRIBE_CONFIGS, AclPermissionType.DENY,
    )  # fmt: skip
    allowed = [
        AclBinding(
            ResourceType.TOPIC, shelf.topic, ResourcePatternType.LITERAL, "User:*", "*",
            operation, AclPermissionType.ALLOW,
        )
        for operation in (AclOperation.READ, AclOperation.DESCRIBE)
    ]  # fmt: skip
    for each in shelf.cluster.admin.create_acls([rule, *allowed]).values():
        each.result()
    shelf.opened().apply(apply(1, people(1)))
    given = {"settings": shelf.cluster.secured_settings()}
    holding = shelf.look(bootstrap=shelf.cluster.secured, **given)

    assert holding.traits.forgets == "whether the topic is compacted is not told to this user"
    assert_epochs(holding, 1)


def test_another_sink_that_writes_there_is_known_by_its_cursor(shelf: Shelf) -> None:
    """Of whatever job and prefix; a group that is only called alike is none."""
    shelf.opened().apply(apply(1, people(1)))
    with closing(shelf.cluster.consumer(group_id="some/body/else/0")) as consumer:
        consumer.commit(offsets=[TopicPartition(shelf.topic, 0, 3)], asynchronous=False)
    assert not shelf.look().traits.is_shared
    elsewhere = shelf.cluster.topic(partitions=2)
    shelf.opened(job="another", topic=elsewhere).apply(apply(1, people(8)))
    assert not shelf.look().traits.is_shared
    other = {"transaction_prefix": new_prefix()}
    shelf.opened(job="another", **other).apply(apply(1, people(8)))
    traits = shelf.look().traits

    assert (traits.is_shared, traits.others) == (True, "other sinks write to the topic")
