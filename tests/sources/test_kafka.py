"""What is in a message, and where it is: columns, keys, headers, times, partitions, topics."""

import pickle  # noqa: TID251 - Spark pickles sources on their way to its workers
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from penstock.clock import SystemChance
from penstock.errors import Gone, Invalid
from penstock.sources import META_NAME, Limits, Range, Span, lag, start_offsets
from penstock.sources.kafka import DroppedMessage, Kafka
from tests.support.kafka import Cluster

MADE_MS = 1_700_000_000_000
MADE = datetime.fromtimestamp(MADE_MS / 1000, UTC)


def rows(source: Kafka, partition: str = "0", start: int = 0, stop: int | None = None) -> list[Any]:
    """The rows of a range, without what is known of them."""
    found = with_meta(source, partition, start, stop)
    return [{name: row[name] for name in row if name != META_NAME} for row in found]


def with_meta(
    source: Kafka, partition: str = "0", start: int = 0, stop: int | None = None
) -> list[Any]:
    stop = source.spans()[partition].latest if stop is None else stop
    batches = source.read(partition, Range(start=start, stop=stop))
    return [row for batch in batches for row in batch.to_pylist()]


def test_bytes_are_left_as_they_are(kafka_broker: Cluster) -> None:
    """Whoever decodes for himself gets what was sent, empty and missing told apart."""
    topic = kafka_broker.topic()
    kafka_broker.write(topic, [b"\xff\x00", b"", None], keys=[b"k", None, b""])
    source = Kafka(kafka_broker.bootstrap, topic, key="bytes")

    assert source.schema() == pa.schema([("key", pa.binary()), ("value", pa.binary())])
    assert rows(source) == [
        {"key": b"k", "value": b"\xff\x00"},
        {"key": None, "value": b""},
        {"key": b"", "value": None},
    ]


def test_text_is_checked(kafka_broker: Cluster) -> None:
    """A column of text that is none would break whoever reads it next."""
    topic = kafka_broker.topic()
    kafka_broker.write(topic, ["grün".encode(), b"\xff", None], keys=[b"a", b"b", b"c"])
    source = Kafka(kafka_broker.bootstrap, topic, value="string", key="string")

    assert rows(source, stop=1) == [{"key": "a", "value": "grün"}]
    with pytest.raises(Invalid) as caught:
        rows(source)

    assert str(caught.value) == (
        f"{source.name}, partition 0 has a message at offset 1 that cannot be decoded (Invalid "
        "UTF8 payload): decode it otherwise, or leave such messages out by "
        "on_undecodable='quarantine'."
    )


def test_json_has_columns(kafka_broker: Cluster) -> None:
    """Fields by name, on one line or on several; what is not declared is ignored."""
    topic = kafka_broker.topic()
    bodies = [
        b'{"user": "ada", "spent": 1.5, "tags": ["a", "b"], "more": {}}',
        b'{\n "user": "bob",\r\n "at": "2026-01-01T00:00:00Z"\n}',
        b" {} ",
    ]
    kafka_broker.write(topic, [*bodies, None])
    columns = "user string, spent double, tags array<string>, at timestamp"
    source = Kafka(kafka_broker.bootstrap, topic, value="json", columns=columns, deletes="gone")
    nothing = {"user": None, "spent": None, "tags": None, "at": None, "gone": False}

    assert rows(source) == [
        {**nothing, "user": "ada", "spent": 1.5, "tags": ["a", "b"]},
        {**nothing, "user": "bob", "at": datetime(2026, 1, 1, tzinfo=UTC)},
        nothing,
        {**nothing, "gone": True},
    ]


def test_a_json_key_is_a_struct(kafka_broker: Cluster) -> None:
    """A key of several parts stays one thing, beside the columns of the value."""
    topic = kafka_broker.topic()
    kafka_broker.write(topic, [b'{"n": 1}', b'{"n": 2}'], keys=[b'{"shop": "x", "user": 7}', None])
    source = Kafka(
        kafka_broker.bootstrap,
        topic,
        value="json",
        columns="n long",
        key="json",
        key_columns="shop string, user long",
    )

    assert rows(source) == [
        {"key": {"shop": "x", "user": 7}, "n": 1},
        {"key": None, "n": 2},
    ]


