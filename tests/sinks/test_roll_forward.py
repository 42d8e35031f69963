from typing import Any, cast

import pytest

from penstock.chaos.world import ModelSink
from penstock.checkpoint import (
    Chain,
    Leader,
    Manifest,
    Retention,
    collect,
    perform,
    store_handlers,
)
from penstock.checkpoint.perform import Handlers
from penstock.checkpoint.rewind import rewind
from penstock.effects import Wait
from penstock.errors import Corrupt, Fenced, Invalid, Unavailable
from penstock.ids import CommitId, Epoch, Generation, Holder, Token
from penstock.points import Point
from penstock.sinks import Apply, Cursor, Held, ReadCursor, Shard, roll_forward
from penstock.sinks.cursors import mark_of
from penstock.sinks.roll_forward import APPLIES_MAX
from tests.support.driving import CountingChance, Stage
from tests.support.history import SINK, led, work

SHARDS = 8
LAST = Retention(epochs=1, age_s=0.0, grace_s=0.0)


class Scene:
    """A stage with a sink: what is asked of the sink can be interfered with as well."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.sink = ModelSink()
        self.offered: list[Apply] = []

    def roll(self, leader: Leader, shard: int = 0) -> int | None:
        """The epoch that the shard is at then."""
        steps = roll_forward(
            Chain(leader.tenure), leader.tenure, leader.head, Shard(SINK, shard, SHARDS)
        )
        handlers: Handlers = {
            **store_handlers(self.stage.store, self.stage.clock),
            ReadCursor: self.sink.cursor,
            Apply: self.apply,
        }
        cursor = perform(steps, handlers)
        return None if cursor is None else cursor.epoch

    def apply(self, effect: Apply) -> None:
        self.offered.append(effect)
        if self.stage.interfere is None:
            self.sink.apply(effect)
        else:
            self.stage.interfere(effect, lambda: self.sink.apply(effect))

    def taken(self, shard: int = 0) -> list[tuple[int, tuple[bytes, ...]]]:
        """What the shard has, in the order it came."""
        return list(self.sink.shards[SINK, shard].outputs)

    def cursor(self) -> Cursor | None:
        return self.sink.cursor(ReadCursor(Point.SINK_CURSOR, SINK, 0))

    def committed(self, epochs: int, holder: str = "one") -> tuple[Leader, CountingChance]:
        leader, chance = led(self.stage, holder)
        for _ in range(epochs):
            self.stage.run(work(leader, chance))
        return leader, chance


def outputs(*epochs: int) -> list[tuple[int, tuple[bytes, ...]]]:
    return [(epoch, (f"output {epoch}".encode(),)) for epoch in epochs]


def test_missing_epochs_are_applied_oldest_first() -> None:
    """The last value of a key must be the one of the last epoch."""
    scene = Scene()
    leader, _ = scene.committed(3)

    assert scene.roll(leader) == 3
    assert scene.taken() == outputs(1, 2, 3)
    assert {effect.token for effect in scene.offered} == {1}


def test_what_is_applied_already_is_not_offered_again() -> None:
    """A sink without idempotent writes of its own is given each epoch once."""
    scene = Scene()
    leader, chance = scene.committed(2)
    scene.roll(leader)
    scene.stage.run(work(leader, chance))

    assert scene.roll(leader) == 3
    assert scene.roll(leader) == 3
    assert [effect.cursor.epoch for effect in scene.offered] == [1, 2, 3]


def test_a_shard_without_rows_gets_its_cursor_all_the_same() -> None:
    """Else it would be walked to for ever, and never be told apart from one that lags."""
    scene = Scene()
    leader, _ = scene.committed(2)

    scene.roll(leader, shard=7)

    assert scene.taken(7) == [(1, ()), (2, ())]


def test_nothing_committed_is_nothing_to_do() -> None:
    """The first start of a job."""
    scene = Scene()
    leader, _ = scene.committed(0)

    assert (scene.roll(leader), scene.offered) == (None, [])


def test_a_lost_answer_is_settled_by_the_cursor() -> None:
    """The sink says how far it is; offering the rows again could double them."""
    scene = Scene()
    leader, _ = scene.committed(2)

    def lose_answer(effect: Any, perform_it: Any) -> Any:
        perform_it()
        raise Unavailable("sink", "did not answer", "try again")

    scene.stage.interfere = lose_answer

    assert scene.roll(leader) == 2
    assert scene.taken() == outputs(1, 2)
    assert len(scene.offered) == 2


def test_a_lost_request_is_sent_again_unchanged() -> None:
    """The cursor has not moved, so nothing has happened yet."""
    scene = Scene()
    leader, _ = scene.committed(1)
    lost = [True, True]

    def lose_request(effect: Any, perform_it: Any) -> Any:
        if lost:
            lost.pop()
            raise Unavailable("sink", "did not answer", "try again")
        return perform_it()

    scene.stage.interfere = lose_request
    scene.roll(leader)

    assert scene.taken() == outputs(1)
    assert scene.offered == [scene.offered[0]] * 3


def test_a_sink_that_never_answers_is_given_up_on() -> None:
    """A limit on everything: the job says what is wrong instead of hanging."""
    scene = Scene()
    leader, _ = scene.committed(1)

    def down(effect: Any, perform_it: Any) -> Any:
        raise Unavailable("sink", "did not answer", "try again")

    scene.stage.interfere = down
    with pytest.raises(Unavailable):
        scene.roll(leader)

    assert len(scene.offered) == APPLIES_MAX


def test_a_sink_ahead_of_head_is_refused() -> None:
    """It belongs to another history; going on would leave a hole in it for good."""
    scene = Scene()
    leader, _ = scene.committed(2)
    ahead = Cursor(Generation(1), Epoch(5), mark_of(CommitId("of another root")))
    scene.sink.apply(Apply(Point.SINK_APPLY, SINK, 0, None, ahead, Token(1), ()))

    with pytest.raises(Invalid) as caught:
        scene.roll(leader)

    assert str(caught.value) == (
        "sink ledger, shard 0 has taken epoch 5 of generation 1, and HEAD is at epoch 2 of "
        "generation 1, whose history has no such commit: give the sink a new target; or take out "
        "of this one what the other history wrote, or leave it as it is, and then have it go on "
        "from HEAD with `penstock sinks accept`."
    )
    assert scene.cursor() == ahead


def test_a_sink_of_a_history_with_the_same_numbers_is_refused() -> None:
    """Two roots of one job count alike; only the commit tells them apart."""
    scene = Scene()
    leader, _ = scene.committed(3)
    other = Cursor(Generation(1), Epoch(2), mark_of(CommitId("of another root")))
    scene.sink.apply(Apply(Point.SINK_APPLY, SINK, 0, None, other, Token(1), ()))

    with pytest.raises(Invalid, match="whose history has no such commit"):
        scene.roll(leader)

    assert (scene.cursor(), scene.taken()) == (other, [(2, ())])


def test_a_sink_that_was_filled_before_a_rewind_is_refused() -> None:
    """Its rows are of a history that is no more; the same numbers come again with other rows."""
    scene = Scene()
    old, chance = scene.committed(4)
    scene.roll(old)
    scene.stage.run(rewind(old.head.job, Holder("operator"), Epoch(2), chance))
    new, chance = led(scene.stage, "new")
    for _ in range(2):
        scene.stage.run(work(new, chance))

    with pytest.raises(Invalid, match="has taken epoch 4 of generation 1, and HEAD is at epoch 4"):
        scene.roll(new)

    assert scene.taken() == outputs(1, 2, 3, 4)


def test_a_sink_that_was_behind_a_rewind_goes_on() -> None:
    """What it has is common to both histories."""
    scene = Scene()
    old, chance = scene.committed(2)
    scene.roll(old)
    for _ in range(2):
        scene.stage.run(work(old, chance))
    scene.stage.run(rewind(old.head.job, Holder("operator"), Epoch(3), chance))
    new, chance = led(scene.stage, "new")
    scene.stage.run(work(new, chance))

    assert scene.roll(new) == 4
    assert [epoch for epoch, _ in scene.taken()] == [1, 2, 3, 4]
    assert scene.cursor() == Cursor.at(cast(Manifest, new.parent))


def test_a_new_target_needs_all_of_history() -> None:
    """A table that begins in the middle must be somebody's decision, not an accident."""
    scene = Scene()
    leader, chance = scene.committed(3)
    done = scene.stage.run(collect(Chain(), LAST, {SINK: Epoch(4)}))
    leader.raise_floor(done.next_floor)
    scene.stage.run(work(leader, chance))

    with pytest.raises(Invalid) as caught:
        scene.roll(leader)

    assert caught.value.found == (
        "has taken nothing yet, and epochs before 3, which it lacks, are gone"
    )
    assert scene.offered == []


