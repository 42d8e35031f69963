"""The two clients a source has: one that asks about topics, one that reads messages.

Both keep what they are told in passing (a broker is away, a login is refused) for the message of
whoever waits in vain; nothing is ever printed. References were looked up before: whoever makes a
client gives it secrets, and says which texts they are, so that a refusal can be shown without.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.errors import Invalid
from penstock.sources.kafka_errors import LOGIN, error_of, plain
from penstock.sources.kafka_settings import Scalar

__all__ = ["Asker", "Heard", "Reader", "Told", "open_asker", "open_reader"]


@dataclass(slots=True)
class Heard:
    """What a client said in passing."""

    login: KafkaError | None = None
    last: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        """Hear an error. That no broker is left says less than why the last one is away."""
        if error.code() in LOGIN:
            self.login = error
        elif self.last is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.last = error


@dataclass(frozen=True, slots=True)
class Told:
    """What a client is to be told, and which texts of it are secret."""

    where: str
    """How messages call the source."""
    config: Mapping[str, Scalar] = field(repr=False)
    secrets: Mapping[str, str] = field(repr=False)
    """What is never shown, by the reference that is shown in its place."""

    def key(self) -> tuple[tuple[str, Scalar], ...]:
        """What sets one client apart from another."""
        return tuple(sorted(self.config.items()))

    def unusable(self, error: Exception) -> Invalid:
        """What to raise if no client can be made of it. Raise it `from None`."""
        said = error_of(error).str() if isinstance(error, KafkaException) else str(error)
        found = f"cannot be used as it is set up ({plain(said, self.secrets)})"
        return Invalid(self.where, found, "correct its settings; they are librdkafka's")


@dataclass(slots=True)
class Asker:
    """Asks about topics and offsets."""

    handle: AdminClient
    heard: Heard

    def listen(self) -> None:
        """Hear what was said since."""
        self.handle.poll(0)

    def close(self) -> None:
        """Let go of its connections: they go with the last who knows it."""
        del self.handle


@dataclass(slots=True)
class Reader:
    """Reads messages, and tells a group how far somebody is."""

    handle: Consumer
    heard: Heard
    commits: list[tuple[KafkaError | None, list[TopicPartition]]]
    """What became of the offsets that a group was told."""

    def close(self) -> None:
        """Let go of its connections. It is in no group that it would have to leave, and the
        client's own farewell waits for brokers that are away."""
        del self.handle


def open_asker(told: Told) -> Asker:
    """A new one; nothing is sent yet."""
    heard = Heard()
    config: dict[str, Any] = {**told.config, "error_cb": heard}
    try:
        return Asker(AdminClient(config), heard)
    except (KafkaException, ValueError, TypeError) as error:
        raise told.unusable(error) from None


def open_reader(told: Told) -> Reader:
    """A new one; nothing is sent yet."""
    heard = Heard()
    commits: list[tuple[KafkaError | None, list[TopicPartition]]] = []

    def committed(error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        commits.append((error, offsets))

    config: dict[str, Any] = {**told.config, "error_cb": heard, "on_commit": committed}
    try:
        return Reader(Consumer(config), heard, commits)
    except (KafkaException, ValueError, TypeError) as error:
        raise told.unusable(error) from None
