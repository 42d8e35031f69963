"""`Table`: a sink whose staged files are the table itself.

There is nothing to apply after a commit and no cursor to keep: a file is part of the table from
the moment HEAD reaches the manifest that names it. So a table is at every moment exactly what
the committed epochs wrote, and can be read as of each of them.
"""

from collections.abc import Collection, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Literal, get_args

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from penstock.checkpoint.layout import table_key
from penstock.errors import Corrupt, Invalid
from penstock.ids import Attempt, Epoch, Key, check_name
from penstock.sinks.guarantee import Guarantee
from penstock.sinks.value_check import check_calendar, check_sound

__all__ = ["Format", "Table", "arrow_file", "open_file"]

Format = Literal["arrow", "parquet"]
"""How the files are written: Arrow is read fastest, Parquet is smaller and read by everybody."""

BATCH_ROWS = 1 << 16
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
_COPY = "restore it from a copy: it was altered or forged"


@dataclass(frozen=True, slots=True)
class Table:
    """A table of that name below the root of its job."""

    name: str
    _: KW_ONLY
    format: Format = "arrow"
    takes_any: bool = False
    """Whether values are kept that not every reader has: of what was set aside, nothing may be
    refused."""

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

    def check(self, rows: pa.Table) -> None:
        """Raise `Invalid` for values that readers of the table do not have."""
        if not self.takes_any:
            where = f"sink {self.name}"
            check_sound(where, rows)
            check_calendar(where, rows)

    def encode(self, rows: pa.Table) -> bytes:
        """The bytes of a file. How the rows were chunked on their way makes no difference."""
        if self.format == "arrow":
            return arrow_file(rows)
        sink = pa.BufferOutputStream()
        try:
            pq.write_table(_whole(rows), sink, compression="zstd")
        except (pa.ArrowException, OSError) as refused:
            found = f"cannot be written as Parquet ({refused})"
            advice = "use format='arrow', or emit it as another type"
            raise Invalid(f"sink {self.name}", found, advice) from refused
        body: bytes = sink.getvalue().to_pybytes()
        return body

    def key(self, epoch: Epoch, partition: int, attempt: Attempt) -> Key:
        """Where one attempt's file goes."""
        return table_key(self.name, epoch, f"{partition}-{attempt}.{self.format}")


def arrow_file(rows: pa.Table) -> bytes:
    """Rows as a file in Arrow's own format."""
    whole = _whole(rows)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, whole.schema, options=_OPTIONS) as writer:
        writer.write_table(whole, max_chunksize=BATCH_ROWS)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def _whole(rows: pa.Table) -> pa.Table:
    return rows.replace_schema_metadata(None).combine_chunks()


def open_file(
    key: Key, body: bytes, only: Collection[str] | None = None
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns of a file, and its rows batch by batch. The name tells how it is written. With
    `only`, no other columns than these are unpacked. `Corrupt` if it is no such file."""
    try:
        schema, batches = _opened(key, body, only)
    except (pa.ArrowException, OSError) as damage:
        raise Corrupt(key, f"is no file of a table ({damage})", _COPY) from damage
    return schema, _told(key, batches)


def _told(key: Key, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except (pa.ArrowException, OSError) as damage:
        raise Corrupt(key, f"is no file of a table ({damage})", _COPY) from damage


def _opened(
    key: Key, body: bytes, only: Collection[str] | None
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    suffix = key.rpartition(".")[2]
    if suffix == "parquet":
        file = pq.ParquetFile(pa.BufferReader(body))
        names = file.schema_arrow.names
        wanted = None if only is None else [name for name in names if name in only]
        return file.schema_arrow, file.iter_batches(batch_size=BATCH_ROWS, columns=wanted)
    if suffix == "arrow":
        names = pa.ipc.open_file(pa.py_buffer(body)).schema.names
        fields = [at for at, name in enumerate(names) if only is None or name in only]
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        reader = pa.ipc.open_file(pa.py_buffer(body), options=options)
        return reader.schema, map(reader.get_batch, range(reader.num_record_batches))
    raise Invalid(
        key,
        "is written in a way that this version of Penstock does not know",
        "use the version of Penstock that wrote it, or a newer one",
    )
