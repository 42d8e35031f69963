"""Protobuf: what its schemas say as columns, and how its bytes are read.

A schema is asked for as a compiled descriptor, so no compiler is needed. A message of another
version is read by the wanted one, in which fields go by their numbers, as Protobuf prescribes; it
must be the same message by name. Fields that tell whether they are there are null if they are not;
others have the default that they cannot be told from. Enums become text, `Timestamp` a moment, and
the wrappers what they wrap.
"""

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from confluent_kafka.schema_registry import Schema
from google.protobuf import descriptor_pool, message_factory  # type: ignore[import-untyped]
from google.protobuf.descriptor import (  # type: ignore[import-untyped]
    Descriptor,
    FieldDescriptor,
)
from google.protobuf.descriptor_pb2 import FileDescriptorProto  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]

from penstock.sources.kafka_registered import Described, ReadBody
from penstock.sources.kafka_registry import Registry

__all__ = ["Protobuf"]

PLAIN = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.uint32(),
    FieldDescriptor.CPPTYPE_UINT64: pa.uint64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
}
TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
}
SERIALIZED = "serialized"

Value = Callable[[Any], Any]
"""Makes a plain value of what Protobuf's objects hold."""


@dataclass(frozen=True, slots=True)
class Protobuf:
    """The language of Protobuf."""

    form: str = SERIALIZED

    def described(self, schema: Schema, registry: Registry) -> Described:
        """Fields of the first message of a schema as columns."""
        return Described.of(_struct(_Compiled(schema, registry).first(), ()))

    def reader(self, written: Schema, wanted: Schema | None, registry: Registry) -> ReadBody:
        """Reads the message that a body names, by the wanted schema if there is one."""
        by_written = _Compiled(written, registry)
        by_wanted = by_written if wanted is None else _Compiled(wanted, registry)
        readers: dict[tuple[int, ...], Value] = {}

        def read(body: bytes) -> Any:
            path, start = _path(body)
            if path not in readers:
                name = by_written.at(path).full_name
                readers[path] = _parsing(by_wanted.named(name))
            return readers[path](body[start:])

        return read


class _Compiled:
    """A schema with those it builds on."""

    def __init__(self, schema: Schema, registry: Registry) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        self._file = self._added(schema, registry, "")

    def first(self) -> Descriptor:
        return self.at((0,))

    def at(self, path: tuple[int, ...]) -> Descriptor:
        """The message at a place in the file: the n-th, in it the m-th, …"""
        messages = list(self._file.message_types_by_name.values())
        found: Descriptor | None = None
        for number in path:
            if not 0 <= number < len(messages):
                raise ValueError(f"it names a message {path} that its schema lacks")
            found = messages[number]
            messages = list(found.nested_types)
        assert found is not None
        return found

    def named(self, name: str) -> Descriptor:
        try:
            return self._pool.FindMessageTypeByName(name)
        except KeyError:
            raise ValueError(f"it is a {name}, which the chosen schema lacks") from None

    def _added(self, schema: Schema, registry: Registry, name: str) -> Any:
        file = _file(schema)
        file.name = name or file.name or "schema.proto"
        for known, other in registry.referred(schema, SERIALIZED):
            self._added(other, registry, known)
        for needed in file.dependency:
            self._add_usual(needed)
        self._pool.Add(file)
        return self._pool.FindFileByName(file.name)

    def _add_usual(self, name: str) -> None:
        """Google's own files are in no registry."""
        try:
            self._pool.FindFileByName(name)
        except KeyError:
            usual = FileDescriptorProto()
            descriptor_pool.Default().FindFileByName(name).CopyToProto(usual)
            self._pool.Add(usual)


def _file(schema: Schema) -> FileDescriptorProto:
    if schema.schema_type != "PROTOBUF":
        raise ValueError(f"its schema is {schema.schema_type or 'AVRO'}, not PROTOBUF")
    try:
        return FileDescriptorProto.FromString(base64.b64decode(schema.schema_str or ""))
    except (DecodeError, binascii.Error, ValueError) as error:
        raise ValueError(f"its schema is no compiled descriptor ({error})") from error


def _path(body: bytes) -> tuple[tuple[int, ...], int]:
    """Which message of its schema a body is, and where that begins. Nothing means the first."""
    count, at = _varint(body, 0)
    path = []
    for _ in range(count):
        number, at = _varint(body, at)
        path.append(number)
    return tuple(path) or (0,), at


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """A number in zigzag, and where the next begins."""
    value = shift = 0
    while True:
        if at >= len(body) or shift > 63:
            raise ValueError("it ends before it says which message it is")
        value |= (body[at] & 0x7F) << shift
        at += 1
        if body[at - 1] < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _parsing(descriptor: Descriptor) -> Value:
    kind = message_factory.GetMessageClass(descriptor)
    value = _record(descriptor)

    def parse(body: bytes) -> Any:
        try:
            return value(kind.FromString(body))
        except DecodeError as error:
            raise ValueError(f"it is not what its schema says ({error})") from error

    return parse


def _struct(descriptor: Descriptor, inside: tuple[str, ...]) -> pa.DataType:
    if descriptor.full_name in inside:
        raise ValueError(f"message {descriptor.full_name} holds itself")
    deeper = (*inside, descriptor.full_name)
    return pa.struct([(field.name, _type(field, deeper)) for field in descriptor.fields])


def _type(field: FieldDescriptor, inside: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        key, value = _entry(field)
        return pa.map_(_single_type(key, inside), _single_type(value, inside))
    single = _single_type(field, inside)
    return pa.list_(single) if _is_repeated(field) else single


def _single_type(field: FieldDescriptor, inside: tuple[str, ...]) -> pa.DataType:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return pa.binary()
    if field.type == FieldDescriptor.TYPE_STRING:
        return pa.string()
    if field.message_type is None:
        return PLAIN[field.cpp_type]
    if field.message_type.full_name == TIMESTAMP:
        return pa.timestamp("us", "UTC")
    if field.message_type.full_name in WRAPPERS:
        return _single_type(field.message_type.fields_by_name["value"], inside)
    return _struct(field.message_type, inside)


def _record(descriptor: Descriptor) -> Value:
    """Makes a dict of a message."""
    fields = [(field.name, field.has_presence, _value(field)) for field in descriptor.fields]

    def value(message: Message) -> dict[str, Any]:
        return {
            name: made(getattr(message, name)) if not known or message.HasField(name) else None
            for name, known, made in fields
        }

    return value


def _value(field: FieldDescriptor) -> Value:
    if _is_map(field):
        made = _single(_entry(field)[1])
        return lambda found: [(key, made(each)) for key, each in found.items()]
    single = _single(field)
    return (lambda found: [single(each) for each in found]) if _is_repeated(field) else single


def _single(field: FieldDescriptor) -> Value:
    if field.enum_type is not None:
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    if field.message_type is None:
        return _as_it_is
    if field.message_type.full_name == TIMESTAMP:
        return lambda found: found.seconds * 1_000_000 + found.nanos // 1000
    if field.message_type.full_name in WRAPPERS:
        return lambda found: found.value
    return _record(field.message_type)


def _as_it_is(found: Any) -> Any:
    return found


def _is_repeated(field: FieldDescriptor) -> bool:
    told = getattr(field, "is_repeated", None)  # Protobuf before 6.31 says it by a label
    return bool(told if told is not None else field.label == FieldDescriptor.LABEL_REPEATED)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _entry(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor]:
    """The key and the value of a map."""
    fields = field.message_type.fields_by_name
    return fields["key"], fields["value"]
