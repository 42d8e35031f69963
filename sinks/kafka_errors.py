"""What an error of Kafka means to a sink: whether it goes away by itself, and what to do.

The name of the error decides. What a person must see to is `Invalid`; everything else may pass,
and is `Unavailable`. That another producer has our name, or that the broker has ended our
transaction, is `Replaced`: the sink looks at its cursor again, and finds out which of the two.

A login that fails is retried by librdkafka for ever, and a call only ever times out. So clients
remember what they were told meanwhile, and that counts for more.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException

from penstock.errors import Invalid, PenstockError, Unavailable

__all__ = ["Place", "Replaced", "as_error", "is_refusal", "sorted_error"]

REASON_LENGTH_MAX = 300


class Replaced(Unavailable):
    """Our producer is not the last of its name, or its transaction was ended for it."""


@dataclass(frozen=True, slots=True)
class Place:
    """What messages are about."""

    name: str
    prefix: str
    """What the groups and transactional ids begin with that are used there."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class _Meaning:
    kind: type[Unavailable] | type[Invalid]
    found: str
    advice: str


_AWAY = _Meaning(
    Unavailable, "does not answer", "start its brokers or wait for them: the job goes on by itself"
)
_REPLACED = _Meaning(
    Replaced,
    "was taken over by another producer of the same transactional id, or took longer for one "
    "epoch than a transaction may",
    "see who else writes as this job and sink; or raise transaction.timeout.ms in its settings",
)
_MISSING = _Meaning(
    Invalid, "does not exist", "make it, or say create=True with as many partitions as it needs"
)
_LOGIN = _Meaning(
    Invalid, "does not let us in", "check the security.protocol, sasl and ssl settings of the sink"
)
_MAY_NOT = _Meaning(
    Invalid,
    "may not be written by this user",
    "allow it WRITE and DESCRIBE on the topic, READ on groups and WRITE on transactional ids that "
    "begin with {prefix}/",
)
_TOO_LARGE = _Meaning(
    Invalid,
    "does not take a message because of its size",
    "raise max.message.bytes of the topic, and start the job again: the row is committed",
)
_RECORD = _Meaning(
    Invalid,
    "does not take a message",
    "see that the topic needs no key that the sink does not give, and that "
    "message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic allow its "
    "time; then start the job again: the row is committed",
)
_GROUP = _Meaning(
    Invalid,
    "has its cursor in a group that somebody else has joined",
    "let nobody else use groups that begin with {prefix}/, or give the sink another "
    "transaction_prefix and accept it",
)
_SETTING = _Meaning(Invalid, "cannot be used with its settings", "correct them")
_TIMEOUT = _Meaning(
    Invalid,
    "has a transaction.timeout.ms that its broker does not allow",
    "lower it in the settings of the sink, or raise transaction.max.timeout.ms of the broker",
)
_OLD = _Meaning(Invalid, "is of a version that has no transactions", "use Kafka 2.5 or newer")

_MEANINGS = {
    "_FENCED": _REPLACED,
    "INVALID_PRODUCER_EPOCH": _REPLACED,
    "INVALID_PRODUCER_ID_MAPPING": _REPLACED,
    "INVALID_TXN_STATE": _REPLACED,
    "PRODUCER_FENCED": _REPLACED,
    "UNKNOWN_PRODUCER_ID": _REPLACED,
    "_UNKNOWN_PARTITION": _MISSING,
    "_UNKNOWN_TOPIC": _MISSING,
    "UNKNOWN_TOPIC_OR_PART": _MISSING,
    "_AUTHENTICATION": _LOGIN,
    "ILLEGAL_SASL_STATE": _LOGIN,
    "SASL_AUTHENTICATION_FAILED": _LOGIN,
    "UNSUPPORTED_SASL_MECHANISM": _LOGIN,
    "CLUSTER_AUTHORIZATION_FAILED": _MAY_NOT,
    "GROUP_AUTHORIZATION_FAILED": _MAY_NOT,
    "TOPIC_AUTHORIZATION_FAILED": _MAY_NOT,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": _MAY_NOT,
    "INVALID_MSG_SIZE": _TOO_LARGE,
    "MSG_SIZE_TOO_LARGE": _TOO_LARGE,
    "RECORD_LIST_TOO_LARGE": _TOO_LARGE,
    "INVALID_MSG": _RECORD,
    "INVALID_RECORD": _RECORD,
    "INVALID_TIMESTAMP": _RECORD,
    "ILLEGAL_GENERATION": _GROUP,
    "UNKNOWN_MEMBER_ID": _GROUP,
    "_CONFLICT": _SETTING,
    "_INVALID_ARG": _SETTING,
    "_NOT_CONFIGURED": _SETTING,
    "INVALID_CONFIG": _SETTING,
    "INVALID_PARTITIONS": _SETTING,
    "INVALID_REPLICATION_FACTOR": _SETTING,
    "POLICY_VIOLATION": _SETTING,
    "INVALID_TRANSACTION_TIMEOUT": _TIMEOUT,
    "UNSUPPORTED_VERSION": _OLD,
}

_MISTAKES = re.compile(r"certificate verify failed|verify that security\.protocol|SSL listener")
"""What is said of a line that will never do, under the name of one that is away."""


def is_refusal(error: KafkaError) -> bool:
    """Whether a client was told that it will never be let in as it is."""
    is_line = error.name() in ("_SSL", "_TRANSPORT")
    return error.name() == "_AUTHENTICATION" or bool(is_line and _MISTAKES.search(error.str()))


def as_error(failure: KafkaException) -> KafkaError:
    """What went wrong, as Kafka's client says it."""
    error = failure.args[0]
    assert isinstance(error, KafkaError)
    return error


def sorted_error(place: Place, error: KafkaError, secrets: Sequence[str]) -> PenstockError:
    """What to raise. Raise it `from None`: what a client says may quote a setting."""
    meaning = _LOGIN if is_refusal(error) else _MEANINGS.get(error.name(), _AWAY)
    found = f"{meaning.found} ({error.name()}: {_shown(error.str(), secrets)})"
    return meaning.kind(str(place), found, meaning.advice.format(prefix=place.prefix))


def _shown(text: str, secrets: Sequence[str]) -> str:
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "***")
    return " ".join(text.split())[:REASON_LENGTH_MAX]
