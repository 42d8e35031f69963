"""Planted bugs of the commit: unknown outcomes, order, names."""

from contextlib import suppress
from typing import Any

from penstock.chaos import model_job
from penstock.checkpoint import chain, formats, leader
from penstock.checkpoint.head import HEAD_REGISTER
from penstock.checkpoint.layout import HEAD_KEY, delta_key, output_key
from penstock.effects import Create, Delete, Put, Replace, Steps
from penstock.errors import Invalid, Unavailable
from penstock.fencing import register
from penstock.fencing.register import Landed, Lost, Seen, Won, read
from penstock.fencing.tenure import Tenure
from penstock.ids import Attempt, CommitId, Epoch, Key
from penstock.points import Point
from tests.checkpoint.test_leader import test_an_unknown_outcome_ends_the_tenure
from tests.fencing.test_register import test_an_older_answer_is_looked_at_again
from tests.mutants.mutant import Mutant, by, by_seeds, by_zombies

honest_decide = leader.Leader._decide
honest_commit = leader.Leader.commit
honest_settle = register._settle
honest_send = register._send


def refusal_is_defeat(change: Any) -> Steps[Any]:
    seen = yield from read(change.register, change.settle_at)
    return Lost(seen, Landed.NO)


def sends_again_by_itself(change: Any) -> Steps[Any]:
    """A client library's retry: the second try meets the first one's success."""
    for _ in range(3):
        with suppress(Unavailable):
            return (yield from honest_send(change))
    return None


def sent_once(self: Any, ref: Any, manifest: Any) -> Steps[Any]:
    """Swap HEAD with one request and no second look; the new ETag, or None."""
    new = self.head.advanced(ref, manifest.commit, self._floor)
    try:
        etag = yield Replace(
            Point.COMMIT_SWAP, HEAD_KEY, HEAD_REGISTER.encode(new), self._seen.etag
        )
    except Unavailable:
        return None
    if etag is not None:
        self.parent, self._seen = manifest, Seen(new, etag)
    return etag


def tidies_up_after_defeat(self: Any, ref: Any, manifest: Any) -> Steps[None]:
    if (yield from sent_once(self, ref, manifest)) is None:
        for named in manifest.refs():
            yield Delete(Point.COMMIT_SWAP, named.key)
        raise Unavailable("HEAD", "was not swapped", "try again")


def tidies_up_after_unknown(self: Any, ref: Any, manifest: Any) -> Steps[None]:
    try:
        yield from honest_decide(self, ref, manifest)
    except Unavailable:
        for named in manifest.refs():
            yield Delete(Point.COMMIT_SWAP, named.key)
        raise


def commits_again_on_top(self: Any, ref: Any, manifest: Any) -> Steps[None]:
    while (yield from sent_once(self, ref, manifest)) is None:
        seen = yield from read(HEAD_REGISTER, Point.COMMIT_SETTLE)
        if seen.document.token > self.tenure.token:
            raise self.tenure.fence(seen.document.token, seen.document.holder)
        self._seen = seen


def conflict_is_final(change: Any) -> Steps[Any]:
    try:
        return (yield from honest_send(change))
    except Unavailable as answer:
        if "409" in answer.found:
            raise Invalid("HEAD", "409", "stop") from answer
        raise


def believes_conflicts(self: Any, draft: Any) -> Steps[Any]:
    try:
        return (yield from honest_commit(self, draft))
    except Invalid as answer:
        if "409" in answer.found:
            raise self.tenure.fence(self.tenure.token, self.tenure.holder) from answer
        raise


def decides_by_name(self: Any, draft: Any) -> Steps[Any]:
    """The manifest's numbered name is the decision; HEAD only follows."""
    manifest = self._manifest(draft, CommitId(""))
    body = formats.encode(manifest)
    ref = formats.ref_to(Key(f"manifests/{manifest.epoch:012d}-.json"), body)
    if (yield Create(Point.COMMIT_MANIFEST, ref.key, body)) is None:
        raise self.tenure.fence(self.tenure.token, self.tenure.holder)
    new = self.head.advanced(ref, manifest.commit, self._floor)
    yield Put(Point.COMMIT_SWAP, HEAD_KEY, HEAD_REGISTER.encode(new))
    seen = yield from read(HEAD_REGISTER, Point.COMMIT_SETTLE)
    self.parent, self._seen = manifest, Seen(new, seen.etag)
    return manifest


def explains_nothing(self: Any, ref: Any, needed_by: Any) -> Steps[None]:
    yield from ()


def decides_before_storing(self: Any, draft: Any) -> Steps[Any]:
    manifest = self._manifest(draft, self._chance.unique())
    body = formats.encode(manifest)
    ref = formats.ref_to(leader.manifest_key(manifest.epoch, manifest.commit), body)
    yield from honest_decide(self, ref, manifest)
    yield Put(Point.COMMIT_MANIFEST, ref.key, body)
    return manifest


def delta_without_attempt(operator: str, partition: int, epoch: Epoch, attempt: Any) -> Key:
    return delta_key(operator, partition, epoch, Attempt("same"))


