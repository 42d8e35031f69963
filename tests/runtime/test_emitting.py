"""Emitted rows: made columns of exactly the declared types, or refused by column and value."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.runtime.emitting import Emitted, Provenance, fitted_columns, sorted_out
from penstock.runtime.events import Origins
from penstock.runtime.inbox import NO_TIME

SCHEMA = pa.schema([pa.field("user", pa.string(), nullable=False), ("total", pa.int64())])
WHERE = "operator 'count'"
ADVICE = "it is declared to emit user string, total int64."


def test_rows_become_columns() -> None:
    """In the order they were yielded; the order of the keys in a dict is of no account."""
    rows = [{"user": "ada", "total": 1}, {"total": None, "user": "bob"}]

    assert fitted_columns(WHERE, rows, SCHEMA) == pa.table(
        {"user": ["ada", "bob"], "total": [1, None]}, schema=SCHEMA
    )
    assert fitted_columns(WHERE, [], SCHEMA) == SCHEMA.empty_table()


EVERY_TYPE = {
    "a": (pa.bool_(), True),
    "b": (pa.int8(), -3),
    "c": (pa.float32(), 0.5),
    "d": (pa.float64(), 7.25),
    "e": (pa.binary(), b"x"),
    "f": (pa.date32(), date(2026, 1, 2)),
    "g": (pa.timestamp("us", "UTC"), datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
    "h": (pa.timestamp("ms"), datetime(2026, 1, 2)),
    "i": (pa.list_(pa.int64()), [1, None]),
    "j": (pa.struct([("x", pa.int64())]), {"x": 1}),
}


def test_columns_of_every_type_are_taken() -> None:
    """As they are, and as null."""
    schema = pa.schema([(name, kind) for name, (kind, _) in EVERY_TYPE.items()])
    rows = [{name: value for name, (_, value) in EVERY_TYPE.items()}, dict.fromkeys(EVERY_TYPE)]

    assert fitted_columns(WHERE, rows, schema).to_pylist() == rows


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {"user": "ada", "total": "many"},
            f"{WHERE}, row 1, column 'total' is 'many', not int64: give a whole number; {ADVICE}",
        ),
        (
            {"user": "ada", "total": 1.5},
            f"{WHERE}, row 1, column 'total' is '1.5', not int64: give a whole number; {ADVICE}",
        ),
        (
            {"user": "ada", "total": 1 << 70},
            f"{WHERE}, row 1, column 'total' is '1180591620717411303424', not int64: "
            f"correct this row; {ADVICE}",
        ),
        (
            {"user": "ada", "total": True},
            f"{WHERE}, row 1, column 'total' is 'True', not int64: give a whole number; {ADVICE}",
        ),
        (
            {"user": 7, "total": 1},
            f"{WHERE}, row 1, column 'user' is '7', not string: give a str; {ADVICE}",
        ),
        (
            {"user": None, "total": 1},
            f"{WHERE}, row 1, column 'user' is null or missing, in whole or in part, and may not "
            f"be: fill it; {ADVICE}",
        ),
        (
            {"user": "ada"},
            f"{WHERE}, column 'total' is missing in the row {{'user': 'ada'}}: "
            "yield it, if only as None.",
        ),
        (
            {"user": "ada", "totl": 1},
            f"{WHERE}, column 'total' is missing in the row {{'user': 'ada', 'totl': 1}}: "
            "yield it, if only as None.",
        ),
        (
            {"user": "ada", "total": 1, "more": 2},
            f"{WHERE}, column 'more' is not one of user, total: correct its name, or add it to the "
            f"columns first; {ADVICE}",
        ),
        (("ada", 1), f"{WHERE} yielded \"('ada', 1)\", a tuple: yield one dict per row."),
        ("no", f"{WHERE} yielded 'no', a str: yield one dict per row."),
        (None, f"{WHERE} yielded 'None', a NoneType: yield one dict per row."),
        (
            ps.to("late", {"user": "ada"}),
            f"{WHERE} yielded a row for 'late', which it does not declare: "
            "wrap it with sides={'late': '…'}.",
        ),
    ],
    ids=range(13),
)
def test_a_row_that_does_not_fit_is_named(row: Any, said: str) -> None:
    """A value that were cut to fit would be wrong in every table downstream."""
    with pytest.raises(ps.Invalid) as caught:
        fitted_columns(WHERE, [{"user": "ada", "total": 1}, row], SCHEMA)

    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.struct([("x", pa.int64())]), {"x": 1, "y": 2}),
        (pa.list_(pa.int64()), [1.5]),
        (pa.float32(), 1e300),
        (pa.timestamp("s"), datetime(2026, 1, 1, 0, 0, 0, 1)),
        (pa.timestamp("us", "UTC"), 0.5),
        (pa.int64(), np.float64(1.5)),
    ],
    ids=str,
)
def test_nothing_is_quietly_cut_to_fit(kind: pa.DataType, value: Any) -> None:
    """Arrow takes what it can of each of these and says nothing."""
    with pytest.raises(ps.Invalid, match="operator 'count', row 0, column 'x' is "):
        fitted_columns(WHERE, [{"x": value}], pa.schema([("x", kind)]))


def test_rows_go_to_the_output_they_name() -> None:
    """A plain dict to the main one, if there is one."""
    outputs = {name: Emitted(SCHEMA, WHERE) for name in ("", "late")}
    sorted_out([{"a": 1}, ps.to("late", {"b": 2})], outputs, WHERE)

    assert {name: emitted.rows for name, emitted in outputs.items()} == {
        "": [{"a": 1}],
        "late": [{"b": 2}],
    }
    with pytest.raises(ps.Invalid, match="yielded a row for 'early', which it does not declare"):
        sorted_out([ps.to("early", {})], outputs, WHERE)
    with pytest.raises(ps.Invalid, match="yielded a row, and declares only side outputs"):
        sorted_out([{"a": 1}], {"late": outputs["late"]}, WHERE)


@pytest.mark.parametrize("settled_after", [None, -1, 0, 1, 2])
def test_every_row_knows_the_call_that_made_it(settled_after: int | None) -> None:
    """Calls that made none leave no trace, and it does not matter when rows become columns."""
    emitted = Emitted(SCHEMA, WHERE)
    for call, count in ((-1, 1), (0, 2), (1, 0), (2, 1)):
        emitted.rows += [{"user": "ada", "total": call}] * count
        emitted.close_call(call)
        if call == settled_after:
            emitted.settle()

    assert emitted.caller_of_rows().tolist() == [-1, 0, 0, 2]
    assert emitted.table().num_rows == 4


Row = tuple[int, int, int]
"""Slot, offset and time."""
rows = st.tuples(st.integers(0, 3), st.integers(0, 99), st.integers(0, 99) | st.just(NO_TIME))
calls = st.lists(st.lists(rows, min_size=1, max_size=6), max_size=8)


def provenance(names: int, found: Sequence[Sequence[Row]], order: list[int]) -> Provenance:
    """What is known of calls whose rows stand in a table in another order than they are seen."""
    flat = [row for call in found for row in call]
    stood: list[Row] = [(0, 0, 0)] * len(flat)
    for place, row in zip(order, flat, strict=True):
        stood[place] = (row[0] % names, *row[1:])
    origins = Origins(
        [("clicks", str(slot)) for slot in range(names)],
        np.array([slot for slot, _, _ in stood], np.int32),
        pa.table({"offset": pa.array([offset for _, offset, _ in stood], pa.int64())}),
        0,
    )
    stops = np.cumsum([len(call) for call in found], dtype=np.int64)
    times = np.array([time for _, _, time in stood], np.int64)
    return Provenance.of(1, 0, origins, np.array(order, np.int64), stops, times)


@settings(max_examples=100, deadline=None)
@given(names=st.sampled_from([1, 2, 4]), found=calls, data=st.data())
def test_provenance_is_what_each_call_has_seen(
    names: int, found: list[list[Row]], data: st.DataObject
) -> None:
    """Exactly the first and last offset per source partition: an auditor replays just these."""
    order = data.draw(st.permutations(range(sum(map(len, found)))))
    callers = data.draw(st.lists(st.integers(-2, len(found) - 1), max_size=10))
    callers = [caller for caller in callers if caller < 0 or found]
    known = provenance(names, found, list(order))

    wanted = []
    for caller in callers:
        seen: dict[int, list[int]] = {}
        for slot, offset, _ in found[caller] if caller >= 0 else []:
            seen.setdefault(slot % names, []).append(offset)
        wanted.append(
            [
                {"from": f"clicks/{slot}", "first": min(offsets), "last": max(offsets)}
                for slot, offsets in sorted(seen.items())
            ]
        )
    assert known.inputs(np.array(callers, np.int64)).to_pylist() == wanted

    fired_ms = np.array([70, 80], np.int64)
    latest = [max(time for _, _, time in call) for call in found]
    times = [latest[c] if c >= 0 else {-1: 70_000, -2: 80_000}[c] for c in callers]
    assert known.event_times(np.array(callers, np.int64), fired_ms).tolist() == times
