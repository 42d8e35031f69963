"""Brokers that die, are not there, or do not let everybody in."""

import pickle  # noqa: TID251 - Spark pickles sources on their way to its workers
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from penstock.clock import SystemChance
from penstock.errors import Invalid, Unavailable
from penstock.sources import META_NAME, Limits, Range, Span
from penstock.sources.kafka import Kafka
from tests.support import kafka
from tests.support.kafka import CALL_S_MAX, Broker, Cluster, until
from tests.support.servers import free_port

BODY_BYTES, MESSAGES = 4 << 10, 12_000
"""More than a consumer buffers, so that there is something left to fetch when a broker dies."""


def body(number: int) -> bytes:
    return b"%06d" % number + b"." * BODY_BYTES


def filled(cluster: Cluster) -> str:
    topic = cluster.topic()
    cluster.write(topic, [body(number) for number in range(MESSAGES)])
    return topic


def offsets(batches: list[Any]) -> list[int]:
    return [at for batch in batches for at in batch.column(META_NAME).field("offset").to_pylist()]


def numbers(batches: list[Any]) -> list[int]:
    """What the messages say that they are."""
    return [int(value[:6]) for batch in batches for value in batch.column("value").to_pylist()]


def test_a_leader_killed_in_the_middle_of_a_range_is_replaced(kafka_brokers: Cluster) -> None:
    """Another broker goes on, and no message is lost, doubled or moved."""
    topic = filled(kafka_brokers)
    source = Kafka(kafka_brokers.bootstrap, topic, timeout_s=CALL_S_MAX)
    reading = source.read("0", Range(start=0, stop=MESSAGES))
    found = [next(reading)]
    assert 0 < found[0].num_rows < MESSAGES

    leader = kafka_brokers.leaders(topic)[0]
    leader.kill()
    try:
        found += reading

        assert offsets(found) == numbers(found) == list(range(MESSAGES))
        assert source.spans() == {"0": Span(0, MESSAGES)}
        assert source.plan({"0": 7}, Limits()) == {"0": Range(start=7, stop=MESSAGES)}
    finally:
        leader.start()


def test_messages_are_read_while_the_brokers_die_one_after_the_other(
    kafka_brokers: Cluster,
) -> None:
    """A job lives longer than any of them: plans and ranges, each as it should be."""
    topic = kafka_brokers.topic()
    source = Kafka(kafka_brokers.bootstrap, topic, timeout_s=CALL_S_MAX)
    resume, found, sent = 0, list[int](), 0
    for broker in kafka_brokers.brokers:
        broker.kill()
        kafka_brokers.write(topic, [body(sent + number) for number in range(100)])
        sent += 100
        wanted = source.plan({"0": resume}, Limits())["0"]
        found += numbers(list(source.read("0", wanted)))
        resume = wanted.stop
        broker.start()

    assert (resume, found) == (300, list(range(300)))


def test_a_range_whose_broker_went_away_can_be_read_when_it_is_back(
    kafka_broker: Cluster,
) -> None:
    """It is said after a bounded time, and the range gives the same rows on the next try."""
    topic = filled(kafka_broker)
    [broker] = kafka_broker.brokers
    source = Kafka(kafka_broker.bootstrap, topic, timeout_s=2)
    reading = source.read("0", Range(start=0, stop=MESSAGES))
    found = [next(reading)]

    broker.kill()
    try:
        with pytest.raises(Unavailable):
            found += reading
        assert len(offsets(found)) < MESSAGES
        with pytest.raises(Unavailable, match="does not answer"):
            source.spans()
    finally:
        broker.start()

    again = Kafka(kafka_broker.bootstrap, topic, timeout_s=CALL_S_MAX)
    for each in (again, source):
        assert numbers(patiently(each, Range(start=0, stop=MESSAGES))) == list(range(MESSAGES))


