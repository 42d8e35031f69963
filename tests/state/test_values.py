from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Corrupt, Invalid
from penstock.state import values
from penstock.state.values import Codec, MapKeys


@dataclass
class Point:
    x: int
    y: float = 0.0


@dataclass
class Path:
    points: list[Point]
    at: datetime
    name: str | None = None
    tags: dict[str, Decimal] = field(default_factory=dict)


@dataclass
class Point3(Point):
    z: int = 0


class Pair(msgspec.Struct):
    left: int
    right: tuple[str, ...] = ()


class Circle(msgspec.Struct, tag=True):
    radius: int


class Square(msgspec.Struct, tag=True):
    side: int


ints = st.integers(-(2**63), 2**64 - 1)
floats = st.floats(allow_nan=False)
zones = st.sampled_from([UTC, timezone(timedelta(hours=9)), timezone(-timedelta(hours=3))])
aware = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=zones)
decimals = st.decimals(allow_nan=False)
points = st.builds(Point, ints, floats)
KINDS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, ints),
    (float, floats),
    (str, st.text()),
    (bytes, st.binary()),
    (bool, st.booleans()),
    (datetime, aware),
    (date, st.dates()),
    (Decimal, decimals),
    (tuple[int, str], st.tuples(ints, st.text())),
    (tuple[int, ...], st.lists(ints).map(tuple)),
    (list[float], st.lists(floats)),
    (dict[str, list[int]], st.dictionaries(st.text(), st.lists(ints))),
    (dict[int, bytes], st.dictionaries(ints, st.binary())),
    (dict[tuple[int, str], date], st.dictionaries(st.tuples(ints, st.text()), st.dates())),
    (dict[datetime, Decimal], st.dictionaries(aware, decimals)),
    (int | None, st.none() | ints),
    (int | str | None, st.none() | ints | st.text()),
    (int | list[str], ints | st.lists(st.text())),
    (Point, points),
    (Path, st.builds(Path, st.lists(points), aware, st.none() | st.text())),
    (list[Path | None], st.lists(st.none() | st.builds(Path, st.lists(points), aware))),
    (Pair, st.builds(Pair, ints, st.lists(st.text()).map(tuple))),
    (Circle | Square, st.builds(Circle, ints) | st.builds(Square, ints)),
]


def codec(kind: Any) -> Codec[Any]:
    return Codec(kind, "state 's'")


@pytest.mark.parametrize(("kind", "strategy"), KINDS)
@given(data=st.data())
def test_every_value_comes_back(
    kind: Any, strategy: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    """What is set is what is got, of the very same type."""
    value = data.draw(strategy)
    back = codec(kind).decode(codec(kind).encode(value))

    assert back == value
    assert type(back) is type(value)


def test_defaults_are_stored_like_what_was_given() -> None:
    """A default that changes in a later program does not change what was stored."""
    assert msgspec.msgpack.decode(codec(Point).encode(Point(1))) == {"x": 1, "y": 0.0}


def test_a_float_that_is_no_number_comes_back() -> None:
    """A mean of nothing is a value like others, as long as nobody keys by it."""
    back = codec(list[float]).decode(codec(list[float]).encode([float("nan"), float("inf")]))
    assert str(back) == "[nan, inf]"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, "7"),
        (int, 7.0),
        (int, True),
        (int, None),
        (int, 2**64),
        (int, -(2**63) - 1),
        (bool, 1),
        (float, "1.5"),
        (str, b"x"),
        (str, 7),
        (str, "\ud800"),
        (bytes, "YQ=="),
        (datetime, "2026-01-01T00:00:00Z"),
        (datetime, date(2026, 1, 1)),
        (datetime, datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=9)))),
        (date, datetime(2026, 1, 1)),
        (Decimal, "1.5"),
        (Decimal, 1.5),
        (list[int], [1, "2"]),
        (list[int], 1),
        (list[datetime], ["2026-01-01T00:00:00Z"]),
        (dict[str, int], {"a": "b"}),
        (dict[str, int], {1: 1}),
        (dict[str, Decimal], {"a": "1"}),
        (tuple[int, str], (1,)),
        (tuple[int, str], ("a", 1)),
        (int | str, 1.5),
        (Point, Point("1")),  # type: ignore[arg-type]
        (Point, {"x": 1, "y": 0.0}),
        (Point, Point3(1)),
        (Path, Path([Point(1), Point(None)], datetime.max)),  # type: ignore[arg-type]
        (Path, Path([], datetime.max, tags={"a": "1.5"})),  # type: ignore[dict-item]
        (list[Pair], [Pair(1, (b"x",))]),  # type: ignore[arg-type]
        (int, object()),
        (list[int], {1: 2}.items),
    ],
)
def test_a_value_of_another_type_is_refused(kind: Any, value: Any) -> None:
    """When it is set, however deep it sits, with the state's name and what it holds."""
    with pytest.raises(Invalid) as caught:
        codec(kind).encode(value)

    assert caught.value.subject == "state 's'"
    assert f"of type {type(value).__name__}" in caught.value.found
    assert caught.value.advice.startswith("give it a ")


