"""A store whose network is bad, in ways that a test decides beforehand."""

import threading
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, TypeVar

from penstock.checkpoint.store import ObjectStore
from penstock.effects import Entry, Stored
from penstock.errors import Unavailable
from penstock.ids import ETag, Key

__all__ = ["ALWAYS", "FaultyStore", "Gate"]

ALWAYS = range(1, 1 << 62)
"""Every call there is."""

GATE_S_MAX = 60.0

R = TypeVar("R")


@dataclass
class FaultyStore:
    """Another store behind a wire that loses some requests, and the answers to some others.

    Calls are counted from 1 for each operation, by its name.
    """

    store: ObjectStore
    requests: Mapping[str, Container[int]] = field(default_factory=dict)
    """The calls that never arrive."""
    answers: Mapping[str, Container[int]] = field(default_factory=dict)
    """The calls that arrive and are done, and whose answer is lost."""
    counted: Counter[str] = field(default_factory=Counter)

    def get(self, key: Key) -> Stored | None:
        return self._over("get", key, lambda: self.store.get(key))

    def put(self, key: Key, body: bytes) -> None:
        self._over("put", key, lambda: self.store.put(key, body))

    def create(self, key: Key, body: bytes) -> ETag | None:
        return self._over("create", key, lambda: self.store.create(key, body))

    def replace(self, key: Key, body: bytes, etag: ETag) -> ETag | None:
        return self._over("replace", key, lambda: self.store.replace(key, body, etag))

    def delete(self, key: Key) -> None:
        self._over("delete", key, lambda: self.store.delete(key))

    def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        return self._over("list", prefix, lambda: self.store.list(prefix, after))

    def upload(self, key: Key, source: BinaryIO) -> None:
        self._over("upload", key, lambda: self.store.upload(key, source))

    def download(self, key: Key, target: BinaryIO) -> bool:
        return self._over("download", key, lambda: self.store.download(key, target))

    def _over(self, operation: str, key: str, work: Callable[[], R]) -> R:
        self.counted[operation] += 1
        number = self.counted[operation]
        if number in self.requests.get(operation, ()):
            raise Unavailable(key, "was not reached", "try again")
        answer = work()
        if number in self.answers.get(operation, ()):
            raise Unavailable(key, "did not answer", "try again")
        return answer


class Gate(FaultyStore):
    """A store whose uploads stand before a gate until it is opened."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.reached, self.open = threading.Event(), threading.Event()

    def put(self, key: Key, body: bytes) -> None:
        self.reached.set()
        assert self.open.wait(GATE_S_MAX)
        super().put(key, body)