def output_without_attempt(sink: str, epoch: Epoch, partition: int, attempt: Any) -> Key:
    return output_key(sink, epoch, partition, Attempt("same"))


def forgets_recent(self: Any, change: Any, expected: Any) -> Landed:
    mine = self.recent[-1:] == change.recent[-1:] and self.token == change.token
    return Landed.YES if mine else Landed.NO


def expected_is_defeat(change: Any) -> Steps[Any]:
    verdict = yield from honest_settle(change)
    if verdict is None and change.expected is not None:
        return Lost(change.expected, Landed.NO)
    return verdict


def stale_is_defeat(change: Any) -> Steps[Any]:
    seen = yield from read(change.register, change.settle_at)
    before = None if change.expected is None else change.expected.document
    if seen is None or (change.expected is not None and seen.etag == change.expected.etag):
        return None
    landed = seen.document.tells_of(change.new, before)
    return Won(seen) if landed is Landed.YES else Lost(seen, landed)


def reloads_and_goes_on(self: Any, ref: Any, manifest: Any) -> Steps[None]:
    new = self.head.advanced(ref, manifest.commit, self._floor)
    outcome = yield from register.swap(
        HEAD_REGISTER, self._seen, new, Point.COMMIT_SWAP, Point.COMMIT_SETTLE
    )
    self.parent, self._seen = manifest, outcome.seen


def expects_what_it_reads(
    register_: Any, expected: Any, new: Any, send_at: Any, settle_at: Any
) -> Steps[Any]:
    """A retry that takes the newest version for the expected one."""
    for _ in range(8):
        change = register._Swap(register_, expected, new, send_at, settle_at)
        with suppress(Unavailable):
            etag = yield from honest_send(change)
            if etag is not None:
                return Won(Seen(new, etag))
        expected = yield from read(register_, settle_at)
    raise Unavailable("HEAD", "is busy", "try again")


def verifies_nothing(ref: Any, sha256: str, size_bytes: int) -> None:
    pass


def never_ends(self: Any, why: Any) -> None:
    pass


def any_floor(self: Any, floor: Any) -> None:
    self._floor = floor


Leader = leader.Leader
IMPATIENT = ((register, "SENDS_MAX", 1), (register, "LOOKS_MAX", 1))
MUTANTS = (
    Mutant("B1", "a refusal is a defeat", ((register, "_settle", refusal_is_defeat),), by_seeds),
    Mutant(
        "B1 retry",
        "a client sends a conditional write again and believes the last answer",
        ((register, "_send", sends_again_by_itself), (register, "_settle", refusal_is_defeat)),
        by_seeds,
    ),
    Mutant(
        "B2", "clean-up after a defeat", ((Leader, "_decide", tidies_up_after_defeat),), by_seeds
    ),
    Mutant(
        "B2 unknown",
        "clean-up after an unknown outcome",
        ((Leader, "_decide", tidies_up_after_unknown), *IMPATIENT),
        by_seeds,
    ),
    Mutant("B3", "an unknown commit again", ((Leader, "_decide", commits_again_on_top),), by_seeds),
    Mutant(
        "B4",
        "409 is a definite conflict",
        ((register, "_send", conflict_is_final), (Leader, "commit", believes_conflicts)),
        by_seeds,
    ),
    Mutant(
        "B5", "sequenced names decide", ((Leader, "commit", decides_by_name),), by_zombies("I6")
    ),
    Mutant("B6", "404 is corruption", ((chain.Chain, "explain", explains_nothing),), by_zombies()),
    Mutant(
        "B7", "HEAD before the manifest", ((Leader, "commit", decides_before_storing),), by_seeds
    ),
    Mutant(
        "B8",
        "attempts share a name",
        (
            (model_job, "delta_key", delta_without_attempt),
            (model_job, "output_key", output_without_attempt),
        ),
        by_seeds,
    ),
    Mutant(
        "7 recent",
        "a commit that others built on is forgotten",
        ((leader.Head, "_tells_of_commit", forgets_recent),),
        by_zombies(),
    ),
    Mutant(
        "7 resend",
        "HEAD unchanged is a defeat",
        ((register, "_settle", expected_is_defeat),),
        by_seeds,
    ),
    Mutant(
        "7 stale",
        "an older HEAD is a defeat",
        ((register, "_settle", stale_is_defeat),),
        by(test_an_older_answer_is_looked_at_again),
    ),
    Mutant(
        "7 fenced", "fenced, and goes on", ((Leader, "_decide", reloads_and_goes_on),), by_seeds
    ),
    Mutant(
        "7 same",
        "a retry expects what it reads",
        ((leader, "swap", expects_what_it_reads),),
        by_seeds,
    ),
    Mutant("7 verify", "references not verified", ((chain, "verify", verifies_nothing),), by_seeds),
    Mutant(
        "7 unknown",
        "an unknown outcome does not end the tenure",
        ((Tenure, "end", never_ends),),
        by(test_an_unknown_outcome_ends_the_tenure),
    ),
)
