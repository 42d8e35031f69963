"""The scheduler of a simulated run: processes, their requests one at a time, and faults.

Every request of every protocol is one step, one scheduling point and one place to fail. What the
processes do, and what they may not do to the world, is a scenario's business.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from penstock.chaos.actions import Action
from penstock.chaos.faults import ALTERED, Fault, FaultPlan
from penstock.chaos.host import Host
from penstock.chaos.outcome import Judge, Outcome
from penstock.chaos.world import ProcessClock, SeededChance, World
from penstock.checkpoint.fork import InFork
from penstock.effects import Create, Effect, Fetch, Get, Page, Replace, Steps, Stored, Wait
from penstock.errors import Bug, Corrupt, Fenced, Invalid, PenstockError, Unavailable
from penstock.points import Point

__all__ = ["RESTART_S", "ZOMBIE_S", "Process", "Scheduler", "Thread"]

STEPS_MAX = 20_000
RETRIES_MAX = 4
"""How often the store client repeats a request that is safe to repeat."""

STEP_S = 0.001
RESTART_S = 1.0
ZOMBIE_S = 1_000_000.0
YEAR_S = 365 * 86_400.0

PERHAPS = frozenset({Fault.NONE, Fault.LISTED_SHORT, *ALTERED})
"""Faults that are counted where it is known whether they changed an answer."""


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


class Scheduler:
    """Runs the processes of a scenario, which a subclass brings."""

    def __init__(
        self,
        rng: random.Random,
        faults: FaultPlan,
        world: World,
        judge: Judge,
        *,
        tell: bool = False,
    ) -> None:
        self.rng = rng
        self.world = world
        self.judge = judge
        self.points: Counter[Point] = Counter()
        self.requests = 0
        self.activated: Counter[Fault] = Counter()
        self.actions: Counter[Action] = Counter()
        self.processes: list[Process] = []
        self.started = 0
        self.finished = False
        """Whether a process has said that the work is done."""
        self._faults = faults
        self._hash = hashlib.blake2b(digest_size=16)
        self._story: list[str] | None = [] if tell else None

    def keep_going(self) -> None:
        """Start what has to be started now. Asked before every step."""

    def close(self) -> None:
        """Start what comes last, when all is quiet and the faults are over."""

    def afterwards(self) -> None:
        """Judge what is left to be judged when the run is over."""

    def start(
        self, role: str, main: Callable[[Host], Steps[None]], *, leads: bool = False
    ) -> Process:
        """Start a process. It does nothing before it is scheduled."""
        self.started += 1
        process = Process(f"{role}{self.started}", ProcessClock(self.world), leads=leads)
        self.processes.append(process)
        host = Host(
            process.name,
            process.clock,
            SeededChance(process.name, self.rng),
            self.rng,
            lambda name, steps: self._start_thread(process, name, steps),
            lambda what, *facts: self._heard(process, what, *facts),
            self._did,
        )
        self._start_thread(process, "main", main(host))
        return process

    def to_the_end(self) -> Outcome:
        """Run until the work is done and all is quiet, close, and judge."""
        self._run_until_quiet()
        exposed = self.requests
        self._faults = _NoFaults()
        if not self.judge.broken:
            self.close()
            self._run_until_quiet()
            self.judge.finish()
        if not self.judge.broken:
            self.afterwards()
        self._tell("verdict: " + ("; ".join(self.judge.broken) or "every promise kept"))
        return Outcome(
            tuple(self.judge.broken),
            self.requests,
            exposed,
            self.activated,
            self.actions,
            self.points,
            self._hash.hexdigest(),
            tuple(self._story or ()),
        )

    # Scheduling.

    def _run_until_quiet(self) -> None:
        for _ in range(STEPS_MAX):
            if self.judge.broken:
                return
            self.keep_going()
            if not self.processes and self.world.next_arrival_s() == float("inf"):
                return
            self._step()
        self.judge.broken.append("I15: no end in sight although the faults are over")

    def _step(self) -> None:
        ready = [
            (process, thread)
            for process in self.processes
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
            for process in self.processes
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
        _FATES.get(fault, Scheduler._fate_done)(self, process, thread, effect, fault)

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

    def _fate_minutes_late(
        self, process: Process, thread: Thread, effect: Effect, fault: Fault
    ) -> None:
        self.world.later(self.rng.uniform(120, 900), lambda: self._quietly(effect))
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
        self.processes.remove(process)

    def _fate_crash_after(
        self, process: Process, thread: Thread, effect: Effect, fault: Fault
    ) -> None:
        del thread, fault
        self._quietly(effect)
        self.processes.remove(process)

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
        by_a_year = self.rng.choice((-YEAR_S, YEAR_S))
        process.clock.skew_s += (
            by_a_year if fault is Fault.CLOCK_YEAR else self.rng.uniform(-7200, 7200)
        )
        self._fate_done(process, thread, effect, fault)

    def _fate_altered(self, process: Process, thread: Thread, effect: Effect, fault: Fault) -> None:
        assert isinstance(effect, Get | Fetch)
        stored = self.world.store.get(effect.key)
        answer: Any
        if fault is Fault.STALE:
            answer = self.world.previous.get(effect.key, stored)
        elif fault is Fault.ABSENT_404 or stored is None or not stored.body:
            answer = None
        else:
            damaged = self._damaged(stored.body, fault)
            answer = damaged if isinstance(effect, Fetch) else Stored(damaged, stored.etag)
        if answer is not stored and stored is not None:
            self.activated[fault] += 1
        self._answer(process, thread, answer)

    def _fate_listed(self, process: Process, thread: Thread, effect: Effect, fault: Fault) -> None:
        assert isinstance(effect, Page)
        page = list(self.world.perform(effect))
        if fault is Fault.LISTED_SHORT:
            answer = page[: self.rng.randint(1, max(len(page), 1))]
        else:
            answer = [entry for entry in page if entry.key not in self.world.newest]
        if answer != page:
            self.activated[fault] += 1
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
        asked = effect.effect if isinstance(effect, InFork) else effect
        once = isinstance(asked, Create | Replace)
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
        if process in self.processes:
            self.processes.remove(process)

    # Telling.

    def _heard(self, process: Process, what: str, *facts: Any) -> None:
        if what == "finished":
            self.finished = True
        self.judge.heard(process.name, what, *facts)
        self._tell(f"{process.name} says: {what} {' '.join(str(fact) for fact in facts)[:100]}")

    def _did(self, action: Action) -> None:
        self.actions[action] += 1

    def _note(self, process: Process, thread: Thread, effect: Effect, fault: Fault) -> None:
        if fault not in PERHAPS:
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


_FATES: dict[Fault, Callable[[Scheduler, Process, Thread, Effect, Fault], None]] = {
    Fault.LOST: Scheduler._fate_lost,
    Fault.REFUSED_503: Scheduler._fate_lost,
    Fault.CONFLICT_409: Scheduler._fate_lost,
    Fault.RESET: Scheduler._fate_lost,
    Fault.ACK_LOST: Scheduler._fate_done_unheard,
    Fault.DONE_5XX: Scheduler._fate_done_unheard,
    Fault.OWN_409: Scheduler._fate_done_unheard,
    Fault.ACK_LOST_PAUSED: Scheduler._fate_done_unheard_paused,
    Fault.OWN_412: Scheduler._fate_refused_own,
    Fault.FORBIDDEN_403: Scheduler._fate_forbidden,
    Fault.DONE_403: Scheduler._fate_done_forbidden,
    Fault.DELAYED: Scheduler._fate_delayed,
    Fault.DUPLICATED: Scheduler._fate_duplicated,
    Fault.SLOW: Scheduler._fate_slow,
    Fault.CRASH_BEFORE: Scheduler._fate_crash_before,
    Fault.CRASH_AFTER: Scheduler._fate_crash_after,
    Fault.PAUSE: Scheduler._fate_pause,
    Fault.PAUSE_PAST_LEASE: Scheduler._fate_pause,
    Fault.ZOMBIE: Scheduler._fate_zombie,
    Fault.CLOCK_JUMP: Scheduler._fate_clock,
    Fault.CLOCK_YEAR: Scheduler._fate_clock,
    Fault.MINUTES_LATE: Scheduler._fate_minutes_late,
    Fault.LISTED_SHORT: Scheduler._fate_listed,
    Fault.LISTED_STALE: Scheduler._fate_listed,
    Fault.TRUNCATED: Scheduler._fate_altered,
    Fault.FLIPPED: Scheduler._fate_altered,
    Fault.STALE: Scheduler._fate_altered,
    Fault.ABSENT_404: Scheduler._fate_altered,
}
