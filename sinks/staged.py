"""Outputs on their way into a sink: staged as Arrow before the decision, read back after it."""

from collections.abc import Collection, Sequence

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.checkpoint.layout import output_key
from penstock.ids import Attempt, Epoch, Key
from penstock.sinks.protocol import PLACE, PROVENANCE, AppliedSink, Sink, StagedSink
from penstock.sinks.table import arrow_file
from penstock.sinks.value_check import check_sound

__all__ = ["own_columns", "rows_of", "staged", "with_places"]


def staged(
    sink: Sink, epoch: Epoch, partition: int, attempt: Attempt, rows: pa.Table
) -> tuple[Key, bytes]:
    """The name and the body of the object that holds these rows for that sink; `Invalid` if it
    could never write them."""
    if isinstance(sink, AppliedSink):
        check_sound(f"sink {sink.name}", rows)
        sink.check(rows)
        return output_key(sink.name, epoch, partition, attempt), arrow_file(rows)
    assert isinstance(sink, StagedSink), "a sink is a table or is applied to"
    sink.check(rows)
    return sink.key(epoch, partition, attempt), sink.encode(rows)


def rows_of(
    outputs: Sequence[bytes], columns: pa.Schema, without: Collection[str] = ()
) -> pa.Table:
    """The rows in staged objects, one after the other, with those of `PROVENANCE` last. Columns
    that nobody wants are not unpacked: where a row comes from takes longer than most rows do."""
    tables = [_unpacked(pa.py_buffer(body), without) for body in outputs]
    if tables:
        return pa.concat_tables(tables)
    wanted = [column for column in [*columns, *PROVENANCE] if column.name not in without]
    return pa.schema(wanted).empty_table()


def _unpacked(body: pa.Buffer, without: Collection[str]) -> pa.Table:
    names = pa.ipc.open_file(body).schema.names
    wanted = [number for number, name in enumerate(names) if name not in without]
    options = pa.ipc.IpcReadOptions(included_fields=wanted)
    return pa.ipc.open_file(body, options=options).read_all()


def own_columns(rows: pa.Table) -> pa.Table:
    """The rows without where they come from."""
    return rows.drop_columns([name for name in PROVENANCE.names if name in rows.column_names])


def with_places(shown: pa.Table, rows: pa.Table) -> pa.Table:
    """What a target shows of rows, with the columns that name them."""
    for name in PLACE:
        shown = shown.append_column(rows.schema.field(name), rows.column(name))
    return shown
