"""Which topics a source reads, and what their partitions are called.

Of one topic the partitions are '0', '1', …; of several they are 'clicks/0', 'pays/0', …, also if
there is just one of them now: a list may grow and a pattern may match more, and a partition that
has been read must not change its name. A partition has one name: '00' is none.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.errors import Invalid

__all__ = ["Place", "Topics", "topics_of"]

_TOPIC = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}")
"""What Kafka takes as the name of a topic."""
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
KAFKAS_OWN = "__"
"""What the names of topics begin with that Kafka keeps for itself."""


class Place(NamedTuple):
    """A partition as Kafka knows it."""

    topic: str
    number: int


@dataclass(frozen=True, slots=True)
class Topics:
    """Some topics by name, or all whose whole name a pattern matches."""

    names: tuple[str, ...]
    pattern: str | None = None
    is_one: bool = False

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topics {self.pattern!r}"
        return f"topic {self.names[0]}" if self.is_one else f"topics {', '.join(self.names)}"

    def has(self, topic: str) -> bool:
        """Whether a topic is one of them. Kafka's own are, only if they are named."""
        if self.pattern is None:
            return topic in self.names
        return not topic.startswith(KAFKAS_OWN) and bool(re.fullmatch(self.pattern, topic))

    def name_of(self, place: Place) -> str:
        """What a partition is called."""
        return str(place.number) if self.is_one else f"{place.topic}/{place.number}"

    def place_of(self, partition: str) -> Place | None:
        """The partition of that name, if there can be one."""
        topic, slash, number = partition.rpartition("/")
        if self.is_one and not slash:
            topic = self.names[0]
        elif self.is_one or not self.has(topic):
            return None
        return Place(topic, int(number)) if _NUMBER.fullmatch(number) else None


def topics_of(where: str, topic: str | Sequence[str] | None, pattern: str | None) -> Topics:
    """What was asked for; `Invalid` if no Kafka could have it."""
    if not topic and pattern is None:
        raise Invalid(where, "has no topic", "give a topic, several, or a pattern")
    if topic and pattern is not None:
        raise Invalid(where, "has topics and a pattern", "give one or the other")
    if pattern is not None:
        return Topics((), _checked_pattern(where, pattern))
    names = (topic,) if isinstance(topic, str) else tuple(topic or ())
    for name in names:
        _check_topic(where, name, names)
    return Topics(names, is_one=isinstance(topic, str))


def _checked_pattern(where: str, pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        found = f"has the pattern {pattern!r}, which is none ({error})"
        raise Invalid(where, found, "write a regular expression for the whole name") from error
    return pattern


def _check_topic(where: str, name: str, names: Sequence[str]) -> None:
    if not isinstance(name, str) or not _TOPIC.fullmatch(name):
        found = f"has the topic {name!r}, which Kafka cannot have"
        raise Invalid(where, found, "use letters, digits, '.', '_' and '-', at most 249 of them")
    if names.count(name) > 1:
        raise Invalid(where, f"has the topic {name!r}, twice", "name it once")
