"""Finding a moment in a partition: which offset was, or happened, then."""

from collections.abc import Sequence

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.effects import Steps
from penstock.fencing.register import Seen
from penstock.points import Point
from penstock.sources.log_pieces import body_of, children
from penstock.sources.log_segment import rows_between
from penstock.sources.log_tail import Piece, Tail
from penstock.sources.protocol import META_NAME, Range

__all__ = ["first_at"]


def first_at(seen: Seen[Tail] | None, at_ms: int, event_time: str | None) -> Steps[int]:
    """The first offset of a row as late as `at_ms`; the partition's end if there is none."""
    if seen is None:
        return 0
    piece = yield from _first_piece(seen.document.pieces, at_ms, event_time)
    if piece is None:
        return seen.document.latest
    body = yield from body_of(piece, Point.LOG_READ_SEGMENT)
    return _first_row(piece, body, at_ms, event_time)


def _first_piece(
    pieces: Sequence[Piece], at_ms: int, event_time: str | None
) -> Steps[Piece | None]:
    """The first segment that has a row as late as that."""
    for piece in pieces:
        latest_ms = piece.at_ms if event_time is None else piece.event_max_ms
        if latest_ms is not None and latest_ms >= at_ms:
            if piece.height == 0:
                return piece
            return (yield from _first_piece((yield from children(piece)), at_ms, event_time))
    return None


def _first_row(piece: Piece, body: bytes, at_ms: int, event_time: str | None) -> int:
    everything = Range(start=piece.first, stop=piece.stop)
    columns = pa.schema([])
    for batch in rows_between(piece, body, everything, columns, event_time, 0):
        meta = batch.column(META_NAME)
        times = meta.field("broker_time" if event_time is None else "event_time")
        late = pc.greater_equal(times.cast(pa.int64()), at_ms * 1000)
        found = pc.index(late, True).as_py()
        if found >= 0:
            offset: int = meta.field("offset")[found].as_py()
            return offset
    return piece.stop
