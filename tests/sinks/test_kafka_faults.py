"""A Kafka that is away, refuses, forgets or is written to by somebody else."""

import pickle  # noqa: TID251 - errors are pickled by Spark on their way to the driver
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from penstock.checkpoint import MemoryStore
from penstock.errors import Invalid, PenstockError, Unavailable
from penstock.ids import Key, Token
from penstock.sinks.kafka import KafkaSink
from penstock.sinks.kafka_messages import Chunk, KafkaMessages
from penstock.sinks.kafka_writer import KafkaWriter
from tests.support import kafka_stories as stories
from tests.support.kafka import CALL_S_MAX, PASSWORD, Broker, Cluster, until
from tests.support.kafka_case import new_prefix, rows_in, target
from tests.support.kafka_stories import Stage, patiently, stage
from tests.support.kafka_wire import Api, Before
from tests.support.servers import free_port
from tests.support.sink_cases import JOB, PEOPLE, apply, cursor, in_order, people

WRONG = "hunter2"


@pytest.fixture
def on(kafka_broker: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr("penstock.sinks.kafka_writer.LOOK_S", 0.5)
    with stage(kafka_broker) as made:
        yield made


def test_a_commit_whose_answer_is_lost_is_found_done(on: Stage) -> None:
    """The cursor tells, and nothing is written twice."""
    stories.lost_answer(on)


@pytest.mark.parametrize(
    "api", [Api.PRODUCE, Api.ADD_OFFSETS, Api.TXN_OFFSET_COMMIT, Api.END_TXN],
    ids=lambda a: a.name,
)  # fmt: skip
def test_what_a_leader_leaves_half_done_is_taken_back(on: Stage, api: Api) -> None:
    """Whoever opens the shard ends what is open there, also if it hides the cursor. And whoever is
    cut off is told so in time, though librdkafka would wait for ever for some of the answers."""
    stories.cut_off(on, api)


@pytest.mark.parametrize(
    "api", [Api.PRODUCE, Api.TXN_OFFSET_COMMIT, Api.END_TXN], ids=lambda a: a.name
)
def test_a_zombie_is_refused_wherever_it_wakes_up(on: Stage, api: Api) -> None:
    """A producer that sleeps through a take-over finds that its name is not its own any more."""
    stories.zombie(on, api)


@pytest.mark.parametrize("api", [Api.ADD_OFFSETS, Api.END_TXN], ids=lambda a: a.name)
def test_a_zombie_from_before_a_rewind_is_refused(on: Stage, api: Api) -> None:
    """Its name has no generation in it, so a leader of a later one shuts it out."""
    stories.zombie_of_another_generation(on, api)


def test_a_shard_is_shut_before_its_cursor_is_read(on: Stage) -> None:
    """Or else what is committed between the two is written again."""
    stories.overtaken_while_opening(on)


def test_a_request_that_arrives_late_does_not_end_the_next_transaction(on: Stage) -> None:
    """KIP-890, of which librdkafka does not have the second part."""
    stories.late_request(on)


def test_a_message_that_arrives_late_hangs_nothing(on: Stage) -> None:
    """KIP-890's first part, which the broker has: its transaction is over."""
    stories.late_message(on)


def test_a_transaction_that_the_broker_has_ended_is_done_again(on: Stage) -> None:
    """B19: it took longer than it may. The cursor has not moved, so its epoch is applied."""

    def until_it_is_ended() -> None:
        for _ in until("the broker has ended the transaction"):
            if on.is_stable():
                return

    writer = on.opened(line=True, settings={"transaction.timeout.ms": 1000})
    patiently(writer, apply(1, people(1)))
    on.proxy.arm(Before(Api.ADD_OFFSETS, until_it_is_ended))
    patiently(writer, apply(2, people(2)))

    assert writer.read_cursor(0) == cursor(2)
    on.assert_holds(people(1) + people(2))
    assert on.written() >= 9, "the rows of the first try are there, and taken back"


def test_twins_that_take_turns_are_told_so(on: Stage) -> None:
    """Two jobs of one name, with sinks of one name to two topics, shut one another out for ever."""
    other = on.cluster.topic()
    writer, twin = on.opened(line=True), on.opened(topic=other)
    epochs = iter(range(1, 100))

    def take_a_turn() -> None:
        epoch = next(epochs)
        twin.apply(apply(epoch, people(epoch)))

    on.proxy.arm(Before(Api.END_TXN, take_a_turn, number=None))
    with pytest.raises(Unavailable) as caught:
        writer.apply(apply(1, people(1)))
    on.proxy.arm(None)

    assert str(caught.value).startswith(f"sink people, topic {on.topic} of Kafka at 127.0.0.1:")
    assert caught.value.found.startswith(
        "was taken over by another producer of the same transactional id, or took longer for one "
        "epoch than a transaction may (_FENCED: "
    )
    assert caught.value.found.endswith("), 3 times in a row")
    assert caught.value.advice.startswith("see who else writes as this job and sink")
    writer.apply(apply(1, people(1)))
    on.assert_holds(people(1))


def test_two_histories_in_one_topic_stop_one_another(on: Stage) -> None:
    """Two roots of one job and sink: the commits differ, whatever the numbers say."""
    on.opened().apply(apply(1, people(1)))
    other = cursor(1, commit="of another root")

    with pytest.raises(Invalid, match="is at epoch 1 of generation 1 and was given epoch 1"):
        on.opened().apply(apply(1, people(7), at=other))

    on.assert_holds(people(1))


def test_a_cursor_that_kafka_has_forgotten_stops_the_job(on: Stage) -> None:
    """A job that is away for a week would write everything again."""
    stories.forgotten(on)

    writer = on.opened()
    with pytest.raises(Invalid) as caught:
        writer.read_cursor(0)
    assert "have the sink go on from HEAD with `penstock sinks accept`" in caught.value.advice
    writer.accept(0, cursor(1), Token(2))
    assert writer.read_cursor(0) == cursor(1)
    writer.apply(apply(2, people(2), token=2))
    on.assert_holds(people(1) + people(2))


class Forgetful(MemoryStore):
    """A root that is away when it is written to for the first time."""

    is_away = True

    def put(self, key: Key, body: bytes) -> None:
        if self.is_away:
            self.is_away = False
            raise Unavailable("the root", "is away", "wait")
        super().put(key, body)


def test_a_shard_that_has_claimed_and_not_begun_begins(on: Stage) -> None:
    """A crash between the two leaves a claim, which is no cursor."""
    on.store = Forgetful()
    writer = on.opened()
    stories.unheard(writer, apply(1, people(1)))
    assert (on.opened().read_cursor(0), on.written()) == (None, 0)

    on.opened().apply(apply(1, people(1), token=2))
    on.assert_holds(people(1))


def test_a_cursor_of_somebody_else_is_not_taken_for_ours(on: Stage) -> None:
    """Kafka's tools can set the offsets of any group."""
    on.opened().apply(apply(1, people(1)))
    with on.cluster.consumer(group_id=f"{on.prefix}/{JOB}/people/0") as consumer:
        consumer.commit(offsets=[TopicPartition(on.topic, 0, 0)], asynchronous=False)

    with pytest.raises(Invalid) as caught:
        on.opened().apply(apply(2, people(2)))

    assert caught.value.found == "has a cursor that is not Penstock's: offset 0, note ''"
    on.opened().accept(0, cursor(1), Token(2))
    assert on.opened().read_cursor(0) == cursor(1)


def test_a_broker_that_is_away_is_waited_for(on: Stage) -> None:
    """The same writer goes on when it is back, also after kill -9."""
    [broker] = on.cluster.brokers
    writer = on.opened(timeout_s=3)
    patiently(writer, apply(1, people(1)))
    on.settle()
    broker.kill()
    try:
        with pytest.raises(Unavailable) as caught:
            writer.apply(apply(2, people(2)))
        assert caught.value.found.startswith("does not answer (")
        with pytest.raises(Unavailable):
            on.opened(timeout_s=0.5)
    finally:
        broker.start()
    patiently(writer, apply(2, people(2)))

    on.assert_holds(people(1) + people(2))


def test_an_epoch_survives_the_death_of_its_coordinator(
    kafka_brokers: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 of the broker that keeps the transaction, while the rows are on their way."""
    topic, prefix = kafka_brokers.topic(partitions=3), new_prefix()
    sink = KafkaSink(
        "people", kafka_brokers.bootstrap, topic, key_column="user", transaction_prefix=prefix,
        timeout_s=5,
    )  # fmt: skip
    writer = sink.open(target())
    patiently(writer, apply(1, people(1)))
    coordinator = coordinator_of(kafka_brokers, f"{prefix}/{JOB}/people/0")
    honest = KafkaMessages.chunks

    def deadly(self: KafkaMessages, rows: Any) -> Iterator[Chunk]:
        for number, chunk in enumerate(honest(self, rows)):
            if number == 1:
                monkeypatch.undo()
                coordinator.kill()
            yield chunk

    monkeypatch.setattr(KafkaMessages, "chunks", deadly)
    try:
        patiently(writer, apply(2, people(2, 25_000)))
        found = rows_in(kafka_brokers.read(topic), PEOPLE)
        assert in_order(found) == in_order(people(1) + people(2, 25_000))
        assert sink.open(target()).read_cursor(0) == cursor(2)
    finally:
        coordinator.start()


def coordinator_of(cluster: Cluster, name: str) -> Broker:
    """The broker that keeps the transactions of a name: Java's hash of it says which."""
    number = 0
    for character in name:
        number = (31 * number + ord(character)) & 0xFFFFFFFF
    leaders = cluster.leaders("__transaction_state")
    return leaders[(number & 0x7FFFFFFF) % len(leaders)]


def secured(cluster: Cluster, topic: str, **given: Any) -> KafkaWriter:
    """A sink whose user logs in."""
    settings = {**cluster.secured_settings(), **given.pop("settings", {})}
    given = {"transaction_prefix": new_prefix(), "timeout_s": 5, **given}
    sink = KafkaSink("people", cluster.secured, topic, settings=settings, **given)
    return sink.open(target())


def refused_with(kind: type[PenstockError], call: Callable[[], object]) -> PenstockError:
    """With what a call is refused. It names no secret, on its trip either."""
    with pytest.raises(kind) as caught:
        call()
    for shown in (str(caught.value), repr(caught.value), str(pickle.dumps(caught.value))):
        assert WRONG not in shown
        assert PASSWORD not in shown
    return caught.value


def test_a_wrong_password_is_told_at_once_and_not_repeated(
    kafka_broker: Cluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A person must correct it; a log must not hold it."""
    topic = kafka_broker.topic()
    monkeypatch.setenv("KAFKA_PASSWORD", WRONG)
    said = refused_with(Invalid, lambda: secured(kafka_broker, topic, timeout_s=60))

    assert said.found.startswith("does not let us in (_AUTHENTICATION: ")
    assert WRONG not in "".join(capfd.readouterr())
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    secured(kafka_broker, topic).apply(apply(1, people(1)))
    assert len(kafka_broker.read(topic)) == 3


def test_a_user_who_may_not_write_is_told(
    kafka_broker: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the topic at once; to the groups and transactions when it comes to that."""
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    topic, prefix = kafka_broker.topic(), new_prefix()
    kafka_broker.restrict(topic)
    assert refused_with(Invalid, lambda: secured(kafka_broker, topic)).found.startswith(
        "may not be written by this user (TOPIC_AUTHORIZATION_FAILED"
    )

    writer = secured(kafka_broker, kafka_broker.topic(), transaction_prefix=prefix)
    deny(kafka_broker, f"{prefix}/")
    said = refused_with(Invalid, lambda: writer.apply(apply(1, people(1))))
    assert said.found.startswith("may not be written by this user (TRANSACTIONAL_ID_AUTHOR")
    assert said.advice.endswith(f"transactional ids that begin with {prefix}/")


def deny(cluster: Cluster, prefix: str) -> None:
    """From now on, nobody who logs in has transactions whose names begin so."""
    rule = AclBinding(
        ResourceType.TRANSACTIONAL_ID, prefix, ResourcePatternType.PREFIXED,
        "User:*", "*", AclOperation.ALL, AclPermissionType.DENY,
    )  # fmt: skip
    cluster.admin.create_acls([rule])[rule].result(CALL_S_MAX)


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no such topic": ({"topic": "nowhere"}, "does not exist (UNKNOWN_TOPIC_OR_PART"),
    "no such setting": (
        {"settings": {"no.such.setting": "${SECRET}"}},
        'cannot be used with its settings (_INVALID_ARG: No such configuration property: "no.',
    ),
    "a setting of another kind": (
        {"settings": {"linger.ms": "${SECRET}"}}, "cannot be used with its settings (_INVALID_ARG",
    ),
    "a login where none is asked for": (
        {"settings": {"security.protocol": "ssl"}, "timeout_s": 1}, "does not answer (",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_what_is_wrong_is_told_when_the_sink_is_opened(
    case: str, kafka_broker: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the name of what is wrong, and without the value of any setting."""
    monkeypatch.setenv("SECRET", WRONG)
    given, found = MISTAKES[case]
    sink = KafkaSink(**{"name": "people", "bootstrap": kafka_broker.bootstrap,
                        "topic": "people", **given})  # fmt: skip
    said = refused_with(PenstockError, lambda: sink.open(target()))

    assert said.found.startswith(found)


def test_a_kafka_that_is_not_there_is_unavailable() -> None:
    """It may be there tomorrow."""
    sink = KafkaSink("people", f"127.0.0.1:{free_port()}", "people", timeout_s=0.5)

    assert refused_with(Unavailable, lambda: sink.open(target())).found.startswith(
        "does not answer ("
    )


def test_a_transaction_timeout_that_no_broker_allows_is_told(on: Stage) -> None:
    """Brokers have a limit of their own."""
    writer = on.opened(settings={"transaction.timeout.ms": 10**8})

    said = refused_with(Invalid, lambda: writer.apply(apply(1, people(1))))
    assert said.found.startswith("has a transaction.timeout.ms that its broker does not allow")


SPOILT: dict[str, tuple[dict[str, str], str]] = {
    "smaller messages": ({"max.message.bytes": "100"}, "does not take a message because of its"),
    "no old times": ({"message.timestamp.before.max.ms": "1"}, "does not take a message (INVALID_"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_a_topic_that_has_changed_its_mind_is_told_apart(on: Stage, case: str) -> None:
    """What it refuses now is committed: the job stops, and goes on when the topic is put right."""
    config, found = SPOILT[case]
    writer = on.opened()
    writer.apply(apply(1, people(1)))
    change(on.cluster, on.topic, config)
    rows = [{"user": "x" * 5_000, "n": 1}]

    said = refused_with(Invalid, lambda: writer.apply(apply(2, rows)))
    assert said.found.startswith(found)
    assert said.advice.endswith("start the job again: the row is committed")


def test_a_topic_that_is_removed_is_told(on: Stage) -> None:
    """It took the cursor with it; that nobody answers for it may have other reasons."""
    topic = on.cluster.topic()
    writer = on.opened(topic=topic, timeout_s=1)
    patiently(writer, apply(1, people(1)))
    on.cluster.delete(topic)
    stories.unheard(writer, apply(2, people(2)))

    said = refused_with(Invalid, lambda: writer.read_cursor(0))
    assert said.found.endswith("of groups that are quiet for offsets.retention.minutes, and of "
                               "topics that are removed")  # fmt: skip


def change(cluster: Cluster, topic: str, config: dict[str, str]) -> None:
    """Set a setting of a topic, and wait until its broker has heard of it."""
    [(name, value)] = config.items()
    kind, operation = ConfigResource.Type.TOPIC, AlterConfigOpType.SET
    entry = ConfigEntry(name, value, incremental_operation=operation)
    asked = ConfigResource(kind, topic, incremental_configs=[entry])
    cluster.admin.incremental_alter_configs([asked])[asked].result(CALL_S_MAX)
    for _ in until(f"{topic} has {config}"):
        resource = ConfigResource(kind, topic)
        told = cluster.admin.describe_configs([resource])[resource].result(CALL_S_MAX)
        if told[name].value == value:
            return
