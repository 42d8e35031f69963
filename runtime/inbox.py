"""What has come for one partition of one operator, and whether it is all there.

A task may begin only when it has a barrier of every upstream task of the very same run, each once,
and as many rows as those barriers say. Anything else is `Misaligned`: some attempt's rows are
missing or doubled, nothing is computed from them, and the epoch is tried again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from penstock.errors import Unavailable
from penstock.runtime.events import Origins
from penstock.runtime.packing import RANK_LAST, unpacked
from penstock.runtime.row_values import decoded, with_plain_nulls
from penstock.runtime.topology import OperatorNode
from penstock.runtime.wire import Barrier, Kind, Orders, Part, RowsHead, decode

__all__ = ["NO_TIME", "Gathered", "Inbox", "Misaligned", "gather"]

NO_TIME = -(1 << 62)
"""The time of an event nobody knows the time of: before all others."""


class Misaligned(Unavailable):
    """Rows or barriers of an upstream task are missing, doubled, or of another run."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """All events of a partition, in log order."""

    table: pa.Table
    keys: list[pa.ChunkedArray]
    groups: NDArray[np.uint16]
    times_us: NDArray[np.int64]
    """Event times, or NO_TIME."""
    ranks: NDArray[np.int64] | None
    origins: Origins

    def taken(self, order: NDArray[np.int64]) -> "Gathered":
        """Some of the events, in that order."""
        places = pa.array(order)
        origins = self.origins
        return Gathered(
            self.table.take(places),
            [column.take(places) for column in self.keys],
            self.groups[order],
            self.times_us[order],
            None if self.ranks is None else self.ranks[order],
            Origins(
                origins.names, origins.slots[order], origins.meta.take(places), origins.planned_ms
            ),
        )


@dataclass(slots=True)
class Inbox:
    """Parts for one stage, as they come."""

    stage: int
    orders: Orders | None = None
    barriers: list[Barrier] = field(default_factory=list)
    parts: list[tuple[RowsHead, Part]] = field(default_factory=list)

    def add(self, part: Part) -> None:
        """Take in one part."""
        if part.kind is Kind.ORDERS:
            self.orders = decode(part.head, Orders)
        elif part.kind is Kind.BARRIER:
            self.barriers.append(decode(part.head, Barrier))
        elif part.kind is Kind.ROWS:
            self.parts.append((decode(part.head, RowsHead), part))

    def checked(self, operator: str, partition: int) -> Orders:
        """The orders, if everything they speak of has come."""
        where = f"operator {operator!r}, partition {partition}"
        orders = self.orders
        if orders is None:
            raise _misaligned(where, "got no orders")
        for barrier in self.barriers:
            if barrier.run != orders.run:
                raise _misaligned(where, f"got a barrier of {barrier.origin!r} of another run")
        for feed, (origin, tasks) in enumerate(orders.origins):
            came = sorted(b.task for b in self.barriers if b.feed == feed)
            if (tasks and came != list(range(tasks))) or len(set(came)) != len(came):
                found = f"got barriers of tasks {came} of {origin!r}, where there are {tasks}"
                raise _misaligned(where, found)
        promised = sum(barrier.rows for barrier in self.barriers)
        got = sum(part.rows for _, part in self.parts)
        if promised != got:
            raise _misaligned(where, f"got {got} rows of {promised}")
        return orders

    def rows_in(self) -> dict[str, int]:
        """Rows that came, by origin."""
        found: dict[str, int] = {}
        for barrier in self.barriers:
            found[barrier.origin] = found.get(barrier.origin, 0) + barrier.rows
        return found


def _misaligned(where: str, found: str) -> Misaligned:
    return Misaligned(where, found, "the epoch is tried again; if it goes on, report this")


def gather(
    operator: OperatorNode, parts: Sequence[tuple[RowsHead, Part]], planned_ms: int
) -> Gathered:
    """The events of all parts in log order: by feed, source, partition and offset."""
    ordered = sorted(parts, key=lambda each: _place(each[0]))
    tables = [with_plain_nulls(unpacked(head, part)) for head, part in ordered]
    keys = _keys(operator, [head for head, _ in ordered], tables)
    slots, names = _slots(ordered, tables)
    # A user's column that one feed has and another lacks is null there.
    whole = pa.concat_tables([operator.schema.empty_table(), *tables], promote_options="default")
    empty = np.empty(0, np.int64)
    gathered = Gathered(
        whole,
        keys,
        _numbers(whole, "_group", np.uint16) if tables else empty.astype(np.uint16),
        _micros(whole, "_event_time"),
        _ranks(whole),
        Origins(names, slots, _meta(whole), planned_ms),
    )
    if all(head.source is not None for head, _ in ordered):
        return gathered
    feeds = np.repeat([head.feed for head, _ in ordered], [table.num_rows for table in tables])
    return gathered.taken(_log_order(gathered.origins, feeds))


def _log_order(origins: Origins, feeds: NDArray[np.int64]) -> NDArray[np.int64]:
    """The order of rows that came through a transform, which Spark may have moved between tasks.
    Rows that it made of one event stay as they came."""
    places = sorted(range(len(origins.names)), key=lambda slot: _name(*origins.names[slot]))
    rank = np.empty(len(places), np.int64)
    rank[places] = np.arange(len(places))
    offsets = origins.meta.column("offset").to_numpy()
    return np.lexsort((offsets, rank[origins.slots], feeds))


def _name(source: str, partition: str) -> tuple[Any, ...]:
    """Partitions that are numbers stand in the order of the numbers."""
    return (source, len(partition), partition)


def _place(head: RowsHead) -> tuple[Any, ...]:
    return (head.feed, *_name(head.source or "", head.partition), head.rank)


def _keys(
    operator: OperatorNode, heads: list[RowsHead], tables: list[pa.Table]
) -> list[pa.ChunkedArray]:
    """The key's columns, whatever each feed calls them, with a value for each row: those of other
    partitions may stand in a dictionary."""
    columns = []
    for number, name in enumerate(operator.key):
        kind = operator.feeds[0].schema.field(name).type
        chunks = [
            chunk
            for head, table in zip(heads, tables, strict=True)
            for chunk in table.column(operator.feeds[head.feed].key[number]).chunks
        ]
        columns.append(decoded(pa.chunked_array(chunks, type=kind)))
    return columns


def _slots(
    ordered: Sequence[tuple[RowsHead, Part]], tables: list[pa.Table]
) -> tuple[NDArray[np.int32], list[tuple[str, str]]]:
    """For each row a number that stands for its source and partition."""
    numbers: dict[tuple[str, str], int] = {}
    pieces = []
    for (head, _), table in zip(ordered, tables, strict=True):
        if head.source is not None:
            slot = numbers.setdefault((head.source, head.partition), len(numbers))
            pieces.append(np.full(table.num_rows, slot, np.int32))
        else:
            rows = zip(
                table.column("_source").to_pylist(),
                table.column("_partition").to_pylist(),
                strict=True,
            )
            found = [numbers.setdefault(row, len(numbers)) for row in rows]
            pieces.append(np.array(found, np.int32))
    return np.concatenate(pieces) if pieces else np.empty(0, np.int32), list(numbers)


def _meta(table: pa.Table) -> pa.Table:
    """Offsets and times, with nulls where a feed knows none."""
    moment = pa.timestamp("us", tz="UTC")
    names = {"offset": pa.int64(), "event_time": moment, "broker_time": moment}
    return pa.table(
        {
            name: table.column(f"_{name}")
            if f"_{name}" in table.column_names
            else pa.nulls(table.num_rows, kind)
            for name, kind in names.items()
        }
    )


def _micros(table: pa.Table, name: str) -> NDArray[np.int64]:
    if name not in table.column_names or not table.num_rows:
        return np.full(table.num_rows, NO_TIME, np.int64)
    column = table.column(name).cast(pa.int64())
    if column.null_count:
        column = column.fill_null(NO_TIME)
    return np.asarray(column.to_numpy(), np.int64)


def _ranks(table: pa.Table) -> NDArray[np.int64] | None:
    if "_rank" not in table.column_names:
        return None
    return np.asarray(table.column("_rank").fill_null(RANK_LAST).to_numpy(), np.int64)


def _numbers(table: pa.Table, name: str, kind: Any) -> Any:
    return np.asarray(table.column(name).to_numpy(), kind)
