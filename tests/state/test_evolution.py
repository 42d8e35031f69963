"""Programs change; what earlier ones have stored is read, kept or refused, never misread."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.errors import Invalid
from penstock.state.declare import StateSpec
from penstock.state.kinds import List, Map, Timer, Value
from penstock.state.workspace import STATES_MAX
from tests.support.state_engine import Engine, shown


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine(tmp_path, lambda: None)
    yield engine
    engine.database.close()


@dataclass
class Before:
    x: int


@dataclass
class After:
    x: float
    y: str = "new"


def test_a_widened_state_reads_what_was_written(engine: Engine) -> None:
    """The old entry through the new declaration, and then the new one as well."""

    def old(count: Value[int], items: Map[str, Before], rows: List[Before]) -> None: ...
    def new(count: Value[float | None], items: Map[str, After], rows: List[After]) -> None: ...

    engine.run(old)
    space = engine.space()
    space.states["count"].set(7)
    space.states["items"].set("a", Before(1))
    space.states["rows"].append(Before(2))
    engine.commit(space)

    engine.run(new)
    space = engine.space()
    assert shown(space) == {"count": 7.0, "items": [("a", After(1.0))], "rows": [After(2.0)]}
    space.states["rows"].append(After(3.5, "y"))
    engine.commit(space)
    assert list(engine.space().states["rows"]) == [After(2.0), After(3.5, "y")]

    engine.run(old)
    with pytest.raises(
        Invalid, match=r"state 'count' of operator 'count' was Value\[float \| None"
    ):
        engine.space()


def test_a_state_that_returns_finds_what_it_left(engine: Engine) -> None:
    """Its number is never given to another."""

    def first(a: Value[int], b: Value[int]) -> None: ...
    def without(b: Value[int], c: Value[int], d: Value[int]) -> None: ...
    def again(d: Value[int], c: Value[int], b: Value[int], a: Value[int]) -> None: ...

    engine.run(first)
    space = engine.space()
    space.states["a"].set(1)
    space.states["b"].set(2)
    engine.commit(space)
    engine.run(without)
    space = engine.space()
    assert shown(space) == {"b": 2, "c": None, "d": None}
    space.states["c"].set(3)
    engine.commit(space)
    engine.run(again)
    assert shown(engine.space()) == {"d": None, "c": 3, "b": 2, "a": 1}

    def changed(a: Value[str]) -> None: ...

    engine.run(changed)
    with pytest.raises(Invalid, match=r"state 'a' .*was Value"):
        engine.space()


def test_timers_of_a_state_nobody_declares_wait_for_its_return(engine: Engine) -> None:
    """They fire for nobody, disturb no others, and are not lost."""

    def both(one: Timer, two: Timer) -> None: ...
    def alone(two: Timer) -> None: ...

    engine.run(both)
    space = engine.space()
    space.states["one"].set(1)
    space.states["two"].set(2)
    engine.commit(space)
    engine.run(alone)
    space = engine.space(watermark_ms=5)
    assert [due.state for due in space.due()] == ["two"]
    engine.commit(space)
    engine.run(both)
    assert [due.state for due in engine.space(watermark_ms=5).due()] == ["one"]


def test_there_is_a_last_number(engine: Engine) -> None:
    """One byte holds it."""
    engine.specs = [StateSpec(f"s{n}", "value", value_type=int) for n in range(STATES_MAX)]
    space = engine.space()
    for number, handle in enumerate(space.states.values()):
        handle.set(number)
    engine.commit(space)
    assert list(shown(engine.space()).values()) == list(range(STATES_MAX))

    engine.specs = [StateSpec("one_more", "value", value_type=int)]
    with pytest.raises(Invalid, match="state 'one_more' is one more than the 250 states"):
        engine.space()