UNDECODABLE = {
    "no object": (b"[1]", "it is not an object in braces"),
    "two objects": (b'{"n": 1}{"n": 2}', "it is not exactly one object"),
    "half an object": (b'{"n": 1', "it is not an object in braces"),
    "a line end in a text": (
        b'{"n": 1, "s": "a\nb"}',
        "JSON parse error: Invalid encoding in string.",
    ),
    "another type": (b'{"n": "one"}', "JSON parse error: Column(/n) changed from number to string"),
    "a missing value": (b'{"s": "x"}', "column 'n' is null, and may not be"),
    "no text": (b'{"n": 1, "s": "\xff"}', "it is not UTF-8"),
    "a tombstone": (None, "it is a tombstone, and column 'n' may not be null"),
}


@pytest.mark.parametrize("case", UNDECODABLE)
def test_what_cannot_be_decoded_stops_the_reading_or_is_left_out(
    kafka_broker: Cluster, case: str
) -> None:
    """A bad message takes no good one with it, and can be looked at afterwards."""
    body, reason = UNDECODABLE[case]
    topic = kafka_broker.topic()
    bodies = [b'{"n": 1}', b'{"n": 2}', body, b'{"n": 4}', body]
    kafka_broker.write(topic, bodies, keys=[b"k%d" % number for number in range(len(bodies))])
    columns = "n long not null, s string"
    strict = Kafka(kafka_broker.bootstrap, topic, value="json", columns=columns)
    lenient = Kafka(
        kafka_broker.bootstrap, topic, value="json", columns=columns, on_undecodable="quarantine"
    )
    whole = Range(start=0, stop=5)

    with pytest.raises(Invalid) as caught:
        rows(strict)
    assert f"at offset 2 that cannot be decoded ({reason})" in str(caught.value)
    assert [row["n"] for row in rows(lenient)] == [1, 2, 4]
    assert [row["n"] for row in rows(lenient, start=2, stop=4)] == [4]
    assert list(lenient.dropped("0", whole)) == [
        DroppedMessage(2, reason, b"k2", body),
        DroppedMessage(4, reason, b"k4", body),
    ]
    assert list(strict.dropped("0", whole)) == list(lenient.dropped("0", whole))


def test_headers_keep_their_order_and_their_doubles(kafka_broker: Cluster) -> None:
    """They are a list in Kafka, and people rely on it."""
    topic = kafka_broker.topic()
    producer = kafka_broker.producer()
    producer.produce(topic, b"x", headers=[("trace", b"1"), ("trace", b"\xff"), ("none", None)])
    producer.produce(topic, b"y")
    assert producer.flush() == 0
    source = Kafka(kafka_broker.bootstrap, topic, headers=True)

    assert [row["headers"] for row in rows(source)] == [
        [
            {"name": "trace", "value": b"1"},
            {"name": "trace", "value": b"\xff"},
            {"name": "none", "value": None},
        ],
        None,
    ]


def test_the_time_a_producer_gave_is_when_it_happened(kafka_broker: Cluster) -> None:
    """With CreateTime a message knows when it happened, and nothing else of the broker."""
    topic = kafka_broker.topic(retention_ms=-1)
    producer = kafka_broker.producer()
    for at_ms in (MADE_MS, 1):
        producer.produce(topic, b"x", timestamp=at_ms)
    assert producer.flush() == 0

    times = [row[META_NAME] for row in with_meta(Kafka(kafka_broker.bootstrap, topic))]

    first = datetime.fromtimestamp(0.001, UTC)
    assert [(each["event_time"], each["broker_time"]) for each in times] == [
        (MADE, MADE),
        (first, first),
    ]


def test_the_time_a_broker_gave_is_not_when_it_happened(kafka_broker: Cluster) -> None:
    """With LogAppendTime it is known when a message was taken in, and not when it was made."""
    topic = kafka_broker.topic(message_timestamp_type="LogAppendTime")
    producer = kafka_broker.producer()
    producer.produce(topic, b"x", timestamp=MADE_MS)
    assert producer.flush() == 0
    source = Kafka(kafka_broker.bootstrap, topic)

    [row] = with_meta(source)

    assert row[META_NAME]["event_time"] is None
    assert row[META_NAME]["broker_time"] > MADE
    at_ms = round(row[META_NAME]["broker_time"].timestamp() * 1000)
    assert [source.offsets_at(each) for each in (at_ms, at_ms + 1)] == [{"0": 0}, {"0": 1}]