def test_a_refusal_says_what_was_given_and_what_is_wanted() -> None:
    """One sentence, with the place inside the value."""
    with pytest.raises(Invalid) as caught:
        codec(dict[str, list[int]]).encode({"a": [1, "two"]})

    assert str(caught.value) == (
        "state 's' was given \"{'a': [1, 'two']}\" of type dict "
        "(Expected `int`, got `str` - at `$[...][1]`): give it a dict[str, list[int]]."
    )


def test_a_list_inside_itself_is_refused() -> None:
    """As any other value that cannot be written."""
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(Invalid, match="recursion"):
        codec(list[int]).encode(endless)


def test_an_int_is_a_float_where_one_is_wanted() -> None:
    """As in the language itself; and it reads as the float it was declared."""
    back = codec(list[float]).decode(codec(list[float]).encode([1, 2]))
    assert [type(each) for each in back] == [float, float]


@pytest.mark.parametrize("make", [lambda size: b"x" * size, lambda size: [b"x" * size]])
def test_a_value_too_large_is_refused(
    make: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key whose list grows for ever is found by its name, not by the memory it took."""
    monkeypatch.setattr(values, "VALUE_BYTES_MAX", 1000)
    kind = bytes if isinstance(make(0), bytes) else list[bytes]
    codec(kind).encode(make(990))

    with pytest.raises(Invalid, match=r"state 's' was given .*takes 100\d bytes, of 1000 allowed"):
        codec(kind).encode(make(1000))


@pytest.mark.parametrize("kind", [str | datetime, list[int] | tuple[int, int], Point | Pair])
def test_a_union_that_cannot_be_told_apart_is_refused(kind: Any) -> None:
    """Bytes do not say which of the two they were."""
    with pytest.raises(Invalid, match="state 's' cannot be told apart when read"):
        codec(kind)


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\xa1x", b"\x01\x01", b"\xd9\xff"])
def test_bytes_that_are_no_value_are_corrupt(body: bytes) -> None:
    """Stop and say where, rather than hand out something else."""
    with pytest.raises(Corrupt, match="state 's' holds bytes that are no int"):
        codec(int).decode(body)


def keys(kind: Any) -> MapKeys:
    return MapKeys(kind, "state 's'")


def test_one_number_is_one_key_of_a_map() -> None:
    """1 and 1.0 are equal in Python, so a map of floats must not hold both."""
    assert keys(float).encode(1) == keys(float).encode(1.0)
    assert keys(tuple[float, str]).encode((1, "a")) == keys(tuple[float, str]).encode((1.0, "a"))


@pytest.mark.parametrize(
    ("kind", "key"),
    [(str, 1), (int, "1"), (int, True), (int, 1.5), (tuple[int, str], (1, 2)), (date, "2026-1-1")],
)
def test_a_key_of_another_type_is_refused(kind: Any, key: Any) -> None:
    """It would be found by nobody who asks for the key as declared."""
    with pytest.raises(Invalid, match=r"key of state 's' was given .* give it a"):
        keys(kind).encode(key)


def test_a_shorter_tuple_bounds_a_scan() -> None:
    """All that begins with it comes after it, and all that comes before it is smaller."""
    pairs = keys(tuple[str, int])
    bound = pairs.encode_bound(("b",))

    assert pairs.encode(("a", 2**62)) < bound < pairs.encode(("b", -(2**62)))
    assert pairs.encode_bound(()) < pairs.encode(("", -(2**62)))
    with pytest.raises(Invalid, match="key of state 's'"):
        pairs.encode_bound((1,))
    with pytest.raises(Invalid, match="key of state 's'"):
        pairs.encode(("b",))


@dataclass
class Doubling:
    """Makes another of itself whenever it is made."""

    n: int

    def __post_init__(self) -> None:
        self.n *= 2


@dataclass(eq=False)
class Unequal:
    """Is equal to nothing but itself."""

    n: float


@dataclass
class Hidden:
    """Compares itself without one of its fields."""

    n: int
    m: float = field(default=0.0, compare=False)


INEXACT: list[tuple[Any, Any]] = [
    (float, 2**53 + 1),
    (list[float], [1.0, 2**53 + 1]),
    (dict[str, float], {"a": 2**53 + 1}),
    (list[Point], [Point3(1, 2.0, 3)]),
    (dict[str, Point], {"a": Point3(1, 2.0, 3)}),
    (Point | None, Point3(1, 2.0, 3)),
    (Doubling, Doubling(1)),
    (list[Doubling], [Doubling(1)]),
    (Unequal, Unequal(2**53 + 1)),
    (Hidden, Hidden(1, 2**53 + 1)),
    (datetime, datetime(2026, 1, 1)),
    (list[datetime], [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1)]),
    (dict[datetime, int], {datetime(2026, 1, 1): 1}),
    (Path, Path([], datetime(2026, 1, 1))),
    (int, np.float64(1.5)),
    (int, np.datetime64("2026-01-01")),
]


@pytest.mark.parametrize(("kind", "value"), INEXACT, ids=str)
def test_what_would_be_read_as_another_value_is_refused(kind: Any, value: Any) -> None:
    """When it is set, and not when it has been lost for a month."""
    with pytest.raises(Invalid, match="state 's' was given"):
        Codec[Any](kind, "state 's'").encode(value)


EXACT: list[tuple[Any, Any, Any]] = [
    (int, np.int64(3), 3),
    (float, np.float64(0.5), 0.5),
    (float, np.int8(3), 3.0),
    (bool, np.True_, True),
    (list[int], [np.int64(1), 2], [1, 2]),
    (dict[str, float], {"a": np.float32(0.5)}, {"a": 0.5}),
    (Point, Point(np.int64(1), np.float64(0.5)), Point(1, 0.5)),  # type: ignore[arg-type]
    (float, float("inf"), float("inf")),
    (Doubling, Doubling(0), Doubling(0)),
]


@pytest.mark.parametrize(("kind", "value", "back"), EXACT, ids=str)
def test_numbers_of_numpy_are_numbers(kind: Any, value: Any, back: Any) -> None:
    """`events.column("amount").sum()` is one, and it comes from our own hands."""
    codec = Codec[Any](kind, "state 's'")

    assert codec.decode(codec.encode(value)) == back


@pytest.mark.parametrize(
    ("kind", "value"), [(float, float("nan")), (list[float], [float("nan")]), (Unequal, Unequal(1))]
)
def test_what_differs_from_itself_is_kept_all_the_same(kind: Any, value: Any) -> None:
    """What is not a number, and records that are equal to nothing else."""
    assert Codec[Any](kind, "state 's'").encode(value)
