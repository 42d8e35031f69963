"""Time to live: what expires is decided by the epoch's times, and is part of its delta."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from penstock.state.changelog import read_changes
from penstock.state.declare import ttl
from penstock.state.kinds import List, Map, Value
from tests.support.state_engine import SETTINGS, Engine, shown


def aging(
    value: Annotated[Value[int], ttl("10 ms")],
    entries: Annotated[Map[str, int], ttl("10 ms")],
    elements: Annotated[List[int], ttl("10 ms")],
    real: Annotated[Value[int], ttl("10 ms", clock="processing")],
    forever: Value[int],
) -> None: ...


AGED: dict[str, Any] = {"value": None, "entries": [], "elements": [], "real": 1, "forever": 1}


@pytest.fixture
def aged(tmp_path: Path) -> Iterator[Engine]:
    """Everything written at event time 100 and processing time 1000."""
    engine = Engine(tmp_path, aging)
    space = engine.space(watermark_ms=100, planned_ms=1000)
    for name in ("value", "real", "forever"):
        space.states[name].set(1)
    space.states["entries"].set("a", 1)
    space.states["elements"].append(1)
    engine.commit(space)
    yield engine
    engine.database.close()


def test_entries_expire_by_their_clock(aged: Engine) -> None:
    """Not a moment before, and by nothing but the epoch's own times."""
    assert aged.space(watermark_ms=109, planned_ms=1009).expire() == 0

    space = aged.space(watermark_ms=110, planned_ms=1009)
    assert space.expire() == 3
    assert shown(space) == AGED
    aged.commit(space)

    space = aged.space(watermark_ms=110, planned_ms=1010)
    assert space.expire() == 1
    assert shown(space) == {**AGED, "real": None}
    aged.commit(space)
    assert shown(aged.space()) == {**AGED, "real": None}
    assert len(aged.entries()) == 1, "nothing stays behind, neither index nor a list's counter"


def test_expiry_is_in_the_delta_and_the_same_on_every_attempt(aged: Engine) -> None:
    """The same times give the same bytes, whenever and wherever the attempt is made."""
    attempts = []
    for name in ("one", "two"):
        space = aged.space(watermark_ms=110, planned_ms=1010)
        assert space.expire() == 4
        space.states["entries"].set("b", 2)
        delta = aged.finish(space, name)
        assert delta is not None
        scratch = aged.folder / f"scratch-{name}"
        attempts.append(list(read_changes(delta.path, scratch, SETTINGS)))

    assert attempts[0] == attempts[1]
    removed = [key for key, value in attempts[0] if value is None]
    assert len(removed) == 10, "four entries, a list's counter, and the index of each"


def test_writing_again_extends_a_life(aged: Engine) -> None:
    """Counted from the last time it was written, also with the same value."""
    space = aged.space(watermark_ms=105, planned_ms=1000)
    space.expire()
    assert space.states["value"].get() == 1
    space.states["value"].set(1)
    space.states["entries"].set("a", 2)
    aged.commit(space)

    space = aged.space(watermark_ms=114, planned_ms=1000)
    assert space.expire() == 1
    assert shown(space) == {**AGED, "value": 1, "entries": [("a", 2)]}
    aged.commit(space)

    space = aged.space(watermark_ms=115, planned_ms=1000)
    assert space.expire() == 2
    assert shown(space) == AGED


def test_each_entry_and_element_has_its_own_age(aged: Engine) -> None:
    """A map or a list does not live or die as a whole."""
    space = aged.space(watermark_ms=105, planned_ms=1000)
    space.states["entries"].set("b", 2)
    space.states["elements"].extend([2, 3])
    aged.commit(space)

    space = aged.space(watermark_ms=110, planned_ms=1000)
    assert space.expire() == 3
    assert shown(space) == {**AGED, "entries": [("b", 2)], "elements": [2, 3]}
    space.states["elements"].append(4)
    aged.commit(space)

    space = aged.space(watermark_ms=115, planned_ms=1000)
    assert space.expire() == 3
    assert shown(space) == {**AGED, "elements": [4]}


def test_what_was_removed_and_set_again_is_young(aged: Engine) -> None:
    """The index of its former life must not end the new one."""
    space = aged.space(watermark_ms=105, planned_ms=1000)
    for name in ("value", "entries", "elements"):
        space.states[name].clear()
    space.states["value"].set(2)
    space.states["entries"].set("a", 2)
    space.states["elements"].append(2)
    aged.commit(space)

    space = aged.space(watermark_ms=114, planned_ms=1000)
    assert space.expire() == 0
    assert shown(space) == {**AGED, "value": 2, "entries": [("a", 2)], "elements": [2]}
    aged.commit(space)
    space = aged.space(watermark_ms=115, planned_ms=1000)
    assert space.expire() == 3


def test_what_was_written_before_the_first_watermark_ages_with_it(tmp_path: Path) -> None:
    """Until then event time has not begun; processing time always has."""
    engine = Engine(tmp_path, aging)
    space = engine.space(watermark_ms=None, planned_ms=0)
    space.states["value"].set(1)
    space.states["entries"].set("a", 1)
    space.states["elements"].extend([1, 2])
    space.states["real"].set(1)
    engine.commit(space)
    assert engine.space(watermark_ms=None, planned_ms=9).expire() == 0

    space = engine.space(watermark_ms=500, planned_ms=0)
    assert space.expire() == 0
    written = {**AGED, "value": 1, "entries": [("a", 1)], "elements": [1, 2], "forever": None}
    assert shown(space) == written
    engine.commit(space)

    space = engine.space(watermark_ms=509, planned_ms=0)
    assert (space.expire(), shown(space)) == (0, written)
    engine.commit(space)
    space = engine.space(watermark_ms=510, planned_ms=10)
    assert space.expire() == 5
    engine.commit(space)
    assert engine.entries() == {}
    engine.database.close()


def test_a_longer_time_to_live_counts_for_what_is_there(aged: Engine) -> None:
    """It lives on, and it still ends."""

    def longer(value: Annotated[Value[int], ttl("20 ms")]) -> None: ...

    aged.run(longer)
    space = aged.space(watermark_ms=110)
    assert (space.expire(), space.states["value"].get()) == (0, 1)
    aged.commit(space)
    space = aged.space(watermark_ms=119)
    assert (space.expire(), space.states["value"].get()) == (0, 1)
    aged.commit(space)
    space = aged.space(watermark_ms=120)
    assert (space.expire(), space.states["value"].get()) == (1, None)
