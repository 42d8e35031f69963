"""The demo: a job loses an executor, its local state and its driver, and no event.

Run it with `make demo`, or `python examples/demo.py [FOLDER]`. It needs Java and a few hundred
megabytes of memory for each of two executors, and says what it waits for:

1. Write 300,000 clicks to a log in a folder.
2. Run examples/clicks.py on two executor processes.
3. Kill one of them, and delete the state that this host keeps. The job goes on by itself.
4. Kill the driver, and start it again. It goes on from the last committed epoch.
5. Compare the totals with sums taken straight from the log, and check every object of the root.

Only processes that the demo has started are killed, by their number. It fails if anything is lost,
doubled or damaged.
"""

import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
from clicks import append_clicks

import penstock as ps
from penstock.clock import SystemClock

ROWS = 300_000
EPOCH_ROWS = 25_000
EXECUTORS = 2
SILENCE_S_MAX = 120.0
"""A job that says nothing for so long is given up."""
GONE_S_MAX = 30.0
"""So long may it take until nothing is left of a driver that was killed."""
POLL_S = 0.2

JOB = Path(__file__).with_name("clicks.py")
PENSTOCK = [sys.executable, "-c", "from penstock.runtime.cli import main; main()"]
"""The command `penstock` of this very Python, whatever the shell would find."""
EPOCH = re.compile(r"epoch (\d+): ([\d,]+) rows in")
RESTORED = re.compile(r"restored (\d+) partitions?: (.+)")
LEADS = re.compile(r"job clicks on .*, \d+ partitions$")
RETRIED = re.compile(r"^\S+ (epoch \d+ is tried again)")

clock = SystemClock()
started_s = clock.monotonic()


def say(line: str) -> None:
    """One line of progress, with the seconds since the start."""
    print(f"{clock.monotonic() - started_s:5.0f} s  {line}", flush=True)


def fail(why: str) -> NoReturn:
    """End here, and say why."""
    say(f"FAILED: {why}")
    sys.exit(1)


class Driver:
    """One `penstock run` as a process of its own, and what it says."""

    def __init__(self, folder: Path) -> None:
        self.epoch = 0
        self.rows = 0
        self.restored: Counter[str] = Counter()
        self._said: queue.Queue[str | None] = queue.Queue()
        self._last_words = ""
        settings = {
            "CLICKS_LOG": str(folder / "log"),
            "PENSTOCK_STATE_DIR": str(folder / "state"),
            "PENSTOCK_SPARK_LOG": str(folder / "spark.log"),
        }
        command = [*PENSTOCK, "run", str(JOB), "--root", str(folder / "root"), "--json"]
        master = f"local-cluster[{EXECUTORS},1,1024]"
        # With a short lease a driver that was killed is soon known to be dead.
        options = ["--master", master, "--until", "caught-up", "--lease", "3"]
        self._answer = (folder / "answer.json").open("w+")
        self._process = subprocess.Popen(
            [*command, *options, "--records", str(EPOCH_ROWS)],
            stdout=self._answer,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **settings},
            cwd=folder,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.put(line.rstrip())
        self._said.put(None)

    def wait_for(self, rows: int) -> bool:
        """Whether it commits so many rows more; False if it ends before."""
        wanted = self.rows + rows
        while self.rows < wanted:
            try:
                line = self._said.get(timeout=SILENCE_S_MAX)
            except queue.Empty:
                fail(f"the job has said nothing for {SILENCE_S_MAX:.0f} s; {self._last_words}")
            if line is None:
                return False
            self._take(line)
        return True

    def _take(self, line: str) -> None:
        self._last_words = line or self._last_words
        if done := EPOCH.search(line):
            self.epoch = int(done[1])
            self.rows += int(done[2].replace(",", ""))
            say(f"   epoch {self.epoch} is committed, {done[2]} clicks")
        elif found := RESTORED.search(line):
            self.restored[found[2]] += int(found[1])
            say(f"   state of {found[1]} partitions was restored from {found[2]}")
        elif again := RETRIED.search(line):
            say(f"   {again[1]}")
        elif LEADS.search(line):
            say("   Spark is up and the driver leads; the first epoch starts Python workers too")

    def executors(self) -> list[int]:
        """The numbers of its executor processes."""
        return [
            process
            for process, command in descendants(self._process.pid).items()
            if "CoarseGrainedExecutorBackend" in command and "java" in command.split()[0]
        ]

    def kill(self) -> None:
        """kill -9, and wait until its executors have noticed."""
        before = descendants(self._process.pid)
        self._process.kill()
        self._process.wait()
        deadline_s = clock.monotonic() + GONE_S_MAX
        while (left := still_there(before)) and clock.monotonic() < deadline_s:
            clock.sleep(POLL_S)
        kill(left)
        say(f"   the {len(before)} processes it had started are gone")

    def stop(self) -> None:
        """Leave nothing behind, whatever has happened."""
        if self._process.poll() is None:
            self.kill()
        self._answer.close()

    def answer(self) -> dict[str, Any]:
        """What it says with --json at its end."""
        if self._process.wait() != 0:
            fail(f"the job ended with code {self._process.returncode}: {self._last_words}")
        self._answer.seek(0)
        found: dict[str, Any] = json.load(self._answer)
        return found


