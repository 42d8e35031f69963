"""Locks of a folder store: a fixed set of files, one of which guards each key.

An flock belongs to an open file, so it excludes threads as well as processes, and the
kernel gives it back when its holder dies. It does not when its holder is only stopped:
waiting is therefore bounded, and the holder is still right to go on when it wakes, because
nobody else was let in. A share that hands a sleeping client's lock to another breaks this: keep
a root on a local file system, or on a share that does not, or on an object store.
"""

import fcntl
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.clock import Clock
from penstock.errors import Unavailable

__all__ = ["LOCK_FILES", "LOCK_WAIT_S_MAX", "FolderLocks"]

LOCK_FILES = 64
LOCK_WAIT_S_MAX = 10.0
LOCK_POLL_S = 0.002


class FolderLocks:
    """Promise: of all processes and threads that hold the lock of one key, there is one."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    @contextmanager
    def held(self, key: str) -> Iterator[None]:
        """Hold the lock of `key`, waiting at most `LOCK_WAIT_S_MAX` for it."""
        path = self.path(key)
        self._folder.mkdir(exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            self._take(descriptor, path)
            yield
        finally:
            # Closing is not enough: a process forked meanwhile has the file open too.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def path(self, key: str) -> Path:
        """The lock file of `key`: the same in every process and every version."""
        return self._folder / f"{zlib.crc32(key.encode()) % LOCK_FILES:02d}"

    def _take(self, descriptor: int, path: Path) -> None:
        deadline = self._clock.monotonic() + LOCK_WAIT_S_MAX
        while not _try_lock(descriptor):
            if self._clock.monotonic() >= deadline:
                raise Unavailable(
                    f"lock file {path}",
                    f"has been held for {LOCK_WAIT_S_MAX:.0f} s by a process that has stopped",
                    "find it with lslocks, continue it (kill -CONT) or end it, and try again",
                )
            self._clock.sleep(LOCK_POLL_S)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
