"""Performing protocols: the one loop that turns effects into I/O.

A handler per kind of effect, found by type. Arming crash points wraps the handlers; when
nothing is armed there is no check at all, not even of a flag.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeAlias, TypeVar

from penstock.checkpoint.store import ObjectStore, digest, fetch
from penstock.clock import Clock
from penstock.effects import Create, Delete, Digest, Effect, Fetch, Get, Page, Put, Replace, Wait
from penstock.errors import PenstockError
from penstock.points import Point

__all__ = ["Handlers", "armed", "perform", "store_handlers"]

Handlers: TypeAlias = Mapping[type[Any], Callable[[Any], Any]]
"""How each kind of effect is performed."""

R = TypeVar("R")


def perform(protocol: Generator[Any, Any, R], handlers: Handlers) -> R:
    """Run a protocol to its end, and return what it returns."""
    try:
        effect = next(protocol)
        while True:
            try:
                answer = handlers[type(effect)](effect)
            except PenstockError as failure:
                effect = protocol.throw(failure)
            else:
                effect = protocol.send(answer)
    except StopIteration as end:
        result: R = end.value
        return result


def store_handlers(store: ObjectStore, clock: Clock) -> Handlers:
    """How the effects of this room are performed on a real store."""
    return {
        Get: lambda e: store.get(e.key),
        Fetch: lambda e: fetch(store, e.key),
        Digest: lambda e: digest(store, e.key),
        Put: lambda e: store.put(e.key, e.body),
        Create: lambda e: store.create(e.key, e.body),
        Replace: lambda e: store.replace(e.key, e.body, e.etag),
        Delete: lambda e: store.delete(e.key),
        Page: lambda e: store.list(e.prefix, e.after),
        Wait: lambda e: clock.sleep(e.seconds),
    }


def armed(
    handlers: Handlers, before: Callable[[Point], None], after: Callable[[Point], None]
) -> Handlers:
    """The same handlers with a call around each effect that has a point."""

    def wrap(handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def handle(effect: Any) -> Any:
            if not isinstance(effect, Effect):
                return handler(effect)
            before(effect.at)
            answer = handler(effect)
            after(effect.at)
            return answer

        return handle

    return {kind: wrap(handler) for kind, handler in handlers.items()}
