"""Transactions that somebody left open: who is held up by them, and how they are ended.

An open transaction hides everything behind it from read_committed readers. One that its leader
left behind ends when the next leader opens the shard, or when it times out; one that still hangs
after that needs a person. Kafka's admin client has no list of transactions, but two things tell: a
partition whose last stable offset stays behind its end, and a cursor that is not stable. The
shards of a job are known by their groups, which have the names of their transactional ids; and
whoever opens a name ends what is open under it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from penstock.clock import Clock
from penstock.errors import Unavailable
from penstock.sinks.kafka_clients import Clients, Heard
from penstock.sinks.kafka_cursor import HOME
from penstock.sinks.kafka_shard import read_note, take_name

__all__ = ["HeldBack", "OpenTransactions", "ShardSeen", "Transactions"]

STABLE_S = 2.0
"""How long a cursor may take to be stable, and a partition to move on, before it counts."""


@dataclass(frozen=True, slots=True, order=True)
class ShardSeen:
    """A shard of some job's sink, and the topic that its cursor is for."""

    name: str
    """Its transactional id: prefix, job, sink and number."""
    topic: str
    epoch: int
    is_stable: bool
    """Whether no transaction can change its cursor."""


@dataclass(frozen=True, slots=True, order=True)
class HeldBack:
    """A partition that read_committed readers cannot read to its end."""

    topic: str
    partition: int
    offsets: int
    """How many they are not shown."""


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """What was found."""

    shards: Sequence[ShardSeen]
    held_back: Sequence[HeldBack]

    @property
    def hanging(self) -> bool:
        """Whether somebody is held up."""
        return bool(self.held_back) or not all(shard.is_stable for shard in self.shards)


class Transactions:
    """The transactions of all jobs, or of one, whose names begin alike."""

    def __init__(self, clients: Clients, job: str | None, clock: Clock) -> None:
        self._clients = clients
        self._begins = f"{clients.place.prefix}/" + (f"{job}/" if job else "")
        self._clock = clock
        self._heard = Heard()
        self._admin: AdminClient = clients.admin(self._heard)

    def look(self) -> OpenTransactions:
        """What is open, and stays so while we look: one that a job is just about to commit is
        gone at the second look."""
        places = [place for name in self._names() for place in self._places(name)]
        topics = {topic for _, topic, _ in places}
        before = self._behind(topics)
        shards = [
            ShardSeen(name, topic, epoch, self._is_stable(name, topic))
            for name, topic, epoch in places
        ]
        if not any(ends.held for ends in before.values()):
            return OpenTransactions(sorted(shards), ())
        self._clock.sleep(STABLE_S)
        return OpenTransactions(sorted(shards), _stayed(before, self._behind(topics)))

    def end(self, shards: Iterable[ShardSeen]) -> None:
        """End what is open under the names of shards. A job that runs meanwhile has to open them
        anew, and does so by itself."""
        for name in sorted({shard.name for shard in shards}):
            take_name(self._clients, name)

    def _names(self) -> list[str]:
        """Every shard there is: its group has its name."""
        asked = self._admin.list_consumer_groups(request_timeout=self._clients.timeout_s)
        with self._clients.explained(self._heard, self._admin):
            listed = self._clients.answer(self._admin, self._heard, asked)
            for error in listed.errors:  # a broker that does not answer may have some
                raise KafkaException(error)
        names = (group.group_id for group in listed.valid)
        return sorted(name for name in names if name.startswith(self._begins))

    def _places(self, name: str) -> list[tuple[str, str, int]]:
        """The topics that a shard has a cursor for, and how far it is."""
        asked = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name)], request_timeout=self._clients.timeout_s
        )
        with self._clients.explained(self._heard, self._admin):
            found = self._clients.answer(self._admin, self._heard, asked[name])
        return [
            (name, place.topic, place.offset)
            for place in found.topic_partitions or ()
            if place.partition == HOME and place.offset >= 0
        ]

    def _is_stable(self, name: str, topic: str) -> bool:
        try:
            read_note(self._clients, topic, name, STABLE_S)
        except Unavailable:
            return False
        return True

    def _behind(self, topics: Iterable[str]) -> Mapping[TopicPartition, "_Ends"]:
        """Where each partition ends, for each of the two kinds of readers."""
        wanted = {
            place: OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for place in self._partitions(sorted(topics))
        }
        if not wanted:
            return {}
        stable = self._offsets(wanted, IsolationLevel.READ_COMMITTED)
        every = self._offsets(wanted, IsolationLevel.READ_UNCOMMITTED)
        return {place: _Ends(stable[place], every[place]) for place in wanted}

    def _partitions(self, topics: list[str]) -> list[TopicPartition]:
        if not topics:
            return []
        asked = self._admin.describe_topics(TopicCollection(topics))
        with self._clients.explained(self._heard, self._admin):
            found = [
                self._clients.answer(self._admin, self._heard, each) for each in asked.values()
            ]
        return [TopicPartition(topic.name, each.id) for topic in found for each in topic.partitions]

    def _offsets(
        self, wanted: dict[TopicPartition, OffsetSpec], isolation: IsolationLevel
    ) -> dict[TopicPartition, int]:
        asked = self._admin.list_offsets(wanted, isolation_level=isolation)
        with self._clients.explained(self._heard, self._admin):
            return {
                place: self._clients.answer(self._admin, self._heard, each).offset
                for place, each in asked.items()
            }


@dataclass(frozen=True, slots=True)
class _Ends:
    stable: int
    every: int

    @property
    def held(self) -> int:
        return max(0, self.every - self.stable)


def _stayed(
    before: Mapping[TopicPartition, _Ends], after: Mapping[TopicPartition, _Ends]
) -> list[HeldBack]:
    """The partitions that are held back by what they were held back by before."""
    return sorted(
        HeldBack(place.topic, place.partition, ends.held)
        for place, ends in after.items()
        if ends.held and ends.stable == before[place].stable
    )
