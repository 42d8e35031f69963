"""One simulated run of a job: leaders, standbys, readers and operators on one root.

The order of requests, the faults and the workload come from one seed, so a run can be told again.
"""

import random
from collections.abc import Callable

from penstock.chaos.faults import FaultPlan, SeededFaults
from penstock.chaos.model_job import Program, Workload
from penstock.chaos.scheduler import RESTART_S, ZOMBIE_S, Outcome, Process, Scheduler
from penstock.chaos.truth import Truth
from penstock.chaos.world import World
from penstock.effects import Steps

__all__ = ["Simulation", "simulate"]

LEADERS_MAX = 40


def simulate(seed: int, *, tell: bool = False) -> Outcome:
    """One random run: random work, random order, random faults, random company."""
    rng = random.Random(seed)
    run = Simulation(rng, SeededFaults(rng), Workload.make(rng), tell=tell)
    run.world.store.page_entries_max = rng.choice((2, 1000))
    run.start_leader(patient=False)
    if rng.random() < 0.3:
        run.start_leader(patient=False)
    if rng.random() < 0.3:
        run.start_leader(patient=True)
    if rng.random() < 0.4:
        run.start_program("reader", lambda program: program.reader())
    for _ in range(rng.choice((0, 0, 1, 2))):
        run.start_program("operator", lambda program: program.operator("keep"))
    if rng.random() < 0.2:
        run.start_program("inspector", lambda program: program.inspector())
    return run.to_the_end()


class Simulation(Scheduler):
    """A job on one root."""

    def __init__(
        self, rng: random.Random, faults: FaultPlan, workload: Workload, *, tell: bool = False
    ) -> None:
        world = World()
        self.truth = Truth(world, workload)
        world.witness = self.truth
        super().__init__(rng, faults, world, self.truth, tell=tell)
        self._workload = workload
        self._bins_emptied = False

    def start_program(
        self, role: str, main: Callable[[Program], Steps[None]], *, leads: bool = False
    ) -> Process:
        """Start a process that runs a part of the job's program."""
        return self.start(role, lambda host: main(Program(host, self._workload)), leads=leads)

    def start_leader(self, *, patient: bool) -> Process:
        """Start a process that leads, at once or when the leader has fallen silent."""
        return self.start_program("leader", lambda p: p.leader(patient=patient), leads=True)

    def keep_going(self) -> None:
        """Somebody starts the job again when nobody leads and it is not done."""
        if self.finished or any(process.leads for process in self.processes):
            self._empty_bins_before_zombies()
            return
        if self.started >= LEADERS_MAX:
            self.truth.broken.append(f"I15: {LEADERS_MAX} processes did not finish the job")
            return
        process = self.start_leader(patient=self.rng.random() < 0.5)
        process.resumes_s = self.world.now_s + RESTART_S

    def close(self) -> None:
        """Let a last leader close."""
        self.start_program("closer", lambda program: program.closer())

    def _empty_bins_before_zombies(self) -> None:
        waiting = [p for p in self.processes if p.resumes_s - self.world.now_s > ZOMBIE_S / 2]
        if self.finished and waiting and len(waiting) == len(self.processes):
            if not self._bins_emptied:
                self.close()
            self._bins_emptied = True
