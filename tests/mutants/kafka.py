"""Planted bugs of the Kafka sink: each breaks one rule of its protocol in the way that looks most
natural. They need a broker, so they are no part of the catalogue."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.sinks import kafka_shard, kafka_writer
from penstock.sinks.kafka_clients import Clients
from penstock.sinks.kafka_shard import OpenShard
from penstock.sinks.kafka_writer import KafkaWriter
from tests.mutants.mutant import Change, planted
from tests.support import kafka_stories as stories
from tests.support.kafka_stories import Stage, Story
from tests.support.kafka_wire import Api

honest_producer = Clients.producer
honest_transact = OpenShard.transact


@dataclass(frozen=True)
class KafkaMutant:
    """One planted bug, and the story that goes wrong with it."""

    name: str
    bug: str
    changes: tuple[Change, ...]
    story: Story

    def caught(self, on: Stage) -> str | None:
        """Plant the bug, tell the story, and take the bug out again."""
        with planted(self.changes):
            try:
                self.story(on)
            except (Exception, pytest.fail.Exception) as failure:  # noqa: BLE001 - any will do
                return repr(failure)
        return None


def cursor_after_the_rows(self: Any, note: Any, chunks: Iterable[Any] = ()) -> bool:
    """Rows in one transaction, the cursor in the next."""
    with self._explained():
        self._producer.begin_transaction()
        self._send(chunks)
        self._producer.commit_transaction(self._clients.timeout_s)
    return honest_transact(self, note)


def reads_before_it_shuts(clients: Any, topic: str, name: str) -> OpenShard:
    """The cursor first, then the name."""
    found, group = kafka_shard._looked_at(clients, topic, name, clients.timeout_s)
    return OpenShard(clients, name, (*kafka_shard.take_name(clients, name), group), found)


def keeps_its_producer(self: Any, number: int, work: Callable[[], None]) -> None:
    """After an error it goes on with what it has."""
    work()


def has_a_name_of_its_own(self: Any, transactional_id: str, heard: Any) -> Any:
    """As with a generation in the transactional id: another leader has another name."""
    return honest_producer(self, f"{transactional_id}/{id(self)}", heard)


def trusts_its_line(self: Any, note: Any, chunks: Iterable[Any] = ()) -> bool:
    """A producer whose requests were sent twice is used again."""
    honest_transact(self, note, chunks)
    return True


def begins_anew(self: Any, number: int) -> None:
    """No cursor is taken for a new shard."""


MUTANTS = (
    KafkaMutant(
        "cursor",
        "the cursor outside the transaction",
        ((OpenShard, "transact", cursor_after_the_rows),),
        lambda on: stories.cut_off(on, Api.ADD_OFFSETS),
    ),
    KafkaMutant(
        "order",
        "the cursor is read before others are shut out",
        ((kafka_writer, "open_shard", reads_before_it_shuts),),
        stories.overtaken_while_opening,
    ),
    KafkaMutant(
        "producer",
        "a producer is kept after an indefinite error",
        ((KafkaWriter, "_guarded", keeps_its_producer),),
        stories.lost_answer,
    ),
    KafkaMutant(
        "generation",
        "leaders of two generations have two names",
        ((Clients, "producer", has_a_name_of_its_own),),
        lambda on: stories.zombie_of_another_generation(on, Api.ADD_OFFSETS),
    ),
    KafkaMutant(
        "line",
        "a producer that sent something twice is used again",
        ((OpenShard, "transact", trusts_its_line),),
        stories.late_request,
    ),
    KafkaMutant(
        "forgotten",
        "a cursor that Kafka has forgotten is taken for none",
        ((KafkaWriter, "_check_new", begins_anew),),
        stories.forgotten,
    ),
)
