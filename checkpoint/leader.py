"""The leader: takes a root over, and makes epochs real one after the other.

The order of a commit is its correctness argument. Whatever an epoch names is stored before
the manifest, the manifest before HEAD, and HEAD is the decision. At every moment HEAD and
all it reaches is one whole, earlier epoch or the next.
"""

from penstock.checkpoint.chain import Chain, headless
from penstock.checkpoint.formats import Ref, encode, ref_to
from penstock.checkpoint.head import HEAD_REGISTER, Head, next_ordinal
from penstock.checkpoint.layout import HEAD_KEY, manifest_key
from penstock.checkpoint.manifest import Draft, Manifest
from penstock.checkpoint.tally import tally_after
from penstock.clock import Chance, Clock
from penstock.effects import Page, Put, Steps, Wait
from penstock.errors import Bug, Corrupt, PenstockError, Unavailable
from penstock.fencing import Landed, Lost, Seen, Tenure, read, swap, take_over
from penstock.fields import TIME_MS_MAX
from penstock.ids import CommitId, Epoch, Holder, JobName, Token, check_name
from penstock.points import Point
from penstock.steady_time import SteadyTime

__all__ = ["Leader", "lead"]

LOOKS_MAX = 4
"""How often HEAD is looked for before history without it is called damage."""

PAUSE_S = 0.1


def lead(job: JobName, holder: Holder, clock: Clock, chance: Chance) -> Steps["Leader"]:
    """Take the root over, whoever held it, and become its leader.

    1. If there is no HEAD, make sure that there never was one: history without a HEAD is
       damage, and starting at epoch 1 over it would process everything again.
    2. Read the manifest that HEAD names: the next epoch must follow from it. A root that
       cannot be gone on with is refused here, and its leader not disturbed.
    3. Swap HEAD to our name and the next token. Lost: back to 2.
    """
    check_name("job", job)
    yield from _refuse_headless_history()  # 1
    claim = _Claim(job, holder)
    seen = yield from take_over(HEAD_REGISTER, claim.make, chance)  # 2, 3
    return Leader(Tenure(job, seen.document.token, holder), seen, claim.parent, clock, chance)


