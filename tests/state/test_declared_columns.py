"""Columns as a function declares them, beside the other kinds of state."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from penstock.errors import Invalid
from penstock.state import Columns, Map, PartitionDatabase, Value, declared, ttl
from penstock.state.key_groups import extract, fingerprints, merge
from tests.support.state_engine import SETTINGS, Engine


@dataclass
class Total:
    count: int
    amount: float


def totals(
    seen: Value[int], by_user: Columns[int, Total], by_code: Columns[Literal["S4"], float]
) -> None:
    """Two states of columns and one of another kind."""


USERS = np.arange(1000, dtype=np.int64)
GROUPS = (USERS % 4).astype(np.uint16)


def put(space: Any, factor: int) -> None:
    values = np.zeros(len(USERS), [("count", "<i8"), ("amount", "<f8")])
    values["count"], values["amount"] = USERS * factor, USERS / 2
    space.states["by_user"].put_many(USERS, values, GROUPS)


def test_columns_are_kept_beside_other_states(tmp_path: Path) -> None:
    """Each is found again after its epoch, and none sees another's entries."""
    engine = Engine(tmp_path, totals)
    space = engine.space()
    space.states["seen"].set(7)
    put(space, 3)
    codes = np.array([b"aaaa", b"bbbb"])
    space.states["by_code"].put_many(codes, np.array([1.5, 2.5]), np.array([0, 1], np.uint16))
    engine.commit(space)

    after = engine.space()
    found, there = after.states["by_user"].get_many(USERS, GROUPS)
    assert there.all()
    assert (found["count"] == USERS * 3).all()
    assert (found["amount"] == USERS / 2).all()
    assert after.states["seen"].get() == 7
    assert after.states["by_code"].get_many(codes, np.array([0, 1], np.uint16))[0].tolist() == [
        1.5,
        2.5,
    ]
    assert engine.finish(after) is None, "reading changes nothing"


def test_columns_move_with_their_key_groups(tmp_path: Path) -> None:
    """Cut out of one database and merged into another, they are the same entries."""
    engine = Engine(tmp_path, totals)
    space = engine.space()
    put(space, 3)
    engine.commit(space)
    marker = engine.database.marker
    assert marker is not None
    with PartitionDatabase(tmp_path / "new", SETTINGS) as new:
        parts = [
            extract(engine.database, groups, tmp_path / f"{groups.start}.cut", marker, SETTINGS)
            for groups in (range(0, 1), range(1, 4))
        ]
        merge([part.path for part in parts], new)
        assert fingerprints(new, range(4)) == fingerprints(engine.database, range(4))
    engine.database.close()
    engine.database = PartitionDatabase(tmp_path / "new", SETTINGS)
    found, there = engine.space().states["by_user"].get_many(USERS, GROUPS)
    assert there.all()
    assert (found["count"] == USERS * 3).all()


def test_columns_of_another_type_are_refused(tmp_path: Path) -> None:
    """By the state's name, with what it was and is."""
    engine = Engine(tmp_path, totals)
    space = engine.space()
    put(space, 1)
    engine.commit(space)

    def narrower(by_user: Columns[int, float]) -> None: ...

    engine.run(narrower)
    with pytest.raises(Invalid, match=r"'by_user' .*count: int64.* is declared as .*float64"):
        engine.space()

    def other_kind(by_user: Map[int, float]) -> None: ...

    engine.run(other_kind)
    with pytest.raises(Invalid, match="another kind of state"):
        engine.space()


def of_words(totals: Columns[int, str]) -> None: ...


def of_lists(totals: Columns[int, list[int]]) -> None: ...


def by_float(totals: Columns[float, int]) -> None: ...


def too_wide(totals: Columns[Literal["S257"], int]) -> None: ...


def bare(totals: Columns) -> None: ...  # type: ignore[type-arg]


def aging(totals: Annotated[Columns[int, int], ttl("1 day")]) -> None: ...


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (of_words, "fixed width"),
        (of_lists, "no fixed width"),
        (by_float, "as its key"),
        (too_wide, "up to 256 bytes"),
        (bare, "bare Columns"),
        (aging, "time to live"),
    ],
)
def test_what_cannot_be_columns_is_said_at_declaration(function: Any, says: str) -> None:
    """With the parameter's name."""
    with pytest.raises(Invalid, match=f"state 'totals'.*{says}"):
        declared(function)
