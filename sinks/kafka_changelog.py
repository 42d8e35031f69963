"""`KafkaChangelog`: state changes also as records of a compacted topic, one for each operator.

    job = ps.Job("fraud", changelog=ps.KafkaChangelog("broker:9092"))

Each record is an entry of the state (the key) and what it became (the value; none if it was
removed), with the epoch and the token in its headers. The changes of an epoch, the marker that says
which version they make, and the cursor are one transaction, applied like the rows of any sink, so a
read_committed reader sees whole versions and nothing else. Partition n of the topic is partition n
of the state.

Compaction keeps the last record of every entry: from the topic alone the state can be rebuilt to
the very version that was committed last. That is what a job does by itself when its root has lost
it. A changelog that is given to a job which has state already begins with all of it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.errors import Invalid
from penstock.ids import check_name
from penstock.sinks.changelog import Entries, changelog_name
from penstock.sinks.cursors import Apply
from penstock.sinks.guarantee import Guarantee
from penstock.sinks.kafka import check_topic_name, kafka_module
from penstock.sinks.kafka_messages import FRAME_BYTES_MAX, Chunk
from penstock.sinks.kafka_settings import KafkaSettings, Scalar
from penstock.sinks.protocol import PROVENANCE, Target
from penstock.sinks.staged import rows_of
from penstock.sources.kafka import Kafka
from penstock.sources.protocol import Range

if TYPE_CHECKING:
    from penstock.sinks.kafka_writer import KafkaWriter

__all__ = ["ChangeMessages", "ChangelogTopic", "KafkaChangelog"]

CHUNK_ROWS = 10_000
PIECE_ENTRIES = 250_000
"""So many entries are read before they are handed on: fewer, larger files are taken in sooner."""


@dataclass(frozen=True, slots=True)
class KafkaChangelog:
    """Topics for a job's state changes, named after its operators."""

    bootstrap: str
    _: KW_ONLY
    prefix: str | None = None
    """Topics are called `<prefix>.<operator>.changelog`; the job's name unless told."""
    settings: Mapping[str, Scalar] = field(default_factory=dict, repr=False)
    transaction_prefix: str = "penstock"
    timeout_s: float = 30.0
    create: bool = True
    """Whether to make topics that are not there, compacted, with as many partitions as the job."""

    def sink(self, job: str, operator: str) -> "ChangelogTopic":
        """What takes the changes of one operator."""
        topic = f"{self.prefix or job}.{operator}.changelog"
        return ChangelogTopic(
            name=changelog_name(operator, topic),
            bootstrap=self.bootstrap,
            topic=topic,
            settings=self.settings,
            transaction_prefix=self.transaction_prefix,
            timeout_s=self.timeout_s,
            create=self.create,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogTopic:
    """The changelog of one operator."""

    name: str
    bootstrap: str
    topic: str
    settings: Mapping[str, Scalar] = field(repr=False)
    transaction_prefix: str
    timeout_s: float
    create: bool

    def __post_init__(self) -> None:
        check_name("changelog", self.name)
        check_topic_name(self.where, self.topic)
        object.__setattr__(self, "settings", dict(self.settings))
        self.line.check()

    @property
    def where(self) -> str:
        """What messages call it."""
        return f"changelog {self.topic}"

    @property
    def line(self) -> KafkaSettings:
        """How to reach the brokers."""
        return KafkaSettings(self.where, self.bootstrap, self.settings, self.timeout_s)

    @property
    def guarantee(self) -> Guarantee:
        """Changes and cursor are one transaction. It holds for read_committed readers."""
        return Guarantee.EXACTLY_ONCE

    def shards(self, partitions: int) -> int:
        """One per partition of the state."""
        return partitions

    def check(self, rows: pa.Table) -> None:
        """Refuse an entry that is too large for a message: after the decision it is too late."""
        sizes = pc.add(
            pc.binary_length(rows.column("entry")),
            pc.fill_null(pc.binary_length(rows.column("value")), 0),
        )
        largest = pc.max(sizes).as_py() or 0
        if largest + FRAME_BYTES_MAX > self.line.message_bytes_max:
            at = int(np.argmax(sizes.to_numpy()))
            entry = rows.column("entry")[at].as_py()
            raise Invalid(
                f"{self.where}, entry {entry[:80]!r}",
                f"takes {largest:,} bytes, and at most {self.line.message_bytes_max:,} are sent "
                "as one message, its frame included",
                "keep less in one value, for instance a map instead of a long list; or raise "
                "message.max.bytes in its settings and max.message.bytes of the topic",
            )

    def open(self, target: Target) -> "KafkaWriter":
        """Connect, and see that the topic is one that keeps the last record of every entry."""
        return kafka_module(self.where).open_changelog(self, target)

    def entries(self, partition: int) -> Iterator[Entries]:
        """Everything that the topic has of one partition, as of now, in pieces."""
        source = Kafka(
            self.bootstrap,
            self.topic,
            key="bytes",
            settings=self.settings,
            timeout_s=self.timeout_s,
        )
        span = source.spans()[str(partition)]
        piece: dict[bytes, bytes | None] = {}
        for batch in source.read(str(partition), Range(start=span.earliest, stop=span.latest)):
            pairs = (batch.column(name).to_pylist() for name in ("key", "value"))
            piece.update(zip(*pairs, strict=True))
            if len(piece) >= PIECE_ENTRIES:
                yield piece
                piece = {}
        yield piece


@dataclass(frozen=True, slots=True)
class ChangeMessages:
    """State changes as messages."""

    def of(self, asked: Apply, columns: pa.Schema) -> Iterator[Chunk]:
        """The messages of one epoch of one shard, in their order."""
        rows = rows_of(asked.outputs, columns, PROVENANCE.names)
        told: list[tuple[str, bytes | str | None]] = [
            ("penstock.epoch", str(asked.cursor.epoch)),
            ("penstock.token", str(asked.token)),
        ]
        for start in range(0, rows.num_rows, CHUNK_ROWS):
            part = rows.slice(start, CHUNK_ROWS)
            entries, values = (part.column(name).to_pylist() for name in ("entry", "value"))
            yield Chunk(values, entries, None, [told] * part.num_rows, asked.shard)
