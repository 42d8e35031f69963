"""Exhaustive runs: every request of a small job, failed in every way that matters.

A random schedule finds what is likely; this finds what is possible. One job of three epochs
runs again and again, each time with one or two requests singled out:

- singles: each request x {killed before it, done but unheard, killed after it};
- zombies: before each request its process is paused, another leader finishes everything,
  another one empties the bins, and then the paused one goes on; also right after a request
  that was done but unheard;
- pairs: every two failures of the leader, its heartbeat, and whoever takes over from it.

Singles and zombies happen in company: a standby, a reader, an operator who pins and unpins, and
an inspector who checks the root all the while.

A named point that no run reached fails the whole: a proof about code that never ran is none.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, product
from multiprocessing import get_context
from typing import TypeVar

from penstock.chaos.faults import Fault, Script
from penstock.chaos.model_job import Workload
from penstock.chaos.scheduler import Outcome
from penstock.chaos.simulation import Simulation
from penstock.points import COMMIT_POINTS, Point

__all__ = [
    "Verdict",
    "every_pair",
    "every_single",
    "every_zombie",
    "in_parallel",
    "run_alone",
    "run_script",
]

KINDS = (Fault.CRASH_BEFORE, Fault.ACK_LOST, Fault.CRASH_AFTER)
THREE_EPOCHS = Workload(
    events=(((0, 1), (1, 2), (2, 3)), ((1, 4), (0, 5), (3, 6))), epoch_events_max=1, wobbly=False
)
SCHEDULE = 7
AFTERMATH = 40
"""Requests that a first fault may add to a run, and a second fault is tried on as well."""

SOON = 8
"""Among so many requests of all processes, the next one of each is found."""

CHUNK = 50

Faults = dict[int, Fault]
A = TypeVar("A")
B = TypeVar("B")


@dataclass(slots=True)
class Verdict:
    """What a set of runs showed."""

    runs: int = 0
    requests: int = 0
    reached: Counter[Point] = field(default_factory=Counter)
    bad: list[tuple[Faults, tuple[str, ...]]] = field(default_factory=list)

    @property
    def never_reached(self) -> list[Point]:
        """Points that no run came by."""
        return [point for point in COMMIT_POINTS if not self.reached[point]]

    def add(self, faults: Faults, outcome: Outcome) -> None:
        """Count one run."""
        self.runs += 1
        self.requests += outcome.requests
        self.reached += outcome.points
        if outcome.broken:
            self.bad.append((faults, outcome.broken))

    def join(self, other: "Verdict") -> None:
        """Count another set of runs."""
        self.runs += other.runs
        self.requests += other.requests
        self.reached += other.reached
        self.bad += other.bad


def run_alone(faults: Faults, *, tell: bool = False) -> Outcome:
    """The three-epoch job with these faults: a leader, and whoever takes over."""
    run = Simulation(random.Random(SCHEDULE), Script(faults), THREE_EPOCHS, tell=tell)
    run.start_leader(patient=False)
    return run.to_the_end()


def run_script(faults: Faults, *, tell: bool = False) -> Outcome:
    """The three-epoch job with these faults, in company."""
    run = Simulation(random.Random(SCHEDULE), Script(faults), THREE_EPOCHS, tell=tell)
    run.start_leader(patient=False)
    run.start_leader(patient=True)
    run.start_program("reader", lambda program: program.reader())
    run.start_program("operator", lambda program: program.operator("keep"))
    run.start_program("inspector", lambda program: program.inspector())
    return run.to_the_end()


def every_single(workers: int) -> Verdict:
    """Each request of the job in company, failed in each way."""
    numbers = range(_requests() + AFTERMATH)
    scripts = ({number: kind} for number, kind in product(numbers, KINDS))
    return _run_all(run_script, scripts, workers)


def every_zombie(workers: int, *, sample: float = 1.0) -> Verdict:
    """Before each request of the job in company, a pause that outlasts everybody else; also after
    each answer that was lost, or after a fixed sample of them."""
    chance = random.Random(SCHEDULE)
    numbers = range(_requests())
    paused: list[Faults] = [{number: Fault.ZOMBIE} for number in numbers]
    unheard: list[Faults] = [
        {number: Fault.ACK_LOST, number + soon: Fault.ZOMBIE}
        for number, soon in product(numbers, range(1, SOON + 1))
        if sample >= 1 or chance.random() < sample
    ]
    return _run_all(run_script, [*paused, *unheard], workers)


def every_pair(workers: int, *, sample: float = 1.0) -> Verdict:
    """Every two failures of the leader and whoever follows it, or a fixed sample of them."""
    numbers = range(run_alone({}).exposed + AFTERMATH)
    chance = random.Random(SCHEDULE)
    scripts = (
        {first: one, second: two}
        for first, second in combinations(numbers, 2)
        for one, two in product(KINDS, KINDS)
        if sample >= 1 or chance.random() < sample
    )
    return _run_all(run_alone, scripts, workers)


def _requests() -> int:
    return run_script({}).exposed


def _run_all(run: Callable[[Faults], Outcome], scripts: Iterable[Faults], workers: int) -> Verdict:
    verdict = Verdict()
    for part in in_parallel(partial(_run_some, run), _chunks(scripts), workers):
        verdict.join(part)
    return verdict


def in_parallel(work: Callable[[A], B], parts: Iterable[A], workers: int) -> Iterator[B]:
    """`work` on each part, in `workers` processes, in whatever order they are done."""
    if workers <= 1:
        yield from map(work, parts)
        return
    with get_context("spawn").Pool(workers) as pool:
        yield from pool.imap_unordered(work, parts)


def _chunks(scripts: Iterable[Faults]) -> Iterator[list[Faults]]:
    chunk: list[Faults] = []
    for faults in scripts:
        chunk.append(faults)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    yield chunk


def _run_some(run: Callable[[Faults], Outcome], scripts: list[Faults]) -> Verdict:
    verdict = Verdict()
    for faults in scripts:
        verdict.add(faults, run(faults))
    return verdict