def processes() -> dict[int, tuple[int, str]]:
    """Every process there is: its parent, and how it was started."""
    listing = ["ps", "-Aww", "-o", "pid=,ppid=,args="]  # ww: whole lines, however wide the terminal
    listed = subprocess.run(listing, capture_output=True, text=True, check=True)
    rows = (line.split(None, 2) for line in listed.stdout.splitlines())
    return {int(row[0]): (int(row[1]), row[2] if len(row) > 2 else "?") for row in rows}


def descendants(ancestor: int) -> dict[int, str]:
    """The processes that one has started, and those that these have, and how they were started."""
    everything = processes()
    found: dict[int, str] = {}
    parents = {ancestor}
    while parents:
        children = {p: how for p, (parent, how) in everything.items() if parent in parents}
        found |= children
        parents = set(children)
    return found


def still_there(before: Mapping[int, str]) -> list[int]:
    """Those that go on. A number that was given to another process meanwhile is not one of them."""
    now = processes()
    return [number for number, how in before.items() if number in now and now[number][1] == how]


def kill(numbers: Iterable[int]) -> None:
    """kill -9, for those that are still there."""
    for number in numbers:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)


def lose_an_executor(driver: Driver, state: Path) -> None:
    """Kill one executor, and delete what this host remembers."""
    found = driver.executors()
    if len(found) != EXECUTORS:
        fail(f"there are {len(found)} executors, and {EXECUTORS} were asked for")
    kill(found[:1])
    shutil.rmtree(state, ignore_errors=True)
    say(f"3. Executor {found[0]} is killed, and the local state is deleted.")


def sums_of(log: ps.Log) -> dict[str, int]:
    """Clicks per user, taken straight from the log by Arrow alone."""
    batches = [
        batch.select(["user", "country"])
        for partition, range_ in log.plan({}, ps.Limits()).items()
        for batch in log.read(partition, range_)
    ]
    clicks = pa.Table.from_batches(batches).filter(pc.field("country") == "KR")
    counted = clicks.group_by("user").aggregate([("country", "count")])
    return dict(zip(counted["user"].to_pylist(), counted["country_count"].to_pylist(), strict=True))


def check(folder: Path) -> None:
    """Compare the table with the log, and look at every object of the root."""
    totals = ps.read_table(str(folder / "root"), "totals", latest_by="user")
    found = dict(zip(totals["user"].to_pylist(), totals["clicks"].to_pylist(), strict=True))
    expected = sums_of(ps.Log(str(folder / "log")))
    for user, clicks in sorted(found.items(), key=lambda each: -each[1])[:5]:
        print(f"           {user:<9} {clicks:>7,} clicks")
    if found != expected:
        wrong = {u for u in found.keys() | expected.keys() if found.get(u) != expected.get(u)}
        fail(f"{len(wrong)} users have other totals than the log says, {min(wrong)} among them")
    elsewhere = ROWS - sum(found.values())
    say(f"   {elsewhere:,} clicks are from elsewhere. Of those from Korea:")
    say(f"   {len(found):,} users, {sum(found.values()):,} clicks: exactly those of the log.")
    sound = penstock("fsck", str(folder / "root"))
    say(f"   penstock fsck: {sound}")


def penstock(*arguments: str) -> str:
    """What a command says; the demo fails if the command does."""
    done = subprocess.run([*PENSTOCK, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        fail(f"penstock {' '.join(arguments)} ended with {done.returncode}: {done.stdout}")
    return done.stdout.strip()


def demo(folder: Path) -> None:
    """The story, step by step."""
    say(f"1. {ROWS:,} clicks are written to a log in {folder}.")
    say("   The job is examples/clicks.py: it counts, user by user, those from Korea.")
    append_clicks(str(folder / "log"), ROWS)

    say(f"2. The job is started on {EXECUTORS} executors; Spark takes a while to come up.")
    first = Driver(folder)
    try:
        if not first.wait_for(rows=3 * EPOCH_ROWS):
            fail("the job ended too early")
        lose_an_executor(first, folder / "state")
        if not first.wait_for(rows=3 * EPOCH_ROWS):
            fail("the job did not survive the loss of an executor")
        say(f"4. The driver is killed after epoch {first.epoch}, and started again.")
    finally:
        first.stop()
    second = Driver(folder)
    try:
        second.wait_for(rows=ROWS)
        answer = second.answer()
    finally:
        second.stop()

    say(
        f"5. Everything is processed, in {answer['last_epoch']} epochs. The busiest users in Korea:"
    )
    check(folder)
    if not first.restored:
        fail("no state was restored after it was deleted")
    say(f"   State of partitions, after the executor died: {counted(first.restored)}")
    say(f"   and after the driver was started again: {counted(answer['restores'])}")
    say("Nothing was lost and nothing counted twice.")


def counted(ways: Mapping[str, int]) -> str:
    """How often state was opened in each way."""
    return ", ".join(f"{count} times {way}" for way, count in ways.items())


def main(given: Sequence[str]) -> None:
    """Work in the folder that is given, or in one that is gone afterwards."""
    if given:
        folder = Path(given[0]).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            fail(f"{folder} is not empty: give a new folder")
        demo(folder)
    else:
        with tempfile.TemporaryDirectory(prefix="penstock-demo-") as made:
            demo(Path(made))


if __name__ == "__main__":
    main(sys.argv[1:])
