"""What the runtime needs of every sink to stage rows for it before the decision.

A sink is a description that can be sent to another process. Tasks encode what a function
emitted and store it under a name of their own attempt; the manifest of the epoch names it, or
nothing ever does. Each row carries where it came from, so that anybody can check what a table
says against the log it was computed from.
"""

from typing import Protocol, runtime_checkable

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.ids import Attempt, Epoch, Key
from penstock.sinks.guarantee import Guarantee
from penstock.sinks.roll_forward import Apply, Cursor, ReadCursor

__all__ = ["PROVENANCE", "AppliedSink", "Sink"]

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


class Sink(Protocol):
    """Promise: the same rows are encoded as the same bytes; a key is unique to its epoch,
    partition and attempt, and its epoch can be told from it."""

    @property
    def name(self) -> str:
        """How manifests and messages call it."""

    @property
    def guarantee(self) -> Guarantee:
        """What it promises at best, its own settings considered."""

    def encode(self, rows: pa.Table) -> bytes:
        """The object that holds these rows."""

    def key(self, epoch: Epoch, partition: int, attempt: Attempt) -> Key:
        """Where one attempt stores its object."""


@runtime_checkable
class AppliedSink(Sink, Protocol):
    """A sink outside the root, which committed outputs are applied to, a shard per partition.

    Promise: rows and cursor of a shard change in one step or not at all; applying what is applied
    changes nothing; a shard that has seen a larger token refuses a smaller one, where it can.
    """

    def read_cursor(self, asked: ReadCursor) -> Cursor | None:
        """How far a shard is; None before its first epoch."""

    def apply(self, asked: Apply) -> None:
        """Give a shard the rows of one epoch. See `Apply` for what is refused."""
