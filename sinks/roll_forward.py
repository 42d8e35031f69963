"""Rolling forward: bring a sink's shard up to HEAD from what was staged.

The sink keeps a cursor of its own, changed in the same step as its rows. Whatever happened to
an earlier attempt, the cursor says how far the sink is, and the manifests say what is missing.
"""

from dataclasses import dataclass

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.formats import Ref
from penstock.checkpoint.head import Head
from penstock.checkpoint.manifest import Manifest
from penstock.effects import Effect, Steps, Wait
from penstock.errors import Corrupt, Fenced, Gone, Invalid, Unavailable
from penstock.fencing import Tenure
from penstock.ids import Epoch, Generation, Token
from penstock.points import Point

__all__ = ["Apply", "Cursor", "ReadCursor", "roll_forward"]

APPLIES_MAX = 8
"""How often one epoch is offered to a sink that does not answer."""

PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last epoch a sink's shard has taken."""

    generation: Generation
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class ReadCursor(Effect):
    """Ask a sink how far one of its shards is. Answer: `Cursor`, or None before the first."""

    sink: str
    shard: int


@dataclass(frozen=True, slots=True)
class Apply(Effect):
    """Give a shard the rows of one epoch, together with its new cursor, or not at all.

    Refused with `Fenced` if the shard has seen a larger token, with `Invalid` if its cursor
    is not at `follows`. Applying what is applied already changes nothing.
    """

    sink: str
    shard: int
    follows: Epoch
    """Where the shard's cursor must be: the epoch before, or 0 if it has none yet."""
    cursor: Cursor
    token: Token
    outputs: tuple[bytes, ...]


def roll_forward(chain: Chain, tenure: Tenure, head: Head, sink: str, shard: int) -> Steps[Epoch]:
    """Apply every committed epoch the shard lacks, oldest first; the epoch it is at then.

    1. Read the shard's cursor.
    2. A cursor ahead of HEAD belongs to another history: refuse, unless HEAD itself has moved.
    3. Walk back from HEAD to the cursor, noting what was staged for this shard.
    4. Apply each. An indefinite answer is settled by the cursor.
    """
    cursor = yield ReadCursor(Point.SINK_CURSOR, sink, shard)  # 1
    done = Epoch(0) if cursor is None else cursor.epoch
    if done > head.epoch:
        yield from _refuse_ahead(chain, tenure, sink, done)  # 2
    missing = yield from _missing(chain, head, sink, done)  # 3
    for manifest in reversed(missing):
        refs = [o.ref for o in manifest.sinks[sink] if o.partition == shard]
        yield from _apply(chain, tenure, _Target(sink, shard, done, manifest), refs)  # 4
        done = manifest.epoch
    return done


@dataclass(frozen=True, slots=True)
class _Target:
    """One epoch on its way into one shard."""

    sink: str
    shard: int
    follows: Epoch
    manifest: Manifest

    def reached_by(self, cursor: Cursor | None) -> bool:
        wanted = (self.manifest.generation, self.manifest.epoch)
        return cursor is not None and (cursor.generation, cursor.epoch) >= wanted


def _missing(chain: Chain, head: Head, sink: str, done: Epoch) -> Steps[list[Manifest]]:
    """The manifests above `done` that know the sink, newest first. A sink is in every manifest
    from its first one on, so the first without it ends the walk."""
    found: list[Manifest] = []
    ref, epoch = head.manifest, head.epoch
    while ref is not None and epoch > done:
        manifest = yield from chain.manifest(ref, epoch, Point.RECOVER_MANIFEST)
        if sink not in manifest.sinks:
            break
        found.append(manifest)
        ref, epoch = manifest.parent, Epoch(epoch - 1)
    return found


def _apply(chain: Chain, tenure: Tenure, target: _Target, refs: list[Ref]) -> Steps[None]:
    manifest = target.manifest
    outputs: list[bytes] = []
    for ref in refs:
        try:
            outputs.append((yield from chain.payload(ref, manifest.epoch, Point.SINK_OUTPUT)))
        except (Corrupt, Gone):
            # Outputs go once they are applied: perhaps by a leader we have not heard of.
            if target.reached_by((yield _cursor_of(target))):
                return
            raise
    cursor = Cursor(manifest.generation, manifest.epoch)
    apply = Apply(
        Point.SINK_APPLY,
        target.sink,
        target.shard,
        target.follows,
        cursor,
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
            if target.reached_by((yield _cursor_of(target))):
                return
            if tries == APPLIES_MAX:
                raise
        yield Wait(PAUSE_S * tries)


def _cursor_of(target: _Target) -> ReadCursor:
    return ReadCursor(Point.SINK_CURSOR, target.sink, target.shard)


def _refuse_ahead(chain: Chain, tenure: Tenure, sink: str, done: Epoch) -> Steps[None]:
    now = (yield from chain.head(Point.RECOVER_HEAD)).document
    if now.token > tenure.token:
        raise tenure.fence(now.token, now.holder)
    raise Invalid(
        f"sink {sink}",
        f"has taken epoch {done}, but HEAD is at epoch {now.epoch}: it belongs to another history",
        "give the job a new target, or bring this one back to an epoch that is still kept",
    )
