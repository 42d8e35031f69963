from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from penstock.errors import Invalid
from penstock.state.declare import (
    StateClock,
    StateSpec,
    Ttl,
    by_clock,
    check_schemas,
    declared,
    ttl,
)
from penstock.state.kinds import List, Map, Timer, Value

if TYPE_CHECKING:
    from penstock.state.nowhere import Absent  # type: ignore[import-not-found]

DAY_MS = 86_400_000


class Colour(Enum):
    RED = 1


@dataclass
class Point:
    x: int


def everything(  # type: ignore[no-untyped-def]
    user: str,
    clicks: Value[int],
    names: List[str],
    unannotated,  # noqa: ANN001
    seen: Annotated[Map[str, float], ttl("1 day")],
    *,
    wake: Timer,
    last: Annotated[Value[Point | None], ttl("90 s", clock="processing")],
    nap: Annotated[Timer, by_clock("processing")],
    plain: Annotated[int, "something of somebody else's"] = 0,
) -> None: ...


EVERYTHING = [
    StateSpec("clicks", "value", value_type=int),
    StateSpec("names", "list", value_type=str),
    StateSpec("seen", "map", key_type=str, value_type=float, ttl=Ttl(DAY_MS)),
    StateSpec("wake", "timer"),
    StateSpec("last", "value", value_type=Point | None, ttl=Ttl(90_000, StateClock.PROCESSING)),
    StateSpec("nap", "timer", clock=StateClock.PROCESSING),
]


class Counter:
    def process(self, user: str, clicks: Value[int], wake: Timer) -> None: ...


def test_states_are_declared_in_their_order_and_nothing_else_is() -> None:
    """The order gives them their numbers; what is no state is the caller's to fill."""
    assert declared(everything) == EVERYTHING


@pytest.mark.parametrize("function", [Counter.process, Counter().process])
def test_a_method_declares_as_a_function_does(function: Callable[..., Any]) -> None:
    """`self` is no state."""
    assert declared(function) == [StateSpec("clicks", "value", value_type=int), EVERYTHING[3]]


def test_annotations_may_be_strings() -> None:
    """As they all are under `from __future__ import annotations`."""

    def function(
        clicks: "Value[int]", seen: "Annotated[Map[str, float], ttl('1 day')]"
    ) -> None: ...

    assert declared(function) == [EVERYTHING[0], EVERYTHING[2]]


def test_a_function_without_states_declares_none() -> None:
    """Stateless functions are functions too."""
    assert declared(lambda user, events: None) == []


def a_bare_value(clicks: Value) -> None: ...  # type: ignore[type-arg]
def a_bare_list(clicks: List) -> None: ...  # type: ignore[type-arg]
def a_bare_map(clicks: Map) -> None: ...  # type: ignore[type-arg]
def an_annotated_bare_map(clicks: Annotated[Map, ttl("1 s")]) -> None: ...  # type: ignore[type-arg]
def a_set(clicks: Value[set[int]]) -> None: ...
def an_enum_deep_inside(clicks: Map[str, list[tuple[int, Colour]]]) -> None: ...
def an_unreadable_union(clicks: Value[str | datetime]) -> None: ...
def a_list_as_key(clicks: Map[list[int], int]) -> None: ...
def a_record_as_key(clicks: Map[Point, int]) -> None: ...
def a_record_inside_a_key(clicks: Map[tuple[int, Point], int]) -> None: ...
def an_optional_key(clicks: Map[str | None, int]) -> None: ...
def a_timer_with_ttl(clicks: Annotated[Timer, ttl("1 day")]) -> None: ...
def a_value_by_clock(clicks: Annotated[Value[int], by_clock("processing")]) -> None: ...


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (a_bare_value, r"is a bare Value: say what it holds: Value\[int\]"),
        (a_bare_list, r"is a bare List: say what it holds: List\[int\]"),
        (a_bare_map, r"is a bare Map: say what it maps: Map\[str, float\]"),
        (an_annotated_bare_map, "is a bare Map"),
        (a_set, r"is declared with set\[int\], which state cannot hold: use int, float"),
        (an_enum_deep_inside, "is declared with Colour, which state cannot hold"),
        (an_unreadable_union, "cannot be told apart when read"),
        (a_list_as_key, r"is a Map with list\[int\] as its key, which has no order: use bool, int"),
        (a_record_as_key, "is a Map with Point as its key, which has no order"),
        (a_record_inside_a_key, "is a Map with tuple.* as its key, which has no order"),
        (an_optional_key, r"is a Map with str \| None as its key, which has no order"),
        (a_timer_with_ttl, "is a Timer with a time to live: cancel the timer instead"),
        (a_value_by_clock, r"is no Timer but has a clock: give the clock to its ttl\(...\)"),
    ],
)
def test_a_wrong_declaration_is_refused_by_name(
    function: Callable[..., Any], complaint: str
) -> None:
    """When the job is loaded, and not when the first event arrives."""
    with pytest.raises(Invalid, match=f"state 'clicks' {complaint}"):
        declared(function)


def test_an_annotation_out_of_reach_is_refused() -> None:
    """A type that is imported for the type checker alone is not there when the job is loaded."""

    def function(events: "Absent", clicks: Value[int]) -> None: ...

    with pytest.raises(Invalid, match=r"function 'function' has an annotation .*'Absent' is not"):
        declared(function)


