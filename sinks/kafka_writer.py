"""An open `KafkaSink`: for each shard and epoch one transaction.

A shard is opened when it is first written to, and stays open as long as nothing fails. Looking at a
cursor opens nothing, so that anybody may look at a job that runs; only a transaction that was left
half done, and hides the cursor, is ended by whoever looks.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.errors import Invalid, Unavailable
from penstock.ids import Token
from penstock.sinks.cursors import Apply, Cursor, is_applied
from penstock.sinks.kafka_clients import Clients
from penstock.sinks.kafka_cursor import Begun, Note, shard_name
from penstock.sinks.kafka_errors import Replaced
from penstock.sinks.kafka_messages import Chunk
from penstock.sinks.kafka_shard import (
    PLAIN,
    OpenShard,
    open_shard,
    open_shard_unread,
    read_note,
)
from penstock.sinks.protocol import Target

__all__ = ["Described", "KafkaWriter", "Messages"]

OPENS_MAX = 3
"""How often one call takes a shard back from others who may have it as well."""
LOOK_S = 3.0
"""How long a transaction may hide a cursor from somebody who only looks."""


class Described(Protocol):
    """What a writer must know of its sink."""

    @property
    def name(self) -> str:
        """How manifests and messages call it."""

    @property
    def topic(self) -> str:
        """Where messages go."""

    @property
    def transaction_prefix(self) -> str:
        """What its transactional ids and groups begin with."""


class Messages(Protocol):
    """How rows become messages."""

    def of(self, asked: Apply, columns: pa.Schema) -> Iterator[Chunk]:
        """The messages of one epoch of one shard, in their order."""


@dataclass(slots=True, kw_only=True)
class KafkaWriter:
    """A topic that one sink of one job writes to."""

    clients: Clients
    sink: Described
    messages: Messages
    target: Target
    _shards: dict[int, OpenShard] = field(default_factory=dict)
    _known: set[int] = field(default_factory=set)
    """Shards of which the root knows that they have begun."""

    def read_cursor(self, shard: int) -> Cursor | None:
        """How far a shard is."""
        opened = self._shards.get(shard)
        note = self._look(shard) if opened is None else opened.note
        if note is None:
            self._check_new(shard)
            return None
        return note.cursor

    def apply(self, asked: Apply) -> None:
        """Rows and cursor, or neither."""
        last = None
        for _ in range(OPENS_MAX):
            try:
                self._guarded(asked.shard, lambda: self._apply(asked))
                return
            except Replaced as replaced:
                # By a later leader, by somebody who looked, or because it took too long: the
                # cursor tells, which is read again.
                last = replaced
        assert last is not None
        raise Unavailable(last.subject, f"{last.found}, {OPENS_MAX} times in a row", last.advice)

    def accept(self, shard: int, cursor: Cursor, token: Token) -> None:
        """Put the cursor here, in a transaction without rows."""
        self._guarded(shard, lambda: self._accept(shard, Note(token, cursor)))

    def close(self) -> None:
        """Let the producers go. None of them has anything open."""
        self._shards.clear()

    def _apply(self, asked: Apply) -> None:
        """One try.

        1. Open the shard, unless it is: shut out everybody else, then read its cursor.
        2. See that it has begun: a claim in Kafka, then an object in the root, then rows.
        3. Applied already, or to be refused: change nothing.
        4. Rows and cursor in one transaction.
        """
        shard = self._begun(asked.shard, asked.token)  # 1, 2
        held = None if shard.note is None else shard.note.held_for(asked)
        if not is_applied(asked, held):  # 3
            chunks = self.messages.of(asked, self.target.columns)
            self._transact(asked.shard, shard, Note(asked.token, asked.cursor), chunks)  # 4

    def _accept(self, number: int, note: Note) -> None:
        if number not in self._shards:
            name = self._name(number)
            self._shards[number] = open_shard_unread(self.clients, self.sink.topic, name)
        self._transact(number, self._shards[number], note)
        self._remember(number)

    def _begun(self, number: int, token: Token) -> OpenShard:
        """The shard, open, of which Kafka has a note and the root an object.

        1. The note first: a crash after it leaves a claim, which is no cursor and does no harm.
        2. Then the object. If the note is ever missing from here on, Kafka has forgotten it.
        """
        shard = self._open(number)
        if shard.note is None:
            self._check_new(number)
            self._transact(number, shard, Note.claim(token))  # 1
            shard = self._open(number)
        self._remember(number)  # 2
        return shard

    def _transact(
        self, number: int, shard: OpenShard, note: Note, chunks: Iterable[Chunk] = ()
    ) -> None:
        """Give a shard messages and a cursor. One whose line had trouble is opened anew for the
        next."""
        if not shard.transact(note, chunks):
            self._shards.pop(number, None)

    def _open(self, number: int) -> OpenShard:
        if number not in self._shards:
            name = self._name(number)
            self._shards[number] = open_shard(self.clients, self.sink.topic, name)
        return self._shards[number]

    def _guarded(self, number: int, work: Callable[[], None]) -> None:
        """After a failure of any kind nothing is known of a shard any more."""
        try:
            work()
        except BaseException as failure:
            shard = self._shards.pop(number, None)
            # Where nobody answers there is nobody to be told.
            if shard is not None and not isinstance(failure, Unavailable):
                shard.abort()
            raise

    def _look(self, number: int) -> Note | None:
        """Read a cursor without disturbing whoever writes."""
        patience_s = min(LOOK_S, self.clients.timeout_s)
        place = (self.clients, self.sink.topic, self._name(number))
        try:
            return read_note(*place, patience_s)
        except Unavailable:
            read_note(*place, self.clients.timeout_s, PLAIN)  # it is not Kafka's fault
        found: list[Note | None] = []
        self._guarded(number, lambda: found.append(self._open(number).note))
        return found[0]

    def _check_new(self, number: int) -> None:
        """A shard without a note must be one that never had any."""
        if self._begun_object.is_written(number):
            raise Invalid(
                f"{self.clients.place}, shard {number}",
                "has begun, and Kafka has no cursor of it any more: it forgets those of groups "
                "that are quiet for offsets.retention.minutes, and of topics that are removed",
                "see which epoch is the last in the topic; if that is HEAD's, or if what it lacks "
                "may be left out, have the sink go on from HEAD with `penstock sinks accept`; "
                "else give it a new topic",
            )

    def _remember(self, number: int) -> None:
        if number not in self._known:
            self._begun_object.write(number, self._name(number))
            self._known.add(number)

    @property
    def _begun_object(self) -> Begun:
        return Begun(self.target.store, self.target.job, self.sink.name, self.sink.topic)

    def _name(self, number: int) -> str:
        prefix = self.sink.transaction_prefix
        return shard_name(prefix, self.target.job, self.sink.name, number)
