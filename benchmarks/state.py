"""How near to bare RocksDB the state engine is, and what a partition costs to keep and restore.

    make bench-state                                  1 M and 10 M keys
    python -m benchmarks.state --sizes 100000         a quick try

Every measurement of one size is one function in `MEASUREMENTS`; it takes a `Data` and returns
rows. What needs a store is in `state_restore`, and is judged at the largest size or over all.
"""

import argparse
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.restoring import BUILD_CHUNK
from benchmarks.results import markdown, write_section
from benchmarks.state_data import KEY_BYTES, ROUNDS, VALUE_BYTES, Data, Row
from benchmarks.state_density import Density, crossover, densities, density_table
from benchmarks.state_memory import memory, peak
from benchmarks.state_restore import idle_row, restore_rows, upload_rows
from benchmarks.state_speed import opening, pages, reading, writing

SIZES = (1_000_000, 10_000_000)
MEASUREMENTS: tuple[Callable[[Data], list[Row]], ...] = (reading, writing, pages, opening, memory)


def row_table(rows: list[Row]) -> Table:
    """Everything measured, with its bar."""
    table = Table("keys", "what", "Penstock", "compared with", "ratio", "bar", "met")
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        met = {None: "", True: "yes", False: "no"}[row.met]
        table.add_row(f"{row.keys:,}", row.what, row.figure, row.compared, ratio, row.bar, met)
    return table


def report(rows: list[Row], found: list[Density], keys: int) -> str:
    """The section of RESULTS.md."""
    machine = (
        f"{os.cpu_count()} cores (load {os.getloadavg()[2]:.1f} over 15 minutes), "
        f"{platform.system()}, Python {platform.python_version()}"
    )
    return "\n".join(
        [
            "## State",
            "",
            f"`make bench-state`, {datetime.now(UTC):%Y-%m-%d}, {machine}. Keys of {KEY_BYTES} "
            f"bytes, values of {VALUE_BYTES}, random. Compared is with bare rocksdict, unless a "
            "row says otherwise: a database with default options, and a loop that writes an SST "
            "with those of a delta. Bare loops are given their keys sorted, `Columns` in the order "
            "of events. Databases are compacted; every rate is measured "
            f"{ROUNDS} times in turn, and the best counts.",
            "",
            "The store is a folder on the same disk, so a download is a copy and a check of its "
            "hash. A replay reads a delta as a changelog and puts its records one by one, at most "
            f"{BUILD_CHUNK:,} of them. Uploaded are deltas and snapshots, without manifests.",
            "",
            markdown(row_table(rows)),
            "",
            f"Pages or an entry per key: one epoch that reads and changes a share of {keys:,} "
            f"keys and writes its delta, the best of {ROUNDS}.",
            "",
            markdown(density_table(found)),
            "",
            f"{crossover(found)} Their delta is the larger one until nearly all keys change.",
        ]
    )


def measure(sizes: list[int]) -> tuple[list[Row], list[Density]]:
    """Every measurement at every size; the densities at the smallest."""
    rows: list[Row] = []
    found: list[Density] = []
    for keys in sizes:
        folder = Path(tempfile.mkdtemp(prefix="bench-state-"))
        try:
            data = Data(keys, folder)
            found = found or densities(data)
            for measurement in MEASUREMENTS:
                rows += measurement(data)
                print(f"{keys:,} keys: {measurement.__name__} done", file=sys.stderr)
        finally:
            shutil.rmtree(folder)
    return rows + restore_rows(sizes) + upload_rows(sizes) + [idle_row()], found


def main() -> None:
    """Measure, show, and write it down."""
    parser = argparse.ArgumentParser(
        description="How near to bare RocksDB state is, and what it costs to keep."
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="keys")
    parser.add_argument("--dry", action="store_true", help="leave RESULTS.md as it is")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print(peak(options.peak, Data(options.sizes[0], Path()), options.folder))
        return
    sizes = sorted(options.sizes)
    rows, found = measure(sizes)
    console = Console()
    console.print(row_table(rows))
    console.print(density_table(found))
    console.print(crossover(found))
    if not options.dry:
        write_section("state", report(rows, found, sizes[0]))


if __name__ == "__main__":
    main()
