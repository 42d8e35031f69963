from collections.abc import Generator
from typing import Any

import pytest

from penstock.checkpoint import Chain, Leader, Pin, Retention, collect, pin, read_pins, unpin
from penstock.checkpoint.layout import pin_key
from penstock.errors import Corrupt, Gone, Invalid, Unavailable
from penstock.ids import Epoch
from penstock.points import Point
from tests.support.driving import CountingChance, Stage
from tests.support.history import SINK, contents, led, work

LITTLE = Retention(epochs=1, age_s=0.0, grace_s=0.0)


def pins(stage: Stage) -> list[Pin]:
    found: list[Pin] = stage.run(read_pins(Point.READ_HEAD, Point.READ_HEAD))
    return found


def with_epochs(stage: Stage, epochs: int) -> tuple[Leader, CountingChance]:
    leader, chance = led(stage)
    for _ in range(epochs):
        stage.run(work(leader, chance))
    return leader, chance


def give_up(stage: Stage, leader: Leader, chance: CountingChance) -> None:
    """Two steps with a commit between: the floor rises, then the collector obeys it."""
    applied = {SINK: Epoch(leader.head.epoch + 1)}
    leader.raise_floor(stage.run(collect(Chain(), LITTLE, applied)).next_floor)
    stage.run(work(leader, chance))
    stage.run(collect(Chain(), LITTLE))


def test_a_pin_names_the_last_epoch_unless_told_otherwise() -> None:
    """What is meant by "keep this" is what is there now."""
    stage = Stage()
    leader, _ = with_epochs(stage, 3)

    last = stage.run(pin(Chain(), "last", "mark-1"))
    first = stage.run(pin(Chain(), "first", "mark-2", Epoch(1)))

    assert (last.epoch, last.manifest) == (3, leader.head.manifest)
    assert first.epoch == 1
    assert pins(stage) == [first, last]


def test_a_pinned_epoch_is_kept_whatever_retention_says() -> None:
    """That is what a pin is for; and once let go, it goes."""
    stage = Stage()
    leader, chance = with_epochs(stage, 3)
    kept = stage.run(pin(Chain(), "kept", "mark", Epoch(2)))
    for _ in range(3):
        give_up(stage, leader, chance)
    manifest = stage.run(Chain().manifest(kept.manifest, kept.epoch, Point.READ_MANIFEST))
    held = {kept.manifest.key, *(ref.key for ref in manifest.refs())}
    assert held <= contents(stage.store).keys()

    stage.run(unpin("kept"))
    give_up(stage, leader, chance)

    assert held & contents(stage.store).keys() == {
        ref.key
        for ref in manifest.state_refs()  # deltas since no snapshot: still state
    } | {kept.manifest.key}


@pytest.mark.parametrize("epoch", [0, 3, 99])
def test_only_committed_epochs_can_be_pinned(epoch: int) -> None:
    """And nothing is written for the others."""
    stage = Stage()
    with_epochs(stage, 2)

    with pytest.raises(Invalid) as caught:
        stage.run(pin(Chain(), "name", "mark", Epoch(epoch)))

    assert str(caught.value) == (
        f"epoch {epoch} cannot be pinned: the last committed epoch is 2: choose a committed epoch."
    )
    assert pins(stage) == []


def test_an_epoch_that_was_given_up_cannot_be_pinned() -> None:
    """Its objects may be gone already, even if the manifest happens to be there."""
    stage = Stage()
    leader, chance = with_epochs(stage, 3)
    give_up(stage, leader, chance)

    with pytest.raises(Gone, match="epoch 1 is no longer kept: epochs below 3 of generation 1"):
        stage.run(pin(Chain(), "late", "mark", Epoch(1)))
    assert pins(stage) == []


def test_a_pin_that_came_too_late_is_taken_back() -> None:
    """The floor may pass the epoch between looking and writing."""
    stage = Stage()
    leader, chance = with_epochs(stage, 3)

    def give_up_meanwhile(effect: Any, perform_it: Any) -> Any:
        if effect.at is Point.PIN_WRITE:
            stage.interfere = None
            give_up(stage, leader, chance)
        return perform_it()

    stage.interfere = give_up_meanwhile
    with pytest.raises(Gone, match="epoch 2 is no longer kept"):
        stage.run(pin(Chain(), "late", "mark", Epoch(2)))

    assert pins(stage) == []


def test_a_name_is_given_once() -> None:
    """Moving somebody's pin would let go of what it held."""
    stage = Stage()
    with_epochs(stage, 2)
    first = stage.run(pin(Chain(), "taken", "mark-1", Epoch(1)))

    with pytest.raises(Invalid, match="pin taken exists already"):
        stage.run(pin(Chain(), "taken", "mark-2"))

    assert pins(stage) == [first]


def test_a_pin_that_was_not_written_is_not_confirmed() -> None:
    """Better no pin than one that only its owner believes in."""
    stage = Stage()
    with_epochs(stage, 1)

    def lose_request(effect: Any, perform_it: Any) -> Any:
        if effect.at is Point.PIN_WRITE:
            raise Unavailable(effect.key, "did not answer", "try again")
        return perform_it()

    stage.interfere = lose_request
    with pytest.raises(Unavailable, match=r"pins/name/mark.json did not answer"):
        stage.run(pin(Chain(), "name", "mark"))


def test_a_removal_that_arrives_late_does_not_touch_a_new_pin() -> None:
    """Each pin is an object of its own, removed by its full name."""
    stage = Stage()
    with_epochs(stage, 2)
    old = stage.run(pin(Chain(), "name", "mark-1", Epoch(1)))
    removal: Generator[Any, Any, None] = unpin("name")
    listed = stage.store.list(next(removal).prefix)
    stage.run(unpin("name"))
    new = stage.run(pin(Chain(), "name", "mark-2", Epoch(2)))

    late = removal.send(listed)
    stage.store.delete(late.key)

    assert late.key == pin_key("name", old.mark)
    assert pins(stage) == [new]


def test_a_pin_that_cannot_be_read_stops_the_collector() -> None:
    """Better to keep all than to lose what it holds."""
    stage = Stage()
    leader, chance = with_epochs(stage, 2)
    stage.run(pin(Chain(), "damaged", "mark", Epoch(1)))
    stored = stage.store.get(pin_key("damaged", "mark"))
    assert stored is not None
    stage.store.put(pin_key("damaged", "mark"), stored.body.replace(b'"epoch":1', b'"epoch":2'))
    stage.run(work(leader, chance))
    before = contents(stage.store)

    with pytest.raises(Corrupt, match=r"pins/damaged/mark.json does not match its own checksum"):
        stage.run(collect(Chain(), LITTLE))

    assert contents(stage.store) == before


def test_a_pin_on_what_is_gone_does_not_stop_the_collector() -> None:
    """Its request arrived after its writer had given up: it was never confirmed to anybody."""
    stage = Stage()
    leader, chance = with_epochs(stage, 3)
    stage.run(pin(Chain(), "dangling", "mark", Epoch(1)))
    late = stage.store.get(pin_key("dangling", "mark"))
    assert late is not None
    stage.run(unpin("dangling"))
    stage.run(work(leader, chance, snapshot=True))
    give_up(stage, leader, chance)
    give_up(stage, leader, chance)
    stage.store.put(pin_key("dangling", "mark"), late.body)

    assert stage.run(collect(Chain(), LITTLE)).floor == 5


def test_letting_go_twice_is_no_error() -> None:
    """A script that cleans up may be run again."""
    stage = Stage()
    with_epochs(stage, 1)
    for _ in range(2):
        stage.run(unpin("never-was"))
    assert pins(stage) == []
