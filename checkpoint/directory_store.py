"""`DirectoryStore`: an object store in a folder, on a local disk or a share with locks.

    <folder>/<key>       an object is a file; its ETag is the sha256 of its contents
    <folder>/.staging/   bytes on their way to becoming an object
    <folder>/.locks/     the files whose locks make a conditional write atomic

Every write takes the same steps, in this order:

1. Stage: write the bytes under a name of their own and fsync them.
2. Lock the key. Between here and 4 nothing waits for a disk.
3. Compare the object's version with the expected one, if one is expected.
4. Rename the staged file to the key, and unlock.
5. Fsync the folders above it. Only now does the write return.

A crash before 4 leaves a staging file; the next process on the host sweeps it. A crash
after 4 leaves the object, whole. Readers take no lock, because a rename is atomic.
Opening changes nothing: the folder is made by the first write. Links below it are refused.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from penstock.checkpoint.folder_errors import explained
from penstock.checkpoint.folder_links import open_regular, refuse_link, refuse_links_above
from penstock.checkpoint.folder_locks import FolderLocks
from penstock.checkpoint.folder_staging import Staging
from penstock.checkpoint.folder_walk import walk
from penstock.checkpoint.hashed_file import Receiver
from penstock.checkpoint.store import PAGE_ENTRIES_MAX, check_key, check_size
from penstock.clock import Chance, Clock, SystemChance, SystemClock
from penstock.effects import Entry, Stored
from penstock.errors import Corrupt, Unavailable
from penstock.ids import ETag, Key

__all__ = ["DirectoryStore"]

CHUNK_BYTES = 8 << 20
PLACE_ATTEMPTS_MAX = 20


class DirectoryStore:
    """Atomic by file locks and renames; durable by fsync."""

    def __init__(
        self, folder: Path | str, clock: Clock | None = None, chance: Chance | None = None
    ) -> None:
        self._folder = Path(folder).absolute()
        self._locks = FolderLocks(self._folder / ".locks", clock or SystemClock())
        self._staging = Staging(self._folder / ".staging", chance or SystemChance())
        self._ready = False

    def get(self, key: Key) -> Stored | None:
        """The object and its version, or None."""
        with self._explained(key):
            return self._read(key)

    def put(self, key: Key, body: bytes) -> None:
        """Write the object, whatever was there."""
        with self._explained(key):
            self._write(key, [body], lambda: True)

    def create(self, key: Key, body: bytes) -> ETag | None:
        """Write the object if there is none."""
        return self._write_if(key, body, None)

    def replace(self, key: Key, body: bytes, etag: ETag) -> ETag | None:
        """Write the object if its version is `etag`."""
        return self._write_if(key, body, etag)

    def delete(self, key: Key) -> None:
        """Remove the object and the folders it leaves empty; no error if there is none."""
        with self._explained(key):
            path = self._path(key)
            refuse_links_above(self._folder, key)
            if not path.is_file():
                return
            with self._locks.held(key):
                path.unlink(missing_ok=True)
            self._prune(path.parent)
            self._settle(path.parent)

    def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        """The next page of entries below `prefix`, in key order."""
        with explained(self._folder, prefix):
            return list(islice(walk(self._folder, prefix, after), PAGE_ENTRIES_MAX))

    def upload(self, key: Key, source: BinaryIO) -> None:
        """Write an object from a file, a chunk at a time."""
        with self._explained(key):
            self._write(key, _chunks(source), lambda: True)

    def download(self, key: Key, target: Receiver) -> bool:
        """Read an object into a file, a chunk at a time."""
        with self._explained(key):
            file = self._open(key)
        if file is None:
            return False
        with file:
            # Never more than is left: large memory that is asked for in vain is slow all the same.
            left_bytes = os.fstat(file.fileno()).st_size
            while chunk := self._read_chunk(key, file, min(CHUNK_BYTES, left_bytes)):
                target.write(chunk)
                left_bytes -= len(chunk)
        return True

    def _explained(self, key: Key) -> AbstractContextManager[None]:
        return explained(self._folder, check_key(key))

    def _path(self, key: Key) -> Path:
        return self._folder / key

    def _open(self, key: Key) -> BinaryIO | None:
        """The object's file. One open file is one version, whatever is renamed over it."""
        return open_regular(self._folder, key)

    def _read_chunk(self, key: Key, file: BinaryIO, size_bytes: int) -> bytes:
        """Errors of the object only: those of the file it is copied to are the caller's."""
        with self._explained(key):
            return file.read(size_bytes)

    def _read(self, key: Key) -> Stored | None:
        file = self._open(key)
        if file is None:
            return None
        with file:
            size_bytes = os.fstat(file.fileno()).st_size
            check_size(key, size_bytes)
            body = file.read(size_bytes)
        return Stored(body, _etag(body))

    def _version(self, key: Key) -> ETag | None:
        stored = self._read(key)
        return None if stored is None else stored.etag

    def _write_if(self, key: Key, body: bytes, expected: ETag | None) -> ETag | None:
        """Write if the version is the expected one, where None is that of no object."""
        with self._explained(key):
            # Not needed for safety: it spares a writer that is late the staging.
            if self._version(key) != expected:
                return None
            written = self._write(key, [body], lambda: self._version(key) == expected)
            return _etag(body) if written else None

    def _write(self, key: Key, chunks: Iterable[bytes], fits: Callable[[], bool]) -> bool:
        """The five steps. False if `fits` said no under the lock."""
        self._make_root()
        with self._staging.holding(chunks) as staged:  # 1
            for _ in range(PLACE_ATTEMPTS_MAX):
                # A delete in the same folder may prune it while we make it or rename into it.
                try:
                    return self._place(key, staged, fits)
                except FileNotFoundError:
                    continue
                except FileExistsError:
                    if self._is_blocked(key):
                        raise
        raise Unavailable(
            f"object {key!r}",
            "kept losing its folder to deletes in the same folder",
            "try again when they are done",
        )

    def _place(self, key: Key, staged: Path, fits: Callable[[], bool]) -> bool:
        """Steps 2 to 5."""
        path = self._path(key)
        refuse_links_above(self._folder, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._locks.held(key):  # 2
            if not fits():  # 3
                return False
            staged.replace(path)  # 4
        try:
            self._settle(path.parent)  # 5
        except OSError as error:
            # Everybody sees the write, and a power cut may undo it: nobody can call that done.
            raise Corrupt(
                f"object {key!r}",
                f"was written, but the disk failed to confirm it ({error.strerror})",
                "check the disk, then start again",
            ) from error
        return True

    def _make_root(self) -> None:
        """Make the folder, durably, before this process's first write to it: also one that is
        there, for whoever made it may not have come as far as its fsync."""
        if self._ready:
            return
        missing = [folder for folder in self._folder.parents if not folder.exists()]
        self._folder.mkdir(parents=True, exist_ok=True)
        for folder in (self._folder, *missing):
            _fsync_folder(folder.parent)
        for own in (".staging", ".locks"):
            refuse_link(f"{self._folder}/{own}", own)
        self._staging.sweep()
        self._ready = True

    def _is_blocked(self, key: Key) -> bool:
        """Whether a file stands where the key needs a folder."""
        parents = [self._folder, *(self._folder / parent for parent in Path(key).parents)]
        return any(parent.is_file() for parent in parents)

    def _prune(self, folder: Path) -> None:
        """Remove the folders that have become empty, or else epochs leave them by the million."""
        with suppress(OSError):  # the first that is not empty ends it
            while folder != self._folder:
                folder.rmdir()
                folder = folder.parent

    def _settle(self, folder: Path) -> None:
        """Fsync from `folder` up to the root. All of them: one that was already there may have
        been made a moment ago by a process that has not come this far."""
        while True:
            with suppress(FileNotFoundError):  # deleted and pruned since by somebody else
                _fsync_folder(folder)
            if folder == self._folder:
                return
            folder = folder.parent


def _etag(body: bytes) -> ETag:
    return ETag(hashlib.sha256(body).hexdigest())


def _chunks(source: BinaryIO) -> Iterator[bytes]:
    while chunk := source.read(CHUNK_BYTES):
        yield chunk


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
