"""The messages of a range of offsets, exactly, from wherever their leader is.

Not every offset has a message: transactions leave control records, which nobody sees, and what
they aborted; compaction leaves nothing. So the message before the stop is never waited for. A
range is over when one of these is seen, each of which comes in order after all before it:

    a message at the stop or behind it, or just before it
    the end of the partition (its last stable offset), at the stop or behind it
    a position at the stop: the reader has passed a control record before it

The position is asked only when there is nothing to take, and believed only after a message of
this very assignment and before an end: until the first, it may be that of the assignment before;
behind an end, some versions of the client are one too far.

Silence may be a leader that moved, a topic that is gone, or a log that was cut. It is looked into
after a second, and is `Unavailable` when patience is over. Where a range is and that it is whole
was checked before it was read (by `Look`), and the topic's id is checked once more behind the last
message: the same id before and after means that every message was of that topic.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, Message, TopicPartition

from penstock.sources.kafka_client import Reader
from penstock.sources.kafka_errors import ABSENT, DAMAGED, LOGIN, MISPLACED, RIGHTS
from penstock.sources.kafka_line import Line
from penstock.sources.kafka_look import Look
from penstock.sources.kafka_names import Place
from penstock.sources.planning import check_range
from penstock.sources.protocol import Range

__all__ = ["Reading", "read_range"]

TAKE_MAX = 10_000
"""How many messages are taken from the reader's buffer at once."""
BATCH_MESSAGES = 32_768
BATCH_BYTES = 8 << 20
"""After so many or so much, a batch is handed on."""
SILENCE_S = 1.0
"""After how long without a message it is asked what became of the partition."""
FOR_A_PERSON = (DAMAGED | LOGIN | RIGHTS) - {KafkaError.GROUP_AUTHORIZATION_FAILED}
"""What ends a reading. Who only reads need not be allowed into the group."""


def read_range(line: Line, look: Look, place: Place, wanted: Range) -> Iterator[list[Message]]:
    """The messages, in batches that are never empty.

    1. See that the partition is there and has the offsets.
    2. Read them.
    3. See that the topic is still the one it was.
    """
    _check(line, look, place, wanted)  # 1
    if wanted.start < wanted.stop:
        with line.reader("reading") as reader:
            yield from Reading(line, look, reader, place, wanted).batches()  # 2
        look.check(place)  # 3


def _check(line: Line, look: Look, place: Place, wanted: Range) -> None:
    """Raise unless a partition has every offset of a range."""
    look.check(place)
    name = line.settings.topics.name_of(place)
    check_range(line.where, name, wanted, look.spans([place])[place])


@dataclass(slots=True)
class Reading:
    """One range on its way."""

    line: Line
    look: Look
    reader: Reader
    place: Place
    wanted: Range
    at: int = field(init=False)
    """Every offset before it was taken, or holds no message."""
    has_begun: bool = False
    """Whether a message of this assignment was seen."""
    has_ended: bool = False
    """Whether an end of the partition was seen."""

    def __post_init__(self) -> None:
        self.at = self.wanted.start

    def batches(self) -> Iterator[list[Message]]:
        """Read to the end of the range."""
        self.reader.handle.assign([TopicPartition(*self.place, self.wanted.start)])
        held: list[Message] = []
        held_bytes = 0
        while self.at < self.wanted.stop:
            fresh = self._taken()
            held += fresh
            held_bytes += sum(map(len, fresh))
            if len(held) >= BATCH_MESSAGES or held_bytes >= BATCH_BYTES:
                yield held
                held, held_bytes = [], 0
        self.reader.handle.unassign()
        if held:
            yield held

    def _taken(self) -> list[Message]:
        """What is in the reader's buffer; waits if there is nothing."""
        found = self.reader.handle.consume(TAKE_MAX, 0)
        if found:
            return self._sorted(found)
        if self.has_begun and not self.has_ended:
            [position] = self.reader.handle.position([TopicPartition(*self.place)])
            self.at = max(self.at, position.offset)
        return [] if self.at >= self.wanted.stop else self._waited()

    def _waited(self) -> list[Message]:
        deadline_s = self.line.deadline_s()
        while (found := self.reader.handle.poll(SILENCE_S)) is None:
            self.line.check(self.reader.heard)
            _check(self.line, self.look, self.place, self.wanted)
            if self.line.clock.monotonic() >= deadline_s:
                raise self.line.away(self.reader.heard)
        return self._sorted([found])

    def _sorted(self, found: list[Message]) -> list[Message]:
        """The messages of the range among what was found; the rest tells how far it is."""
        good = [message for message in found if message.error() is None]
        is_mixed = len(good) < len(found)
        if good:
            good = self._within(good)
        for message in found if is_mixed else ():
            self._heed(message)
        return good

    def _within(self, good: list[Message]) -> list[Message]:
        self.has_begun = True
        start, first, last = self.at, _offset(good[0]), _offset(good[-1])
        self.at = max(start, last + 1)
        if start <= first and last < self.wanted.stop:
            return good
        return [message for message in good if start <= _offset(message) < self.wanted.stop]

    def _heed(self, message: Message) -> None:
        """Do what an event asks for. Most errors pass by themselves, and are only remembered."""
        error = message.error()
        if error is None:
            return
        if error.code() == KafkaError._PARTITION_EOF:
            self._end(_offset(message))
            return
        if error.code() in FOR_A_PERSON:
            raise self.line.refused(error)
        if error.code() in ABSENT | MISPLACED:
            _check(self.line, self.look, self.place, self.wanted)
        if error.code() in MISPLACED:  # it is there again, but the reader has given up
            raise self.line.refused(error)
        self.reader.heard(error)

    def _end(self, offset: int) -> None:
        """Nothing is behind an offset for now. If the range is not over, its log was cut, or there
        is more by now."""
        self.at, self.has_ended = max(self.at, offset), True
        if self.at < self.wanted.stop:
            _check(self.line, self.look, self.place, self.wanted)


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset
