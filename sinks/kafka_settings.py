"""What a Kafka sink tells its clients: checked when it is said, filled in when they connect.

Settings are passed on to librdkafka as they are, but for those on which the promise of the sink
rests: obeyed they would break it, overruled in silence they would be a riddle, so they are refused.
A secret may stand here only as a reference, `${NAME}`. It is looked up when a client is made, in
the process that makes it, and is in nothing that is sent, stored or shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from penstock.errors import Invalid
from penstock.secrets import is_reference, resolved, secrets_in

__all__ = ["KafkaSettings", "Scalar"]

Scalar: TypeAlias = str | int | float | bool

MESSAGE_BYTES_MAX = "message.max.bytes"
MESSAGE_BYTES = 1_000_000
"""What librdkafka and a broker take as one message, unless told."""
TRANSACTION_MS_MAX = "transaction.timeout.ms"
TRANSACTION_MS = 60_000
TIMEOUT_S_MAX = 600.0

FIXED = {
    "acks": ("all", "-1"),
    "request.required.acks": ("all", "-1"),
    "enable.idempotence": ("true",),
}
"""Settings that may be said, if they say what is true anyway."""
FIELDS = {
    "bootstrap.servers": "bootstrap",
    "metadata.broker.list": "bootstrap",
    "compression.codec": "compression",
    "compression.type": "compression",
    "partitioner": "partitioner",
}
"""Settings for which the sink has a word of its own."""
PROMISED = frozenset(
    {
        "delivery.report.only.error",
        "enable.auto.commit",
        "enable.gapless.guarantee",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "isolation.level",
        "log.connection.close",
        "log.queue",
        "log_level",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "transactional.id",
    }
)
"""Settings that fence, that say which cursor counts, or that tell us what became of a line."""
SECRET_ENDINGS = ("assertion.file", "key.pem", "passphrase", "password", "secret", "token")


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How to reach a Kafka, and how patiently."""

    where: str
    """The sink, as messages call it."""
    bootstrap: str
    given: Mapping[str, Scalar]
    timeout_s: float

    def check(self) -> None:
        """`Invalid` for what no sink could keep to."""
        if not self.bootstrap.strip():
            self._refuse("names no broker", "give 'host:9092', or several with commas between")
        if not 0 < self.timeout_s <= TIMEOUT_S_MAX:
            advice = f"use more than 0 and at most {TIMEOUT_S_MAX:g} seconds"
            self._refuse(f"has timeout_s={self.timeout_s!r}", advice)
        for name, value in self.given.items():
            self._check_promise(name, value)
            self._check_value(name, value)
        self._number(MESSAGE_BYTES_MAX, MESSAGE_BYTES)
        self._number(TRANSACTION_MS_MAX, TRANSACTION_MS)

    @property
    def message_bytes_max(self) -> int:
        """What one message may have."""
        return self._number(MESSAGE_BYTES_MAX, MESSAGE_BYTES)

    @property
    def transaction_ms(self) -> int:
        """After what time a broker ends a transaction."""
        return self._number(TRANSACTION_MS_MAX, TRANSACTION_MS)

    def _number(self, name: str, default: int) -> int:
        """A setting that is looked at before anything is connected."""
        try:
            number = int(self.given.get(name, default))
        except ValueError:
            number = 0
        if number < 1:
            found = f"has the setting {name!r}, which is no number above 0"
            raise Invalid(self.where, found, "write it as a number, without a reference")
        return number

    def filled_in(self) -> dict[str, Scalar]:
        """For a client: every reference replaced. Never to be shown or kept."""
        settings = {"bootstrap.servers": self.bootstrap, **self.given}
        return {
            name: resolved(self.where, value) if isinstance(value, str) else value
            for name, value in settings.items()
        }

    def secrets(self) -> list[str]:
        """What must be cut out of whatever a client says."""
        texts = [value for value in self.given.values() if isinstance(value, str)]
        return [secret for text in texts for secret in secrets_in(self.where, text)]

    def _check_promise(self, name: str, value: Scalar) -> None:
        if name in FIELDS:
            self._refuse(f"has the setting {name!r}", f"say it with {FIELDS[name]}=")
        is_other = name in FIXED and str(value).lower() not in FIXED[name]
        if name in PROMISED or is_other:
            advice = "leave it out: the sink sets it so that it can keep its promise"
            self._refuse(f"has the setting {name!r}", advice)

    def _check_value(self, name: str, value: object) -> None:
        if not isinstance(value, str | int | float | bool):
            found = f"has settings with {name!r}, which is a {type(value).__name__}"
            self._refuse(found, "use text, numbers, True and False")
        if name.endswith(SECRET_ENDINGS) and not is_reference(str(value)):
            found = f"has {name!r} written out in its settings"
            advice = "write '${NAME}', and set NAME in the environment or in the secrets file"
            self._refuse(found, advice)

    def _refuse(self, found: str, advice: str) -> NoReturn:
        raise Invalid(self.where, found, advice)
