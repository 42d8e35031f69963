"""One simulated run of a topic: producers and their former lives, a janitor, readers."""

import random

from penstock.chaos.faults import SeededFaults
from penstock.chaos.log_model import PARTITIONS, TOPIC, LogProgram, LogWorkload
from penstock.chaos.log_truth import LogTruth
from penstock.chaos.outcome import Outcome
from penstock.chaos.scheduler import RESTART_S, Scheduler
from penstock.chaos.world import World
from penstock.errors import Invalid
from penstock.sources.log_tail import Tail, tail_register

__all__ = ["LogSimulation", "simulate_log"]

LIVES_MAX = 60


def simulate_log(seed: int, *, tell: bool = False) -> Outcome:
    """One random run: random work, random order, random faults, random company."""
    rng = random.Random(f"log {seed}")
    run = LogSimulation(rng, LogWorkload.make(rng), tell=tell)
    run.world.store.page_entries_max = rng.choice((2, 1000))
    if rng.random() < 0.6:
        run.narrow(rng.choice((1, 2)))
    for name in run.waiting:
        for _ in range(rng.choice((1, 1, 2))):
            run.start_producer(name)
    for _ in range(rng.choice((0, 1, 1, 2))):
        run.start("janitor", lambda host: LogProgram(host, run.work).janitor())
    if rng.random() < 0.5:
        run.start("reader", lambda host: LogProgram(host, run.work).reader())
    return run.to_the_end()


class LogSimulation(Scheduler):
    """A topic, and those who work on it."""

    def __init__(self, rng: random.Random, work: LogWorkload, *, tell: bool = False) -> None:
        self.work = work
        self.waiting = [f"p{number}" for number in range(work.producers)]
        """Producers that have not said yet that all their rows are in."""
        world = World()
        truth = LogTruth(world, work, self.waiting)
        world.witness = truth
        super().__init__(rng, SeededFaults(rng), world, truth, tell=tell)

    def narrow(self, fan: int) -> None:
        """Let so few pieces make a page that there are pages of pages."""
        for partition in range(PARTITIONS if self.work.grows_s == 0 else 1):
            register = tail_register(partition)
            empty = Tail(topic=TOPIC, partition=partition, fan=fan)
            self.world.store.create(register.key, register.encode(empty))

    def start_producer(self, name: str) -> None:
        """A new life of a producer."""
        process = self.start(f"{name}-", lambda host: LogProgram(host, self.work).producer(name))
        process.resumes_s = self.world.now_s + self.rng.random() * RESTART_S

    def keep_going(self) -> None:
        """Somebody starts a producer again when none of its lives goes on and rows are left."""
        alive = {process.name.partition("-")[0] for process in self.processes}
        for name in self.waiting:
            if name in alive:
                continue
            if self.started >= LIVES_MAX:
                raise Invalid("the simulation", "does not end", "look at its story")
            self.start_producer(name)

    def close(self) -> None:
        """Let somebody empty the bins."""
        self.start("closer", lambda host: LogProgram(host, self.work).closer())

    def _heard(self, process: object, what: str, *facts: object) -> None:
        if what == "produced" and facts[0] in self.waiting:
            self.waiting.remove(str(facts[0]))
        super()._heard(process, what, *facts)  # type: ignore[arg-type]
