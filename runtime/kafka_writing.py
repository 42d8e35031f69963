"""`ps.Kafka` where a sink is wanted: the same description, read the other way round.

What a reader of the topic would be given as the columns of a row is what the rows must have to be
written to it. Whoever wants more of the sink says so with `ps.KafkaSink`.
"""

from penstock.errors import Invalid
from penstock.sinks.kafka import KafkaSink
from penstock.sources.kafka import Kafka
from penstock.sources.kafka_settings import HEADERS

__all__ = ["sink_to"]

WRITTEN = ("json", "string", "bytes")


def sink_to(topic: Kafka) -> KafkaSink:
    """The sink that writes what such a source reads."""
    told = topic.told
    if not told.topics.is_one:
        found = "is not one topic by name, and rows are written to one"
        raise Invalid(f"sink to {topic.name}", found, "name one topic")
    key = None if told.key is None else told.key.format
    if told.value.format not in WRITTEN or key not in (None, *WRITTEN):
        found = f"has value={told.value.format!r} and key={key!r}"
        raise Invalid(f"sink to {topic.name}", found, f"write one of {', '.join(WRITTEN)}")
    [name] = told.topics.names
    return KafkaSink(
        name,
        told.bootstrap,
        name,
        value=told.value.format,
        key=key,
        key_column=() if key is None else told.key_column,
        deletes=told.deletes,
        headers=HEADERS if told.headers else None,
        settings=told.settings,
        timeout_s=told.timeout_s,
    )
