"""Topics that go, or are not what they were; and the group that is told how far a job is."""

import pickle  # noqa: TID251 - Spark pickles sources on their way to its workers
from typing import Any

import pytest

from penstock.clock import SystemChance
from penstock.errors import Invalid, PenstockError
from penstock.sources import Limits, Range
from penstock.sources.kafka import Kafka
from tests.support.kafka import Cluster

LAG_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def values(source: Kafka, start: int, stop: int, partition: str = "0") -> list[Any]:
    return [
        row["value"]
        for batch in source.read(partition, Range(start=start, stop=stop))
        for row in batch.to_pylist()
    ]


def refusal(error: PenstockError) -> tuple[str, str]:
    return error.subject, error.found


def test_a_topic_that_is_not_there_is_not_made(kafka_broker: Cluster) -> None:
    """A name that is misspelt must not become an empty topic that nobody writes to."""
    name = f"missing-{SystemChance().unique()[:8]}"
    source = Kafka(kafka_broker.bootstrap, name)
    for attempt in (
        source.spans,
        lambda: source.offsets_at(0),
        lambda: source.plan({}, Limits()),
        lambda: values(source, 0, 0),
    ):
        with pytest.raises(Invalid) as caught:
            attempt()
        assert str(caught.value) == (
            f"topic {name} of Kafka at {kafka_broker.bootstrap} does not exist: "
            "create it, or correct its name; it is not made by reading it."
        )
    assert name not in kafka_broker.admin.list_topics(timeout=10).topics


def test_one_missing_topic_of_several_is_named(kafka_broker: Cluster) -> None:
    """Of a long list, the one to look after."""
    there, name = kafka_broker.topic(), f"missing-{SystemChance().unique()[:8]}"

    with pytest.raises(Invalid) as caught:
        Kafka(kafka_broker.bootstrap, [there, name]).spans()

    where = f"topics {there}, {name} of Kafka at {kafka_broker.bootstrap}, topic {name},"
    assert refusal(caught.value) == (where, "does not exist")


def test_a_topic_that_was_deleted_is_missed(kafka_broker: Cluster) -> None:
    """Its partitions had offsets that were to be read; nobody may go on as if they had been."""
    mark = SystemChance().unique()[:8]
    gone, stays = kafka_broker.topic(f"{mark}.a"), kafka_broker.topic(f"{mark}.b")
    kafka_broker.write(gone, [b"1"])
    one = Kafka(kafka_broker.bootstrap, gone)
    several = Kafka(kafka_broker.bootstrap, pattern=rf"{mark}\..*")
    fresh = Kafka(kafka_broker.bootstrap, pattern=rf"{mark}\..*")
    assert one.plan({}, Limits()) == {"0": Range(start=0, stop=1)}
    assert several.plan({}, Limits()) == {f"{gone}/0": Range(start=0, stop=1)}

    kafka_broker.delete(gone)

    for source in (one, several):
        with pytest.raises(Invalid) as caught:
            source.plan({}, Limits())
        assert caught.value.found == "was deleted"
    with pytest.raises(Invalid) as caught:
        fresh.plan({f"{gone}/0": 1, f"{stays}/0": 0}, Limits())
    assert refusal(caught.value) == (fresh.name, f"has no partition '{gone}/0' any more")


def test_a_topic_that_was_made_anew_is_not_read_on(kafka_broker: Cluster) -> None:
    """It has the same name and more messages than were read: only its id tells."""
    topic = kafka_broker.topic()
    kafka_broker.write(topic, [b"old"] * 3)
    source = Kafka(kafka_broker.bootstrap, topic, value="string")
    task = pickle.loads(pickle.dumps(source))
    assert source.plan({}, Limits()) == {"0": Range(start=0, stop=3)}
    assert values(task, 0, 3) == ["old"] * 3

    kafka_broker.delete(topic)
    kafka_broker.topic(topic)
    kafka_broker.write(topic, [b"new"] * 9)

    for attempt in (lambda: source.plan({"0": 3}, Limits()), lambda: values(task, 3, 9)):
        with pytest.raises(Invalid, match="was deleted and made anew") as caught:
            attempt()
        assert "start the job anew, in a new root, at 'earliest' or 'latest'" in str(caught.value)


