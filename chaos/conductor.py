"""The conductor: keeps a driver running, lets every fault happen when it is due, writes it down.

It does for a job what whoever operates it would do: a driver that has ended badly is started
again. It judges nothing; what it has written down is judged afterwards.
"""

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from penstock.chaos.history import Committed, Ended, Happening, Led, Missed, Noted, Retried, Struck
from penstock.chaos.processes import DriverProcess
from penstock.chaos.scene import NothingThere, Scene
from penstock.chaos.schedule import Due
from penstock.clock import Clock

__all__ = ["Conducted", "Conductor"]

POLL_S = 0.05
FRUITLESS_MAX = 6
"""So many drivers may end one after the other without a commit between them."""
SILENCE_S_MAX = 300.0
"""So long may pass without a commit while nothing is done to the job."""
END_S_MAX = 30.0


@dataclass(frozen=True, slots=True)
class Conducted:
    """How a run went."""

    happenings: tuple[Happening, ...]
    faults: dict[str, int]
    stuck: str | None
    """Why the job did not come to its end; None: it did."""


class Conductor:
    """One run. `start` makes driver number n, as a standby or not."""

    def __init__(
        self,
        start: "Callable[[int, bool, Callable[[Happening], None]], DriverProcess]",
        clock: Clock,
        watch: Callable[[Happening], None] = lambda happening: None,
    ) -> None:
        self._start = start
        self._clock = clock
        self._watch = watch
        self._began_s = clock.monotonic()
        self._lock = threading.RLock()
        self._happenings: list[Happening] = []
        self._epoch = 0
        self._led: set[int] = set()
        self._drivers: list[DriverProcess] = []
        self._current: DriverProcess | None = None
        self._lag: int | None = None
        self._fruitless = 0
        self._moved_s = self._began_s
        self._stuck: str | None = None
        self._done = threading.Event()
        self._stop_after_s: float | None = None
        self._retried: list[str] = []

    def conduct(
        self, scene: "Callable[[Conductor], Scene]", dues: Sequence[Due], stop_after_s: float | None
    ) -> Conducted:
        """Start the job, let it suffer, let it end by itself or after so many seconds."""
        faults: Counter[str] = Counter({due.nemesis.name: 0 for due in dues})
        setting = scene(self)
        self._stop_after_s = stop_after_s
        try:
            self._next()
            supervisor = threading.Thread(target=self._supervise, daemon=True)
            supervisor.start()
            self._suffer(setting, dues, faults)
            if stop_after_s is not None:
                self._wait_until(stop_after_s)
                self._stop()
            self._done.wait()
            supervisor.join()
        finally:
            self._done.set()
            for driver in self._drivers:
                driver.end_all()
        return Conducted(tuple(self._happenings), dict(faults), self._stuck)

    def leader(self) -> DriverProcess:
        """The driver that leads, or will."""
        with self._lock:
            assert self._current is not None, "it is started first"
            return self._current

    def understudy(self) -> DriverProcess:
        """Another driver that waits for its turn, and is the one that counts from now on."""
        return self._next(standby=True)

    def epochs(self) -> int:
        """The last epoch that is known to be committed."""
        return self._epoch

    def has_led(self, driver: DriverProcess) -> bool:
        """Whether it has come to lead."""
        return driver.number in self._led

    def tell(self, happening: Happening) -> None:
        """Write something down, now."""
        with self._lock:
            at_s = round(self._clock.monotonic() - self._began_s, 3)
            told = msgspec.structs.replace(happening, at_s=at_s)
            self._happenings.append(told)
            if isinstance(told, Committed):
                self._epoch, self._lag = max(self._epoch, told.epoch), told.lag
                self._fruitless, self._moved_s = 0, self._clock.monotonic()
            elif isinstance(told, Led):
                self._led.add(told.driver)
                self._epoch = max(self._epoch, told.epoch)
                self._moved_s = self._clock.monotonic()
            elif isinstance(told, Retried):
                self._retried.append(told.why)
            elif isinstance(told, Ended) and told.code != 0:
                self._fruitless += 1
        with suppress(Exception):  # who only looks must not disturb
            self._watch(told)

    def dismiss(self, driver: DriverProcess) -> None:
        """End a driver that did not come to lead in time: the one before it counts again."""
        with self._lock:
            self._current = [each for each in self._drivers if each is not driver][-1]
        driver.end_all()

    def retried(self) -> Sequence[str]:
        """Why epochs were tried again, so far."""
        return tuple(self._retried)

    def is_over(self) -> bool:
        """Whether the job is done, or its time is up."""
        lasted_s = self._clock.monotonic() - self._began_s
        return self._done.is_set() or (
            self._stop_after_s is not None and lasted_s > self._stop_after_s
        )

    def _suffer(self, scene: Scene, dues: Iterable[Due], faults: Counter[str]) -> None:
        for due in dues:
            self._wait_until(due.at_s)
            while self._epoch < due.epoch and not self.is_over():
                self._done.wait(POLL_S)
            name, family = due.nemesis.name, due.nemesis.family
            self._done.wait(due.delay_s)
            if self.is_over():
                why = "the job was done" if self._done.is_set() else "the time was up"
                self.tell(Missed(at_s=0.0, fault=name, family=family, why=why))
                continue
            try:
                text = due.nemesis.strike(scene, due.chance())
            except NothingThere as why:
                self.tell(Missed(at_s=0.0, fault=name, family=family, why=str(why)))
                continue
            faults[name] += 1
            self.tell(Struck(at_s=0.0, fault=name, family=family, text=text))
            with self._lock:  # who was just killed is not to blame for having ended
                self._fruitless, self._moved_s = 0, self._clock.monotonic()

    def _wait_until(self, at_s: float) -> None:
        while self._clock.monotonic() - self._began_s < at_s and not self._done.wait(POLL_S):
            pass

    def _stop(self) -> None:
        """Ask the job to end: who leads, who has led and may do so still, and whoever takes its
        place."""
        asked: set[int] = set()
        while not self._done.wait(POLL_S):
            for driver in list(self._drivers):
                if self.has_led(driver) and driver.number not in asked:
                    asked.add(driver.number)
                    driver.signal(signal.SIGTERM)

    def _next(self, standby: bool = False) -> DriverProcess:
        with self._lock:
            driver = self._start(len(self._drivers) + 1, standby, self.tell)
            self._drivers.append(driver)
            self._current = driver
            return driver

    def _supervise(self) -> None:
        """Whatever happens to who supervises, nobody waits for ever."""
        try:
            self._keep_running()
        except Exception as error:  # noqa: BLE001 - it ends the run, and is told
            self._give_up(f"the conductor itself failed: {error!r}")

    def _keep_running(self) -> None:
        """Start the job again whenever its driver has ended badly, until it has ended well."""
        while not self._done.wait(POLL_S):
            driver = self.leader()
            if driver.code is None:
                driver.look_around()
                self._check_silence()
                continue
            driver.wait(END_S_MAX)  # what it has said is heard first
            if driver is not self.leader():
                continue
            if driver.code == 0:
                self._done.set()
            elif self._fruitless >= (1 if self._is_hopeless(driver) else FRUITLESS_MAX):
                ended = f"{self._fruitless} drivers ended without a commit"
                self._give_up(f"{ended}; the last said: {driver.said() or 'nothing'}")
            else:
                self._next()

    def _is_hopeless(self, driver: DriverProcess) -> bool:
        """Whether the job cannot run at all, faults or not: starting it again changes nothing."""
        return not self._epoch and driver.said().startswith("Invalid:")

    def _check_silence(self) -> None:
        is_idle = self._lag == 0  # there is nothing to commit
        if not is_idle and self._clock.monotonic() - self._moved_s > SILENCE_S_MAX:
            self._give_up(f"nothing was committed for {SILENCE_S_MAX:.0f} s")

    def _give_up(self, why: str) -> None:
        self._stuck = why
        self.tell(Noted(at_s=0.0, text=f"given up: {why}"))
        self._done.set()
