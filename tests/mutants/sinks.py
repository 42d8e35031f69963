"""Planted bugs of staging and roll-forward."""

from importlib import import_module
from typing import Any

from penstock.chaos import model_job, world
from penstock.checkpoint.chain import Chain
from penstock.effects import Steps
from penstock.errors import Unavailable
from penstock.ids import Generation, Token
from penstock.points import Point
from penstock.sinks import Apply, Cursor, Held, ReadCursor
from penstock.sinks import roll_forward as honest_roll_forward
from tests.mutants.mutant import Mutant, by_seeds

rolling = import_module("penstock.sinks.roll_forward")
honest_stage = model_job.Program._stage
UNFENCED = Token(10**9)


def only_after_own_commit(chain: Any, tenure: Any, head: Any, shard: Any) -> Steps[Any]:
    """Applies what this leader committed, and nothing that another left behind."""
    if head.manifest is None:
        return None
    manifest = yield from chain.manifest(head.manifest, head.epoch, Point.RECOVER_MANIFEST)
    if manifest.token != tenure.token:
        return Cursor.at(manifest)
    return (yield from honest_roll_forward(chain, tenure, head, shard))


def never_applies(self: Any, chain: Any, leader: Any) -> Steps[None]:
    yield from ()


def cursor_outside(self: Any, effect: Any) -> bool:
    """Rows first, cursor after; now and then the server dies in between."""
    shard = self._shard(effect)
    if shard.held is not None and effect.cursor.epoch <= shard.held.cursor.epoch:
        return False
    shard.outputs.append((effect.cursor.epoch, effect.outputs))
    if len(shard.outputs) % 3 == 0:
        raise Unavailable("sink", "died between rows and cursor", "try again")
    shard.held = Held(effect.cursor, effect.token)
    return True


def applied_again(self: Any, effect: Any) -> bool:
    """B16: a batch that is offered again is written again."""
    shard = self._shard(effect)
    shard.outputs.append((effect.cursor.epoch, effect.outputs))
    shard.held = Held(effect.cursor, effect.token)
    return True


def walks_only_to_its_own(chain: Any, head: Any, shard: Any, cursor: Any) -> Steps[Any]:
    """B17: what was committed late, before an epoch that is applied already, is passed over."""
    if head.manifest is None or (cursor is not None and cursor.epoch >= head.epoch):
        return [], True
    manifest = yield from chain.manifest(head.manifest, head.epoch, Point.RECOVER_MANIFEST)
    return ([manifest] if shard.sink in manifest.sinks else []), True


def takes_any_order(asked: Any, held: Any) -> bool:
    """B17 in the sink: an epoch is taken wherever the cursor is."""
    return held is not None and held.cursor.epoch >= asked.cursor.epoch


def applies_before_the_decision(
    self: Any, epoch: Any, parent: Any, state: Any, ranges: Any
) -> Steps[Any]:
    draft, after = yield from honest_stage(self, epoch, parent, state, ranges)
    for output in draft.sinks[model_job.SINK]:
        body = yield from Chain().payload(output.ref, epoch, Point.SINK_OUTPUT)
        place = (model_job.SINK, output.partition)
        held = yield ReadCursor(Point.SINK_CURSOR, *place)
        cursor = Cursor(Generation(1), epoch, mark=int(epoch))
        yield Apply(Point.SINK_APPLY, *place, held, cursor, UNFENCED, (body,))
    return draft, after


Program = model_job.Program
MUTANTS = (
    Mutant(
        "roll-forward",
        "not at start",
        ((model_job, "roll_forward", only_after_own_commit),),
        by_seeds,
    ),
    Mutant(
        "sink never", "nothing is applied", ((Program, "_roll_forward", never_applies),), by_seeds
    ),
    Mutant(
        "cursor",
        "the cursor outside the transaction",
        ((world.ModelSink, "apply", cursor_outside),),
        by_seeds,
    ),
    Mutant(
        "B16",
        "a replayed epoch is written twice",
        ((world.ModelSink, "apply", applied_again),),
        by_seeds,
    ),
    Mutant(
        "B17",
        "an epoch that is older than HEAD is passed over",
        (
            (rolling, "_walked", walks_only_to_its_own),
            (world, "is_applied", takes_any_order),
        ),
        by_seeds,
    ),
    Mutant(
        "sink first",
        "applied before the decision",
        ((Program, "_stage", applies_before_the_decision),),
        by_seeds,
    ),
)
