"""JSON Schema: what its schemas say as columns. Bodies are JSON, read as all JSON is.

Nobody checks a message against its schema here: whoever sent it did. That it names a schema of the
right language is checked. What a schema leaves open (several types, anything at all) cannot be a
column, and must be declared.
"""

import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from confluent_kafka.schema_registry import Schema

from penstock.sources.kafka_bodies import Bodies, Json
from penstock.sources.kafka_registered import Described, parted
from penstock.sources.kafka_registry import Registry

__all__ = ["RegisteredJson", "described"]

PLAIN = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}
MOMENT = pa.timestamp("us", "UTC")
DEPTH_MAX = 32


@dataclass(slots=True)
class RegisteredJson:
    """Bodies that are JSON behind the number of their schema."""

    columns: pa.Schema
    registry: Registry
    is_record: bool = True
    _known: set[int] = field(default_factory=set, repr=False)

    def decode(self, bodies: Bodies) -> list[pa.Array]:
        """A column for each field."""
        found = list(parted(bodies))
        for number in {number for number, _ in found} - self._known:
            _check_type(self.registry.schema(number, None))
            self._known.add(number)
        return Json(self.columns).decode([body for _, body in found])


def described(schema: Schema) -> Described:
    """The properties of an object as columns."""
    _check_type(schema)
    whole = json.loads(schema.schema_str or "")
    kind = _Types(whole).of(whole, "the schema", 0)
    if not pa.types.is_struct(kind):
        raise ValueError("the schema is not one of objects with properties")
    return Described.of(kind)


def _check_type(schema: Schema) -> None:
    if schema.schema_type != "JSON":
        raise ValueError(f"its schema is {schema.schema_type or 'AVRO'}, not JSON")


@dataclass(frozen=True, slots=True)
class _Types:
    """Arrow's types for those of a JSON Schema."""

    whole: Any
    """The schema in which references are looked up."""

    def of(self, schema: Any, where: str, depth: int) -> pa.DataType:
        if depth > DEPTH_MAX:
            raise ValueError(f"{where} is too deep, or within itself")
        schema = self._single(schema, where)
        kind = schema.get("type")
        if kind == "object" and isinstance(schema.get("properties"), dict):
            return self._object(schema["properties"], depth + 1)
        if kind == "array" and isinstance(schema.get("items"), dict):
            return pa.list_(self.of(schema["items"], where, depth + 1))
        if kind == "string" and schema.get("format") == "date-time":
            return MOMENT
        if kind not in PLAIN:
            raise ValueError(f"{where} may be of several types")
        return PLAIN[kind]

    def _object(self, properties: dict[str, Any], depth: int) -> pa.DataType:
        named = [(name, each, f"property {name!r}") for name, each in properties.items()]
        return pa.struct([(name, self.of(each, where, depth)) for name, each, where in named])

    def _single(self, schema: Any, where: str) -> dict[str, Any]:
        """The one thing that a schema allows besides null."""
        if not isinstance(schema, dict):
            raise ValueError(f"{where} may be anything")
        if "$ref" in schema:
            return self._single(self._found(schema["$ref"], where), where)
        for several in ("oneOf", "anyOf", "allOf"):
            others = [each for each in schema.get(several, ()) if each != {"type": "null"}]
            if len(others) == 1:
                return self._single(others[0], where)
        kinds = schema.get("type")
        if isinstance(kinds, list):
            [*others] = (each for each in kinds if each != "null")
            return {**schema, "type": others[0] if len(others) == 1 else None}
        return {"type": "string", **schema} if _is_text(schema) else schema

    def _found(self, reference: str, where: str) -> Any:
        if not reference.startswith("#/"):
            raise ValueError(f"{where} is in another schema")
        found = self.whole
        for step in reference[2:].split("/"):
            found = found.get(step) if isinstance(found, dict) else None
        return found


def _is_text(schema: dict[str, Any]) -> bool:
    """Whether one of several texts is allowed."""
    return bool(schema.get("enum")) and all(isinstance(each, str) for each in schema["enum"])
