from typing import Any

import msgspec
import pytest

from penstock.checkpoint import Chain, Draft, Range, SourceProgress, lead
from penstock.checkpoint.formats import encode, seal
from penstock.checkpoint.layout import HEAD_KEY
from penstock.checkpoint.manifest import decode_manifest
from penstock.effects import Put, Replace
from penstock.errors import Bug, Corrupt, Fenced, Invalid, Unavailable
from penstock.fencing.register import SENDS_MAX
from penstock.fields import ORDINAL_MAX, TIME_MS_MAX
from penstock.ids import Epoch, Holder, JobName, Token
from penstock.points import Point
from tests.support.driving import CountingChance, Stage, lose_answers
from tests.support.history import JOB, SOURCE, contents, led, staged, work


def test_everything_is_stored_before_what_names_it() -> None:
    """The order is the correctness argument: HEAD never names what is not there yet."""
    stage = Stage()
    leader, chance = led(stage)
    before = len(stage.seen)

    stage.run(work(leader, chance))

    assert [(type(e), e.at) for e in stage.seen[before:]] == [
        (Put, Point.STAGE_DELTA),
        (Put, Point.STAGE_OUTPUT),
        (Put, Point.COMMIT_MANIFEST),
        (Replace, Point.COMMIT_SWAP),
    ]


def test_a_new_leader_goes_on_from_the_last_committed_epoch() -> None:
    """Nothing is lost and nothing is done twice across a take-over."""
    stage = Stage()
    old, chance = led(stage, "old")
    first = stage.run(work(old, chance))

    new, chance = led(stage, "new")
    second = stage.run(work(new, chance))

    assert (new.tenure.token, second.epoch, second.holder) == (2, 2, "new")
    assert second.parent is not None
    assert stage.run(Chain().manifest(second.parent, Epoch(1), Point.READ_MANIFEST)) == first


def test_a_deposed_leader_is_refused_and_publishes_nothing() -> None:
    """What it had staged becomes garbage; HEAD and all it reaches stay as they were."""
    stage = Stage()
    old, chance = led(stage, "old")
    stage.run(work(old, chance))
    led(stage, "new")
    before = contents(stage.store)

    with pytest.raises(Fenced) as caught:
        stage.run(work(old, chance))

    after = contents(stage.store)
    assert (caught.value.held, caught.value.newest, caught.value.by) == (1, 2, "new")
    assert caught.value.untold == ""
    assert {key: after[key] for key in before} == before


def test_a_fenced_leader_asks_the_store_no_more() -> None:
    """Sticky: not even a stale read can talk it into another try."""
    stage = Stage()
    old, chance = led(stage, "old")
    draft = stage.run(staged(None, chance))
    led(stage, "new")
    with pytest.raises(Fenced):
        stage.run(old.commit(draft))
    asked = len(stage.seen)

    with pytest.raises(Fenced):
        stage.run(old.commit(draft))

    assert len(stage.seen) == asked


def test_a_commit_whose_answer_was_lost_is_committed_once() -> None:
    """The leader finds its own success in HEAD and goes on from it."""
    stage = Stage()
    leader, chance = led(stage)
    stage.interfere = lose_answers(1)

    manifests = [stage.run(work(leader, chance)) for _ in range(2)]

    assert [manifest.epoch for manifest in manifests] == [1, 2]
    assert leader.head.recent == ((1, manifests[0].commit), (2, manifests[1].commit))


def test_a_commit_that_a_new_leader_built_on_counts_and_ends_the_tenure() -> None:
    """It happened, so it is reported; but whoever reports it no longer leads."""
    stage = Stage()
    old, chance = led(stage, "old")
    draft = stage.run(staged(None, chance))

    def taken_over_meanwhile(effect: Any, perform_it: Any) -> Any:
        answer = perform_it()
        if isinstance(effect, Replace) and effect.at is Point.COMMIT_SWAP:
            stage.interfere = None
            led(stage, "new")
            raise Unavailable(HEAD_KEY, "did not answer", "try again")
        return answer

    stage.interfere = taken_over_meanwhile
    manifest = stage.run(old.commit(draft))

    assert (manifest.epoch, manifest.holder, old.parent) == (1, "old", manifest)
    with pytest.raises(Fenced):
        old.tenure.check()


