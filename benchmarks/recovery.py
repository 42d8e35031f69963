"""How long a job needs after each kind of fault: from the fault to the next commit.

    make bench-recovery                    all of it
    python -m benchmarks.recovery --dry    write nothing down

A chaos run (`penstock chaos`) of the job of the tests on two executors and S3, with faults one at a
time and calm epochs after each. The run must be valid, or its figures mean nothing.
"""

import argparse
import os
import platform
from datetime import UTC, datetime
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.results import markdown, write_section
from penstock.chaos.history import ChaosRun, Committed, Ended, Family, Led, Started, recoveries
from tests.support.ordeal import ordeal

SEED, RECORDS, EPOCHS, COUNT = 5, 32_000, 64, 14
FAMILIES = frozenset({Family.EXECUTOR, Family.WORKER, Family.DRIVER, Family.PAUSE})
console = Console(highlight=False)


def main() -> None:
    """Measure, show, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dry", action="store_true", help="write nothing down")
    asked = parser.parse_args()
    result = ordeal(
        seed=SEED, records=RECORDS, epochs=EPOCHS, count=COUNT, faults=FAMILIES, evenly=True
    )
    result.assert_valid()
    table = _table(result.run)
    console.print(table)
    console.print(_calm(result.run))
    if not asked.dry:
        write_section("recovery", _section(table, result.run))


def _table(run: ChaosRun) -> Table:
    found: dict[str, list[float]] = {}
    for each in recoveries(run.happenings):
        assert each.seconds is not None, "the run is valid, so it went on"
        found.setdefault(each.fault, []).append(each.seconds)
    table = Table("fault", "times", "least, s", "median, s", "most, s")
    for fault, seconds in sorted(found.items()):
        figures = (min(seconds), median(seconds), max(seconds))
        table.add_row(fault, str(len(seconds)), *(f"{each:.1f}" for each in figures))
    return table


def _calm(run: ChaosRun) -> str:
    """What an epoch takes, and what starting takes, on the same machine in the same run."""
    epochs = [each.seconds for each in run.happenings if isinstance(each, Committed)]
    drivers = {each.driver: each.at_s for each in run.happenings if isinstance(each, Started)}
    leads = [each.at_s - drivers[each.driver] for each in run.happenings if isinstance(each, Led)]
    ended = sum(isinstance(each, Ended) for each in run.happenings)
    return (
        f"An epoch took {median(epochs):.1f} s at the median; {ended} drivers needed "
        f"{median(leads):.1f} s at the median from their start to leading, Spark's start included."
    )


def _section(table: Table, run: ChaosRun) -> str:
    where = f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    faults = len(recoveries(run.happenings))
    said = (
        f"`make bench-recovery`, {datetime.now(UTC):%Y-%m-%d}, {where}. A job of two operators "
        "with timers, a map and ages, four partitions, tables, Postgres and a topic, on "
        f"`local-cluster[2,1,900]` and moto behind a proxy; {RECORDS:,} records, {faults} faults, "
        f"one at a time, seed {run.seed}, verdict {run.verdict}. A driver that has ended is "
        f"started again at once. {_calm(run)}"
    )
    title = "## Recovery: from a fault to the next commit"
    return "\n\n".join([title, said, markdown(table)])


if __name__ == "__main__":
    main()
