"""The simulator on a signed root: leaders, zombies, pins and collectors, with all faults."""

import pytest

from penstock.chaos import world
from penstock.chaos.simulation import simulate
from penstock.checkpoint import MemoryStore
from penstock.checkpoint.signature import ChainKeys
from penstock.checkpoint.signed_store import SignedStore
from penstock.clock import Clock

SEEDS = range(40)


class SignedMemory(SignedStore):
    """The simulator's store behind a key."""

    def __init__(self, clock: Clock) -> None:
        memory = MemoryStore(clock)
        super().__init__(memory, ChainKeys.parse("a key of the simulator's".replace(" ", "-") * 2))
        self._memory = memory

    @property
    def page_entries_max(self) -> int:
        return self._memory.page_entries_max

    @page_entries_max.setter
    def page_entries_max(self, entries: int) -> None:
        self._memory.page_entries_max = entries


def test_a_key_changes_nothing_that_the_protocols_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same seed takes the same steps, meets the same faults and keeps the same promises."""
    plain = [simulate(seed) for seed in SEEDS]

    monkeypatch.setattr(world, "MemoryStore", SignedMemory)
    signed = [simulate(seed) for seed in SEEDS]

    assert [outcome.broken for outcome in signed] == [()] * len(SEEDS)
    assert signed == plain
