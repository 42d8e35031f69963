"""Messages as rows: key, value, headers, deletes, and what is known of each besides.

A message that cannot be decoded takes no other with it: the batch it came in is halved until the
bad ones stand alone. What is made of a message never depends on the others of its batch, so a
range gives the same rows however it is cut.

When a message happened is known if its producer said so. The broker's time is when it took the
message in or, if it does not say so, what the producer said. A time that no calendar has is none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.sources.files_pieces import Bad, Kept, sift
from penstock.sources.kafka_bodies import Decoder
from penstock.sources.protocol import META, META_NAME, TIME

__all__ = ["DroppedMessage", "Message", "Rows"]

HEADER = pa.struct([pa.field("name", pa.string(), nullable=False), pa.field("value", pa.binary())])
NOT_AVAILABLE, CREATED = 0, 1
"""What a time is: unknown, or the producer's; else it is the broker's. The client's numbers."""
LAST_MS = 253_402_300_799_999
"""The end of the year 9999."""


class Message(Protocol):
    """What a client gives of a message."""

    def offset(self) -> int | None:
        """Where it is."""

    def key(self) -> bytes | None:
        """Its key, if it has one."""

    def value(self) -> bytes | None:
        """Its value; a tombstone has none."""

    def headers(self) -> Any:
        """Names and values, in order, or None."""

    def timestamp(self) -> tuple[int, int]:
        """What its time is, and the time in milliseconds."""


@dataclass(frozen=True, slots=True)
class DroppedMessage:
    """A message that cannot be decoded."""

    offset: int
    reason: str
    key: bytes | None
    value: bytes | None
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Which columns a message has, and how they are made."""

    key: Decoder | None
    value: Decoder
    key_column: str
    headers: str | None
    """The column of the headers, if they are wanted."""
    deletes: str | None
    """The column that says whether a message is a tombstone, if it is wanted."""

    def schema(self) -> pa.Schema:
        """The columns of its rows, without `_meta`."""
        fields = [] if self.key is None else [pa.field(self.key_column, _one_type(self.key))]
        fields += list(self.value.columns)
        if self.headers is not None:
            fields.append(pa.field(self.headers, pa.list_(HEADER)))
        if self.deletes is not None:
            fields.append(pa.field(self.deletes, pa.bool_(), nullable=False))
        return pa.schema(fields)

    def made(
        self, messages: Sequence[Message], planned_ms: int
    ) -> "Iterator[pa.RecordBatch | DroppedMessage]":
        """Rows, and what could not become one, in order."""
        offsets = np.fromiter((message.offset() for message in messages), np.int64, len(messages))
        positions = np.arange(len(messages))
        for piece in sift(positions, lambda first, last: self._columns(messages[first:last])):
            if isinstance(piece, Kept):
                chosen = slice(int(piece.positions[0]), int(piece.positions[-1]) + 1)
                yield self._batch(piece.rows, messages[chosen], offsets[chosen], planned_ms)
            else:
                yield _dropped(messages[piece.position], piece)

    def _columns(self, messages: Sequence[Message]) -> pa.RecordBatch:
        """Everything but what is known of them; raises if one of them is bad."""
        columns: list[pa.Array] = []
        if self.key is not None:
            columns.append(_one_column(self.key, [message.key() for message in messages]))
        bodies = [message.value() for message in messages]
        _check_tombstones(self.value.columns, bodies)
        columns += _decoded(self.value, bodies)
        if self.headers is not None:
            columns.append(_headers([message.headers() for message in messages]))
        if self.deletes is not None:
            columns.append(pa.array([body is None for body in bodies], pa.bool_()))
        return pa.record_batch(columns, schema=self.schema())

    def _batch(
        self, rows: pa.RecordBatch, messages: Sequence[Message], offsets: Any, planned_ms: int
    ) -> pa.RecordBatch:
        event, broker = _times(messages)
        planned = pa.repeat(pa.scalar(planned_ms * 1000, TIME), len(messages))
        known = [pa.array(offsets, pa.int64()), event, broker, planned]
        meta = pa.StructArray.from_arrays(known, fields=list(META))
        schema = rows.schema.append(pa.field(META_NAME, META))
        return pa.record_batch([*rows.columns, meta], schema=schema)


def _decoded(decoder: Decoder, bodies: Sequence[bytes | None]) -> list[pa.Array]:
    """The columns of bodies, some of which may be missing."""
    there = [body for body in bodies if body is not None]
    if len(there) == len(bodies):
        return decoder.decode(there)
    places = np.cumsum([body is not None for body in bodies]) - 1
    missing = np.array([body is None for body in bodies])
    taken = pa.array(places, pa.int64(), mask=missing)
    columns = decoder.decode(there) if there else [pa.nulls(0, f.type) for f in decoder.columns]
    return [column.take(taken) for column in columns]


def _one_column(decoder: Decoder, bodies: Sequence[bytes | None]) -> pa.Array:
    """Bodies as one column: a struct, if they have fields of their own."""
    columns = _decoded(decoder, bodies)
    if not decoder.is_record:
        return columns[0]
    missing = pa.array([body is None for body in bodies], pa.bool_())
    return pa.StructArray.from_arrays(columns, fields=list(decoder.columns), mask=missing)


def _one_type(decoder: Decoder) -> pa.DataType:
    fields = list(decoder.columns)
    return pa.struct(fields) if decoder.is_record else fields[0].type


def _check_tombstones(columns: pa.Schema, bodies: Sequence[bytes | None]) -> None:
    strict = [column.name for column in columns if not column.nullable]
    if strict and None in bodies:
        raise ValueError(f"it is a tombstone, and column {strict[0]!r} may not be null")


def _headers(found: list[Any]) -> pa.Array:
    """Lists of names and values, built as the three arrays that they are in Arrow."""
    flat = [header for headers in found if headers for header in headers]
    counts = [len(headers) if headers else 0 for headers in found]
    names = pa.array([name for name, _ in flat], pa.string())
    values = pa.array([value for _, value in flat], pa.binary())
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADER))
    ends = np.cumsum([0, *counts])
    missing = np.array([*(headers is None for headers in found), False])
    starts = pa.array(ends, pa.int32(), mask=missing)
    return pa.ListArray.from_arrays(starts, pairs, type=pa.list_(HEADER))


def _times(messages: Sequence[Message]) -> tuple[pa.Array, pa.Array]:
    """When messages happened, and when the broker took them in."""
    stamps = chain.from_iterable(message.timestamp() for message in messages)
    kinds, millis = np.fromiter(stamps, np.int64, 2 * len(messages)).reshape(-1, 2).T
    unknown = (kinds == NOT_AVAILABLE) | (millis < 0) | (millis > LAST_MS)
    micros = np.where(unknown, 0, millis) * 1000
    event = pa.array(micros, pa.int64(), mask=unknown | (kinds != CREATED)).cast(TIME)
    return event, pa.array(micros, pa.int64(), mask=unknown).cast(TIME)


def _dropped(message: Message, bad: Bad) -> DroppedMessage:
    offset = message.offset()
    assert offset is not None
    return DroppedMessage(offset, bad.reason, message.key(), message.value())
