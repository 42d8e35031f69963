"""Which rows a compaction keeps, worked out on columns.

The last row of each key stays. One whose columns are all null, but for its key and its event time,
is a tombstone: it says that the key is removed, stays for the topic's grace so that readers learn
of it, and then goes too. Rows without a key always stay. In a topic without keys all rows stay, in
fewer segments.

In memory are the keys of the part that was not compacted yet, up to a limit, and one segment.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.sources.log_compact import Made
from penstock.sources.log_segment import AT, OFFSET, decode, encode, event_max_ms
from penstock.sources.log_tail import Piece
from penstock.sources.log_topic import Topic

__all__ = ["KEYS_MAX", "ArrowRewriter"]

KEYS_MAX = 1_000_000
SEGMENT_ROWS = 200_000
SEGMENT_BYTES = 32 << 20
_LAST, _ROW = "_last", "_row"


@dataclass(slots=True)
class ArrowRewriter:
    """Compacts segments of one topic, oldest first."""

    topic: Topic
    now_ms: int
    keys_max: int = KEYS_MAX
    _last: pa.Table | None = None
    """Each key, and the offset at which it comes last."""
    _kept: list[pa.Table] = field(default_factory=list)
    _times: tuple[int, int] | None = None
    """When the last row of the segment under way was taken in: by the log, and by its producer."""

    @property
    def is_thorough(self) -> bool:
        """In a compacted topic any row may be followed by a later one of its key."""
        return self.topic.compacted

    def note(self, piece: Piece, body: bytes) -> bool:
        """Remember where each key comes last; False, and nothing kept, if they are too many."""
        if not self.topic.compacted:
            return True
        last = self._latest(
            self._keys(_with_offsets(piece, body, self.topic.schema)).rename_columns(
                [*self.topic.key, _LAST]
            )
        )
        if self._last is not None:
            last = self._latest(pa.concat_tables([self._last, last]))
            if last.num_rows > self.keys_max:
                return False
        self._last = last
        return True

    def rewrite(self, piece: Piece, body: bytes) -> Sequence[Made]:
        """Take in the rows that stay; the segment that is full now, if one is."""
        rows = self._surviving(_with_offsets(piece, body, self.topic.schema))
        made = [self._segment(piece.first)] if rows.num_rows and self._is_full() else []
        self._kept.append(rows)
        _, wall_ms = self._times or (0, piece.wall_ms)
        self._times = (piece.at_ms, max(wall_ms, piece.wall_ms))
        return made

    def finish(self, stop: int) -> Sequence[Made]:
        """The last segment; it reaches to the end, even if nothing is in it."""
        return [] if self._times is None else [self._segment(stop)]

    def _keys(self, rows: pa.Table) -> pa.Table:
        """The keys of rows, such that equal ones are equal, and their offsets."""
        keys = [_comparable(rows.column(name)) for name in self.topic.key]
        return pa.table([*keys, rows.column(OFFSET)], [*self.topic.key, OFFSET])

    def _latest(self, keys: pa.Table) -> pa.Table:
        found = keys.group_by(list(self.topic.key)).aggregate([(_LAST, "max")])
        return found.rename_columns([*self.topic.key, _LAST])

    def _surviving(self, rows: pa.Table) -> pa.Table:
        if not self.topic.compacted:
            return rows
        if self._last is not None:
            rows = rows.filter(self._is_last(rows))
        return rows.filter(pc.invert(self._is_spent(rows)))

    def _is_last(self, rows: pa.Table) -> pa.Array:
        """Whether each row is the last of its key; joined by key, and put in order again."""
        numbered = self._keys(rows).append_column(_ROW, pa.array(np.arange(rows.num_rows)))
        found = numbered.join(self._last, list(self.topic.key)).sort_by(_ROW)
        later = pc.greater(found.column(_LAST), found.column(OFFSET))
        return pc.invert(pc.fill_null(later, False))

    def _is_spent(self, rows: pa.Table) -> pa.Array:
        """Whether each row is a tombstone that everybody has had time to see."""
        told = {*self.topic.key, self.topic.event_time, OFFSET, AT}
        spent = pc.less(rows.column(AT), self.now_ms - self.topic.tombstone_grace_ms)
        values = [name for name in rows.column_names if name not in told]
        for name in values:
            spent = pc.and_(spent, rows.column(name).is_null())
        for name in self.topic.key:
            spent = pc.and_(spent, rows.column(name).is_valid())
        return spent if values else pc.and_(spent, False)

    def _is_full(self) -> bool:
        rows = sum(table.num_rows for table in self._kept)
        size_bytes: int = sum(table.nbytes for table in self._kept)
        return rows >= SEGMENT_ROWS or size_bytes >= SEGMENT_BYTES

    def _segment(self, stop: int) -> Made:
        assert self._times is not None
        table = pa.concat_tables(self._kept, promote_options="default")
        (at_ms, wall_ms), self._times = self._times, None
        self._kept = []
        event = event_max_ms(table, self.topic.event_time)
        body = encode(table.combine_chunks())
        return Made(stop, table.num_rows, at_ms, wall_ms, event, body)


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats as their bits, for both zeros are one number, and all that is none is the same."""
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    if not pa.types.is_floating(column.type):
        return column
    array = column.combine_chunks()
    nan = pa.scalar(float("nan"), array.type)
    plain = pc.if_else(pc.is_nan(array), nan, pc.add(array, pa.scalar(0.0, array.type)))
    bits = {4: pa.int32(), 8: pa.int64()}[column.type.bit_width // 8]
    return pa.chunked_array([plain.view(bits)])


def _with_offsets(piece: Piece, body: bytes, schema: pa.Schema) -> pa.Table:
    """All rows of a segment, each with its offset and when it was taken in."""
    batches = list(decode(piece, body, schema))
    table = pa.Table.from_batches(batches, schema=pa.ipc.open_file(body).schema)
    if OFFSET in table.column_names:
        return table
    offsets = np.arange(piece.first, piece.first + table.num_rows, dtype=np.int64)
    at_ms = np.full(table.num_rows, piece.at_ms, dtype=np.int64)
    return table.append_column(OFFSET, pa.array(offsets)).append_column(AT, pa.array(at_ms))
