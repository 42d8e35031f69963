"""What a function is given: one key's events of an epoch, one event, a partition, the moment.

Nothing is made before somebody asks: a column becomes Python values when the first row of it is
looked at, once for the whole partition, and an event is a place in those columns.
"""

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.calendar import datetime_of
from penstock.errors import Invalid
from penstock.ids import Epoch
from penstock.runtime.row_values import decoded, python_column
from penstock.sources.event_times import as_times, outside_calendar

__all__ = [
    "Batch",
    "Columns",
    "Event",
    "Events",
    "Meta",
    "Moment",
    "Origins",
    "event_type",
    "events_type",
    "python_values",
]

_UTC_ZONES = ("UTC", "Etc/UTC", "+00:00")


class Meta(NamedTuple):
    """Where an event comes from and which times are known of it."""

    source: str
    partition: str
    offset: int
    event_time: datetime | None
    broker_time: datetime | None
    ingest_time: datetime


class Columns:
    """The columns of a partition's events, in the order in which they are processed."""

    def __init__(self, table: pa.Table, order: Any, origins: "Origins") -> None:
        self.table = table
        self.order = order
        """Which row of the table comes when; None: as they stand."""
        self.origins = origins
        self.lists = _Lists(self)
        """Columns as Python values, each made when it is first asked for."""
        self._arrays: dict[str, Any] = {}

    @property
    def names(self) -> list[str]:
        """The columns a function may ask for."""
        return [name for name in self.table.column_names if not name.startswith("_")]

    def arrow(self, name: str) -> pa.ChunkedArray:
        """A column as Arrow has it."""
        if name not in self.table.column_names:
            found = f"have no column {name!r}"
            raise Invalid("the events", found, f"use one of {', '.join(self.names)}")
        column = self.table.column(name)
        return column if self.order is None else column.take(pa.array(self.order))

    def values(self, name: str) -> list[Any]:
        """A column as Python values."""
        return self.lists[name]

    def array(self, name: str) -> Any:
        """A column as numpy has it; with nulls, or of a type numpy has no word for, as objects."""
        if name not in self._arrays:
            column = self.arrow(name)
            plain = column.null_count == 0 and _is_plain(column.type)
            objects = np.empty(len(column), object) if not plain else None
            if objects is not None:
                objects[:] = self.values(name)
            self._arrays[name] = column.to_numpy() if objects is None else objects
        return self._arrays[name]


class _Lists(dict[str, list[Any]]):
    """Columns as Python values, by name."""

    def __init__(self, columns: Columns) -> None:
        super().__init__()
        self._columns = columns

    def __missing__(self, name: str) -> list[Any]:
        found = self[name] = python_values(self._columns.arrow(name))
        return found


class Origins:
    """Where the rows come from, in the order of the table."""

    def __init__(
        self, names: Sequence[tuple[str, str]], slots: Any, meta: Any, planned_ms: int
    ) -> None:
        self.names = names
        """Source and partition of each slot."""
        self.slots = slots
        """The slot of each row."""
        self.meta = meta
        """Offsets and times of each row, as a table."""
        self.planned_ms = planned_ms

    def of(self, row: int) -> Meta:
        """Where one row of the table comes from."""
        source, partition = self.names[int(self.slots[row])]
        times = [_moment(self.meta.column(name)[row]) for name in ("event_time", "broker_time")]
        ingest = datetime_of(self.planned_ms)
        offset = self.meta.column("offset")[row].as_py()
        return Meta(source, partition, offset, times[0], times[1], ingest)


