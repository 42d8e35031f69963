"""What a function has emitted, as columns of the declared types, with where each row comes from.

Rows are collected as they come and made columns of in lots. What does not fit is named by
output, column and value.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from operator import itemgetter
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from penstock.calendar import FIRST_MS, LAST_MS
from penstock.errors import Invalid
from penstock.runtime.events import Origins
from penstock.runtime.functions import MAIN, Side, Wrapped
from penstock.runtime.inbox import NO_TIME
from penstock.sinks.protocol import PROVENANCE
from penstock.sources.log_rows import fitted

__all__ = [
    "SETTLED_ROWS",
    "Emitted",
    "Provenance",
    "check_is_row",
    "fitted_columns",
    "outputs_of",
    "sorted_out",
    "with_provenance",
]

SETTLED_ROWS = 8192
"""Rows become columns in lots of about so many."""

_UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError, KeyError)

_EXACT: list[tuple[Any, set[type]]] = [
    (pa.types.is_string, {str, type(None)}),
    (pa.types.is_integer, {int, type(None)}),
    (pa.types.is_float64, {int, float, type(None)}),
    (pa.types.is_boolean, {bool, type(None)}),
    (pa.types.is_binary, {bytes, type(None)}),
    (pa.types.is_date32, {date, type(None)}),
    (lambda kind: kind == pa.timestamp("us", "UTC"), {datetime, type(None)}),
]
"""Columns, and the values that are quickly made one of: all that most functions emit."""


@dataclass(slots=True)
class Emitted:
    """The rows of one output, and which call made each."""

    schema: pa.Schema
    where: str
    rows: list[Any] = field(default_factory=list)
    """Those that are not columns yet."""
    calls: list[int] = field(default_factory=list)
    """How many of them there were after each call; one that made none may be left out."""
    callers: list[int] = field(default_factory=list)
    """Which call that was."""
    _tables: list[pa.Table] = field(default_factory=list)
    _callers: list[NDArray[np.int64]] = field(default_factory=list)

    def close_call(self, number: int) -> None:
        """All rows since the last one were made by that call."""
        if len(self.rows) != (self.calls[-1] if self.calls else 0):
            self.calls.append(len(self.rows))
            self.callers.append(number)
        if len(self.rows) >= SETTLED_ROWS:
            self.settle()

    def settle(self) -> None:
        """Make columns of the rows so far. Done every few thousand rows, the memory of one lot
        serves the next, and is still in the processor's reach."""
        if self.rows:
            self._tables.append(fitted_columns(self.where, self.rows, self.schema))
        stops = np.array([0, *self.calls], np.int64)
        callers = np.array(self.callers, np.int64)
        self._callers.append(np.repeat(callers, stops[1:] - stops[:-1]))
        for filled in (self.rows, self.calls, self.callers):
            filled.clear()

    def table(self) -> pa.Table:
        """The rows as columns."""
        self.settle()
        return pa.concat_tables(self._tables) if self._tables else self.schema.empty_table()

    def caller_of_rows(self) -> NDArray[np.int64]:
        """For each row, the call that made it."""
        self.settle()
        return np.concatenate([np.empty(0, np.int64), *self._callers])


def fitted_columns(where: str, rows: list[Any], schema: pa.Schema) -> pa.Table:
    """Dicts as columns of exactly that schema; `Invalid` names the column and the value."""
    try:
        if set(map(len, rows)) <= {len(schema)}:
            values = [list(map(itemgetter(name), rows)) for name in schema.names]
            if all(map(_is_exact, values, schema)):
                columns = [pa.array(v, f.type) for v, f in zip(values, schema, strict=True)]
                return pa.Table.from_arrays(columns, schema=schema)
    except _UNFIT:
        pass
    for row in rows:
        check_is_row(where, row)
        for column in schema.names:
            if column not in row:
                found = f"is missing in the row {str(dict(row))[:80]}"
                raise Invalid(f"{where}, column {column!r}", found, "yield it, if only as None")
    try:
        return fitted(where, rows, schema)
    except Invalid as error:
        emits = ", ".join(f"{column.name} {column.type}" for column in schema)
        advice = f"{error.advice}; it is declared to emit {emits}"
        raise Invalid(error.subject, error.found, advice) from error


def _is_exact(values: list[Any], column: pa.Field) -> bool:
    """Whether Arrow takes these values as they are or not at all. Of others it would take a part,
    as of 1.5 in a column of whole numbers, so they are looked at one by one."""
    kinds = set(map(type, values))
    if type(None) in kinds and not column.nullable:
        return False
    if datetime in kinds and not _have_zones(values):
        return False
    return any(is_it(column.type) and kinds <= exact for is_it, exact in _EXACT)


def _have_zones(times: list[Any]) -> bool:
    """Whether each has a zone of a type that is known to tell its offset."""
    zones = {at.tzinfo for at in times if at is not None}
    return all(isinstance(zone, timezone | ZoneInfo) for zone in zones)


def check_is_row(where: str, row: Any) -> None:
    """Raise if something was yielded that is no row."""
    if isinstance(row, Side):
        found = f"yielded a row for {row.output!r}, which it does not declare"
        raise Invalid(where, found, f"wrap it with sides={{{row.output!r}: '…'}}")
    if not isinstance(row, Mapping):
        found = f"yielded {str(row)[:60]!r}, a {type(row).__name__}"
        raise Invalid(where, found, "yield one dict per row")


