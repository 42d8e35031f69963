"""Where files are: what a folder holds, and reading one as it was when it was found.

A listing is walked, never held: a folder may have a million files that are none of ours. What
is opened is one version of a file; should the file be another by now, its bytes are not given.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from penstock.checkpoint.folder_errors import explained
from penstock.errors import Corrupt, Gone, Invalid
from penstock.sources.files_names import is_ignored

__all__ = [
    "ENDS_BYTES",
    "Folder",
    "Found",
    "Listing",
    "RangedFile",
    "changed",
    "hash_ends",
    "removed",
    "shown_time",
]

ENDS_BYTES = 1 << 14
"""How much of a file's beginning, and of its end, is hashed to know it again."""


class Found(NamedTuple):
    """A file in a listing."""

    path: str
    """Below the folder, with slashes."""
    size_bytes: int
    modified_us: int
    version: str
    """Another one as soon as the file is written again: an ETag, or the nanosecond."""
    wrong: str = ""
    """Why it can never be opened, if the listing knows."""
    is_weak: bool = False
    """Whether its version may stay the same though the file is another: a time can be set."""


class RangedFile(Protocol):
    """Promise: every byte it gives is of the version it was opened for."""

    @property
    def size_bytes(self) -> int:
        """How long it is."""

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Bytes from `position` on: as many as asked for, or up to the end.

        `Corrupt` if the file was changed, `Gone` if it was removed.
        """

    def close(self) -> None:
        """Let go of it."""


class Listing(Protocol):
    """Promise: every file that is there and finished is found, once; memory stays bounded."""

    def files(self, wanted: Callable[[str], bool], settled_us: int | None) -> Iterator[Found]:
        """Files whose path is wanted, in any order. Where a file can be seen half-written, only
        those last written at `settled_us` or before; None: all."""

    def open(self, path: str, size_bytes: int, version: str) -> RangedFile:
        """A file as it was found. `Corrupt` if it was changed, `Gone` if it was removed."""


class Folder:
    """A folder and all below it. Links to files are followed, links to folders are not."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def files(self, wanted: Callable[[str], bool], settled_us: int | None) -> Iterator[Found]:
        """The files that are wanted and were not written since `settled_us`."""
        self._check()
        bases = [""]
        while bases:
            base = bases.pop()
            below: list[str] = []
            for item in self._items(base):
                path = base + item.name
                if item.is_dir(follow_symlinks=False):
                    below += [] if is_ignored(item.name) else [f"{path}/"]
                elif wanted(path):
                    yield from self._found(item, path, settled_us)
            bases += sorted(below, reverse=True)

    def open(self, path: str, size_bytes: int, version: str) -> RangedFile:
        """A file as it was found."""
        if path.startswith("/") or ".." in path.split("/") or "\0" in path:
            raise Corrupt(
                f"file {path!r}",
                f"is recorded, and is not below {self._root}",
                "restore the record of files from a copy: it was altered or forged",
            )
        return _LocalFile(self._root / path, size_bytes, version)

    def _check(self) -> None:
        with explained(self._root.parent, self._root.name):
            if not self._root.is_dir():
                raise Invalid(
                    f"folder {self._root}",
                    "does not exist, or is no folder",
                    "create it or correct the path",
                )

    def _items(self, base: str) -> Iterator["os.DirEntry[str]"]:
        with explained(self._root, base or "."):
            try:
                with os.scandir(self._root / base) as items:
                    yield from items
            except FileNotFoundError:  # removed since the folder above it was read
                return

    def _found(
        self, item: "os.DirEntry[str]", path: str, settled_us: int | None
    ) -> Iterator[Found]:
        with explained(self._root, path):
            try:
                status = item.stat()
            except FileNotFoundError:  # removed since its folder was read, or a link to nowhere
                return
        modified_us = status.st_mtime_ns // 1000
        if not stat.S_ISREG(status.st_mode) or (
            settled_us is not None and modified_us > settled_us
        ):
            return
        shown = path.encode("utf-8", "backslashreplace").decode()
        wrong = "" if shown == path else "its name is not UTF-8"
        yield Found(shown, status.st_size, modified_us, str(status.st_mtime_ns), wrong, True)


class _LocalFile:
    """A file of a folder. Looked at after every read: what was read before is the version."""

    def __init__(self, path: Path, size_bytes: int, version: str) -> None:
        self._path = path
        self._version = version
        self.size_bytes = size_bytes
        with explained(path.parent, path.name):
            try:
                self._descriptor = os.open(path, os.O_RDONLY)
            except FileNotFoundError as error:
                raise removed(f"file {path}") from error
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Bytes from `position` on."""
        parts, left = [], min(size_bytes, self.size_bytes - position)
        with explained(self._path.parent, self._path.name):
            while left > 0 and (part := os.pread(self._descriptor, left, position)):
                parts.append(part)
                position += len(part)
                left -= len(part)
        self._check()
        return b"".join(parts)

    def close(self) -> None:
        """Let go of it."""
        os.close(self._descriptor)

    def _check(self) -> None:
        status = os.fstat(self._descriptor)
        version = str(status.st_mtime_ns)
        if (status.st_size, version) != (self.size_bytes, self._version):
            was = f"{self.size_bytes} bytes written at {shown_time(int(self._version) // 1000)}"
            now = f"{status.st_size} bytes written at {shown_time(status.st_mtime_ns // 1000)}"
            raise changed(f"file {self._path}", was, now)


def hash_ends(file: RangedFile) -> str:
    """A hash of how a file begins and ends, for places whose versions are weak. A file as short as
    both together is hashed whole; of a longer one, what is between goes by size and time alone."""
    whole = hashlib.sha256(file.read_at(0, ENDS_BYTES))
    whole.update(file.read_at(max(0, file.size_bytes - ENDS_BYTES), ENDS_BYTES))
    return whole.hexdigest()[:32]


def shown_time(time_us: int) -> str:
    """A moment as people read it."""
    return datetime.fromtimestamp(time_us / 1_000_000, UTC).isoformat()


def changed(subject: str, was: str, now: str) -> Corrupt:
    """What is said of a file that is another one than was recorded."""
    return Corrupt(
        subject,
        f"was changed after it was recorded: it had {was}, and has {now}",
        "put it back as it was, and give new rows to a file of a new name",
    )


def removed(subject: str) -> Gone:
    """What is said of a file that is no longer there."""
    return Gone(
        subject,
        "was recorded and is no longer there",
        "put it back as it was, or go on from an offset behind it and accept the gap",
    )