def _moment(scalar: Any) -> datetime | None:
    try:
        found: datetime | None = scalar.as_py()
    except OverflowError:  # a broker's clock may say anything
        return datetime_of(scalar.value // 1000)
    return found


class Event:
    """One event: its columns as attributes, or as `event["column"]`, and `event.meta`."""

    __slots__ = ("_row",)
    _columns: Columns

    def __init__(self, row: int) -> None:
        self._row = row

    def __getitem__(self, name: str) -> Any:
        return self._columns.values(name)[self._row]

    @property
    def meta(self) -> Meta:
        """Where it comes from, and the times that are known of it."""
        order = self._columns.order
        return self._columns.origins.of(self._row if order is None else int(order[self._row]))

    def as_dict(self) -> dict[str, Any]:
        """All its columns."""
        return {name: self[name] for name in self._columns.names}

    def __repr__(self) -> str:
        return f"Event({self.as_dict()!r})"


def event_type(columns: Columns) -> type[Event]:
    """A class of events over these columns, with an attribute for each."""
    taken = set(dir(Event))
    fields = {
        name: property(_getter(columns, name))
        for name in columns.names
        if name.isidentifier() and name not in taken
    }
    return type("Event", (Event,), {"__slots__": (), "_columns": columns, **fields})


def _getter(columns: Columns, name: str) -> Any:
    found: list[list[Any]] = []

    def get(event: Any) -> Any:
        if not found:
            found.append(columns.values(name))
        return found[0][event._row]

    return get


class Events:
    """One key's events of this epoch, in an order that is the same on every attempt."""

    __slots__ = ("_start", "_stop")
    _columns: Columns
    _kind: type[Event]

    def __init__(self, start: int, stop: int) -> None:
        self._start = start
        self._stop = stop

    def __len__(self) -> int:
        return self._stop - self._start

    def __iter__(self) -> Iterator[Any]:
        return map(self._kind, range(self._start, self._stop))

    def __getitem__(self, number: int | slice) -> Any:
        rows = range(self._start, self._stop)[number]
        return self._kind(rows) if isinstance(rows, int) else list(map(self._kind, rows))

    def column(self, name: str) -> Any:
        """A column as a numpy array: best where a key has many events."""
        return self._columns.array(name)[self._start : self._stop]

    def values(self, name: str) -> list[Any]:
        """A column as a list of Python values: best where a key has few events."""
        return self._columns.lists[name][self._start : self._stop]


def events_type(columns: Columns, kind: type[Event]) -> type[Events]:
    """A class of such events over these columns, so that each knows no more than its place."""
    return type("Events", (Events,), {"__slots__": (), "_columns": columns, "_kind": kind})


class Batch:
    """All events of a partition in an epoch, for vectorised functions."""

    def __init__(self, table: pa.Table, key: Sequence[str], groups: Any) -> None:
        self.table = table
        """The events, in their order; without the columns of Penstock's own."""
        self._key = tuple(key)
        self._groups = groups

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def column(self, name: str) -> Any:
        """A column as a numpy array."""
        return self.table.column(name).to_numpy()

    @cached_property
    def keys(self) -> Any:
        """The key of each event, as a column; the first one if the key has several."""
        return self.table.column(self._key[0])

    @property
    def groups(self) -> Any:
        """The key group of each event, as `Columns` wants it."""
        return self._groups

    def by_key(self) -> tuple[Any, Any, Any]:
        """Each key once, its key group, and for each event the place of its key among them."""
        encoded = decoded(self.keys).combine_chunks().dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        places = encoded.indices.to_numpy()
        groups = np.zeros(len(encoded.dictionary), np.uint16)
        groups[places] = self._groups
        return encoded.dictionary, groups, places


class Moment:
    """The epoch as a function sees it: the same on every attempt, whatever the machine's clock."""

    def __init__(self, job: str, epoch: Epoch, planned_ms: int, watermark_ms: int | None) -> None:
        self.epoch = epoch
        self.time = datetime_of(planned_ms)
        """When the epoch was planned."""
        self.watermark = None if watermark_ms is None else datetime_of(watermark_ms)
        """How far event time had come when the epoch began; None before the first event."""
        self._seed = f"{job}/{epoch}/"
        self._key = b""
        self._random: random.Random | None = None

    def move_to(self, key: bytes) -> None:
        """Let `random` be that of this key."""
        self._key = key
        self._random = None

    @property
    def random(self) -> random.Random:
        """Chance that gives the same numbers for the same job, epoch and key."""
        if self._random is None:
            self._random = random.Random(self._seed.encode() + self._key)
        return self._random


def python_values(column: pa.ChunkedArray) -> list[Any]:
    """A column as Python values; moments are quick, which Arrow's own way is not. One that no
    calendar has is a number, so that only calls that use it can fail of it."""
    column = decoded(column)
    kind = column.type
    if pa.types.is_timestamp(kind) and column.null_count == 0 and kind.tz in (None, *_UTC_ZONES):
        if outside_calendar(as_times(column)) is not None:
            return python_column(column)
        moments = column.to_numpy().astype("datetime64[us]").tolist()
        return moments if kind.tz is None else [m.replace(tzinfo=UTC) for m in moments]
    if column.null_count == 0 and _is_plain(kind) and not pa.types.is_temporal(kind):
        values: list[Any] = column.to_numpy().tolist()
        return values
    return python_column(_in_micros(column) if _is_nanos(kind) else column)


def _is_nanos(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


def _in_micros(nanos: pa.ChunkedArray) -> pa.ChunkedArray:
    """Moments as a datetime can tell them: rounded down, as numpy and the key hash do it. Arrow's
    own cast would round those before 1970 up, into another key than the one they are hashed as."""
    ticks = nanos.cast(pa.int64())
    cut = pc.divide(ticks, 1_000)
    is_up = pc.greater(pc.multiply(cut, 1_000), ticks)
    return pc.subtract(cut, is_up.cast(pa.int64())).cast(pa.timestamp("us", nanos.type.tz))


def _is_plain(kind: pa.DataType) -> bool:
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool(number or pa.types.is_boolean(kind) or pa.types.is_timestamp(kind))
