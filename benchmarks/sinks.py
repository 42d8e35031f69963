"""What exactly-once costs: every sink beside a plain bulk write of the same rows.

    make bench-sinks                                  all of it
    python -m benchmarks.sinks --quick --dry          a quick try
    python -m benchmarks.sinks --only delta           one kind of server

Plain is what anybody would write who needs no promise: the same rows, the same server, the same
client library, without cursor, versions or tokens. Both ways take turns, epoch by epoch, and write
into targets of their own that grow alike. The leader's way begins with staged Arrow objects, which
it has to read.
"""

import argparse
import os
import platform
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.results import markdown, write_section
from benchmarks.sinks_data import SHARDS, Measured, measure
from benchmarks.sinks_peers import peers

ROUNDS, EPOCHS = 4, 3
PLOT = Path(__file__).with_name("sinks.png")
console = Console(highlight=False)


def main() -> None:
    """Measure, show, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=list(peers()), help="one kind of server")
    parser.add_argument("--quick", action="store_true", help="one round of one epoch")
    parser.add_argument("--dry", action="store_true", help="write nothing down")
    asked = parser.parse_args()
    rounds, epochs = (1, 1) if asked.quick else (ROUNDS, EPOCHS)
    found: list[Measured] = []
    for name, making in peers().items():
        if asked.only in (None, name):
            with tempfile.TemporaryDirectory() as folder, making(Path(folder)) as made:
                found += [measure(peer, rounds, epochs, console.print) for peer in made]
    table = _table(found)
    console.print(table)
    if not asked.dry:
        from benchmarks.sinks_plot import plot

        plot(found, PLOT)
        write_section("sinks", _section(found, table, rounds * epochs))


def _table(found: list[Measured]) -> Table:
    names = ("sink", "rows of an epoch", "plain, rows/s", "Penstock, rows/s", "overhead")
    table = Table(*names, "bar", "met", box=None)
    for each in found:
        bar = each.peer.bar
        table.add_row(
            each.peer.name,
            f"{each.peer.rows:,}",
            f"{each.plain_rate:,.0f}",
            f"{each.our_rate:,.0f}",
            f"{each.overhead:.0%}",
            "" if bar is None else f"≤ {bar:.0%}",
            "" if bar is None else "yes" if each.is_met else "no",
        )
    return table


def _section(found: list[Measured], table: Table, epochs: int) -> str:
    load = os.getloadavg()[2]
    machine = f"{os.cpu_count()} cores (load {load:.1f} over 15 minutes), {platform.system()}"
    ways = "\n".join(f"- {each.peer.name}: {each.peer.how}." for each in found)
    said = (
        f"`make bench-sinks`, {datetime.now(UTC):%Y-%m-%d}, {machine}, Python "
        f"{platform.python_version()}. Rows of four columns (text, whole number, fraction, moment) "
        f"in {SHARDS} shards that are written at the same time. {epochs} epochs of each way, in "
        "turn; compared is all rows over all seconds. An overhead below nothing means that our way "
        "was the faster one."
    )
    picture = "![rows per second of every sink](sinks.png)"
    return "\n\n".join(["## Sinks", said, markdown(table), picture, "The plain ways:", ways])


if __name__ == "__main__":
    main()
