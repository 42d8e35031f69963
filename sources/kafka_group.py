"""Telling a consumer group how far a job is, for those who watch lag with Kafka's own tools.

It is for show: a job goes on from its own manifest, and nothing is ever read from the group. The
group must have no members, because offsets that somebody else commits for them are refused.
"""

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.errors import Invalid, PenstockError
from penstock.sources.kafka_client import Reader
from penstock.sources.kafka_errors import PASSING, error_of
from penstock.sources.kafka_line import STEP_S, Line
from penstock.sources.kafka_names import Place

__all__ = ["tell"]

TELL_S_MAX = 5.0
"""A job waits for this at every epoch, and nothing depends on it."""

MEMBERS = frozenset(
    {
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.UNKNOWN_MEMBER_ID,
    }
)


def tell(line: Line, resume: Mapping[Place, int]) -> None:
    """Commit the offsets that are to be read next."""
    offsets = [TopicPartition(*place, offset) for place, offset in resume.items()]
    deadline_s = min(line.deadline_s(), line.clock.monotonic() + TELL_S_MAX)
    with line.reader("telling") as reader:
        while (error := _committed(line, reader, offsets, deadline_s)) is not None:
            if error.code() not in PASSING:
                raise _refused(line, error)
            line.wait(reader.heard, deadline_s, error)


def _committed(
    line: Line, reader: Reader, offsets: list[TopicPartition], deadline_s: float
) -> KafkaError | None:
    """Commit once, and wait for the answer. The client's own waiting has no end that can be set."""
    reader.commits.clear()
    try:
        reader.handle.commit(offsets=offsets, asynchronous=True)
    except KafkaException as exception:
        return error_of(exception)
    while not reader.commits:
        event = reader.handle.poll(STEP_S)
        if event is not None and (error := event.error()) is not None:
            reader.heard(error)
        line.check(reader.heard)
        if _is_barred(reader.heard.last):
            return reader.heard.last
        if line.clock.monotonic() >= deadline_s:
            raise line.away(reader.heard)
    refusal, told = reader.commits[0]
    return refusal or next((each.error for each in told if each.error is not None), None)


def _is_barred(error: KafkaError | None) -> bool:
    """Whether the group is closed to us: then no answer comes. It is said once, to whoever uses
    the reader first, and that may have been somebody who only read."""
    return error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def _refused(line: Line, error: KafkaError) -> PenstockError:
    if error.code() not in MEMBERS:
        return line.refused(error)
    return Invalid(
        f"group {line.settings.group!r} of {line.where}",
        f"refuses offsets (Commit failed: {error.str()})",
        "give the source a group of its own, in which nobody else reads",
    )
