"""Jobs run as processes of their own, to be watched, killed, stopped and resumed."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyspark

from penstock.clock import SystemClock
from tests.support.servers import LEASH, free_port, running, wait_for_port

SHOP_JOB = Path(__file__).with_name("shop_job.py")
EPOCH = re.compile(r"epoch (\d+): ")
WAIT_S_MAX = 400.0
POLL_S = 0.05


class Run:
    """One `penstock run` of a job: the shop's, unless another is named."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        settings: Mapping[str, str] | None = None,
        job: Path = SHOP_JOB,
    ) -> None:
        self._lines: list[str] = []
        environment = {
            **os.environ,
            "PENSTOCK_SHOP_LOG": str(folder / "log"),
            "PENSTOCK_STATE_DIR": str(folder / "state"),
            "PENSTOCK_SPARK_LOG": str(folder / "spark.log"),
            "COLUMNS": "400",
            **(settings or {}),
        }
        start = "from penstock.runtime.cli import main; main()"
        leashed = [sys.executable, str(LEASH), sys.executable]
        command = [*leashed, "-c", start, "run", str(job)]
        self.process = subprocess.Popen(
            [*command, "--root", str(folder / "root"), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            cwd=folder,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                self._lines.append(line.rstrip())

    @property
    def said(self) -> str:
        """Everything it has printed so far."""
        return "\n".join(self._lines)

    @property
    def epochs(self) -> int:
        """How many epochs it has committed so far."""
        return sum(EPOCH.search(line) is not None for line in list(self._lines))

    def wait_for(self, epochs: int) -> bool:
        """Whether it commits so many epochs; False if it ends before."""
        for _ in _patiently(self):
            if self.epochs >= epochs:
                return True
            if self.process.poll() is not None:
                return False
        raise AssertionError("unreachable: patience ends by raising")

    def end(self) -> int:
        """Its exit code, once it has ended."""
        try:
            code = self.process.wait(WAIT_S_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"it does not end:\n{self.said}") from None
        self._reader.join(WAIT_S_MAX)
        return code

    def kill_after(self, seconds: float) -> None:
        """kill -9 of the driver, and nothing else, a moment later."""
        SystemClock().sleep(seconds)
        self.process.kill()
        self.end()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def executors(self) -> list[psutil.Process]:
        """Its executor processes."""
        return self._below("CoarseGrainedExecutorBackend", "java")

    def workers(self) -> list[psutil.Process]:
        """The Python processes that its tasks run in, and those that start them."""
        return self._below("pyspark.daemon", "python")

    def _below(self, told_by: str, program: str) -> list[psutil.Process]:
        found = []
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if told_by in " ".join(child.cmdline()) and child.name().startswith(program):
                        found.append(child)
        return found


def _patiently(run: Run) -> Iterator[None]:
    clock = SystemClock()
    deadline_s = clock.monotonic() + WAIT_S_MAX
    while clock.monotonic() < deadline_s:
        yield
        clock.sleep(POLL_S)
    run.process.kill()
    raise AssertionError(f"nothing more happened:\n{run.said}")


@contextmanager
def standalone_cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """A Spark master and workers of the installed pyspark; the master's address."""
    home = Path(pyspark.__file__).parent
    spark_class = str(home / "bin" / "spark-class")
    port = free_port()
    settings = {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "workers"),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        master = [spark_class, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
        worker = [spark_class, "org.apache.spark.deploy.worker.Worker", "--webui-port", "0"]
        address = f"spark://127.0.0.1:{port}"
        with _all(
            [[*master, "--port", str(port), "--webui-port", "0"]]
            + [[*worker, "-c", "1", "-m", "900m", address] for _ in range(workers)],
            folder,
            port,
        ):
            yield address
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _all(commands: list[list[str]], folder: Path, port: int) -> Iterator[None]:
    """Start one after the other; the first must listen before the others begin."""
    first, *rest = commands
    with running(first, folder / "spark-0.log") as process:
        wait_for_port(process, port)
        if not rest:
            yield
            return
        with _others(rest, folder):
            yield


@contextmanager
def _others(commands: list[list[str]], folder: Path) -> Iterator[None]:
    first, *rest = commands
    with running(first, folder / f"spark-{len(rest) + 1}.log"):
        if rest:
            with _others(rest, folder):
                yield
        else:
            yield
