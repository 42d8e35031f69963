"""One simulated run: processes, a scheduler that picks the next request, and faults.

Every request of every protocol is one step, one scheduling point and one place to fail. The
scheduler, the faults and the workload come from one seed, so a run can be told again.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from penstock.chaos.faults import Fault, FaultPlan, SeededFaults
from penstock.chaos.model_job import Host, Program, Workload
from penstock.chaos.truth import Truth
from penstock.chaos.world import ProcessClock, SeededChance, World
from penstock.effects import Create, Effect, Get, Replace, Steps, Stored, Wait
from penstock.errors import Bug, Corrupt, Fenced, Invalid, PenstockError, Unavailable
from penstock.points import Point

__all__ = ["Outcome", "Process", "Simulation", "Thread", "simulate"]

STEPS_MAX = 20_000
LEADERS_MAX = 40
RETRIES_MAX = 4
"""How often the store client repeats a request that is safe to repeat."""

STEP_S = 0.001
RESTART_S = 1.0
ZOMBIE_S = 1_000_000.0


@dataclass(slots=True)
class Thread:
    """One protocol under way, and the request it has asked for."""

    name: str
    steps: Steps[None]
    request: Any = None
    ready_s: float = 0.0
    tries: int = 0


@dataclass(slots=True)
class Process:
    """Threads that live, stop and die together."""

    name: str
    clock: ProcessClock
    threads: list[Thread] = field(default_factory=list)
    resumes_s: float = 0.0
    leads: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run gave."""

    broken: tuple[str, ...]
    requests: int
    exposed: int
    """Requests made before the faults were switched off."""
    faults: Counter[Fault]
    points: Counter[Point]
    trace_hash: str
    story: tuple[str, ...]


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
        run.start("reader", lambda program: program.reader())
    for _ in range(rng.choice((0, 0, 1, 2))):
        run.start("operator", lambda program: program.operator("keep"))
    if rng.random() < 0.2:
        run.start("inspector", lambda program: program.inspector())
    return run.to_the_end()


