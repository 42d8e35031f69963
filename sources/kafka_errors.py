"""What a Kafka's refusals mean, sorted by what whoever asked must do.

The client says many things that pass by themselves: a broker that is away, a leader that moved.
Those are `Unavailable`. A login, a right or a setting that is wrong waits for a person. What it
says is shown without its own address and timing, and without what a reference stands for.
"""

import re
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException

from penstock.errors import Corrupt, Invalid, PenstockError, Unavailable

__all__ = ["ABSENT", "LOGIN", "MISPLACED", "PASSING", "away", "error_of", "plain", "refused"]

LOGIN = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.ILLEGAL_SASL_STATE,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
    }
)
RIGHTS = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
)
ABSENT = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)
MISPLACED = frozenset(
    {
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError._LOG_TRUNCATION,
    }
)
"""The broker does not have the offset that was asked for."""
DAMAGED = frozenset({KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG, KafkaError.INVALID_MSG})
PASSING = frozenset(
    {
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._NOENT,
        KafkaError._NO_OFFSET,
        KafkaError._RESOLVE,
        KafkaError._RETRY,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._UNKNOWN_BROKER,
        KafkaError._WAIT_CACHE,
        KafkaError._WAIT_COORD,
    }
)
"""What may be over when it is asked again."""

REASON_LENGTH_MAX = 300
_ADDRESS = re.compile(r"^(?:\w+://)?\S+/(?:bootstrap|-?\d+): ")
_TIMING = re.compile(r" \(after \d+ms in state [^()]*\)$")


def refused(where: str, error: KafkaError, secrets: Mapping[str, str]) -> PenstockError:
    """What to raise for an error that a client gave as its answer."""
    code, reason = error.code(), plain(error.str(), secrets)
    if code in LOGIN:
        advice = "check the user, the password and the sasl.* settings"
        return Invalid(where, f"refuses the login ({reason})", advice)
    if code in RIGHTS:
        advice = "have read and describe allowed on its topics, and read on its group if it has one"
        return Invalid(where, f"may not be used by this user ({reason})", advice)
    if code in DAMAGED:
        advice = "compare the replicas of the partition; nothing that was read is in doubt"
        return Corrupt(where, f"gives a message that is damaged ({reason})", advice)
    if code in PASSING or code == KafkaError._FAIL:
        return away(where, reason)
    return Unavailable(where, f"refuses ({reason})", "it is asked again by and by")


def away(where: str, reason: str) -> Unavailable:
    """What to raise when nobody answers."""
    advice = "see that its brokers run and can be reached from here; it is asked again by and by"
    return Unavailable(where, f"does not answer ({reason})", advice)


def error_of(exception: KafkaException) -> KafkaError:
    """The error that an exception of the client carries."""
    found = exception.args[0]
    return found if isinstance(found, KafkaError) else KafkaError(KafkaError._FAIL, str(found))


def plain(text: str, secrets: Mapping[str, str]) -> str:
    """What a client says, in words for a person; a secret becomes its reference again."""
    for reference, secret in sorted(secrets.items(), key=lambda each: -len(each[1])):
        text = text.replace(secret, reference) if secret else text
    short = _TIMING.sub("", _ADDRESS.sub("", " ".join(text.split())))
    return short[:REASON_LENGTH_MAX]
