"""Going back, also while others who have not heard of it go on."""

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.checkpoint import (
    Chain,
    Head,
    Leader,
    Lease,
    MemoryStore,
    Pin,
    Retention,
    View,
    collect,
    pin,
    read_pins,
    unpin,
)
from penstock.checkpoint.fsck import Findings, check
from penstock.checkpoint.restore import Identity, Way
from penstock.checkpoint.rewind import Target, rewind
from penstock.checkpoint.root import Root
from penstock.errors import Corrupt, Fenced, Gone, Invalid, PenstockError
from penstock.ids import Epoch, Generation, Holder, JobName, Token
from penstock.points import Point
from penstock.state.delta import Marker
from tests.support.driving import CountingChance, ManualClock, Stage
from tests.support.history import JOB, SINK, commit_epochs, contents, led, work
from tests.support.small_job import OPERATOR, SmallJob

LITTLE = Retention(epochs=1, age_s=0.0, grace_s=0.0)


def with_epochs(epochs: int, snapshot: bool = False) -> tuple[Stage, Leader, CountingChance]:
    stage = Stage()
    leader, chance = led(stage)
    for _ in range(epochs):
        stage.run(work(leader, chance, snapshot=snapshot))
    return stage, leader, chance


def go_back(stage: Stage, target: Target) -> Head:
    head: Head = stage.run(rewind(JOB, Holder("back"), target, CountingChance("back")))
    return head


def go_on(stage: Stage, epochs: int, holder: str = "next") -> Leader:
    """The next leader, from wherever HEAD is."""
    leader, chance = led(stage, holder)
    for _ in range(epochs):
        stage.run(work(leader, chance, snapshot=True))
    return leader


def give_up(stage: Stage, leader: Leader, chance: CountingChance) -> None:
    """Let go of all but the last epoch: the floor rises with a commit, then it is obeyed."""
    applied = {SINK: Epoch(leader.head.epoch + 1)}
    leader.raise_floor(stage.run(collect(Chain(), LITTLE, applied)).next_floor)
    stage.run(work(leader, chance, snapshot=True))
    stage.run(collect(Chain(), LITTLE))


def is_sound(stage: Stage) -> bool:
    found: Findings = stage.run(check(Chain()))
    return (found.wrong, found.broken_pins) == ([], [])


def pins(stage: Stage) -> list[Pin]:
    found: list[Pin] = stage.run(read_pins(Point.READ_HEAD, Point.READ_HEAD))
    return found


def test_head_names_the_earlier_epoch_in_a_new_generation() -> None:
    """Everything else about it is as it was then, and nothing is removed."""
    stage, leader, _ = with_epochs(5)
    before, kept = leader.head, contents(stage.store)
    third = stage.run(pin(Chain(), "third", "mark", Epoch(3)))
    stage.run(unpin("third"))

    head = go_back(stage, Epoch(3))

    assert head == Head(
        job=JOB,
        generation=Generation(2),
        token=Token(2),
        holder=Holder("back"),
        epoch=Epoch(3),
        manifest=third.manifest,
        recent=before.recent[:3],
        floor=Epoch(1),
    )
    assert contents(stage.store).keys() == kept.keys()
    assert head.rank > before.rank


def test_the_job_goes_on_from_there() -> None:
    """The new line is one whole chain, and the old one goes when HEAD has passed it."""
    stage, leader, _ = with_epochs(5)
    old = contents(stage.store).keys()
    go_back(stage, Epoch(3))

    after = go_on(stage, 3)

    assert (after.head.epoch, after.head.generation, is_sound(stage)) == (6, 2, True)
    assert [epoch for epoch, _ in after.head.recent] == [1, 2, 3, 4, 5, 6]
    assert after.head.recent[:3] == leader.head.recent[:3]
    assert not set(after.head.recent[3:]) & set(leader.head.recent)
    assert stage.run(collect(Chain(), LITTLE)).removed == 3 * 2  # delta, output, manifest of 4, 5
    assert len(old - contents(stage.store).keys()) == 6
    assert is_sound(stage)


def test_a_deposed_leader_cannot_commit_behind_a_rewind() -> None:
    """Its epoch is higher than HEAD's, and counts for nothing."""
    stage, leader, chance = with_epochs(5)
    head = go_back(stage, Epoch(2))

    with pytest.raises(Fenced) as caught:
        stage.run(work(leader, chance))

    assert (caught.value.held, caught.value.newest, caught.value.by) == (1, 2, "back")
    assert stage.run(Chain().head(Point.READ_HEAD)).document == head


