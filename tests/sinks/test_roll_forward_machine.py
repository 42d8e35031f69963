"""Any order of commits, take-overs, rewinds, lost answers and zombies, against one sink."""

from contextlib import suppress
from typing import Any

from hypothesis import settings, strategies
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from penstock.chaos.world import ModelSink
from penstock.checkpoint import Chain, Draft, Leader, Output, perform, stage, store_handlers
from penstock.checkpoint.layout import output_key
from penstock.checkpoint.perform import Handlers
from penstock.checkpoint.rewind import rewind
from penstock.errors import Fenced, Invalid, Unavailable
from penstock.ids import Attempt, Epoch, Holder
from penstock.points import Point
from penstock.sinks import Apply, Cursor, Held, ReadCursor, Shard, roll_forward
from tests.support.driving import CountingChance, Stage
from tests.support.history import JOB, SINK, led

SHARD = Shard(SINK, 0, 1)


class Sinking(RuleBasedStateMachine):
    """One root, one sink; `chain` is what was committed, by the plainest bookkeeping."""

    deposed = Bundle("deposed")

    @initialize()
    def start(self) -> None:
        self.stage, self.sink = Stage(), ModelSink()
        self.chain: list[bytes] = []
        self.made, self.leaders = 0, 0
        self.is_stale = False
        """Whether the sink holds epochs that were gone back on."""
        self.leader: Leader
        self.chance: CountingChance
        self._lead()

    def _lead(self) -> None:
        self.leaders += 1
        self.leader, self.chance = led(self.stage, f"leader-{self.leaders}")

    @rule()
    def commit(self) -> None:
        """One more epoch, with an output that no other has."""
        self.made += 1
        body, epoch = f"output {self.made}".encode(), Epoch(self.leader.head.epoch + 1)
        key = output_key(SINK, epoch, 0, Attempt(self.chance.unique()))
        ref = self.stage.run(stage(key, body, Point.STAGE_OUTPUT))
        self.stage.run(
            self.leader.commit(Draft(sinks={SINK: (Output(partition=0, ref=ref, rows=1),)}))
        )
        self.chain.append(body)

    @rule(fates=strategies.lists(strategies.sampled_from(["lost", "unheard", "done"]), max_size=6))
    def apply(self, fates: list[str]) -> None:
        """The leader brings the sink up to HEAD, or is told why it must not."""
        before = self.taken()
        try:
            self.roll(self.leader, fates)
        except Unavailable:
            return
        except Invalid:
            assert self.is_stale
            assert self.taken() == before
            return
        assert not self.is_stale
        assert self.taken() == self.chain

    @rule(target=deposed)
    def take_over(self) -> Any:
        """Another leads from here on; the one before does not know."""
        old = self.leader
        self._lead()
        return multiple(old)

    @rule(old=consumes(deposed))
    def zombie(self, old: Leader) -> None:
        """A deposed leader wakes up and brings the sink up to the HEAD it remembers. Until the
        sink has heard of a later one it may: what it applies was committed. If that was gone back
        on since, the sink is of another history now, and its next leader is told so."""
        before, heard = self.taken(), self.token()
        with suppress(Fenced, Invalid):
            self.roll(old, [])
        if self.taken() != before:
            assert old.tenure.token >= heard
            assert self.taken()[: len(before)] == before
            self.is_stale = self.is_stale or self.taken() != self.chain[: len(self.taken())]

    @precondition(lambda self: len(self.chain) > 1)
    @rule(data=strategies.data())
    def go_back(self, data: strategies.DataObject) -> None:
        """Somebody rewinds; what the sink has above the target belongs to another history."""
        target = data.draw(strategies.integers(1, len(self.chain) - 1))
        self.stage.run(rewind(JOB, Holder("operator"), Epoch(target), self.chance))
        self.is_stale = self.is_stale or len(self.taken()) > target
        self.chain = self.chain[:target]
        self._lead()

    @precondition(lambda self: self.is_stale)
    @rule()
    def settle(self) -> None:
        """The operator takes out what was gone back on, and has the sink go on from HEAD."""
        shard = self.sink.shards[SINK, 0]
        shard.outputs = [(Epoch(n), (body,)) for n, body in enumerate(self.chain, 1)]
        assert self.leader.parent is not None
        shard.held = Held(Cursor.at(self.leader.parent), self.leader.tenure.token)
        self.is_stale = False

    @invariant()
    def nothing_else_is_there(self) -> None:
        """What the sink holds is the beginning of what was committed, unless it is of a history
        that was gone back on; and then nobody adds to it."""
        if hasattr(self, "sink") and not self.is_stale:
            assert self.taken() == self.chain[: len(self.taken())]

    def taken(self) -> list[bytes]:
        shard = self.sink.shards.get((SINK, 0))
        return [] if shard is None else [body for _, (body,) in shard.outputs]

    def token(self) -> int:
        """The largest token that the sink has heard."""
        shard = self.sink.shards.get((SINK, 0))
        return 0 if shard is None or shard.held is None else shard.held.token

    def roll(self, leader: Leader, fates: list[str]) -> None:
        left = list(fates)

        def apply(effect: Apply) -> None:
            fate = left.pop() if left else "done"
            if fate != "lost":
                self.sink.apply(effect)
            if fate != "done":
                raise Unavailable("sink", "did not answer", "try again")

        handlers: Handlers = {
            **store_handlers(self.stage.store, self.stage.clock),
            ReadCursor: self.sink.cursor,
            Apply: apply,
        }
        tenure = leader.tenure
        perform(roll_forward(Chain(tenure), tenure, leader.head, SHARD), handlers)


TestSinking = Sinking.TestCase
TestSinking.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
