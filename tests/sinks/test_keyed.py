"""What an epoch leaves of each key."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Invalid
from penstock.sinks.keyed import Keyed, as_key

COLUMNS = pa.schema([("user", pa.string()), ("n", pa.int64()), ("gone", pa.bool_())])
KEYED = Keyed("sink people", ("user",), "gone")


def table(*rows: tuple[Any, ...]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(COLUMNS.names, row, strict=True)) for row in rows], COLUMNS
    )


def test_one_name_is_a_key_of_one_column() -> None:
    """People write key="user" and mean it."""
    assert (as_key("user"), as_key(["user", "day"]), as_key(())) == (
        ("user",),
        ("user", "day"),
        (),
    )


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(0, 9), st.sampled_from([True, False, None]))
    )
)
def test_the_last_row_of_a_key_decides(rows: list[tuple[str, int, bool | None]]) -> None:
    """Whatever came before it in the epoch; in the order in which the last ones came."""
    last: dict[str, tuple[int, bool | None]] = {}
    for user, n, gone in rows:
        last.pop(user, None)
        last[user] = (n, gone)
    changes = KEYED.changes(table(*rows))

    assert changes.puts.to_pylist() == [
        {"user": user, "n": n} for user, (n, gone) in last.items() if not gone
    ]
    assert changes.gone.to_pylist() == [
        {"user": user, "n": n} for user, (n, gone) in last.items() if gone
    ]


def test_without_a_key_every_row_stays() -> None:
    """Two equal rows are two rows."""
    rows = table(("ada", 1, None), ("ada", 1, None)).drop_columns(["gone"])

    assert Keyed("sink people", ()).changes(rows).puts == rows


@pytest.mark.parametrize(
    ("keyed", "rows", "found"),
    [
        (
            Keyed("sink people", ("id",)),
            table(),
            "sink people, column 'id' is its key, and the rows have only user, n, gone: "
            "emit it, or name another.",
        ),
        (
            KEYED,
            table(("ada", 1, None), (None, 2, True)),
            "sink people, column 'user' is its key, and has no value in the row "
            "{'user': None, 'n': 2, 'gone': True}: emit no row without it.",
        ),
        (
            Keyed("sink people", (), "gone"),
            table(),
            "sink people, column 'gone' deletes rows, and the sink has no key: give it a key.",
        ),
        (
            Keyed("sink people", ("user",), "left"),
            table(),
            "sink people, column 'left' deletes rows, and there is no such column: emit it.",
        ),
        (
            Keyed("sink people", ("user",), "n"),
            table(),
            "sink people, column 'n' deletes rows, and is int64: make it a boolean.",
        ),
    ],
)
def test_what_cannot_be_told_apart_is_refused(keyed: Keyed, rows: pa.Table, found: str) -> None:
    """Before an epoch is decided: afterwards the job could neither go on nor back."""
    with pytest.raises(Invalid) as caught:
        keyed.check(rows)

    assert str(caught.value) == found
