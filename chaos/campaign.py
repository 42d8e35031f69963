"""Campaigns: many seeds on all cores, summed up on one page.

A campaign is honest about itself: it counts every kind of fault that really happened, runs a
share of its seeds twice to see that the same seed tells the same story, and prints the command
that repeats each bad one.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from penstock.chaos.actions import Action
from penstock.chaos.crashpoints import in_parallel
from penstock.chaos.faults import Fault
from penstock.chaos.outcome import Outcome
from penstock.chaos.simulation import simulate
from penstock.points import Point

__all__ = ["Campaign", "run_campaign"]

CHUNK = 200
TWICE_EVERY = 100
"""Every so many seeds, one is run twice."""


@dataclass(slots=True)
class Campaign:
    """What a range of seeds gave."""

    schedules: int = 0
    requests: int = 0
    faults: Counter[Fault] = field(default_factory=Counter)
    actions: Counter[Action] = field(default_factory=Counter)
    points: Counter[Point] = field(default_factory=Counter)
    bad: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    repeated: int = 0
    unlike: list[int] = field(default_factory=list)
    """Seeds whose second run told another story."""
    traces: dict[int, str] = field(default_factory=dict)
    """Per first seed of a chunk, the hash of all its runs."""

    def join(self, other: "Campaign") -> None:
        """Count another campaign."""
        self.schedules += other.schedules
        self.requests += other.requests
        self.faults += other.faults
        self.actions += other.actions
        self.points += other.points
        self.bad += other.bad
        self.repeated += other.repeated
        self.unlike += other.unlike
        self.traces |= other.traces

    def never_happened(self, actions: Iterable[Action]) -> list[Action | Fault]:
        """Faults that never happened, and those of these actions that were never taken: nothing
        was proven about surviving them. Zombies are for `crashpoints`."""
        expected = (fault for fault in Fault if fault not in (Fault.NONE, Fault.ZOMBIE))
        untaken = [action for action in actions if not self.actions[action]]
        return [*untaken, *(fault for fault in expected if not self.faults[fault])]

    @property
    def trace_hash(self) -> str:
        """One hash for all runs: the same for the same seeds, on any number of cores."""
        ordered = "".join(trace for _, trace in sorted(self.traces.items()))
        return hashlib.sha256(ordered.encode()).hexdigest()[:16]


def run_campaign(
    first: int, count: int, workers: int, run: Callable[[int], Outcome] = simulate
) -> Iterator[Campaign]:
    """Run seeds `first` up to `first + count`; yields the sum so far after every chunk.

    `run` is what a seed stands for: a job, or a topic.
    """
    total = Campaign()
    chunks = [
        range(start, min(start + CHUNK, first + count))
        for start in range(first, first + count, CHUNK)
    ]
    for part in in_parallel(partial(_run_seeds, run), chunks, workers):
        total.join(part)
        yield total


def _run_seeds(run: Callable[[int], Outcome], seeds: range) -> Campaign:
    part = Campaign()
    traces = hashlib.blake2b(digest_size=16)
    for seed in seeds:
        outcome = run(seed)
        part.schedules += 1
        part.requests += outcome.requests
        part.faults += outcome.faults
        part.actions += outcome.actions
        part.points += outcome.points
        traces.update(outcome.trace_hash.encode())
        if outcome.broken:
            part.bad.append((seed, outcome.broken))
        if seed % TWICE_EVERY == 0:
            part.repeated += 1
            if run(seed).trace_hash != outcome.trace_hash:
                part.unlike.append(seed)
    part.traces[seeds.start] = traces.hexdigest()
    return part
