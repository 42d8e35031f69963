"""One simulated run of a job: leaders, standbys, readers and operators on one root.

The order of requests, the faults and the workload come from one seed, so a run can be told again.
If the root was forked, the job goes on in the fork when the run is over, and is judged there too.
"""

import random
from collections.abc import Callable

from penstock.chaos.faults import FaultPlan, SeededFaults
from penstock.chaos.fork_run import go_on_in_fork
from penstock.chaos.model_job import Program
from penstock.chaos.model_visitors import Visitor
from penstock.chaos.model_workload import Workload
from penstock.chaos.outcome import Outcome
from penstock.chaos.scheduler import RESTART_S, ZOMBIE_S, Process, Scheduler
from penstock.chaos.truth import Truth
from penstock.chaos.world import World
from penstock.effects import Steps

__all__ = ["Simulation", "simulate"]

LEADERS_MAX = 40


def simulate(seed: int, *, tell: bool = False) -> Outcome:
    """One random run: random work, random order, random faults, random company."""
    rng = random.Random(seed)
    faults = SeededFaults(rng)
    workload = Workload.make(rng, random.Random(f"poison {seed}"))
    run = Simulation(rng, faults, workload, tell=tell)
    run.world.store.page_entries_max = rng.choice((3, 1000, 1000))
    run.start_leader(patient=False)
    if rng.random() < 0.3:
        run.start_leader(patient=False)
    if rng.random() < 0.3:
        run.start_leader(patient=True)
    company = COMPANY + LETTER_COMPANY if workload.poison else COMPANY
    for role, most, share in company:
        for _ in range(most):
            if rng.random() < share:
                run.start_visitor(role)
    return run.to_the_end()


COMPANY = (
    ("reader", 1, 0.4),
    ("operator", 2, 0.4),
    ("inspector", 1, 0.2),
    ("returner", 1, 0.3),
    ("forker", 1, 0.15),
    ("deployer", 2, 0.3),
)
"""Who may come by, at most how often, and how likely each of them is."""

LETTER_COMPANY = (("requester", 2, 0.6), ("returner", 1, 0.4))
"""The same, of a job that has dead letters."""


class Simulation(Scheduler):
    """A job on one root."""

    def __init__(
        self, rng: random.Random, faults: FaultPlan, workload: Workload, *, tell: bool = False
    ) -> None:
        world = World()
        self.truth = Truth(world, workload)
        world.witness, world.put_right = self.truth, self.truth.accepted
        super().__init__(rng, faults, world, self.truth, tell=tell)
        self.workload = workload
        self._bins_emptied = False

    def start_program(
        self, role: str, main: Callable[[Program], Steps[None]], *, leads: bool = False
    ) -> Process:
        """Start a process that runs a part of the job's program."""
        return self.start(role, lambda host: main(Program(host, self.workload)), leads=leads)

    def start_leader(self, *, patient: bool) -> Process:
        """Start a process that leads, at once or when the leader has fallen silent."""
        return self.start_program("leader", lambda p: p.leader(patient=patient), leads=True)

    def start_visitor(self, role: str) -> Process:
        """Start one of those who come by."""
        return self.start(
            role,
            lambda host: Visitor(host, self.workload).program(role),
            leads=role == "deployer",
        )

    def keep_going(self) -> None:
        """Start the job again when it is led by none and not done."""
        if self.finished or any(process.leads for process in self.processes):
            self._empty_bins_before_zombies()
            return
        if self.started >= LEADERS_MAX:
            self.truth.broken.append(f"I15: {LEADERS_MAX} processes did not finish the job")
            return
        process = self.start_leader(patient=self.rng.random() < 0.5)
        process.resumes_s = self.world.now_s + RESTART_S

    def close(self) -> None:
        """Judge what can be read, and let a last leader close."""
        self.truth.quiet()
        self.start_visitor("janitor")

    def afterwards(self) -> None:
        """Judge a fork, if there is one, and count what only the witness has seen."""
        self.actions += self.truth.letters.actions
        self.actions += go_on_in_fork(self.world, self.truth, self.workload)

    def _empty_bins_before_zombies(self) -> None:
        if not self.finished or self._bins_emptied or not self.processes:
            return
        awake_s = self.world.now_s + ZOMBIE_S / 2
        if all(process.resumes_s > awake_s for process in self.processes):
            self.start_program("closer", lambda program: program.closer())
            self._bins_emptied = True
