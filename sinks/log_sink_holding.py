"""What a topic holds of a sink: the rows up to where its partitions end, once they agree.

A topic changes one partition after the other, so partitions may be looked at in the middle of an
epoch. They agree when home names the same commit before and after all others were looked at, and
no other has taken more than home has. Then their ends are those of that commit, and rows that come
later lie behind them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.clock import Clock
from penstock.errors import Unavailable
from penstock.sinks.cursors import Cursor
from penstock.sinks.keyed import Changes
from penstock.sinks.log_sink_steps import HOME, note_of
from penstock.sinks.protocol import Traits
from penstock.sinks.staged import own_columns, with_places
from penstock.sources.log import Log
from penstock.sources.log_rows import fitted
from penstock.sources.log_tail import Tail
from penstock.sources.protocol import META_NAME, Range

__all__ = ["LogHolding", "hold"]

LOOKS_MAX = 50
PAUSE_S = 0.05


def hold(where: str, log: Log, producer: str, clock: Clock) -> "LogHolding":
    """The topic as it is when its partitions agree; `Unavailable` if they never seem to."""
    for _ in range(LOOKS_MAX):
        first, tails = _by_number(log), _by_number(log)
        if _agree(first, tails, producer):
            return LogHolding(where, log, producer, tails)
        clock.sleep(PAUSE_S)
    raise Unavailable(where, "changes faster than it can be looked at", "look when it is quieter")


def _by_number(log: Log) -> dict[int, Tail]:
    return {tail.partition: tail for tail in log.tails()}


def _agree(first: Mapping[int, Tail], second: Mapping[int, Tail], producer: str) -> bool:
    """Whether nothing was under way between two looks at all partitions."""
    home = _taken(first[HOME], producer)
    return home == _taken(second[HOME], producer) and all(
        _taken(tail, producer) <= home for tail in second.values()
    )


def _taken(tail: Tail, producer: str) -> int:
    """How many epochs of the sink a partition has heard of."""
    mark = tail.marks.get(producer)
    return 0 if mark is None else mark.sequence


@dataclass(frozen=True, slots=True)
class LogHolding:
    """A topic as it was at one moment."""

    where: str
    log: Log
    producer: str
    tails: Mapping[int, Tail]

    @property
    def traits(self) -> Traits:
        """Whether others append, and what retention and compaction have taken."""
        producers = {name for tail in self.tails.values() for name in tail.marks}
        is_shared = bool(producers - {self.producer})
        is_whole = all(tail.earliest == 0 for tail in self.tails.values())
        forgets = "" if is_whole else "its retention has removed rows"
        return Traits(
            others="others append to the topic" if is_shared else "",
            is_shared=is_shared,
            forgets="the topic is compacted" if self.log.topic().compacted else forgets,
        )

    def read_cursor(self, shard: int) -> Cursor | None:
        """What home says."""
        del shard  # there is one
        note = note_of(self.tails[HOME], self.producer)
        return None if note is None else note.cursor

    def expected(self, rows: pa.Table) -> Changes:
        """Every row stays, with the columns of the topic."""
        own = fitted(self.where, own_columns(rows), self.log.schema())
        return Changes(with_places(own, rows), rows.slice(0, 0))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of every partition, up to where it ended."""
        for number, tail in sorted(self.tails.items()):
            whole = Range(start=tail.earliest, stop=tail.latest)
            for batch in self.log.read(str(number), whole):
                yield batch.drop_columns([META_NAME])

    def close(self) -> None:
        """Nothing is held."""
