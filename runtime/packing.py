"""Rows on their way to the partition of their key: hashed, parted, packed as Arrow streams.

The hash is Spark's own, taken on whole columns, so it does not matter who takes it. Beside the
user's columns a row takes along its key group, its offset and its times; where it comes from
stands once in the head of the part, and so does the least of each column of numbers, which travel
as distances from it. Rows that stay in their process are not packed.

    _offset       where it stands in its source partition; of an operator's rows, a count
    _event_time   when it happened, if anybody knows
    _broker_time  when the log took it in
    _group        its key group
    _rank         operators only: rows set off by a timer come by its time, before all others
    _source, _partition   where one part holds rows of several origins
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from penstock.errors import Invalid
from penstock.runtime.row_values import decoded
from penstock.runtime.topology import Feed, Topology
from penstock.runtime.wire import Barrier, Kind, Narrow, Part, RowsHead, encode
from penstock.sources.protocol import TIME
from penstock.state.key_hash import key_groups

__all__ = ["RANK_LAST", "Packer", "groups_of_rows", "partitions_of", "unpacked"]

RANK_LAST = (1 << 62) - 1
"""The rank of rows that no timer set off."""

_OURS = ("_event_time", "_broker_time")
_NUMBERS = {str(kind): kind for kind in (pa.int64(), pa.int32(), pa.date32(), TIME)}
_NARROW = [(pa.uint8(), 8), (pa.uint16(), 16), (pa.uint32(), 32)]
NARROWED_ROWS_MIN = 4096
"""Fewer rows are not worth a look at their columns."""

_REACH = {"s": (1 << 63) // 1_000_000 - 1, "ms": (1 << 63) // 1_000 - 1}
"""How far times of a unit may be from 1970 to be told in microseconds, as the hash wants them."""

SPREAD_BITS = 12
"""Rows without a key go to the same partition by so many at a time."""


def groups_of_rows(
    table: pa.Table, key: Sequence[str], groups: int, where: str
) -> NDArray[np.uint16]:
    """The key group of each row. Rows without a key are spread by where they stand."""
    if not key:
        offsets = np.asarray(table.column("_offset").to_numpy(), np.int64)
        return ((offsets >> SPREAD_BITS) % groups).astype(np.uint16)
    columns = []
    for name in key:
        if name not in table.column_names:
            known = ", ".join(n for n in table.column_names if not n.startswith("_"))
            raise Invalid(
                where, f"is keyed by {name!r}, which its rows lack", f"use one of {known}"
            )
        columns.append(_hashable(table.column(name)))
    return key_groups(columns, groups)


def _hashable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A key column whose times can all be hashed: one that microseconds cannot tell counts as null.
    Its row goes where nulls go, and the operator there refuses it by its own policy."""
    column = decoded(column)
    reach = _REACH.get(column.type.unit) if pa.types.is_timestamp(column.type) else None
    if reach is None:
        return column
    ticks = column.cast(pa.int64())
    fits = pc.and_(pc.greater_equal(ticks, -reach), pc.less_equal(ticks, reach))
    return column if pc.all(fits).as_py() is not False else pc.if_else(fits, column, None)


def partitions_of(groups: NDArray[np.uint16], partitions: int, total: int) -> NDArray[np.int64]:
    """The partition of each row, by its key group."""
    return groups.astype(np.int64) * partitions // total


