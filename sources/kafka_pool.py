"""Clients of a Kafka that are open and used by nobody, kept for whoever asks next.

Spark unpickles a source anew for every task, and connecting takes longer than a short range does
to read; so what outlives a task belongs to the process. A client is kept under everything it was
told, secrets included: who says something else gets another one. Only a client that did what it
was asked comes back here; when one fails, those like it are closed too. A forked process leaves
those of its parent alone: their threads stayed behind.
"""

import atexit
import os
import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

__all__ = ["Closable", "Pool"]

IDLE_MAX = 16
"""How many clients one process keeps; the one that rested longest is closed first."""


class Closable(Protocol):
    """Something with connections."""

    def close(self) -> None:
        """Let go of them."""


T = TypeVar("T", bound=Closable)


class Pool(Generic[T]):
    """Promise: a client is in one pair of hands at a time, and never comes back from an error."""

    def __init__(self) -> None:
        self._idle: OrderedDict[int, tuple[Hashable, T]] = OrderedDict()
        self._lock = threading.Lock()
        self._process = os.getpid()
        atexit.register(self.clear)

    def take(self, key: Hashable) -> T | None:
        """The client of that key that was used last, if one is kept."""
        with self._lock:
            self._forget_parent()
            for number in reversed(self._idle):
                if self._idle[number][0] == key:
                    return self._idle.pop(number)[1]
        return None

    def give(self, key: Hashable, client: T) -> None:
        """Keep a client until it is asked for."""
        with self._lock:
            self._forget_parent()
            self._idle[id(client)] = (key, client)
            surplus = self._idle.popitem(last=False)[1] if len(self._idle) > IDLE_MAX else None
        if surplus is not None:
            surplus[1].close()

    def drop(self, key: Hashable) -> None:
        """Close the clients of a key: they know the same brokers as one that failed."""
        while (client := self.take(key)) is not None:
            client.close()

    def clear(self) -> None:
        """Close everything that is kept."""
        with self._lock:
            self._forget_parent()
            kept = [client for _, client in self._idle.values()]
            self._idle.clear()
        for client in kept:
            client.close()

    def _forget_parent(self) -> None:
        if self._process != os.getpid():
            self._idle, self._process = OrderedDict(), os.getpid()