def test_a_message_without_a_usable_time_has_none(kafka_broker: Cluster) -> None:
    """A clock gone wild somewhere must not stop everybody; no moment is made up for it."""
    topic = kafka_broker.topic(
        message_timestamp_after_max_ms=2**63 - 1, message_timestamp_before_max_ms=2**63 - 1
    )
    producer = kafka_broker.producer()
    last_ms = 253_402_300_799_999
    for at_ms in (last_ms, last_ms + 1, 2**62):
        producer.produce(topic, b"x", timestamp=at_ms)
    assert producer.flush() == 0

    times = [
        row[META_NAME]["broker_time"] for row in with_meta(Kafka(kafka_broker.bootstrap, topic))
    ]

    assert times == [datetime(9999, 12, 31, 23, 59, 59, 999000, UTC), None, None]


def test_several_topics_name_their_partitions(kafka_broker: Cluster) -> None:
    """Two topics have a partition 0 each, and a slip must not read the other one's."""
    mark = SystemChance().unique()[:8]
    many, few = kafka_broker.topic(f"{mark}-2", partitions=2), kafka_broker.topic(f"{mark}-1")
    kafka_broker.write(many, [b"a"], partition=1)
    kafka_broker.write(few, [b"b", b"c"])
    source = Kafka(kafka_broker.bootstrap, [many, few], value="string")

    assert source.spans() == {
        f"{many}/0": Span(0, 0),
        f"{many}/1": Span(0, 1),
        f"{few}/0": Span(0, 2),
    }
    assert list(source.spans()) == sorted(source.spans())
    assert rows(source, f"{many}/1") == [{"value": "a"}]
    assert rows(source, f"{few}/0", start=1) == [{"value": "c"}]
    assert source.plan({f"{few}/0": 1}, Limits()) == {
        f"{few}/0": Range(start=1, stop=2),
        f"{many}/1": Range(start=0, stop=1),
    }
    for wrong in ("0", few, f"{few}/1", f"{few}/00", f"other/{few}/0", "other/0", f"{few}/"):
        with pytest.raises(Invalid):
            rows(source, wrong, stop=1)


def test_topics_that_fit_the_pattern_are_read_as_they_come(kafka_broker: Cluster) -> None:
    """A tenant that is new needs no new job; Kafka's own topics are nobody's tenants."""
    mark = SystemChance().unique()[:8]
    source = Kafka(kafka_broker.bootstrap, pattern=rf"{mark}\.shop-\d+|__.*", value="string")
    assert source.spans() == {}
    assert source.plan({}, Limits()) == {}
    assert start_offsets(source, "latest") == {}

    first = kafka_broker.topic(f"{mark}.shop-1")
    kafka_broker.write(first, [b"a"])
    kafka_broker.topic(f"{mark}.shop-x")
    resume = {f"{first}/0": 1}
    assert source.plan({}, Limits()) == {f"{first}/0": Range(start=0, stop=1)}

    second = kafka_broker.topic(f"{mark}.shop-2")
    kafka_broker.write(second, [b"b"])

    assert source.plan(resume, Limits()) == {f"{second}/0": Range(start=0, stop=1)}
    assert rows(source, f"{second}/0") == [{"value": "b"}]
    assert lag(source, resume) == {f"{first}/0": 0, f"{second}/0": 1}


def test_a_new_partition_is_read_from_its_first_message(kafka_broker: Cluster) -> None:
    """What was sent there before anybody looked is not lost."""
    topic = kafka_broker.topic()
    kafka_broker.write(topic, [b"a", b"b"])
    source = Kafka(kafka_broker.bootstrap, topic, value="string")
    other = pickle.loads(pickle.dumps(source))
    assert rows(other) == [{"value": "a"}, {"value": "b"}]
    assert source.plan({"0": 2}, Limits()) == {}

    kafka_broker.add_partitions(topic, 2)
    kafka_broker.write(topic, [b"c"], partition=1)

    assert source.plan({"0": 2}, Limits()) == {"1": Range(start=0, stop=1)}
    assert rows(other, "1") == [{"value": "c"}]