def test_a_reader_that_saw_the_old_line_follows_the_rewind() -> None:
    """The view compares tokens before epochs: a rewind is news, not a stale read."""
    stage, leader, _ = with_epochs(5)
    view = View(Chain())
    assert stage.run(view.refresh()) == leader.head

    head = go_back(stage, Epoch(2))

    assert stage.run(view.refresh()) == head


def test_one_can_go_back_to_where_one_is_and_further_back_again() -> None:
    """Each time a generation of its own."""
    stage, _, _ = with_epochs(4)
    heads = [go_back(stage, Epoch(epoch)) for epoch in (4, 3, 1)]

    assert [(h.epoch, h.generation, h.token) for h in heads] == [(4, 2, 2), (3, 3, 3), (1, 4, 4)]
    assert go_on(stage, 2).head.epoch == 3
    assert is_sound(stage)


@pytest.mark.parametrize("target", [Epoch(2), "good"])
def test_a_pinned_epoch_can_be_gone_back_to_after_it_was_given_up(target: Target) -> None:
    """That is what a savepoint is for. Below it nothing is promised."""
    stage, leader, chance = with_epochs(3, snapshot=True)
    kept = stage.run(pin(Chain(), "good", "mark", Epoch(2)))
    for _ in range(3):
        give_up(stage, leader, chance)
    assert leader.head.floor > 2

    head = go_back(stage, target)

    assert (head.epoch, head.manifest, head.floor) == (2, kept.manifest, 2)
    assert head.recent == leader.head.recent[:2]
    stage.run(unpin("good"))
    go_on(stage, 5)
    stage.run(collect(Chain(), LITTLE))
    assert is_sound(stage)


def test_a_pin_on_another_line_leads_back_to_that_line() -> None:
    """Its number is taken by an epoch of this line; HEAD must not mix the two."""
    stage, _, _ = with_epochs(5, snapshot=True)
    kept = stage.run(pin(Chain(), "first-line", "mark", Epoch(4)))
    go_back(stage, Epoch(2))
    second = go_on(stage, 3)
    stage.run(collect(Chain(), LITTLE))

    head = go_back(stage, "first-line")

    assert (head.epoch, head.manifest, head.generation) == (4, kept.manifest, 3)
    assert [epoch for epoch, _ in head.recent] == [4]
    assert not set(head.recent) & set(second.head.recent)
    assert head.floor == 4
    go_on(stage, 3, "last")
    stage.run(collect(Chain(), LITTLE))
    assert is_sound(stage)


def test_an_epoch_pinned_on_two_lines_must_be_named() -> None:
    """A number alone does not say which is meant."""
    stage, _, _ = with_epochs(4, snapshot=True)
    stage.run(pin(Chain(), "one", "mark-1", Epoch(4)))
    go_back(stage, Epoch(2))
    leader, chance = led(stage, "next")
    for _ in range(2):
        stage.run(work(leader, chance, snapshot=True))
    stage.run(pin(Chain(), "two", "mark-2", Epoch(4)))
    for _ in range(3):
        give_up(stage, leader, chance)

    with pytest.raises(Invalid) as caught:
        go_back(stage, Epoch(4))

    assert str(caught.value) == (
        "epoch 4 is pinned on several lines of history, as one and two: "
        "say which by the name of its pin."
    )


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (
            Epoch(9),
            "epoch 9 is not kept: epochs 1 to 3 are, and there are the pins kept (epoch 2): "
            "choose one that is kept.",
        ),
        (
            "lost",
            "pin lost does not exist: there are the pins kept (epoch 2): choose one that does.",
        ),
    ],
)
def test_what_is_not_kept_cannot_be_gone_back_to(target: Target, words: str) -> None:
    """And what can be is said; nothing has changed."""
    stage, _, _ = with_epochs(3)
    stage.run(pin(Chain(), "kept", "mark", Epoch(2)))
    before = contents(stage.store)

    with pytest.raises(Invalid) as caught:
        go_back(stage, target)

    assert str(caught.value) == words
    assert contents(stage.store) == before


