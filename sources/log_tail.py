"""TAIL: what one partition of a topic holds, in one small object changed only by swap.

It lists *pieces* in the order of their offsets, without gap or overlap. A piece of height 0 is a
segment; one of height h is a page, an object that lists pieces of height h - 1. As more are
appended, the oldest of a long run of equals are folded into a page, so TAIL stays small however
long the log grows, and an offset is found by reading as many pages as the tree is high.

It also keeps a mark per producer: its epoch, and the sequence number of the last batch taken from
it. That is what makes a retry add nothing, and a zombie fail. A producer may leave a note beside
its mark, changed in the same swap: a sink keeps its cursor there.
"""

from functools import partial
from typing import Annotated, Self

import msgspec

from penstock.checkpoint.formats import Sealed, seal, unseal
from penstock.errors import Corrupt, Invalid
from penstock.fencing.register import Landed, Register
from penstock.fields import (
    Count,
    FormatNumber,
    HexHash,
    Int64,
    KeyText,
    Name,
    PartitionNumber,
    Text,
)
from penstock.ids import CommitId, Key
from penstock.sources.log_layout import tail_key

__all__ = ["RECENT_MAX", "Mark", "Piece", "Tail", "tail_register"]

PLAIN_FORMAT = 1
TAIL_FORMAT = 2
"""With notes, which a Penstock that reads no more than format 1 would take for damage."""

FAN = 32
HEIGHT_MAX = 64
"""A tree of more pages than there are offsets is none."""

RECENT_MAX = 32
"""How many changes back TAIL remembers, for those who never heard of their own success."""

MARKS_MAX = 1000
MARK_AGE_MS_MIN = 15 * 60_000
"""Beyond so many producers without a name, those that were silent for so long are forgotten."""

NAMES_MAX = 10_000
"""How many producers with a name a partition knows; they are never forgotten."""


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A stretch of offsets, and the object that holds it."""

    height: Annotated[int, msgspec.Meta(ge=0, le=HEIGHT_MAX)]
    """0 for a segment, more for a page."""
    first: Count
    stop: Count
    rows: Count
    """Fewer than there are offsets after a compaction."""
    size_bytes: Count
    """Of its segments."""
    at_ms: Int64
    """When the log took in its last row. Never less than in the piece before."""
    wall_ms: Int64
    """The same by the clock of whoever appended it, which may be wrong; of a page, the latest."""
    event_max_ms: Int64 | None
    """The latest event time in it; None if the topic has no event time."""
    key: Key
    hash: HexHash


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """What a partition knows of one producer."""

    epoch: Count
    """0 for a producer without a name."""
    sequence: Count
    """The number of the last batch that was taken from it."""
    stop: Count
    """The offset after that batch."""
    at_ms: Int64


class Tail(Sealed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One partition of a topic."""

    format: FormatNumber = PLAIN_FORMAT
    topic: Name
    """The unique name of the topic it belongs to."""
    partition: PartitionNumber
    fan: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = FAN
    """How many pieces make a page."""
    version: Count = 0
    earliest: Count = 0
    latest: Count = 0
    at_ms: Int64 = 0
    """When the last row was taken in. Does not go back when a producer's clock does."""
    pieces: tuple[Piece, ...] = ()
    marks: dict[KeyText, Mark] = msgspec.field(default_factory=dict)
    notes: dict[KeyText, Text] | msgspec.UnsetType = msgspec.UNSET
    """What producers want remembered beside their marks. Unset and not empty while there are none:
    then TAIL is to the letter what it was before there could be any, and so is its checksum."""
    rewrites: Count = 0
    """How many compactions there have been."""
    compacted_to: Count = 0
    """Below this offset no key comes twice."""
    merged_to: Count = 0
    """Below this offset there are no small segments that could be one."""
    floor: Count = 0
    """No object whose name has a lower version will ever be taken in."""
    next_floor: Count = 0
    """The floor of the next sweep: the version at the last one."""
    recent: tuple[CommitId, ...] = ()

    @property
    def rank(self) -> tuple[int]:
        """Grows with every change."""
        return (self.version,)

    def tells_of(self, change: Self, expected: Self | None) -> Landed:
        """Whether `change`, made to `expected`, is part of this TAIL's past."""
        if change.recent[-1] in self.recent:
            return Landed.YES
        before = 0 if expected is None else expected.version
        return Landed.NO if self.version - before <= RECENT_MAX else Landed.UNTOLD

    def check(self) -> Self:
        """Itself, if it is one that we could have written; else `Corrupt`."""
        offsets = [self.earliest, *(piece.stop for piece in self.pieces)]
        firsts = [*(piece.first for piece in self.pieces), self.latest]
        if offsets != firsts:
            raise Corrupt(
                tail_key(self.partition), "lists pieces that do not meet", "restore it from a copy"
            )
        return self

    def changed(self, commit: CommitId, **fields: object) -> Self:
        """The next version, with these fields changed."""
        return msgspec.structs.replace(
            self,
            version=self.version + 1,
            recent=(*self.recent, commit)[-RECENT_MAX:],
            **fields,
        )

    def with_mark(self, producer: str, mark: Mark) -> dict[str, Mark]:
        """Its marks with one of them new, without the nameless that are too many and too old."""
        marks = {**self.marks, producer: mark}
        nameless = sorted((m.at_ms, name) for name, m in marks.items() if m.epoch == 0)
        horizon_ms = mark.at_ms - MARK_AGE_MS_MIN
        old = {name for at_ms, name in nameless[:-MARKS_MAX] if at_ms < horizon_ms}
        if len(marks) - len(nameless) > NAMES_MAX:
            raise Invalid(
                tail_key(self.partition),
                f"knows {NAMES_MAX} producers by name",
                "give producers that are started again the name they had",
            )
        return {name: each for name, each in marks.items() if name not in old} if old else marks

    def note_of(self, producer: str) -> str:
        """What a producer has left beside its mark; empty if nothing."""
        return "" if self.notes is msgspec.UNSET else self.notes.get(producer, "")

    def marked(self, producer: str, mark: Mark, note: str) -> dict[str, object]:
        """What `changed` needs to be told for a producer to have that mark and that note."""
        marks = self.with_mark(producer, mark)
        if note == self.note_of(producer):
            return {"marks": marks}
        notes = {} if self.notes is msgspec.UNSET else self.notes
        return {"marks": marks, "notes": {**notes, producer: note}, "format": TAIL_FORMAT}

    def may_have_forgotten(self, producer: str) -> bool:
        """Whether a producer without a mark may have had one."""
        return producer not in self.marks and len(self.marks) >= MARKS_MAX


def tail_register(partition: int) -> Register[Tail]:
    """Where a partition's TAIL is and how it is written."""
    key = tail_key(partition)
    return Register(key, seal, partial(_decode, key))


def _decode(key: Key, body: bytes) -> Tail:
    return unseal(key, body, Tail, TAIL_FORMAT).check()
