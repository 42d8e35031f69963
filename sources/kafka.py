"""Topics of an Apache Kafka, read as one stream, exactly.

An epoch's range of offsets is read by `assign`, without a group: the job's own manifest says where
it is, and any process may read a range again. Reading is `read_committed`, up to the last stable
offset; offsets without a message (control records, aborted transactions, what compaction removed)
are passed over, and never waited for. Topics may be named, or be all that match a pattern; new
partitions, and new topics of a pattern, are found by the next plan and begin at their earliest.

A range is never cut short and never begins elsewhere. What retention has removed is `Gone`; a
partition that ends before the resume offset, a topic that was deleted, and one that was made anew
under its name (which its id tells) are `Invalid`; each says what there is to choose.

What is in a message:

    bytes, string     one column, `value`
    json              the columns that are declared, found by name; others are ignored
    avro, protobuf,   by the schema that each message names in a schema registry; the columns are
    json-schema       those of the newest schema when the job starts, or those that are declared

The same goes for keys, which become one column: a struct, if they have fields. A tombstone is a row
without a value; `deletes` names a column that tells it from others.

A message that cannot be decoded stops the reading or, with `on_undecodable="quarantine"`, is left
out: the same ones on every reading. `dropped` says which and why.

Secrets are references (`${NAME}`), looked up where a connection is made: they are in no pickle, no
message and no log.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.clock import Clock, SystemClock
from penstock.errors import Invalid
from penstock.sources.kafka_decoders import lacking, rows_of
from penstock.sources.kafka_names import Place, topics_of
from penstock.sources.kafka_rows import DroppedMessage, Rows
from penstock.sources.kafka_settings import (
    Body,
    Format,
    KafkaSettings,
    Policy,
    Scalars,
    as_columns,
    as_registry,
)
from penstock.sources.planning import checked_starts, plan_ranges
from penstock.sources.protocol import Limits, Range, Span

if TYPE_CHECKING:
    from penstock.sources.kafka_cluster import KafkaCluster

__all__ = ["DroppedMessage", "Kafka"]

T = TypeVar("T")


class Kafka:
    """A source over topics of Kafka. See the top of this module for what it promises.

    `bootstrap` is one or several brokers, 'host:9092,other:9092'. `topic` is a topic or several;
    or else `pattern` is a regular expression for their whole names. `group` is told after every
    epoch how far the job is, for those who watch lag. `partition_records_max` limits what an epoch
    reads of each partition. `settings` are librdkafka's, for SASL and TLS above all. `timeout_s` is
    how long brokers that do not answer are waited for.
    """

    def __init__(  # noqa: PLR0913 - each is a setting with a default, and people write few of them
        self,
        bootstrap: str,
        topic: str | Sequence[str] | None = None,
        *,
        pattern: str | None = None,
        value: Format = "bytes",
        columns: str | pa.Schema | None = None,
        key: Format | None = None,
        key_columns: str | pa.Schema | None = None,
        key_column: str = "key",
        headers: bool = False,
        deletes: str | None = None,
        on_undecodable: Policy = "fail",
        partition_records_max: int | None = None,
        group: str | None = None,
        settings: Scalars | None = None,
        schema_registry: str | Scalars | None = None,
        timeout_s: float = 30.0,
        clock: Clock | None = None,
    ) -> None:
        self._settings = KafkaSettings(
            bootstrap=bootstrap,
            topics=topics_of(f"Kafka at {bootstrap}", topic, pattern),
            value=Body(value, as_columns(columns)),
            key=None if key is None else Body(key, as_columns(key_columns)),
            key_column=key_column,
            headers=headers,
            deletes=deletes,
            on_undecodable=on_undecodable,
            partition_records_max=partition_records_max,
            group=group,
            settings=dict(settings or {}),
            registry=as_registry(schema_registry),
            timeout_s=timeout_s,
        )
        self._clock = clock or SystemClock()
        self._seen = _Seen()
        self._desk = _Desk()

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def __getstate__(self) -> "tuple[KafkaSettings, Clock, _Seen]":
        return self._settings, self._clock, self._seen

    def __setstate__(self, state: "tuple[KafkaSettings, Clock, _Seen]") -> None:
        self._settings, self._clock, self._seen = state
        self._desk = _Desk()

    @property
    def name(self) -> str:
        """How messages call it."""
        return self._settings.name

    @property
    def told(self) -> KafkaSettings:
        """What it was told, for whoever writes what it reads."""
        return self._settings

    @property
    def sifts(self) -> bool:
        """Whether it leaves out what it cannot decode."""
        return self._settings.on_undecodable == "quarantine"

    def identities(self) -> Mapping[str, str]:
        """The id of every topic that it has seen."""
        return dict(self._seen.topics)

    def recognise(self, known: Mapping[str, str]) -> None:
        """Remember the ids that an earlier life of the job has seen."""
        for topic, identity in known.items():
            if self._settings.topics.has(topic):
                self._seen.topics.setdefault(topic, identity)

    def anchors(self) -> Mapping[str, str]:
        """The one topic that partitions '0', '1', … are of; those of several carry their topic's
        name. Whether a topic of that name is still the same, `identities` tells."""
        topics = self._settings.topics
        return {"topic": topics.names[0] if topics.is_one else "one of several"}

    def schema(self) -> pa.Schema:
        """The columns of its rows, without `_meta`. A schema registry is asked once."""
        return self._rows().schema()

    def spans(self) -> Mapping[str, Span]:
        """Every partition there is now, and the offsets it has."""
        return self._named(self._cluster().spans())

    def offsets_at(self, at_ms: int) -> Mapping[str, int]:
        """Per partition, the first offset of a message as late as `at_ms`; its end if there is
        none. What the broker keeps as a message's time is what counts."""
        return self._named(self._cluster().offsets_at(at_ms))

    def plan(self, resume: Mapping[str, int], limits: Limits) -> Mapping[str, Range]:
        """What to read next. Looks for new partitions and, of a pattern, for new topics."""
        spans = self.spans()
        for partition in sorted(set(resume) - set(spans)):
            found = f"has no partition {partition!r} any more"
            advice = "was its topic deleted? start the job anew, in a new root, without it"
            raise Invalid(self.name, found, advice)
        starts = checked_starts(self.name, spans, resume)
        within = {
            partition: Span(span.earliest, self._reach(starts[partition], span))
            for partition, span in spans.items()
        }
        weights = {} if limits.size_bytes is None else self._weights(starts, within)
        return plan_ranges(self.name, within, resume, limits, weights)

    def read(self, partition: str, wanted: Range, planned_ms: int = 0) -> Iterator[pa.RecordBatch]:
        """The rows of a range in order of their offsets, with `_meta` as the last column."""
        for piece in self.read_with_dropped(partition, wanted, planned_ms):
            if not isinstance(piece, DroppedMessage):
                yield piece
            elif not self.sifts:
                raise self._undecodable(partition, piece)

    def dropped(self, partition: str, wanted: Range) -> Iterator[DroppedMessage]:
        """The messages of a range that cannot be decoded, in order. Reads the range."""
        pieces = self.read_with_dropped(partition, wanted)
        return (piece for piece in pieces if isinstance(piece, DroppedMessage))

    def read_with_dropped(
        self, partition: str, wanted: Range, planned_ms: int = 0
    ) -> Iterator[pa.RecordBatch | DroppedMessage]:
        """The rows of a range and, in their places, the messages that could not become any."""
        place, rows = self._place(partition), self._rows()
        for messages in self._cluster().messages(place, wanted):
            yield from rows.made(messages, planned_ms)

    def committed(self, resume: Mapping[str, int]) -> None:
        """Tell the source's group, if it has one, what is read next. Nothing depends on it."""
        if self._settings.group is not None and resume:
            places = {self._place(name): offset for name, offset in resume.items()}
            self._cluster().tell(places)

    def _reach(self, start: int, span: Span) -> int:
        """Up to where an epoch may read of a partition."""
        most = self._settings.partition_records_max
        return span.latest if most is None else min(span.latest, start + most)

    def _weights(self, starts: Mapping[str, int], spans: Mapping[str, Span]) -> dict[str, float]:
        ranges = {
            self._place(partition): Range(start=start, stop=spans[partition].latest)
            for partition, start in starts.items()
            if start < spans[partition].latest
        }
        return dict(self._named(self._cluster().mean_bytes(ranges)))

    def _named(self, found: "Mapping[Place, T]") -> "dict[str, T]":
        named = {self._settings.topics.name_of(place): each for place, each in found.items()}
        return dict(sorted(named.items()))

    def _place(self, partition: str) -> Place:
        place = self._settings.topics.place_of(partition)
        if place is None:
            example = "'0'" if self._settings.topics.is_one else "'topic/0'"
            found = f"has no partition {partition!r}"
            raise Invalid(self.name, found, f"partitions are called like {example}")
        return place

    def _undecodable(self, partition: str, message: DroppedMessage) -> Invalid:
        return Invalid(
            f"{self.name}, partition {partition}",
            f"has a message at offset {message.offset} that cannot be decoded ({message.reason})",
            "decode it otherwise, or leave such messages out by on_undecodable='quarantine'",
        )

    def _rows(self) -> Rows:
        if self._desk.rows is None:
            self._settings.check_readable()
            self._desk.rows = rows_of(self._settings, self._seen.schemas)
        return self._desk.rows

    def _cluster(self) -> "KafkaCluster":
        if self._desk.cluster is None:
            try:
                from penstock.sources.kafka_cluster import cluster_of
            except ImportError as missing:
                raise lacking(self.name, missing, "kafka") from None
            self._desk.cluster = cluster_of(self._settings, self._clock, self._seen.topics)
        return self._desk.cluster


@dataclass(slots=True)
class _Seen:
    """What a source has learned and must not forget on its way to another process."""

    topics: dict[str, str] = field(default_factory=dict)
    """The id of every topic."""
    schemas: dict[str, int] = field(default_factory=dict)
    """Of the key and of the value, the number of the schema that tells the columns."""


@dataclass(slots=True)
class _Desk:
    """What one process has open of a source. It stays behind when the source is sent away."""

    rows: Rows | None = None
    cluster: "KafkaCluster | None" = field(default=None, repr=False)
