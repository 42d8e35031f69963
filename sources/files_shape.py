"""The columns a source promises, and bringing what a file holds into them.

Columns are found by name. One that a file lacks is null, if it may be; one that the source does
not promise is left out; a value is cast only if it stays the same value. What does not fit
raises `ValueError`, or what Arrow makes of it, and the caller decides how much that concerns.
"""

import base64
from dataclasses import dataclass

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.sources.event_times import as_times, outside_calendar, why_outside
from penstock.sources.exact_casts import check_castable, exact_cast
from penstock.sources.protocol import META, META_NAME, TIME

__all__ = ["Shape", "check_columns", "decode_columns", "encode_columns", "widened"]

_DATED = (pa.types.is_timestamp, pa.types.is_date, pa.types.is_string, pa.types.is_large_string)


@dataclass(frozen=True, slots=True)
class Shape:
    """What every row has: the columns, and perhaps one that says when it happened."""

    columns: pa.Schema
    event_time: str | None = None

    def check(self, found: pa.Schema) -> None:
        """Raise if a file with these columns can have no row that fits."""
        self.check_names(found.names)
        for field in self.columns:
            if field.name in found.names:
                _check_cast(field, found.field(field.name).type)

    def check_names(self, names: list[str]) -> None:
        """Raise if a file with columns of these names can have no row that fits."""
        for field in self.columns:
            if names.count(field.name) > 1:
                raise ValueError(f"it has column {field.name!r} more than once")
            if not field.nullable and field.name not in names:
                raise ValueError(f"it lacks column {field.name!r}, which may not be null")
        if not set(names) & set(self.columns.names):
            raise ValueError(f"it has none of the columns {', '.join(self.columns.names)}")

    def fitted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with exactly the promised columns, and behind them when each happened."""
        columns = [_fitted(rows, field) for field in self.columns]
        times = pa.nulls(rows.num_rows, TIME)
        if self.event_time is not None:
            times = _as_time(columns[self.columns.get_field_index(self.event_time)])
        return pa.record_batch([*columns, times], names=[*self.columns.names, META_NAME])

    def with_meta(
        self, rows: pa.RecordBatch, offsets: np.ndarray, modified_us: int, planned_ms: int
    ) -> pa.RecordBatch:
        """Fitted rows as a source gives them."""
        *columns, times = rows.columns
        count = rows.num_rows
        meta = [
            pa.array(offsets, pa.int64()),
            times,
            pa.repeat(pa.scalar(modified_us, TIME), count),
            pa.repeat(pa.scalar(planned_ms * 1000, TIME), count),
        ]
        columns.append(pa.StructArray.from_arrays(meta, fields=list(META)))
        return pa.record_batch(columns, schema=self.with_meta_column())

    def with_meta_column(self) -> pa.Schema:
        """The columns of what a source gives."""
        return self.columns.append(pa.field(META_NAME, META))


def _check_cast(field: pa.Field, found: pa.DataType) -> None:
    try:
        check_castable(found, field.type)
    except ValueError as error:
        what = f"column {field.name!r} is {found}, which cannot be cast to {field.type}"
        raise ValueError(what) from error


def _fitted(rows: pa.RecordBatch, field: pa.Field) -> pa.Array:
    index = rows.schema.get_field_index(field.name)
    if index < 0:
        column = pa.nulls(rows.num_rows, field.type)
    else:
        column = rows.column(index)
        column = exact_cast(column, field.type)
    if column.null_count and not field.nullable:
        raise ValueError(f"column {field.name!r} is null, and may not be")
    return column


def _as_time(column: pa.Array) -> pa.Array:
    """Times to the microsecond; raises if one of them is in no calendar."""
    times = as_times(column)
    beyond = outside_calendar(times)
    if beyond is not None:
        micros = times.cast(pa.int64())[int(np.argmax(beyond))].as_py()
        raise ValueError(why_outside(micros))
    return times


def check_columns(columns: pa.Schema, event_time: str | None) -> None:
    """Raise `ValueError` unless a source can promise these columns."""
    names = columns.names
    if not names:
        raise ValueError("there are no columns")
    for name in names:
        if names.count(name) > 1 or name == META_NAME:
            taken = f"{META_NAME!r} is what a source itself adds"
            raise ValueError(taken if name == META_NAME else f"column {name!r} is there twice")
    if event_time is None:
        return
    if event_time not in names:
        raise ValueError(f"there is no column {event_time!r} to take event times from")
    kind = columns.field(event_time).type
    if not any(is_kind(kind) for is_kind in _DATED):
        raise ValueError(
            f"event times cannot be taken from column {event_time!r}, which is {kind}: make it "
            "a timestamp, a date, or text with a zone"
        )


def widened(columns: pa.Schema) -> pa.Schema:
    """Columns that were guessed, made to hold more than the rows they were guessed from."""
    return pa.schema([pa.field(field.name, _widened(field.type)) for field in columns])


def _widened(kind: pa.DataType) -> pa.DataType:
    """Nothing but nulls may become text; a whole second may be followed by half a one."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_timestamp(kind) and kind.unit in ("s", "ms"):
        return pa.timestamp("us", tz=kind.tz)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(part.name, _widened(part.type)) for part in kind])
    if pa.types.is_list(kind):
        return pa.list_(_widened(kind.value_type))
    return kind


def encode_columns(columns: pa.Schema) -> str:
    """A schema as text, for the record."""
    return base64.b64encode(columns.serialize().to_pybytes()).decode()


def decode_columns(text: str) -> pa.Schema:
    """The schema that was encoded."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
