from collections.abc import Generator
from typing import Any

import pytest

from penstock.checkpoint import HEAD_REGISTER, Head, lead
from penstock.effects import Get, Put, Wait
from penstock.errors import Unavailable
from penstock.fencing import Silence, heartbeat_key, heartbeats, is_led, release, stand_by
from penstock.fencing.heartbeat import BEAT_BYTES_MAX, Beat, decode_beat
from penstock.fencing.tenure import Tenure
from penstock.ids import Epoch, Holder, JobName, Token
from tests.support.driving import CountingChance, Stage

JOB = JobName("clicks")
LEASE_S = 10.0


def beating(stage: Stage, beats: int) -> Any:
    """A leader that beats `beats` times and is silent then: run one step per standby wait."""
    leader = stage.run(lead(JOB, Holder("one"), stage.clock, CountingChance()))
    steps = heartbeats(HEAD_REGISTER, leader.tenure, 1.0, lambda: False)
    return leader, _alive_for(stage, steps, beats)


def _alive_for(stage: Stage, steps: Any, beats: int) -> Generator[None, None, None]:
    effect = next(steps)
    while beats:
        if isinstance(effect, Wait):
            yield
            beats -= 1
            effect = steps.send(None)
        elif isinstance(effect, Get):
            effect = steps.send(stage.store.get(effect.key))
        elif isinstance(effect, Put):
            stage.store.put(effect.key, effect.body)
            effect = steps.send(None)
    while True:
        yield


def test_a_beating_leader_is_left_alone() -> None:
    """The lease counts from the last sign of life, on the standby's own clock only."""
    stage = Stage()
    _, life = beating(stage, beats=30)
    stage.clock.now_s = 5_000_000.0  # the standby's host believes it is another year
    started_s = stage.clock.now_s
    waits = 0

    steps = stand_by(HEAD_REGISTER, stage.clock, LEASE_S, 1.0)
    effect = next(steps)
    with pytest.raises(StopIteration):
        while True:
            if isinstance(effect, Wait):
                waits += 1
                next(life)
                stage.clock.sleep(effect.seconds)
                effect = steps.send(None)
            else:
                effect = steps.send(stage.store.get(effect.key))

    assert stage.clock.now_s - started_s == 30 - 1 + LEASE_S + 1
    assert waits == 40


def test_a_released_job_is_taken_at_once() -> None:
    """A leader that stops in order saves its successor the lease."""
    stage = Stage()
    leader, _ = beating(stage, beats=0)
    stage.run(release(leader.tenure))
    before_s = stage.clock.now_s

    stage.run(stand_by(HEAD_REGISTER, stage.clock, LEASE_S, 1.0))

    assert stage.clock.now_s == before_s


def test_a_root_without_a_leader_is_taken_at_once() -> None:
    """The first start of a job waits for nobody."""
    stage = Stage()
    stage.run(stand_by(HEAD_REGISTER, stage.clock, LEASE_S, 1.0))
    assert stage.clock.now_s == 1000.0


def test_not_hearing_is_not_silence() -> None:
    """A standby that cannot reach the store must not depose a leader that can."""
    stage = Stage()
    beating(stage, beats=0)
    asked = 0

    def deaf(effect: object, perform_it: object) -> object:
        nonlocal asked
        asked += 1
        if 2 < asked <= 32:  # one good look, then none for thirty seconds
            raise Unavailable("HEAD", "did not answer", "try again")
        return perform_it()  # type: ignore[operator]

    stage.interfere = deaf
    stage.run(stand_by(HEAD_REGISTER, stage.clock, LEASE_S, 1.0))

    assert stage.clock.now_s == 1000.0 + 1 + 30 + LEASE_S


def test_a_store_that_never_answers_is_not_waited_for() -> None:
    """Its address may be wrong, and somebody must hear of it."""
    stage = Stage()

    def down(effect: object, perform_it: object) -> object:
        raise Unavailable("HEAD", "did not answer", "correct the address")

    stage.interfere = down
    with pytest.raises(Unavailable, match="correct the address"):
        stage.run(stand_by(HEAD_REGISTER, stage.clock, LEASE_S, 1.0))


def test_a_commit_is_a_sign_of_life() -> None:
    """A leader whose heartbeat thread is stuck but which commits is alive."""
    silence = Silence(LEASE_S)
    assert not silence.lasts(("head-1", None), 0.0)
    assert not silence.lasts(("head-2", None), 9.0)
    assert not silence.lasts(("head-2", None), 18.0)
    assert silence.lasts(("head-2", None), 19.0)


def test_a_heartbeat_notices_the_new_leader() -> None:
    """A deposed leader learns of it between commits, and stops."""
    stage = Stage()
    leader, _ = beating(stage, beats=0)
    stage.run(lead(JOB, Holder("two"), stage.clock, CountingChance()))

    stage.run(heartbeats(HEAD_REGISTER, leader.tenure, 1.0, lambda: False))

    assert leader.tenure.over