def test_another_jobs_root_is_left_alone() -> None:
    """A root belongs to one job for ever."""
    stage, _, _ = with_epochs(2)
    before = contents(stage.store)

    with pytest.raises(Invalid, match="belongs to job 'clicks', not to 'other'"):
        stage.run(rewind(JobName("other"), Holder("back"), Epoch(1), CountingChance("back")))

    assert contents(stage.store) == before


def test_an_epoch_that_is_not_all_there_is_refused_before_anything_changes() -> None:
    """One cannot go forward again: better to hear of the damage while HEAD is where it was."""
    stage, _, _ = with_epochs(3)
    lost = next(key for key in contents(stage.store) if key.startswith("changelog/"))
    stage.store.delete(lost)  # type: ignore[arg-type]
    before = contents(stage.store)

    with pytest.raises(Corrupt) as caught:
        go_back(stage, Epoch(2))

    assert str(caught.value) == (
        f"{lost} is missing, though epoch 2 needs it: choose another epoch."
    )
    assert contents(stage.store) == before


def at_step(number: int, deed: Callable[[], Any]) -> Callable[[Any, Callable[[], Any]], Any]:
    """Let `deed` happen right before the effect of that number, and be done by then."""
    left = number

    def interfere(effect: Any, perform_it: Callable[[], Any]) -> Any:
        nonlocal left
        left -= 1
        if left == -1:
            deed()
        return perform_it()

    return interfere


def run_beside(stage: Stage, protocol: Generator[Any, Any, Any], step: int, deed: Any) -> bool:
    """Run a protocol with a deed in the middle; whether it was long enough for it."""
    happened = False

    def undisturbed() -> None:
        nonlocal happened
        stage.interfere, happened = None, True
        deed()

    stage.interfere = at_step(step, undisturbed)
    try:
        stage.run(protocol)
    except (Fenced, Invalid):
        pass
    finally:
        stage.interfere = None
    return happened


def test_a_collection_may_be_anywhere_when_history_is_rewound() -> None:
    """It stops before it takes the new line's objects for garbage of the old one."""
    step, happened = 0, True
    while happened:
        stage, leader, chance = with_epochs(6, snapshot=True)
        leader.raise_floor(Epoch(3))
        stage.run(work(leader, chance))

        def back_and_on(stage: Stage = stage) -> None:
            go_back(stage, Epoch(4))
            go_on(stage, 2)

        happened = run_beside(stage, collect(Chain(leader.tenure), LITTLE), step, back_and_on)
        assert is_sound(stage), f"a rewind before step {step} of a collection"
        step += 1
    assert step > 20


def test_anything_may_happen_while_a_rewind_is_under_way() -> None:
    """The leader goes on, gives the target up, its pin is removed, and the collector runs."""
    outcomes = set()
    for target in (Epoch(3), "held"):
        step, happened = 0, True
        while happened:
            stage, leader, chance = with_epochs(4, snapshot=True)
            stage.run(pin(Chain(), "held", "mark", Epoch(3)))
            if target == "held":
                give_up(stage, leader, chance)
                give_up(stage, leader, chance)

            def everything(
                stage: Stage = stage, leader: Leader = leader, chance: CountingChance = chance
            ) -> None:
                try:
                    stage.run(unpin("held"))
                    give_up(stage, leader, chance)
                    give_up(stage, leader, chance)
                except Fenced:
                    stage.run(collect(Chain(), LITTLE))

            steps = rewind(JOB, Holder("back"), target, CountingChance("back"))
            happened = run_beside(stage, steps, step, everything)
            head = stage.run(Chain().head(Point.READ_HEAD)).document
            outcomes.add((head.generation, head.epoch == 3))
            assert is_sound(stage), f"interrupted before step {step} of a rewind to {target}"
            go_on(stage, 2)
            stage.run(collect(Chain(), LITTLE))
            left = [] if happened else ["held"]  # the last round was too short for the deed
            assert (is_sound(stage), [each.name for each in pins(stage)]) == (True, left)
            step += 1
    assert outcomes == {(1, False), (2, True)}


