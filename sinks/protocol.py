"""What the runtime needs of every sink: to stage rows before the decision, to apply them after it.

A sink is a description that can be sent to another process. Tasks encode what a function
emitted and store it under a name of their own attempt; the manifest of the epoch names it, or
nothing ever does. Each row carries where it came from, so that anybody can check what a table
says against the log it was computed from.

A table's staged files are the table. Every other sink is opened by the leader, and its `Writer` is
given what was committed, shard by shard, epoch by epoch. Some can be read back as well, by whoever
wants to see that they hold what was committed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.checkpoint.store import ObjectStore
from penstock.ids import Attempt, Epoch, Key, Token
from penstock.sinks.cursors import Apply, Cursor
from penstock.sinks.guarantee import Guarantee
from penstock.sinks.keyed import Changes

__all__ = [
    "PLACE",
    "PROVENANCE",
    "AppliedSink",
    "Holding",
    "KeyedSink",
    "ReadableSink",
    "Sink",
    "SinkAround",
    "StagedSink",
    "Target",
    "Traits",
    "Writer",
]

PROVENANCE = pa.schema(
    [
        pa.field("_epoch", pa.int64()),
        pa.field("_partition", pa.int32()),
        pa.field("_sequence", pa.int64()),
        pa.field(
            "_input",
            pa.list_(
                pa.struct(
                    [
                        pa.field("from", pa.string()),
                        pa.field("first", pa.int64()),
                        pa.field("last", pa.int64()),
                    ]
                )
            ),
        ),
    ]
)
"""The columns behind those of each output row. `_sequence` counts the rows of a partition's share
of an epoch. `_input` is what the row was computed from: `from` is a source and its partition,
joined by a slash; `first` and `last` are offsets, both inclusive. A timer's row has none."""

PLACE = ("_epoch", "_partition", "_sequence")
"""Those of them that name a row: no other row of a sink has the same three."""


class Sink(Protocol):
    """What is known of every sink."""

    @property
    def name(self) -> str:
        """How manifests and messages call it."""

    @property
    def guarantee(self) -> Guarantee:
        """What it promises at best, its own settings considered."""


@runtime_checkable
class KeyedSink(Sink, Protocol):
    """A sink that may hold the last row of each key."""

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that tell its rows apart; none: every row stays."""


@runtime_checkable
class SinkAround(Sink, Protocol):
    """A sink that stands before another of the same name and target, and changes only the way."""

    @property
    def sink(self) -> Sink:
        """The sink behind it."""


@runtime_checkable
class StagedSink(Sink, Protocol):
    """A sink whose staged objects are what people read: a table.

    Promise: the same rows are encoded as the same bytes; a key is unique to its epoch,
    partition and attempt, and its epoch can be told from it.
    """

    def check(self, rows: pa.Table) -> None:
        """Raise `Invalid` for rows that could not be read back as they are."""

    def encode(self, rows: pa.Table) -> bytes:
        """The object that holds these rows."""

    def key(self, epoch: Epoch, partition: int, attempt: Attempt) -> Key:
        """Where one attempt stores its object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """For whom a sink is opened."""

    job: str
    """Cursors of one sink name in two jobs are two cursors."""
    columns: pa.Schema
    """Those of the rows it will be given, without the columns of `PROVENANCE`."""
    partitions: int
    store: ObjectStore
    """The job's root, for sinks that have no place of their own for a cursor."""


class Writer(Protocol):
    """An open sink. It is called from several threads, for one shard from one at a time.

    Promise: rows and cursor of a shard change in one step or not at all; applying what is applied
    changes nothing; a shard that has seen a larger token refuses a smaller one, where it can. A
    sink that promises less says so by its guarantee.

    A server that is away, full or read-only is `Unavailable`: the call is made again, and the
    writer finds its own way back to the server. What will not go away by itself is `Invalid`.
    """

    def read_cursor(self, shard: int) -> Cursor | None:
        """How far a shard is; None before its first epoch."""

    def apply(self, asked: Apply) -> None:
        """Give a shard the rows of one epoch. See `Apply` for what is refused."""

    def accept(self, shard: int, cursor: Cursor, token: Token) -> None:
        """Put a shard's cursor here, whatever it is now. Its rows stay as they are: whoever asks
        for this has seen to them."""

    def close(self) -> None:
        """Let go of what it holds."""


@runtime_checkable
class AppliedSink(Sink, Protocol):
    """A sink outside the root, which committed outputs are applied to."""

    def shards(self, partitions: int) -> int:
        """How many cursors it keeps: as many as there are partitions, or fewer. Shard n of m takes
        what the partitions p with p % m == n have staged."""

    def check(self, rows: pa.Table) -> None:
        """Raise `Invalid` if rows like these could never be written. Asked with no rows when a job
        is loaded, and with those of a task before they are staged: after the decision it would be
        too late to refuse them. The columns of `PROVENANCE` may be there or not."""

    def open(self, target: Target) -> Writer:
        """Connect, and see that the target takes such rows; make it, if that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What must be known of the rows that a target shows, to judge them."""

    key: tuple[str, ...] = ()
    """The columns that tell them apart; none: every row stays."""
    has_places: bool = False
    """Whether they have the columns of `PLACE`."""
    is_settled: bool = True
    """Whether they are those that the cursors speak of; else later ones may be among them."""
    repeats: bool = False
    """Whether one row may be shown twice, though the target holds it once."""
    others: str = ""
    """Why rows may be there that nobody committed for this sink; empty if they may not."""
    is_shared: bool = False
    """Whether others are known to write there: then a row may be theirs, whatever it says."""
    forgets: str = ""
    """Why rows may be missing that were there; empty if they may not."""
    left_out: tuple[str, ...] = ()
    """Columns that the target keeps in a way in which they cannot be compared."""


class Holding(Protocol):
    """What a target holds, in the hands of whoever checks it. One thread uses it.

    Promise: every row that the cursors speak of is shown, as `expected` makes it of what was
    staged, value by value. Nothing is made or changed in the target.
    """

    @property
    def traits(self) -> Traits:
        """What kind of rows it shows."""

    def read_cursor(self, shard: int) -> Cursor | None:
        """How far a shard is; None before its first epoch. Ask before looking at rows."""

    def expected(self, rows: pa.Table) -> Changes:
        """What the rows of one staged object make of the target: with the columns that `batches`
        shows, and those of `PLACE`. Of rows that go, only the key counts."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, from the first, each time it is asked; without the columns left out."""

    def close(self) -> None:
        """Let go of what it holds."""


@runtime_checkable
class ReadableSink(AppliedSink, Protocol):
    """A sink whose target can be read back."""

    def read_back(self, target: Target) -> Holding:
        """Connect, to look. A target that is not there is not made: it is `Invalid`."""
