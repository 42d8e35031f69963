"""Offsets without messages: transactions leave control records, compaction leaves nothing."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.clock import SystemChance
from penstock.errors import Invalid
from penstock.sources import META_NAME, Limits, Range, Span, start_offsets
from penstock.sources.kafka import Kafka
from tests.support.kafka import CALL_S_MAX, Cluster, until


@pytest.fixture
def producer(kafka_broker: Cluster) -> Iterator[Producer]:
    """One that writes in transactions, and leaves none open."""
    made = kafka_broker.producer(transactional_id=SystemChance().unique(), linger_ms=0)
    made.init_transactions(CALL_S_MAX)
    yield made
    made.purge()


def send(producer: Producer, topic: str, *values: bytes) -> None:
    """In the transaction that is open; when this returns, the broker has them."""
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(CALL_S_MAX) == 0


def commit(cluster: Cluster, producer: Producer, topic: str, *values: bytes) -> None:
    """A transaction of its own. The broker answers before it writes the marker that ends it, so the
    marker is waited for: it takes an offset, and what is sent next must come behind it."""
    producer.begin_transaction()
    send(producer, topic, *values)
    producer.commit_transaction(CALL_S_MAX)
    cluster.settle(topic)


def abort(cluster: Cluster, producer: Producer, topic: str, *values: bytes) -> None:
    """The same, taken back."""
    producer.begin_transaction()
    send(producer, topic, *values)
    producer.abort_transaction(CALL_S_MAX)
    cluster.settle(topic)


def read(source: Kafka, start: int, stop: int) -> list[tuple[int, str]]:
    """The offsets and values of a range."""
    found: list[dict[str, Any]] = [
        row
        for batch in source.read("0", Range(start=start, stop=stop))
        for row in batch.to_pylist()
    ]
    return [(row[META_NAME]["offset"], row["value"]) for row in found]


def test_aborted_transactions_are_never_seen(kafka_broker: Cluster, producer: Producer) -> None:
    """Their messages are in the log for ever, among those that count."""
    topic = kafka_broker.topic()
    abort(kafka_broker, producer, topic, b"no", b"no")
    commit(kafka_broker, producer, topic, b"a", b"b")
    abort(kafka_broker, producer, topic, b"no")
    kafka_broker.write(topic, [b"c"])
    source = Kafka(kafka_broker.bootstrap, topic, value="string")

    assert source.spans() == {"0": Span(0, 9)}
    assert read(source, 0, 9) == [(3, "a"), (4, "b"), (8, "c")]


def test_every_cut_of_a_range_ends_though_its_last_offset_is_no_message(
    kafka_broker: Cluster, producer: Producer
) -> None:
    """B25: whoever waits for the message before the stop waits for ever."""
    topic = kafka_broker.topic()
    commit(kafka_broker, producer, topic, b"a")
    abort(kafka_broker, producer, topic, b"no", b"no")
    kafka_broker.write(topic, [b"b"])
    commit(kafka_broker, producer, topic, b"c", b"d")
    abort(kafka_broker, producer, topic, b"no")
    source = Kafka(kafka_broker.bootstrap, topic, value="string", timeout_s=20)
    end = source.spans()["0"].latest
    whole = [(0, "a"), (5, "b"), (6, "c"), (7, "d")]

    assert end == 11
    for start in range(end + 1):
        for stop in range(start, end + 1):
            assert read(source, start, stop) == [each for each in whole if start <= each[0] < stop]
    cuts = [read(source, *bounds) for bounds in pairwise(range(end + 1))]
    assert [row for cut in cuts for row in cut] == whole


def test_a_plan_goes_up_to_the_first_open_transaction(
    kafka_broker: Cluster, producer: Producer
) -> None:
    """What is behind it may still be taken back; it is read when that is decided."""
    topic = kafka_broker.topic()
    kafka_broker.write(topic, [b"a"])
    producer.begin_transaction()
    send(producer, topic, b"b")
    kafka_broker.write(topic, [b"c"])
    source = Kafka(kafka_broker.bootstrap, topic, value="string")

    assert source.plan({}, Limits()) == {"0": Range(start=0, stop=1)}
    assert start_offsets(source, "latest") == {"0": 1}
    assert read(source, 0, 1) == [(0, "a")]
    with pytest.raises(Invalid, match="ends at offset 1 and was asked for 3"):
        read(source, 0, 3)

    producer.commit_transaction(CALL_S_MAX)
    kafka_broker.settle(topic)

    assert source.plan({"0": 1}, Limits()) == {"0": Range(start=1, stop=4)}
    assert read(source, 1, 4) == [(1, "b"), (2, "c")]


def test_a_range_before_an_open_transaction_ends_at_its_control_record(
    kafka_broker: Cluster, producer: Producer
) -> None:
    """Nothing behind it can be fetched that would say that it is over."""
    topic = kafka_broker.topic()
    commit(kafka_broker, producer, topic, b"a")
    producer.begin_transaction()
    send(producer, topic, b"b")
    source = Kafka(kafka_broker.bootstrap, topic, value="string", timeout_s=20)

    assert source.plan({}, Limits()) == {"0": Range(start=0, stop=2)}
    assert read(source, 0, 2) == [(0, "a")]
    assert read(source, 1, 2) == []
    producer.abort_transaction(CALL_S_MAX)


def test_a_plan_passes_over_what_was_aborted(kafka_broker: Cluster, producer: Producer) -> None:
    """A range may hold nothing at all; the job goes on behind it."""
    topic = kafka_broker.topic()
    abort(kafka_broker, producer, topic, *[b"no"] * 20)
    commit(kafka_broker, producer, topic, b"a")
    source = Kafka(kafka_broker.bootstrap, topic, value="string")
    resume: dict[str, int] = {}
    found, epochs = [], 0
    while ranges := source.plan(resume, Limits(records=6)):
        found += read(source, ranges["0"].start, ranges["0"].stop)
        resume["0"] = ranges["0"].stop
        epochs += 1

    assert (found, resume, epochs) == ([(21, "a")], {"0": 23}, 4)


def test_sizes_are_estimated_though_there_are_gaps(
    kafka_broker: Cluster, producer: Producer
) -> None:
    """Where the first offsets hold no message, a plan is made all the same."""
    topic = kafka_broker.topic()
    abort(kafka_broker, producer, topic, *[b"no"] * 60)
    source = Kafka(kafka_broker.bootstrap, topic, value="string")

    assert source.plan({}, Limits(size_bytes=2048)) == {"0": Range(start=0, stop=2)}
    assert source.plan({}, Limits(size_bytes=1 << 20)) == {"0": Range(start=0, stop=61)}


def test_compaction_leaves_gaps_that_are_read_over(kafka_broker: Cluster) -> None:
    """Rows may go, each of which another one has replaced; none is added, moved or changed."""
    topic = kafka_broker.topic(
        cleanup_policy="compact",
        segment_bytes=1 << 20,
        min_cleanable_dirty_ratio=0.001,
        max_compaction_lag_ms=1,
        segment_ms=100,
    )
    keys = [b"k%d" % (number % 3) for number in range(12)]
    kafka_broker.write(topic, [b"%d" % number for number in range(12)], keys=keys)
    source = Kafka(kafka_broker.bootstrap, topic, value="string", timeout_s=20)
    before = read(source, 0, 12)
    assert [offset for offset, _ in before] == list(range(12))

    closing = 0
    for _ in until("the broker has compacted the topic"):
        # The last segment is never compacted, and a new one begins only when something comes.
        kafka_broker.write(topic, [b"more"], keys=[b"more"])
        closing += 1
        if kafka_broker.read(topic)[0].offset() == 9:
            break

    last = [each for each in before if each[0] >= 9]
    assert source.spans()["0"] == Span(0, 12 + closing)
    assert read(source, 0, 12) == last
    for start, stop in ((0, 9), (3, 8), (8, 9), (0, 1)):
        assert read(source, start, stop) == []
    assert read(source, 0, 10) == last[:1]
    assert read(source, 8, 11) == last[:2]
