"""A running inventory, and what becomes of events that make no sense.

Taking more out of a warehouse than there is raises. With `on_error="quarantine"` such an event does
not stop the job: it becomes a dead letter, in the same commit as everything else, and the stock
stays as it was. Once the missing delivery is booked, the letter is replayed.

    python examples/inventory.py
    penstock run examples/inventory.py --root scratch/inventory/root --until caught-up

The first tells the whole story. The second processes whatever has been booked since in
scratch/inventory/log, or in the log that INVENTORY_LOG names.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock as ps

FOLDER = "scratch/inventory"
COLUMNS = pa.schema([("item", pa.string()), ("change", pa.int64())])
PENSTOCK = [sys.executable, "-c", "from penstock.runtime.cli import main; main()"]
"""The command `penstock` of this very Python, whatever the shell would find."""


@ps.stateful(emits="item string, stock long", each=True)
def book(item: str, event: ps.Event, stock: ps.Value[int]) -> Iterator[dict[str, Any]]:
    """The stock of an item after each booking."""
    left = stock.get(0) + event.change
    if left < 0:
        raise ValueError(f"{-event.change} taken, and there are {stock.get(0)}")
    stock.set(left)
    yield {"item": item, "stock": left}


def inventory_job(log: str) -> ps.Job:
    """The job on a log of bookings, which are processed in the order they were made in."""
    job = ps.Job("inventory", partitions=2, order="log")
    (
        job.read(ps.Log(log), name="bookings")
        .key_by("item")
        .process(book, on_error="quarantine")
        .write(ps.Table("stock"))
    )
    return job


job = inventory_job(os.environ.get("INVENTORY_LOG", f"{FOLDER}/log"))


def book_and_run(folder: str, *bookings: tuple[str, int]) -> None:
    """Append bookings, process them, and show the stock."""
    if not Path(f"{folder}/log").exists():
        ps.Log.create(f"{folder}/log", COLUMNS)
    with ps.Log(f"{folder}/log").producer() as producer:
        producer.append([{"item": item, "change": change} for item, change in bookings])
    inventory_job(f"{folder}/log").run(f"{folder}/root", until="caught-up", master="local[2]")
    stock = ps.read_table(f"{folder}/root", "stock", latest_by="item").sort_by("item")
    print("   stock:", ", ".join(f"{r['item']} {r['stock']}" for r in stock.to_pylist()))


def dead_letters(command: str, folder: str) -> None:
    """What `penstock dead-letters` says."""
    print(f"   $ penstock dead-letters {command} {folder}/root", flush=True)
    subprocess.run([*PENSTOCK, "dead-letters", command, f"{folder}/root"], check=True)


def main(folder: str) -> None:
    """The story, step by step. It ends with as much as it began with, so it can be told again."""
    print("1. Five bolts and nine nuts come in; eight bolts and nine nuts go out.")
    book_and_run(folder, ("bolt", 5), ("nut", 9), ("bolt", -8), ("nut", -9))
    print("2. Eight bolts cannot go out of five: that booking is a dead letter.")
    dead_letters("list", folder)
    print("3. The delivery nobody had booked is booked, and the letter is replayed.")
    dead_letters("replay", folder)
    book_and_run(folder, ("bolt", 3))
    dead_letters("list", folder)


if __name__ == "__main__":
    main(*sys.argv[1:2] or [FOLDER])
