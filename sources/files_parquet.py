"""Parquet files: one offset per row, and only the row groups a range needs are read.

A page that cannot be decoded takes the rest of its row group with it, from the batch it shows
in: there is no telling where the next row begins. Batches are counted from the start of their
group, so that is the same batch on every reading.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from penstock.sources.files_listing import RangedFile
from penstock.sources.files_pieces import DAMAGE, Bad, Kept, Stream, reason, sift
from penstock.sources.files_shape import Shape, widened

__all__ = ["ParquetFormat"]

BATCH_ROWS = 1 << 15


class ParquetFormat:
    """Reading Parquet."""

    def infer(self, file: RangedFile) -> pa.Schema | None:
        """The columns in the footer."""
        return widened(_opened(file).schema_arrow)

    def measure(self, file: RangedFile, shape: Shape | None) -> int:
        """The rows, by the footer."""
        opened = _opened(file)
        if shape is not None:
            shape.check(opened.schema_arrow)
        return int(opened.metadata.num_rows)

    def pieces(self, file: RangedFile, start: int, stop: int, shape: Shape) -> Iterator[Kept | Bad]:
        """Rows by their number."""
        opened, first = _opened(file), 0
        for group in range(opened.num_row_groups):
            last = first + opened.metadata.row_group(group).num_rows
            if first < stop and last > start:
                yield from _group(opened, group, range(first, last), range(start, stop), shape)
            first = last


def _opened(file: RangedFile) -> pq.ParquetFile:
    source = pa.PythonFile(Stream(file), mode="r")
    return pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True)


def _group(
    opened: pq.ParquetFile, group: int, inside: range, wanted: range, shape: Shape
) -> Iterator[Kept | Bad]:
    """What is wanted of one row group, whose rows are numbered `inside`."""
    first = inside.start
    names = [name for name in shape.columns.names if name in opened.schema_arrow.names]
    batches = opened.iter_batches(BATCH_ROWS, row_groups=[group], columns=names, use_threads=False)
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
            lambda begin, end: shape.fitted(rows.slice(begin, end - begin)),
        )
