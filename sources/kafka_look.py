"""What there is to read: topics, their partitions, and the offsets these have.

A topic has an id that is never given again. Whoever has seen a topic remembers it, so that one
that was deleted, or made anew under its name, is noticed, and never read on at the old offsets.
A partition ends at its last stable offset: what is behind it may still be taken back.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from penstock.errors import Invalid
from penstock.sources.kafka_errors import ABSENT, PASSING
from penstock.sources.kafka_line import Line
from penstock.sources.kafka_names import Place
from penstock.sources.protocol import Span

__all__ = ["Look"]

NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""What brokers say that give no ids, as before Kafka 2.8."""
ENDS = {
    "earliest": OffsetSpec.earliest(),  # type: ignore[no-untyped-call]
    "latest": OffsetSpec.latest(),  # type: ignore[no-untyped-call]
}
ABSENT_TRIES, ABSENT_PAUSE_S = 3, 0.2
"""How often a topic must be unknown before it is believed not to be there: a broker that has
just started, or a topic that was just made, may need a moment."""
ANEW = "start the job anew, in a new root, at 'earliest' or 'latest'"


@dataclass(frozen=True, slots=True)
class Look:
    """Looks at the topics of a source."""

    line: Line
    ids: dict[str, str]
    """The id of every topic that was seen."""

    def places(self) -> list[Place]:
        """Every partition there is."""
        topics = self.line.settings.topics
        names = list(topics.names) if topics.pattern is None else self._matching()
        return [place for found in self._described(names).values() for place in found]

    def check(self, place: Place) -> None:
        """Raise unless the partition is there, of the topic that was always meant."""
        found = self._described([place.topic])
        if place not in found.get(place.topic, ()):
            name = self.line.settings.topics.name_of(place)
            there = len(found.get(place.topic, ()))
            advice = f"topic {place.topic} has the partitions 0 to {there - 1}"
            raise Invalid(self.line.where, f"has no partition {name!r}", advice)

    def spans(self, places: Iterable[Place]) -> dict[Place, Span]:
        """The offsets of some partitions."""
        ends = {(place, end): spec for place in places for end, spec in ENDS.items()}
        found = self._offsets(ends)
        return {
            place: Span(found[place, "earliest"], found[place, "latest"])
            for place, end in ends
            if end == "earliest"
        }

    def offsets_at(self, at_ms: int, spans: Mapping[Place, Span]) -> dict[Place, int]:
        """Where the first message as late as a moment is; the end if there is none."""
        if at_ms <= 0:
            return {place: span.earliest for place, span in spans.items()}
        spec = OffsetSpec.for_timestamp(at_ms)
        found = self._offsets({(place, "at"): spec for place in spans})
        return {
            place: min(found[place, "at"], span.latest) if found[place, "at"] >= 0 else span.latest
            for place, span in spans.items()
        }

    def _matching(self) -> list[str]:
        """Topics that are there now or were there when somebody looked."""
        [answer] = self.line.asked(_listed).values()
        if isinstance(answer, KafkaError):
            raise self.line.refused(answer)
        topics = self.line.settings.topics
        return sorted({name for name in answer.topics if topics.has(name)} | self.ids.keys())

    def _described(self, names: list[str]) -> dict[str, list[Place]]:
        """The partitions of some topics, each of which is the one that was always meant."""
        if not names:
            return {}
        answers = self._answers(names)
        return {
            name: self._known(name, answer)
            for name, answer in sorted(answers.items())
            if not self._is_passed_over(name, answer)
        }

    def _answers(self, names: list[str]) -> dict[str, Any]:
        for _ in range(ABSENT_TRIES - 1):
            answers = self.line.asked(partial(_describe, names))
            errors = [each for each in answers.values() if isinstance(each, KafkaError)]
            if not any(error.code() in ABSENT for error in errors):
                return answers
            self.line.clock.sleep(ABSENT_PAUSE_S)
        return self.line.asked(partial(_describe, names))

    def _is_passed_over(self, name: str, answer: Any) -> bool:
        """Of a pattern: a topic that was gone before anybody looked, and Kafka's own."""
        if self.line.settings.topics.pattern is None or name in self.ids:
            return False
        if isinstance(answer, KafkaError):
            return answer.code() in ABSENT
        return bool(answer.is_internal)

    def _known(self, name: str, answer: Any) -> list[Place]:
        if isinstance(answer, KafkaError):
            raise self._missing(name) if answer.code() in ABSENT else self.line.refused(answer)
        found = str(answer.topic_id)
        if found != NO_ID and self.ids.setdefault(name, found) != found:
            raise Invalid(self._topic(name), "was deleted and made anew", ANEW)
        return [Place(name, each.id) for each in answer.partitions]

    def _missing(self, name: str) -> Invalid:
        if name in self.ids:
            return Invalid(self._topic(name), "was deleted", f"{ANEW}, or without this topic")
        advice = "create it, or correct its name; it is not made by reading it"
        return Invalid(self._topic(name), "does not exist", advice)

    def _topic(self, name: str) -> str:
        one = self.line.settings.topics.is_one
        return self.line.where if one else f"{self.line.where}, topic {name},"

    def _offsets(self, wanted: Mapping[tuple[Place, str], OffsetSpec]) -> dict[Any, int]:
        if not wanted:
            return {}
        # A leader that has just been chosen may not know yet that it has the partition.
        answers = self.line.asked(partial(_list_offsets, wanted), PASSING | ABSENT)
        for answer in answers.values():
            if isinstance(answer, KafkaError):
                raise self.line.refused(answer)
        return {key: answer for key, answer in answers.items() if isinstance(answer, int)}


def _listed(admin: AdminClient, timeout_s: float) -> dict[str, "Future[Any]"]:
    done: Future[Any] = Future()
    try:
        done.set_result(admin.list_topics(timeout=timeout_s))
    except KafkaException as error:
        done.set_exception(error)
    return {"topics": done}


def _describe(
    names: list[str], admin: AdminClient, timeout_s: float
) -> Mapping[str, "Future[Any]"]:
    return admin.describe_topics(TopicCollection(names), request_timeout=timeout_s)


def _list_offsets(
    wanted: Mapping[tuple[Place, str], OffsetSpec], admin: AdminClient, timeout_s: float
) -> dict[tuple[Place, str], "_Offset"]:
    """A request for each kind of offset: one request takes a partition once."""
    found: dict[tuple[Place, str], _Offset] = {}
    for end in dict.fromkeys(kind for _, kind in wanted):
        specs = {Partition(*place): spec for (place, kind), spec in wanted.items() if kind == end}
        futures = admin.list_offsets(
            specs, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=timeout_s
        )
        found |= {(Place(p.topic, p.partition), end): _Offset(each) for p, each in futures.items()}
    return found


@dataclass(frozen=True, slots=True)
class _Offset:
    """An offset that a leader will tell. When it dies over the question, the client gives an
    offset that is none, and no error."""

    future: "Future[Any]"

    def result(self, timeout: float | None) -> int:
        offset = int(self.future.result(timeout).offset)
        if offset == OFFSET_INVALID:
            raise KafkaException(KafkaError(KafkaError._NO_OFFSET))
        return offset
