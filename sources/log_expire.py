"""Retention: a partition forgets its oldest segments, by age and by size.

Giving up and deleting are two steps with a swap of TAIL between them: a reader that finds a
segment missing looks at TAIL, and is told that its offsets are gone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.clock import Chance
from penstock.effects import Delete, Steps, Wait
from penstock.errors import Invalid
from penstock.fencing.register import Seen, Won
from penstock.ids import CommitId
from penstock.points import Point
from penstock.sources.log_look import RACES_MAX, SPREAD_S, outrun, steadily, swap_tail
from penstock.sources.log_pieces import children, split, walk
from penstock.sources.log_tail import Piece, Tail

__all__ = ["Expired", "LogRetention", "expire"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRetention:
    """How long rows are kept. None is for ever; a segment goes when either rule lets it."""

    age_ms: int | None = None
    """Since the log took them in."""
    size_bytes: int | None = None
    """Of each partition."""

    def __post_init__(self) -> None:
        if (self.age_ms or 1) < 0 or (self.size_bytes or 1) < 0:
            raise Invalid("retention", "is negative", "give a length of time or a size, or none")


@dataclass(frozen=True, slots=True)
class Expired:
    """What one look at a partition gave up."""

    earliest: int
    rows: int
    size_bytes: int


def expire(
    topic: str, partition: int, retention: LogRetention, now_ms: int, chance: Chance
) -> Steps[Expired]:
    """Give up what the retention does not keep.

    1. Find the first segment that stays, and cut the pieces there.
    2. Swap TAIL for one that begins with it. Lost: look again from the start.
    3. Delete the segments before it, and the pages that listed them. A crash here leaves
       orphans for the sweep.
    """
    for _ in range(RACES_MAX):
        done = yield from steadily(
            topic, partition, lambda seen: _expire(seen, retention, now_ms, chance)
        )
        if done is not None:
            return done
        yield Wait(chance.fraction() * SPREAD_S)
    raise outrun(partition)


def _expire(
    seen: Seen[Tail] | None, retention: LogRetention, now_ms: int, chance: Chance
) -> Steps[Expired | None]:
    """One try; None if somebody else changed TAIL first."""
    if seen is None:
        return Expired(0, 0, 0)
    tail = seen.document
    earliest = yield from _first_kept(tail, retention, now_ms)
    if earliest <= tail.earliest:
        return Expired(tail.earliest, 0, 0)
    cut = yield from split(tail.pieces, earliest)  # 1
    after = tail.changed(CommitId(chance.unique()), earliest=earliest, pieces=cut.after)
    gone = yield from walk(cut.before)
    outcome = yield from swap_tail(tail.partition, seen, after)  # 2
    if not isinstance(outcome, Won):
        return None
    for piece in (*gone, *cut.opened):  # 3
        yield Delete(Point.LOG_DELETE, piece.key)
    rows = sum(piece.rows for piece in cut.before)
    return Expired(earliest, rows, sum(piece.size_bytes for piece in cut.before))


def _first_kept(tail: Tail, retention: LogRetention, now_ms: int) -> Steps[int]:
    """The offset at which the first segment begins that no rule lets go."""
    by_age = by_size = tail.earliest
    if retention.age_ms is not None:
        horizon_ms = now_ms - retention.age_ms
        old = _Old(now_ms, horizon_ms, tail.earliest)
        yield from old.pass_by(tail.pieces)
        by_age = old.stop
    if retention.size_bytes is not None:
        excess = sum(piece.size_bytes for piece in tail.pieces) - retention.size_bytes
        by_size = yield from _behind_the_excess(tail.pieces, excess, tail.earliest)
    return max(by_age, by_size)


@dataclass(slots=True)
class _Old:
    """Walks past the first segments that are too old, by clocks of which some may be wrong.

    A clock that was behind makes nothing older: what was appended before it is not older than it.
    A clock that is ahead of ours tells nothing: such a segment is as old as the next.
    """

    now_ms: int
    horizon_ms: int
    stop: int
    """Where the last one ends that is too old."""
    latest_ms: int = -(1 << 62)
    is_over: bool = False

    def pass_by(self, pieces: Sequence[Piece]) -> Steps[None]:
        for piece in pieces:
            if self.is_over:
                return
            is_told = piece.wall_ms <= self.now_ms
            if is_told and max(self.latest_ms, piece.wall_ms) < self.horizon_ms:
                self.latest_ms = max(self.latest_ms, piece.wall_ms)
                self.stop = piece.stop
            elif piece.height:
                yield from self.pass_by((yield from children(piece)))
            else:
                self.is_over = is_told


def _behind_the_excess(pieces: Sequence[Piece], excess: int, start: int) -> Steps[int]:
    """Where the first segments end that are in excess as a whole."""
    for piece in pieces:
        if excess >= piece.size_bytes:
            start, excess = piece.stop, excess - piece.size_bytes
        elif piece.height and excess > 0:
            inside = yield from children(piece)
            return (yield from _behind_the_excess(inside, excess, start))
        else:
            break
    return start
