"""Compaction: of each key only the last row stays; offsets do not change.

The rows that stay are written into new segments, which take the place of the old ones in one swap
of TAIL. What is appended meanwhile is not touched: it stays behind the cut. Topics without a key
keep every row, and only get fewer, larger segments.

What is in a segment is the business of a `Rewriter`; the order of reads, writes and the swap is
decided here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.clock import Chance
from penstock.effects import Delete, Put, Steps, Wait
from penstock.fencing.register import Landed, Lost, Seen
from penstock.ids import CommitId
from penstock.points import Point
from penstock.sources.log_layout import segment_key
from penstock.sources.log_look import RACES_MAX, SPREAD_S, outrun, steadily, swap_tail
from penstock.sources.log_pieces import body_of, covering, fold, hash_of, split, walk
from penstock.sources.log_tail import Piece, Tail
from penstock.sources.protocol import Range

__all__ = ["Compacted", "Made", "Rewriter", "compact"]

SMALL_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Made:
    """A segment that a rewriter has made of the rows that stay, and of which rows."""

    stop: int
    """The offset it reaches to: that of the next one's first, or the end."""
    rows: int
    at_ms: int
    wall_ms: int
    event_max_ms: int | None
    body: bytes


class Rewriter(Protocol):
    """Promise: holds no more in memory than it was allowed, whatever it is given."""

    @property
    def is_thorough(self) -> bool:
        """Whether rows that were compacted before may have to go now; if not, only segments
        appended since are touched."""

    def note(self, piece: Piece, body: bytes) -> bool:
        """Remember which keys come in a segment; False, and nothing kept, if it is one too many."""

    def rewrite(self, piece: Piece, body: bytes) -> Sequence[Made]:
        """Take in the rows of a segment that stay; the segments that are full now."""

    def finish(self, stop: int) -> Sequence[Made]:
        """The segments that are left, reaching to `stop`."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What one compaction did."""

    stop: int
    """The offset it reached."""
    rows_before: int
    rows_after: int
    segments_before: int
    segments_after: int


def compact(
    topic: str, partition: int, make: Callable[[], Rewriter], chance: Chance
) -> Steps[Compacted]:
    """Compact a partition up to its end, or as far as the rewriter can remember keys.

    1. Note the keys of every segment that was not compacted yet.
    2. Rewrite all segments up to there, and stage what comes out.
    3. Swap TAIL for one with the new segments in place of the old.
    4. Delete the old ones. A crash here, or a lost swap, leaves orphans for the sweep.
    """
    return (yield from steadily(topic, partition, lambda seen: _compact(seen, make(), chance)))


def _compact(seen: Seen[Tail] | None, rewriter: Rewriter, chance: Chance) -> Steps[Compacted]:
    if seen is None:
        return Compacted(0, 0, 0, 0, 0)
    tail = seen.document
    start = tail.earliest if rewriter.is_thorough else max(tail.earliest, tail.merged_to)
    stop = yield from _note(tail, rewriter)  # 1
    old = yield from covering(tail.pieces, start, stop)
    if len(old) < 2 and not rewriter.is_thorough:
        return Compacted(stop, 0, 0, 0, 0)
    made = yield from _rewrite(tail, old, rewriter, Range(start=start, stop=stop), chance)  # 2
    if not made:
        return Compacted(stop, 0, 0, 0, 0)
    # The last one may be small, and is merged again with what comes.
    small = made[-1].size_bytes < SMALL_BYTES
    reached = {"merged_to": made[-1].first if small else stop}
    reached |= {"compacted_to": stop} if rewriter.is_thorough else {}
    replaced = yield from _replace(seen, stop, made, reached, chance)  # 3
    if replaced is None:
        return Compacted(tail.compacted_to, 0, 0, 0, 0)
    for piece in replaced:  # 4
        yield Delete(Point.LOG_DELETE, piece.key)
    before, after = sum(piece.rows for piece in old), sum(piece.rows for piece in made)
    return Compacted(stop, before, after, len(old), len(made))


def _note(tail: Tail, rewriter: Rewriter) -> Steps[int]:
    """How far the keys could be remembered; to the end, if none need be."""
    if not rewriter.is_thorough:
        return tail.latest
    for piece in (yield from covering(tail.pieces, tail.compacted_to, tail.latest)):
        body = yield from body_of(piece, Point.LOG_READ_SEGMENT)
        if not rewriter.note(piece, body):
            return piece.first
    return tail.latest


def _rewrite(
    tail: Tail, old: Sequence[Piece], rewriter: Rewriter, wanted: Range, chance: Chance
) -> Steps[list[Piece]]:
    made: list[Piece] = []
    first = wanted.start
    for piece in old:
        body = yield from body_of(piece, Point.LOG_READ_SEGMENT)
        for segment in rewriter.rewrite(piece, body):
            made.append((yield from _stage(tail, first, segment, chance)))
            first = segment.stop
    for segment in rewriter.finish(wanted.stop):
        made.append((yield from _stage(tail, first, segment, chance)))
        first = segment.stop
    return made


def _stage(tail: Tail, first: int, segment: Made, chance: Chance) -> Steps[Piece]:
    key = segment_key(tail.partition, tail.version, chance.unique())
    yield Put(Point.LOG_STAGE, key, segment.body)
    return Piece(
        height=0,
        first=first,
        stop=segment.stop,
        rows=segment.rows,
        size_bytes=len(segment.body),
        at_ms=segment.at_ms,
        wall_ms=segment.wall_ms,
        event_max_ms=segment.event_max_ms,
        key=key,
        hash=hash_of(segment.body),
    )


def _replace(
    seen: Seen[Tail], stop: int, made: Sequence[Piece], reached: dict[str, int], chance: Chance
) -> Steps[Sequence[Piece] | None]:
    """Put the new pieces in place of the old; the objects that nothing names any more. None if
    others were faster, or it cannot be told: what is not needed is the sweep's."""
    began, start = seen.document, made[0].first
    for _ in range(RACES_MAX):
        tail = seen.document
        if tail.rewrites != began.rewrites or tail.floor > began.version:
            return None  # somebody else has compacted or swept meanwhile: theirs stands
        kept = [piece for piece in made if piece.stop > tail.earliest]
        if not kept or kept[0].first < tail.earliest:
            return None  # retention has cut into what we made: next time
        behind = yield from split(tail.pieces, stop)
        before = yield from split(behind.before, start)
        gone = (*(yield from walk(before.after)), *behind.opened, *before.opened)
        pieces = yield from fold(tail, (*before.before, *kept, *behind.after), chance)
        after = tail.changed(
            CommitId(chance.unique()), pieces=pieces, rewrites=tail.rewrites + 1, **reached
        )
        outcome = yield from swap_tail(tail.partition, seen, after)
        if not isinstance(outcome, Lost):
            return gone
        if outcome.landed is Landed.UNTOLD:
            return None
        seen = outcome.seen
        yield Wait(chance.fraction() * SPREAD_S)
    raise outrun(began.partition)
