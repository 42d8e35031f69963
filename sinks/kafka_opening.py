"""Opening what writes to Kafka: clients are made, and the topic is looked at or made."""

from typing import TYPE_CHECKING

from penstock.sinks.kafka import KafkaSink
from penstock.sinks.kafka_clients import Clients
from penstock.sinks.kafka_errors import Place
from penstock.sinks.kafka_topic import Wanted, prepare
from penstock.sinks.kafka_writer import KafkaWriter
from penstock.sinks.protocol import Target

if TYPE_CHECKING:
    from penstock.sinks.kafka_changelog import ChangelogTopic

__all__ = ["open_changelog", "open_writer"]


def open_writer(sink: KafkaSink, target: Target) -> KafkaWriter:
    """Connect, and see that the topic takes such messages."""
    place = Place(
        f"sink {sink.name}, topic {sink.topic} of Kafka at {sink.bootstrap}",
        sink.transaction_prefix,
    )
    told = {"compression.type": sink.compression, "partitioner": sink.partitioner}
    clients = Clients(place, sink.line, told)
    wanted = Wanted(
        topic=sink.topic,
        create=sink.create,
        partitions=sink.partitions,
        made_with=target.partitions,
        has_key=bool(sink.key_column),
        message_bytes_max=sink.line.message_bytes_max,
    )
    prepare(clients, wanted)
    return KafkaWriter(clients=clients, sink=sink, messages=sink.messages, target=target)


def open_changelog(changelog: "ChangelogTopic", target: Target) -> KafkaWriter:
    """Connect, and see that the topic keeps the last record of every entry."""
    from penstock.sinks.kafka_changelog import ChangeMessages

    place = Place(
        f"changelog {changelog.topic} of Kafka at {changelog.bootstrap}",
        changelog.transaction_prefix,
    )
    clients = Clients(place, changelog.line, {"compression.type": "lz4"})
    wanted = Wanted(
        topic=changelog.topic,
        create=changelog.create,
        partitions=target.partitions,
        made_with=target.partitions,
        has_key=True,
        message_bytes_max=changelog.line.message_bytes_max,
        is_changelog=True,
    )
    prepare(clients, wanted)
    return KafkaWriter(clients=clients, sink=changelog, messages=ChangeMessages(), target=target)