@pytest.mark.parametrize("key", [bool, int, float, str, bytes, datetime, tuple[str, int]])
def test_what_has_an_order_can_be_a_maps_key(key: Any) -> None:
    """Also tuples of them, of any length."""

    def function(seen: Map[Any, int]) -> None: ...

    function.__annotations__["seen"] = Map[key, int]
    assert declared(function) == [StateSpec("seen", "map", key_type=key, value_type=int)]


@pytest.mark.parametrize(
    ("length", "length_ms"),
    [
        ("1 ms", 1),
        ("250ms", 250),
        ("1 s", 1000),
        ("1.001 s", 1001),
        ("90 s", 90_000),
        ("90 seconds", 90_000),
        ("1 second", 1000),
        ("5 min", 300_000),
        ("5 minutes", 300_000),
        ("2 h", 7_200_000),
        ("1.5 hours", 5_400_000),
        ("1 d", DAY_MS),
        ("  1 day  ", DAY_MS),
        ("30 days", 30 * DAY_MS),
        ("2 weeks", 14 * DAY_MS),
    ],
)
def test_a_length_of_time_is_read_as_written(length: str, length_ms: int) -> None:
    """Exactly, also where a float would be a millisecond off."""
    assert ttl(length) == Ttl(length_ms, StateClock.EVENT)


@pytest.mark.parametrize(
    ("length", "complaint"),
    [
        ("", "is not a length of time: write '90 s' or '1 day'"),
        ("day", "is not a length"),
        ("1", "is not a length"),
        ("5 m", "is not a length"),
        ("1 month", "is not a length"),
        ("-1 s", "is not a length"),
        ("1 s 5 ms", "is not a length"),
        ("1e3 s", "is not a length"),
        (60, "is not a length"),
        ("0 s", "is over before it begins"),
        ("0.0001 s", "is over before it begins"),
        ("101 years", "is not a length"),
        ("36501 days", "is longer than a hundred years"),
        ("9" * 400 + " days", "is not a length"),
    ],
)
def test_what_is_no_length_of_time_is_refused(length: Any, complaint: str) -> None:
    """`5 m` could be minutes or milliseconds: nobody guesses."""
    with pytest.raises(Invalid, match=f"ttl .* {complaint}"):
        ttl(length)


@pytest.mark.parametrize("make", [by_clock, lambda name: ttl("1 s", clock=name)])
def test_an_unknown_clock_is_refused(make: Callable[[str], object]) -> None:
    """There are two."""
    with pytest.raises(Invalid, match="clock 'wall' is unknown: use 'event' or 'processing'"):
        make("wall")


def spec(kind: str, value: Any = None, key: Any = None, **more: Any) -> StateSpec:
    return StateSpec("clicks", kind, key_type=key, value_type=value, **more)


SHORT, LONG = Ttl(1000), Ttl(2000)
BY_PROCESSING = Ttl(1000, StateClock.PROCESSING)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (spec("value", int), spec("value", int)),
        (spec("value", int), spec("value", float)),
        (spec("list", int), spec("list", int | None)),
        (spec("map", int, str), spec("map", float, str)),
        (spec("value", int, ttl=SHORT), spec("value", int, ttl=LONG)),
        (spec("timer"), spec("timer")),
    ],
)
def test_a_state_that_still_reads_is_let_through(old: StateSpec, new: StateSpec) -> None:
    """As is one that is new, and one that nobody declares any more."""
    check_schemas({"clicks": old.description(), "gone": {}}, [new, EVERYTHING[1]], "count")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            spec("value", int),
            spec("value", str),
            "was Value[int] and is declared as Value[str] now: int cannot be read as str",
        ),
        (
            spec("value", int),
            spec("list", int),
            "was Value[int] and is declared as List[int] now: another kind of state",
        ),
        (
            spec("map", int, int),
            spec("map", int, float),
            "was Map[int, int] and is declared as Map[float, int] now: "
            "its keys are found by the very bytes they were written as",
        ),
        (
            spec("map", Point, str),
            spec("map", int, str),
            "was Map[str, Point(x: int)] and is declared as Map[str, int] now: "
            "Point(x: int) cannot be read as int",
        ),
        (
            spec("value", int),
            spec("value", int, ttl=SHORT),
            "was Value[int] and is declared as Value[int] with a time to live by event time now: "
            "what is stored goes by the clock it was written with",
        ),
        (
            spec("value", int, ttl=SHORT),
            spec("value", int, ttl=BY_PROCESSING),
            "was Value[int] with a time to live by event time and is declared as "
            "Value[int] with a time to live by processing time now: "
            "what is stored goes by the clock it was written with",
        ),
        (
            spec("timer"),
            spec("timer", clock=StateClock.PROCESSING),
            "was Timer by event time and is declared as Timer by processing time now: "
            "what is stored goes by the clock it was written with",
        ),
    ],
)
def test_a_state_that_does_not_read_is_refused(old: StateSpec, new: StateSpec, said: str) -> None:
    """Which state, what it was, what it is, and how to get from one to the other."""
    with pytest.raises(Invalid) as caught:
        check_schemas({"clicks": old.description()}, [EVERYTHING[1], new], "count")

    assert str(caught.value) == (
        f"state 'clicks' of operator 'count' {said}: "
        "declare it as it was, or give the new one another name and fill it from the old."
    )