def patiently(source: Kafka, wanted: Range) -> list[Any]:
    """As a job does it: what is `Unavailable` is tried again."""
    for _ in until("the range is read"):
        try:
            return list(source.read("0", wanted))
        except Unavailable:
            continue
    raise AssertionError("unreachable: the loop ends by returning or raising")


def test_reading_goes_on_by_itself_if_the_broker_is_back_in_time(kafka_broker: Cluster) -> None:
    """A restart is no reason to read an epoch anew."""
    topic = filled(kafka_broker)
    source = Kafka(kafka_broker.bootstrap, topic, timeout_s=CALL_S_MAX)
    reading = source.read("0", Range(start=0, stop=MESSAGES))
    found = [next(reading)]

    kafka_broker.brokers[0].restart()
    found += reading

    assert offsets(found) == numbers(found) == list(range(MESSAGES))


def test_an_unclean_election_that_cut_the_log_is_an_error(kafka_brokers: Cluster) -> None:
    """Messages that were read are gone, and others may take their offsets."""
    name = f"unclean-{SystemChance().unique()[:8]}"
    settings = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    first, second = kafka_brokers.brokers[0], kafka_brokers.brokers[1]
    replicas = [[first.number, second.number]]
    new = NewTopic(name, 1, replica_assignment=replicas, config=settings)
    kafka_brokers.admin.create_topics([new])[name].result(CALL_S_MAX)
    wait_for_leader(kafka_brokers, name, first)
    kafka_brokers.write(name, [body(0)] * 3)
    source = Kafka(kafka_brokers.bootstrap, name, timeout_s=CALL_S_MAX)
    second.kill()
    kafka_brokers.write(name, [body(1)] * 4)
    assert source.plan({"0": 3}, Limits()) == {"0": Range(start=3, stop=7)}

    first.kill()
    second.start()
    wait_for_leader(kafka_brokers, name, second)

    try:
        for attempt in (
            lambda: source.plan({"0": 7}, Limits()),
            lambda: list(source.read("0", Range(start=3, stop=7))),
        ):
            with pytest.raises(Invalid, match="ends at offset 3 and was asked for 7"):
                attempt()
    finally:
        first.start()


def wait_for_leader(cluster: Cluster, topic: str, leader: Broker) -> None:
    for _ in until(f"broker {leader.number} leads {topic}"):
        if cluster.leaders(topic).get(0) is leader:
            return


def test_no_broker_at_all_is_unavailable(capfd: pytest.CaptureFixture[str]) -> None:
    """A job that starts before its brokers waits for them, and says so; nothing else is printed."""
    port = free_port()
    source = Kafka(f"127.0.0.1:{port}", "clicks", group="g", timeout_s=1)
    for attempt in (
        source.spans,
        lambda: source.offsets_at(0),
        lambda: source.plan({}, Limits()),
        lambda: list(source.read("0", Range(start=0, stop=1))),
        lambda: source.committed({"0": 1}),
    ):
        with pytest.raises(Unavailable) as caught:
            attempt()
        assert str(caught.value).startswith(
            f"topic clicks of Kafka at 127.0.0.1:{port} does not answer ("
        )
    with pytest.raises(Unavailable) as caught:
        source.spans()
    assert caught.value.found == (
        f"does not answer (Connect to ipv4#127.0.0.1:{port} failed: Connection refused)"
    )
    assert capfd.readouterr() == ("", "")


def test_a_host_that_nobody_knows_is_told_by_its_name() -> None:
    """Most often it is a slip of the pen."""
    source = Kafka("no-such-host.invalid:9092", "clicks", timeout_s=1)

    with pytest.raises(Unavailable, match=r"Failed to resolve 'no-such-host\.invalid:9092'"):
        source.spans()


