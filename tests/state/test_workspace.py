"""State as a function sees it, over several epochs of a real database."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from penstock.errors import Invalid
from penstock.state.declare import by_clock
from penstock.state.keys import decode_key, encode_key
from penstock.state.kinds import List, Map, Timer, Value
from penstock.state.workspace import VISITED_AT_ONCE, Workspace
from tests.support.state_engine import Engine, shown


def states(
    *,
    count: Value[int],
    total: Value[float],
    maybe: Value[int | None],
    seen: Map[str, int],
    other: Map[str, int],
    pairs: Map[tuple[str, int], int],
    names: List[str],
    numbers: List[int],
    wake: Timer,
    nap: Annotated[Timer, by_clock("processing")],
) -> None: ...


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine(tmp_path, states)
    yield engine
    engine.database.close()


def test_a_value_has_a_default_until_it_is_set(engine: Engine) -> None:
    """In the epoch that sets it, and in every one after."""
    space = engine.space()
    count = space.states["count"]
    assert (count.get(), count.get(0)) == (None, 0)
    count.set(1)
    assert count.get(0) == 1
    engine.commit(space)

    space = engine.space()
    assert space.states["count"].get(0) == 1
    space.states["count"].clear()
    assert space.states["count"].get(0) == 0
    engine.commit(space)

    assert engine.space().states["count"].get(0) == 0
    assert engine.entries() == {}


def test_none_is_a_value_where_it_is_declared_as_one(engine: Engine) -> None:
    """Set to nothing is not the same as never set."""
    space = engine.space()
    space.states["maybe"].set(None)
    assert space.states["maybe"].get(7) is None
    engine.commit(space)

    assert engine.space().states["maybe"].get(7) is None


def test_a_map_is_in_the_order_of_its_keys(engine: Engine) -> None:
    """What is committed and what is new are one map, at every moment."""
    space = engine.space()
    seen = space.states["seen"]
    for number, key in enumerate(["m", "a", "z", "", "a\0", "é"]):
        seen.set(key, number)
    assert list(seen.keys()) == ["", "a", "a\0", "m", "z", "é"]
    engine.commit(space)

    space = engine.space()
    seen = space.states["seen"]
    seen.set("b", 7)
    seen.set("m", 8)
    seen.remove("z")
    seen.remove("not there")
    expected = [("", 3), ("a", 1), ("a\0", 4), ("b", 7), ("m", 8), ("é", 5)]
    assert list(seen.items()) == expected
    assert [key in seen for key in ("b", "z", "a")] == [True, False, True]
    assert (seen.get("z"), seen.get("z", 0), seen.get("m")) == (None, 0, 8)
    engine.commit(space)

    assert list(engine.space().states["seen"].items()) == expected


def test_a_range_of_a_map_ends_before_its_stop(engine: Engine) -> None:
    """Committed and new entries alike; a range that is upside down is empty."""
    space = engine.space()
    for key in ("a", "c", "e"):
        space.states["seen"].set(key, 1)
    engine.commit(space)
    space = engine.space()
    seen = space.states["seen"]
    for key in ("b", "d"):
        seen.set(key, 2)
    seen.remove("c")

    def keys(*bounds: Any) -> list[str]:
        return [key for key, _ in seen.items(*bounds)]

    assert keys("b", "e") == ["b", "d"]
    assert keys("b") == ["b", "d", "e"]
    assert keys(None, "b") == ["a"]
    assert keys("d", "b") == []
    assert keys("x") == []


def test_the_first_part_of_a_tuple_is_a_range(engine: Engine) -> None:
    """All pairs of one name, without knowing the smallest number there is."""
    space = engine.space()
    pairs = space.states["pairs"]
    for key in [("a", 1), ("b", -1), ("b", 1), ("c", 0)]:
        pairs.set(key, 0)

    assert [key for key, _ in pairs.items(("b",), ("c",))] == [("b", -1), ("b", 1)]


def test_a_map_can_be_changed_while_it_is_read(engine: Engine) -> None:
    """The entries are those of the moment the reading began."""
    space = engine.space()
    seen = space.states["seen"]
    for key in "abc":
        seen.set(key, 1)
    for key, value in seen.items():
        seen.set(key + key, value + 1)
        seen.remove(key)

    assert list(seen.items()) == [("aa", 2), ("bb", 2), ("cc", 2)]


def test_a_cleared_map_is_empty(engine: Engine) -> None:
    """Of what was committed and of what was set since."""
    space = engine.space()
    space.states["seen"].set("a", 1)
    engine.commit(space)
    space = engine.space()
    space.states["seen"].set("b", 1)
    space.states["seen"].clear()
    assert list(space.states["seen"].items()) == []
    space.states["seen"].set("c", 1)
    engine.commit(space)

    assert list(engine.space().states["seen"].items()) == [("c", 1)]


def test_a_list_is_in_the_order_of_its_appends(engine: Engine) -> None:
    """Over epochs, also after it was cleared."""
    space = engine.space()
    names = space.states["names"]
    assert (list(names), len(names)) == ([], 0)
    names.append("b")
    names.extend(["a", "c"])
    engine.commit(space)

    space = engine.space()
    names = space.states["names"]
    names.append("a")
    assert (list(names), len(names)) == (["b", "a", "c", "a"], 4)
    engine.commit(space)

    space = engine.space()
    names = space.states["names"]
    names.clear()
    assert (list(names), len(names)) == ([], 0)
    names.append("new")
    names.extend(names)
    engine.commit(space)

    assert list(engine.space().states["names"]) == ["new", "new"]


def test_a_list_cleared_in_the_epoch_that_made_it_leaves_nothing(engine: Engine) -> None:
    """Not even the number it had counted to."""
    space = engine.space()
    space.states["names"].extend(["a", "b"])
    space.states["names"].clear()
    engine.commit(space)

    assert engine.entries() == {}


def test_a_list_takes_all_values_or_none(engine: Engine) -> None:
    """A refused value leaves nothing behind that the next append would write over."""
    space = engine.space()
    numbers = space.states["numbers"]
    with pytest.raises(Invalid, match="state 'numbers' was given 'two'"):
        numbers.extend([1, "two"])
    numbers.extend([])

    assert list(numbers) == []
    assert engine.finish(space) is None


def fill(space: Workspace, mark: int) -> None:
    """Something in every state of the key that is bound."""
    handles = space.states
    handles["count"].set(mark)
    handles["total"].set(mark + 0.5)
    handles["maybe"].set(mark)
    handles["seen"].set("s", mark)
    handles["other"].set("o", mark)
    handles["pairs"].set(("p", 1), mark)
    handles["names"].append(f"n{mark}")
    handles["numbers"].append(mark)
    handles["wake"].set(mark)
    handles["nap"].set(mark + 1)


def filled(mark: int) -> dict[str, Any]:
    return {
        "count": mark,
        "total": mark + 0.5,
        "maybe": mark,
        "seen": [("s", mark)],
        "other": [("o", mark)],
        "pairs": [(("p", 1), mark)],
        "names": [f"n{mark}"],
        "numbers": [mark],
        "wake": [mark],
        "nap": [mark + 1],
    }


EMPTY: dict[str, Any] = {
    name: None if type(value) in (int, float) else [] for name, value in filled(1).items()
}


KEYS = [
    (0, ""),
    (0, "\0"),
    (0, "a"),
    (0, "a\0"),
    (0, "a\0\x01"),
    (0, "ab"),
    (1, "b"),
    (3, "c"),
    (2, 1),
    (2, -1),
    (2, ("a",)),
    (2, ("a", "")),
    (2, b"\x00\xff"),
    (2, b"\x00"),
]


def test_states_and_keys_do_not_see_each_other(engine: Engine) -> None:
    """Prefixes of each other, of other groups, of other types: each has its own."""
    space = engine.space()
    for number, (group, key) in enumerate(KEYS, 1):
        space.bind(group, encode_key(key))
        assert shown(space) == EMPTY
        fill(space, number)
    engine.commit(space)

    space = engine.space()
    for number, (group, key) in enumerate(KEYS, 1):
        space.bind(group, encode_key(key))
        assert shown(space) == filled(number)
        for handle in space.states.values():
            handle.clear()
        assert shown(space) == EMPTY
        if number % 2:
            fill(space, number * 100)
    engine.commit(space)

    space = engine.space()
    for number, (group, key) in enumerate(KEYS, 1):
        space.bind(group, encode_key(key))
        assert shown(space) == (filled(number * 100) if number % 2 else EMPTY)


def test_each_state_is_cleared_alone(engine: Engine) -> None:
    """One clear, nine states untouched."""
    space = engine.space()
    for name in space.states:
        space.bind(1, encode_key(name))
        fill(space, 1)
    engine.commit(space)
    space = engine.space()
    for name, handle in space.states.items():
        space.bind(1, encode_key(name))
        handle.clear()
        assert shown(space) == {**filled(1), name: EMPTY[name]}
    engine.commit(space)

    space = engine.space()
    for name in space.states:
        space.bind(1, encode_key(name))
        assert shown(space) == {**filled(1), name: EMPTY[name]}


def test_what_is_fetched_is_what_is_read(engine: Engine) -> None:
    """One request for all keys, also those that have nothing; what was set since stays."""
    space = engine.space()
    for number, (group, key) in enumerate(KEYS, 1):
        space.bind(group, encode_key(key))
        space.states["count"].set(number)
    engine.commit(space)

    space = engine.space()
    space.states["count"].set(-1)
    places = [*KEYS, (0, "k"), (1, "x")]
    visiting = space.visit([group for group, _ in places], [encode_key(key) for _, key in places])
    for wanted, _ in zip([*range(1, len(KEYS) + 1), -1, None], visiting, strict=True):
        assert (space.states["count"].get(), space.states["total"].get()) == (wanted, None)


def one_value(*, count: Value[int]) -> None: ...


def two_values(*, count: Value[int], total: Value[int], seen: Map[str, int]) -> None: ...


@pytest.mark.parametrize("declared", [one_value, two_values])
def test_keys_are_visited_with_their_values(tmp_path: Path, declared: Callable[..., None]) -> None:
    """Whatever was there, however many lots there are, and whatever was changed before."""
    engine = Engine(tmp_path, declared)
    names = [spec.name for spec in engine.specs if spec.kind == "value"]
    keys = sorted((number % 4, encode_key(number)) for number in range(3 * VISITED_AT_ONCE // 2))
    groups, encoded = [group for group, _ in keys], [key for _, key in keys]
    space = engine.space()
    for _, (_, key) in zip(space.visit(groups, encoded), keys, strict=True):
        for name in names:
            assert space.states[name].get() is None
            space.states[name].set(decode_key(key)[0])
    engine.commit(space)

    space = engine.space()
    space.bind(*keys[7])
    space.states["count"].set(-1)
    for at, _ in enumerate(space.visit(groups, encoded)):
        assert (space.group, space.key) == keys[at]
        number = decode_key(encoded[at])[0]
        for name in names:
            changed = at == 7 and name == "count"
            assert space.states[name].get() == (-1 if changed else number)
            space.states[name].set(5)
            space.states[name].set(number)

    assert engine.finish(space, "no change") is None
    engine.database.close()


def test_an_abandoned_attempt_changes_nothing(engine: Engine) -> None:
    """Whatever it did, the database is byte for byte what it was, also if it wrote its delta."""
    space = engine.space()
    fill(space, 1)
    engine.commit(space)
    before = engine.contents()

    space = engine.space(watermark_ms=10, planned_ms=10)
    space.expire()
    assert len(list(space.due())) == 2
    for group, key in KEYS:
        space.bind(group, encode_key(key))
        fill(space, 5)
    space.bind(0, encode_key("k"))
    for handle in space.states.values():
        handle.clear()
    engine.finish(space, "abandoned")

    assert engine.contents() == before
    assert shown(engine.space()) == filled(1)


def test_a_second_attempt_does_not_see_the_first(engine: Engine) -> None:
    """Two overlays over one version, at the same time; the one that is committed counts."""
    first, second = engine.space(), engine.space()
    fill(first, 1)
    assert shown(second) == EMPTY
    fill(second, 2)
    assert engine.finish(first, "first") is not None
    engine.commit(second)

    assert shown(engine.space()) == filled(2)


def test_setting_back_what_is_committed_is_no_change(engine: Engine) -> None:
    """A key that was counted up and down again costs nothing."""
    space = engine.space()
    space.states["count"].set(1)
    engine.commit(space)

    space = engine.space()
    count, total = space.states["count"], space.states["total"]
    count.set(count.get() + 1)
    count.set(count.get() - 1)
    total.get()
    total.set(1.0)
    total.clear()
    space.states["maybe"].clear()
    assert engine.finish(space) is None


def test_an_epoch_without_changes_writes_nothing(engine: Engine) -> None:
    """An idle partition costs no object, whatever was read."""
    engine.commit(filled_space := engine.space())
    fill(filled_space, 100)
    engine.commit(filled_space)

    space = engine.space(watermark_ms=1, planned_ms=1)
    assert shown(space) == filled(100)
    assert (space.expire(), list(space.due())) == (0, [])
    assert engine.finish(space) is None


def test_a_refused_value_leaves_what_was_there(engine: Engine) -> None:
    """The state's name, and no trace in the delta."""
    space = engine.space()
    refusals = [
        ("count", lambda: space.states["count"].set("x")),
        ("seen", lambda: space.states["seen"].set("a", "x")),
        ("seen", lambda: space.states["seen"].set(1, 1)),
        ("seen", lambda: space.states["seen"].get(1)),
        ("seen", lambda: list(space.states["seen"].items(1))),
        ("pairs", lambda: space.states["pairs"].set(("a", "b"), 1)),
        ("names", lambda: space.states["names"].append(1)),
    ]
    for name, refused in refusals:
        with pytest.raises(Invalid, match=f"state '{name}' was given"):
            refused()
    assert engine.finish(space) is None
