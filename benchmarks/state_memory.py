"""How much memory reading takes at most, against the bound that the settings promise.

    bound = block cache + fetched bytes + the process itself

The process itself is a fresh one that makes the same batches and opens no database. Whatever else
the engine takes has to fit under the bound, too: nothing is allowed on top of it.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
from rocksdict import Options, Rdict

from benchmarks.state_data import GROUP_KEYS, SETTINGS, Data, Row, columns
from benchmarks.state_speed import overlay_read
from penstock.state.database import PartitionDatabase
from penstock.state.keys import encode_key
from penstock.state.layout import DATA, section_prefix
from penstock.state.overlay import Overlay

__all__ = ["memory", "peak"]

BATCHES = {"overlay": "lists", "columns": "arrays"}
"""What each reader is given; a process that only makes these is its base."""


def memory(data: Data) -> list[Row]:
    """The peak of a fresh process that reads every key, batch by batch."""
    readers: dict[str, Path | str] = {
        "overlay": data.engine,
        "columns": data.paged,
        "bare": data.bare,
        **dict.fromkeys(BATCHES.values(), ""),
    }
    peaks = {reader: _peak_of(reader, data.keys, folder) for reader, folder in readers.items()}
    return [_row(data.keys, reader, peaks) for reader in BATCHES]


def _row(keys: int, reader: str, peaks: dict[str, int]) -> Row:
    parts = {
        "block cache": SETTINGS.block_cache_bytes,
        "fetched": SETTINGS.fetched_bytes,
        "process": peaks[BATCHES[reader]],
    }
    bound, bare = sum(parts.values()), peaks["bare"]
    spelled = " + ".join(f"{name} {size_bytes >> 20}" for name, size_bytes in parts.items())
    return Row(
        keys,
        f"peak memory, {reader}, batches of {GROUP_KEYS:,}; the bound is {spelled} MiB",
        f"{peaks[reader] >> 20} MiB",
        f"{bare >> 20} MiB",
        peaks[reader] / bare,
        f"≤ {bound >> 20} MiB",
        peaks[reader] <= bound,
    )


def _peak_of(reader: str, keys: int, folder: Path | str) -> int:
    command = [sys.executable, "-m", "benchmarks.state", "--peak", reader]
    command += ["--sizes", str(keys), "--folder", str(folder)]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def peak(reader: str, data: Data, folder: str) -> int:
    """Read everything, or only make the batches for it; the most memory that took, in bytes."""
    if reader == "bare":
        bare = Rdict(folder, Options(raw_mode=True))
    elif reader in BATCHES:
        database = PartitionDatabase(Path(folder), SETTINGS)
    for number in range(data.groups):
        if reader == "columns":
            keys, _ = data.columns(number)
            groups = np.full(len(keys), number, np.uint16)
            view = columns(Overlay(database, SETTINGS.fetched_bytes))
            assert view.get_many(keys, groups)[1].all()
        elif reader == "overlay":
            prefix = section_prefix(number, DATA)
            entries = [prefix + encode_key(key) + b"\x00" for key in data.group(number)[0]]
            assert None not in overlay_read(database, entries)
        elif reader == "bare":
            assert None not in bare.get(data.group(number)[0])
        elif reader == "arrays":
            data.columns(number)
        else:
            data.group(number)
    # Not getrusage: its maximum is kept over exec, and is then that of the parent.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
