from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint import (
    Chain,
    Leader,
    Pin,
    Pins,
    Retention,
    collect,
    list_pins,
    pin,
    read_pins,
    unpin,
)
from penstock.checkpoint.collector import Collected
from penstock.checkpoint.directory_store import DirectoryStore
from penstock.checkpoint.layout import pin_key
from penstock.checkpoint.rewind import find_epoch
from penstock.checkpoint.root import Root
from penstock.effects import Entry, Get
from penstock.errors import Corrupt, Gone, Invalid, Unavailable
from penstock.ids import Epoch, Key
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


def damaged(stage: Stage) -> str:
    """Damage a pin named `damaged`; what is said of it."""
    stage.run(pin(Chain(), "damaged", "mark", Epoch(1)))
    stored = stage.store.get(pin_key("damaged", "mark"))
    assert stored is not None
    stage.store.put(pin_key("damaged", "mark"), stored.body.replace(b'"epoch":1', b'"epoch":2'))
    return (
        "pins/damaged/mark.json does not match its own checksum; what it keeps is unknown, and "
        "nothing is collected: restore it from a copy, or let go of it with `penstock savepoint "
        "ROOT damaged --remove`."
    )


def test_nothing_is_collected_beside_a_pin_that_cannot_be_read() -> None:
    """Better to keep all than to lose what it holds; and better to say so than to end the job."""
    stage = Stage()
    leader, chance = with_epochs(stage, 2)
    said = damaged(stage)
    stage.run(work(leader, chance))
    before = contents(stage.store)

    done = stage.run(collect(Chain(), LITTLE, {SINK: Epoch(4)}))

    assert done == Collected(Epoch(1), Epoch(1), 0, 0, 0, unreadable=(said,))
    assert contents(stage.store) == before
    with pytest.raises(Corrupt, match=r"pins/damaged/mark.json does not match its own checksum"):
        pins(stage)


def test_collecting_goes_on_when_a_damaged_pin_is_let_go_of() -> None:
    """The advice that is given works, though nobody can read what is removed."""
    stage = Stage()
    leader, chance = with_epochs(stage, 3)
    damaged(stage)
    stage.run(unpin("damaged"))
    give_up(stage, leader, chance)

    assert stage.run(collect(Chain(), LITTLE)).floor == 3


FOREIGN = {
    "pins/README.md": b"what these are",
    "pins/kept/notes.txt": b"until May",
    "pins/kept/old/mark.json": b"{}",
    "pins/kept/mark.json.bak": b"{}",
    "pins/kept/mark.json": b"not json",
    "pins/kept/empty.json": b"",
    "pins/kept/other.json": b'{"format": 1, "job": "shop"}',
    "pins/kept/newer.json": b'{"format": 99}',
    "pins/kept/huge.json": b" " * (1 << 17),
}


@pytest.mark.parametrize("key", FOREIGN)
def test_a_foreign_object_among_pins_is_named_and_nothing_is_removed(key: str) -> None:
    """It may be a pin of a newer version, or one that a person has renamed."""
    stage = Stage()
    leader, chance = with_epochs(stage, 3)
    kept = stage.run(pin(Chain(), "good", "mark", Epoch(2)))
    stage.store.put(Key(key), FOREIGN[key])
    stage.run(work(leader, chance))
    before = contents(stage.store)

    done = stage.run(collect(Chain(), LITTLE, {SINK: Epoch(5)}))
    found = stage.run(list_pins(Point.READ_HEAD, Point.READ_HEAD))

    assert (done.removed, done.next_floor, contents(stage.store)) == (0, 1, before)
    assert [error.subject for error in found.unreadable] == [key]
    assert found.unreadable[0].advice
    assert found.pins == [kept]


def test_letting_go_of_a_pin_leaves_foreign_objects_where_they_are() -> None:
    """They are not ours, whatever folder they are in."""
    stage = Stage()
    with_epochs(stage, 2)
    stage.run(pin(Chain(), "kept", "mark", Epoch(1)))
    stage.store.put(Key("pins/kept/notes.txt"), b"until May")
    stage.store.put(Key("pins/kept/old/mark.json"), b"{}")
    stage.run(unpin("kept"))

    left = [key for key in contents(stage.store) if key.startswith("pins/")]
    assert left == ["pins/kept/notes.txt", "pins/kept/old/mark.json"]


def test_a_huge_object_is_not_read() -> None:
    """A film among the pins must not fill the leader's memory."""
    stage = Stage()
    with_epochs(stage, 1)
    stage.store.put(Key("pins/kept/huge.json"), b" " * (1 << 17))
    read: list[str] = []

    def watch(effect: Any, perform_it: Any) -> Any:
        if isinstance(effect, Get):
            read.append(effect.key)
        return perform_it()

    stage.interfere = watch
    stage.run(list_pins(Point.READ_HEAD, Point.READ_HEAD))

    assert read == []


def test_names_that_no_store_would_take_are_not_seen(tmp_path: Path) -> None:
    """What a file manager leaves behind is no object of a root."""
    for name in (".DS_Store", "a file.txt", "kept\u0131/mark.json", "kept/.mark.json.swp"):
        path = tmp_path / "pins" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{}")

    assert Root(DirectoryStore(tmp_path)).all_pins() == Pins()


@pytest.mark.parametrize("key", FOREIGN)
def test_one_can_go_back_beside_a_foreign_object(key: str) -> None:
    """To any epoch that is retained, and to any pin that can be read."""
    stage = Stage()
    leader, chance = with_epochs(stage, 3)
    stage.run(pin(Chain(), "good", "mark", Epoch(1)))
    give_up(stage, leader, chance)
    stage.store.put(Key(key), FOREIGN[key])
    head = stage.run(Chain().head(Point.READ_HEAD)).document

    assert stage.run(find_epoch(Chain(), head, "good")).epoch == 1
    assert stage.run(find_epoch(Chain(), head, Epoch(1))).epoch == 1
    assert stage.run(find_epoch(Chain(), head, head.epoch)).epoch == head.epoch
    with pytest.raises(Invalid) as caught:
        stage.run(find_epoch(Chain(), head, Epoch(2)))
    assert f"there are the pins good (epoch 1), and {key} cannot be read" in caught.value.found


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


def test_a_refused_request_is_no_unreadable_pin() -> None:
    """A store that refuses says nothing about the object: the caller is told, and may ask again."""
    steps = list_pins(Point.COLLECT_PINS, Point.COLLECT_PIN)
    next(steps)
    steps.send([Entry(pin_key("good", "m"), 100, 0.0)])

    with pytest.raises(Invalid, match="was refused"):
        steps.throw(Invalid("pins/good/m.json", "was refused", "look at the credentials"))
