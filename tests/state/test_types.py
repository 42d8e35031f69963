from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Optional

import msgspec
import pytest

from penstock.errors import Invalid
from penstock.state.types import describe, flaw_between, spell
from penstock.state.values import Codec


class Colour(Enum):
    RED = 1


@dataclass
class Point:
    x: int
    y: float = 0.0


@dataclass
class Path:
    points: list[Point]
    name: str | None = None
    tags: dict[str, int] = field(default_factory=dict)


@dataclass
class Node:
    next: "Node | None" = None


@dataclass
class Painted:
    colour: Colour


@dataclass
class Wrapper:
    inner: list[Painted]


@dataclass
class Lost:
    field: "Nowhere"  # type: ignore[name-defined]  # noqa: F821


class Row(msgspec.Struct, array_like=True):
    x: int


class Renamed(msgspec.Struct, rename="camel"):
    first_name: str


class Tagged(msgspec.Struct, tag=True):
    x: int


@pytest.mark.parametrize(
    ("kind", "spelled"),
    [
        (int, "int"),
        (float, "float"),
        (str, "str"),
        (bytes, "bytes"),
        (bool, "bool"),
        (datetime, "datetime"),
        (date, "date"),
        (Decimal, "decimal"),
        (list[int], "list[int]"),
        (dict[str, list[Decimal]], "dict[str, list[decimal]]"),
        (tuple[int, str], "tuple[int, str]"),
        (tuple[int, ...], "list[int]"),
        (int | None, "int | None"),
        (Optional[int], "int | None"),  # noqa: UP045 - people write it
        (int | str, "union[int, str]"),
        (int | None | str, "union[int, str] | None"),
        (Point, "Point(x: int, y: float)"),
        (
            Path,
            "Path(points: list[Point(x: int, y: float)], name: str | None, tags: dict[str, int])",
        ),
        (Renamed, "Renamed(firstName: str)"),
    ],
)
def test_a_type_is_spelled_as_a_person_would(kind: Any, spelled: str) -> None:
    """A refusal shows what was and what is; both must be recognised."""
    assert spell(describe(kind, "state 's'")) == spelled


@pytest.mark.parametrize("kind", [int, list[int], Path, Renamed, Tagged, int | str | None])
def test_a_description_survives_the_database(kind: Any) -> None:
    """It is stored as JSON and compared after it came back."""
    description = describe(kind, "state 's'")

    stored = msgspec.json.decode(msgspec.json.encode(description))
    assert stored == description
    assert flaw_between(stored, description) is None


@pytest.mark.parametrize(
    ("kind", "spelled"),
    [
        (object, "object"),
        (Any, "Any"),
        (Colour, "Colour"),
        (set[int], "set[int]"),
        (list, "list"),
        (dict, "dict"),
        (tuple, "tuple"),
        (complex, "complex"),
        (Callable[[int], int], "Callable[[int], int]"),
        (list[complex], "complex"),
        (dict[str, Colour], "Colour"),
        (tuple[int, object], "object"),
        (int | Colour, "Colour"),
    ],
)
def test_what_state_cannot_hold_is_refused_by_name(kind: Any, spelled: str) -> None:
    """The message names the parameter, what it holds, and what it could."""
    with pytest.raises(Invalid) as caught:
        describe(kind, "state 'clicks'")

    assert caught.value.subject == "state 'clicks'"
    assert f"{spelled}, which state cannot hold" in caught.value.found
    assert "use int, float, str" in caught.value.advice


def test_a_bad_field_is_refused_by_its_path() -> None:
    """A record is large; the one field that is wrong is not."""
    with pytest.raises(Invalid, match="state 's', field inner, field colour is declared with Col"):
        describe(Wrapper, "state 's'")


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Node, "state 's', field next holds Node inside itself"),
        (Row, "state 's' holds Row, an array_like Struct"),
        (Lost, r"state 's' holds Lost, which cannot be read \(name 'Nowhere' is not defined\)"),
    ],
)
def test_a_record_that_cannot_be_described_is_refused(kind: type, complaint: str) -> None:
    """No endless recursion, and no NameError from inside of ours."""
    with pytest.raises(Invalid, match=complaint):
        describe(kind, "state 's'")


def record(name: str, *fields: Any) -> Any:
    return make_dataclass(name, fields)


OLD = record("Old", ("a", int), ("b", str))
GROWN = record("Old", ("a", int), ("b", str), ("c", list[int], field(default_factory=list)))
DEMANDING = record("Old", ("a", int), ("b", str), ("c", float))
SHRUNK = record("Old", ("a", int))
WIDENED = record("Old", ("a", float), ("b", str | None))
RETYPED = record("Old", ("a", str), ("b", str))


@pytest.mark.parametrize(
    ("old", "new", "before", "after"),
    [
        (int, float, 7, 7.0),
        (int, int | None, 7, 7),
        (int, float | None, 7, 7.0),
        (int | None, float | None, None, None),
        (int | str, int | str | None, "x", "x"),
        (list[int], list[float], [1, 2], [1.0, 2.0]),
        (list[int], tuple[int, ...], [1, 2], (1, 2)),
        (dict[str, int], dict[str, int | None], {"x": 1}, {"x": 1}),
        (tuple[int, str], tuple[float, str], (1, "x"), (1.0, "x")),
        (OLD, GROWN, OLD(1, "x"), GROWN(1, "x", [])),
        (OLD, WIDENED, OLD(1, "x"), WIDENED(1.0, "x")),
        (list[OLD], list[GROWN], [OLD(1, "x")], [GROWN(1, "x", [])]),
        (OLD, GROWN | None, OLD(1, "x"), GROWN(1, "x", [])),
    ],
)
def test_what_is_widened_still_reads(old: Any, new: Any, before: Any, after: Any) -> None:
    """Said to be compatible, and read from the very bytes that were written before."""
    assert flaw_between(describe(old, "s"), describe(new, "s")) is None

    read: Any = Codec(new, "s").decode(Codec(old, "s").encode(before))
    assert read == after
    assert type(read) is type(after)


@pytest.mark.parametrize(
    ("old", "new", "flaw"),
    [
        (float, int, "float cannot be read as int"),
        (int, str, "int cannot be read as str"),
        (int, bool, "int cannot be read as bool"),
        (int | None, int, "int | None cannot be read as int"),
        (str, bytes, "str cannot be read as bytes"),
        (datetime, date, "datetime cannot be read as date"),
        (list[int], list[str], "int cannot be read as str"),
        (list[int], dict[int, int], "list[int] cannot be read as dict[int, int]"),
        (tuple[int, int], tuple[int], "tuple[int, int] cannot be read as tuple[int]"),
        (tuple[int, int], list[int], "tuple[int, int] cannot be read as list[int]"),
        (int | str, int | bytes, "str cannot be read as bytes"),
        (int, OLD, "int cannot be read as Old(a: int, b: str)"),
        (OLD, DEMANDING, "field c is new and has no default"),
        (OLD, SHRUNK, "field b is gone, and what it holds would be lost"),
        (OLD, RETYPED, "field a: int cannot be read as str"),
        (WIDENED, OLD, "field a: float cannot be read as int"),
        (list[OLD], list[SHRUNK], "field b is gone, and what it holds would be lost"),
        (record("T", ("x", int)), Tagged, "T was stored with another tag"),
    ],
)
def test_any_other_change_is_refused(old: Any, new: Any, flaw: str) -> None:
    """Better a sentence before the first entry than a wrong number after the millionth."""
    assert flaw_between(describe(old, "s"), describe(new, "s")) == flaw
