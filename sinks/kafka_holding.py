"""What a topic of Kafka holds of a sink: its messages, up to where they are those of its cursors.

A row is compared as the message that it became: key and value, byte by byte; the headers that a
column gives it; and where it comes from, if the sink has `provenance`. The time of a message counts
where nothing else says it: in a value of JSON or in the key it is compared anyway. A tombstone is a
message like any other. In which partition a message is, and in which order, is not compared.

*Others.* Without provenance nothing in a message says whose it is. So messages are counted, and one
too many is one that nobody committed, or one that is there twice. With provenance each has a name.
Who else writes to a topic, Kafka does not tell; but a sink of Penstock has a cursor. If another one
has a cursor for the topic, only what is missing is held against anybody. Messages of a producer
that is no sink of Penstock are messages that nobody committed.

*What is gone.* Compaction and retention remove messages, and nobody can tell these from lost ones:
where the one or the other is or may be at work, no message is called missing. Nor is anything said
of a topic whose cursors Kafka has forgotten.

*While the job runs.* Kafka ends a transaction in one partition after the other, so neither cursors
nor ends of partitions tell of the other; `_moment` says how they are made to agree. Nobody is shut
out, and no transaction is ended, by whoever looks.

Who reads back needs READ and DESCRIBE on the topic and DESCRIBE on the groups of the sink; and
DESCRIBE_CONFIGS on the topic, to be told that it is not compacted.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    OffsetSpec,
)

from penstock.clock import Clock
from penstock.errors import Invalid, Unavailable
from penstock.sinks.cursors import Cursor
from penstock.sinks.kafka_clients import Clients, Heard
from penstock.sinks.kafka_cursor import Begun, Note, shard_name
from penstock.sinks.kafka_errors import Place, as_error
from penstock.sinks.kafka_shard import PLAIN, read_note
from penstock.sinks.kafka_shown import Shown
from penstock.sinks.keyed import Changes
from penstock.sinks.protocol import Target, Traits
from penstock.sinks.staged import with_places
from penstock.sources.kafka import Kafka
from penstock.sources.kafka_settings import PROMISED
from penstock.sources.protocol import Range, Span

if TYPE_CHECKING:
    from penstock.sinks.kafka import KafkaSink

__all__ = ["KafkaHolding", "hold"]

LOOKS_MAX = 30
PAUSE_S = 0.1
CURSOR_S = 3.0
"""How long a transaction may hide a cursor from whoever looks."""
AT_ONCE = 8
"""How many cursors are read at a time."""

FORBIDDEN = "TOPIC_AUTHORIZATION_FAILED"
_FIRST_SHARD = re.compile(r".+/[^/]+/[^/]+/0")
"""What the group is called that has the cursor of a sink's first shard."""


def hold(sink: "KafkaSink", target: Target, clock: Clock) -> "KafkaHolding":
    """The topic as it is when its cursors and its ends agree.

    1. See that there is a topic. It is not made.
    2. Find a moment.
    3. Ask who else writes there: a sink has a cursor before it has messages, so of whoever has
       some before the ends, that is known by now.
    """
    look = _Look(sink, target)
    look.spans()  # 1
    moment = _moment(look, clock)  # 2
    is_shared, settings = look.is_shared(), look.settings()  # 3
    shown = Shown.of(sink, settings)
    traits = Traits(
        has_places=sink.provenance,
        is_settled=moment.is_settled,
        others="other sinks write to the topic" if is_shared else "",
        is_shared=is_shared,
        forgets=_forgets(settings, moment.spans),
        left_out=shown.left_out,
    )
    return KafkaHolding(sink, look.source, moment, shown, traits)


def _forgets(settings: Mapping[str, str] | None, spans: Mapping[str, Span]) -> str:
    """Why messages may be missing that were there."""
    if any(span.earliest > 0 for span in spans.values()):
        return "its retention has removed messages"
    if settings is None:
        return "whether the topic is compacted is not told to this user"
    return "the topic is compacted" if "compact" in settings.get("cleanup.policy", "") else ""


