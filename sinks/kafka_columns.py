"""Columns that are not in the value of a message but beside it: its time and its headers."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.sinks.plain_values import is_bytes

__all__ = ["Headers", "are_headers", "as_ms", "length", "origins", "pairs"]

Headers: TypeAlias = list[tuple[str, bytes | str | None]]


def as_ms(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Moments in milliseconds since 1970; what cannot be counted so is -1."""
    units = {"s": 1_000, "ms": 1, "us": -1_000, "ns": -1_000_000}
    step, counted = units[column.type.unit], column.cast(pa.int64())
    if step < 0:
        return pc.divide(counted, -step)
    far = pc.greater(pc.abs(counted), (2**63 - 1) // step)
    return pc.if_else(far, -1, pc.multiply(pc.if_else(far, 0, counted), step))


def are_headers(kind: pa.DataType) -> bool:
    """Whether values are lists of a name and a value each."""
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    pair = kind.value_type
    if not pa.types.is_struct(pair) or {field.name for field in pair} != {"name", "value"}:
        return False
    name, value = pair.field("name").type, pair.field("value").type
    return bool(pa.types.is_string(name) and (pa.types.is_string(value) or is_bytes(value)))


def length(text: str | bytes | None) -> int:
    """What a name or a value takes."""
    return len(text.encode() if isinstance(text, str) else text or b"")


def pairs(headers: Sequence[dict[str, Any]] | None) -> Headers:
    """The headers of one row, as a producer takes them."""
    return [(each["name"], each["value"]) for each in headers or ()]


def origins(rows: pa.Table) -> list[Headers]:
    """Where each row comes from, as headers."""
    names = ("epoch", "partition", "sequence")
    columns = [pc.cast(rows.column(f"_{name}"), pa.string()).to_pylist() for name in names]
    titles = [f"penstock.{name}" for name in names]
    return [list(zip(titles, place, strict=True)) for place in zip(*columns, strict=True)]
