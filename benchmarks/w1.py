"""How fast jobs run on Spark with Penstock, beside what Spark offers by itself.

    make bench                                        about 35 minutes
    python -m benchmarks.w1 --quick                   everything with few epochs; for trying
    python -m benchmarks.w1 --only function-shuffled  one part; also `speed`, `latency`, …

Each part runs in a process of its own, one after the other, and is killed with all it started when
its time is up; what it had measured by then counts. A quick run, or
one of a single part, is not written to RESULTS.md.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]
from rich.console import Console

from benchmarks.results import write_section
from benchmarks.w1_data import FULL, QUICK, Measured, measured_in, pooled
from benchmarks.w1_plot import plot
from benchmarks.w1_report import Results, quietness, report, tables

__all__ = ["PARTS", "Part", "main"]

ROOT = Path(__file__).parents[1]
PICTURE = Path(__file__).with_name("w1.png")
KILL_S = 10.0
LOOK_EVERY_S = 0.5
ROUNDS = 2
"""How often the parts for speed are run in turn."""


@dataclass(frozen=True)
class Part:
    """One process: a module of ours, the name it is given, and how long it may take."""

    group: str
    module: str
    name: str
    limit_s: float = 400.0


PENSTOCK, SPARK = "benchmarks.w1_penstock", "benchmarks.w1_spark"
PYTHON_LIMIT_S = 250.0
"""Starting Spark and making the files is on top of the query's own limit."""
PARTS = (
    Part("speed", PENSTOCK, "function-shuffled"),
    Part("speed", PENSTOCK, "function-direct"),
    Part("speed", PENSTOCK, "vectorised-shuffled"),
    Part("speed", PENSTOCK, "vectorised-direct"),
    Part("speed", SPARK, "groupby-parquet"),
    Part("speed", SPARK, "groupby-noop"),
    Part("speed", SPARK, "floor"),
    Part("python", SPARK, "apply-small", PYTHON_LIMIT_S),
    Part("python", SPARK, "apply-large", PYTHON_LIMIT_S),
    Part("python", SPARK, "transform-small", PYTHON_LIMIT_S),
    Part("python", SPARK, "transform-large", PYTHON_LIMIT_S),
    Part("latency", PENSTOCK, "latency-shuffled"),
    Part("latency", PENSTOCK, "latency-direct"),
    Part("latency", SPARK, "latency-parquet"),
    Part("latency", SPARK, "latency-noop"),
    Part("long", PENSTOCK, "long", 900.0),
    Part("growth", PENSTOCK, "growth", 600.0),
)


def main() -> None:
    """Measure, show, and write it down."""
    options = _options()
    chosen = [part for part in PARTS if _is_chosen(part, options)]
    if not chosen:
        known = ", ".join(sorted({part.group for part in PARTS} | {p.name for p in PARTS}))
        raise SystemExit(f"--only {options.only} is no part; use one of {known}")
    folder = options.keep or Path(tempfile.mkdtemp(prefix="bench-w1-"))
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(width=160)
    try:
        results = _measured(chosen, folder, options.quick)
        for table in tables(results).values():
            console.print(table)
        for name, why in results.failures.items():
            console.print(f"{name}: {why}")
        console.print(quietness(results))
        if options.only is None and not (options.quick or options.dry):
            write_section("w1", report(results))
            plot(results, PICTURE)
        elif options.keep:
            (folder / "report.md").write_text(report(results) + "\n")
            plot(results, folder / PICTURE.name)
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    yes_or_no = argparse.BooleanOptionalAction
    parser.add_argument("--quick", action="store_true", help="few epochs; not written down")
    parser.add_argument("--only", help="one part, or a group of them; not written down")
    parser.add_argument("--long", action=yes_or_no, default=True, help="a thousand small epochs")
    parser.add_argument("--growth", action=yes_or_no, default=True, help="up to 5 M keys")
    parser.add_argument("--dry", action="store_true", help="leave RESULTS.md as it is")
    parser.add_argument("--keep", type=Path, help="keep data, logs, report and picture here")
    return parser.parse_args()


