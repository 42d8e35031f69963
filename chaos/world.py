"""The world of a simulation: virtual time, one store, one sink, and what happened to them.

Time passes only when every process waits. The store is the production `MemoryStore`; the sink
is a model with a cursor, as small as one can be. Every write that really happens is shown to
the witness, which knows more than any process in the world does.
"""

import hashlib
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Protocol

from penstock.checkpoint import MemoryStore
from penstock.checkpoint.fork import Copy, InFork
from penstock.checkpoint.formats import verify
from penstock.checkpoint.perform import store_handlers
from penstock.effects import Create, Delete, Effect, Put, Replace, Stored
from penstock.errors import Corrupt, Fenced
from penstock.ids import Epoch, Key, Token
from penstock.sinks import Apply, Cursor, Held, ReadCursor
from penstock.sinks.cursors import is_applied

__all__ = ["Accept", "ModelSink", "ProcessClock", "SeededChance", "Shard", "Witness", "World"]

EPOCH_START_S = 1_700_000_000.0
NEWEST_MAX = 8

Outputs = list[tuple[Epoch, tuple[bytes, ...]]]
"""What a shard was given, epoch by epoch."""


class Witness(Protocol):
    """Sees what really happened, the moment it happened."""

    def wrote(self, key: str) -> None:
        """An object was written."""

    def deleted(self, key: str) -> None:
        """An object is about to be deleted."""

    def applied(self, effect: Apply) -> None:
        """A sink took rows."""


@dataclass(frozen=True, slots=True)
class Accept(Effect):
    """Put a shard of a sink right by hand, after going back, and let it go on from HEAD."""

    sink: str
    shard: int
    cursor: Cursor
    token: Token


@dataclass(slots=True)
class Shard:
    """One shard of the model sink: rows and cursor, changed together."""

    held: Held | None = None
    outputs: Outputs = field(default_factory=list)


class ModelSink:
    """The contract of a sink in its smallest form."""

    def __init__(self) -> None:
        self.shards: dict[tuple[str, int], Shard] = {}

    def cursor(self, effect: ReadCursor) -> Cursor | None:
        """How far the shard is."""
        held = self._shard(effect).held
        return None if held is None else held.cursor

    def apply(self, effect: Apply) -> bool:
        """Take the rows and the cursor, or refuse; False if they are there already."""
        shard = self._shard(effect)
        if is_applied(effect, shard.held):
            return False
        shard.outputs.append((effect.cursor.epoch, effect.outputs))
        shard.held = Held(effect.cursor, effect.token)
        return True

    def accept(self, effect: Accept, right: Callable[[Accept], Outputs]) -> None:
        """Hold the rows that are right, and that cursor. Accepting once more changes nothing."""
        shard = self._shard(effect)
        if shard.held == Held(effect.cursor, effect.token):
            return
        if shard.held is not None and shard.held.token > effect.token:
            raise Fenced(
                f"sink {effect.sink}", held=effect.token, newest=shard.held.token, by="a leader"
            )
        shard.outputs = right(effect)
        shard.held = Held(effect.cursor, effect.token)

    def _shard(self, effect: Apply | ReadCursor | Accept) -> Shard:
        return self.shards.setdefault((effect.sink, effect.shard), Shard())


