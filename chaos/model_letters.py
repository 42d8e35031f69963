"""The dead letters of the model job: events that its function cannot process, and their replays.

Choosing the letters of an epoch, staging them and removing requests are the production protocols.
A task is modelled: the letter of an event that has failed is a row of a table, as in production.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.chaos.model_table import ModelTables
from penstock.chaos.model_workload import DEAD, OPERATOR, REPLAYS, SOURCE, Place, Workload
from penstock.checkpoint import Head, Manifest, Output, Range, SourceProgress, stage
from penstock.effects import Steps
from penstock.ids import Attempt, Epoch
from penstock.points import Point
from penstock.runtime.letters import LETTERS
from penstock.runtime.replay_choice import Memory, Standing, offer
from penstock.sinks import Table
from penstock.sinks.protocol import PROVENANCE
from penstock.sinks.staged import staged

__all__ = ["Event", "ModelLetters", "Planned", "letters_progress", "next_letter", "stage_dead"]

COLUMNS = pa.schema([(name, pa.int64()) for name in ("source", "offset", "key", "amount")])
"""An event of the model job."""

LETTER = pa.schema(
    [
        *COLUMNS,
        ("_source", pa.string()),
        ("_source_partition", pa.string()),
        ("_offset", pa.int64()),
        ("_event_time", pa.timestamp("us", tz="UTC")),
        *PROVENANCE,
    ]
)


class Event(NamedTuple):
    """One event on its way to the function."""

    place: Place
    key: int
    amount: int
    read: tuple[str, str, int]
    """The source, partition and offset that it was read from: a replay is read as a letter."""


class ModelLetters:
    """Offers letters to the epochs of one leader."""

    def __init__(self) -> None:
        self._memory = Memory(OPERATOR, COLUMNS)

    def offer(self, head: Head, tables: ModelTables, limit: int) -> Steps[pa.Table | None]:
        """What the epoch behind HEAD replays; None if nothing was asked for."""
        standing = Standing(
            epoch=head.epoch,
            generation=head.generation,
            tables=tables.indexes,
            unlisted=tables.unlisted(),
        )
        return (yield from offer(self._memory, standing, limit))


@dataclass(frozen=True, slots=True)
class Planned:
    """What an epoch reads."""

    ranges: Mapping[str, Range] = field(default_factory=dict)
    """Of the source, by partition."""
    letters: pa.Table | None = None
    """The letters that it replays."""

    def __bool__(self) -> bool:
        return bool(self.ranges) or self.letters is not None

    @property
    def replays(self) -> int:
        """How many letters it replays."""
        return 0 if self.letters is None else int(self.letters.num_rows)

    @property
    def rows(self) -> int:
        """How many events it reads."""
        return sum(read.stop - read.start for read in self.ranges.values()) + self.replays

    def events(self, workload: Workload, first: int) -> list[Event]:
        """Its events in a fixed order; the offsets of its letters begin with `first`."""
        found = []
        for source, read in sorted(self.ranges.items()):
            for offset in range(read.start, read.stop):
                key, amount = workload.events[int(source)][offset]
                found.append(Event((int(source), offset), key, amount, (SOURCE, source, offset)))
        rows = [] if self.letters is None else self.letters.select(COLUMNS.names).to_pylist()
        for offset, row in enumerate(rows, first):
            place = (row["source"], row["offset"])
            found.append(Event(place, row["key"], row["amount"], (REPLAYS, LETTERS, offset)))
        return found


def next_letter(parent: Manifest | None) -> int:
    """The offset of the next letter that is replayed."""
    return 0 if parent is None else parent.sources[REPLAYS].resume_at.get(LETTERS, 0)


def letters_progress(first: int, count: int) -> SourceProgress:
    """How far replayed letters have been read with so many more."""
    if not count:
        return SourceProgress(resume_at={LETTERS: first} if first else {})
    read = Range(start=first, stop=first + count)
    return SourceProgress(ranges={LETTERS: read}, resume_at={LETTERS: read.stop})


def stage_dead(
    events: list[Event], epoch: Epoch, partition: int, attempt: Attempt
) -> Steps[Output]:
    """Store the letters of events that a task could not process."""
    rows = [
        {
            **dict(zip(COLUMNS.names, (*event.place, event.key, event.amount), strict=True)),
            "_source": event.read[0],
            "_source_partition": event.read[1],
            "_offset": event.read[2],
            "_epoch": epoch,
            "_partition": partition,
            "_sequence": number,
        }
        for number, event in enumerate(events)
    ]
    table = pa.Table.from_pylist(rows, LETTER)
    key, body = staged(Table(DEAD, takes_any=True), epoch, partition, attempt, table)
    ref = yield from stage(key, body, Point.STAGE_OUTPUT)
    return Output(partition=partition, ref=ref, rows=len(rows))
