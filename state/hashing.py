"""Hashes of files: of one that lies there, and of one that is still being written."""

import hashlib
import threading
from pathlib import Path

__all__ = ["GrowingHash", "sha256_of"]

CHUNK_BYTES = 1 << 20
PAUSE_S = 0.005


def sha256_of(path: Path) -> str:
    """The hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class GrowingHash:
    """The hash of a file that only ever grows, taken by a thread while another writes it.

    Hashing lets other threads run, so it costs the writer next to nothing.
    """

    def __init__(self, path: Path) -> None:
        self._hash = hashlib.sha256()
        self._file = path.open("rb", buffering=0)
        self._written = threading.Event()
        self._chunk = bytearray(CHUNK_BYTES)
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._follow, name="hashing", daemon=True)
        self._thread.start()

    def finish(self) -> str:
        """The hash, once everything is written."""
        self.stop()
        if self._failure is not None:
            raise self._failure
        return self._hash.hexdigest()

    def stop(self) -> None:
        """Let go of the file, whatever has become of it."""
        self._written.set()
        self._thread.join()
        self._file.close()

    def _follow(self) -> None:
        try:
            while not self._written.wait(PAUSE_S):
                self._read_on()
            self._read_on()
        except OSError as error:
            self._failure = error

    def _read_on(self) -> None:
        while count := self._file.readinto(self._chunk):
            self._hash.update(memoryview(self._chunk)[:count])