@dataclass(frozen=True, slots=True)
class _Moment:
    cursors: Sequence[Cursor | None]
    spans: Mapping[str, Span]
    """The offsets in which every message is that the cursors speak of."""
    is_settled: bool
    """Whether there is no other message of the sink in them."""


def _moment(look: "_Look", clock: Clock) -> _Moment:
    """Cursors, and the ends that belong to them.

    1. Read the cursors. Every message of their epochs is in the topic, perhaps not yet visible.
    2. See where partitions end, visible or not. What the cursors speak of lies before that.
    3. Wait until everything before that is decided, so that it is visible or never will be.
    4. Read the cursors again. A transaction that is decided has hidden its cursor before, and does
       so until that has changed: so nothing before the ends is of a later epoch than these say.
    5. If they are the same, that is the moment. If not, look again; or, if messages say of which
       epoch they are, let whoever compares them part those that came later.
    """
    before = look.cursors()  # 1
    for _ in range(LOOKS_MAX):
        ends = look.ends()  # 2
        spans = _decided(look, ends, clock)  # 3
        after = look.cursors()  # 4
        if before == after:  # 5
            return _Moment(after, spans, is_settled=True)
        last, before = _Moment(before, spans, is_settled=False), after
    if look.sink.provenance:
        return last
    raise Unavailable(
        look.where,
        "changes faster than it can be looked at, and its messages do not say of which epoch they "
        "are",
        "look when it is quieter, or let the sink have provenance=True",
    )


def _decided(look: "_Look", ends: Mapping[str, int], clock: Clock) -> Mapping[str, Span]:
    """The offsets of all partitions, once no transaction hides any before these ends."""
    waited_s = 0.0
    while True:
        spans = look.spans()
        behind = [number for number, end in ends.items() if spans[number].latest < end]
        if not behind:
            return {number: spans[number] for number in ends}
        if waited_s >= look.clients.timeout_s:
            found = f"has a transaction open in partition {behind[0]} that hides what is behind it"
            advice = "wait until it ends; `penstock doctor --kafka` tells whose it is"
            raise Unavailable(look.where, found, advice)
        clock.sleep(PAUSE_S)
        waited_s += PAUSE_S


