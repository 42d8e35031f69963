"""Clients are kept between ranges, and never after an error."""

import os
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from penstock.clock import SystemChance
from penstock.errors import Invalid
from penstock.sources import Limits, Range
from penstock.sources.kafka import Kafka
from penstock.sources.kafka_pool import IDLE_MAX, Pool
from tests.support import kafka
from tests.support.kafka import CALL_S_MAX, Cluster


@dataclass
class Thing:
    """Something that can be closed."""

    name: str
    is_closed: bool = False

    def close(self) -> None:
        self.is_closed = True


def test_who_comes_back_gets_what_he_left() -> None:
    """And nobody else does, who said something else."""
    pool, thing = Pool[Thing](), Thing("a")
    pool.give("one", thing)

    assert pool.take("other") is None
    assert pool.take("one") is thing
    assert pool.take("one") is None


def test_the_client_that_rested_longest_is_closed_first() -> None:
    """A process that reads many topics does not keep them all open."""
    pool = Pool[Thing]()
    things = [Thing(str(number)) for number in range(IDLE_MAX + 2)]
    for thing in things:
        pool.give(thing.name, thing)

    assert [thing.name for thing in things if thing.is_closed] == ["0", "1"]
    assert pool.take("2") is things[2]


def test_a_failure_closes_all_that_are_alike() -> None:
    """They know the same brokers, and would fail the next who asks."""
    pool = Pool[Thing]()
    things = [Thing("a"), Thing("a"), Thing("b")]
    for thing in things:
        pool.give(thing.name, thing)
    pool.drop("a")

    assert [thing.is_closed for thing in things] == [True, True, False]


def test_a_forked_process_has_clients_of_its_own() -> None:
    """The threads that serve a client stay with its parent; it would wait for ever."""
    pool, thing = Pool[Thing](), Thing("a")
    pool.give("a", thing)
    child = os.fork()
    if not child:
        os._exit(0 if pool.take("a") is None and not thing.is_closed else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pool.take("a") is thing


def test_a_reader_that_turned_to_another_range_gives_nothing_of_the_one_before(
    kafka_broker: Cluster,
) -> None:
    """It is the same client, whose buffer was full of other messages."""
    topics = [kafka_broker.topic() for _ in range(2)]
    for number, topic in enumerate(topics):
        kafka_broker.write(topic, [b"%d-%d" % (number, each) for each in range(2000)])
    sources = [Kafka(kafka_broker.bootstrap, topic, value="string") for topic in topics]
    for start in range(0, 2000, 97):
        for number, source in enumerate(sources):
            wanted = Range(start=start, stop=min(start + 5, 2000))
            found = [v for b in source.read("0", wanted) for v in b.column("value").to_pylist()]
            assert found == [f"{number}-{each}" for each in range(wanted.start, wanted.stop)]


def test_a_reading_that_is_given_up_harms_no_other(kafka_broker: Cluster) -> None:
    """A task that fails behind its first batch leaves a range in the middle."""
    topic = kafka_broker.topic()
    bodies = [b"%06d" % number + b"." * 1000 for number in range(20_000)]
    kafka_broker.write(topic, bodies)
    source = Kafka(kafka_broker.bootstrap, topic)
    for _ in range(3):
        reading = source.read("0", Range(start=0, stop=20_000))
        assert next(reading).num_rows < 20_000
        reading.close()

    found = [v for b in source.read("0", Range(start=7, stop=9)) for v in b["value"].to_pylist()]
    assert found == bodies[7:9]


def test_two_ranges_can_be_read_at_a_time(kafka_broker: Cluster) -> None:
    """Each has a client of its own while it lasts."""
    topic = kafka_broker.topic(partitions=2)
    for number in range(2):
        kafka_broker.write(topic, [b"%d" % number] * 9, partition=number)
    source = Kafka(kafka_broker.bootstrap, topic, value="string")

    readings = [source.read(str(number), Range(start=0, stop=9)) for number in range(2)]
    found = [next(reading).column("value").to_pylist() for reading in readings]

    assert found == [["0"] * 9, ["1"] * 9]
    assert [list(reading) for reading in readings] == [[], []]


@pytest.fixture
def denied(kafka_broker: Cluster, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Forbid a group to everybody who logs in."""
    monkeypatch.setenv("KAFKA_PASSWORD", kafka.PASSWORD)

    def deny(group: str) -> None:
        literal, anyone = ResourcePatternType.LITERAL, ("User:*", "*")
        rule = AclBinding(
            ResourceType.GROUP, group, literal, *anyone, AclOperation.ALL, AclPermissionType.DENY
        )
        kafka_broker.admin.create_acls([rule])[rule].result(CALL_S_MAX)

    return deny


def test_who_only_reads_needs_no_right_to_a_group(
    kafka_broker: Cluster, denied: Callable[[str], None]
) -> None:
    """A range is read by its offsets; the group is told, and who may not tell it is told so."""
    group, topic = f"g-{SystemChance().unique()[:8]}", kafka_broker.topic()
    denied(group)
    kafka_broker.write(topic, [b"x"] * 3)
    source = Kafka(
        kafka_broker.secured, topic, group=group, settings=kafka_broker.secured_settings()
    )

    assert source.plan({}, Limits(size_bytes=1000)) == {"0": Range(start=0, stop=3)}
    for _ in range(3):
        [batch] = source.read("0", Range(start=0, stop=3))
        assert batch.num_rows == 3
    with pytest.raises(Invalid, match="may not be used by this user") as caught:
        source.committed({"0": 3})
    assert "read on its group" in caught.value.advice