def outputs_of(wrapped: Wrapped) -> dict[str, Emitted]:
    """Nothing emitted yet, for each output."""
    return {
        output: Emitted(
            schema, f"operator {wrapped.name!r}" + (f", output {output!r}" if output else "")
        )
        for output, schema in wrapped.outputs.items()
    }


def sorted_out(rows: list[Any], outputs: dict[str, Emitted], where: str) -> None:
    """Put each row of a call where it belongs."""
    for row in rows:
        name = row.output if isinstance(row, Side) else MAIN
        if name not in outputs:
            check_is_row(where, row)
            found = "yielded a row, and declares only side outputs"
            raise Invalid(where, found, "say of which columns with `emits`")
        outputs[name].rows.append(row.row if isinstance(row, Side) else row)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Which offsets each call has seen: per call and slot the first and the last."""

    epoch: int
    partition: int
    names: list[str]
    """"source/partition" of each slot."""
    starts: NDArray[np.int64]
    """Where the ranges of each call begin; one more than there are calls."""
    slots: NDArray[np.int64]
    firsts: NDArray[np.int64]
    lasts: NDArray[np.int64]
    times_us: NDArray[np.int64]
    """The latest event time each call has seen."""

    @classmethod
    def of(
        cls,
        epoch: int,
        partition: int,
        origins: Origins,
        order: NDArray[np.int64],
        stops: NDArray[np.int64],
        times_us: NDArray[np.int64],
    ) -> "Provenance":
        """What the calls have seen whose events, in `order`, end at `stops`."""
        names = [f"{source}/{part}" for source, part in origins.names]
        starts = np.concatenate([[0], stops[:-1]]) if len(stops) else stops
        if not len(stops):
            nothing = np.empty(0, np.int64)
            return cls(epoch, partition, names, np.zeros(1, np.int64), *[nothing] * 4)
        offsets = origins.meta.column("offset").to_numpy()[order]
        latest = np.maximum.reduceat(times_us[order], starts)
        if len(names) <= 1:
            firsts = np.minimum.reduceat(offsets, starts)
            lasts = np.maximum.reduceat(offsets, starts)
            one_each = np.arange(len(stops) + 1)
            slots = np.zeros(len(stops), np.int64)
            return cls(epoch, partition, names, one_each, slots, firsts, lasts, latest)
        calls = np.repeat(np.arange(len(stops)), np.diff(stops, prepend=0))
        mixed = calls * len(names) + origins.slots[order]
        if not bool((mixed[1:] >= mixed[:-1]).all()):  # events by time need not be in log order
            by_range = np.argsort(mixed, kind="stable")
            mixed, offsets = mixed[by_range], offsets[by_range]
        begins = np.flatnonzero(np.diff(mixed, prepend=-1))
        found = mixed[begins]
        return cls(
            epoch,
            partition,
            names,
            np.searchsorted(found, np.arange(len(stops) + 1) * len(names)),
            found % len(names),
            np.minimum.reduceat(offsets, begins),
            np.maximum.reduceat(offsets, begins),
            latest,
        )

    def inputs(self, callers: NDArray[np.int64]) -> pa.Array:
        """The `_input` of rows made by these calls; a negative one has seen no event."""
        none = callers < 0
        safe = np.where(none, 0, callers)
        counts = np.where(none, 0, np.diff(self.starts)[safe] if len(self.starts) > 1 else 0)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        at = (np.repeat(self.starts[safe], counts) if len(self.starts) > 1 else within) + within
        kind = PROVENANCE.field("_input").type
        names = pa.array(self.names, pa.string()).take(pa.array(self.slots[at]))
        ranges = pa.StructArray.from_arrays(
            [names, pa.array(self.firsts[at]), pa.array(self.lasts[at])],
            fields=list(kind.value_type),
        )
        return pa.ListArray.from_arrays(pa.array(offsets), ranges).cast(kind)

    def event_times(
        self, callers: NDArray[np.int64], fired_ms: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The time of rows made by these calls: of the latest event, or of the timer."""
        times = np.full(len(callers), NO_TIME, np.int64)
        by_event = callers >= 0
        times[by_event] = self.times_us[callers[by_event]]
        timers = ~by_event
        # A timer may be set for any number, and rows have times that a datetime can hold.
        within = np.clip(fired_ms, FIRST_MS, LAST_MS)
        times[timers] = within[-callers[timers] - 1] * 1000
        return times


def with_provenance(
    table: pa.Table, provenance: Provenance, callers: NDArray[np.int64]
) -> pa.Table:
    """The rows, and where each comes from."""
    rows = table.num_rows
    columns = {
        "_epoch": pa.array(np.full(rows, provenance.epoch, np.int64)),
        "_partition": pa.array(np.full(rows, provenance.partition, np.int32)),
        "_sequence": pa.array(np.arange(rows, dtype=np.int64)),
        "_input": provenance.inputs(callers),
    }
    for name, column in columns.items():
        table = table.append_column(PROVENANCE.field(name), column)
    return table
