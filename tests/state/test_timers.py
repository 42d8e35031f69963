"""Timers: what fires, when, and in which order."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import pytest

from penstock.errors import Invalid
from penstock.state.declare import by_clock
from penstock.state.keys import encode_key
from penstock.state.kinds import Timer, Value
from penstock.state.workspace import Due
from tests.support.state_engine import Engine


def states(
    count: Value[int], wake: Timer, nap: Annotated[Timer, by_clock("processing")]
) -> None: ...


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine(tmp_path, states)
    yield engine
    engine.database.close()


def test_timers_fire_in_the_order_of_time_group_and_key(engine: Engine) -> None:
    """The same on any number of partitions; over both clocks, also for keys without input."""
    space = engine.space()
    plan = [(3, "z", 5), (0, "b", 7), (1, "a", 7), (0, "b", 3), (2, "y", -4), (0, "c", 11)]
    for group, key, at in plan:
        space.bind(group, encode_key(key))
        space.states["wake"].set(at)
    space.bind(2, encode_key("y"))
    space.states["nap"].set(4)
    engine.commit(space)

    space = engine.space(watermark_ms=10, planned_ms=4)
    fired = list(space.due())
    assert fired == [
        Due(-4, 2, "y", "wake"),
        Due(3, 0, "b", "wake"),
        Due(4, 2, "y", "nap"),
        Due(5, 3, "z", "wake"),
        Due(7, 0, "b", "wake"),
        Due(7, 1, "a", "wake"),
    ]
    engine.commit(space)

    assert list(engine.space(watermark_ms=10, planned_ms=4).due()) == []
    assert list(engine.space(watermark_ms=11).due()) == [Due(11, 0, "c", "wake")]


def test_a_firing_timer_finds_its_keys_state(engine: Engine) -> None:
    """The handles mean its key, and it is no longer pending."""
    space = engine.space()
    for key, at in [("a", 1), ("b", 2)]:
        space.bind(0, encode_key(key))
        space.states["count"].set(at * 10)
        space.states["wake"].set(at)
    engine.commit(space)

    space = engine.space(watermark_ms=5)
    found = []
    for due in space.due():
        found.append((due.key, space.states["count"].get(), space.states["wake"].pending()))
        space.states["count"].set(0)
        space.states["wake"].set(due.at_ms + 5)
    assert found == [("a", 10, []), ("b", 20, [])]
    engine.commit(space)

    assert [due.at_ms for due in engine.space(watermark_ms=7).due()] == [6, 7]


def test_the_two_clocks_are_apart(engine: Engine) -> None:
    """Event time fires nothing of processing time, and the other way round."""
    space = engine.space()
    space.states["wake"].set(5)
    space.states["nap"].set(5)
    engine.commit(space)

    assert list(engine.space(watermark_ms=None, planned_ms=4).due()) == []
    assert [due.state for due in engine.space(watermark_ms=5).due()] == ["wake"]
    assert [due.state for due in engine.space(planned_ms=5).due()] == ["nap"]


def test_a_cancelled_timer_does_not_fire(engine: Engine) -> None:
    """Cancelled before it was committed, after, or by another one that fires before it."""
    space = engine.space()
    for at in (1, 2, 3, 4):
        space.states["wake"].set(at)
    space.states["wake"].cancel(1)
    engine.commit(space)
    space = engine.space()
    space.states["wake"].cancel(2)
    space.states["wake"].cancel(99)
    assert space.states["wake"].pending() == [3, 4]
    engine.commit(space)

    space = engine.space(watermark_ms=10)
    fired = []
    for due in space.due():
        fired.append(due.at_ms)
        space.states["wake"].clear()
    assert fired == [3]
    engine.commit(space)

    assert engine.entries() == {}


def test_a_timer_set_in_the_epoch_fires_if_its_time_has_come(engine: Engine) -> None:
    """Setting one in the past is asking to be called at once."""
    space = engine.space(watermark_ms=10)
    space.states["wake"].set(10)
    space.states["wake"].set(11)
    assert [due.at_ms for due in space.due()] == [10]


def test_a_moment_is_exact(engine: Engine) -> None:
    """A float would be off by a millisecond now and then."""
    space = engine.space()
    for milli in range(1000):
        space.states["wake"].set(datetime(2026, 1, 1, 0, 0, 1, milli * 1000, tzinfo=UTC))
    start = int(datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC).timestamp()) * 1000
    assert space.states["wake"].pending() == list(range(start, start + 1000))


@pytest.mark.parametrize(
    ("at", "complaint"),
    [
        (datetime(2026, 1, 1), "has no time zone"),
        (1.5, "is no moment"),
        ("now", "is no moment"),
        (None, "is no moment"),
        (1 << 63, "is no moment"),
    ],
)
def test_what_is_no_moment_is_refused(engine: Engine, at: Any, complaint: str) -> None:
    """With what to give instead."""
    space = engine.space()
    with pytest.raises(Invalid, match=complaint):
        space.states["wake"].set(at)
    assert engine.finish(space) is None
