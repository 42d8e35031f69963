"""Avro: what its schemas say as columns, and how its bytes are read.

A schema that is not the wanted one is resolved to it as Avro prescribes: fields by name or alias,
missing ones by their default. Text, numbers and moments become what they are in Arrow; an enum
becomes text, a union of null and one other type that type.
"""

import json
import struct
from dataclasses import dataclass
from decimal import InvalidOperation
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa  # type: ignore[import-untyped]
from confluent_kafka.schema_registry import Schema
from fastavro.schema import SchemaParseException, UnknownType

from penstock.sources.kafka_registered import Described, ReadBody
from penstock.sources.kafka_registry import Registry

__all__ = ["Avro"]

PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}
LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
UNREADABLE = (
    EOFError,
    ValueError,
    IndexError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    InvalidOperation,
    struct.error,
    fastavro.read.SchemaResolutionError,
)
"""What fastavro raises for bytes that are not what a schema says."""


@dataclass(frozen=True, slots=True)
class Avro:
    """The language of Avro."""

    form: None = None

    def described(self, schema: Schema, registry: Registry) -> Described:
        """Fields as columns."""
        named: dict[str, Any] = {}
        parsed = _parsed(schema, registry, named)
        return Described.of(_Types(named).of(parsed, "the schema", ()))

    def reader(self, written: Schema, wanted: Schema | None, registry: Registry) -> ReadBody:
        """Resolves, if it must."""
        known = _parsed(written, registry, {})
        as_if = None if wanted is None else _parsed(wanted, registry, {})

        def read(body: bytes) -> Any:
            try:
                return fastavro.schemaless_reader(BytesIO(body), known, as_if)
            except UNREADABLE as error:
                raise ValueError(f"it is not what its schema says ({error})") from error

        return read


def _parsed(schema: Schema, registry: Registry, named: dict[str, Any]) -> Any:
    """A schema with those it builds on."""
    if (schema.schema_type or "AVRO") != "AVRO":
        raise ValueError(f"its schema is {schema.schema_type}, not AVRO")
    for _, other in registry.referred(schema, None):
        _parsed(other, registry, named)
    try:
        text = _without_uuids(json.loads(schema.schema_str or ""))
        return fastavro.parse_schema(text, named_schemas=named)
    except (SchemaParseException, UnknownType, ValueError) as error:
        raise ValueError(f"its schema cannot be used ({error})") from error


def _without_uuids(schema: Any) -> Any:
    """The same, with uuids as the text that they are: Arrow has no column for the objects."""
    if isinstance(schema, list):
        return [_without_uuids(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("logicalType") == "uuid" and schema.get("type") == "string":
        return "string"
    return {key: _without_uuids(value) for key, value in schema.items()}


@dataclass(frozen=True, slots=True)
class _Types:
    """Arrow's types for Avro's."""

    named: dict[str, Any]

    def of(self, schema: Any, where: str, inside: tuple[str, ...]) -> pa.DataType:
        if isinstance(schema, list):
            return self._union(schema, where, inside)
        if isinstance(schema, str):
            found = PLAIN.get(schema)
            return found if found is not None else self.of(self.named[schema], where, inside)
        kind = schema["type"]
        logical = schema.get("logicalType")
        if logical == "decimal":
            return pa.decimal128(schema["precision"], schema.get("scale", 0))
        if logical in LOGICAL:
            return LOGICAL[logical]
        return self._nested(kind, schema, where, inside)

    def _nested(self, kind: Any, schema: Any, where: str, inside: tuple[str, ...]) -> pa.DataType:
        if kind == "array":
            return pa.list_(self.of(schema["items"], where, inside))
        if kind == "map":
            return pa.map_(pa.string(), self.of(schema["values"], where, inside))
        if kind not in ("record", "error"):
            return self.of(kind, where, inside)
        if schema["name"] in inside:
            raise ValueError(f"{where} holds a record {schema['name']} within itself")
        deeper = (*inside, schema["name"])
        fields = [(each["name"], each["type"]) for each in schema["fields"]]
        return pa.struct(
            [(name, self.of(each, f"field {name!r}", deeper)) for name, each in fields]
        )

    def _union(self, schema: list[Any], where: str, inside: tuple[str, ...]) -> pa.DataType:
        others = [each for each in schema if each != "null"]
        if len(others) != 1:
            raise ValueError(f"{where} is a union of several types")
        return self.of(others[0], where, inside)
