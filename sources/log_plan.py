"""Planning by rows where compaction left gaps between them.

Where a segment has a row for every offset, counting is arithmetic. Where it has not, its offsets
are read: so an epoch gets as many rows as its limits allow, and not as many gaps.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from penstock.effects import Steps
from penstock.points import Point
from penstock.sources.log_pieces import body_of, children
from penstock.sources.log_segment import OFFSET, decode
from penstock.sources.log_tail import Piece, Tail

__all__ = ["rows_from", "stop_after"]


def rows_from(tail: Tail, start: int) -> Steps[int]:
    """How many rows there are from an offset on."""
    return (yield from _count(tail.pieces, start))


def _count(pieces: Sequence[Piece], start: int) -> Steps[int]:
    rows = 0
    for piece in pieces:
        if piece.first >= start:
            rows += piece.rows
        elif piece.stop > start:
            rows += yield from _count_inside(piece, start)
    return rows


def _count_inside(piece: Piece, start: int) -> Steps[int]:
    if piece.rows == piece.stop - piece.first:
        return piece.stop - start
    if piece.height:
        return (yield from _count((yield from children(piece)), start))
    body = yield from body_of(piece, Point.LOG_READ_SEGMENT)
    return sum(int((offsets >= start).sum()) for offsets in _offsets(piece, body))


def stop_after(tail: Tail, start: int, rows: int) -> Steps[int]:
    """Where a range from `start` ends that has so many rows, which must be there."""
    stop, _ = yield from _stop(tail.pieces, start, rows)
    return tail.latest if stop is None else stop


def _stop(pieces: Sequence[Piece], start: int, rows: int) -> Steps[tuple[int | None, int]]:
    """Where the last of so many rows is passed, or None and how many are still to come."""
    for piece in pieces:
        if piece.stop <= start:
            continue
        if piece.rows == piece.stop - piece.first:
            begin = max(start, piece.first)
            if begin + rows <= piece.stop:
                return begin + rows, 0
            rows -= piece.stop - begin
        elif piece.first >= start and piece.rows < rows:
            rows -= piece.rows
        else:
            stop, rows = yield from _stop_inside(piece, start, rows)
            if stop is not None:
                return stop, 0
    return None, rows


def _stop_inside(piece: Piece, start: int, rows: int) -> Steps[tuple[int | None, int]]:
    if piece.height:
        return (yield from _stop((yield from children(piece)), start, rows))
    body = yield from body_of(piece, Point.LOG_READ_SEGMENT)
    for offsets in _offsets(piece, body):
        wanted = offsets[offsets >= start]
        if len(wanted) >= rows:
            return int(wanted[rows - 1]) + 1, 0
        rows -= len(wanted)
    return None, rows


def _offsets(piece: Piece, body: bytes) -> Iterator[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    for batch in decode(piece, body):
        yield batch.column(OFFSET).to_numpy()
