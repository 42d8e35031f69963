"""Every planted bug, by the rule it breaks.

B1 to B8 and B21 to B23 happened to others; the rest are the rules of the commit, leadership,
collection and roll-forward protocols, each broken in the way that looks most natural.
"""

from typing import Any

from penstock.chaos import model_job, world
from penstock.checkpoint import chain, collector, formats, leader, pins, recovery, view
from penstock.checkpoint.head import HEAD_REGISTER
from penstock.checkpoint.layout import HEAD_KEY, delta_key, output_key
from penstock.checkpoint.store import ObjectStore
from penstock.effects import Create, Delete, Put, Replace, Steps
from penstock.errors import Unavailable
from penstock.fencing import heartbeat, register, standby, takeover
from penstock.fencing.register import Landed, Lost, Seen, Won, read
from penstock.fencing.tenure import Tenure
from penstock.ids import ETag, Key
from penstock.points import Point
from penstock.sinks import Apply, Cursor
from penstock.sinks import roll_forward as honest_roll_forward
from tests.fencing import test_standby, test_tenure
from tests.mutants.mutant import Mutant, by, by_seeds, by_zombies


# B1: a retry turns one's own success into 412.
def refusal_is_defeat(change: Any) -> Steps[Any]:
    seen = yield from read(change.register, change.settle_at)
    return Lost(seen, Landed.NO)


def retrying_client(change: Any) -> Steps[Any]:
    """An SDK's retry: the second try meets the first one's success, and believes its answer."""
    for _ in range(3):
        try:
            etag = (
                yield Replace(
                    change.send_at, HEAD_KEY, HEAD_REGISTER.encode(change.new), change.expected.etag
                )
                if change.expected
                else Create(change.send_at, HEAD_KEY, HEAD_REGISTER.encode(change.new))
            )
            return etag
        except Unavailable:
            continue
    return None


# B2: lost answer, then clean-up destroys what was committed.
honest_decide = leader.Leader._decide


def tidy_up_after_trouble(self: Any, ref: Any, manifest: Any) -> Steps[None]:
    try:
        yield from honest_decide(self, ref, manifest)
    except Exception:
        for named in manifest.refs():
            yield Delete(Point.COMMIT_SWAP, named.key)
        raise


def defeat_then_tidy_up(self: Any, ref: Any, manifest: Any) -> Steps[None]:
    """The clean-up together with B1, as it was met: one lost answer is enough."""
    new = self.head.advanced(ref, manifest.commit, self._floor)
    try:
        etag = yield Replace(
            Point.COMMIT_SWAP, HEAD_KEY, HEAD_REGISTER.encode(new), self._seen.etag
        )
    except Unavailable:
        etag = None
    if etag is None:
        for named in manifest.refs():
            yield Delete(Point.COMMIT_SWAP, named.key)
        raise Unavailable("HEAD", "was not swapped", "try again")
    self.parent, self._seen = manifest, Seen(new, etag)


# B3: retry after an unknown outcome commits twice.
def commit_again_on_top(self: Any, ref: Any, manifest: Any) -> Steps[None]:
    while True:
        new = self.head.advanced(ref, manifest.commit, self._floor)
        try:
            etag = yield Replace(
                Point.COMMIT_SWAP, HEAD_KEY, HEAD_REGISTER.encode(new), self._seen.etag
            )
        except Unavailable:
            etag = None
        if etag is not None:
            self.parent, self._seen = manifest, Seen(new, etag)
            return
        seen = yield from read(HEAD_REGISTER, Point.COMMIT_SETTLE)
        if seen.document.token > self.tenure.token:
            raise self.tenure.fence(seen.document.token, seen.document.holder)
        self._seen = seen


# B4: 409 taken for a definite conflict.
def conflict_is_defeat(change: Any) -> Steps[Any]:
    try:
        if change.expected is None:
            return (yield Create(change.send_at, HEAD_KEY, HEAD_REGISTER.encode(change.new)))
        return (
            yield Replace(
                change.send_at, HEAD_KEY, HEAD_REGISTER.encode(change.new), change.expected.etag
            )
        )
    except Unavailable as answer:
        if "409" not in answer.found:
            return None
        raise Unavailable("HEAD", "409", "definitely lost") from answer


