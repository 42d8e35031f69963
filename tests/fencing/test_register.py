from typing import Any

import pytest

from penstock.checkpoint import HEAD_REGISTER, Head
from penstock.effects import Create, Get, Replace, Stored
from penstock.errors import Corrupt, Unavailable
from penstock.fencing import Landed, Lost, Seen, Won, read, swap
from penstock.fencing.register import SENDS_MAX
from penstock.ids import CommitId, Epoch, ETag, Holder, JobName, Key, Token
from penstock.points import Point
from tests.support.driving import Stage, lose_answers

REF = {"key": Key("manifests/x.json"), "sha256": "0" * 64, "size_bytes": 1}
FIRST = Head(job=JobName("clicks"), token=Token(1), holder=Holder("one"))


def commit(head: Head, name: str) -> Head:
    from penstock.checkpoint import Ref

    return head.advanced(Ref(**REF), CommitId(name), Epoch(1))  # type: ignore[arg-type]


def swapped(expected: Seen[Head] | None, new: Head) -> Any:
    return swap(HEAD_REGISTER, expected, new, Point.COMMIT_SWAP, Point.COMMIT_SETTLE)


def born(stage: Stage) -> Seen[Head]:
    outcome = stage.run(swapped(None, FIRST))
    assert isinstance(outcome, Won)
    return outcome.seen


def test_a_confirmed_swap_needs_one_request() -> None:
    """The usual case costs one round trip."""
    stage = Stage()
    seen = born(stage)
    outcome = stage.run(swapped(seen, commit(FIRST, "a")))

    assert isinstance(outcome, Won)
    assert [type(effect) for effect in stage.seen] == [Create, Replace]


def test_a_lost_answer_to_ones_own_success_is_a_win() -> None:
    """A retry would meet its own success and be refused; reading tells the truth."""
    stage = Stage()
    seen = born(stage)
    stage.interfere = lose_answers(1)
    outcome = stage.run(swapped(seen, commit(FIRST, "a")))

    assert isinstance(outcome, Won)
    assert [type(effect) for effect in stage.seen[1:]] == [Replace, Get]


def test_a_lost_request_is_sent_again_unchanged() -> None:
    """As long as the expected version is there nothing has happened yet."""
    stage = Stage()
    seen = born(stage)
    lost = [True]

    def lose_one(effect: Any, perform_it: Any) -> Any:
        if isinstance(effect, Replace) and lost.pop() if lost else False:
            raise Unavailable("HEAD", "did not answer", "try again")
        return perform_it()

    stage.interfere = lose_one
    outcome = stage.run(swapped(seen, commit(FIRST, "a")))

    assert isinstance(outcome, Won)
    sent = [effect for effect in stage.seen if isinstance(effect, Replace)]
    assert sent[0] == sent[1]


def test_a_commit_that_others_built_on_is_a_win() -> None:
    """Our change need not be the newest one to have happened."""
    stage = Stage()
    seen = born(stage)
    ours = commit(FIRST, "ours")

    def others_follow(effect: Any, perform_it: Any) -> Any:
        if isinstance(effect, Replace) and effect.body == HEAD_REGISTER.encode(ours):
            etag = perform_it()
            taken = ours.claimed(FIRST.job, Holder("two"))
            theirs = commit(taken, "theirs")
            etag = stage.store.replace(Key("HEAD"), HEAD_REGISTER.encode(taken), etag)
            stage.store.replace(Key("HEAD"), HEAD_REGISTER.encode(theirs), etag)
            raise Unavailable("HEAD", "did not answer", "try again")
        return perform_it()

    stage.interfere = others_follow
    outcome = stage.run(swapped(seen, ours))

    assert isinstance(outcome, Won)
    assert outcome.seen.document.holder == "two"


def test_a_swap_that_came_too_late_is_lost() -> None:
    """The version expected is gone for good: somebody else leads."""
    stage = Stage()
    seen = born(stage)
    stage.run(swapped(seen, FIRST.claimed(FIRST.job, Holder("two"))))

    outcome = stage.run(swapped(seen, commit(FIRST, "late")))

    assert isinstance(outcome, Lost)
    assert (outcome.landed, outcome.seen.document.token) == (Landed.NO, 2)


def test_an_older_answer_is_looked_at_again() -> None:
    """A cache that answers with the past must not make a winner believe it has lost."""
    stage = Stage()
    first = born(stage)
    past = stage.store.get(Key("HEAD"))
    second = stage.run(swapped(first, commit(FIRST, "a")))
    stale = [True, True]
    answers = lose_answers(1)

    def stale_reads(effect: Any, perform_it: Any) -> Any:
        if isinstance(effect, Get) and stale:
            stale.pop()
            return past
        return answers(effect, perform_it)

    stage.interfere = stale_reads
    outcome = stage.run(swapped(second.seen, commit(second.seen.document, "b")))

    assert isinstance(outcome, Won)


def test_an_outcome_nobody_tells_is_reported_as_unknown() -> None:
    """Unknown is neither won nor lost."""
    stage = Stage()
    seen = born(stage)

    def refuse_quietly(effect: Any, perform_it: Any) -> Any:
        return None if isinstance(effect, Replace) else perform_it()

    stage.interfere = refuse_quietly
    with pytest.raises(Unavailable, match="outcome the store would not tell"):
        stage.run(swapped(seen, commit(FIRST, "a")))
    assert sum(isinstance(effect, Replace) for effect in stage.seen) == SENDS_MAX


def test_after_too_many_commits_the_past_is_untold() -> None:
    """HEAD remembers 64 commits; about older ones it says nothing rather than no."""
    stage = Stage()
    seen = born(stage)
    ours = commit(FIRST, "ours")
    later = ours.claimed(FIRST.job, Holder("two"))
    for number in range(70):
        later = commit(later, f"c{number}")
    assert later.tells_of(ours, FIRST) is Landed.UNTOLD
    assert commit(FIRST, "other").tells_of(ours, seen.document) is Landed.NO


def test_a_bit_flipped_on_the_wire_is_read_again() -> None:
    """HEAD carries its own hash, so damage in transit is noticed and does no harm."""
    stage = Stage()
    born(stage)
    good = stage.store.get(Key("HEAD"))
    assert good is not None
    answers = [Stored(good.body.replace(b'"token":1', b'"token":9'), good.etag), good]
    stage.interfere = lambda effect, perform_it: answers.pop(0)

    seen = stage.run(read(HEAD_REGISTER, Point.READ_HEAD))

    assert seen == Seen(FIRST, good.etag)


@pytest.mark.parametrize("cut", [0, 1, 40])
def test_a_truncated_head_is_corrupt(cut: int) -> None:
    """Damage at rest is named, not guessed at."""
    stage = Stage()
    body = HEAD_REGISTER.encode(FIRST)[:cut]
    stage.interfere = lambda effect, perform_it: Stored(body, ETag("x"))
    with pytest.raises(Corrupt, match="HEAD"):
        stage.run(read(HEAD_REGISTER, Point.READ_HEAD))
