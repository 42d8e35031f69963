"""Executors killed one after the other: when is the next one at work, and when the next commit?

A killed executor costs an epoch that is tried again, and a process that must start while the job
goes on beside it. So the start is looked at in the same run: from the kill until a worker of Python
lives below an executor that was not there before.
"""

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median

import psutil

from penstock.chaos.asked import Asked
from penstock.chaos.chaos_run import conducted
from penstock.chaos.history import Family, Happening, Struck, commits, recoveries
from tests.support.ordeal import JOB, in_environment, settings

__all__ = ["measured"]

SEED, RECORDS, EPOCHS, COUNT = 11, 36_000, 72, 12
KILL = "executor.kill"
POLL_S = 0.1


@dataclass
class Lookout:
    """Sees executors come, from outside."""

    kills_s: list[float] = field(default_factory=list)
    """When each was killed, on this process's clock."""
    at_work_s: dict[int, float] = field(default_factory=dict)
    """When a worker of Python was first seen below each executor."""
    _is_over: threading.Event = field(default_factory=threading.Event)

    def told(self, happening: Happening) -> None:
        """Note the kills, when they happen."""
        if isinstance(happening, Struck) and happening.fault == KILL:
            self.kills_s.append(time.monotonic())

    def look(self) -> None:
        """Until it is over."""
        while not self._is_over.wait(POLL_S):
            for executor in _executors():
                if executor.pid not in self.at_work_s and _has_worker(executor):
                    self.at_work_s[executor.pid] = time.monotonic()

    def finish(self) -> None:
        """Look no more."""
        self._is_over.set()

    def starts_s(self) -> list[float | None]:
        """For every kill, until the next executor was at work; None: none came after it."""
        moments = sorted(self.at_work_s.values())
        return [
            next((moment - kill for moment in moments if moment > kill), None)
            for kill in self.kills_s
        ]


def _executors() -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.name() == "java" and "CoarseGrainedExecutorBackend" in " ".join(
                process.cmdline()
            ):
                found.append(process)
    return found


def _has_worker(executor: psutil.Process) -> bool:
    """Whether the process that starts its workers has started one."""
    with suppress(psutil.Error):
        return any(daemon.children() for daemon in executor.children())
    return False


def measured() -> str:
    """Run it, and tell."""
    asked = Asked(
        file=str(JOB),
        seed=SEED,
        records=RECORDS,
        epochs=EPOCHS,
        count=COUNT,
        faults=frozenset({Family.EXECUTOR}),
        evenly=True,
    )
    lookout = Lookout()
    looking = threading.Thread(target=lookout.look, daemon=True)
    looking.start()
    try:
        with settings(with_kafka=False) as found, in_environment(found):
            result = conducted(asked, watch=lookout.told)
    finally:
        lookout.finish()
        looking.join()
    result.assert_valid()
    happenings = result.run.happenings
    epoch_s = median(each.seconds for each in commits(happenings))
    needed = [e.seconds for e in recoveries(happenings) if e.fault == KILL]
    pairs = []
    for start, took in zip(lookout.starts_s(), needed, strict=True):
        assert start is not None, "an executor came after every kill"
        assert took is not None, "the run is valid, so it went on"
        pairs.append((start, took))
    within = sum(took <= 2 * epoch_s + start for start, took in pairs)
    lines = [
        "## Recovery: executors alone",
        f"`python -m benchmarks.recovery --executors`: the same job, {RECORDS:,} records, {COUNT} "
        f"faults of executors, one at a time, seed {SEED}, verdict {result.verdict}. An epoch took "
        f"{epoch_s:.1f} s at the median. For every executor killed: until a worker of Python lived "
        "below the next one, and until the next commit. The second is at most two epochs and the "
        f"first in {within} of {len(pairs)}. That start shares the processors with "
        "the job; Spark alone, above, has them to itself.",
        "| killed | next at work after, s | two epochs and that, s | next commit after, s |\n"
        "| --- | --- | --- | --- |\n"
        + "\n".join(
            f"| {number} | {start:.1f} | {2 * epoch_s + start:.1f} | {took:.1f} |"
            for number, (start, took) in enumerate(pairs, 1)
        ),
    ]
    return "\n\n".join(lines)
