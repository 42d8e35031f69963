"""Everything a source needs the Kafka client for, behind one door.

Whoever imports this needs the package confluent-kafka; nobody else does.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from confluent_kafka import Message

from penstock.clock import Clock
from penstock.sources.kafka_group import tell
from penstock.sources.kafka_line import Line
from penstock.sources.kafka_look import Look
from penstock.sources.kafka_names import Place
from penstock.sources.kafka_range import read_range
from penstock.sources.kafka_settings import KafkaSettings
from penstock.sources.kafka_sizes import Sizes
from penstock.sources.protocol import Range, Span

__all__ = ["KafkaCluster", "cluster_of"]


@dataclass(slots=True)
class KafkaCluster:
    """The Kafka of one source, as seen from one process."""

    line: Line
    look: Look
    sizes: Sizes = field(default_factory=Sizes)

    def spans(self) -> dict[Place, Span]:
        """Every partition there is, and the offsets it has."""
        return self.look.spans(self.look.places())

    def offsets_at(self, at_ms: int) -> dict[Place, int]:
        """Where the first message as late as a moment is; the end if there is none."""
        return self.look.offsets_at(at_ms, self.spans())

    def mean_bytes(self, ranges: Mapping[Place, Range]) -> dict[Place, float]:
        """About what a message takes in each partition."""
        return self.sizes.mean_bytes(self.line, ranges)

    def messages(self, place: Place, wanted: Range) -> Iterator[list[Message]]:
        """The messages of a range, in batches."""
        return read_range(self.line, self.look, place, wanted)

    def tell(self, resume: Mapping[Place, int]) -> None:
        """Commit offsets for the source's group."""
        tell(self.line, resume)


def cluster_of(settings: KafkaSettings, clock: Clock, ids: dict[str, str]) -> KafkaCluster:
    """A way to a Kafka. `ids` are the topics that were seen; more are added as they are met."""
    line = Line(settings, clock)
    return KafkaCluster(line, Look(line, ids))