class Leader:
    """One tenure. Methods are protocols: give them to `perform`, or to the simulator."""

    def __init__(
        self,
        tenure: Tenure,
        seen: Seen[Head],
        parent: Manifest | None,
        clock: Clock,
        chance: Chance,
    ) -> None:
        self.tenure = tenure
        self.parent = parent
        """The last committed manifest, or None before the first."""
        self._seen = seen
        self._time = SteadyTime(clock)
        self._chance = chance
        self._floor = seen.document.floor

    @property
    def head(self) -> Head:
        """HEAD as this leader last saw it."""
        return self._seen.document

    def raise_floor(self, floor: Epoch) -> None:
        """Promise readers nothing below `floor` any more, from the next commit on."""
        self._floor = max(self._floor, min(floor, Epoch(self.head.epoch + 1)))

    def commit(self, draft: Draft) -> Steps[Manifest]:
        """Make one epoch real.

        1. Refuse if this tenure is over, or if the epoch does not follow the last one.
        2. Store the manifest under a name of its own. A crash here leaves an orphan.
        3. Swap HEAD. This is the decision; see `penstock.fencing.register` for its outcomes.
        4. Won: remember it, even if another leader has built on it since.
        5. Lost: stop for good. What was staged stays: only the collector may judge it.
        """
        self.tenure.check()  # 1
        commit = CommitId(self._chance.unique())
        manifest = self._manifest(draft, commit)
        _refuse_late(manifest)
        body = encode(manifest)
        ref = ref_to(manifest_key(manifest.epoch, commit), body)
        yield Put(Point.COMMIT_MANIFEST, ref.key, body)  # 2
        yield from self._decide(ref, manifest)
        return manifest

    def _decide(self, ref: Ref, manifest: Manifest) -> Steps[None]:
        self.tenure.check()  # the heartbeat may have learnt something meanwhile
        new = self.head.advanced(ref, manifest.commit, self._floor)
        try:
            outcome = yield from swap(  # 3
                HEAD_REGISTER, self._seen, new, Point.COMMIT_SWAP, Point.COMMIT_SETTLE
            )
        except BaseException as unknown:
            # Whatever it was, bytes may have left: only a take-over settles what became of them.
            self.tenure.end(unknown if isinstance(unknown, PenstockError) else _interrupted())
            raise
        now = outcome.seen.document
        if isinstance(outcome, Lost):
            raise self._deposed(now, manifest.epoch, outcome.landed)  # 5
        self.parent = manifest  # 4
        if now.token > self.tenure.token:
            self.tenure.fence(now.token, now.holder)
        self._seen = outcome.seen

    def _manifest(self, draft: Draft, commit: CommitId) -> Manifest:
        epoch = Epoch(next_ordinal("epoch", self.head.epoch))
        before = None if self.parent is None else self.parent.tally
        manifest = Manifest(
            job=self.head.job,
            generation=self.head.generation,
            epoch=epoch,
            token=self.tenure.token,
            holder=self.tenure.holder,
            commit=commit,
            parent=self.head.manifest,
            at_ms=self._time.now_ms(0 if self.parent is None else self.parent.at_ms),
            rows_in=draft.rows_in,
            sources=draft.sources,
            operators=draft.operators,
            sinks=draft.sinks,
            tables=draft.tables,
            planned_ms=draft.planned_ms,
            tally=tally_after(before, epoch, draft.sinks),
            description=draft.description,
        )
        flaw = manifest.flaw_after(self.parent)
        if flaw is not None:
            raise Bug(f"epoch {manifest.epoch}", f"was not committed: {flaw}", "report this")
        return manifest

    def _deposed(self, now: Head, epoch: Epoch, landed: Landed) -> Exception:
        if now.token > self.tenure.token:
            untold = f"whether epoch {epoch} was committed can no longer be told"
            return self.tenure.fence(
                now.token, now.holder, untold if landed is Landed.UNTOLD else ""
            )
        bug = Bug(HEAD_KEY, f"was changed by another with our token {now.token}", "report this")
        self.tenure.end(bug)
        return bug


def _refuse_late(manifest: Manifest) -> None:
    """Times never go back, so one that is forged would drive all later ones out of range."""
    if max(manifest.at_ms, manifest.planned_ms) > TIME_MS_MAX:
        raise Corrupt(
            f"the manifest before epoch {manifest.epoch}",
            "holds a time after which none can be stored",
            "it is forged, or a clock was far ahead: restore an earlier epoch",
        )


def _interrupted() -> Unavailable:
    return Unavailable(
        HEAD_KEY,
        "was being changed when this process was interrupted",
        "start the job again; taking over settles whether the change happened",
    )


class _Claim:
    """What a new leader wants HEAD to be, and the manifest it found on the way."""

    def __init__(self, job: JobName, holder: Holder) -> None:
        self.parent: Manifest | None = None
        self._job = job
        self._holder = holder

    def make(self, head: Head | None) -> Steps[Head]:
        self.parent = None
        if head is None:
            return Head(job=self._job, token=Token(1), holder=self._holder)
        claimed = head.claimed(self._job, self._holder)
        if head.manifest is not None:
            chain = Chain(generation=head.generation)
            self.parent = yield from chain.manifest(
                head.manifest, head.epoch, Point.RECOVER_MANIFEST
            )
        return claimed


def _refuse_headless_history() -> Steps[None]:
    if (yield from read(HEAD_REGISTER, Point.TAKEOVER_READ)) is not None:
        return
    history = yield Page(Point.TAKEOVER_EMPTY, "manifests/", "")
    if not history:
        return
    for _ in range(LOOKS_MAX):  # another process may have started the job between our two looks
        yield Wait(PAUSE_S)
        if (yield from read(HEAD_REGISTER, Point.TAKEOVER_READ)) is not None:
            return
    raise headless(history[0].key)