class _Look:
    """Asks Kafka, and changes nothing."""

    def __init__(self, sink: "KafkaSink", target: Target) -> None:
        self.sink = sink
        self.where = f"sink {sink.name}, topic {sink.topic} of Kafka at {sink.bootstrap}"
        self.clients = Clients(Place(self.where, sink.transaction_prefix), sink.line, {})
        self.source = Kafka(
            sink.bootstrap,
            sink.topic,
            key="bytes",
            headers=sink.provenance or sink.headers is not None,
            settings={name: each for name, each in sink.settings.items() if name not in PROMISED},
            timeout_s=sink.timeout_s,
        )
        self._heard = Heard()
        self._admin: AdminClient = self.clients.admin(self._heard)
        self._name = partial(shard_name, sink.transaction_prefix, target.job, sink.name)
        begun = Begun(target.store, target.job, sink.name, sink.topic)
        # Before any cursor is read: a shard has a note before the root knows that it has begun.
        self._begun = {n: begun.is_written(n) for n in range(sink.shards(target.partitions))}

    def spans(self) -> Mapping[str, Span]:
        """What read_committed readers are shown of each partition."""
        return self.source.spans()

    def ends(self) -> dict[str, int]:
        """Where each partition ends for readers who are shown everything."""
        wanted = {
            TopicPartition(self.sink.topic, int(number)): OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for number in self.spans()
        }
        asked = self._admin.list_offsets(
            wanted,
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=self.clients.timeout_s,
        )
        found = {str(place.partition): self._answer(each).offset for place, each in asked.items()}
        if any(end < 0 for end in found.values()):  # so the client says that a leader is away
            raise Unavailable(self.where, "does not say where it ends", "wait for its brokers")
        return found

    def cursors(self) -> list[Cursor | None]:
        """How far each shard is."""
        with ThreadPoolExecutor(min(AT_ONCE, len(self._begun))) as pool:
            return list(pool.map(self._cursor, self._begun))

    def is_shared(self) -> bool:
        """Whether another sink has a cursor for the topic."""
        asked = self._admin.list_consumer_groups(request_timeout=self.clients.timeout_s)
        names = {group.group_id for group in self._answer(asked).valid} - {self._name(0)}
        first = sorted(name for name in names if _FIRST_SHARD.fullmatch(name))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return any(pool.map(self._has_cursor, first))

    def settings(self) -> dict[str, str] | None:
        """Those of the topic; None if we are not told."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.sink.topic)
        asked = self._admin.describe_configs([resource], request_timeout=self.clients.timeout_s)
        with self.clients.explained(self._heard, self._admin):
            try:
                told = self.clients.answer(self._admin, self._heard, asked[resource])
            except KafkaException as failure:
                if as_error(failure).name() == FORBIDDEN:
                    return None
                raise
        return {name: str(entry.value) for name, entry in told.items()}

    def _cursor(self, shard: int) -> Cursor | None:
        note = self._note(self._name(shard))
        if note is None and self._begun[shard]:
            found = "has begun, and Kafka has no cursor of it any more: what it holds is not known"
            advice = "start the job, which says what there is to choose"
            raise Invalid(f"{self.where}, shard {shard}", found, advice)
        return None if note is None else note.cursor

    def _note(self, name: str) -> Note | None:
        """What a cursor says that no transaction can change."""
        place = (self.clients, self.sink.topic, name)
        try:
            return read_note(*place, min(CURSOR_S, self.clients.timeout_s))
        except Unavailable:
            read_note(*place, self.clients.timeout_s, PLAIN)  # or else it is just away
        found = "has its cursor hidden by a transaction that is open"
        advice = "wait until it ends; `penstock doctor --kafka` tells whose it is"
        raise Unavailable(f"{self.where}, group {name}", found, advice)

    def _has_cursor(self, name: str) -> bool:
        try:
            return read_note(self.clients, self.sink.topic, name, CURSOR_S, PLAIN) is not None
        except Invalid:  # somebody's own group that is called like a shard, or is not for us to see
            return False

    def _answer(self, future: Any) -> Any:
        with self.clients.explained(self._heard, self._admin):
            return self.clients.answer(self._admin, self._heard, future)


class KafkaHolding:
    """A topic as it was at one moment."""

    def __init__(
        self,
        sink: "KafkaSink",
        source: Kafka,
        moment: _Moment,
        shown: Shown,
        traits: Traits,
    ) -> None:
        self._sink = sink
        self._source = source
        self._moment = moment
        self._shown = shown
        self.traits = traits

    def read_cursor(self, shard: int) -> Cursor | None:
        """How far the shard was."""
        return self._moment.cursors[shard]

    def expected(self, rows: pa.Table) -> Changes:
        """The messages that rows become. Those that delete are messages too."""
        where, chunks = f"sink {self._sink.name}", self._sink.messages.chunks(rows)
        sent = [self._shown.sent(where, chunk) for chunk in chunks]
        made = pa.concat_tables([self._shown.schema().empty_table(), *sent])
        puts = with_places(made, rows)
        return Changes(puts, puts.slice(0, 0))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The messages of every partition, up to where it ended."""
        for number, span in sorted(self._moment.spans.items()):
            wanted = Range(start=span.earliest, stop=span.latest)
            for batch in self._source.read(number, wanted):
                yield self._shown.found(batch)

    def close(self) -> None:
        """Nothing is held."""