honest_commit = leader.Leader.commit


def commit_believing_409(self: Any, draft: Any) -> Steps[Any]:
    try:
        return (yield from honest_commit(self, draft))
    except Unavailable as answer:
        if "409" in answer.found:
            raise self.tenure.fence(self.tenure.token, self.tenure.holder) from answer
        raise


# B5: sequenced names; collection frees one, and a stalled writer wins it.
def numbered_manifest(epoch: int, commit: str) -> Key:
    del commit
    return Key(f"manifests/{epoch:012d}.json")


def decide_by_name(self: Any, draft: Any) -> Steps[Any]:
    manifest = self._manifest(draft, self._chance.unique())
    body = formats.encode(manifest)
    ref = formats.ref_to(numbered_manifest(manifest.epoch, ""), body)
    created = yield Create(Point.COMMIT_MANIFEST, ref.key, body)
    if created is None:
        raise self.tenure.fence(self.tenure.token, self.tenure.holder)
    new = self.head.advanced(ref, manifest.commit, self._floor)
    yield Put(Point.COMMIT_SWAP, HEAD_KEY, HEAD_REGISTER.encode(new))
    seen = yield from read(HEAD_REGISTER, Point.COMMIT_SETTLE)
    self.parent, self._seen = manifest, Seen(new, seen.etag)
    return manifest


# B6: 404 during take-over reported as corruption.
def no_explanation(self: Any, ref: Any, needed_by: Any) -> Steps[None]:
    del self, ref, needed_by
    return
    yield


# B7: replay point ahead of durable data.
def decide_before_storing(self: Any, draft: Any) -> Steps[Any]:
    manifest = self._manifest(draft, self._chance.unique())
    body = formats.encode(manifest)
    ref = formats.ref_to(leader.manifest_key(manifest.epoch, manifest.commit), body)
    yield from honest_decide(self, ref, manifest)
    yield Put(Point.COMMIT_MANIFEST, ref.key, body)
    return manifest


# B8: a zombie task overwrites a file of the same name.
def delta_without_attempt(operator: str, partition: int, epoch: Any, attempt: Any) -> Key:
    del attempt
    return delta_key(operator, partition, epoch, "same")  # type: ignore[arg-type]


def output_without_attempt(sink: str, epoch: Any, partition: int, attempt: Any) -> Key:
    del attempt
    return output_key(sink, epoch, partition, "same")  # type: ignore[arg-type]


# B21: conditional write that is not atomic: looks now, writes later.
def check_then_act(self: Any, effect: Any) -> Any:
    before = self.store.get(effect.key)
    expected = effect.etag if isinstance(effect, Replace) else None
    if (before.etag if before else None) != expected:
        return None

    def act() -> None:
        self.store.put(effect.key, effect.body)
        self.witness.wrote_head()

    if effect.key != HEAD_KEY:
        return self._conditionally[type(effect)](effect)
    self.later(0.004, act)
    return ETag("promised")


# B22: If-Match ignored when the object is absent.
def replaces_the_absent(store: ObjectStore) -> ObjectStore:
    honest = store.replace

    def replace(key: Key, body: bytes, etag: ETag) -> ETag | None:
        return honest(key, body, etag) if store.get(key) else store.create(key, body)

    store.replace = replace  # type: ignore[method-assign]
    return store


# B23: a conditional failure reported as success.
def failure_is_success(self: Any, effect: Any) -> Any:
    etag = honest_conditional(self, effect)
    return ETag("made-up") if etag is None else etag


honest_conditional = world.World._conditional


# The rules of unknown outcomes.
def forgets_recent(self: Any, change: Any, expected: Any) -> Landed:
    del expected
    mine = self.recent[-1:] == change.recent[-1:] and self.token == change.token
    return Landed.YES if mine else Landed.NO


