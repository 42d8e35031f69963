"""About what a message of each partition takes, so that an epoch's limit in bytes can be kept.

The first messages behind the resume offset are weighed, and the weight is used until a partition
has gone on a good way: brokers do not tell, and weighing is reading. Where there is no message
among those offsets, a usual weight is taken.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, Message, TopicPartition

from penstock.sources.kafka_client import Reader
from penstock.sources.kafka_line import Line
from penstock.sources.kafka_names import Place
from penstock.sources.protocol import Range

__all__ = ["Sizes"]

SAMPLE_OFFSETS = 100
GOOD_FOR_OFFSETS = 100_000
USUAL_BYTES = 1024.0
MESSAGE_BYTES = 32
"""What a message takes besides its key and its value."""
SILENCE_S = 2.0
"""After how long without any message the rest is taken to be usual."""


@dataclass(slots=True)
class _Weighed:
    """What was found at some place of a partition."""

    sample: Range
    count: int = 0
    size_bytes: int = 0
    at: int = 0

    def mean_bytes(self) -> float:
        return self.size_bytes / self.count if self.count else USUAL_BYTES

    def add(self, message: Message) -> None:
        offset = message.offset() or 0
        self.at = max(self.at, offset + 1)
        if self.sample.start <= offset < self.sample.stop:
            self.count += 1
            self.size_bytes += len(message.key() or b"") + len(message) + MESSAGE_BYTES


@dataclass(slots=True)
class Sizes:
    """Remembers what messages weigh."""

    known: dict[Place, _Weighed] = field(default_factory=dict)

    def mean_bytes(self, line: Line, ranges: Mapping[Place, Range]) -> dict[Place, float]:
        """What a message takes in each partition that is to be read on, and where."""
        fresh = {
            place: _Weighed(_first(each))
            for place, each in ranges.items()
            if not self._is_known(place, each.start)
        }
        if fresh:
            with line.reader("sampling") as reader:
                _weigh(line, reader, fresh)
            self.known |= fresh
        return {place: self.known[place].mean_bytes() for place in ranges}

    def _is_known(self, place: Place, start: int) -> bool:
        known = self.known.get(place)
        return known is not None and 0 <= start - known.sample.start < GOOD_FOR_OFFSETS


def _first(wanted: Range) -> Range:
    return Range(start=wanted.start, stop=min(wanted.stop, wanted.start + SAMPLE_OFFSETS))


def _weigh(line: Line, reader: Reader, wanted: Mapping[Place, _Weighed]) -> None:
    """Read until every sample is over, or until nothing comes."""
    starts = [TopicPartition(*place, each.sample.start) for place, each in wanted.items()]
    reader.handle.assign(starts)
    while any(each.at < each.sample.stop for each in wanted.values()):
        message = reader.handle.poll(SILENCE_S)
        if message is None:
            line.check(reader.heard)
            break
        _heed(wanted, message)
    reader.handle.unassign()


def _heed(wanted: Mapping[Place, _Weighed], message: Message) -> None:
    found = wanted.get(Place(message.topic() or "", message.partition() or 0))
    error = message.error()
    if found is None:
        return
    if error is None:
        found.add(message)
    elif error.code() == KafkaError._PARTITION_EOF:
        found.at = max(found.at, message.offset() or 0)
