"""Driving protocols by hand: the scene of a test as a list of answers and failures."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from penstock.checkpoint import MemoryStore, perform, store_handlers
from penstock.effects import Create, Replace, Wait
from penstock.errors import Unavailable


class ManualClock:
    """A clock that goes only when told to, or when somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def wall(self) -> float:
        return self.now_s

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class CountingChance:
    """Names by counting; never any luck."""

    def __init__(self, prefix: str = "id") -> None:
        self._prefix = prefix
        self._count = 0

    def unique(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count}"

    def fraction(self) -> float:
        return 0.0


@dataclass
class Stage:
    """A store, a clock, and a way to interfere with single requests."""

    store: MemoryStore = field(default_factory=MemoryStore)
    clock: ManualClock = field(default_factory=ManualClock)
    interfere: Callable[[Any, Callable[[], Any]], Any] | None = None
    """Given an effect and the way to perform it, does what it likes instead."""
    seen: list[Any] = field(default_factory=list)
    """Every effect so far, waits aside."""

    def run(self, protocol: Generator[Any, Any, Any]) -> Any:
        """Run a protocol to its end on this stage."""
        handlers = store_handlers(self.store, self.clock)
        return perform(protocol, {kind: self._handle(h) for kind, h in handlers.items()})

    def _handle(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def handle(effect: Any) -> Any:
            if isinstance(effect, Wait):
                return handler(effect)
            self.seen.append(effect)
            if self.interfere is None:
                return handler(effect)
            return self.interfere(effect, lambda: handler(effect))

        return handle


def lose_answers(times: int) -> Callable[[Any, Callable[[], Any]], Any]:
    """Perform conditional writes, but lose the answers of the first few."""
    left = times

    def interfere(effect: Any, perform_it: Callable[[], Any]) -> Any:
        nonlocal left
        if isinstance(effect, Create | Replace) and left:
            left -= 1
            perform_it()
            raise Unavailable(effect.key, "did not answer", "try again")
        return perform_it()

    return interfere
