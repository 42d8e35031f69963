"""Exhaustive runs: every request of a small job, failed in every way that matters.

A random schedule finds what is likely; this finds what is possible. One job of three epochs
runs again and again, each time with one or two requests singled out:

- singles: each request x {killed before it, done but unheard, killed after it};
- zombies: before each request its process is paused, another leader finishes everything,
  another one empties the bins, and then the paused one goes on; also right after a request
  that was done but unheard;
- pairs: every two failures of the leader, its heartbeat, and whoever takes over from it.

Singles and zombies happen in company: a standby, a reader, an operator who pins and unpins, one who
goes back to an earlier epoch, one who forks the root, one who starts the next version of the job,
and an inspector who checks the root all the while. They happen once more to a job with dead letters
and in other company: one who asks for letters, again and of another line, and one who goes back to
before a replay.

A named point that no run reached fails the whole: a proof about code that never ran is none.
"""

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, product
from multiprocessing import get_context
from typing import TypeVar

from penstock.chaos.faults import Fault, Script
from penstock.chaos.model_workload import JobFile, Workload
from penstock.chaos.outcome import Outcome
from penstock.chaos.simulation import Simulation
from penstock.points import COMMIT_POINTS, Point

__all__ = [
    "Verdict",
    "every_pair",
    "every_single",
    "every_zombie",
    "in_parallel",
    "run_alone",
    "run_letters",
    "run_script",
]

KINDS = (Fault.CRASH_BEFORE, Fault.ACK_LOST, Fault.CRASH_AFTER)
EVENTS = (((0, 1), (1, 2), (2, 3)), ((1, 4), (0, 5), (3, 6)))
COMPANY = ("reader", "operator", "inspector", "returner", "forker", "deployer")
LETTER_COMPANY = ("returner", "requester")
POISON = frozenset({(0, 1), (1, 2)})
SCHEDULE = 7
LETTER_SCHEDULE = 24
"""Letters are asked for before and behind a rewind, once more, and of another line; one is replayed
again after its replay was taken back."""

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
    bad: list[tuple[str, Faults, tuple[str, ...]]] = field(default_factory=list)
    """The function that makes the run, its faults, and the promises that were broken."""

    @property
    def never_reached(self) -> list[Point]:
        """Points that no run came by."""
        return [point for point in COMMIT_POINTS if not self.reached[point]]

    def add(self, run: str, faults: Faults, outcome: Outcome) -> None:
        """Count one run."""
        self.runs += 1
        self.requests += outcome.requests
        self.reached += outcome.points
        if outcome.broken:
            self.bad.append((run, faults, outcome.broken))

    def join(self, other: "Verdict") -> None:
        """Count another set of runs."""
        self.runs += other.runs
        self.requests += other.requests
        self.reached += other.reached
        self.bad += other.bad


def run_alone(faults: Faults, *, tell: bool = False) -> Outcome:
    """The three-epoch job with these faults: a leader, and whoever takes over."""
    run = _three_epochs(faults, has_table=False, tell=tell)
    run.start_leader(patient=False)
    return run.to_the_end()


def run_script(faults: Faults, *, tell: bool = False) -> Outcome:
    """The three-epoch job with these faults, in company."""
    run = _three_epochs(faults, has_table=True, tell=tell)
    run.start_leader(patient=False)
    run.start_leader(patient=True)
    for role in COMPANY:
        run.start_visitor(role)
    return run.to_the_end()


def run_letters(faults: Faults, *, tell: bool = False) -> Outcome:
    """The three-epoch job with these faults and with dead letters, in the company they need."""
    job = JobFile(has_table=False, has_letters=True)
    workload = Workload(events=EVENTS, epoch_events_max=1, wobbly=False, job=job, poison=POISON)
    run = Simulation(random.Random(LETTER_SCHEDULE), Script(faults), workload, tell=tell)
    run.start_leader(patient=False)
    for role in LETTER_COMPANY:
        run.start_visitor(role)
    return run.to_the_end()


def _three_epochs(faults: Faults, *, has_table: bool, tell: bool) -> Simulation:
    job = JobFile(has_table=has_table)
    workload = Workload(events=EVENTS, epoch_events_max=1, wobbly=False, job=job)
    return Simulation(random.Random(SCHEDULE), Script(faults), workload, tell=tell)


def every_single(workers: int) -> Verdict:
    """Each request of the job in company, failed in each way."""
    verdict = Verdict()
    for run in (run_script, run_letters):
        numbers = range(run({}).exposed + AFTERMATH)
        scripts = ({number: kind} for number, kind in product(numbers, KINDS))
        verdict.join(_run_all(run, scripts, workers))
    return verdict


def every_zombie(workers: int, *, sample: float = 1.0) -> Verdict:
    """Before each request of the job in company, a pause that outlasts everybody else; also after
    each answer that was lost, or after a fixed sample of them."""
    verdict = Verdict()
    for run in (run_script, run_letters):
        chance = random.Random(SCHEDULE)
        numbers = range(run({}).exposed)
        paused: list[Faults] = [{number: Fault.ZOMBIE} for number in numbers]
        unheard: list[Faults] = [
            {number: Fault.ACK_LOST, number + soon: Fault.ZOMBIE}
            for number, soon in product(numbers, range(1, SOON + 1))
            if sample >= 1 or chance.random() < sample
        ]
        verdict.join(_run_all(run, [*paused, *unheard], workers))
    return verdict


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


def _run_all(run: Callable[[Faults], Outcome], scripts: Iterable[Faults], workers: int) -> Verdict:
    verdict = Verdict()
    for part in in_parallel(partial(_run_some, run), _chunks(scripts), workers):
        verdict.join(part)
    return verdict


def in_parallel(work: Callable[[A], B], parts: Iterable[A], workers: int) -> Iterator[B]:
    """`work` on each part, in `workers` processes, in whatever order they are done."""
    if workers <= 1:
        _be_quiet()
        yield from map(work, parts)
        return
    with get_context("spawn").Pool(workers, _be_quiet) as pool:
        yield from pool.imap_unordered(work, parts)


def _be_quiet() -> None:
    """Leave the warnings of a thousand simulated jobs unprinted, unless logging was set up."""
    logging.getLogger("penstock").addHandler(logging.NullHandler())


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
        verdict.add(run.__name__, faults, run(faults))
    return verdict