def test_an_unknown_outcome_ends_the_tenure() -> None:
    """Bytes may be on their way still: a second commit on top could make two of one epoch."""
    stage = Stage()
    leader, chance = led(stage)
    draft = stage.run(staged(None, chance))
    sent = 0

    def deaf(effect: Any, perform_it: Any) -> Any:
        nonlocal sent
        if effect.key != HEAD_KEY:
            return perform_it()
        sent += isinstance(effect, Replace)
        raise Unavailable(effect.key, "did not answer", "try again")

    stage.interfere = deaf
    with pytest.raises(Unavailable, match="taking over settles whether the change happened"):
        stage.run(leader.commit(draft))
    stage.interfere = None
    asked = len(stage.seen)

    with pytest.raises(Unavailable):
        stage.run(leader.commit(draft))

    assert leader.tenure.over
    assert 1 <= sent <= SENDS_MAX
    assert len(stage.seen) == asked


def test_history_without_a_head_is_refused() -> None:
    """Starting at epoch 1 over it would process everything again."""
    stage = Stage()
    leader, chance = led(stage)
    manifest = stage.run(work(leader, chance))
    stage.store.delete(HEAD_KEY)
    before = contents(stage.store)

    with pytest.raises(Corrupt) as caught:
        led(stage, "two")

    assert str(caught.value) == (
        f"HEAD is missing, though there are manifests such as manifests/000000000001-"
        f"{manifest.commit}.json: restore HEAD from a copy, or use another root; "
        "nothing was changed."
    )
    assert contents(stage.store) == before


def test_a_head_that_appears_while_looking_is_no_damage() -> None:
    """Another process may start the job between the look for HEAD and the one for history."""
    stage = Stage()
    looks = 0

    def started_meanwhile(effect: Any, perform_it: Any) -> Any:
        nonlocal looks
        looks += 1
        answer = perform_it()
        if looks == 1:
            stage.interfere = None
            first, chance = led(stage, "first")
            stage.run(work(first, chance))
        return answer

    stage.interfere = started_meanwhile
    second, _ = led(stage, "second")

    assert (second.tenure.token, second.head.epoch) == (2, 1)


def test_a_root_that_cannot_be_gone_on_with_is_not_taken() -> None:
    """Its leader may be fine with what it has read already, and is not disturbed."""
    stage = Stage()
    leader, chance = led(stage)
    stage.run(work(leader, chance))
    assert leader.head.manifest is not None
    stage.store.put(leader.head.manifest.key, b"altered")
    before = contents(stage.store)

    with pytest.raises(Corrupt):
        led(stage, "two")

    assert contents(stage.store) == before


def test_an_interrupted_commit_ends_the_tenure() -> None:
    """Somebody pressed a key while HEAD was on its way: nobody here knows what became of it."""
    stage = Stage()
    leader, chance = led(stage)
    draft = stage.run(staged(None, chance))
    steps = leader.commit(draft)
    assert isinstance(next(steps), Put)
    assert isinstance(steps.send(None), Replace)
    with pytest.raises(KeyboardInterrupt):
        steps.throw(KeyboardInterrupt())

    with pytest.raises(Unavailable, match="was being changed when this process was interrupted"):
        leader.tenure.check()


def test_a_root_of_another_job_is_refused() -> None:
    """A mistyped root must not mix two jobs, nor depose the one it belongs to."""
    stage = Stage()
    led(stage)
    before = contents(stage.store)

    with pytest.raises(Invalid, match="HEAD belongs to job 'clicks', not to 'views'"):
        stage.run(lead(JobName("views"), Holder("two"), stage.clock, CountingChance()))

    assert contents(stage.store) == before


def test_a_job_name_that_is_no_name_is_refused() -> None:
    """Before anything is asked of the store."""
    stage = Stage()

    with pytest.raises(Invalid, match="job 'a/b' is not a name"):
        stage.run(lead(JobName("a/b"), Holder("one"), stage.clock, CountingChance()))

    assert stage.seen == []


