"""Where a shard of a Kafka sink is: an offset of a group of its own, and an object in the root.

The cursor is the offset that the shard's group has committed in partition 0 of the topic. It is
sent to the transaction that the rows are in, so it is there if and only if they are. The offset is
the epoch; the note beside it is the whole cursor and the token.

Kafka forgets the offsets of a group that has been quiet for long (offsets.retention.minutes, a
week unless told). A shard that has taken rows and has no cursor would take them all again. So a
shard begins with a claim, a note without a cursor, then an object in the job's root says that it
has begun, and only then come rows: no cursor and no object is a new shard, no cursor and an object
is one that Kafka has forgotten.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Self

from confluent_kafka import TopicPartition

from penstock.checkpoint.formats import Sealed, seal
from penstock.checkpoint.store import ObjectStore
from penstock.errors import Invalid
from penstock.fields import FormatNumber, Text
from penstock.ids import Epoch, Generation, Key, Token, check_name
from penstock.sinks.cursors import Apply, Cursor, Held

__all__ = ["Begun", "Note", "note_of", "shard_name"]

NOTE_FORMAT = "1"
BEGUN_FORMAT = 1
HOME = 0
"""The partition whose offset is the cursor. Every topic has it."""

_NOTE = re.compile(rf"{NOTE_FORMAT} (\d+)(?: (\d+) (\d+) ([0-9a-f]+))?")


def shard_name(prefix: str, job: str, sink: str, shard: int) -> str:
    """The transactional id of a shard, and its group: without a generation, so that whoever opens
    the shard shuts out everybody who has ever had it open. Names hold no slash, so no two shards
    have one name."""
    return f"{prefix}/{check_name('job', job)}/{sink}/{shard}"


@dataclass(frozen=True, slots=True)
class Note:
    """What is written beside a shard's offset."""

    token: Token
    cursor: Cursor | None
    """None: a claim, before the first rows."""

    @classmethod
    def claim(cls, token: Token) -> Self:
        """What a shard begins with."""
        return cls(token, None)

    def at(self, topic: str) -> TopicPartition:
        """As an offset to be committed."""
        cursor = self.cursor
        if cursor is None:
            return TopicPartition(topic, HOME, 0, metadata=f"{NOTE_FORMAT} {self.token}")
        parts = (self.token, cursor.generation, cursor.epoch, f"{cursor.mark:x}")
        text = " ".join(map(str, (NOTE_FORMAT, *parts)))
        return TopicPartition(topic, HOME, cursor.epoch, metadata=text)

    def held_for(self, asked: Apply) -> Held | None:
        """What `is_applied` decides by. One that has heard of a later leader and taken nothing yet
        refuses as if it had."""
        if self.cursor is not None:
            return Held(self.cursor, self.token)
        return Held(asked.cursor, self.token) if self.token > asked.token else None


def note_of(where: str, found: TopicPartition) -> Note | None:
    """The note beside a committed offset; None if there is no such offset."""
    if found.offset < 0:
        return None
    note = _parsed(found.metadata or "")
    if note is None or note.at(found.topic).offset != found.offset:
        raise Invalid(
            where,
            f"has a cursor that is not Penstock's: offset {found.offset}, "
            f"note {(found.metadata or '')[:80]!r}",
            "see who else commits offsets there; then have the sink go on from HEAD with "
            "`penstock sinks accept`",
        )
    return note


def _parsed(text: str) -> Note | None:
    found = _NOTE.fullmatch(text)
    if found is None:
        return None
    token, generation, epoch, mark = found.groups()
    if mark is None:
        return Note.claim(Token(int(token)))
    cursor = Cursor(Generation(int(generation)), Epoch(int(epoch)), int(mark, 16))
    return Note(Token(int(token)), cursor)


class _Document(Sealed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Says that a shard has a cursor, or had one."""

    format: FormatNumber = BEGUN_FORMAT
    topic: Text
    group: Text


@dataclass(frozen=True, slots=True)
class Begun:
    """The object in a job's root that says that a shard has begun. It is never changed."""

    store: ObjectStore
    job: str
    sink: str
    topic: str

    def is_written(self, shard: int) -> bool:
        """Whether the shard has begun, as far as the root knows."""
        return self.store.get(self._key(shard)) is not None

    def write(self, shard: int, group: str) -> None:
        """Say so. Whether or not it is there already, it is the same."""
        self.store.put(self._key(shard), seal(_Document(topic=self.topic, group=group)))

    def _key(self, shard: int) -> Key:
        """A topic's name can be longer than a segment of a key, and begin with a dot."""
        topic = hashlib.sha256(self.topic.encode()).hexdigest()[:16]
        return Key(f"cursors/{check_name('job', self.job)}/{self.sink}/{shard}-{topic}.json")
