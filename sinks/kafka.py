"""`KafkaSink`: rows as messages of a Kafka topic, each exactly once for read_committed readers.

Every shard has a transactional producer, and a consumer group whose offset is its cursor. The
rows of an epoch and the cursor are one transaction: a reader with `isolation.level=read_committed`
sees all of it or nothing, once. A reader without it also sees rows of transactions that failed, and
those again that were written again: for such a reader nothing is promised. The order within a
message's partition is that of the rows of a shard; two shards do not wait for one another.

Whoever opens a shard, a new leader or an old one that wakes up, takes over its transactional id,
and Kafka refuses everybody who had it before; see docs/adr/0015. Two jobs of one name that write to
one Kafka need a `transaction_prefix` each.

A user who may do only what is needed: WRITE and DESCRIBE on the topic, READ on groups and WRITE on
transactional ids that begin with the prefix and a slash; with `create`, CREATE on the topic. What
was written can be read back by a user who may READ the topic; see `penstock.sinks.kafka_holding`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, NoReturn, Protocol

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.clock import SystemClock
from penstock.errors import Invalid
from penstock.ids import check_name
from penstock.sinks.guarantee import Guarantee
from penstock.sinks.kafka_messages import FORMATS, KafkaMessages
from penstock.sinks.kafka_settings import KafkaSettings, Scalar
from penstock.sinks.keyed import Keyed, as_key
from penstock.sinks.protocol import Target

if TYPE_CHECKING:
    from penstock.sinks.kafka_changelog import ChangelogTopic
    from penstock.sinks.kafka_holding import KafkaHolding
    from penstock.sinks.kafka_writer import KafkaWriter

__all__ = ["KafkaSink", "Opening", "check_topic_name", "kafka_module"]

PARTITIONERS = (
    "consistent", "consistent_random", "fnv1a", "fnv1a_random", "murmur2", "murmur2_random",
    "random",
)  # fmt: skip
COMPRESSIONS = ("gzip", "lz4", "none", "snappy", "zstd")
_TOPIC = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}")
_PREFIX = re.compile(r"[A-Za-z0-9._/-]{1,100}")


@dataclass(frozen=True, slots=True)
class KafkaSink:
    """Rows as messages: by default each a JSON object of its columns, without a key."""

    name: str
    bootstrap: str
    """One or more brokers: `host:9092,other:9092`."""
    topic: str
    _: KW_ONLY
    value: str = "json"
    """`json`: an object of all columns. `string` and `bytes`: one column besides those of the key,
    or the one that is named `value`."""
    key_column: str | Sequence[str] = ()
    """The columns that are the key of a message; none: messages have no key."""
    key: str | None = None
    """What the key is: `string`, `bytes` or `json`. Unless told, the text of one column, and an
    object of JSON of several."""
    key_in_value: bool = True
    """Whether columns of the key are in a JSON value as well."""
    deletes: str | None = None
    """A boolean column, not written: a row in which it is true is a tombstone for its key."""
    headers: str | None = None
    """A column, not in the value: a list of structs of a `name` and a `value`."""
    event_time: str | None = None
    """The timestamp that is the time of the message; without one it is when it is sent."""
    provenance: bool = False
    """Whether messages have headers that say where they come from: `penstock.epoch`,
    `penstock.partition` and `penstock.sequence`."""
    partitioner: str = "murmur2_random"
    """How a key finds its partition. Java's producers do it like this."""
    compression: str = "lz4"
    settings: Mapping[str, Scalar] = field(default_factory=dict, repr=False)
    """For librdkafka, with secrets as references: `{"sasl.password": "${KAFKA_PASSWORD}"}`."""
    transaction_prefix: str = "penstock"
    """What transactional ids and groups begin with."""
    timeout_s: float = 30.0
    """How long brokers may be silent before that is told."""
    create: bool = False
    """Whether to make the topic if it is not there."""
    partitions: int | None = None
    """How many the topic has at least, and gets if it is made: then as many as the job has unless
    told."""

    def __post_init__(self) -> None:
        check_name("sink", self.name)
        object.__setattr__(self, "key_column", as_key(self.key_column))
        object.__setattr__(self, "settings", dict(self.settings))
        self.line.check()
        self._check_names()
        self._check_choices()
        self._check_key()

    @property
    def guarantee(self) -> Guarantee:
        """Rows and cursor are one transaction. It holds for read_committed readers."""
        return Guarantee.EXACTLY_ONCE

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that tell its rows apart."""
        return as_key(self.key_column)

    def shards(self, partitions: int) -> int:
        """One per partition: each has a producer."""
        return partitions

    def check(self, rows: pa.Table) -> None:
        """Refuse rows that do not make messages, or too large ones."""
        self.messages.check(rows)

    def open(self, target: Target) -> "KafkaWriter":
        """Connect, and see that the topic takes such messages."""
        opening = kafka_module(self._where)
        self.check(target.columns.empty_table())
        return opening.open_writer(self, target)

    def read_back(self, target: Target) -> "KafkaHolding":
        """Look at the topic, up to where its messages are those that the cursors speak of. Every
        message counts, by its key and value; see `penstock.sinks.kafka_holding`."""
        kafka_module(self._where)
        from penstock.sinks.kafka_holding import hold

        return hold(self, target, SystemClock())

    @property
    def _where(self) -> str:
        return f"sink {self.name}"

    @property
    def line(self) -> KafkaSettings:
        """How to reach the brokers."""
        return KafkaSettings(self._where, self.bootstrap, self.settings, self.timeout_s)

    @property
    def messages(self) -> KafkaMessages:
        """How rows become messages."""
        columns = as_key(self.key_column)
        return KafkaMessages(
            keyed=Keyed(self._where, columns, self.deletes),
            value=self.value,
            key=self.key or ("json" if len(columns) > 1 else "string"),
            key_in_value=self.key_in_value,
            headers=self.headers,
            event_time=self.event_time,
            provenance=self.provenance,
            bytes_max=self.line.message_bytes_max,
        )

    def _check_names(self) -> None:
        check_topic_name(self._where, self.topic)
        if not _PREFIX.fullmatch(self.transaction_prefix):
            advice = "use letters, digits, '.', '_', '-' and '/', at most 100 of them"
            self._refuse(f"has transaction_prefix={self.transaction_prefix!r}", advice)
        columns = [*self.key_column, self.deletes, self.headers]
        named = [column for column in columns if column is not None]
        if len(set(named)) < len(named):
            self._refuse("has a column with two meanings", "name each column once")

    def _check_choices(self) -> None:
        choices = (
            ("value", self.value, FORMATS),
            ("key", self.key, (None, *FORMATS)),
            ("partitioner", self.partitioner, PARTITIONERS),
            ("compression", self.compression, COMPRESSIONS),
        )
        for what, given, known in choices:
            if given not in known:
                listed = ", ".join(filter(None, known))
                self._refuse(f"has {what}={given!r}", f"use one of {listed}")
        if self.partitions is not None and self.partitions < 1:
            self._refuse(f"has partitions={self.partitions!r}", "use 1 or more, or leave it out")

    def _check_key(self) -> None:
        if self.key is not None and not self.key_column:
            self._refuse(f"has key={self.key!r} and no key_column", "name the columns of its key")
        if self.key in ("string", "bytes") and len(self.key_column) > 1:
            found = f"has key={self.key!r} of {len(self.key_column)} columns"
            self._refuse(found, "use key='json' for several")

    def _refuse(self, found: str, advice: str) -> NoReturn:
        raise Invalid(self._where, found, advice)


def check_topic_name(where: str, topic: str) -> None:
    """`Invalid` if no Kafka can have a topic of that name."""
    if not _TOPIC.fullmatch(topic):
        found = f"has the topic {topic[:300]!r}, which Kafka cannot have"
        raise Invalid(where, found, "use letters, digits, '.', '_' and '-', at most 249 of them")


class Opening(Protocol):
    """What opens sinks. It needs the client; nothing else of a sink's description does."""

    def open_writer(self, sink: KafkaSink, target: Target) -> "KafkaWriter":
        """Connect, and see that the topic takes such messages."""

    def open_changelog(self, changelog: "ChangelogTopic", target: Target) -> "KafkaWriter":
        """Connect, and see that the topic keeps the last record of every entry."""


def kafka_module(where: str) -> Opening:
    """What opens sinks; `Invalid` says what to install for it."""
    try:
        from penstock.sinks import kafka_opening
    except ImportError as missing:
        if (missing.name or "").partition(".")[0] != "confluent_kafka":
            raise
        found = "needs the package confluent-kafka, which is not installed"
        raise Invalid(where, found, "pip install 'penstock[kafka]'") from None
    return kafka_opening
