"""The processes of a job under chaos: its driver and all that the driver has started.

A driver is a Python process with a JVM, which has executors, each with a daemon of Python workers.
They are found by looking at the machine at the moment of asking: after a fault they are others.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from penstock.chaos.brief import Brief, write_brief
from penstock.chaos.history import Ended, Happening, Started

__all__ = ["DriverProcess", "end_tree"]

_SAID_BYTES_MAX = 2_000
_OWN = "penstock: "
"""What the driver itself says at last begins so; what Spark says does not."""
_TELLING = ("Error", "Exception")


class DriverProcess:
    """One driver, from its start until it is gone."""

    def __init__(
        self,
        brief: Brief,
        folder: Path,
        environment: Mapping[str, str],
        tell: Callable[[Happening], None],
    ) -> None:
        self.brief = brief
        self.number = brief.driver
        self._tell = tell
        self._complaints = folder / f"driver-{brief.driver}.err"
        path = folder / f"driver-{brief.driver}.json"
        write_brief(path, brief)
        tell(Started(at_s=0.0, driver=brief.driver, standby=brief.standby))
        settings = {
            **os.environ,
            **environment,
            "PENSTOCK_SPARK_LOG": str(folder / f"spark-{brief.driver}.log"),
            "PYTHONHASHSEED": str(brief.driver),  # what depends on it shows itself
        }
        with self._complaints.open("wb") as complaints:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock.chaos.driver", str(path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                env=settings,
            )
        self._mine: dict[int, psutil.Process] = {}
        """Every process it was ever seen to have started: some outlive it."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The driver's own process."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """How it ended; None while it lives."""
        return self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the driver's own process."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def wait(self, timeout_s: float) -> int | None:
        """How it ended, or None if it still lives after so long."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        self._reader.join(timeout_s)
        return code

    def said(self) -> str:
        """The last thing on its standard error that says why."""
        with suppress(OSError):
            body = self._complaints.read_bytes()[-_SAID_BYTES_MAX:]
            lines = [line for line in body.decode(errors="replace").splitlines() if line.strip()]
            own = [line for line in lines if line.startswith(_OWN)]
            told = [line for line in lines if any(sign in line for sign in _TELLING)]
            return (own or told or lines or [""])[-1].removeprefix(_OWN).strip()
        return ""

    def jvm(self) -> list[psutil.Process]:
        """Spark's own process."""
        return [p for p in self._below("java") if "CoarseGrainedExecutorBackend" not in _words(p)]

    def executors(self) -> list[psutil.Process]:
        """The executors' processes."""
        return [p for p in self._below("java") if "CoarseGrainedExecutorBackend" in _words(p)]

    def daemons(self) -> list[psutil.Process]:
        """What starts the workers of each executor."""
        return [p for p in self._pythons() if _is_daemon(p)]

    def workers(self) -> list[psutil.Process]:
        """The processes that tasks run in."""
        return [p for p in self._pythons() if not _is_daemon(p)]

    def look_around(self) -> None:
        """Remember whatever it has started: some of it may outlive it."""
        self._below("")

    def end_all(self) -> None:
        """End whatever there still is of it, at once."""
        self._below("")
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        for process in self._mine.values():
            with suppress(psutil.Error):
                process.kill()

    def _pythons(self) -> list[psutil.Process]:
        return [p for p in self._below("python") if "pyspark.daemon" in _words(p)]

    def _below(self, program: str) -> list[psutil.Process]:
        found = []
        with suppress(psutil.Error):
            for child in psutil.Process(self.pid).children(recursive=True):
                with suppress(psutil.Error):
                    self._mine[child.pid] = child
                    if child.name().startswith(program) and child.is_running():
                        found.append(child)
        return sorted(found, key=lambda each: each.pid)

    def _read(self) -> None:
        """Hand on what it tells, and at last that it is gone."""
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                with suppress(msgspec.MsgspecError):
                    self._tell(msgspec.json.decode(line, type=Happening))
        code = self._process.wait()
        self._tell(Ended(at_s=0.0, driver=self.number, code=code, said=self.said()))


def end_tree(process: psutil.Process) -> None:
    """kill -9 of a process and everything below it."""
    with suppress(psutil.Error):
        for child in process.children(recursive=True):
            with suppress(psutil.Error):
                child.kill()
        process.kill()


def _words(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def _is_daemon(process: psutil.Process) -> bool:
    """Workers are its copies: the same words, and a parent that has them too."""
    with suppress(psutil.Error):
        parent = process.parent()
        return parent is None or "pyspark.daemon" not in _words(parent)
    return False
