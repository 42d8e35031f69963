"""The topic behind a sink: found, or made; and whether it can take every row it will be given.

What a topic cannot hold is refused when the sink is opened. After an epoch is decided it would be
too late, so nothing is left to the values of a row that a task has not looked at.
"""

from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.checkpoint.perform import Handlers, perform
from penstock.clock import Chance
from penstock.effects import Steps
from penstock.errors import Gone, Invalid
from penstock.ids import CommitId
from penstock.sources.log_topic import (
    Topic,
    check_topic,
    create_topic,
    read_topic,
    with_columns,
)

__all__ = ["Wanted", "topic_for"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a sink says of its topic."""

    where: str
    """The sink and its topic, as messages call them."""
    partitions: int | None
    """At least; it may have grown since it was made. None: whatever it has."""
    made_with: int
    """How many it gets if it is made, and nothing else is said."""
    key: tuple[str, ...]
    """Empty: whatever it has."""
    event_time: str | None
    """None: whatever it has."""
    create: bool


def topic_for(wanted: Wanted, columns: pa.Schema, handlers: Handlers, chance: Chance) -> Topic:
    """The topic as it is, or as it was made; it takes rows of such columns."""
    topic = perform(_found(wanted, columns, chance), handlers)
    _check_settings(wanted, topic)
    _check_columns(wanted, topic, columns)
    return topic


def _found(wanted: Wanted, columns: pa.Schema, chance: Chance) -> Steps[Topic]:
    try:
        return (yield from read_topic(wanted.where)).document
    except Gone:
        if not wanted.create:
            advice = "make it with `penstock topic create`, or say create=True"
            raise Invalid(wanted.where, "does not exist", advice) from None
    made = Topic(
        id=chance.unique(),
        partitions=wanted.made_with if wanted.partitions is None else wanted.partitions,
        columns=with_columns(wanted.where, None, columns.remove_metadata()),
        key=wanted.key,
        event_time=wanted.event_time,
        recent=(CommitId(chance.unique()),),
    )
    check_topic(wanted.where, made)
    with suppress(Invalid):  # somebody else was faster
        yield from create_topic(wanted.where, made)
    return (yield from read_topic(wanted.where)).document


def _check_settings(wanted: Wanted, topic: Topic) -> None:
    if topic.partitions < (wanted.partitions or 1):
        found = f"has {topic.partitions} partitions, and the sink says {wanted.partitions}"
        raise Invalid(wanted.where, found, "give it more, or say fewer; or use another topic")
    if wanted.key and wanted.key != topic.key:
        found = f"has the key {_listed(topic.key)}, and the sink says {_listed(wanted.key)}"
        raise Invalid(wanted.where, found, "say the topic's; or use another topic")
    if wanted.event_time not in (None, topic.event_time):
        found = f"has the event time {topic.event_time}, and the sink says {wanted.event_time}"
        raise Invalid(wanted.where, found, "say the topic's; or use another topic")


def _check_columns(wanted: Wanted, topic: Topic, columns: pa.Schema) -> None:
    held = topic.schema
    for field in columns:
        at = held.get_field_index(field.name)
        if at < 0:
            found = f"is not in the topic, which has {', '.join(held.names)}"
            raise _column(wanted, field.name, found, "emit other columns, or add it to the topic")
        if not held.field(at).type.equals(field.type):
            found = f"is {held.field(at).type} in the topic, and the rows have {field.type}"
            raise _column(wanted, field.name, found, "emit it as the topic has it")
        if field.nullable and not held.field(at).nullable:
            found = "may not be null in the topic, and may be in the rows"
            raise _column(wanted, field.name, found, "use a topic where it may be")
    for field in held:
        if not field.nullable and field.name not in columns.names:
            found = "may not be null in the topic, and the rows do not have it"
            raise _column(wanted, field.name, found, "emit it")
    _check_told(wanted, topic, columns)


def _check_told(wanted: Wanted, topic: Topic, columns: pa.Schema) -> None:
    """Of columns with a meaning: they are there, and tasks know of those with values to refuse."""
    meanings = [(name, "key", bool(wanted.key)) for name in topic.key]
    if topic.event_time is not None:
        meanings.append((topic.event_time, "event_time", wanted.event_time is not None))
    for name, meaning, is_told in meanings:
        what = meaning.replace("_", " ")
        if name not in columns.names:
            found = f"is the {what} of the topic, and the rows do not have it"
            raise _column(wanted, name, found, "emit it")
        if not is_told and _has_values_to_refuse(columns.field(name).type, meaning):
            found = f"is the {what} of the topic, and can hold what that cannot be"
            raise _column(wanted, name, found, f"say {meaning}={name!r}: tasks check it then")


def _has_values_to_refuse(kind: pa.DataType, meaning: str) -> bool:
    """Whether some moments are too far away to be counted in microseconds."""
    if pa.types.is_timestamp(kind):
        return kind.unit in ("s", "ms")
    return meaning == "event_time" and pa.types.is_integer(kind)


def _column(wanted: Wanted, name: str, found: str, advice: str) -> Invalid:
    return Invalid(f"{wanted.where}, column {name!r}", found, advice)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"