def test_a_topic_that_is_made_anew_while_it_is_read_is_noticed(kafka_broker: Cluster) -> None:
    """The consumer itself goes on in the new one, at the same offset, and says nothing."""
    topic = kafka_broker.topic()
    size = 4 << 10
    old = [b"%05d" % number + b"." * size for number in range(10_000)]
    kafka_broker.write(topic, old)
    source = Kafka(kafka_broker.bootstrap, topic, value="string", timeout_s=20)
    batches = source.read("0", Range(start=0, stop=10_000))
    first = next(batches)
    assert 0 < first.num_rows < 10_000

    kafka_broker.delete(topic)
    kafka_broker.topic(topic)
    kafka_broker.write(topic, [b"new" + b"." * size] * 10_000)

    with pytest.raises(PenstockError, match="was deleted and made anew"):
        for _ in batches:
            pass


def test_a_partition_that_ends_before_the_resume_offset_is_refused(kafka_broker: Cluster) -> None:
    """Made anew and shorter: the broker would begin somewhere, and nobody would know."""
    topic = kafka_broker.topic()
    kafka_broker.write(topic, [b"x"] * 3)
    source = Kafka(kafka_broker.bootstrap, topic)

    for attempt in (lambda: source.plan({"0": 4}, Limits()), lambda: values(source, 3, 4)):
        with pytest.raises(Invalid) as caught:
            attempt()
        assert str(caught.value) == (
            f"{source.name}, partition 0 ends at offset 3 and was asked for 4: "
            "was the log truncated or made anew? start again at 'earliest' or 'latest'."
        )


def test_lag_tools_see_how_far_a_job_is(kafka_broker: Cluster) -> None:
    """People watch lag with what they have; nothing is read from it again."""
    topic, group = kafka_broker.topic(partitions=2), f"g-{SystemChance().unique()[:8]}"
    kafka_broker.write(topic, [b"x"] * 5)
    kafka_broker.write(topic, [b"y"] * 2, partition=1)
    source = Kafka(kafka_broker.bootstrap, topic, group=group)
    source.plan({}, Limits())
    source.committed({"0": 1})
    source.committed({"0": 3, "1": 2})

    found = kafka_broker.committed(group, topic)
    printed = kafka_broker.run(LAG_TOOL, "--describe", "--group", group)

    assert {number: offset for number, (offset, _) in found.items()} == {0: 3, 1: 2}
    lines = [line.split() for line in printed.splitlines() if line.startswith(group)]
    assert sorted(line[1:6] for line in lines) == [
        [topic, "0", "3", "5", "2"],
        [topic, "1", "2", "2", "0"],
    ]


def test_a_group_that_has_members_refuses_and_the_job_can_go_on(kafka_broker: Cluster) -> None:
    """Two readers of one group by mistake: it is said, and it is only for show."""
    topic, group = kafka_broker.topic(), f"g-{SystemChance().unique()[:8]}"
    kafka_broker.write(topic, [b"x"])
    source = Kafka(kafka_broker.bootstrap, topic, group=group, value="string")
    source.plan({}, Limits())
    with kafka_broker.consumer(group_id=group) as member:
        member.subscribe([topic])
        assert member.poll(20) is not None
        with pytest.raises(Invalid) as caught:
            source.committed({"0": 1})
    assert refusal(caught.value) == (
        f"group {group!r} of {source.name}",
        "refuses offsets (Commit failed: Broker: Unknown member)",
    )
    assert values(source, 0, 1) == ["x"]


def test_without_a_group_nothing_is_told(kafka_broker: Cluster) -> None:
    """Not everybody wants one, and nothing depends on it."""
    topic = kafka_broker.topic()
    kafka_broker.write(topic, [b"x"])
    source = Kafka(kafka_broker.bootstrap, topic)
    source.plan({}, Limits())
    source.committed({"0": 1})

    assert kafka_broker.committed("penstock", topic) == {}


def test_a_topic_that_was_made_anew_while_no_job_ran_is_not_read_on(kafka_broker: Cluster) -> None:
    """The next life of a job has not seen the old one; what its chain remembers tells."""
    topic = kafka_broker.topic()
    kafka_broker.write(topic, [b"old"] * 3)
    before = Kafka(kafka_broker.bootstrap, topic)
    assert before.plan({}, Limits()) == {"0": Range(start=0, stop=3)}
    remembered = before.identities()
    assert set(remembered) == {topic}

    kafka_broker.delete(topic)
    kafka_broker.topic(topic)
    kafka_broker.write(topic, [b"new"] * 9)
    after = Kafka(kafka_broker.bootstrap, topic)
    after.recognise({**remembered, "another": "x"})

    with pytest.raises(Invalid, match="was deleted and made anew"):
        after.plan({"0": 3}, Limits())
    assert after.identities() == remembered
