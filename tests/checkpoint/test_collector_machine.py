"""The collector against a ledger: whatever is committed, pinned and given up, in any order."""

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.checkpoint import (
    Chain,
    Draft,
    Manifest,
    MemoryStore,
    Retention,
    collect,
    pin,
    recover,
    unpin,
)
from penstock.checkpoint.layout import HEAD_KEY, epoch_of
from penstock.ids import Epoch
from tests.support.driving import CountingChance, ManualClock, Stage
from tests.support.history import SINK, led, staged

LAST = Retention(epochs=1, age_s=0.0, grace_s=0.0)
RETENTIONS = [
    LAST,
    Retention(epochs=3, age_s=0.0, grace_s=0.0),
    Retention(epochs=1, age_s=25.0, grace_s=0.0),
    Retention(epochs=2, age_s=15.0, grace_s=30.0),
]


class CollectorMachine(RuleBasedStateMachine):
    """One job. The ledger notes what each epoch named, and knows nothing of manifests."""

    def __init__(self) -> None:
        super().__init__()
        clock = ManualClock()
        self.stage = Stage(MemoryStore(clock), clock)
        self.tenures = 1
        self.leader, self.chance = led(self.stage, "t1")
        self.ledger: dict[int, Manifest] = {}
        self.names: dict[int, str] = {}
        self.pins: dict[str, int] = {}
        self.made = 0

    def head(self) -> Any:
        stored = self.stage.store.get(HEAD_KEY)
        assert stored is not None
        return json.loads(stored.body)

    @rule(snapshot=st.booleans(), seconds=st.sampled_from([0.0, 1.0, 10.0]))
    def commit(self, snapshot: bool, seconds: float) -> None:
        self.stage.clock.now_s += seconds
        self.committed(self.stage.run(staged(self.leader.parent, self.chance, snapshot=snapshot)))

    @precondition(lambda self: self.ledger)
    @rule()
    def commit_with_a_longer_tail(self) -> None:
        """Name the old files again: objects of old epochs, in a new manifest."""
        lineage = self.stage.run(recover(Chain(), self.leader.parent))["totals", 0]
        self.committed(self.stage.run(staged(self.leader.parent, self.chance, again=lineage)))

    def committed(self, draft: Draft) -> None:
        manifest = self.stage.run(self.leader.commit(draft))
        self.ledger[manifest.epoch] = manifest
        self.names[manifest.epoch] = self.head()["manifest"]["key"]

    @rule()
    def take_over(self) -> None:
        self.tenures += 1
        self.leader, self.chance = led(self.stage, f"t{self.tenures}")

    @rule()
    def upload_and_die(self) -> None:
        """Stage an epoch that nobody will ever commit."""
        self.made += 1
        self.stage.run(staged(self.leader.parent, CountingChance(f"dead{self.made}")))

    @precondition(lambda self: self.ledger)
    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        head = self.head()
        epoch = data.draw(st.integers(head["floor"], head["epoch"]))
        self.made += 1
        name = f"pin{self.made}"
        self.stage.run(pin(Chain(), name, name, Epoch(epoch)))
        self.pins[name] = epoch

    @precondition(lambda self: self.pins)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.pins)))
        self.stage.run(unpin(name))
        del self.pins[name]

    @rule(retention=st.sampled_from(RETENTIONS), obeyed=st.booleans())
    def collect(self, retention: Retention, obeyed: bool) -> None:
        applied = {SINK: Epoch(self.leader.head.epoch + 1)}
        done = self.stage.run(collect(Chain(self.leader.tenure), retention, applied))
        if obeyed:
            self.leader.raise_floor(done.next_floor)

    def reachable(self) -> set[str]:
        """What must be there, worked out from the ledger."""
        head = self.head()
        promised = set(range(head["floor"], head["epoch"] + 1)) | set(self.pins.values())
        keys: set[str] = set()
        for epoch in promised:
            keys |= {ref.key for ref in self.ledger[epoch].refs()} | self.state_of(epoch)
        return keys

    def state_of(self, epoch: int) -> set[str]:
        """The last snapshot at or before an epoch, all deltas since, and the way there."""
        keys: set[str] = set()
        for back in range(epoch, 0, -1):
            keys.add(self.names[back])
            state = self.ledger[back].operators["totals"][0]
            assert state.delta is not None
            keys.add(state.delta.ref.key)
            if state.snapshot is not None:
                files = {file.ref.key for file in state.snapshot.files}
                return keys | files | {delta.ref.key for _, delta in state.snapshot.tail}
        return keys

    def past_objects(self) -> set[str]:
        """Every object of an epoch that HEAD has passed."""
        newest = self.head()["epoch"]
        keys = [entry.key for entry in self.stage.store.list("")]
        return {key for key in keys if (epoch_of(key) or newest + 1) <= newest}

    @invariant()
    def nothing_reachable_is_gone(self) -> None:
        assert self.reachable() - self.past_objects() == set()

    def teardown(self) -> None:
        """In the end nothing is left but what is reachable."""
        for _ in range(2):
            self.collect(LAST, True)
            self.commit(False, 0.0)
        self.collect(LAST, True)
        assert self.past_objects() == self.reachable()


def test_the_collector_removes_all_garbage_and_nothing_else() -> None:
    """A store that only grows is a bill; one that shrinks too far is a loss."""
    run_state_machine_as_test(
        CollectorMachine,
        settings=settings(max_examples=100, stateful_step_count=40, deadline=None),
    )
