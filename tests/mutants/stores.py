"""Planted bugs of stores: what some have shipped, and who refuses it."""

from typing import Any

from penstock.chaos import world
from penstock.checkpoint.memory_store import MemoryStore
from penstock.checkpoint.probe import probe
from penstock.effects import Replace
from penstock.ids import ETag, Key
from tests.mutants.mutant import Mutant, by_seeds

honest_conditional = world.World._conditional
honest_replace = MemoryStore.replace
WINDOW_S = 0.02


def checks_then_acts(self: Any, effect: Any) -> Any:
    """What a check that is some milliseconds old lets through."""
    changed_s, before = getattr(self, "_changed", (float("-inf"), None))
    late = isinstance(effect, Replace) and before is not None and effect.etag == before.etag
    if late and self.now_s - changed_s < WINDOW_S:
        current = self.store.get(effect.key)
        effect = Replace(effect.at, effect.key, effect.body, current.etag)
    before = self.store.get(effect.key)
    etag = honest_conditional(self, effect)
    if etag is not None:
        self._changed = (self.now_s, before)
    return etag


def calls_failure_success(self: Any, effect: Any) -> Any:
    etag = honest_conditional(self, effect)
    return ETag("made-up") if etag is None else etag


def replaces_the_absent(self: Any, key: Key, body: bytes, etag: ETag) -> ETag | None:
    if self.get(key) is None:
        return ETag(str(self.create(key, body)))
    return honest_replace(self, key, body, etag)


def by_doctor() -> str | None:
    """Caught by `penstock doctor`, before a job is started on the store."""
    failed = [check.name for check in probe("memory://mutant").checks if not check.passed]
    return f"doctor: {failed[0]}" if failed else None


World = world.World
MUTANTS = (
    Mutant(
        "B21",
        "a swap that checks, then acts",
        ((World, "_conditional", checks_then_acts),),
        by_seeds,
    ),
    Mutant(
        "B22",
        "If-Match ignored when absent",
        ((MemoryStore, "replace", replaces_the_absent),),
        by_doctor,
    ),
    Mutant(
        "B23",
        "a failure called success",
        ((World, "_conditional", calls_failure_success),),
        by_seeds,
    ),
)
