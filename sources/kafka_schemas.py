"""The decoders of bodies that a schema registry describes, and the columns it gives them.

Whoever imports this needs the packages of the extra `kafka-schemas`.
"""

from penstock.errors import Invalid
from penstock.sources.kafka_bodies import Decoder
from penstock.sources.kafka_json_schema import RegisteredJson
from penstock.sources.kafka_json_schema import described as described_by_json
from penstock.sources.kafka_registered import Described, Language, Registered
from penstock.sources.kafka_registry import Registry, open_registry
from penstock.sources.kafka_settings import Body, KafkaSettings

__all__ = ["registered"]


def registered(settings: KafkaSettings, part: str, body: Body, schemas: dict[str, int]) -> Decoder:
    """The decoder of keys or of values. Where columns are not declared, the number of the schema
    that tells them is looked up in `schemas`, or noted there."""
    registry = open_registry(settings)
    language = _language(body)
    told, number = _described(settings, registry, part, body, schemas)
    if language is None:
        return RegisteredJson(told.columns, registry)
    return Registered(told.columns, told.is_record, language, registry, number)


def _language(body: Body) -> Language | None:
    """None for JSON, which is read without its schema. A language is imported if it is spoken."""
    if body.format == "avro":
        from penstock.sources.kafka_avro import Avro

        return Avro()
    if body.format == "protobuf":
        from penstock.sources.kafka_protobuf import Protobuf

        return Protobuf()
    return None


def _described(
    settings: KafkaSettings, registry: Registry, part: str, body: Body, schemas: dict[str, int]
) -> tuple[Described, int | None]:
    if body.columns is not None:
        return Described(body.columns, is_record=True), None
    language = _language(body)
    subject = f"{settings.topics.names[0]}-{part}"
    form = None if language is None else language.form
    if part not in schemas:
        schemas[part] = registry.newest(subject, form)
    schema = registry.schema(schemas[part], form)
    try:
        if language is None:
            return described_by_json(schema), schemas[part]
        return language.described(schema, registry), schemas[part]
    except ValueError as error:
        schema_name = f"schema {schemas[part]} for {subject!r}"
        found = f"has {schema_name}, of which no columns can be made ({error})"
        what = "columns" if part == "value" else "key_columns"
        raise Invalid(registry.where, found, f"declare {what}") from error