def test_each_partition_can_have_a_limit_of_its_own(kafka_broker: Cluster) -> None:
    """One partition that is far behind does not take the whole epoch."""
    topic = kafka_broker.topic(partitions=2)
    kafka_broker.write(topic, [b"a"] * 9)
    kafka_broker.write(topic, [b"b"] * 2, partition=1)
    source = Kafka(kafka_broker.bootstrap, topic, partition_records_max=3)

    assert source.plan({}, Limits()) == {"0": Range(start=0, stop=3), "1": Range(start=0, stop=2)}
    assert source.plan({"0": 3, "1": 2}, Limits(records=2)) == {"0": Range(start=3, stop=5)}


def test_bytes_are_estimated_where_a_partition_goes_on(kafka_broker: Cluster) -> None:
    """A partition of large messages gets fewer of them into an epoch."""
    topic = kafka_broker.topic(partitions=2)
    kafka_broker.write(topic, [b"x" * 968] * 100)
    kafka_broker.write(topic, [b"x" * 68] * 100, partition=1)
    source = Kafka(kafka_broker.bootstrap, topic)

    assert source.plan({}, Limits(size_bytes=20_000)) == {
        "0": Range(start=0, stop=10),
        "1": Range(start=0, stop=100),
    }


def test_starts_are_found_by_time_and_by_offset(kafka_broker: Cluster) -> None:
    """However messages are out of order, no message as late as the moment lies before it."""
    topic = kafka_broker.topic(retention_ms=-1)
    producer = kafka_broker.producer(linger_ms=0)
    for at_ms in (5, 9, 7, 12, 8):
        producer.produce(topic, b"x", timestamp=MADE_MS + at_ms)
        assert producer.flush() == 0
    source = Kafka(kafka_broker.bootstrap, topic)

    found = {at: source.offsets_at(MADE_MS + at)["0"] for at in (0, 5, 6, 9, 10, 12, 13)}

    assert found == {0: 0, 5: 0, 6: 1, 9: 1, 10: 3, 12: 3, 13: 5}
    assert start_offsets(source, MADE) == {"0": 0}
    assert start_offsets(source, {"0": 4}) == {"0": 4}
    with pytest.raises(Invalid, match="ends at offset 5 and was asked for 6"):
        start_offsets(source, {"0": 6})


def test_what_retention_removed_is_told_and_never_skipped(kafka_broker: Cluster) -> None:
    """The broker would begin at the first message there is, and nobody would know."""
    topic = kafka_broker.topic()
    kafka_broker.write(topic, [b"a"] * 9)
    source = Kafka(kafka_broker.bootstrap, topic)
    assert source.plan({"0": 2}, Limits()) == {"0": Range(start=2, stop=9)}

    kafka_broker.delete_records(topic, 5)

    for attempt in (
        lambda: source.plan({"0": 2}, Limits()),
        lambda: rows(source, start=2, stop=9),
        lambda: rows(source, start=4, stop=5),
    ):
        with pytest.raises(Gone, match="begins at offset 5 now and was asked for"):
            attempt()
    assert len(rows(source, start=5)) == 4
    assert source.offsets_at(0) == {"0": 5}


def test_messages_that_come_meanwhile_are_not_taken_into_a_range(kafka_broker: Cluster) -> None:
    """A range is what was planned, however much has come since, and the next one has the rest."""
    topic = kafka_broker.topic()
    kafka_broker.write(topic, [b"%d" % number for number in range(50)])
    source = Kafka(kafka_broker.bootstrap, topic, value="string")
    wanted = source.plan({}, Limits(records=7))["0"]
    kafka_broker.write(topic, [b"late"])

    assert [row["value"] for row in rows(source, stop=wanted.stop)] == list("0123456")
    assert [row["value"] for row in rows(source, start=wanted.stop, stop=9)] == ["7", "8"]