def test_a_sink_that_a_newer_leader_has_filled_fences() -> None:
    """HEAD moved on without us: that is a take-over, not another history."""
    scene = Scene()
    old, _ = scene.committed(1, "old")
    new, chance = led(scene.stage, "new")
    scene.stage.run(work(new, chance))
    scene.roll(new)

    with pytest.raises(Fenced) as caught:
        scene.roll(old)

    assert (caught.value.held, caught.value.newest, caught.value.by) == (1, 2, "new")


def test_a_deposed_token_is_refused_by_the_sink() -> None:
    """The sink has seen a larger token and needs no HEAD to know."""
    scene = Scene()
    old, chance = scene.committed(1, "old")
    scene.stage.run(work(old, chance))
    scene.roll(old)
    first, (only,) = scene.offered.pop(), scene.offered
    scene.sink.shards[SINK, 0].outputs.pop()
    scene.sink.shards[SINK, 0].held = Held(only.cursor, Token(2))
    assert (first.cursor.epoch, only.cursor.epoch) == (2, 1)

    with pytest.raises(Fenced):
        scene.roll(old)

    assert scene.taken() == outputs(1)


def test_a_tenure_that_ended_applies_nothing() -> None:
    """A leader that knows it is deposed does not ask the sink to find out."""
    scene = Scene()
    leader, _ = scene.committed(1)
    leader.tenure.fence(Token(2), leader.tenure.holder)

    with pytest.raises(Fenced):
        scene.roll(leader)

    assert scene.offered == []


