"""TOPIC: what a topic is. Written when it is made, and changed only by swap.

Its schema may grow: columns that may be null can be added at the end. Segments say which columns
they were written with, so old ones need not be touched. Partitions may be added and never removed;
rows that are there stay where they are.
"""

import base64
from functools import lru_cache
from typing import Any, Self

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.checkpoint.formats import Sealed, seal, unseal
from penstock.clock import Chance
from penstock.effects import Steps, Wait
from penstock.errors import Corrupt, Gone, Invalid
from penstock.fencing.register import Landed, Register, Seen, Won, read, swap
from penstock.fields import (
    Count,
    FormatNumber,
    Int64,
    Name,
    PartitionNumber,
    SchemaText,
    Text,
)
from penstock.ids import CommitId
from penstock.points import Point
from penstock.sources.log_layout import TOPIC_KEY
from penstock.sources.protocol import META_NAME
from penstock.state.key_hash import key_groups

__all__ = [
    "PARTITIONS_MAX", "TOPIC_REGISTER", "Topic", "change_topic", "check_topic", "create_topic",
    "read_topic",
    "with_columns",
]  # fmt: skip

TOPIC_FORMAT = 1
PARTITIONS_MAX = 256
RECENT_MAX = 32
CHANGES_MAX = 100
TOPICS_KEPT = 64
"""How many are remembered as they were decoded: one is read again and again, and seldom changed."""
CHANGEABLE = {
    "compacted", "partitions", "retention_age_ms", "retention_bytes", "schema",
    "tombstone_grace_ms",
}  # fmt: skip
RESERVED = (META_NAME, "_offset", "_at_ms", "_last", "_row")


