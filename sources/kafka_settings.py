"""What a source of Kafka was told, checked when it is said.

It can be sent to another process as it is: nothing is open in it, and no secret is in it. What a
secret is may stand there only as a reference (`${NAME}`), and is looked up where a connection is
made. Settings of the client are passed on as they are, but for those on which the source's own
promise rests: they are refused.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NoReturn, TypeAlias, get_args
from urllib.parse import urlsplit

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.errors import Invalid
from penstock.secrets import is_reference
from penstock.sources.ddl import parse_columns
from penstock.sources.kafka_bodies import why_not_json
from penstock.sources.kafka_names import Topics
from penstock.sources.protocol import META_NAME

__all__ = [
    "HEADERS",
    "Body",
    "Format",
    "KafkaSettings",
    "Policy",
    "Scalar",
    "Scalars",
    "as_columns",
    "as_registry",
]

Format: TypeAlias = Literal["bytes", "string", "json", "avro", "protobuf", "json-schema"]
"""What the bytes of a key or a value are. The last three are described in a schema registry."""
Policy: TypeAlias = Literal["fail", "quarantine"]
Scalar: TypeAlias = str | int | float | bool
Scalars: TypeAlias = Mapping[str, Scalar]

FORMATS: tuple[str, ...] = get_args(Format)
REGISTERED = ("avro", "protobuf", "json-schema")
TIMEOUT_S_MAX = 600.0
HEADERS = "headers"

PROMISED = frozenset(
    {
        "allow.auto.create.topics",
        "auto.commit.enable",
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "isolation.level",
        "metadata.broker.list",
    }
)
"""Settings that say where messages are, which of them count, and when a range is over."""

REGISTRY_SETTINGS = frozenset(
    {
        "basic.auth.user.info",
        "bearer.auth.client.id",
        "bearer.auth.client.secret",
        "bearer.auth.credentials.source",
        "bearer.auth.identity.pool.id",
        "bearer.auth.issuer.endpoint.url",
        "bearer.auth.logical.cluster",
        "bearer.auth.scope",
        "bearer.auth.token",
        "max.retries",
        "proxy",
        "retries.max.wait.ms",
        "retries.wait.ms",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "timeout",
        "url",
    }
)
"""What a client of a schema registry can be told."""

SECRET_ENDINGS = (
    "auth.token",
    "key.pem",
    "passphrase",
    "password",
    "secret",
    "user.info",
)


@dataclass(frozen=True, slots=True)
class Body:
    """What a key or a value is made of."""

    format: Format
    columns: pa.Schema | None
    """None if it has none, or if the schema registry says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """Everything that sets one source of Kafka apart from another."""

    bootstrap: str
    topics: Topics
    value: Body
    key: Body | None
    key_column: str
    headers: bool
    deletes: str | None
    on_undecodable: Policy
    partition_records_max: int | None
    group: str | None
    settings: Scalars
    registry: Scalars
    """What to tell the client of the schema registry; nothing if there is none."""
    timeout_s: float

    def __post_init__(self) -> None:
        """`Invalid` for what no source could keep to."""
        if not self.bootstrap.strip():
            self._refuse("names no broker", "give 'host:9092', or several with commas between")
        self._check_body("value", self.value)
        if self.key is not None:
            self._check_body("key", self.key)
        self._check_limits()
        self._check_settings()
        self._check_registry()
        if self.value.columns is not None or self.value.format not in REGISTERED:
            self.check_names(self.value_names())

    @property
    def name(self) -> str:
        """How messages call the source."""
        return f"{self.topics} of Kafka at {self.bootstrap}"

    def check_readable(self) -> None:
        """`Invalid` for what can be written to and not read: who writes JSON need not say what is
        in it."""
        for what, columns, body in (
            ("value", "columns", self.value),
            ("key", "key_columns", self.key),
        ):
            if body is not None and body.format == "json" and body.columns is None:
                found = f"has {what}='json' and no {columns}"
                self._refuse(found, "write them like 'user string, n long'")

    def value_names(self) -> list[str]:
        """The columns of a value whose columns are known."""
        return ["value"] if self.value.columns is None else list(self.value.columns.names)

    def check_names(self, of_value: Iterable[str]) -> None:
        """`Invalid` if two columns would have one name."""
        key = [self.key_column] if self.key is not None else []
        more = [HEADERS] if self.headers else []
        deletes = [self.deletes] if self.deletes is not None else []
        names = [*key, *of_value, *more, *deletes, META_NAME]
        for name in names:
            if names.count(name) > 1:
                advice = f"rename one; {META_NAME!r} is what a source itself adds"
                self._refuse(f"has two columns {name!r}", advice)

    def _check_body(self, what: str, body: Body) -> None:
        columns = "columns" if what == "value" else "key_columns"
        said = f"{what}={body.format!r}"
        if body.format not in FORMATS:
            self._refuse(f"has {said}", f"use one of {', '.join(FORMATS)}")
        if body.format in ("bytes", "string") and body.columns is not None:
            self._refuse(f"has {columns} and {said}, which has none", "use 'json', or no columns")
        if body.format in REGISTERED and not self.registry:
            self._refuse(f"has {said} and no schema registry", "give schema_registry='http://…'")
        if body.format in REGISTERED and body.columns is None and not self.topics.is_one:
            advice = "declare them: each topic may have schemas of its own"
            self._refuse(f"has {said}, several topics and no {columns}", advice)
        self._check_json(columns, body)

    def _check_json(self, what: str, body: Body) -> None:
        if body.columns is not None and "json" in body.format:
            wrong = why_not_json(body.columns)
            if wrong:
                found = f"has {what} with {wrong}, which JSON is not read as"
                self._refuse(found, "use text, numbers, booleans, moments, structs and arrays")

    def _check_limits(self) -> None:
        policies = get_args(Policy)
        if self.on_undecodable not in policies:
            found = f"has on_undecodable={self.on_undecodable!r}"
            self._refuse(found, f"use one of {', '.join(policies)}")
        if not 0 < self.timeout_s <= TIMEOUT_S_MAX:
            advice = f"use more than 0 and at most {TIMEOUT_S_MAX:g} seconds"
            self._refuse(f"has timeout_s={self.timeout_s!r}", advice)
        if self.partition_records_max is not None and self.partition_records_max < 1:
            found = f"has partition_records_max={self.partition_records_max!r}"
            self._refuse(found, "use 1 or more, or leave it out")
        if self.group == "":
            self._refuse("has an empty group", "give it a name, or leave it out")

    def _check_settings(self) -> None:
        for name in self.settings:
            if name in PROMISED:
                advice = "leave it out: the source sets it so that it can keep its promise"
                self._refuse(f"has the setting {name!r}", advice)
        self._check_scalars("settings", self.settings)

    def _check_registry(self) -> None:
        for name in self.registry:
            if name not in REGISTRY_SETTINGS:
                advice = f"use some of {', '.join(sorted(REGISTRY_SETTINGS))}"
                self._refuse(f"has schema_registry with {name!r}", advice)
        if self.registry and not self.registry.get("url"):
            self._refuse("has schema_registry without a url", "add 'url': 'http://…'")
        self._check_scalars("schema_registry", self.registry)
        if "@" in urlsplit(_hidden(self.registry.get("url", ""))).netloc:
            found = "has a password written out in the url of its schema_registry"
            self._refuse(found, "give 'basic.auth.user.info': '${NAME}' instead")

    def _check_scalars(self, what: str, given: Mapping[str, object]) -> None:
        for name, value in given.items():
            if not isinstance(value, str | int | float | bool):
                found = f"has {what} with {name!r}, which is a {type(value).__name__}"
                self._refuse(found, "use text, numbers, True and False")
            if name.endswith(SECRET_ENDINGS) and not is_reference(str(value)):
                found = f"has {name!r} written out in its {what}"
                advice = "write '${NAME}', and set NAME in the environment or in the secrets file"
                self._refuse(found, advice)

    def _refuse(self, found: str, advice: str) -> NoReturn:
        raise Invalid(self.name, found, advice)


def as_columns(columns: str | pa.Schema | None) -> pa.Schema | None:
    """Columns as people write them, as a schema."""
    if isinstance(columns, str):
        return parse_columns(columns)
    return None if columns is None else columns.remove_metadata()


def as_registry(given: str | Scalars | None) -> dict[str, Scalar]:
    """What a client of a schema registry is told, of which often only the URL is said."""
    if given is None:
        return {}
    return {"url": given} if isinstance(given, str) else dict(given)


def _hidden(url: Scalar) -> str:
    """A URL, if it can be looked at before its references are known."""
    return "" if is_reference(str(url)) else str(url)