@pytest.fixture
def password(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Set what a job's reference stands for."""

    def set_to(text: str) -> None:
        monkeypatch.setenv("KAFKA_PASSWORD", text)

    set_to(kafka.PASSWORD)
    return set_to


def secured(cluster: Cluster, topic: str, **options: Any) -> Kafka:
    return Kafka(
        cluster.secured, topic, value="string", settings=cluster.secured_settings(), **options
    )


def test_a_password_is_known_only_where_a_connection_is_made(
    kafka_broker: Cluster, password: Callable[[str], None]
) -> None:
    """It is in no description, no pickle and no file; a worker looks it up for itself."""
    topic = kafka_broker.topic()
    kafka_broker.write(topic, [b"x"])
    source = secured(kafka_broker, topic, group=f"g-{SystemChance().unique()[:8]}")
    copy = pickle.dumps(source)

    assert source.plan({}, Limits()) == {"0": Range(start=0, stop=1)}
    [batch] = pickle.loads(copy).read("0", Range(start=0, stop=1))
    source.committed({"0": 1})

    assert batch.column("value").to_pylist() == ["x"]
    assert kafka.PASSWORD.encode() not in copy + pickle.dumps(source)
    assert kafka.PASSWORD not in repr(source) + repr(vars(source))


def test_a_wrong_password_is_for_a_person_and_is_not_shown(
    kafka_broker: Cluster, password: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    """No waiting mends it, and what was tried is nobody's business."""
    topic = kafka_broker.topic()
    password("hunter2 is wrong")
    source = secured(kafka_broker, topic, timeout_s=5)

    for attempt in (source.spans, lambda: list(source.read("0", Range(start=0, stop=1)))):
        with pytest.raises(Invalid) as caught:
            attempt()
        assert caught.value.found == (
            "refuses the login (SASL authentication error: Authentication failed: "
            "Invalid username or password)"
        )
        assert "hunter2" not in repr(caught.value.args)
    assert capfd.readouterr() == ("", "")


def test_a_reference_that_nobody_set_is_named(
    kafka_broker: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the executors that often lack it."""
    monkeypatch.delenv("KAFKA_PASSWORD", raising=False)

    with pytest.raises(Invalid, match=r"refers to \$\{KAFKA_PASSWORD\}, which is not set"):
        secured(kafka_broker, "clicks").spans()


def test_a_topic_that_may_not_be_read_is_for_a_person(
    kafka_broker: Cluster, password: Callable[[str], None]
) -> None:
    """It says which right is missing, and does not wait for it."""
    topic = kafka_broker.topic()
    kafka_broker.write(topic, [b"x"])
    kafka_broker.restrict(topic)
    source = secured(kafka_broker, topic)

    for attempt in (source.spans, lambda: list(source.read("0", Range(start=0, stop=1)))):
        with pytest.raises(Invalid) as caught:
            attempt()
        assert str(caught.value) == (
            f"topic {topic} of Kafka at {kafka_broker.secured} may not be used by this user "
            "(Broker: Topic authorization failed): have read and describe allowed on its topics, "
            "and read on its group if it has one."
        )
    assert len(list(Kafka(kafka_broker.bootstrap, topic).read("0", Range(start=0, stop=1)))) == 1


def test_settings_that_the_client_does_not_take_are_named(
    kafka_broker: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what is wrong about them, and without what a reference stands for."""
    unknown = Kafka(kafka_broker.bootstrap, "clicks", settings={"fetch.wait": 5})
    monkeypatch.setenv("PROTOCOL", "hunter2")
    wrong = Kafka(kafka_broker.bootstrap, "clicks", settings={"security.protocol": "${PROTOCOL}"})

    with pytest.raises(Invalid) as caught:
        unknown.spans()
    assert caught.value.found == (
        'cannot be used as it is set up (No such configuration property: "fetch.wait")'
    )
    with pytest.raises(Invalid) as caught:
        wrong.spans()
    assert caught.value.found == (
        'cannot be used as it is set up (Invalid value "${PROTOCOL}" for configuration property '
        '"security.protocol")'
    )
