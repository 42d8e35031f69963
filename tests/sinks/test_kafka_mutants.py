"""What keeps the Kafka sink safe is needed: without it, the stories of its tests go wrong."""

import pytest

from tests.mutants.kafka import MUTANTS, KafkaMutant
from tests.support.kafka import Cluster
from tests.support.kafka_stories import stage


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_planted_bug_of_the_kafka_sink_is_caught(
    mutant: KafkaMutant, kafka_broker: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that cannot fail is no check: each known mistake, made on purpose, is found."""
    monkeypatch.setattr("penstock.sinks.kafka_writer.LOOK_S", 0.5)
    with stage(kafka_broker) as on:
        caught = mutant.caught(on)

    assert caught is not None, f"{mutant.name}: {mutant.bug}"
    assert not caught.startswith("Unavailable"), f"{mutant.name}: the broker was away: {caught}"
