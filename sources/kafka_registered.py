"""Bodies that begin with the number of their schema, and what each language makes of them.

Which columns a source has is settled once, by the newest schema of its topic; the number of that
schema then goes with the source wherever it is sent. A message that was written by another schema
is read as if it had been written by that one, as its language allows. Columns that are declared
are filled by name with what each message says, whatever its schema.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]
from confluent_kafka.schema_registry import Schema

from penstock.sources.files_shape import Shape
from penstock.sources.kafka_bodies import Bodies
from penstock.sources.kafka_registry import Registry

__all__ = ["Described", "Language", "ReadBody", "Registered", "parted"]

MAGIC = 0
PREFIX_BYTES = 5
"""A zero, and a number of four bytes."""

ReadBody: TypeAlias = Callable[[bytes], Any]
"""Makes a value of what is behind the number, or raises `ValueError`."""


@dataclass(frozen=True, slots=True)
class Described:
    """What a schema makes of a body."""

    columns: pa.Schema
    is_record: bool

    @staticmethod
    def of(kind: pa.DataType) -> "Described":
        """The fields of a record are columns; anything else is one. All may be null, because a
        tombstone has none of them."""
        if not pa.types.is_struct(kind):
            return Described(pa.schema([("value", kind)]), is_record=False)
        return Described(pa.schema([each.with_nullable(True) for each in kind]), is_record=True)


class Language(Protocol):
    """Promise: a schema says the same in every process. What Penstock cannot have as a column is
    a `ValueError` that names the field."""

    @property
    def form(self) -> str | None:
        """How schemas are to be sent, if not as they were written."""

    def described(self, schema: Schema, registry: Registry) -> Described:
        """The columns of what is written by a schema."""

    def reader(self, written: Schema, wanted: Schema | None, registry: Registry) -> ReadBody:
        """How to read what was written by one schema, as if by another if one is wanted."""


@dataclass(slots=True)
class Registered:
    """Bodies that are read by their schemas, one by one."""

    columns: pa.Schema
    is_record: bool
    language: Language
    registry: Registry
    wanted: int | None
    """The schema that told the columns, unless they were declared."""
    _readers: dict[int, ReadBody] = field(default_factory=dict, repr=False)

    def decode(self, bodies: Bodies) -> list[pa.Array]:
        """A column for each field."""
        values = [self._reader(number)(body) for number, body in parted(bodies)]
        try:
            return self._arrays(values)
        except (OverflowError, TypeError) as error:
            raise ValueError(str(error)) from error

    def _arrays(self, values: list[Any]) -> list[pa.Array]:
        if not self.is_record:
            return [pa.array(values, self.columns.field(0).type)]
        whole = pa.array(values, pa.struct(list(self.columns)))
        rows = pa.record_batch(whole.flatten(), names=self.columns.names)
        return list(Shape(self.columns).fitted(rows).columns[:-1])

    def _reader(self, number: int) -> ReadBody:
        if number not in self._readers:
            form = self.language.form
            wanted = None if self.wanted is None else self.registry.schema(self.wanted, form)
            written = self.registry.schema(number, form)
            same = wanted is None or number == self.wanted
            made = self.language.reader(written, None if same else wanted, self.registry)
            self._readers[number] = made
        return self._readers[number]


def parted(bodies: Bodies) -> Iterable[tuple[int, bytes]]:
    """The number that each body begins with, and what is behind it."""
    for body in bodies:
        if len(body) < PREFIX_BYTES or body[0] != MAGIC:
            raise ValueError("it does not begin with the number of a schema")
        yield int.from_bytes(body[1:PREFIX_BYTES], "big"), body[PREFIX_BYTES:]