@dataclass(slots=True)
class Packer:
    """Sends the rows of one task to one feed, and its barrier after them."""

    topology: Topology
    stage: int
    feed_number: int
    feed: Feed
    run: str
    sent: NDArray[np.int64]
    """How many rows have gone to each partition."""
    travels: bool = True
    """Whether parts leave this process. Where they do not, a part holds the rows themselves."""

    @classmethod
    def to(
        cls,
        topology: Topology,
        stage: int,
        number: int,
        feed: Feed,
        run: str,
        *,
        travels: bool = True,
    ) -> "Packer":
        """A packer that has sent nothing yet."""
        sent = np.zeros(topology.partitions, np.int64)
        return cls(topology, stage, number, feed, run, sent, travels)

    def pack(
        self, table: pa.Table, source: str | None, partition: str, rank: tuple[int, int]
    ) -> Iterator[Part]:
        """The rows as parts, one for each partition that gets some."""
        where = f"operator {self.topology.operator(self.stage).name!r}"
        total = self.topology.groups
        groups = groups_of_rows(table, self.feed.key, total, where)
        is_long = self.travels and table.num_rows >= NARROWED_ROWS_MIN
        table, narrowed = _narrowed(table) if is_long else (table, {})
        table = table.append_column("_group", pa.array(groups))
        head = encode(
            RowsHead(
                feed=self.feed_number,
                source=source,
                partition=partition,
                rank=rank,
                narrowed=narrowed,
            )
        )
        for to, piece in _parted(table, partitions_of(groups, self.topology.partitions, total)):
            self.sent[to] += piece.num_rows
            body = _stream(piece) if self.travels else piece
            yield Part(to, self.stage, Kind.ROWS, head, piece.num_rows, body)

    def barriers(self, task: int, tasks: int) -> Iterator[Part]:
        """One barrier for each partition, also for those that got nothing."""
        for to, rows in enumerate(self.sent.tolist()):
            barrier = Barrier(
                run=self.run,
                feed=self.feed_number,
                origin=self.feed.origin,
                task=task,
                tasks=tasks,
                rows=rows,
            )
            yield Part(to, self.stage, Kind.BARRIER, encode(barrier))


def _parted(table: pa.Table, to: NDArray[np.int64]) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each partition, in the order they stood in."""
    if not len(to):
        return
    if to.min() == to.max():
        yield int(to[0]), table
        return
    order = np.argsort(to.astype(np.uint16), kind="stable")
    counts = np.bincount(to)
    sorted_rows = table.take(pa.array(order))
    start = 0
    for partition, count in enumerate(counts.tolist()):
        if count:
            yield partition, sorted_rows.slice(start, count)
            start += count


def _narrowed(table: pa.Table) -> tuple[pa.Table, dict[str, Narrow]]:
    """The rows with less to carry: whole numbers and moments that lie close together, which they
    mostly do, become their distance from the least of them. What nobody knows is left out."""
    narrowed = {}
    for place, name in reversed(list(enumerate(table.column_names))):
        column = table.column(name)
        kind = str(column.type)
        if name in _OURS and column.null_count == len(column):
            table = table.remove_column(place)
        elif kind in _NUMBERS and column.null_count < len(column):
            numbers = _through_int32(column, kind).cast(pa.int64())
            ends = pc.min_max(numbers)
            least, span = ends["min"].as_py(), ends["max"].as_py() - ends["min"].as_py()
            narrow = next((k for k, bits in _NARROW if span < 1 << bits), None)
            if narrow is not None and narrow.bit_width < column.type.bit_width:
                narrowed[name] = Narrow(least=least, kind=kind)
                distances = pc.subtract(numbers, least).cast(narrow, safe=False)
                table = table.set_column(place, name, distances)
    return table, narrowed


def _widened(table: pa.Table, narrowed: Mapping[str, Narrow]) -> pa.Table:
    for name, each in narrowed.items():
        numbers = pc.add(table.column(name).cast(pa.int64()), each.least)
        whole = _through_int32(numbers, each.kind).cast(_NUMBERS[each.kind])
        table = table.set_column(table.column_names.index(name), name, whole)
    return table


def _through_int32(column: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
    """Arrow turns days into numbers of 32 bits only, and back from them."""
    return column.cast(pa.int32()) if kind == str(pa.date32()) else column


def _stream(table: pa.Table) -> Any:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def unpacked(head: RowsHead, part: Part) -> pa.Table:
    """The rows of a part."""
    if isinstance(part.body, pa.Table):
        return part.body
    with pa.ipc.open_stream(part.body) as stream:
        return _widened(stream.read_all(), head.narrowed)
