"""Rows as Redis is given them: each a key, a version and the texts of its fields, in chunks.

No two keys of rows are spelt alike, and none is spelt like a cursor. A chunk is bounded in rows,
texts and characters, because Redis does nothing else while it runs a script.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.errors import Invalid
from penstock.sinks.keyed import Keyed
from penstock.sinks.plain_values import (
    as_text,
    bytes_bound,
    check_plain,
    is_bytes,
    is_text,
    python_values,
    row_versions,
)
from penstock.sinks.staged import own_columns
from penstock.sinks.value_check import check_spelling

__all__ = ["CURSORS", "DELETED", "KEY", "RESERVED", "VERSION", "WRITER", "Chunk", "RedisRows"]

CURSORS = "penstock-cursor:"
"""What the keys of cursors start with."""
VERSION, WRITER, DELETED = "_version", "_writer", "_deleted"
RESERVED = (VERSION, WRITER, DELETED)
"""The fields of a hash that are not the row's."""
KEY = "_key"
"""What the key of a hash is called beside its fields. No field has that name."""

CHUNK_ROWS_MAX = 1_000
CHUNK_TEXTS_MAX = 50_000
CHUNK_CHARACTERS_MAX = 4 << 20
ROW_BYTES_MAX = 512 << 20
"""What Redis takes as one value; a whole row may have no more, so that a request stays small."""


@dataclass(slots=True)
class Chunk:
    """What one script is given."""

    keys: list[str] = field(default_factory=list)
    rows: list[tuple[str, Sequence[str]]] = field(default_factory=list)
    """For each key its version, and the names and texts of its fields. A tombstone has none."""
    texts: int = 0
    characters: int = 0

    def add(self, key: str, version: str, texts: Sequence[str]) -> None:
        """One row more."""
        self.keys.append(key)
        self.rows.append((version, texts))
        self.texts += len(texts)
        self.characters += len(key) + sum(map(len, texts))

    @property
    def is_full(self) -> bool:
        """Whether no further row should join it."""
        return (
            len(self.keys) >= CHUNK_ROWS_MAX
            or self.texts >= CHUNK_TEXTS_MAX
            or self.characters >= CHUNK_CHARACTERS_MAX
        )

    def packed(self) -> bytes:
        """The rows as one argument: packing each text by itself takes a client most of its time."""
        return msgspec.msgpack.encode(self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisRows:
    """How the rows of one sink are spelt."""

    sink: str
    prefix: str
    keyed: Keyed
    tombstones_ms: int

    def check(self, rows: pa.Table) -> None:
        """Raise `Invalid` for what could never be written."""
        check_spelling(self.keyed.where, rows)
        self.keyed.check(rows)
        own = own_columns(rows)
        for name in RESERVED:
            if name in own.column_names:
                found = "has the name of a field that the sink keeps for itself"
                raise Invalid(f"{self.keyed.where}, column {name!r}", found, "rename it")
        check_plain(self.keyed.where, own.schema)
        for name in self.keyed.key:
            kind = own.schema.field(name).type
            if not _tells_apart(kind):
                raise Invalid(
                    f"{self.keyed.where}, column {name!r}",
                    f"is its key, and is {kind}, of which equal values may be spelt differently",
                    "cast it to text or to a whole number",
                )
        self._check_sizes(own)

    def _check_sizes(self, rows: pa.Table) -> None:
        for at in np.flatnonzero(bytes_bound(rows) > ROW_BYTES_MAX):
            (key, texts), *_ = self._spelt(rows.slice(int(at), 1))
            size_bytes = len(key.encode()) + sum(len(text.encode()) for text in texts)
            if size_bytes > ROW_BYTES_MAX:
                raise Invalid(
                    f"{self.keyed.where}, key {key[:80]!r}",
                    f"has a row of {size_bytes:,} bytes, and Redis takes {ROW_BYTES_MAX:,}",
                    "emit less in one row",
                )

    def chunks(self, rows: pa.Table) -> Iterator[Chunk]:
        """What an epoch leaves of each key, in chunks of which none is empty."""
        changes = self.keyed.changes(rows)
        chunk = Chunk()
        for table, stays in ((changes.puts, True), (changes.gone, False)):
            for start in range(0, table.num_rows, CHUNK_ROWS_MAX):
                part = table.slice(start, CHUNK_ROWS_MAX)
                spelt = self._spelt(own_columns(part))
                for version, (key, texts) in zip(row_versions(part), spelt, strict=True):
                    chunk.add(key, version, texts if stays else ())
                    if chunk.is_full:
                        yield chunk
                        chunk = Chunk()
        if chunk.keys:
            yield chunk

    def spelt_columns(self, rows: pa.Table) -> pa.Table:
        """The key of each row, and the text of each field; null where it has none."""
        texts = {name: _texts(rows.column(name)) for name in rows.column_names}
        parts = zip(*(texts[name] for name in self.keyed.key), strict=True)
        keys = [self.prefix + _joined([part or "" for part in each]) for each in parts]
        columns = {KEY: keys, **texts}
        kinds = pa.schema([(name, pa.large_string()) for name in columns])
        return pa.table(columns, schema=kinds)

    def _spelt(self, rows: pa.Table) -> Iterator[tuple[str, list[str]]]:
        """For each row its key, and the names and texts of the fields that have a value."""
        columns = [_texts(rows.column(name)) for name in rows.column_names]
        places = [rows.column_names.index(name) for name in self.keyed.key]
        for texts in zip(*columns, strict=True):
            fields = [
                part
                for name, text in zip(rows.column_names, texts, strict=True)
                if text is not None
                for part in (name, text)
            ]
            yield self.prefix + _joined([texts[place] or "" for place in places]), fields


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    spell = as_text(column.type)
    return [None if value is None else spell(value) for value in python_values(column)]


def _joined(parts: list[str]) -> str:
    """One key stays as it is. Of several, a colon parts them, and is escaped inside each."""
    if len(parts) == 1:
        return parts[0]
    return ":".join(part.replace("%", "%25").replace(":", "%3A") for part in parts)


def _tells_apart(kind: pa.DataType) -> bool:
    """Whether values that are equal are spelt alike, and can be told apart at all."""
    types = pa.types
    whole = types.is_integer(kind) or types.is_decimal(kind) or types.is_boolean(kind)
    timely = types.is_timestamp(kind) or types.is_date(kind)
    return bool(whole or timely or is_text(kind) or is_bytes(kind))