def test_an_old_leader_cannot_beat_for_the_new_one() -> None:
    """Each token has a heartbeat of its own, so a zombie does not keep a dead leader alive."""
    assert heartbeat_key(Token(1)) != heartbeat_key(Token(2))


def test_heartbeats_survive_a_store_that_is_out_of_reach() -> None:
    """Missing a beat is for the lease to judge, not a reason to stop leading."""
    stage = Stage()
    leader, _ = beating(stage, beats=0)
    asked = 0

    def down(effect: object, perform_it: object) -> object:
        raise Unavailable("HEAD", "did not answer", "try again")

    def stopped() -> bool:
        nonlocal asked
        asked += 1
        return asked > 5

    stage.interfere = down
    stage.run(heartbeats(HEAD_REGISTER, leader.tenure, 1.0, stopped))

    assert not leader.tenure.over
    assert leader.head == Head(job=JOB, token=Token(1), holder=Holder("one"), epoch=Epoch(0))


def asked(stage: Stage, life: Any, is_gone: Any = lambda holder: False) -> Holder | None:
    """Ask who leads, while somebody's life goes on."""
    steps = is_led(HEAD_REGISTER, stage.clock, LEASE_S, 1.0, is_gone)
    effect = next(steps)
    try:
        while True:
            if isinstance(effect, Wait):
                next(life)
                stage.clock.sleep(effect.seconds)
                effect = steps.send(None)
            else:
                effect = steps.send(stage.store.get(effect.key))
    except StopIteration as end:
        found: Holder | None = end.value
        return found


def test_a_leader_that_beats_is_named_as_soon_as_it_does() -> None:
    """One sign of life is enough; nobody waits for the lease."""
    stage = Stage()
    _, life = beating(stage, beats=30)

    assert asked(stage, life) == "one"
    assert stage.clock.now_s == 1000.0 + 1


def test_a_silent_leader_leads_no_more_after_a_lease() -> None:
    """Until then nobody can tell it from one that is only slow."""
    stage = Stage()
    _, life = beating(stage, beats=0)

    assert asked(stage, life) is None
    assert stage.clock.now_s == 1000.0 + LEASE_S


def test_nobody_leads_a_root_that_is_new_or_was_released() -> None:
    """And nobody waits to hear so."""
    stage = Stage()
    assert asked(stage, iter(())) is None
    leader, _ = beating(stage, beats=0)
    stage.run(release(leader.tenure))

    assert asked(stage, iter(())) is None
    assert stage.clock.now_s == 1000.0


def test_a_process_known_to_be_dead_is_not_waited_for() -> None:
    """Whoever sits on the same host can see that it is gone."""
    stage = Stage()
    beating(stage, beats=0)
    names: list[str] = []

    def is_gone(holder: Holder) -> bool:
        names.append(holder)
        return True

    assert asked(stage, iter(()), is_gone) is None
    assert (names, stage.clock.now_s) == (["one"], 1000.0)


def test_who_takes_over_meanwhile_is_the_one_that_leads() -> None:
    """A new name in the register is a sign of life like any other."""
    stage = Stage()
    beating(stage, beats=0)

    def takes_over() -> Generator[None, None, None]:
        yield
        stage.run(lead(JOB, Holder("two"), stage.clock, CountingChance()))
        yield

    assert asked(stage, takes_over()) == "two"


def test_a_store_out_of_reach_does_not_mean_that_nobody_leads() -> None:
    """What cannot be known is not reported as known, nor asked for ever."""
    stage = Stage()
    _, _ = beating(stage, beats=0)
    answers = 2

    def deaf(effect: object, perform_it: object) -> object:
        nonlocal answers
        answers -= 1
        if answers < 0:
            raise Unavailable("HEAD", "did not answer", "try again")
        return perform_it()  # type: ignore[operator]

    stage.interfere = deaf
    with pytest.raises(Unavailable, match="did not answer"):
        stage.run(is_led(HEAD_REGISTER, stage.clock, LEASE_S, 1.0, lambda holder: False))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"holder":"a\\u001b[2J","count":1}',
        b'{"holder":"a","count":1,"notes":{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}}",
        b'{"holder":"a","count":1,"notes":{"x":[' + b"[]," * 22_000 + b"[]]}}",
    ],
    ids=["empty", "no text", "a list", "an escape", "nested", "long"],
)
def test_a_heartbeat_that_cannot_be_read_says_nothing(body: bytes) -> None:
    """It decides nothing, so whoever can write one can only be ignored."""
    assert decode_beat(body) is None


def test_a_leader_with_much_to_tell_is_released_all_the_same() -> None:
    """Notes that are too long for a heartbeat are left out, and the rest of it is read."""
    tenure = Tenure(JOB, Token(1), Holder("one"))
    effect = next(release(tenure, {"sinks": "x" * BEAT_BYTES_MAX}))

    assert isinstance(effect, Put)
    assert decode_beat(effect.body) == Beat(holder=Holder("one"), count=0, released=True)
