"""Which decoder makes columns of a key or a value."""

from penstock.errors import Invalid
from penstock.sources.kafka_bodies import Bytes, Decoder, Json, Text
from penstock.sources.kafka_rows import Rows
from penstock.sources.kafka_settings import HEADERS, Body, KafkaSettings

__all__ = ["lacking", "rows_of"]

PACKAGES = {"confluent_kafka": "confluent-kafka", "google": "protobuf"}
"""What is installed under another name than it is imported by."""


def rows_of(settings: KafkaSettings, schemas: dict[str, int]) -> Rows:
    """How messages become rows. `schemas` are those that were chosen; more are noted there."""
    value = _decoder(settings, "value", settings.value, schemas)
    key = None if settings.key is None else _decoder(settings, "key", settings.key, schemas)
    settings.check_names(value.columns.names)
    return Rows(
        key=key,
        value=value,
        key_column=settings.key_column,
        headers=HEADERS if settings.headers else None,
        deletes=settings.deletes,
    )


def _decoder(settings: KafkaSettings, part: str, body: Body, schemas: dict[str, int]) -> Decoder:
    if body.format == "bytes":
        return Bytes()
    if body.format == "string":
        return Text()
    if body.format == "json":
        return Json(body.columns)
    try:
        from penstock.sources.kafka_schemas import registered

        return registered(settings, part, body, schemas)
    except ImportError as missing:
        raise lacking(settings.name, missing, "kafka-schemas") from None


def lacking(name: str, missing: ImportError, extra: str) -> Exception:
    """What to raise if a package of an extra is not there; other mistakes stay as they are."""
    package = (missing.name or "confluent_kafka").partition(".")[0]
    if package == "penstock":
        return missing
    found = f"needs the package {PACKAGES.get(package, package)}, which is not installed"
    return Invalid(f"source {name}", found, f"pip install 'penstock[{extra}]'")
