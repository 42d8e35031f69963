"""What a download writes to, when that is no plain file.

One hashes what is written to it, so that it need not be read again to be verified; the other
keeps the bytes as they came, so that an object of one chunk is not copied.
"""

import hashlib
from collections.abc import Callable
from typing import BinaryIO, Protocol

__all__ = ["Chunks", "HashedFile", "Receiver"]


class Receiver(Protocol):
    """Promise: what is written after going back to the start takes the place of all before."""

    def write(self, chunk: bytes, /) -> int:
        """Add a chunk."""

    def seek(self, position: int, /) -> int:
        """Back to the start: a retried download starts over."""

    def truncate(self) -> int:
        """Forget what is behind the present position."""


class Chunks:
    """Bytes in memory. `check` is told how many there are, and raises if these are too many."""

    def __init__(self, check: Callable[[int], None]) -> None:
        self._chunks: list[bytes] = []
        self._check = check
        self._size_bytes = 0

    def write(self, chunk: bytes) -> int:
        """Keep a chunk."""
        self._size_bytes += len(chunk)
        self._check(self._size_bytes)
        self._chunks.append(chunk)
        return len(chunk)

    def seek(self, position: int) -> int:
        """Back to the start."""
        if position != 0:
            raise ValueError("chunks can only be rewound to their start")
        self._chunks.clear()
        self._size_bytes = 0
        return 0

    def truncate(self) -> int:
        """Nothing is ever behind the present position."""
        return 0

    def joined(self) -> bytes:
        """Everything that was written."""
        return b"".join(self._chunks)


class HashedFile:
    """What a download needs of a file: writing, and starting over. Without a file behind it, only
    the hash and the length are kept. `check` is told the length, and raises if it is too much."""

    def __init__(
        self, file: BinaryIO | None = None, check: Callable[[int], None] = lambda size_bytes: None
    ) -> None:
        self._file = file
        self._check = check
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    def hexdigest(self) -> str:
        """The hash of everything written since the start."""
        return self._hash.hexdigest()

    def write(self, chunk: bytes) -> int:
        """Write, and hash."""
        self._hash.update(chunk)
        self.size_bytes += len(chunk)
        self._check(self.size_bytes)
        return len(chunk) if self._file is None else self._file.write(chunk)

    def seek(self, position: int) -> int:
        """Back to the start: a retried download starts over."""
        if position != 0:
            raise ValueError("a hashed file can only be rewound to its start")
        self._hash = hashlib.sha256()
        self.size_bytes = 0
        return 0 if self._file is None else self._file.seek(0)

    def truncate(self) -> int:
        """Forget what is behind the present position."""
        return 0 if self._file is None else self._file.truncate()
