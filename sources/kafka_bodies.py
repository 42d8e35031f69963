"""Keys and values of messages as columns: bytes, text and JSON, a whole batch at a time.

A body decodes or not by itself alone: whether it does never depends on the others that happen to
be read with it. So a batch is decoded at once, and only if that fails are the bad ones looked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.json as pa_json  # type: ignore[import-untyped]

from penstock.sources.files_pieces import DAMAGE
from penstock.sources.files_shape import Shape
from penstock.sources.files_text import JsonLines

__all__ = ["Bodies", "Bytes", "Decoder", "Json", "Text", "why_not_json"]

Bodies = Sequence[bytes]
"""What was sent, of messages that have it at all."""


class Decoder(Protocol):
    """Promise: a row for every body, in order, the same on every decoding. If one of them is bad
    it raises one of `DAMAGE`, and says why in a way that fits that one alone."""

    @property
    def columns(self) -> pa.Schema:
        """What it makes of a body."""

    @property
    def is_record(self) -> bool:
        """Whether a body has fields of its own; if not, there is one column."""

    def decode(self, bodies: Bodies) -> list[pa.Array]:
        """The columns of some bodies."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bodies as they are."""

    columns: pa.Schema = field(default_factory=lambda: pa.schema([("value", pa.binary())]))
    is_record: bool = False

    def decode(self, bodies: Bodies) -> list[pa.Array]:
        """One column of bytes."""
        return [pa.array(bodies, pa.binary())]


@dataclass(frozen=True, slots=True)
class Text:
    """Bodies that are text in UTF-8."""

    columns: pa.Schema = field(default_factory=lambda: pa.schema([("value", pa.string())]))
    is_record: bool = False

    def decode(self, bodies: Bodies) -> list[pa.Array]:
        """One column of text; what is none is bad."""
        return [pa.array(bodies, pa.binary()).cast(pa.string())]


@dataclass(frozen=True, slots=True)
class Json:
    """Bodies that are one JSON object each. Fields that are not among the columns are ignored."""

    columns: pa.Schema
    is_record: bool = True

    def decode(self, bodies: Bodies) -> list[pa.Array]:
        """A column for each field. Objects on one line each, as most are written, go to Arrow as
        they are; for all others, and to say what is wrong, they are looked at one by one."""
        text = b"\n".join(bodies) + b"\n"
        if _is_one_line_each(text, len(bodies)):
            try:
                return _parsed(text, self.columns, len(bodies))
            except DAMAGE:
                pass
        return _without_times(JsonLines().parser(b"", Shape(self.columns))(bodies))


def _is_one_line_each(text: bytes, count: int) -> bool:
    """Whether every body is one line in braces.

    Then every line end is where two bodies meet, and as many objects as bodies are one each: in
    valid JSON no `{` follows a `}` inside a value, and no line end is inside a text.
    """
    return (
        text.startswith(b"{")
        and text.endswith(b"}\n")
        and text.count(b"\n") == count
        and text.count(b"}\n{") == count - 1
    )


def _parsed(text: bytes, columns: pa.Schema, count: int) -> list[pa.Array]:
    if not text.isascii():
        text.decode()
    told = pa.schema([pa.field(column.name, _json_type(column.type)) for column in columns])
    options = pa_json.ParseOptions(explicit_schema=told, unexpected_field_behavior="ignore")
    reading = pa_json.ReadOptions(use_threads=False, block_size=len(text) + 1)
    table = pa_json.read_json(pa.BufferReader(text), reading, options)
    if table.num_rows != count:
        raise ValueError("it is not exactly one object")
    [batch] = table.combine_chunks().to_batches()
    return _without_times(Shape(columns).fitted(batch))


def _json_type(kind: pa.DataType) -> pa.DataType:
    """What a column is read as, before it is cast: Arrow finds no dates in JSON."""
    return pa.string() if pa.types.is_date(kind) else kind


def _without_times(fitted: pa.RecordBatch) -> list[pa.Array]:
    """The columns alone: a message has its time elsewhere."""
    return list(fitted.columns[:-1])


def why_not_json(columns: pa.Schema) -> str:
    """What is wrong with columns that no JSON could ever fill; empty if nothing is."""
    for column in columns:
        try:
            Json(pa.schema([column.with_nullable(True)])).decode([b"{}"])
        except DAMAGE:
            return f"{column.name!r} of type {column.type}"
    return ""