def _is_chosen(part: Part, options: argparse.Namespace) -> bool:
    if options.only is not None:
        return options.only in (part.group, part.name)
    left_out = {name for name in ("long", "growth") if not getattr(options, name)}
    return part.group not in left_out


def _measured(parts: list[Part], folder: Path, is_quick: bool) -> Results:
    """Every part, one after the other."""
    found: list[Measured] = []
    failures: dict[str, str] = {}
    others: dict[str, float] = {}
    for part in _in_rounds(parts, 1 if is_quick else ROUNDS):
        started = time.perf_counter()
        results, failure, busy = run(part, folder, is_quick)
        others[part.name] = max(busy, others.get(part.name, 0.0))
        found += results
        if failure:
            failures[part.name] = failure
        taken_s = time.perf_counter() - started
        said = f"{failure or 'done'}, {taken_s:.0f} s, others took {busy:.2f} cores"
        print(f"{part.name}: {said}", file=sys.stderr, flush=True)
    return Results(QUICK if is_quick else FULL, pooled(found), failures, others)


def _in_rounds(parts: list[Part], rounds: int) -> Iterator[Part]:
    """The parts in order; those that are compared most closely several times in turn, so that an
    hour in which the machine is slow is slow for all of them."""
    turns = [part for part in parts if part.group == "speed"]
    for _ in range(rounds):
        yield from turns
    yield from (part for part in parts if part.group != "speed")


def run(part: Part, folder: Path, is_quick: bool) -> tuple[list[Measured], str, float]:
    """One part in a process of its own: what it measured, why not more, and how many cores
    others took meanwhile."""
    place, out = folder / part.name, folder / f"{part.name}.jsonl"
    shutil.rmtree(place, ignore_errors=True)
    out.unlink(missing_ok=True)
    place.mkdir()
    command = [sys.executable, "-m", part.module, part.name]
    command += ["--folder", str(place), "--out", str(out), *(["--quick"] if is_quick else [])]
    said = folder / f"{part.name}.log"
    with said.open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        watch = Watch()
        failure = _waited(process, part.limit_s, watch)
    if not failure and process.returncode:
        failure = _last_line(said)
    shutil.rmtree(place, ignore_errors=True)  # a large state would be in the others' way
    return measured_in(out), failure, watch.others()


def _waited(process: "subprocess.Popen[bytes]", limit_s: float, watch: "Watch") -> str:
    """Wait for the end of a process, and see to it if need be."""
    started = time.perf_counter()
    while process.poll() is None:
        watch.look(process.pid)
        if time.perf_counter() - started > limit_s:
            _kill(process)
            return f"killed after {limit_s:g} s"
        time.sleep(LOOK_EVERY_S)
    return ""


class Watch:
    """How many cores were busy with something else while a part ran."""

    def __init__(self) -> None:
        self._started_s = time.perf_counter()
        self._busy_s = _busy_s()
        self._own_s: dict[int, float] = {}

    def look(self, pid: int) -> None:
        """Write down what the part's processes have used so far: the dead cannot be asked."""
        try:
            family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for member in family:
            try:
                times = member.cpu_times()
            except psutil.NoSuchProcess:
                continue
            self._own_s[member.pid] = times.user + times.system

    def others(self) -> float:
        """Cores that others took, on average."""
        wall_s = time.perf_counter() - self._started_s
        return float(max(0.0, _busy_s() - self._busy_s - sum(self._own_s.values())) / wall_s)


def _busy_s() -> float:
    """Seconds of all cores that were not idle, with those a host took away."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """The process and all it has started: a JVM outlives a driver that is killed alone."""
    family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    for member in family:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(family, KILL_S)
    process.wait(KILL_S)


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    return next((line[:200] for line in reversed(lines) if line), "it said nothing")


if __name__ == "__main__":
    main()
