"""The topic behind a Kafka sink: found, or made; and whether it can take every row it is given.

What a broker would refuse for ever is refused when the sink is opened, as far as the broker tells.
It may not let us ask for the settings of a topic: then nothing is known of them, and an error at
the first message says what they are.
"""

from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    ConfigResource,
    NewTopic,
    TopicDescription,
)

from penstock.errors import Invalid, Unavailable
from penstock.sinks.kafka_clients import Clients, Heard
from penstock.sinks.kafka_errors import as_error

__all__ = ["Wanted", "prepare"]

LOOKS_MAX = 50
LOOK_S = 0.1
"""How often a topic is looked for that was just made, and how long to wait in between."""
DEFAULT_REPLICAS = -1
"""As many as the broker makes of its own accord."""
MISSING, TAKEN = "UNKNOWN_TOPIC_OR_PART", "TOPIC_ALREADY_EXISTS"
FORBIDDEN = "TOPIC_AUTHORIZATION_FAILED"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a sink says of its topic."""

    topic: str
    create: bool
    partitions: int | None
    """At least; it may have grown since it was made. None: whatever it has."""
    made_with: int
    """How many it gets if it is made, and nothing else is said."""
    has_key: bool
    message_bytes_max: int
    is_changelog: bool = False
    """Whether it must be compacted, and have that very number of partitions."""


def prepare(clients: Clients, wanted: Wanted) -> None:
    """See that the topic is there and takes such messages; make it, if that was asked for."""
    desk = _Desk(clients, wanted)
    found = desk.found()
    if found is None:
        found = desk.made()
    desk.check(found)


class _Desk:
    """Where a topic's owner asks."""

    def __init__(self, clients: Clients, wanted: Wanted) -> None:
        self._clients = clients
        self._wanted = wanted
        self._heard = Heard()
        self._admin: AdminClient = clients.admin(self._heard)

    def found(self) -> TopicDescription | None:
        """The topic, if there is one."""
        asked = self._admin.describe_topics(
            TopicCollection([self._wanted.topic]),
            include_authorized_operations=True,
            request_timeout=self._clients.timeout_s,
        )
        return self._answer(asked[self._wanted.topic], MISSING if self._wanted.create else "")

    def made(self) -> TopicDescription:
        """The topic, made by us or by somebody who was faster."""
        wanted = self._wanted
        partitions = wanted.made_with if wanted.partitions is None else wanted.partitions
        config = {"cleanup.policy": "compact"} if wanted.is_changelog else {}
        new = NewTopic(wanted.topic, partitions, DEFAULT_REPLICAS, config=config)
        asked = self._admin.create_topics([new], request_timeout=self._clients.timeout_s)
        self._answer(asked[wanted.topic], TAKEN)
        return self._appeared()

    def _appeared(self) -> TopicDescription:
        """Brokers hear of a topic one after the other."""
        for _ in range(LOOKS_MAX):
            found = self.found()
            if found is not None:
                return found
            self._admin.poll(LOOK_S)
        raise Unavailable(str(self._clients.place), "was made and is not seen", "wait for it")

    def check(self, found: TopicDescription) -> None:
        """Raise `Invalid` if it is not such a topic."""
        where = str(self._clients.place)
        self._check_partitions(len(found.partitions))
        allowed = found.authorized_operations
        if allowed is not None and not {AclOperation.WRITE, AclOperation.ALL} & set(allowed):
            raise Invalid(where, "may not be written by this user", "allow it WRITE on the topic")
        self._check_settings(self._settings())

    def _check_partitions(self, has: int) -> None:
        wanted = self._wanted
        is_other = wanted.is_changelog and has != wanted.partitions
        if is_other or (wanted.partitions is not None and has < wanted.partitions):
            found = f"has {has} partitions, and {wanted.partitions} are needed"
            raise Invalid(str(self._clients.place), found, "let it have so many, or use another")

    def _settings(self) -> dict[str, str]:
        """Those of the topic, as far as we are told."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, self._wanted.topic)
        asked = self._admin.describe_configs([resource], request_timeout=self._clients.timeout_s)
        told = self._answer(asked[resource], FORBIDDEN)
        return {name: entry.value for name, entry in (told or {}).items()}

    def _answer(self, future: "Future[T]", expected: str) -> T | None:
        """What we are told; None if it is the error that was to be expected."""
        with self._clients.explained(self._heard, self._admin):
            try:
                return self._clients.answer(self._admin, self._heard, future)
            except KafkaException as failure:
                if as_error(failure).name() == expected:
                    return None
                raise

    def _check_settings(self, settings: dict[str, str]) -> None:
        where, bytes_max = str(self._clients.place), self._wanted.message_bytes_max
        topic_max = int(settings.get("max.message.bytes", bytes_max))
        if topic_max < bytes_max:
            found = f"takes messages of {topic_max:,} bytes, and the sink may send {bytes_max:,}"
            advice = "raise max.message.bytes of the topic, or lower message.max.bytes of the sink"
            raise Invalid(where, found, advice)
        policy = settings.get("cleanup.policy", "")
        if self._wanted.is_changelog and policy not in ("", "compact"):
            found = f"has the cleanup.policy {policy!r}, and would lose what is old"
            raise Invalid(where, found, "set it to 'compact', or use another topic")
        if "compact" in policy and not self._wanted.has_key:
            found = "is compacted, and takes no message without a key"
            raise Invalid(where, found, "give the sink a key_column")
