"""How long a job needs after each kind of fault: from the fault to the next commit.

    make bench-recovery                          all of it
    python -m benchmarks.recovery --executors    the second part alone
    python -m benchmarks.recovery --dry          write nothing down

Chaos runs (`penstock chaos`) of the job of the tests on two executors and S3, with faults one at a
time and calm epochs after each. They must be valid, or their figures mean nothing. First every kind
of fault, and beside that what Spark needs to replace an executor with nothing of ours on it; then
executors alone, again and again, and when the new one was at work in that very run.
"""

import argparse
import os
import platform
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import median

import psutil
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks import recovery_executors
from benchmarks.results import markdown, write_section
from penstock.chaos.asked import MASTER
from penstock.chaos.history import ChaosRun, Committed, Family, Led, Started, recoveries
from penstock.runtime.session import start_spark
from tests.support.ordeal import ordeal

SEEDS, RECORDS, EPOCHS, COUNT = (5, 6, 7), 32_000, 64, 14
FAMILIES = frozenset({Family.EXECUTOR, Family.WORKER, Family.DRIVER, Family.PAUSE})
EXECUTORS, STARTS = 2, 5
BUSY_S = 0.1
"""So long a task takes: long enough that each executor gets one."""
console = Console(highlight=False)


def main() -> None:
    """Measure, show, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dry", action="store_true", help="write nothing down")
    parser.add_argument("--executors", action="store_true", help="only what executors need")
    asked = parser.parse_args()
    if not asked.executors:
        _measure_kinds(asked.dry)
    said = recovery_executors.measured()
    console.print(said)
    if not asked.dry:
        write_section("recovery-executors", said)


def _measure_kinds(dry: bool) -> None:
    starts = executor_starts()
    runs = [_run(seed) for seed in SEEDS]
    table, calm = _table(runs), _calm(runs, starts)
    console.print(table)
    console.print(calm)
    if not dry:
        write_section("recovery", _section(table, runs, calm))


def executor_starts() -> list[float]:
    """Seconds from the kill of an executor to the first task of Python on the one in its place."""
    spark = start_spark("executor-start", MASTER, {})
    found = []
    try:
        at_work = _executors_at_work(spark)
        while len(found) < STARTS:
            victim = min(at_work)
            began_s = time.monotonic()
            psutil.Process(victim).kill()
            while len(at_work - {victim}) < EXECUTORS:
                at_work = _executors_at_work(spark)
            found.append(time.monotonic() - began_s)
    finally:
        spark.stop()
    return found


def _executors_at_work(spark: SparkSession) -> set[int]:
    """The executors that tasks of Python run on by now, by their process."""

    def mine(_: int) -> int:
        time.sleep(BUSY_S)
        return psutil.Process(os.getppid()).ppid()

    numbers = spark.sparkContext.parallelize(range(EXECUTORS), EXECUTORS)
    return set(numbers.map(mine).collect())


def _run(seed: int) -> ChaosRun:
    result = ordeal(
        seed=seed, records=RECORDS, epochs=EPOCHS, count=COUNT, faults=FAMILIES, evenly=True
    )
    result.assert_valid()
    console.print(f"seed {seed}: {result.verdict}, {result.run.seconds:.0f} s")
    return result.run


def _seconds(runs: Sequence[ChaosRun]) -> dict[str, list[float]]:
    """From each fault to the next commit, by kind."""
    found: dict[str, list[float]] = {}
    for each in (recovery for run in runs for recovery in recoveries(run.happenings)):
        assert each.seconds is not None, "the run is valid, so it went on"
        found.setdefault(each.fault, []).append(each.seconds)
    return found


def _table(runs: Sequence[ChaosRun]) -> Table:
    table = Table("fault", "times", "least, s", "median, s", "most, s")
    for fault, seconds in sorted(_seconds(runs).items()):
        figures = (min(seconds), median(seconds), max(seconds))
        table.add_row(fault, str(len(seconds)), *(f"{each:.1f}" for each in figures))
    return table


def _calm(runs: Sequence[ChaosRun], starts: Sequence[float]) -> str:
    """What an epoch takes, and what starting takes, on the same machine in the same hour."""
    epochs, leads = [], []
    for run in runs:
        epochs += [each.seconds for each in run.happenings if isinstance(each, Committed)]
        began = {each.driver: each.at_s for each in run.happenings if isinstance(each, Started)}
        leads += [e.at_s - began[e.driver] for e in run.happenings if isinstance(e, Led)]
    epoch, start = median(epochs), median(starts)
    killed = _seconds(runs)["executor.kill"]
    return (
        f"An epoch took {epoch:.1f} s at the median. Spark alone needed {min(starts):.1f} to "
        f"{max(starts):.1f} s, {start:.1f} at the median of {len(starts)}, from the kill of an "
        "executor to the first task of Python on the next. Two epochs and that are "
        f"{2 * epoch + start:.1f} s; after the kill of an executor the job needed "
        f"{median(killed):.1f} s at the median and {max(killed):.1f} at most. Drivers needed "
        f"{median(leads):.1f} s at the median from their start to leading, Spark's included."
    )


def _section(table: Table, runs: Sequence[ChaosRun], calm: str) -> str:
    where = f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    faults = sum(map(len, _seconds(runs).values()))
    seeds = ", ".join(str(run.seed) for run in runs)
    said = (
        f"`make bench-recovery`, {datetime.now(UTC):%Y-%m-%d}, {where}. A job of two operators "
        "with timers, a map and ages, four partitions, tables, Postgres and a topic, on "
        f"`{MASTER}` and moto behind a proxy; {len(runs)} runs of {RECORDS:,} records, "
        f"{faults} faults, one at a time, seeds {seeds}, each verdict valid. A driver that has "
        f"ended is started again at once. {calm}"
    )
    title = "## Recovery: from a fault to the next commit"
    return "\n\n".join([title, said, markdown(table)])


if __name__ == "__main__":
    main()
