"""Reading a table: Arrow in the hands of anybody, as of HEAD or of an earlier epoch.

Every file is verified before a row of it is shown. Columns are found by name, so a table whose
columns have changed reads as one: a column that a file does not have is null there. The columns
of provenance are kept, and stand last.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.formats import Ref
from penstock.checkpoint.perform import perform
from penstock.checkpoint.root import Root
from penstock.errors import Invalid
from penstock.ids import Epoch
from penstock.points import Point
from penstock.sinks.protocol import PROVENANCE
from penstock.sinks.table import open_file
from penstock.sinks.table_index import TableFiles, body_of, find_files, tables_of

__all__ = [
    "Found",
    "fetch_file",
    "fitted",
    "read_table",
    "refuse_strangers",
    "table_names",
    "table_reader",
    "table_schema",
]

_ORDER = [(column, "ascending") for column in ("_epoch", "_partition", "_sequence")]

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


class Found(Protocol):
    """A root, and the chain by which the names of its files were found."""

    @property
    def root(self) -> Root:
        """Where the files are."""

    @property
    def chain(self) -> Chain:
        """It knows on which line of history they are."""


def read_table(
    root: str | Root, name: str, epoch: int | None = None, latest_by: str | Sequence[str] = ()
) -> pa.Table:
    """All rows of a table, file by file in order of epoch and partition.

    With `latest_by`, of the rows that are equal in these columns only the last by epoch,
    partition and sequence. Nulls count as equal.
    """
    place = _opened(root)
    files = find_files(place, name, None if epoch is None else Epoch(epoch))
    parts = [_whole(files, file.output.ref) for file in files]
    schema = _unified(name, [part.schema for part in parts])
    table = pa.concat_tables(
        [schema.empty_table(), *(fitted(name, part, schema) for part in parts)]
    )
    columns = (latest_by,) if isinstance(latest_by, str) else tuple(latest_by)
    # Without a file nobody knows the columns of a table, so none can be called unknown.
    return _latest(name, table, columns) if columns and parts else table


def table_reader(root: str | Root, name: str, epoch: int | None = None) -> pa.RecordBatchReader:
    """The same rows batch by batch, with no more than one file in memory.

    The columns are those of the first file and of the newest. A file between the two that has
    yet others is refused when it is met: only `read_table` looks at all of them beforehand.
    """
    place = _opened(root)
    files = find_files(place, name, None if epoch is None else Epoch(epoch))
    schema = table_schema(name, files)
    return pa.RecordBatchReader.from_batches(schema, _batches(name, files, schema))


def table_names(root: str | Root) -> list[str]:
    """The tables of a job. A sink that has no index and was never given a row may be one."""
    history = _opened(root).history()
    newest = next(history, None)
    if newest is None:
        return []
    names = set(tables_of(newest))
    untold = {name for name in names if name not in newest.tables and not newest.sinks[name]}
    while untold and (manifest := next(history, None)) is not None:
        told = {sink for sink in untold if manifest.sinks.get(sink)}
        names -= told - set(tables_of(manifest))
        untold -= told
    return sorted(names)


def table_schema(name: str, files: TableFiles) -> pa.Schema:
    """The columns of the first file and of the newest, as one."""
    ends = (next(iter(files), None), files.newest())
    refs = {file.output.ref.key: file.output.ref for file in ends if file is not None}
    return _unified(name, [fetch_file(files, ref)[0] for ref in refs.values()])


def fetch_file(table: Found, ref: Ref) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns of a file, and its rows batch by batch. It is `Corrupt` unless every byte of it
    is what was written."""
    body = perform(body_of(table.chain, ref, Point.READ_OBJECT), table.root.handlers)
    return open_file(ref.key, body)


def refuse_strangers(name: str, ref: Ref, found: pa.Schema, schema: pa.Schema) -> None:
    """Raise if a file has a column that would be left out without a word."""
    strangers = [column for column in found.names if column not in schema.names]
    if strangers:
        raise Invalid(
            f"table {name}",
            f"has a column {strangers[0]!r} in {ref.key}, but neither in its first file nor in "
            "its newest",
            "use `read_table`, or in Spark name the columns you want with `.schema(...)`",
        )


def fitted(name: str, rows: Rows, schema: pa.Schema) -> Rows:
    """Rows in these columns; what they do not have is null."""
    try:
        columns = [_column(rows, field) for field in schema]
        return type(rows).from_arrays(columns, schema=schema)
    except pa.ArrowException as why:
        raise _disagreeing(name, why) from why


def _column(rows: pa.RecordBatch | pa.Table, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    at = rows.schema.get_field_index(field.name)
    if at < 0:
        return pa.nulls(rows.num_rows, field.type)
    column = rows.column(at)
    if column.type == field.type:
        return column
    # Spark keeps microseconds; nothing else that is lost in a cast is accepted.
    return pc.cast(column, options=pc.CastOptions(field.type, allow_time_truncate=True))


def _batches(name: str, files: TableFiles, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for file in files:
        found, batches = fetch_file(files, file.output.ref)
        refuse_strangers(name, file.output.ref, found, schema)
        yield from (fitted(name, batch, schema) for batch in batches)


def _whole(files: TableFiles, ref: Ref) -> pa.Table:
    schema, batches = fetch_file(files, ref)
    return pa.Table.from_batches(batches, schema)


def _unified(name: str, schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Every column of some files: the table's own, then where rows came from. Each may be null,
    for there may be a file without it."""
    plain = [schema.remove_metadata() for schema in schemas]
    try:
        whole = pa.unify_schemas([*plain, PROVENANCE], promote_options="default")
    except pa.ArrowException as why:
        raise _disagreeing(name, why) from why
    own = [field.with_nullable(True) for field in whole if field.name not in PROVENANCE.names]
    return pa.schema([*own, *PROVENANCE])


def _latest(name: str, table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The last row of each key, in the order of these rows."""
    for column in columns:
        if column not in table.column_names:
            raise Invalid(
                f"table {name}",
                f"has no column {column!r}",
                f"use one of {', '.join(table.column_names)}",
            )
    order = pc.sort_indices(table.select([column for column, _ in _ORDER]), sort_keys=_ORDER)
    keys = {str(number): table[column] for number, column in enumerate(columns)}
    numbered = pa.table(keys).take(order).append_column("row", pa.array(range(len(order))))
    try:
        groups = numbered.group_by(list(keys), use_threads=False).aggregate([("row", "max")])
    except pa.ArrowException as why:
        raise Invalid(
            f"table {name}",
            f"cannot be grouped by {', '.join(columns)} ({why})",
            "use columns of plain values",
        ) from why
    last = groups["row_max"].combine_chunks()
    return table.take(order.take(last.take(pc.sort_indices(last))))


def _disagreeing(name: str, why: Exception) -> Invalid:
    return Invalid(
        f"table {name}",
        f"has files whose columns do not fit together ({why})",
        "read it as of an epoch before the type of a column was changed",
    )


def _opened(root: str | Root) -> Root:
    return Root.open(root) if isinstance(root, str) else root
