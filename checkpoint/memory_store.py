"""`MemoryStore`: an object store in one process's memory, for tests, demos and the simulator."""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import BinaryIO

from penstock.checkpoint.hashed_file import Receiver
from penstock.checkpoint.store import PAGE_ENTRIES_MAX, check_key
from penstock.clock import Clock, SystemClock
from penstock.effects import Entry, Stored
from penstock.ids import ETag, Key

__all__ = ["MemoryStore"]


class MemoryStore:
    """Atomic by one lock. Its ETags are a counter, so a version never comes back."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._objects: dict[Key, tuple[Stored, float]] = {}
        self.page_entries_max = PAGE_ENTRIES_MAX
        self._writes = 0

    def copied(self) -> "MemoryStore":
        """Another store with the same objects, which each go their own way from here on."""
        twin = MemoryStore(self._clock)
        with self._lock:
            twin._objects, twin._writes = dict(self._objects), self._writes
        twin.page_entries_max = self.page_entries_max
        return twin

    def get(self, key: Key) -> Stored | None:
        """The object and its version, or None."""
        check_key(key)
        with self._lock:
            return self._current(key)

    def put(self, key: Key, body: bytes) -> None:
        """Write the object, whatever was there."""
        with self._lock:
            self._write(key, body)

    def create(self, key: Key, body: bytes) -> ETag | None:
        """Write the object if there is none."""
        with self._lock:
            return self._write(key, body) if self._current(key) is None else None

    def replace(self, key: Key, body: bytes, etag: ETag) -> ETag | None:
        """Write the object if its version is `etag`."""
        check_key(key)
        with self._lock:
            current = self._current(key)
            if current is None or current.etag != etag:
                return None
            return self._write(key, body)

    def delete(self, key: Key) -> None:
        """Remove the object; no error if there is none."""
        check_key(key)
        with self._lock:
            self._objects.pop(key, None)

    def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        """The next page of entries below `prefix`, in key order."""
        with self._lock:
            keys = sorted(self._objects)
            start = max(bisect_left(keys, prefix), bisect_right(keys, after))
            page = [k for k in keys[start : start + self.page_entries_max] if k.startswith(prefix)]
            return [self._entry(key) for key in page]

    def upload(self, key: Key, source: BinaryIO) -> None:
        """Write an object from a file."""
        self.put(key, source.read())

    def download(self, key: Key, target: Receiver) -> bool:
        """Read an object into a file."""
        stored = self.get(key)
        if stored is not None:
            target.write(stored.body)
        return stored is not None

    def _current(self, key: Key) -> Stored | None:
        found = self._objects.get(key)
        return None if found is None else found[0]

    def _write(self, key: Key, body: bytes) -> ETag:
        check_key(key)
        self._writes += 1
        etag = ETag(f"m{self._writes}")
        self._objects[key] = (Stored(bytes(body), etag), self._clock.wall())
        return etag

    def _entry(self, key: Key) -> Entry:
        stored, modified_s = self._objects[key]
        return Entry(key, len(stored.body), modified_s)
