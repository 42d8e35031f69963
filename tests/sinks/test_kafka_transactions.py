"""Transactions that were left open: found, shown and ended, as `penstock doctor --kafka` does."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from penstock.runtime.cli import app
from penstock.sinks.kafka import KafkaSink
from tests.support.kafka import CALL_S_MAX, Cluster
from tests.support.kafka_case import new_prefix, target
from tests.support.kafka_stories import Stage, patiently, stage, unheard
from tests.support.kafka_wire import Api, Severed
from tests.support.servers import free_port
from tests.support.sink_cases import JOB, apply, people


@pytest.fixture
def on(kafka_broker: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr("penstock.sinks.kafka_transactions.STABLE_S", 1.5)
    with stage(kafka_broker) as made:
        yield made


def doctor(*arguments: str) -> tuple[int, str]:
    """The exit code, and what is printed."""
    done = CliRunner().invoke(app, ["doctor", *arguments])
    return done.exit_code, done.output


def told(on: Stage, *arguments: str) -> tuple[int, dict[str, Any]]:
    """What programs are told of a job."""
    where = ["--kafka", on.cluster.bootstrap, "--job", f"{on.prefix}/{JOB}"]
    code, said = doctor(*where, "--json", *arguments)
    return code, json.loads(said)


def left_open(on: Stage, api: Api) -> None:
    """A leader writes an epoch, and is gone before one of its requests in the next."""
    writer = on.opened(line=True, timeout_s=1)
    patiently(writer, apply(1, people(1)))
    on.proxy.arm(Severed(api))
    unheard(writer, apply(2, people(2)))


def test_a_job_that_is_well_holds_up_nobody(on: Stage) -> None:
    """Its shards are listed, with how far they are."""
    writer = on.opened()
    for shard in (0, 1):
        writer.apply(apply(1, people(1, shard=shard), shard=shard))
    shards = [
        {"id": f"{on.prefix}/{JOB}/people/{n}", "topic": on.topic, "epoch": 1, "stable": True}
        for n in (0, 1)
    ]

    assert told(on) == (
        0,
        {
            "kafka": on.cluster.bootstrap, "ended": False, "hanging": False, "shards": shards,
            "held_back": [],
        },
    )  # fmt: skip
    where = ["--kafka", on.cluster.bootstrap, "--job", f"{on.prefix}/{JOB}"]
    assert doctor(*where) == (0, f"2 shards of job {on.prefix}/{JOB}: nothing is held up.\n")


@pytest.mark.parametrize("api", [Api.ADD_OFFSETS, Api.END_TXN], ids=lambda api: api.name)
def test_what_a_leader_left_open_is_found_and_ended(on: Stage, api: Api) -> None:
    """Before its cursor was sent, and after: readers wait for it, and then need not."""
    left_open(on, api)
    held = {"topic": on.topic, "partition": 0, "offsets": 3}
    code, found = told(on)
    assert (code, found["hanging"], found["held_back"]) == (1, True, [held])
    assert [shard["stable"] for shard in found["shards"]] == [api is Api.ADD_OFFSETS]

    code, found = told(on, "--abort")
    assert (code, found["ended"], found["hanging"], found["held_back"]) == (0, True, False, [])
    on.proxy.arm(None)
    on.opened().apply(apply(2, people(2), token=2))
    on.assert_holds(people(1) + people(2))


def test_it_is_said_in_words(on: Stage) -> None:
    """With what to do about it."""
    left_open(on, Api.END_TXN)
    code, said = doctor("--kafka", on.cluster.bootstrap, "--job", f"{on.prefix}/{JOB}")

    assert (code, said.splitlines()) == (
        1,
        [
            f"open {on.prefix}/{JOB}/people/0: a transaction that holds its cursor in topic "
            f"{on.topic} is not ended",
            f"held topic {on.topic}, partition 0: read_committed readers are not shown the last "
            "3 offsets",
            f"1 shard of job {on.prefix}/{JOB}: start the job, wait for transaction.timeout.ms, "
            "or end them with --abort.",
        ],
    )


def test_somebody_elses_transaction_is_left_alone(on: Stage) -> None:
    """It is shown, because it holds up our readers too; it is not ours to end."""
    on.opened().apply(apply(1, people(1)))
    stranger = Producer({"bootstrap.servers": on.cluster.bootstrap, "transactional.id": on.topic})
    stranger.init_transactions(CALL_S_MAX)
    stranger.begin_transaction()
    stranger.produce(on.topic, b"x")
    assert stranger.flush(CALL_S_MAX) == 0
    where = ["--kafka", on.cluster.bootstrap, "--job", f"{on.prefix}/{JOB}"]
    code, said = doctor(*where, "--abort")

    assert code == 1
    assert "what is still held up is not ours" in said
    stranger.commit_transaction(CALL_S_MAX)
    assert told(on)[0] == 0


def test_a_job_that_runs_goes_on_after_its_transactions_were_ended(on: Stage) -> None:
    """It opens its shards anew."""
    writer = on.opened()
    writer.apply(apply(1, people(1)))
    stranger = on.cluster.producer(transactional_id=f"{on.prefix}/{JOB}/people/0")
    stranger.init_transactions(CALL_S_MAX)
    writer.apply(apply(2, people(2)))

    on.assert_holds(people(1) + people(2))


def test_mistakes_are_told_in_one_sentence(
    kafka_broker: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by every command."""
    monkeypatch.setattr("penstock.runtime.cli_doctor_kafka.TIMEOUT_S", 0.5)
    away = f"127.0.0.1:{free_port()}"

    assert doctor()[0] == 2
    assert "does not answer" in doctor("--kafka", away)[1]
    wrong = doctor("--kafka", kafka_broker.bootstrap, "--setting", "sasl.password")
    assert "was given the setting 'sasl.password': write it as name=text." in wrong[1]
    written = doctor("--kafka", kafka_broker.bootstrap, "--setting", "sasl.password=hunter2")
    assert (written[0], "hunter2" in written[1]) == (2, False)


def test_every_job_with_a_prefix_is_asked(kafka_broker: Cluster) -> None:
    """A job that nobody named is not overlooked."""
    prefix, topic = new_prefix(), kafka_broker.topic()
    sink = KafkaSink("people", kafka_broker.bootstrap, topic, transaction_prefix=prefix)
    for job in ("one", "two"):
        sink.open(target(job=job)).apply(apply(1, people(1)))
    code, said = doctor("--kafka", kafka_broker.bootstrap, "--job", f"{prefix}/", "--json")

    assert [shard["id"] for shard in json.loads(said)["shards"]] == [
        f"{prefix}/one/people/0", f"{prefix}/two/people/0",
    ]  # fmt: skip
    assert code == 0