def test_a_pin_written_beside_a_rewind_holds_or_is_refused() -> None:
    """Whoever was told that an epoch is kept will find it, whatever line goes on."""
    step, happened, told = 0, True, set()
    while happened:
        stage, _, _ = with_epochs(5, snapshot=True)

        def back_and_on(stage: Stage = stage) -> None:
            go_back(stage, Epoch(2))
            go_on(stage, 5)

        happened = run_beside(stage, pin(Chain(), "kept", "mark", Epoch(4)), step, back_and_on)
        stage.run(collect(Chain(), LITTLE))
        told.add(len(pins(stage)))
        assert is_sound(stage), f"a rewind before step {step} of a pin"
        step += 1
    assert told == {0, 1}


def test_a_second_rewind_meanwhile_is_not_overruled() -> None:
    """The epoch that was found may be of a line nobody is on any more."""
    stage, _, _ = with_epochs(5)
    steps = rewind(JOB, Holder("slow"), Epoch(4), CountingChance("slow"))

    def interfere(effect: Any, perform_it: Any) -> Any:
        if effect.at is Point.TAKEOVER_READ:
            stage.interfere = None
            go_back(stage, Epoch(2))
        return perform_it()

    stage.interfere = interfere
    with pytest.raises(Invalid, match="somebody went back meanwhile"):
        stage.run(steps)

    head = stage.run(Chain().head(Point.READ_HEAD)).document
    assert (head.epoch, head.generation, pins(stage)) == (2, 2, [])


def test_a_swap_whose_outcome_is_unknown_leaves_the_target_pinned() -> None:
    """HEAD may come to name it yet, so it must not be given up."""
    stage, _, _ = with_epochs(3)

    def silent(effect: Any, perform_it: Any) -> Any:
        if effect.at in (Point.TAKEOVER_SWAP, Point.TAKEOVER_SETTLE):
            raise PenstockError("HEAD", "did not answer", "try again")
        return perform_it()

    stage.interfere = silent
    with pytest.raises(PenstockError, match="did not answer"):
        go_back(stage, Epoch(2))
    stage.interfere = None

    assert [(each.name, each.epoch) for each in pins(stage)] == [("rewind-back1", 2)]


def test_a_root_is_rewound_and_free_to_be_led() -> None:
    """The next start of the job waits for nobody."""
    clock = ManualClock()
    root = Root(MemoryStore(), clock, CountingChance())
    session = root.lead(JOB, "one")
    commit_epochs(root, session, 4)
    before_s = clock.now_s

    head = root.rewind(JOB, Epoch(2))
    root.wait_for_turn(Lease())

    assert (head.epoch, head.generation, head.token, clock.now_s) == (2, 2, 2, before_s)
    assert [manifest.epoch for manifest in root.history()] == [2, 1]
    with pytest.raises(Fenced):
        commit_epochs(root, session, 1)


def test_a_database_from_before_the_rewind_is_used_again(tmp_path: Path) -> None:
    """Its marker is on the lineage, and nothing is fetched."""
    job = SmallJob(MemoryStore(), tmp_path / "host")
    for number in range(3):
        job.epoch({f"user{number}": number})
    head = job.root.rewind(job.session.head.job, Epoch(2))
    job.session = job.root.lead("clicks", "again")
    job.identity = Identity("clicks", OPERATOR, 0, head.generation)

    opened = job.open()
    opened.close()

    assert (opened.restore.way, opened.restore.downloads) == (Way.LOCAL_DATABASE, 0)
    assert job.contents() == {"user0": 0, "user1": 1}


def test_a_database_of_a_later_generation_is_nobodys() -> None:
    """Who holds an older generation than a database has been left behind."""
    marker = Marker(
        job="j", operator="o", partition=0, generation=Generation(2), epoch=Epoch(1), attempt="a"
    )  # type: ignore[arg-type]
    owned = [Identity("j", "o", 0, Generation(number)).owns(marker) for number in (1, 2, 3)]
    other = msgspec.structs.replace(marker, partition=1)

    assert owned == [False, True, True]
    assert not Identity("j", "o", 0, Generation(2)).owns(other)


def test_an_epoch_given_up_and_not_pinned_is_no_target() -> None:
    """Even if some of its objects happen to be there still."""
    stage, leader, chance = with_epochs(3)
    give_up(stage, leader, chance)

    with pytest.raises(Invalid) as caught:
        go_back(stage, Epoch(1))

    assert not isinstance(caught.value, Gone)
    assert str(caught.value) == (
        "epoch 1 is not kept: epochs 3 to 4 are, and there are no pins: choose one that is kept."
    )