def expected_is_defeat(change: Any) -> Steps[Any]:
    verdict = yield from honest_settle(change)
    if verdict is None and change.expected is not None:
        return Lost(change.expected, Landed.NO)
    return verdict


honest_settle = register._settle


def stale_is_defeat(change: Any) -> Steps[Any]:
    seen = yield from read(change.register, change.settle_at)
    if seen is None:
        return None
    before = None if change.expected is None else change.expected.document
    landed = seen.document.tells_of(change.new, before)
    if landed is Landed.YES:
        return Won(seen)
    if change.expected is not None and seen.etag == change.expected.etag:
        return None
    return Lost(seen, landed)


def fenced_goes_on(self: Any, ref: Any, manifest: Any) -> Steps[None]:
    """Reload and go on instead of stopping when somebody else's token is in HEAD."""
    outcome = yield from register.swap(
        HEAD_REGISTER,
        self._seen,
        self.head.advanced(ref, manifest.commit, self._floor),
        Point.COMMIT_SWAP,
        Point.COMMIT_SETTLE,
    )
    self._seen = outcome.seen
    self.parent = manifest


def resends_what_it_reads(
    register_: Any, expected: Any, new: Any, send_at: Any, settle_at: Any
) -> Steps[Any]:
    """A retry that takes the newest version for the expected one."""
    del settle_at
    for _ in range(8):
        etag = yield from register._send(register._Swap(register_, expected, new, send_at, send_at))
        if etag is not None:
            return Won(Seen(new, etag))
        expected = yield from read(register_, send_at)
    raise Unavailable("HEAD", "busy", "again")


def no_checksum(ref: Any, sha256: str, size_bytes: int) -> None:
    del ref, sha256, size_bytes


def head_unsealed(name: str, body: bytes, kind: Any, newest: int) -> Any:
    return formats.msgspec.structs.replace(formats.decode(name, body, kind, newest), checksum="")


# The rules of leadership.
def same_token(self: Any, job: Any, holder: Any) -> Any:
    del job
    return formats.msgspec.structs.replace(self, holder=holder)


def take_over_by_force(register_: Any, claim: Any, chance: Any) -> Steps[Any]:
    del chance
    seen = yield from read(register_, Point.TAKEOVER_READ)
    claimed = claim(None if seen is None else seen.document)
    yield Put(Point.TAKEOVER_SWAP, HEAD_KEY, register_.encode(claimed))
    now = yield from read(register_, Point.TAKEOVER_SETTLE)
    return Seen(claimed, now.etag)


def commit_by_lease(self: Any, ref: Any, manifest: Any) -> Steps[None]:
    """Whoever believes its lease is good writes HEAD without asking."""
    new = self.head.advanced(ref, manifest.commit, self._floor)
    yield Put(Point.COMMIT_SWAP, HEAD_KEY, HEAD_REGISTER.encode(new))
    seen = yield from read(HEAD_REGISTER, Point.COMMIT_SETTLE)
    self.parent, self._seen = manifest, Seen(new, seen.etag)


def starts_over_without_head() -> Steps[None]:
    return
    yield


def never_refuses(self: Any) -> None:
    del self


def judges_by_the_leaders_clock(self: Any, sign: object, now_s: float) -> bool:
    del self, sign
    return now_s > 1_000_000


# Pins, collection, reading.
def pin_without_second_look(chain_: Any, name: str, mark: str, epoch: Any = None) -> Steps[Any]:
    head = (yield from chain_.head(Point.PIN_TARGET)).document
    target = yield from pins._target(chain_, head, epoch)
    wanted = pins.Pin(
        name=name, mark=mark, generation=head.generation, epoch=target[0], manifest=target[1]
    )
    yield from pins._write(wanted)
    return wanted


def sees_no_pins(list_at: Point, read_at: Point) -> Steps[list[Any]]:
    del list_at, read_at
    return []
    yield


honest_from_head = collector._from_head


def gives_up_at_once(chain_: Any, head: Any, retention: Any) -> Steps[Any]:
    """Delete by the floor that retention allows, not by the one HEAD promises."""
    reach = yield from honest_from_head(chain_, head, retention)
    lower = formats.msgspec.structs.replace(head, floor=reach.next_floor)
    return (yield from honest_from_head(chain_, lower, retention))


