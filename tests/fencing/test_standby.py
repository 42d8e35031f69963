from collections.abc import Generator
from typing import Any

import pytest

from penstock.checkpoint import HEAD_REGISTER, Head, lead
from penstock.effects import Get, Put, Wait
from penstock.errors import Unavailable
from penstock.fencing import Silence, heartbeat_key, heartbeats, release, stand_by
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
