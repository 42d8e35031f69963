"""Planted bugs of staging and roll-forward."""

from typing import Any

from penstock.chaos import model_job, world
from penstock.checkpoint.chain import Chain
from penstock.effects import Steps
from penstock.errors import Unavailable
from penstock.ids import Epoch, Generation, Token
from penstock.points import Point
from penstock.sinks import Apply, Cursor
from penstock.sinks import roll_forward as honest_roll_forward
from tests.mutants.mutant import Mutant, by_seeds

honest_stage = model_job.Program._stage
UNFENCED = Token(10**9)


def only_after_own_commit(chain: Any, tenure: Any, head: Any, sink: str, shard: int) -> Steps[Any]:
    """Applies what this leader committed, and nothing that another left behind."""
    if head.manifest is None:
        return head.epoch
    manifest = yield from chain.manifest(head.manifest, head.epoch, Point.RECOVER_MANIFEST)
    if manifest.token != tenure.token:
        return head.epoch
    return (yield from honest_roll_forward(chain, tenure, head, sink, shard))


def never_applies(self: Any, chain: Any, leader: Any) -> Steps[None]:
    yield from ()


def cursor_outside(self: Any, effect: Any) -> bool:
    """Rows first, cursor after; now and then the server dies in between."""
    shard = self._shard(effect)
    if shard.cursor is not None and effect.cursor.epoch <= shard.cursor.epoch:
        return False
    shard.outputs.append((effect.cursor.epoch, effect.outputs))
    if len(shard.outputs) % 3 == 0:
        raise Unavailable("sink", "died between rows and cursor", "try again")
    shard.cursor = effect.cursor
    return True


def applies_before_the_decision(
    self: Any, epoch: Any, parent: Any, state: Any, ranges: Any
) -> Steps[Any]:
    draft, after = yield from honest_stage(self, epoch, parent, state, ranges)
    for output in draft.sinks[model_job.SINK]:
        body = yield from Chain().payload(output.ref, epoch, Point.SINK_OUTPUT)
        cursor = Cursor(Generation(1), epoch)
        follows = Epoch(epoch - 1)
        yield Apply(
            Point.SINK_APPLY, model_job.SINK, output.partition, follows, cursor, UNFENCED, (body,)
        )
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
        "sink first",
        "applied before the decision",
        ((Program, "_stage", applies_before_the_decision),),
        by_seeds,
    ),
)
