"""A file that hashes what is written to it, so that it need not be read again to be verified."""

import hashlib
from typing import BinaryIO

__all__ = ["HashedFile"]


class HashedFile:
    """What a download needs of a file: writing, and starting over. Without a file behind it, only
    the hash and the length are kept."""

    def __init__(self, file: BinaryIO | None = None) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    def hexdigest(self) -> str:
        """The hash of everything written since the start."""
        return self._hash.hexdigest()

    def write(self, chunk: bytes) -> int:
        """Write, and hash."""
        self._hash.update(chunk)
        self.size_bytes += len(chunk)
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