class World:
    """Everything outside the processes."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.now_s = 0.0
        self.sink = ModelSink()
        self.store = store or MemoryStore(ProcessClock(self))
        self.fork = MemoryStore(ProcessClock(self))
        """Where a fork of the root goes."""
        self.witness: Witness | None = None
        self.put_right: Callable[[Accept], Outputs] | None = None
        """Who knows what a shard must hold that is put right by hand."""
        self.newest: deque[Key] = deque(maxlen=NEWEST_MAX)
        """The objects that were written last, for listings that lack them."""
        self.previous: dict[str, Stored] = {}
        """What each replaced object was before its last change, for stale reads."""
        self.handlers: dict[type[Any], Callable[[Any], Any]] = {
            **store_handlers(self.store, ProcessClock(self)),
            ReadCursor: self.sink.cursor,
            Apply: self._apply,
            Accept: self._accept,
            Copy: self._copy,
            InFork: lambda asked: self._in_fork[type(asked.effect)](asked.effect),
            Create: self._conditional,
            Replace: self._conditional,
            Delete: self._delete,
            Put: self._put,
        }
        self._conditionally = store_handlers(self.store, ProcessClock(self))
        self._in_fork = store_handlers(self.fork, ProcessClock(self))
        self._on_the_way: list[tuple[float, int, Callable[[], Any]]] = []
        self._sent = 0

    def perform(self, effect: Effect) -> Any:
        """Do what the effect says, really and at once."""
        return self.handlers[type(effect)](effect)

    def later(self, delay_s: float, action: Callable[[], Any]) -> None:
        """Let something arrive in `delay_s`, whatever has become of its sender."""
        self._sent += 1
        heappush(self._on_the_way, (self.now_s + delay_s, self._sent, action))

    def next_arrival_s(self) -> float:
        """When the next delayed request arrives; infinity if none is on its way."""
        return self._on_the_way[0][0] if self._on_the_way else float("inf")

    def deliver(self) -> None:
        """Let everything arrive that is due."""
        while self._on_the_way and self._on_the_way[0][0] <= self.now_s:
            heappop(self._on_the_way)[2]()

    def _conditional(self, effect: Create | Replace) -> Any:
        before = self.store.get(effect.key)
        etag = self._conditionally[type(effect)](effect)
        if etag is not None:
            if before is not None:
                self.previous[effect.key] = before
            if self.witness is not None:
                self.witness.wrote(effect.key)
        return etag

    def _put(self, effect: Put) -> None:
        if self.store.get(effect.key) is None:
            self.newest.append(effect.key)
        self.store.put(effect.key, effect.body)
        if self.witness is not None:
            self.witness.wrote(effect.key)

    def _delete(self, effect: Delete) -> None:
        if self.witness is not None:
            self.witness.deleted(effect.key)
        self.store.delete(effect.key)

    def _apply(self, effect: Apply) -> None:
        if self.sink.apply(effect) and self.witness is not None:
            self.witness.applied(effect)

    def _accept(self, effect: Accept) -> None:
        assert self.put_right is not None, "only a witness knows what a sink should hold"
        self.sink.accept(effect, self.put_right)

    def _copy(self, effect: Copy) -> None:
        stored = self.store.get(effect.ref.key)
        if stored is None:
            raise Corrupt(effect.ref.key, "is missing, though the epoch needs it", "fork another")
        verify(effect.ref, hashlib.sha256(stored.body).hexdigest(), len(stored.body))
        self.fork.put(effect.ref.key, stored.body)


class ProcessClock:
    """One process's clocks: monotonic time is the world's, wall time has a skew of its own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.skew_s = 0.0

    def wall(self) -> float:
        """Seconds since 1970, as this process believes."""
        return EPOCH_START_S + self._world.now_s + self.skew_s

    def monotonic(self) -> float:
        """Virtual seconds since the world began."""
        return self._world.now_s

    def sleep(self, seconds: float) -> None:
        """Nobody sleeps here: protocols yield `Wait`."""
        raise AssertionError(f"a simulated process slept {seconds} s outside a protocol")


class SeededChance:
    """Names and numbers of one process, the same for the same seed."""

    def __init__(self, process: str, rng: random.Random) -> None:
        self._process = process
        self._rng = rng
        self._names = 0

    def unique(self) -> str:
        """A name nobody else makes: the process's own, and a count."""
        self._names += 1
        return f"{self._process}n{self._names}"

    def fraction(self) -> float:
        """From 0 up to 1."""
        return self._rng.random()
