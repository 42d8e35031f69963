"""A schema registry, as a source asks it: for a schema by its number, and for a subject's newest.

A schema that has a number never changes, so each is asked for once in a process. A number that the
registry does not have is a mistake in the message that names it; all else that goes wrong concerns
the registry, and no message is blamed for it: least of all for an answer that the registry has not
given, such as a proxy's page, or one that was cut off (ADR 26).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

from penstock.errors import Invalid, PenstockError, Unavailable
from penstock.secrets import references_in, resolved
from penstock.sources.kafka_pool import Pool
from penstock.sources.kafka_settings import KafkaSettings, Scalar

try:
    import httpx2 as httpx
except ImportError:  # before 2.16 the client used another one
    import httpx  # type: ignore[import-not-found, no-redef]

__all__ = ["Registry", "open_registry"]

RETRIES, RETRY_PAUSE_MS = 2, 200
"""How often a request is repeated at once; the runtime does so by and by."""
REASON_LENGTH_MAX = 200

_CLIENTS: Pool[SchemaRegistryClient] = Pool()
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Registry:
    """Promise: the same number always gives the same schema."""

    where: str
    """The source and its registry, as messages call them."""
    told: tuple[tuple[str, Scalar], ...] = field(repr=False)
    """What a client is told, secrets included."""
    secrets: tuple[str, ...] = field(repr=False)

    def schema(self, number: int, form: str | None) -> Schema:
        """The schema with a number; `ValueError` if there is none."""
        found = self._asked(lambda client: client.get_schema(number, fmt=form))
        if found is None:
            raise ValueError(f"it names schema {number}, which the registry lacks")
        return found

    def newest(self, subject: str, form: str | None) -> int:
        """The number of the newest schema of a subject."""
        found = self._asked(lambda client: client.get_version(subject, "latest", fmt=form))
        if found is None:
            advice = "register one, correct the topic's name, or declare the columns"
            raise Invalid(self.where, f"has no subject {subject!r}", advice)
        assert found.schema_id is not None
        return found.schema_id

    def referred(self, schema: Schema, form: str | None) -> Iterator[tuple[str, Schema]]:
        """The schemas that a schema builds on, by the names it has for them."""
        for reference in schema.references or ():
            yield reference.name or "", self._version(reference, form)

    def _version(self, reference: SchemaReference, form: str | None) -> Schema:
        subject, version = reference.subject or "", reference.version or 0
        found = self._asked(
            lambda client: client.get_version(subject, version, deleted=True, fmt=form)
        )
        if found is None or found.schema is None:
            what = f"it builds on version {version} of {subject!r}, which the registry lacks"
            raise ValueError(what)
        return found.schema

    def _asked(self, question: Callable[[SchemaRegistryClient], T]) -> T | None:
        """The answer, or None if what is asked for is not there."""
        client = _CLIENTS.take(self.told) or self._opened()
        answer: T | None = None
        try:
            answer = question(client)
        except SchemaRegistryError as error:
            if error.http_status_code != 404 or _is_unreadable(error):
                client.close()
                raise self._refused(error) from None
        except (httpx.HTTPError, OAuthTokenError, OSError) as error:
            client.close()
            # Its words may hold the whole URL, and with it a secret.
            raise self._away(type(error).__name__) from None
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            client.close()
            raise self._away(f"a success that cannot be read: {type(error).__name__}") from None
        _CLIENTS.give(self.told, client)
        return answer

    def _opened(self) -> SchemaRegistryClient:
        try:
            return SchemaRegistryClient(dict(self.told))
        except (ValueError, TypeError, OSError) as error:
            found = f"cannot be used as it is set up ({self._hidden(str(error))})"
            raise Invalid(self.where, found, "correct its schema_registry") from None

    def _refused(self, error: SchemaRegistryError) -> PenstockError:
        status, said = error.http_status_code, self._hidden(str(error.error_message))
        if _is_unreadable(error):
            return self._away(f"status {status}, with something else than JSON of a registry")
        if status in (408, 429) or status >= 500:
            return self._away(f"{status}: {said}")
        advice = "check what its schema_registry is told, and what it is allowed to read"
        return Invalid(self.where, f"refuses with {status} ({said})", advice)

    def _away(self, why: str) -> Unavailable:
        advice = "see that it runs and can be reached from here; it is asked again by and by"
        return Unavailable(self.where, f"does not answer ({why})", advice)

    def _hidden(self, text: str) -> str:
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, "***") if secret else text
        return " ".join(text.split())[:REASON_LENGTH_MAX]


def _is_unreadable(error: SchemaRegistryError) -> bool:
    """Whether no registry has said this: a registry numbers its errors."""
    return error.error_code is None or error.error_code == SchemaRegistryError.UNKNOWN


def open_registry(settings: KafkaSettings) -> Registry:
    """The registry of a source. References are looked up here; nothing is sent yet."""
    given, name = settings.registry, settings.name
    known = {
        what: resolved(name, value) if isinstance(value, str) else value
        for what, value in {**_usual(given, settings.timeout_s), **given}.items()
    }
    secrets = references_in(name, " ".join(map(str, given.values()))).values()
    where = f"schema registry {given['url']} of {name}"
    return Registry(where, tuple(sorted(known.items())), tuple(secrets))


def _usual(given: Mapping[str, Scalar], timeout_s: float) -> dict[str, Scalar]:
    """What a client is told unless it is said otherwise. Its own patience has no end."""
    usual: dict[str, Scalar] = {
        "timeout": timeout_s,
        "max.retries": RETRIES,
        "retries.wait.ms": RETRY_PAUSE_MS,
    }
    if "bearer.auth.token" in given:
        usual["bearer.auth.credentials.source"] = "STATIC_TOKEN"
    return usual