class Simulation:
    """The scheduler."""

    def __init__(
        self, rng: random.Random, faults: FaultPlan, workload: Workload, *, tell: bool = False
    ) -> None:
        self.rng = rng
        self.world = World()
        self.truth = Truth(self.world, workload)
        self.world.witness = self.truth
        self.points: Counter[Point] = Counter()
        self.requests = 0
        self.activated: Counter[Fault] = Counter()
        self._faults = faults
        self._workload = workload
        self._processes: list[Process] = []
        self._started = 0
        self._finished = False
        self._bins_emptied = False
        self._hash = hashlib.blake2b(digest_size=16)
        self._story: list[str] | None = [] if tell else None

    def start(
        self, role: str, main: Callable[[Program], Steps[None]], *, leads: bool = False
    ) -> Process:
        """Start a process. It does nothing before it is scheduled."""
        self._started += 1
        process = Process(f"{role}{self._started}", ProcessClock(self.world), leads=leads)
        self._processes.append(process)
        host = Host(
            process.name,
            process.clock,
            SeededChance(process.name, self.rng),
            self.rng,
            lambda name, steps: self._start_thread(process, name, steps),
            lambda what, *facts: self._heard(process, what, *facts),
        )
        self._start_thread(process, "main", main(Program(host, self._workload)))
        return process

    def start_leader(self, *, patient: bool) -> Process:
        """Start a process that leads, at once or when the leader has fallen silent."""
        return self.start("leader", lambda p: p.leader(patient=patient), leads=True)

    def to_the_end(self) -> Outcome:
        """Run until all is processed and quiet, let a last leader close, and judge."""
        self._run_until_quiet()
        exposed = self.requests
        self._faults = _NoFaults()
        if not self.truth.broken:
            self.start("closer", lambda program: program.closer())
            self._run_until_quiet()
            self.truth.finish()
        self._tell("verdict: " + ("; ".join(self.truth.broken) or "every promise kept"))
        return Outcome(
            tuple(self.truth.broken),
            self.requests,
            exposed,
            self.activated,
            self.points,
            self._hash.hexdigest(),
            tuple(self._story or ()),
        )

    # Scheduling.

    def _run_until_quiet(self) -> None:
        for _ in range(STEPS_MAX):
            if self.truth.broken:
                return
            self._restart_leaders()
            if not self._processes and self.world.next_arrival_s() == float("inf"):
                return
            self._step()
        self.truth.broken.append("I15: no end in sight although the faults are over")

    def _restart_leaders(self) -> None:
        """Somebody starts the job again when nobody leads and it is not done."""
        if self._finished or any(process.leads for process in self._processes):
            self._empty_bins_before_zombies()
            return
        if self._started >= LEADERS_MAX:
            self.truth.broken.append(f"I15: {LEADERS_MAX} processes did not finish the job")
            return
        process = self.start_leader(patient=self.rng.random() < 0.5)
        process.resumes_s = self.world.now_s + RESTART_S

    def _empty_bins_before_zombies(self) -> None:
        waiting = [p for p in self._processes if p.resumes_s - self.world.now_s > ZOMBIE_S / 2]
        if self._finished and waiting and len(waiting) == len(self._processes):
            if not self._bins_emptied:
                self.start("closer", lambda program: program.closer())
            self._bins_emptied = True

    def _step(self) -> None:
        ready = [
            (process, thread)
            for process in self._processes
            for thread in process.threads
            if max(process.resumes_s, thread.ready_s) <= self.world.now_s
        ]
        if not ready:
            self._let_time_pass()
            return
        self.world.now_s += STEP_S
        self.world.deliver()
        process, thread = self._pick(ready)
        self._request(process, thread)

    def _pick(self, ready: list[tuple[Process, Thread]]) -> tuple[Process, Thread]:
        return ready[0] if len(ready) == 1 else self.rng.choice(ready)

    def _let_time_pass(self) -> None:
        times = [
            max(process.resumes_s, thread.ready_s)
            for process in self._processes
            for thread in process.threads
        ]
        self.world.now_s = min([*times, self.world.next_arrival_s()])
        self.world.deliver()

    # Requests and their fates.

    def _request(self, process: Process, thread: Thread) -> None:
        effect = thread.request
        if isinstance(effect, Wait):
            self._answer(process, thread, None)
            return
        fault = self._faults.choose(self.requests, effect)
        self.requests += 1
        self.points[effect.at] += 1
        self._note(process, thread, effect, fault)
        _FATES.get(fault, Simulation._fate_done)(self, process, thread, effect, fault)

    def _fate_done(self, process: Process, thread: Thread, effect: Effect, fault: Fault) -> None:
        del fault
        try:
            answer = self.world.perform(effect)
        except PenstockError as refusal:
            self._fail(process, thread, refusal)
        else:
            self._answer(process, thread, answer)

    def _fate_lost(self, process: Process, thread: Thread, effect: Effect, fault: Fault) -> None:
        self._no_answer(process, thread, effect, fault)

    def _fate_done_unheard(
        self, process: Process, thread: Thread, effect: Effect, fault: Fault
    ) -> None:
        self._quietly(effect)
        self._no_answer(process, thread, effect, fault)

    def _fate_refused_own(
        self, process: Process, thread: Thread, effect: Effect, fault: Fault
    ) -> None:
        del fault
        self._quietly(effect)
        self._answer(process, thread, None)

    def _fate_forbidden(
        self, process: Process, thread: Thread, effect: Effect, fault: Fault
    ) -> None:
        self._fail(process, thread, Invalid(str(effect.at), fault, "look at the credentials"))

    def _fate_done_forbidden(
        self, process: Process, thread: Thread, effect: Effect, fault: Fault
    ) -> None:
        self._quietly(effect)
        self._fate_forbidden(process, thread, effect, fault)

    def _fate_delayed(self, process: Process, thread: Thread, effect: Effect, fault: Fault) -> None:
        self.world.later(self.rng.uniform(1, 60), lambda: self._quietly(effect))
        self._no_answer(process, thread, effect, fault)

    def _fate_duplicated(
        self, process: Process, thread: Thread, effect: Effect, fault: Fault
    ) -> None:
        self.world.later(self.rng.uniform(1, 60), lambda: self._quietly(effect))
        self._fate_done(process, thread, effect, fault)

    def _fate_slow(self, process: Process, thread: Thread, effect: Effect, fault: Fault) -> None:
        del process, effect, fault
        thread.ready_s = self.world.now_s + self.rng.uniform(0.5, 5)

    def _fate_crash_before(
        self, process: Process, thread: Thread, effect: Effect, fault: Fault
    ) -> None:
        del thread, effect, fault
        self._processes.remove(process)

    def _fate_crash_after(
        self, process: Process, thread: Thread, effect: Effect, fault: Fault
    ) -> None:
        del thread, fault
        self._quietly(effect)
        self._processes.remove(process)

    def _fate_pause(self, process: Process, thread: Thread, effect: Effect, fault: Fault) -> None:
        del thread, effect
        past_lease = fault is Fault.PAUSE_PAST_LEASE
        process.resumes_s = self.world.now_s + self.rng.uniform(
            *((12, 60) if past_lease else (0, 3))
        )

    def _fate_done_unheard_paused(
        self, process: Process, thread: Thread, effect: Effect, fault: Fault
    ) -> None:
        self._fate_done_unheard(process, thread, effect, fault)
        self._fate_pause(process, thread, effect, Fault.PAUSE_PAST_LEASE)

    def _fate_zombie(self, process: Process, thread: Thread, effect: Effect, fault: Fault) -> None:
        """Paused until nobody else is left: another leader finishes everything, another one
        empties the bins, and then this one goes on where it was."""
        del thread, effect, fault
        process.leads = False
        process.resumes_s = self.world.now_s + ZOMBIE_S

    def _fate_clock(self, process: Process, thread: Thread, effect: Effect, fault: Fault) -> None:
        process.clock.skew_s += self.rng.uniform(-7200, 7200)
        self._fate_done(process, thread, effect, fault)

    def _fate_altered(self, process: Process, thread: Thread, effect: Effect, fault: Fault) -> None:
        assert isinstance(effect, Get)
        stored = self.world.store.get(effect.key)
        if fault is Fault.STALE:
            answer = self.world.previous.get(effect.key, stored)
        elif fault is Fault.ABSENT_404 or stored is None or not stored.body:
            answer = None
        else:
            answer = Stored(self._damaged(stored.body, fault), stored.etag)
        self._answer(process, thread, answer)

    def _damaged(self, body: bytes, fault: Fault) -> bytes:
        where = self.rng.randrange(len(body))
        if fault is Fault.TRUNCATED:
            return body[:where]
        flipped = body[where] ^ (1 << self.rng.randrange(8))
        return body[:where] + bytes([flipped]) + body[where + 1 :]

    # Answers.

    def _no_answer(self, process: Process, thread: Thread, effect: Effect, fault: Fault) -> None:
        """No answer: the store client repeats what is safe to repeat, a few times."""
        once = isinstance(effect, Create | Replace)
        thread.tries += 1
        if once or thread.tries >= RETRIES_MAX:
            self._fail(process, thread, Unavailable(str(effect.at), fault, "try again"))
        else:
            thread.ready_s = self.world.now_s + 0.1 * thread.tries

    def _quietly(self, effect: Effect) -> None:
        """Done with nobody listening."""
        with suppress(PenstockError):
            self.world.perform(effect)

    def _answer(self, process: Process, thread: Thread, answer: Any) -> None:
        self._resume(process, thread, lambda: thread.steps.send(answer))

    def _fail(self, process: Process, thread: Thread, failure: PenstockError) -> None:
        self._resume(process, thread, lambda: thread.steps.throw(failure))

    def _resume(self, process: Process, thread: Thread, go_on: Callable[[], Any]) -> None:
        """Let a thread run up to its next request, its end, or its error."""
        thread.tries = 0
        try:
            thread.request = go_on()
            wait = thread.request
            thread.ready_s = self.world.now_s + (wait.seconds if isinstance(wait, Wait) else 0)
        except StopIteration:
            self._end(process, thread)
        except (Fenced, Unavailable, Invalid) as stopped:
            self._tell(f"{process.name} stops: {stopped}")
            self._end_process(process)
        except (Corrupt, Bug) as alarm:
            self._heard(process, "alarm", str(alarm))
            self._end_process(process)

    def _start_thread(self, process: Process, name: str, steps: Steps[None]) -> None:
        thread = Thread(name, steps)
        process.threads.append(thread)
        self._resume(process, thread, lambda: next(steps))

    def _end(self, process: Process, thread: Thread) -> None:
        process.threads.remove(thread)
        if not process.threads:
            self._end_process(process)

    def _end_process(self, process: Process) -> None:
        if process in self._processes:
            self._processes.remove(process)

    # Telling.

    def _heard(self, process: Process, what: str, *facts: Any) -> None:
        if what == "finished":
            self._finished = True
        self.truth.heard(process.name, what, *facts)
        self._tell(f"{process.name} says: {what} {' '.join(str(fact) for fact in facts)[:100]}")

    def _note(self, process: Process, thread: Thread, effect: Effect, fault: Fault) -> None:
        if fault is not Fault.NONE:
            self.activated[fault] += 1
        key = getattr(effect, "key", None) or getattr(effect, "prefix", "")
        line = f"{process.name}/{thread.name} {effect.at} {type(effect).__name__} {key}"
        self._hash.update(f"{self.world.now_s:.3f} {line} {fault}\n".encode())
        if self._story is not None:
            mark = "" if fault is Fault.NONE else f"   <-- {fault}"
            self._tell(line + mark)

    def _tell(self, line: str) -> None:
        if self._story is not None:
            self._story.append(f"{self.world.now_s:9.3f} s  {line}")