class Topic(Sealed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One topic."""

    format: FormatNumber = TOPIC_FORMAT
    id: Name
    """Unique: a topic that is removed and made anew is another one."""
    version: Count = 1
    partitions: PartitionNumber
    columns: SchemaText
    """Its Arrow schema, as Arrow writes one, in base 64."""
    key: tuple[Text, ...] = ()
    """The columns that say which partition a row belongs to, and which rows follow one another."""
    event_time: Text | None = None
    """The column that says when a row happened."""
    compacted: bool = False
    retention_age_ms: Int64 | None = None
    retention_bytes: Int64 | None = None
    tombstone_grace_ms: Int64 = 86_400_000
    """How long a compaction keeps the removal of a key, for readers to learn of it."""
    recent: tuple[CommitId, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.columns)))

    @property
    def rank(self) -> tuple[int]:
        """Grows with every change."""
        return (self.version,)

    def tells_of(self, change: Self, expected: Self | None) -> Landed:
        """Whether `change`, made to `expected`, is part of this one's past."""
        if change.recent[-1] in self.recent:
            return Landed.YES
        before = 0 if expected is None else expected.version
        return Landed.NO if self.version - before < RECENT_MAX else Landed.UNTOLD

    def changed(self, commit: CommitId, **fields: Any) -> Self:
        """The next version, with these fields changed."""
        recent = (*self.recent, commit)[-RECENT_MAX:]
        return msgspec.structs.replace(self, version=self.version + 1, recent=recent, **fields)


@lru_cache(maxsize=TOPICS_KEPT)
def _decode(body: bytes) -> Topic:
    """A topic as it is stored; `Corrupt` if no topic can be as it says."""
    topic = unseal(TOPIC_KEY, body, Topic, TOPIC_FORMAT)
    try:
        check_topic(TOPIC_KEY, topic)
    except (Invalid, pa.ArrowException, ValueError) as why:
        found = f"says what no topic can be ({why})"
        raise Corrupt(TOPIC_KEY, found, "restore it from a copy: it was altered or forged") from why
    return topic


TOPIC_REGISTER: Register[Topic] = Register(TOPIC_KEY, seal, _decode)
"""Where TOPIC is and how it is written."""


def create_topic(name: str, topic: Topic) -> Steps[Topic]:
    """Make a topic where there is none."""
    check_topic(name, topic)
    outcome = yield from swap(
        TOPIC_REGISTER, None, topic, Point.LOG_TOPIC_SWAP, Point.LOG_TOPIC_SETTLE
    )
    if not isinstance(outcome, Won):
        raise Invalid(name, "exists already", "open it, or choose another name")
    return outcome.seen.document


def read_topic(name: str) -> Steps[Seen[Topic]]:
    """The topic as it is now."""
    seen: Seen[Topic] | None = yield from read(TOPIC_REGISTER, Point.LOG_TOPIC)
    if seen is None:
        raise Gone(name, "does not exist", "make it with `penstock topic create`")
    return seen


def change_topic(name: str, chance: Chance, **fields: Any) -> Steps[Topic]:
    """Change a topic: its columns, its partitions, how much it keeps."""
    for _ in range(CHANGES_MAX):
        seen = yield from read_topic(name)
        wanted = _checked(name, seen.document, fields)
        if not wanted:
            return seen.document
        after = seen.document.changed(CommitId(chance.unique()), **wanted)
        outcome = yield from swap(
            TOPIC_REGISTER, seen, after, Point.LOG_TOPIC_SWAP, Point.LOG_TOPIC_SETTLE
        )
        if isinstance(outcome, Won):
            return outcome.seen.document
        yield Wait(chance.fraction() * 0.05)
    raise Invalid(name, "is changed by others all the time", "agree who changes it")


def _checked(name: str, topic: Topic, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields that differ, if they may."""
    fixed = sorted(set(fields) - CHANGEABLE)
    if fixed:
        raise Invalid(name, f"cannot change its {fixed[0]}", f"{', '.join(sorted(CHANGEABLE))} can")
    wanted = dict(fields)
    schema = wanted.pop("schema", None)
    if schema is not None:
        wanted["columns"] = with_columns(name, topic.schema, schema)
    partitions = wanted.get("partitions", topic.partitions)
    if isinstance(partitions, int) and partitions < topic.partitions:
        raise Invalid(
            name,
            f"has {topic.partitions} partitions and cannot have {partitions}",
            f"they can only become more, up to {PARTITIONS_MAX}",
        )
    check_topic(name, msgspec.structs.replace(topic, **wanted))
    return {field: value for field, value in wanted.items() if getattr(topic, field) != value}


def check_topic(name: str, topic: Topic) -> None:
    """Raise unless a topic can be as it says."""
    schema = topic.schema
    if not isinstance(topic.partitions, int) or not 1 <= topic.partitions <= PARTITIONS_MAX:
        raise Invalid(
            name, f"cannot have {topic.partitions!r} partitions", f"use 1 to {PARTITIONS_MAX}"
        )
    if min(topic.retention_age_ms or 0, topic.retention_bytes or 0, topic.tombstone_grace_ms) < 0:
        raise Invalid(name, "keeps less than nothing", "give lengths of time and sizes, or none")
    for column in (*topic.key, *([topic.event_time] if topic.event_time else [])):
        if column not in schema.names:
            raise Invalid(f"{name}, column {column!r}", "does not exist", "correct its name")
    for column in topic.key:
        kind = schema.field(column).type
        if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
            raise Invalid(f"{name}, column {column!r}", f"is {kind}", "use string or binary")
        key_groups([pa.nulls(0, kind)])  # raises for a type that cannot be a key
    if topic.compacted and not topic.key:
        raise Invalid(name, "is compacted and has no key", "say which columns are its key")
    if topic.event_time:
        kind = schema.field(topic.event_time).type
        if not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind)):
            raise Invalid(
                f"{name}, column {topic.event_time!r}",
                f"is {kind} and cannot be the event time",
                "use a timestamp, or whole milliseconds since 1970",
            )


def with_columns(name: str, before: pa.Schema | None, after: pa.Schema) -> str:
    """A schema as it is written down, if it may follow the one before."""
    for field in after:
        if field.name in RESERVED or after.names.count(field.name) > 1:
            raise Invalid(f"{name}, column {field.name!r}", "cannot be", "give it another name")
    for field in before or ():
        at = after.get_field_index(field.name)
        if at < 0:
            raise _refused(name, field.name, "is left out, and rows that are there have it")
        if not after.field(at).equals(field):
            found = f"was {_spell(field)} and would be {_spell(after.field(at))}"
            raise _refused(name, field.name, found)
    known = () if before is None else before.names
    for field in after:
        if before is not None and field.name not in known and not field.nullable:
            raise _refused(name, field.name, "is new and may not be null, and older rows lack it")
    ordered = [*(before or ()), *(field for field in after if field.name not in known)]
    return base64.b64encode(pa.schema(ordered).serialize().to_pybytes()).decode()


def _refused(name: str, column: str, found: str) -> Invalid:
    return Invalid(
        f"{name}, column {column!r}", found, "add columns that may be null, or make a new topic"
    )


def _spell(field: pa.Field) -> str:
    return f"{field.type}" + ("" if field.nullable else " not null")
