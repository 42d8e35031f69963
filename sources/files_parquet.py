"""Parquet files: one offset per row, and only the row groups a range needs are read.

A page that cannot be decoded takes the rest of its row group with it, from the batch it shows
in: there is no telling where the next row begins. Batches are counted from the start of their
group, so that is the same batch on every reading.

INT96 is how Spark writes times by default: nanoseconds of a day, and the day, in UTC. Arrow reads
it as nanoseconds in 64 bits, in which the years before 1677 and after 2262 wrap around. It is read
as microseconds instead, and once more as nanoseconds: the two differ by what is finer than a
microsecond, modulo 2**64, and such a row is bad. The type knows no zone; a schema that declares
one is believed.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from penstock.sources.files_listing import RangedFile
from penstock.sources.files_pieces import DAMAGE, Bad, Kept, Stream, reason, sift
from penstock.sources.files_shape import Shape, widened

__all__ = ["ParquetFormat"]

BATCH_ROWS = 1 << 15
FINER = "_penstock_finer_"


class ParquetFormat:
    """Reading Parquet."""

    def infer(self, file: RangedFile) -> pa.Schema | None:
        """The columns in the footer."""
        return widened(_opened(file).schema_arrow)

    def measure(self, file: RangedFile, shape: Shape | None) -> int:
        """The rows, by the footer."""
        opened = _opened(file)
        if shape is not None:
            shape.check(_as_declared(opened, shape))
        return int(opened.metadata.num_rows)

    def try_first(self, file: RangedFile, shape: Shape) -> None:
        """The footer says what can be said by a short look."""

    def pieces(self, file: RangedFile, start: int, stop: int, shape: Shape) -> Iterator[Kept | Bad]:
        """Rows by their number."""
        opened, first = _opened(file), 0
        finer = _opened(file, "ns") if _int96(opened) & set(shape.columns.names) else None
        for group in range(opened.num_row_groups):
            last = first + opened.metadata.row_group(group).num_rows
            if first < stop and last > start:
                batches = _batches(opened, finer, group, shape)
                yield from _group(batches, group, range(first, last), range(start, stop), shape)
            first = last


def _opened(file: RangedFile, int96_unit: str = "us") -> pq.ParquetFile:
    source = pa.PythonFile(Stream(file), mode="r")
    return pq.ParquetFile(
        source,
        pre_buffer=False,
        page_checksum_verification=True,
        coerce_int96_timestamp_unit=int96_unit,
    )


def _int96(opened: pq.ParquetFile) -> set[str]:
    """The columns of that type. Inside lists and structs it is read as Arrow reads it, which
    refuses nothing: no writer of ours or of Spark's puts it there."""
    columns = (opened.schema.column(at) for at in range(len(opened.schema)))
    return {each.path for each in columns if each.physical_type == "INT96"}


def _as_declared(opened: pq.ParquetFile, shape: Shape) -> pa.Schema:
    """The columns of a file, those of INT96 in the zone that is declared."""
    told = opened.schema_arrow
    for name in _int96(opened) & set(shape.columns.names) & set(told.names):
        kind = shape.columns.field(name).type
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            at = told.get_field_index(name)
            told = told.set(at, pa.field(name, pa.timestamp("us", "UTC")))
    return told


def _batches(
    opened: pq.ParquetFile, finer: pq.ParquetFile | None, group: int, shape: Shape
) -> Iterator[pa.RecordBatch]:
    """The batches of one row group, with the promised columns it has; and for each of INT96 one
    more, which says of which rows it is not the whole time."""
    names = [name for name in shape.columns.names if name in opened.schema_arrow.names]
    plain = opened.iter_batches(BATCH_ROWS, row_groups=[group], columns=names, use_threads=False)
    if finer is None:
        yield from plain
        return
    odd = sorted(_int96(opened) & set(names))
    again = finer.iter_batches(BATCH_ROWS, row_groups=[group], columns=odd, use_threads=False)
    schema = _as_declared(opened, shape)
    for batch, exact in zip(plain, again, strict=True):
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for name in odd:
            zoned = columns[name].cast(schema.field(name).type)
            columns[name] = zoned
            columns[f"{FINER}{name}"] = _finer(zoned, exact.column(name))
        yield pa.RecordBatch.from_pydict(columns)


def _finer(micros: pa.Array, nanos: pa.Array) -> pa.Array:
    """Whether each time has nanoseconds. Both are known only modulo 2**64, and so is their
    difference, which is less than a thousand."""
    us, ns = (each.cast(pa.int64()).fill_null(0).to_numpy() for each in (micros, nanos))
    return pa.array(ns.view(np.uint64) != us.view(np.uint64) * np.uint64(1000))


def _group(
    batches: Iterator[pa.RecordBatch], group: int, inside: range, wanted: range, shape: Shape
) -> Iterator[Kept | Bad]:
    """What is wanted of one row group, whose rows are numbered `inside`."""
    first = inside.start
    while first < min(inside.stop, wanted.stop):
        try:
            batch = _next(batches)
        except DAMAGE as why:
            lost = range(max(first, wanted.start), min(inside.stop, wanted.stop))
            if lost:
                yield Bad(lost.start, f"row group {group}: {reason(why)}", len(lost))
            return
        yield from _sifted(batch, first, wanted, shape)
        first += batch.num_rows


def _next(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
    batch = next(batches, None)
    if batch is None or not batch.num_rows:
        raise ValueError("it has fewer rows than the footer says")
    return batch


def _sifted(batch: pa.RecordBatch, first: int, wanted: range, shape: Shape) -> Iterator[Kept | Bad]:
    """What is wanted of one batch, whose first row has the number `first`."""
    start = max(first, wanted.start)
    stop = min(first + batch.num_rows, wanted.stop)
    if start < stop:
        rows = batch.slice(start - first, stop - start)
        yield from sift(
            np.arange(start, stop, dtype=np.int64),
            lambda begin, end: _fitted(rows.slice(begin, end - begin), shape),
        )


def _fitted(rows: pa.RecordBatch, shape: Shape) -> pa.RecordBatch:
    for name in rows.schema.names:
        if name.startswith(FINER) and pc.any(rows.column(name)).as_py():
            column = name.removeprefix(FINER)
            raise ValueError(f"column {column!r} is INT96 with nanoseconds, which would be cut")
    return shape.fitted(rows)