def test_outputs_that_a_newer_leader_applied_and_collected_are_no_damage() -> None:
    """The cursor tells: what is gone has arrived."""
    scene = Scene()
    old, _ = scene.committed(1, "old")
    new, chance = led(scene.stage, "new")

    def overtaken(effect: Any) -> Cursor | None:
        before = scene.sink.cursor(effect)
        if before is None:
            finish(scene, new, chance)
        return before

    steps = roll_forward(Chain(), old.tenure, old.head, Shard(SINK, 0, SHARDS))
    handlers: Handlers = {
        **store_handlers(scene.stage.store, scene.stage.clock),
        ReadCursor: overtaken,
        Apply: scene.apply,
        Wait: lambda wait: None,
    }

    done = perform(steps, handlers)
    assert done is not None and done.epoch == 1
    assert scene.taken() == outputs(1, 2, 3)


def finish(scene: Scene, leader: Leader, chance: CountingChance) -> None:
    """Apply everything, and give up what was applied: but keep the manifests as state."""
    scene.roll(leader)
    for _ in range(2):
        scene.stage.run(work(leader, chance))
        scene.roll(leader)
        applied = {SINK: Epoch(leader.head.epoch + 1)}
        done = scene.stage.run(collect(Chain(), LAST, applied))
        leader.raise_floor(done.next_floor)
    for entry in scene.stage.store.list(f"outputs/{SINK}/000000000001/"):
        scene.stage.store.delete(entry.key)


def test_outputs_that_are_gone_and_not_applied_are_damage() -> None:
    """Then nobody has the rows, and nothing may be computed again."""
    scene = Scene()
    leader, _ = scene.committed(2)
    for entry in scene.stage.store.list(f"outputs/{SINK}/000000000002/"):
        scene.stage.store.delete(entry.key)

    with pytest.raises(Corrupt, match="is missing, though epoch 2 is retained and needs it"):
        scene.roll(leader)

    assert scene.taken() == outputs(1)


def test_a_sink_that_is_new_to_the_job_starts_where_it_is_first_named() -> None:
    """Epochs from before it was added staged nothing for it."""
    scene = Scene()
    leader, _ = scene.committed(2)
    tenure, head = leader.tenure, leader.head
    steps = roll_forward(Chain(tenure), tenure, head, Shard("archive", 0, 1))
    handlers: Handlers = {
        **store_handlers(scene.stage.store, scene.stage.clock),
        ReadCursor: scene.sink.cursor,
        Apply: scene.apply,
    }

    assert perform(steps, handlers) is None
    assert scene.offered == []