def keeps_no_lineage(chain_: Any, oldest: Any, floor: Any, keys: set[Key]) -> Steps[None]:
    del chain_, floor
    keys.update(ref.key for ref in oldest.refs())
    return
    yield


def takes_work_in_progress(key: Key, head: Any) -> bool:
    del head
    return collector.epoch_of(key) is not None


def stops_at_a_snapshot(self: Any, epoch: Any) -> bool:
    """Takes a snapshot for the state after its epoch instead of before."""
    return self.snapshot is not None and epoch <= self.snapshot.epoch + 1


def goes_backwards(self: Any) -> Steps[Any]:
    return (yield from self._chain.head(Point.READ_HEAD)).document


# Sinks.
def no_roll_forward(self: Any, chain_: Any, leader_: Any) -> Steps[None]:
    del self, chain_, leader_
    return
    yield


def only_after_own_commit(chain_: Any, tenure: Any, head: Any, sink: str, shard: int) -> Steps[Any]:
    """Applies what this leader committed, and nothing that was left by another."""
    manifest = yield from chain_.manifest(head.manifest, head.epoch, Point.RECOVER_MANIFEST)
    if manifest.token != tenure.token:
        return head.epoch
    return (yield from honest_roll_forward(chain_, tenure, head, sink, shard))


def cursor_outside(self: Any, effect: Any) -> bool:
    """Rows now, cursor with the next request."""
    shard = self._shard(effect)
    done = 0 if shard.cursor is None else shard.cursor.epoch
    if effect.cursor.epoch <= done:
        return False
    shard.outputs.append((effect.cursor.epoch, effect.outputs))
    if len(shard.outputs) % 3:
        shard.cursor = effect.cursor
        return True
    raise Unavailable("sink", "died between rows and cursor", "again")


honest_stage = model_job.Program._stage


def apply_before_decision(self: Any, epoch: Any, parent: Any, state: Any, ranges: Any) -> Any:
    draft, after = yield from honest_stage(self, epoch, parent, state, ranges)
    for output in draft.sinks[model_job.SINK]:
        body = yield from chain.Chain().payload(output.ref, epoch, Point.SINK_OUTPUT)
        cursor = Cursor(1, epoch)  # type: ignore[arg-type]
        yield Apply(
            Point.SINK_APPLY,
            model_job.SINK,
            output.partition,
            cursor,
            10**9,
            (body,),  # type: ignore[arg-type]
        )
    return draft, after


