"""`Table`: a sink whose staged files are the table itself.

There is nothing to apply after a commit and no cursor to keep: a file is part of the table from
the moment HEAD reaches the manifest that names it. So a table is at every moment exactly what
the committed epochs wrote, and can be read as of each of them.
"""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Literal, get_args

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from penstock.checkpoint.layout import table_key
from penstock.errors import Invalid
from penstock.ids import Attempt, Epoch, Key, check_name
from penstock.sinks.guarantee import Guarantee

__all__ = ["Format", "Table", "open_file"]

Format = Literal["arrow", "parquet"]
"""How the files are written: Arrow is read fastest, Parquet is smaller and read by everybody."""

BATCH_ROWS = 1 << 16
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class Table:
    """A table of that name below the root of its job."""

    name: str
    _: KW_ONLY
    format: Format = "arrow"

    def __post_init__(self) -> None:
        check_name("table", self.name)
        if self.format not in get_args(Format):
            raise Invalid(
                f"table {self.name}",
                f"cannot be written as {self.format!r}",
                f"use one of {', '.join(get_args(Format))}",
            )

    @property
    def guarantee(self) -> Guarantee:
        """Rows are visible by the commit itself."""
        return Guarantee.EXACTLY_ONCE

    def encode(self, rows: pa.Table) -> bytes:
        """The bytes of a file. How the rows were chunked on their way makes no difference."""
        whole = rows.replace_schema_metadata(None).combine_chunks()
        sink = pa.BufferOutputStream()
        if self.format == "parquet":
            pq.write_table(whole, sink, compression="zstd")
        else:
            with pa.ipc.new_file(sink, whole.schema, options=_OPTIONS) as writer:
                writer.write_table(whole, max_chunksize=BATCH_ROWS)
        body: bytes = sink.getvalue().to_pybytes()
        return body

    def key(self, epoch: Epoch, partition: int, attempt: Attempt) -> Key:
        """Where one attempt's file goes."""
        return table_key(self.name, epoch, f"{partition}-{attempt}.{self.format}")


def open_file(key: Key, body: bytes) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns of a file, and its rows batch by batch. The name tells how it is written."""
    suffix = key.rpartition(".")[2]
    if suffix == "parquet":
        file = pq.ParquetFile(pa.BufferReader(body))
        return file.schema_arrow, file.iter_batches(batch_size=BATCH_ROWS)
    if suffix == "arrow":
        reader = pa.ipc.open_file(pa.py_buffer(body))
        return reader.schema, map(reader.get_batch, range(reader.num_record_batches))
    raise Invalid(
        key,
        "is written in a way that this version of Penstock does not know",
        "use the version of Penstock that wrote it, or a newer one",
    )
