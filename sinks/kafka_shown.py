"""Messages of Kafka as rows that can be compared: as a producer is given them, and a reader.

Both sides come out alike: a key and a value as bytes, the headers that a column of the row gave it
if there is one, the time if nothing else in the message says it, and where the message comes from
if it has headers that say so. To have no headers and to have an empty list of them is the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.errors import Invalid
from penstock.sinks.kafka_columns import Headers
from penstock.sinks.kafka_messages import Chunk
from penstock.sinks.keyed import as_key
from penstock.sinks.protocol import PLACE, PROVENANCE
from penstock.sources.kafka_rows import HEADER, LAST_MS
from penstock.sources.protocol import META_NAME

if TYPE_CHECKING:
    from penstock.sinks.kafka import KafkaSink

__all__ = ["Shown"]

KEY, VALUE, HEADERS, TIME = "key", "value", "headers", "time"
"""The columns of a message."""
ORIGINS = tuple(f"penstock.{name[1:]}" for name in PLACE)
"""The headers that say where a message comes from: its last ones."""
_DIGITS = {"_epoch": 18, "_partition": 9, "_sequence": 18}
"""How long the numbers in them can be."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What of a message is compared, made of a row and of a message alike."""

    headers: bool
    time: bool
    places: bool
    left_out: tuple[str, ...]

    @classmethod
    def of(cls, sink: "KafkaSink", settings: Mapping[str, str] | None) -> "Shown":
        """The time is the broker's own in some topics, and then says nothing of the row."""
        told, in_key = sink.event_time is not None, sink.event_time in as_key(sink.key_column)
        wanted = told and sink.value != "json" and not in_key
        kept = settings is not None and settings.get("message.timestamp.type") == "CreateTime"
        left_out = (TIME,) if wanted and not kept else ()
        return cls(sink.headers is not None, wanted and kept, sink.provenance, left_out)

    def schema(self) -> pa.Schema:
        """Without those of where a message comes from."""
        fields = [pa.field(KEY, pa.binary()), pa.field(VALUE, pa.binary())]
        fields += [pa.field(HEADERS, pa.list_(HEADER))] if self.headers else []
        return pa.schema(fields + ([pa.field(TIME, pa.int64())] if self.time else []))

    def sent(self, where: str, chunk: Chunk) -> pa.Table:
        """Messages as a producer is given them."""
        keys = chunk.keys if chunk.keys is not None else [None] * len(chunk)
        columns: dict[str, Any] = {KEY: keys, VALUE: chunk.values}
        if self.headers:
            hidden = len(ORIGINS) if self.places else 0
            columns[HEADERS] = [_spelt(each[: len(each) - hidden]) for each in chunk.headers or ()]
        if self.time:
            columns[TIME] = _known_times(where, chunk.times_ms or ())
        return pa.table(columns, self.schema())

    def found(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Messages as a reader is given them."""
        schema, columns = self.schema(), {name: batch.column(name) for name in (KEY, VALUE)}
        places = _places(batch.column(HEADERS)) if self.places else {}
        if self.headers:
            columns[HEADERS] = _own(batch.column(HEADERS), places.get(PLACE[0]))
        if self.time:
            times = pc.struct_field(batch.column(META_NAME), "broker_time")
            columns[TIME] = pc.divide(times.cast(pa.int64()), 1000)
        for name in places:
            schema = schema.append(PROVENANCE.field(name))
        return pa.record_batch([*columns.values(), *places.values()], schema=schema)


def _spelt(headers: Headers) -> list[dict[str, Any]]:
    return [
        {"name": name, "value": text.encode() if isinstance(text, str) else text}
        for name, text in headers
    ]


def _known_times(where: str, times_ms: Sequence[int]) -> Sequence[int]:
    if any(not 0 < time_ms <= LAST_MS for time_ms in times_ms):
        found = "has rows without a time, whose messages got that of when they were sent"
        raise Invalid(where, found, "emit a time in every row, to have messages compared")
    return times_ms


def _places(headers: pa.ListArray) -> dict[str, pa.Array]:
    """Where messages say that they come from, by their last three headers; null where they say
    nothing of the kind."""
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy()
    flat, firsts = pc.list_flatten(headers), np.cumsum(counts) - len(ORIGINS)
    is_told, texts = pa.array(counts >= len(ORIGINS)), {}
    for number, (name, title) in enumerate(zip(PLACE, ORIGINS, strict=True)):
        at = pa.array(firsts + number, pa.int64(), mask=counts < len(ORIGINS))
        header = flat.take(at)
        texts[name] = pc.struct_field(header, "value")
        is_named = pc.equal(pc.struct_field(header, "name"), title)
        is_number = pc.match_substring_regex(texts[name], rf"^[0-9]{{1,{_DIGITS[name]}}}\z")
        is_told = pc.and_(is_told, pc.fill_null(pc.and_(is_named, is_number), False))
    kinds = {name: PROVENANCE.field(name).type for name in PLACE}
    nothing = pa.scalar(None, pa.binary())
    return {
        name: pc.if_else(is_told, text, nothing).cast(pa.string()).cast(kinds[name])
        for name, text in texts.items()
    }


def _own(headers: pa.ListArray, places: pa.Array | None) -> pa.Array:
    """The headers that a row gave its message."""
    found = [each or [] for each in headers.to_pylist()]
    if places is not None:
        told = places.is_valid().to_pylist()
        pairs = zip(found, told, strict=True)
        found = [each[: -len(ORIGINS)] if is_told else each for each, is_told in pairs]
    return pa.array(found, pa.list_(HEADER))
