"""Stamps: whose time an entry carries, who sees it by that, and when it is removed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from penstock.state.declare import ttl
from penstock.state.kinds import List, Map, Timer, Value
from penstock.state.layout import EXPIRY, section_prefix
from penstock.state.workspace import Workspace
from tests.support.state_engine import Engine, shown

FIXTURES = Path(__file__).parent / "fixtures"


def aging(
    value: Annotated[Value[int], ttl("10 ms")],
    entries: Annotated[Map[str, int], ttl("10 ms")],
    elements: Annotated[List[int], ttl("10 ms")],
    real: Annotated[Value[int], ttl("10 ms", clock="processing")],
    wake: Timer,
) -> None: ...


EMPTY: dict[str, Any] = {"value": None, "entries": [], "elements": [], "real": None, "wake": []}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine(tmp_path, aging)
    yield engine
    engine.database.close()


def write(space: Workspace, number: int, own_ms: int | None) -> None:
    """Write everything that ages by events, at some event time."""
    space.call_at(own_ms)
    space.states["value"].set(number)
    space.states["entries"].set("a", number)
    space.states["elements"].append(number)


def seen(space: Workspace, own_ms: int | None) -> dict[str, Any]:
    """What a call at some event time sees."""
    space.call_at(own_ms)
    found = shown(space)
    assert ("a" in space.states["entries"]) == bool(found["entries"])
    assert len(space.states["elements"]) == len(found["elements"])
    return found


def holding(*numbers: int) -> dict[str, Any]:
    """What is seen of the last one written, and of all elements."""
    entries = [("a", numbers[-1])]
    return {**EMPTY, "value": numbers[-1], "entries": entries, "elements": list(numbers)}


def test_an_entry_that_has_ended_is_not_seen_before_it_is_removed(engine: Engine) -> None:
    """In the attempt that wrote it and in later ones; an earlier call still sees it."""
    space = engine.space(watermark_ms=90)
    write(space, 1, 100)
    assert [seen(space, at) for at in (109, 110, 109)] == [holding(1), EMPTY, holding(1)]
    engine.commit(space)

    space = engine.space(watermark_ms=105)
    assert [seen(space, at) for at in (109, 110, 105)] == [holding(1), EMPTY, holding(1)]
    assert space.expire() == 0
    assert engine.space(watermark_ms=110).expire() == 3


def test_an_older_call_does_not_shorten_a_life(engine: Engine) -> None:
    """Neither in the same epoch nor in the next; what it writes is there as long as what was."""
    space = engine.space(watermark_ms=90)
    write(space, 1, 100)
    write(space, 2, 95)
    engine.commit(space)
    space = engine.space(watermark_ms=92)
    write(space, 3, 93)
    engine.commit(space)

    space = engine.space(watermark_ms=92)
    assert seen(space, 102) == holding(1, 2, 3)
    assert seen(space, 104) == {**holding(1, 2, 3), "elements": [1, 2]}
    assert seen(space, 109) == {**holding(3), "elements": [1]}
    assert seen(space, 110) == EMPTY
    assert engine.space(watermark_ms=109).expire() == 2, "two elements"


def test_what_was_removed_is_written_anew(engine: Engine) -> None:
    """The end of its former life is not kept."""
    space = engine.space(watermark_ms=90)
    write(space, 1, 100)
    for name in ("value", "entries", "elements"):
        space.states[name].clear()
    write(space, 2, 95)

    assert seen(space, 104) == holding(2)
    assert seen(space, 105) == EMPTY


def test_elements_keep_their_order_when_all_before_have_ended(engine: Engine) -> None:
    """A call that sees none of them must not write over those that others still see."""
    space = engine.space(watermark_ms=90)
    write(space, 1, 100)
    write(space, 2, 115)
    assert seen(space, 115)["elements"] == [2]
    assert seen(space, 109)["elements"] == [1, 2]


def test_what_is_written_late_is_kept_for_those_who_are_as_late(engine: Engine) -> None:
    """And has ended for all others. It is removed as late as if it had been written on time."""
    space = engine.space(watermark_ms=500)
    write(space, 1, 100)
    assert space.expire() == 0, "not in the epoch that wrote it"
    engine.commit(space)

    space = engine.space(watermark_ms=509)
    assert (space.expire(), seen(space, 109), seen(space, 509)) == (0, holding(1), EMPTY)
    assert engine.space(watermark_ms=510).expire() == 3


def test_what_is_written_late_over_what_has_ended_is_kept(engine: Engine) -> None:
    """The index of the former life is due in the same epoch, and must not end the new one."""
    space = engine.space(watermark_ms=90)
    write(space, 1, 100)
    engine.commit(space)
    space = engine.space(watermark_ms=500)
    write(space, 2, 105)
    assert space.expire() == 1, "the first element"
    engine.commit(space)

    space = engine.space(watermark_ms=501)
    assert (space.expire(), seen(space, 108)) == (0, holding(2))
    engine.commit(space)
    space = engine.space(watermark_ms=510)
    assert space.expire() == 3
    engine.commit(space)
    assert engine.entries() == {}


def test_an_entry_has_one_end_however_often_it_is_written(engine: Engine) -> None:
    """An epoch with many events of a key must not leave something behind for each."""
    space = engine.space(watermark_ms=90)
    for at in range(100, 150):
        space.call_at(at)
        space.states["value"].set(at)
    engine.commit(space)

    scope = section_prefix(0, EXPIRY)
    assert len([entry for entry in engine.entries() if entry.startswith(scope)]) == 1


def test_calls_with_and_without_an_event_time_share_entries(engine: Engine) -> None:
    """The later of both times counts, each judged by its own clock."""
    space = engine.space(watermark_ms=100)
    write(space, 1, 103)
    space.call_at(None)
    space.states["value"].set(2)
    engine.commit(space)
    assert engine.space(watermark_ms=112).states["value"].get() == 2
    space = engine.space(watermark_ms=100)
    assert [seen(space, at)["value"] for at in (112, 113)] == [2, None]

    space = engine.space(watermark_ms=108)
    space.states["value"].set(3)
    engine.commit(space)
    space = engine.space(watermark_ms=117)
    assert [seen(space, at)["value"] for at in (None, 118, 9_999)] == [3, 3, 3]
    space = engine.space(watermark_ms=118)
    assert [seen(space, at)["value"] for at in (None, 118, 5)] == [None, None, None]


@pytest.fixture
def old(engine: Engine) -> Engine:
    """State that was written when every stamp was a watermark: the key `early` before there was
    one, the key `k` at 100, with a planned time of 1000 and a timer at 105."""
    for number in (1, 2):
        engine.database.ingest([FIXTURES / f"watermark_stamps_{number}.sst"])
    engine.epoch = 2
    return engine


OLD = {**holding(1), "elements": [1, 2], "real": 1, "wake": [105]}


def test_entries_of_old_state_end_when_they_would_have(old: Engine) -> None:
    """By the watermark: an event far ahead of it does not see less than it did."""
    space = old.space(watermark_ms=109, planned_ms=1009)
    assert [seen(space, at) for at in (None, 100, 9_999)] == [OLD] * 3
    assert space.expire() == 0

    space = old.space(watermark_ms=110, planned_ms=1009)
    assert [seen(space, at) for at in (None, 9_999)] == [{**EMPTY, "real": 1, "wake": [105]}] * 2
    assert space.expire() == 4
    old.commit(space)
    space = old.space(watermark_ms=110, planned_ms=1010)
    assert (space.states["real"].get(), space.expire()) == (None, 1)


def test_old_entries_from_before_the_first_watermark_age_with_it(old: Engine) -> None:
    """As they did."""
    space = old.space(watermark_ms=95, key="early")
    assert (seen(space, 9_999), space.expire()) == ({**holding(7), "elements": []}, 0)
    old.commit(space)
    space = old.space(watermark_ms=104, key="early")
    assert seen(space, 9_999)["value"] == 7
    space = old.space(watermark_ms=105, key="early")
    assert (seen(space, 9_999)["value"], space.expire()) == (None, 2)


def test_old_entries_that_are_written_again_follow_events(old: Engine) -> None:
    """From then on they are like any other; a late event does not shorten what they had."""
    space = old.space(watermark_ms=105, planned_ms=1000)
    space.call_at(108)
    space.states["value"].set(5)
    space.call_at(95)
    space.states["entries"].set("a", 5)
    old.commit(space)

    space = old.space(watermark_ms=105, planned_ms=1000)
    assert [seen(space, at)["value"] for at in (117, 118)] == [5, None]
    assert seen(space, 9_999)["entries"] == [("a", 5)]
    assert seen(old.space(watermark_ms=110), None)["entries"] == []


def test_a_timer_of_old_state_fires_at_its_own_time(old: Engine) -> None:
    """What has ended by the watermark is gone for it, as it was."""
    found = []
    for mark in (109, 115):
        space = old.space(watermark_ms=mark)
        for due in space.due():
            found.append((due.at_ms, space.states["value"].get()))
            space.states["value"].set(9)
        assert seen(space, 114)["value"] == 9
        assert seen(space, 115)["value"] is None

    assert found == [(105, 1), (105, None)]


def test_an_undone_write_changes_no_end(engine: Engine) -> None:
    """A call that is taken back has not made anything live longer."""
    space = engine.space(watermark_ms=90)
    write(space, 1, 100)
    engine.commit(space)
    space = engine.space(watermark_ms=100)
    space.overlay.begin()
    write(space, 2, 109)
    space.overlay.undo()
    engine.commit(space)

    space = engine.space(watermark_ms=100)
    assert [seen(space, at) for at in (109, 110)] == [holding(1), EMPTY]


def test_a_timer_from_before_all_times_can_write(engine: Engine) -> None:
    """However far in the past it was set: what it writes has simply ended."""
    space = engine.space()
    space.states["wake"].set(-(1 << 62))
    engine.commit(space)
    space = engine.space(watermark_ms=5)
    for _ in space.due():
        space.states["value"].set(1)
        assert space.states["value"].get() == 1
    engine.commit(space)

    assert engine.space(watermark_ms=5).states["value"].get() is None
