"""An audit of ten million rows: how fast, and in how much memory.

    make bench-audit                                  all of it
    python -m benchmarks.audit --rows 1000000 --dry   a quick try

Rows are staged as tasks stage them and committed as a leader commits them, as a table; the same
rows again as outputs for sinks, which a topic and a Postgres then hold. Each audit runs in a
process of its own; its peak is what the system says of that process, and beside it stands a process
that only imports the audit.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.audit_data import EPOCHS, PARTITIONS, build, topology_of
from benchmarks.results import markdown, write_section

ROWS = 10_000_000
WAYS = {
    "nothing": "a process that imports the audit",
    "table": "a table: hashes, numbering, traces",
    "sinks": "the same rows in a topic, by what is in them, and their staged objects",
}
console = Console(highlight=False)


def main() -> None:
    """Measure, show, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--dry", action="store_true", help="write nothing down")
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(_one(asked.one, asked.folder)))
        return
    with tempfile.TemporaryDirectory() as folder:
        found = _measured(Path(folder), asked.rows)
    table = _table(found)
    console.print(table)
    if not asked.dry:
        write_section("audit", _section(table, asked.rows))


def _measured(folder: Path, rows: int) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for way in WAYS:
        at = folder / way
        if way != "nothing":
            console.print(f"making {rows:,} rows for {way} …")
            build(at, rows, way)
        command = [sys.executable, "-m", "benchmarks.audit", "--one", way, "--folder", str(at)]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found[way] = json.loads(told)
        console.print(way, found[way])
    return found


def _one(way: str, folder: Path) -> dict[str, float]:
    """One audit in this process, and what it took."""
    from penstock.chaos.audit import audit
    from penstock.checkpoint.root import Root

    started_s, rows = time.perf_counter(), 0
    if way != "nothing":
        root = Root.open(str(folder / "root"))
        done = audit(root, topology_of(folder) if way == "sinks" else None).audited
        assert done.verdict == "valid", [check for check in done.checks if check.unknown]
        counted = [check.counted for check in done.checks]
        rows = sum(each.get("rows", 0) for each in counted)
    seconds = time.perf_counter() - started_s
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"rows": rows, "seconds": seconds, "peak_bytes": peak}


def _table(found: dict[str, dict[str, float]]) -> Table:
    table = Table("audit", "rows", "seconds", "rows/s", "peak memory", box=None)
    for way, said in WAYS.items():
        each = found[way]
        rate = each["rows"] / each["seconds"] if each["rows"] else 0
        table.add_row(
            said,
            f"{each['rows']:,.0f}",
            f"{each['seconds']:.1f}",
            f"{rate:,.0f}" if rate else "",
            f"{int(each['peak_bytes']) >> 20} MiB",
        )
    return table


def _section(table: Table, rows: int) -> str:
    load = os.getloadavg()[2]
    machine = f"{os.cpu_count()} cores (load {load:.1f} over 15 minutes), {platform.system()}"
    said = (
        f"`make bench-audit`, {datetime.now(UTC):%Y-%m-%d}, {machine}, Python "
        f"{platform.python_version()}. {rows:,} output rows of four columns in {EPOCHS} epochs of "
        f"{PARTITIONS} partitions on a folder, all of them valid. Each audit is a process of its "
        "own, and its peak is that of the whole process."
    )
    return "\n\n".join(["## Audit", said, markdown(table)])


if __name__ == "__main__":
    main()
