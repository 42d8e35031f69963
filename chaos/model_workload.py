"""The workload of the model job: its events, its sinks, and how little history it keeps.

Some events may be poison: the job's function cannot process them before it is mended.
"""

import json
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from penstock.chaos.model_table import TABLE
from penstock.checkpoint import Manifest, Retention
from penstock.ids import Epoch, JobName
from penstock.runtime.letters import LetterKey, dead_letters_name, replayed_name, replays_name
from penstock.sinks.changelog import changelog_name

__all__ = [
    "CHANGELOG",
    "CLOSING",
    "DEAD",
    "JOB",
    "OPERATOR",
    "PARTITIONS",
    "REPLAYED",
    "REPLAYS",
    "SINK",
    "SOURCE",
    "TABLES",
    "JobFile",
    "Place",
    "Row",
    "Workload",
    "needed_by",
    "rows_of",
]

JOB = JobName("model")
SOURCE, OPERATOR, SINK = "events", "totals", "ledger"
CHANGELOG = changelog_name(OPERATOR, "copy")
DEAD, REPLAYED = dead_letters_name(OPERATOR), replayed_name(OPERATOR)
REPLAYS = replays_name(OPERATOR)
TABLES = (TABLE, DEAD, REPLAYED)
"""Those of the sinks that are below the root."""

PARTITIONS = 2
CLOSING = 4
"""Epochs of the last leader of a run: so many let go of everything that can be let go of."""

RETENTION = Retention(epochs=1, age_s=0.0, grace_s=0.0)
"""As little as can be kept: whatever saves an object here is a rule, not luck."""

A_LITTLE = Retention(epochs=3, age_s=0.0, grace_s=0.0)
YOUNG = Retention(epochs=1, age_s=0.5, grace_s=0.0)

Row = tuple[int, int, int, int]
"""Source partition, offset, key, running total."""

Place = tuple[int, int]
"""Source partition and offset: an event, however often it is read or replayed."""

POISONED = 0.2
"""How many of the workloads have poison: letters cost as much as two more tables."""


@dataclass(slots=True)
class JobFile:
    """The job as its next start finds it. Its versions: as it is, with a changelog, without it."""

    has_table: bool = True
    has_letters: bool = False
    """Whether it quarantines what its function cannot process."""
    version: int = 0
    is_mended: bool = False
    """Whether its function can process poison by now."""

    @property
    def sinks(self) -> tuple[str, ...]:
        """The sinks of the present version."""
        table = (TABLE,) if self.has_table else ()
        letters = (DEAD, REPLAYED) if self.has_letters else ()
        changelog = (CHANGELOG,) if self.version == 1 else ()
        return (SINK, *table, *letters, *changelog)

    @property
    def tables(self) -> tuple[str, ...]:
        """Those of its sinks that are tables."""
        return tuple(sink for sink in self.sinks if sink in TABLES)

    def next_version(self) -> None:
        """A changelog is added, and later given up."""
        self.version = min(self.version + 1, 2)


@dataclass(frozen=True, slots=True)
class Workload:
    """What there is to process, and how."""

    events: tuple[tuple[tuple[int, int], ...], ...]
    """Per source partition: keys and amounts, in offset order."""
    epoch_events_max: int
    wobbly: bool
    """Whether the user's function gives another result every time it is called."""
    rests: float = 0.0
    """How likely an epoch without events is."""
    retention: Retention = RETENTION
    job: JobFile = field(default_factory=JobFile)
    poison: frozenset[Place] = frozenset()
    """The events that the user's function cannot process before it is mended."""
    noted: set[LetterKey] = field(default_factory=set)
    """The letters that people have seen in any line of history."""

    @staticmethod
    def make(rng: random.Random, apart: random.Random) -> "Workload":
        """Some events, some limits. Poison is drawn `apart`: without it, a seed is what it was."""
        events = tuple(
            tuple((rng.randrange(4), rng.randint(1, 9)) for _ in range(rng.randint(2, 5)))
            for _ in range(PARTITIONS)
        )
        made = Workload(
            events,
            rng.randint(1, 3),
            wobbly=rng.random() < 0.3,
            rests=rng.choice((0.0, 0.0, 0.3)),
            retention=rng.choice((RETENTION, RETENTION, A_LITTLE, YOUNG)),
            job=JobFile(has_table=rng.random() < 0.6),
        )
        return made.poisoned(apart) if apart.random() < POISONED else made

    def poisoned(self, rng: random.Random) -> "Workload":
        """The same with one to three events that cannot be processed, and often with enough history
        to go back to before one of them."""
        places = [(n, at) for n, events in enumerate(self.events) for at in range(len(events))]
        return replace(
            self,
            poison=frozenset(rng.sample(places, rng.randint(1, 3))),
            job=replace(self.job, has_letters=True),
            retention=rng.choice((self.retention, A_LITTLE, A_LITTLE)),
        )


def needed_by(
    newest: Manifest, sinks: Collection[str], applied: Mapping[str, int]
) -> dict[str, Epoch]:
    """Per sink, the oldest epoch that it has yet to take or, of a table, to list. One that the job
    has given up needs nothing."""
    found = {name: Epoch(newest.epoch + 1) for name in newest.sinks if name not in sinks}
    found |= {name: Epoch(index.epoch + 1) for name, index in newest.tables.items()}
    return found | {name: Epoch(epoch + 1) for name, epoch in applied.items()}


def rows_of(body: bytes) -> list[Row]:
    """The rows in one staged output."""
    return [(source, offset, key, total) for source, offset, key, total in json.loads(body)]
