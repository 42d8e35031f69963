"""What a reader of a topic sees, and when: the same clock for every system.

A reader that wants only what is committed can see up to a partition's last stable offset. It is
asked for again and again while a system runs; afterwards all messages are read, which says how many
of the offsets below it are messages and not marks of transactions.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

__all__ = ["Produced", "Reader"]

CALL_S_MAX = 30.0
AT_ONCE = 10_000
SETTINGS = {
    "group.id": "benchmark",
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "fetch.max.bytes": 32 << 20,
    "max.partition.fetch.bytes": 16 << 20,
}


@dataclass(frozen=True)
class Produced:
    """Every message of a topic that is committed."""

    bodies: list[bytes]
    offsets: Mapping[int, Any]
    """Of the messages of each partition, ascending, as an array."""

    def rows_below(self, ends: Mapping[int, int]) -> int:
        """How many messages stand before these offsets."""
        found = (np.searchsorted(self.offsets[n], end) for n, end in ends.items())
        return int(sum(found))


@dataclass
class Reader:
    """Looks at one topic."""

    bootstrap: str
    topic: str
    partitions: int
    seen: list[tuple[float, dict[int, int]]] = field(default_factory=list)
    """When the ends were found to have moved, and to where."""

    def __post_init__(self) -> None:
        self._consumer = Consumer({"bootstrap.servers": self.bootstrap, **SETTINGS})

    def look(self) -> int:
        """Write down how far a reader could read now; the sum of it."""
        before = self.seen[-1][1] if self.seen else dict.fromkeys(range(self.partitions), 0)
        ends = {number: self._end(number, known) for number, known in before.items()}
        if ends != before:
            self.seen.append((time.monotonic(), ends))
        return sum(ends.values())

    def _end(self, number: int, known: int) -> int:
        """The last stable offset of a partition; while no broker can say, the one we know."""
        place = TopicPartition(self.topic, number)
        try:
            _, end = self._consumer.get_watermark_offsets(place, CALL_S_MAX)
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise
            return known
        return int(end)

    def steps(self, produced: Produced) -> list[tuple[float, int]]:
        """How many messages could be read, at each moment there were more."""
        return [(at_s, produced.rows_below(ends)) for at_s, ends in self.seen]

    def read(self) -> Produced:
        """Everything that can be read now."""
        bodies: list[bytes] = []
        offsets: dict[int, list[int]] = {number: [] for number in range(self.partitions)}
        places = [TopicPartition(self.topic, n, OFFSET_BEGINNING) for n in offsets]
        self._consumer.assign(places)
        ended: set[int] = set()
        while len(ended) < self.partitions:
            for message in self._next():
                error, partition = message.error(), message.partition() or 0
                if error is None:
                    bodies.append(message.value() or b"")
                    offsets[partition].append(message.offset() or 0)
                elif error.name() == "_PARTITION_EOF":
                    ended.add(partition)
                else:
                    raise KafkaException(error)
        self._consumer.unassign()
        return Produced(bodies, {number: np.array(found) for number, found in offsets.items()})

    def _next(self) -> list[Message]:
        """Wait for one message, and take those that are there with it: to ask for many is to wait
        until there are as many."""
        first = self._consumer.poll(CALL_S_MAX)
        return [] if first is None else [first, *self._consumer.consume(AT_ONCE, 0)]

    def close(self) -> None:
        """Look no more."""
        self._consumer.close()
