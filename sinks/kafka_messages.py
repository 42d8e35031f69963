"""Rows as Kafka is given them: each a key, a value, perhaps headers and a time, in chunks.

The same row is always the same bytes. Columns are turned into lists once per chunk and rows are
made of them by functions of C alone: a loop of Python would take longer than the broker does.

What a broker would refuse for ever is refused by `check`, before the rows are staged: after the
decision nobody could take them back.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.errors import Invalid
from penstock.sinks.cursors import Apply
from penstock.sinks.kafka_columns import Headers, are_headers, as_ms, length, origins, pairs
from penstock.sinks.kafka_texts import as_bytes, as_json
from penstock.sinks.keyed import Keyed
from penstock.sinks.plain_values import bytes_bound, check_plain, is_bytes
from penstock.sinks.protocol import PROVENANCE
from penstock.sinks.staged import own_columns, rows_of
from penstock.sinks.value_check import check_spelling

__all__ = ["FORMATS", "Chunk", "KafkaMessages"]

FORMATS = ("json", "string", "bytes")
"""What a key or a value can be."""
VALUE = "value"
"""Which of several columns a value of text or bytes is."""

CHUNK_ROWS_MAX = 10_000
CHUNK_BYTES = 4 << 20
"""About how large a chunk is, if that is fewer rows."""
FRAME_BYTES_MAX = 512
"""What Kafka adds to one message at most, headers of provenance included."""

ANY_PARTITION = -1
"""Whichever the key leads to."""


@dataclass(slots=True)
class Chunk:
    """Some messages, as what a producer takes: one list of each part."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes] | None
    times_ms: Sequence[int] | None
    """0: when it is sent."""
    headers: Sequence[Headers] | None
    partition: int = ANY_PARTITION

    def __len__(self) -> int:
        return len(self.values)

    def size_bytes(self, at: int) -> int:
        """What the message at a place takes on the wire, at most."""
        key = self.keys[at] if self.keys is not None else b""
        size = len(self.values[at] or b"") + len(key) + FRAME_BYTES_MAX
        headers = self.headers[at] if self.headers is not None else []
        return size + sum(length(name) + length(value) for name, value in headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaMessages:
    """How the rows of one sink become messages."""

    keyed: Keyed
    value: str
    key: str
    """Its format; of no meaning if there is no column of a key."""
    key_in_value: bool
    headers: str | None
    event_time: str | None
    provenance: bool
    bytes_max: int

    def check(self, rows: pa.Table) -> None:
        """Raise `Invalid` for what could never be written."""
        own = own_columns(rows)
        self._check_names(own)
        check_spelling(self.keyed.where, rows)
        self.keyed.check(rows)
        self._check_meanings(own)
        written = self._written(own)
        check_plain(self.keyed.where, written.schema)
        self._check_key(own)
        self._check_value(own)
        self._check_times(own)
        self._check_headers(own)
        self._check_sizes(own)

    def of(self, asked: Apply, columns: pa.Schema) -> Iterator[Chunk]:
        """The messages of one epoch of one shard, in their order."""
        unwanted = ("_input",) if self.provenance else PROVENANCE.names
        return self.chunks(rows_of(asked.outputs, columns, unwanted))

    def chunks(self, rows: pa.Table) -> Iterator[Chunk]:
        """The messages of some rows, in their order, in chunks of which none is empty."""
        if not rows.num_rows:
            return
        row_bytes = max(1, rows.nbytes // rows.num_rows)
        count = max(1, min(CHUNK_ROWS_MAX, CHUNK_BYTES // row_bytes))
        for start in range(0, rows.num_rows, count):
            yield self._chunk(rows.slice(start, count))

    def _chunk(self, rows: pa.Table) -> Chunk:
        own = own_columns(rows)
        return Chunk(
            self._values(own), self._keys(own), self._times_ms(own), self._all_headers(rows)
        )

    def _written(self, own: pa.Table) -> pa.Table:
        """The columns that a value is made of."""
        hidden = {self.keyed.deletes, self.headers}
        if not self.key_in_value or self.value != "json":
            hidden |= set(self.keyed.key)
        left = [name for name in own.column_names if name not in hidden]
        if self.value != "json" and len(left) > 1 and VALUE in left:
            left = [VALUE]
        return own.select(left)

    def _values(self, own: pa.Table) -> Sequence[bytes | None]:
        written = self._written(own)
        values = as_json(written) if self.value == "json" else as_bytes(written.column(0))
        if self.keyed.deletes is None:
            return values
        going = pc.fill_null(own.column(self.keyed.deletes), False).to_pylist()
        return [None if gone else value for value, gone in zip(values, going, strict=True)]

    def _keys(self, own: pa.Table) -> list[bytes] | None:
        columns = self.keyed.key
        if not columns:
            return None
        if self.key == "json":
            return as_json(own.select(columns), bare=len(columns) == 1)
        return as_bytes(own.column(columns[0]))

    def _times_ms(self, own: pa.Table) -> list[int] | None:
        if self.event_time is None:
            return None
        found: list[int] = pc.fill_null(as_ms(own.column(self.event_time)), 0).to_pylist()
        return found

    def _all_headers(self, rows: pa.Table) -> list[Headers] | None:
        given: list[Headers] | None = None
        if self.headers is not None:
            given = [pairs(each) for each in rows.column(self.headers).to_pylist()]
        if not self.provenance:
            return given
        told = origins(rows)
        if given is None:
            return told
        return [[*own, *more] for own, more in zip(given, told, strict=True)]

    def _check_names(self, own: pa.Table) -> None:
        for name in own.column_names:
            if own.column_names.count(name) > 1:
                found = "is there twice, and a message has one of each"
                raise self._column(name, found, "rename one of them")

    def _check_meanings(self, own: pa.Table) -> None:
        for name, meaning in ((self.headers, "headers"), (self.event_time, "event_time")):
            if name is not None and name not in own.column_names:
                found = f"is its {meaning}, and the rows have only {', '.join(own.column_names)}"
                raise self._column(name, found, "emit it, or name another")

    def _check_key(self, own: pa.Table) -> None:
        if self.key == "bytes" and self.keyed.key:
            kind = own.schema.field(self.keyed.key[0]).type
            if not is_bytes(kind):
                found = f"is its key, and is {kind}, which is not bytes"
                raise self._column(self.keyed.key[0], found, "emit bytes, or say key='string'")

    def _check_value(self, own: pa.Table) -> None:
        if self.value == "json":
            return
        written = self._written(own)
        if len(written.column_names) != 1:
            found = f"has value={self.value!r}, and rows of {', '.join(written.column_names)}"
            advice = "emit one column besides the key, or one that is named 'value'; or use 'json'"
            raise Invalid(self.keyed.where, found, advice)
        name, kind = written.column_names[0], written.schema.field(0).type
        if self.value == "bytes" and not is_bytes(kind):
            found = f"is its value, and is {kind}, which is not bytes"
            raise self._column(name, found, "emit bytes, or say value='string'")
        self._check_none_missing(own, name)

    def _check_none_missing(self, own: pa.Table, name: str) -> None:
        """A value that is null would be a tombstone."""
        missing = own.column(name).is_null()
        if self.keyed.deletes is not None:
            going = pc.fill_null(own.column(self.keyed.deletes), False)
            missing = pc.and_not(missing, going)
        if pc.any(missing).as_py():
            found = "is its value, and is null in a row: Kafka would take that for a tombstone"
            raise self._column(name, found, "emit a value, or a column that `deletes`")

    def _check_times(self, own: pa.Table) -> None:
        if self.event_time is None:
            return
        kind = own.schema.field(self.event_time).type
        if not pa.types.is_timestamp(kind):
            raise self._column(self.event_time, f"is its time, and is {kind}", "emit a timestamp")
        earliest = pc.min(as_ms(own.column(self.event_time))).as_py()
        if earliest is not None and earliest < 0:
            found = "is its time, and is before 1970 or out of reach in a row"
            raise self._column(self.event_time, found, "emit a later one, or null")

    def _check_headers(self, own: pa.Table) -> None:
        if self.headers is None:
            return
        kind = own.schema.field(self.headers).type
        if not are_headers(kind):
            found = f"is its headers, and is {kind}"
            advice = "emit a list of structs: name, which is text, and value, which is bytes"
            raise self._column(self.headers, found, advice)
        each = pc.list_flatten(own.column(self.headers))
        if each.null_count or pc.struct_field(each, "name").null_count:
            found = "is its headers, and one of them has no name"
            raise self._column(self.headers, found, "give each a name")

    def _check_sizes(self, own: pa.Table) -> None:
        keys = own.select(list(self.keyed.key))
        bounds = bytes_bound(own) + bytes_bound(keys) + FRAME_BYTES_MAX
        for at in np.flatnonzero(bounds > self.bytes_max):
            row = own.slice(int(at), 1)
            headers = self.headers and [pairs(row.column(self.headers)[0].as_py())]
            chunk = Chunk(self._values(row), self._keys(row), None, headers or None)
            if chunk.size_bytes(0) > self.bytes_max:
                raise self._too_large(row, chunk)

    def _too_large(self, row: pa.Table, chunk: Chunk) -> Invalid:
        which = f", key {chunk.keys[0][:80]!r}" if chunk.keys is not None else ""
        return Invalid(
            f"{self.keyed.where}{which}",
            f"has a message of {chunk.size_bytes(0):,} bytes with its frame, and at most "
            f"{self.bytes_max:,} are sent",
            "emit less in one row, or raise message.max.bytes in its settings and "
            "max.message.bytes of the topic",
        )

    def _column(self, name: str, found: str, advice: str) -> Invalid:
        return Invalid(f"{self.keyed.where}, column {name!r}", found, advice)