class _NoFaults:
    """The plan of a world that has calmed down."""

    def choose(self, number: int, effect: Effect) -> Fault:
        """Never anything."""
        del number, effect
        return Fault.NONE


_FATES: dict[Fault, Callable[[Simulation, Process, Thread, Effect, Fault], None]] = {
    Fault.LOST: Simulation._fate_lost,
    Fault.REFUSED_503: Simulation._fate_lost,
    Fault.CONFLICT_409: Simulation._fate_lost,
    Fault.RESET: Simulation._fate_lost,
    Fault.ACK_LOST: Simulation._fate_done_unheard,
    Fault.DONE_5XX: Simulation._fate_done_unheard,
    Fault.OWN_409: Simulation._fate_done_unheard,
    Fault.ACK_LOST_PAUSED: Simulation._fate_done_unheard_paused,
    Fault.OWN_412: Simulation._fate_refused_own,
    Fault.FORBIDDEN_403: Simulation._fate_forbidden,
    Fault.DONE_403: Simulation._fate_done_forbidden,
    Fault.DELAYED: Simulation._fate_delayed,
    Fault.DUPLICATED: Simulation._fate_duplicated,
    Fault.SLOW: Simulation._fate_slow,
    Fault.CRASH_BEFORE: Simulation._fate_crash_before,
    Fault.CRASH_AFTER: Simulation._fate_crash_after,
    Fault.PAUSE: Simulation._fate_pause,
    Fault.PAUSE_PAST_LEASE: Simulation._fate_pause,
    Fault.ZOMBIE: Simulation._fate_zombie,
    Fault.CLOCK_JUMP: Simulation._fate_clock,
    Fault.TRUNCATED: Simulation._fate_altered,
    Fault.FLIPPED: Simulation._fate_altered,
    Fault.STALE: Simulation._fate_altered,
    Fault.ABSENT_404: Simulation._fate_altered,
}