L, R = leader.Leader, register
MUTANTS = (
    Mutant("B1", "a refusal is taken for a defeat", ((R, "_settle", refusal_is_defeat),), by_seeds),
    Mutant(
        "B1 retry",
        "the client sends a conditional write again, and believes the answer",
        ((R, "_send", retrying_client), (R, "_settle", refusal_is_defeat)),
        by_seeds,
    ),
    Mutant("B2", "clean-up after a lost answer", ((L, "_decide", defeat_then_tidy_up),), by_seeds),
    Mutant(
        "B2 unknown",
        "clean-up after an unknown outcome",
        ((L, "_decide", tidy_up_after_trouble), (R, "LOOKS_MAX", 1), (R, "SENDS_MAX", 1)),
        by_seeds,
    ),
    Mutant(
        "B3", "an unknown commit is made again", ((L, "_decide", commit_again_on_top),), by_seeds
    ),
    Mutant(
        "B4",
        "409 is taken for a definite conflict",
        (
            (R, "_send", conflict_is_defeat),
            (L, "commit", commit_believing_409),
        ),
        by_seeds,
    ),
    Mutant("B5", "sequenced names decide", ((L, "commit", decide_by_name),), by_zombies),
    Mutant("B6", "404 is called corruption", ((chain.Chain, "explain", no_explanation),), by_seeds),
    Mutant("B7", "HEAD before the manifest", ((L, "commit", decide_before_storing),), by_seeds),
    Mutant(
        "B8",
        "attempts share a name",
        (
            (model_job, "delta_key", delta_without_attempt),
            (model_job, "output_key", output_without_attempt),
        ),
        by_seeds,
    ),
    Mutant("B21", "check, then act", ((world.World, "_conditional", check_then_act),), by_seeds),
    Mutant(
        "B23",
        "failure called success",
        ((world.World, "_conditional", failure_is_success),),
        by_seeds,
    ),
    Mutant(
        "7 recent",
        "a commit others have built on is forgotten",
        ((leader.Head, "_tells_of_commit", forgets_recent),),
        by_seeds,
    ),
    Mutant(
        "7 resend", "an unchanged HEAD is a defeat", ((R, "_settle", expected_is_defeat),), by_seeds
    ),
    Mutant("7 stale", "an older HEAD is a defeat", ((R, "_settle", stale_is_defeat),), by_seeds),
    Mutant(
        "7 fenced",
        "a fenced leader reloads and goes on",
        ((L, "_decide", fenced_goes_on),),
        by_seeds,
    ),
    Mutant(
        "7 same body",
        "a retry takes over the newest version",
        ((leader, "swap", resends_what_it_reads),),
        by_seeds,
    ),
    Mutant("7 verify", "references are not verified", ((chain, "verify", no_checksum),), by_seeds),
    Mutant(
        "7 unknown",
        "an unknown outcome does not end the tenure",
        ((Tenure, "end", lambda self, why: None), (R, "SENDS_MAX", 1), (R, "LOOKS_MAX", 1)),
        by_seeds,
    ),
    Mutant(
        "8 token", "taking over keeps the token", ((leader.Head, "claimed", same_token),), by_seeds
    ),
    Mutant(
        "8 swap",
        "taking over without a swap",
        ((leader, "take_over", take_over_by_force),),
        by_seeds,
    ),
    Mutant(
        "8 lease", "a lease decides who may write", ((L, "_decide", commit_by_lease),), by_seeds
    ),
    Mutant(
        "8 sticky",
        "fenced, and asked again",
        ((Tenure, "check", never_refuses),),
        by(test_tenure.test_a_fenced_tenure_refuses_for_good),
    ),
    Mutant(
        "8 clock",
        "silence by the wall clock",
        ((standby.Silence, "lasts", judges_by_the_leaders_clock),),
        by(test_standby.test_a_beating_leader_is_left_alone),
    ),
    Mutant(
        "8 genesis",
        "no HEAD means a new job",
        ((leader, "_refuse_headless_history", starts_over_without_head),),
        by(test_standby.test_a_beating_leader_is_left_alone),
    ),
    Mutant(
        "pin check",
        "pinned without a second look",
        ((model_job, "pin", pin_without_second_look),),
        by_seeds,
    ),
    Mutant(
        "pins", "the collector sees no pins", ((collector, "read_pins", sees_no_pins),), by_seeds
    ),
    Mutant(
        "floor",
        "given up and deleted at once",
        ((collector, "_from_head", gives_up_at_once),),
        by_seeds,
    ),
    Mutant(
        "lineage",
        "state below the floor is dropped",
        ((collector, "_walk", keeps_no_lineage),),
        by_seeds,
    ),
    Mutant(
        "in progress",
        "uploads above HEAD are garbage",
        ((collector, "_is_past", takes_work_in_progress),),
        by_seeds,
    ),
    Mutant(
        "snapshot",
        "a snapshot is taken for an epoch too late",
        ((recovery._Strand, "done_at", stops_at_a_snapshot),),
        by_seeds,
    ),
    Mutant("view", "a reader goes back", ((view.View, "refresh", goes_backwards),), by_seeds),
    Mutant(
        "roll-forward",
        "not at start",
        ((model_job, "roll_forward", only_after_own_commit),),
        by_seeds,
    ),
    Mutant(
        "sink never",
        "nothing is applied",
        ((model_job.Program, "_roll_forward", no_roll_forward),),
        by_seeds,
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
        ((model_job.Program, "_stage", apply_before_decision),),
        by_seeds,
    ),
)
