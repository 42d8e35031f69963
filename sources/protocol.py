"""What every source promises: partitions, offsets, and ranges that can be read again.

A source is a description that can be sent to another process: it opens what it needs when it is
asked. The leader plans ranges, tasks read them. A range names offsets, not rows: what lies
between two offsets is the same however often and wherever it is read. Offsets of a partition
grow; there may be gaps, where a transaction left no row. Compaction of a topic may remove rows
from a range later, each of which another one has replaced; it never changes or adds one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.checkpoint.manifest import Range

__all__ = [
    "META",
    "META_NAME",
    "TIME",
    "Anchored",
    "Followed",
    "Identified",
    "Limits",
    "Range",
    "Sifting",
    "Source",
    "Span",
    "Undecoded",
]

TIME = pa.timestamp("us", tz="UTC")
META_NAME = "_meta"
META = pa.struct(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("event_time", TIME),
        pa.field("broker_time", TIME),
        pa.field("ingest_time", TIME),
    ]
)
"""What is known of each row besides its columns. `event_time`: when it happened, if the source
knows. `broker_time`: when the log took it in. `ingest_time`: when the epoch that reads it was
planned, and so the same on every attempt."""


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets a partition has: from `earliest` up to, not including, `latest`."""

    earliest: int
    latest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one epoch reads of one source at most. At least one row is always read, if any."""

    records: int | None = None
    size_bytes: int | None = None


class Source(Protocol):
    """Promise: offsets of a partition only grow; the rows in a range are the same, in the same
    order, on every reading; a range that retention has passed is `Gone`, never cut short."""

    @property
    def name(self) -> str:
        """How messages call it."""

    def schema(self) -> pa.Schema:
        """The columns of its rows, without `_meta`."""

    def spans(self) -> Mapping[str, Span]:
        """Every partition there is now, and the offsets it has. Partitions may come, never go."""

    def offsets_at(self, at_ms: int) -> Mapping[str, int]:
        """Per partition, the first offset of a row as late as `at_ms`; its end if there is none."""

    def plan(self, resume: Mapping[str, int], limits: Limits) -> Mapping[str, Range]:
        """What to read next, partition by partition; those with nothing new are left out.

        `resume` is the next offset to read; a partition that is not in it begins at its earliest.
        """

    def read(self, partition: str, wanted: Range, planned_ms: int = 0) -> Iterator[pa.RecordBatch]:
        """The rows of a range in order of their offsets, with `_meta` as the last column."""


@runtime_checkable
class Followed(Source, Protocol):
    """A source where others can see how far a job has read it. Nothing is ever read back."""

    def committed(self, resume: Mapping[str, int]) -> None:
        """Say so: `resume` is the next offset to read of each partition, as it was committed."""


@runtime_checkable
class Identified(Source, Protocol):
    """A source whose logs can be told from others that were given their names later. Offsets of
    the one mean nothing in the other."""

    def identities(self) -> Mapping[str, str]:
        """What tells each log that it has seen from any other."""

    def recognise(self, known: Mapping[str, str]) -> None:
        """Remember what an earlier life of the job has seen: a log that is another by now is
        refused from here on."""


@runtime_checkable
class Anchored(Source, Protocol):
    """A source that knows which of its settings give an offset its meaning: with others, the same
    offset of the same partition is another row."""

    def anchors(self) -> Mapping[str, str]:
        """Those settings by name, in words. A root remembers them, so they hold no secret."""


class Undecoded(Protocol):
    """A message that could not be made a row of."""

    @property
    def offset(self) -> int:
        """Where it is."""

    @property
    def reason(self) -> str:
        """Why it could not."""

    @property
    def count(self) -> int:
        """How many offsets it takes, from its own on."""

    @property
    def key(self) -> bytes | None:
        """Its key, as it came."""

    @property
    def value(self) -> bytes | None:
        """Its value, as it came."""


@runtime_checkable
class Sifting(Source, Protocol):
    """A source that leaves out what it cannot decode, if it was told so, and says what that was."""

    @property
    def sifts(self) -> bool:
        """Whether it was told so; else such a message stops the reading."""

    def read_with_dropped(
        self, partition: str, wanted: Range, planned_ms: int = 0
    ) -> "Iterator[pa.RecordBatch | Undecoded]":
        """The rows of a range and, in their places, the messages that could not become any."""
