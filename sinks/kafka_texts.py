"""Columns and rows as the bytes of messages: JSON, text, or bytes as they are.

How a value is spelt is the same in all stores without types; see `plain_values`. Where that
spelling is what the encoder writes by itself, a column goes into it as it is.
"""

from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.sinks.plain_values import as_plain, as_text, is_bytes, is_text, python_values

__all__ = ["as_bytes", "as_json"]

_ENCODE = msgspec.json.Encoder().encode


def as_json(rows: pa.Table, bare: bool = False) -> list[bytes]:
    """Each row as an object of JSON; `bare`: as the value of its only column."""
    columns = [_plain(column) for column in rows.columns]
    if bare:
        return list(map(_ENCODE, columns[0]))
    if not columns:
        return [b"{}"] * rows.num_rows
    made = _row_type(rows.column_names)
    if made is None:
        names = rows.column_names
        return [_ENCODE(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]
    return list(map(_ENCODE, map(made, *columns)))


def as_bytes(column: pa.ChunkedArray) -> list[Any]:
    """Each value as it is if it is bytes, else as text. None stays None."""
    kind = column.type
    if is_bytes(kind):
        found: list[bytes | None] = column.to_pylist()
        return found
    if is_text(kind):
        return as_bytes(column.cast(pa.large_binary()))
    spell = as_text(kind)
    return [None if value is None else spell(value).encode() for value in python_values(column)]


def _row_type(names: list[str]) -> Any:
    """A record with these names, which the encoder knows how to write. None: it cannot have
    them."""
    fields = [f"c{number}" for number in range(len(names))]
    try:
        return msgspec.defstruct("Row", fields, rename=dict(zip(fields, names, strict=True)),
                                 gc=False)  # fmt: skip
    except ValueError:  # a name with a quote in it, say
        return None


def _plain(column: pa.ChunkedArray) -> list[Any]:
    values = python_values(column)
    if _is_its_own(column):
        return values
    spell = as_plain(column.type)
    return [spell(value) for value in values]


def _is_its_own(column: pa.ChunkedArray) -> bool:
    """Whether the encoder spells these values as we do."""
    kind = column.type
    if pa.types.is_floating(kind):
        return pc.all(pc.is_finite(column)).as_py() is not False
    return bool(is_text(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind))
