"""What Postgres could never take, found by the task that emitted it: after the decision it would be
too late to refuse it.

Types and names are looked at first, then the values: most of it with one pass of a compiled loop
over a column. Sizes are looked at row by row only if the rows together are large enough for one
of them to be too large.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.errors import Invalid
from penstock.sinks.plain_values import bytes_bound, check_plain
from penstock.sinks.postgres_names import check_identifier
from penstock.sinks.postgres_types import is_bytes, is_text, made_as, plain_type
from penstock.sinks.postgres_values import csv_pieces, json_column, plain_rows
from penstock.sinks.staged import own_columns
from penstock.sinks.value_check import check_each, check_spelling, leaves

__all__ = ["JSON_BYTES_MAX", "KEY_BYTES_MAX", "ROW_BYTES_MAX", "check_columns", "check_values"]

COLUMNS_MAX = 1600
ROW_BYTES_MAX = (1 << 30) - (1 << 16)
"""Of a row as text, in which COPY takes less than a GiB. Bytes are twice as long there."""
JSON_BYTES_MAX = (1 << 28) - (1 << 16)
"""Of a nested value as JSON, of which `jsonb` takes less than 256 MiB."""
KEY_BYTES_MAX = 2600
"""Of the text in a key: what an index takes without compressing it."""

SYSTEM_COLUMNS = frozenset(("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"))
"""Names that every table has given away already."""

_LONGER_MAX = 3
"""More than how much longer plain values are as text: at most twice, and a few KiB for quotes."""


def check_columns(where: str, columns: pa.Schema, key: Sequence[str]) -> None:
    """Raise `Invalid` if there can be no table for such rows."""
    if len(columns) > COLUMNS_MAX:
        found = f"has {len(columns)} columns, and a table has at most {COLUMNS_MAX}"
        raise Invalid(where, found, "emit fewer, or nest them")
    if len(set(columns.names)) < len(columns):
        raise Invalid(where, "has two columns of one name", "rename one")
    check_plain(where, pa.schema([field for field in columns if pa.types.is_nested(field.type)]))
    for column in columns:
        at = f"{where}, column {column.name!r}"
        check_identifier(at, column.name)
        if column.name in SYSTEM_COLUMNS:
            raise Invalid(at, "is a column that Postgres itself has in every table", "rename it")
        if made_as(column.type) is None and not pa.types.is_null(column.type):
            found = f"is {column.type}, and this sink has no type of Postgres for that"
            raise Invalid(at, found, "cast it, or leave it out")
    for name in key:
        kind = plain_type(columns.field(name).type)
        if pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind):
            raise Invalid(
                f"{where}, column {name!r}",
                f"is its key, and is {kind}, of which values are not plainly equal or not",
                "make it a number, a text or a moment",
            )


def check_values(where: str, rows: pa.Table, key: Sequence[str]) -> None:
    """Raise `Invalid` if there is a value that no column could hold."""
    check_spelling(where, rows)
    check_each(where, rows, _too_fine)
    written = own_columns(rows)
    _check_key_size(where, written, key)
    _check_sizes(where, written)
    check_each(where, rows, _with_nul)


def _with_nul(column: pa.ChunkedArray) -> tuple[str, str] | None:
    for chunk in column.chunks:
        for leaf in leaves(chunk):
            kind = plain_type(leaf.type)
            if not is_text(kind):
                continue
            texts = leaf.cast(kind)
            bad = pc.match_substring(texts, "\0")
            if pc.any(bad).as_py():
                text = texts[pc.index(bad, True).as_py()].as_py()
                found = f"holds a text with the character NUL, {text[:60]!r}"
                return found, "take it out: Postgres can never store it"
    return None


def _too_fine(column: pa.ChunkedArray) -> tuple[str, str] | None:
    try:
        column.cast(plain_type(column.type))
    except pa.ArrowInvalid:
        found = f"is {column.type}, and holds more digits than Postgres keeps of a second"
        return found, "cast it to microseconds"
    return None


def _check_key_size(where: str, rows: pa.Table, key: Sequence[str]) -> None:
    total = np.zeros(rows.num_rows, np.int64)
    for name in key:
        column = rows.column(name).cast(plain_type(rows.schema.field(name).type))
        if is_text(column.type) or is_bytes(column.type):
            lengths = pc.fill_null(pc.binary_length(column).cast(pa.int64()), 0)
            total += lengths.to_numpy()
    largest = int(total.max(initial=0))
    if largest > KEY_BYTES_MAX:
        found = f"has a key of {largest} bytes, and an index takes at most {KEY_BYTES_MAX}"
        raise Invalid(where, found, "make the key shorter: a hash of it will do")


def _check_sizes(where: str, rows: pa.Table) -> None:
    nested = [field.name for field in rows.schema if pa.types.is_nested(field.type)]
    if not nested and rows.nbytes < ROW_BYTES_MAX // _LONGER_MAX:
        return
    rows = plain_rows(rows)
    for name in nested:
        for at in _suspects(rows.select([name]), JSON_BYTES_MAX):
            size = _json_bytes(rows.column(name).slice(at, 1).combine_chunks())
            if size > JSON_BYTES_MAX:
                found = f"holds a value of {size} bytes of JSON, and the limit is {JSON_BYTES_MAX}"
                raise Invalid(f"{where}, column {name!r}", found, "split it into several rows")
    for at in _suspects(rows, ROW_BYTES_MAX):
        size = _text_bytes(rows.slice(at, 1))
        if size > ROW_BYTES_MAX:
            found = f"has a row of {size} bytes of text, and Postgres takes {ROW_BYTES_MAX}"
            raise Invalid(where, found, "split it, or keep large values elsewhere")


def _suspects(rows: pa.Table, size_bytes_max: int) -> list[int]:
    """The rows that could be larger than that."""
    found: list[int] = np.flatnonzero(bytes_bound(rows) > size_bytes_max).tolist()
    return found


def _json_bytes(values: pa.Array) -> int:
    return int(pc.sum(pc.binary_length(json_column(values))).as_py() or 0)


def _text_bytes(row: pa.Table) -> int:
    """The size of a row as text, or one that is less and too much already."""
    lengths = sum(_length(column) for column in row.columns)
    if lengths > ROW_BYTES_MAX:
        return lengths
    return lengths + sum(_doubled(column) for column in row.columns if is_text(column.type))


def _length(value: pa.ChunkedArray) -> int:
    """That of one value with its quotes and what parts it from the next."""
    if is_text(value.type) or is_bytes(value.type):
        length = pc.sum(pc.binary_length(value)).as_py() or 0
        return 2 * length + 5 if is_bytes(value.type) else length + 3
    return sum(len(piece) for piece in csv_pieces(pa.table({"value": value})))


def _doubled(value: pa.ChunkedArray) -> int:
    """Quotes in a text are written twice."""
    return pc.sum(pc.count_substring(value, '"')).as_py() or 0