@pytest.mark.parametrize(
    ("start", "stop", "resume_at", "flaw"),
    [
        (5, 20, 20, "partition 0 was read from 5, not from 10"),
        (11, 20, 20, "partition 0 was read from 11, not from 10"),
        (10, 20, 19, "partition 0 was read to 20, but resumes at 19"),
        (10, 9, 9, "partition 0 was read to 9, but resumes at 9"),
    ],
)
def test_offsets_that_do_not_follow_are_a_bug_and_nothing_is_written(
    start: int, stop: int, resume_at: int, flaw: str
) -> None:
    """An event read twice or skipped must not be made real, whoever planned it."""
    stage = Stage()
    leader, chance = led(stage)
    stage.run(work(leader, chance))
    good: Draft = stage.run(staged(leader.parent, chance))
    before = contents(stage.store)
    progress = SourceProgress(
        ranges={"0": Range(start=start, stop=stop)}, resume_at={"0": resume_at}
    )

    with pytest.raises(Bug) as caught:
        draft = msgspec.structs.replace(good, sources={SOURCE: progress})
        stage.run(leader.commit(draft))

    assert caught.value.found == f"was not committed: source {SOURCE}: {flaw}"
    assert contents(stage.store) == before


def test_a_wall_clock_that_goes_back_does_not_make_epochs_go_back() -> None:
    """Retention by age would give up the wrong ones."""
    stage = Stage()
    leader, chance = led(stage)
    first = stage.run(work(leader, chance))
    stage.clock.now_s -= 500.0
    second = stage.run(work(leader, chance))
    other, chance = led(stage, "two")
    third = stage.run(work(other, chance))

    assert (first.at_ms, second.at_ms, third.at_ms) == (1_000_000,) * 3


def test_the_floor_rises_with_a_commit_and_never_falls() -> None:
    """Giving up and deleting are two steps with a commit between them."""
    stage = Stage()
    leader, chance = led(stage)
    for _ in range(3):
        stage.run(work(leader, chance))
    leader.raise_floor(Epoch(3))
    assert leader.head.floor == 1
    stage.run(work(leader, chance))
    leader.raise_floor(Epoch(2))
    stage.run(work(leader, chance))
    leader.raise_floor(Epoch(100))
    stage.run(work(leader, chance))

    assert leader.head.floor == 6


def test_a_first_commit_names_no_parent() -> None:
    """The chain has an end, and it is told by None rather than by a magic name."""
    stage = Stage()
    leader, chance = led(stage)

    manifest = stage.run(work(leader, chance))

    assert (manifest.job, manifest.epoch, manifest.parent) == (JOB, 1, None)


def test_no_leader_writes_a_token_that_it_could_not_read() -> None:
    """The last token is forged, and one more would make a HEAD that every process refuses."""
    stage = Stage()
    old, _ = led(stage, "old")
    last = msgspec.structs.replace(old.head, token=Token(ORDINAL_MAX))
    stage.store.put(HEAD_KEY, seal(last))
    before = contents(stage.store)

    with pytest.raises(Corrupt, match="HEAD holds token 999999999999, the last that can be stored"):
        led(stage, "new")
    assert contents(stage.store) == before


def test_no_leader_writes_a_time_that_it_could_not_read() -> None:
    """Times never go back, so all after a forged one would leave the range."""
    stage = Stage()
    leader, chance = led(stage)
    first = stage.run(work(leader, chance))
    leader.parent = msgspec.structs.replace(first, at_ms=TIME_MS_MAX + 1)

    with pytest.raises(Corrupt, match="the manifest before epoch 2 holds a time after which none"):
        stage.run(work(leader, chance))
    assert len(stage.store.list("manifests/")) == 1


@pytest.mark.parametrize("field", ["at_ms", "planned_ms"])
@pytest.mark.parametrize("time_ms", [2**63 - 1, -(2**63), TIME_MS_MAX + 1])
def test_a_forged_time_that_no_clock_tells_is_refused(field: str, time_ms: int) -> None:
    """Handed on, it would end the job in the middle of some computation."""
    stage = Stage()
    leader, chance = led(stage)
    first = stage.run(work(leader, chance))
    forged = msgspec.structs.replace(first, **{field: time_ms})

    with pytest.raises(Corrupt, match=field):
        decode_manifest("forged", encode(forged))
