"""Staging files of a folder store: an object's bytes, durable before the object has its name.

A crash leaves a staging file behind, which no reader ever sees. Its name says which process
on which host was writing it, so that the next one to open the folder on that host can tell
that it is dead and sweep it. Another host's files are left to that host.
"""

import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.clock import Chance

__all__ = ["Staging"]


class Staging:
    """Promise: a file that was handed out is on disk, and is gone when it is given back."""

    def __init__(self, folder: Path, chance: Chance) -> None:
        self._folder = folder
        self._chance = chance
        self._host = socket.gethostname()

    @contextmanager
    def holding(self, chunks: Iterable[bytes]) -> Iterator[Path]:
        """A durable file of these chunks, to be renamed away; removed if it was not."""
        path = self._folder / f"{os.getpid()}@{self._host}@{self._chance.unique()}"
        try:
            _write(path, chunks)
            yield path
        finally:
            path.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what dead processes of this host left behind; whoever may not, does not."""
        with suppress(OSError):
            for path in list(self._folder.iterdir()):
                if self._is_orphan(path.name):
                    path.unlink(missing_ok=True)

    def _is_orphan(self, name: str) -> bool:
        pid, _, rest = name.partition("@")
        host, _, _ = rest.rpartition("@")
        return host == self._host and pid.isdigit() and not _is_alive(int(pid))


def _write(path: Path, chunks: Iterable[bytes]) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("xb") as file:
        file.writelines(chunks)
        file.flush()
        os.fsync(file.fileno())


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
