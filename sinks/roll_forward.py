"""Rolling forward: bring a sink's shard up to HEAD from what was staged.

The sink keeps a cursor of its own, changed in the same step as its rows. Whatever happened to
an earlier attempt, the cursor says how far the sink is, and the manifests say what is missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.formats import Ref
from penstock.checkpoint.head import Head
from penstock.checkpoint.manifest import Manifest
from penstock.effects import Steps, Wait
from penstock.errors import Corrupt, Fenced, Gone, Invalid, Unavailable
from penstock.fencing import Tenure
from penstock.ids import Epoch
from penstock.points import Point
from penstock.sinks.cursors import Apply, Cursor, ReadCursor, mark_of_ref

__all__ = ["Shard", "roll_forward"]

APPLIES_MAX = 8
"""How often one epoch is offered to a sink that does not answer."""

PAUSE_S = 0.1

CHOICES = (
    "give the sink a new target; or take out of this one what the other history wrote, or leave it "
    "as it is, and then have it go on from HEAD with `penstock sinks accept`"
)


@dataclass(frozen=True, slots=True)
class Shard:
    """One of the shards of one sink."""

    sink: str
    number: int
    of: int
    """How many there are."""

    def takes(self, partition: int) -> bool:
        """Whether it is this shard that gets what a partition has staged."""
        return partition % self.of == self.number

    def __str__(self) -> str:
        return f"sink {self.sink}" + (f", shard {self.number}" if self.of > 1 else "")


def roll_forward(chain: Chain, tenure: Tenure, head: Head, shard: Shard) -> Steps[Cursor | None]:
    """Apply every committed epoch the shard lacks, oldest first; where it is then.

    1. Read the shard's cursor.
    2. Walk back from HEAD to the epoch it names, noting what was staged for this shard.
    3. The walk must end at the very commit that the cursor names: else the shard belongs to
       another history, and is refused, unless it is we who are behind the times.
    4. Apply each. An indefinite answer is settled by the cursor.
    """
    cursor: Cursor | None = yield _cursor_of(shard)  # 1
    missing, met = yield from _walked(chain, head, shard, cursor)  # 2
    if not met:
        raise (yield from _refusal(chain, tenure, shard, cursor))  # 3
    for manifest in reversed(missing):
        yield from _apply(chain, tenure, _Step(shard, cursor, manifest))  # 4
        cursor = Cursor.at(manifest)
    return cursor


@dataclass(frozen=True, slots=True)
class _Step:
    """One epoch on its way into one shard."""

    shard: Shard
    follows: Cursor | None
    manifest: Manifest

    def refs(self) -> Sequence[Ref]:
        outputs = self.manifest.sinks[self.shard.sink]
        return [each.ref for each in outputs if self.shard.takes(each.partition)]

    def reached_by(self, cursor: Cursor | None) -> bool:
        """Whether the shard has this epoch. One that is further has been given it by a leader
        after us, which our next commit will tell us of."""
        wanted = Cursor.at(self.manifest)
        return cursor is not None and (cursor == wanted or cursor.epoch > wanted.epoch)


def _walked(
    chain: Chain, head: Head, shard: Shard, cursor: Cursor | None
) -> Steps[tuple[list[Manifest], bool]]:
    """The manifests above the cursor, newest first, and whether the walk has met the cursor.

    A sink is in every manifest from its first one on, so the first without it is where a shard
    without a cursor begins. Below HEAD's floor nothing is promised any more."""
    found: list[Manifest] = []
    ref, epoch = head.manifest, head.epoch
    done = 0 if cursor is None else cursor.epoch
    begins = done == 0
    while ref is not None and epoch > done:
        if epoch < head.floor:
            raise _cut_off(shard, cursor, head)
        manifest = yield from chain.manifest(ref, epoch, Point.RECOVER_MANIFEST)
        if shard.sink not in manifest.sinks:
            return found, begins
        found.append(manifest)
        ref, epoch = manifest.parent, Epoch(epoch - 1)
    if cursor is None or begins:
        return found, True
    return found, ref is not None and (epoch, mark_of_ref(ref)) == (cursor.epoch, cursor.mark)


def _apply(chain: Chain, tenure: Tenure, step: _Step) -> Steps[None]:
    manifest, shard = step.manifest, step.shard
    outputs: list[bytes] = []
    for ref in step.refs():
        try:
            outputs.append((yield from chain.payload(ref, manifest.epoch, Point.SINK_OUTPUT)))
        except (Corrupt, Gone):
            # Outputs go once they are applied: perhaps by a leader we have not heard of.
            if step.reached_by((yield _cursor_of(shard))):
                return
            raise
    apply = Apply(
        Point.SINK_APPLY,
        shard.sink,
        shard.number,
        step.follows,
        Cursor.at(manifest),
        tenure.token,
        tuple(outputs),
    )
    for tries in range(1, APPLIES_MAX + 1):
        tenure.check()
        try:
            yield apply
            return
        except Fenced as fenced:
            tenure.end(fenced)
            raise
        except Unavailable:
            if step.reached_by((yield _cursor_of(shard))):
                return
            if tries == APPLIES_MAX:
                raise
        yield Wait(PAUSE_S * tries)


def _cursor_of(shard: Shard) -> ReadCursor:
    return ReadCursor(Point.SINK_CURSOR, shard.sink, shard.number)


def _refusal(
    chain: Chain, tenure: Tenure, shard: Shard, cursor: Cursor | None
) -> Steps[Fenced | Invalid]:
    """Why a shard whose cursor is not on our chain is not written to."""
    now = (yield from chain.head(Point.RECOVER_HEAD)).document
    if now.token > tenure.token:
        return tenure.fence(now.token, now.holder)
    return Invalid(
        str(shard),
        f"has taken {cursor}, and HEAD is at epoch {now.epoch} of generation {now.generation}, "
        "whose history has no such commit",
        CHOICES,
    )


def _cut_off(shard: Shard, cursor: Cursor | None, head: Head) -> Invalid:
    has = "has taken nothing yet" if cursor is None else f"has taken {cursor}"
    return Invalid(
        str(shard), f"{has}, and epochs before {head.floor}, which it lacks, are gone", CHOICES
    )
