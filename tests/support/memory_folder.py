"""A temporary folder in memory: what tests write need not outlive the machine.

A commit on a folder waits for the disk about fifteen times. Tests kill processes and never the
power, so what they prove is the same in memory, in a fifth of the time.
"""

import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
FREE_BYTES_MIN = 8 << 30


def use_memory() -> None:
    """Let this process and its children make temporary files in memory, where there is enough of
    it and programs may be started from there. PENSTOCK_TESTS_ON_DISK=1 keeps them on disk."""
    if "TMPDIR" in os.environ or os.environ.get("PENSTOCK_TESTS_ON_DISK") or not _is_fit():
        return
    os.environ["TMPDIR"] = os.environ["PYTEST_DEBUG_TEMPROOT"] = str(MEMORY)
    tempfile.tempdir = None  # it may have been looked up before


def _is_fit() -> bool:
    if not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK | os.X_OK):
        return False
    if os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        return False
    return min(shutil.disk_usage(MEMORY).free, _available_bytes()) >= FREE_BYTES_MIN


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, amount = line.partition(":")
        if name == "MemAvailable":
            return int(amount.split()[0]) << 10
    return 0
