"""Rows on their way into a log: in every form they are given, and refused by row and column."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import Invalid
from penstock.sources.log_rows import from_json_lines
from tests.support.logs import AT_ONCE, append_each, batches, column, new_log, rows, spans

PLACE = pa.struct([("x", pa.float64()), ("y", pa.int16())])
VISITS = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("tags", pa.list_(pa.int8())),
        pa.field("place", PLACE),
        pa.field("at", pa.timestamp("ms", "UTC")),
    ]
)
FIRST = {
    "id": 1,
    "name": "ada",
    "tags": [1, None],
    "place": {"x": 0.5, "y": -1},
    "at": datetime(2026, 1, 2, tzinfo=UTC),
}
SECOND = {"id": 2, "name": None, "tags": None, "place": None, "at": None}
TABLE = pa.Table.from_pylist([FIRST, SECOND], VISITS)


@pytest.mark.parametrize(
    "given",
    [
        [TABLE],
        [TABLE.to_batches()[0]],
        [pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1, 1)])],
        [TABLE.select(["at", "place", "id", "tags", "name"])],
        [TABLE.replace_schema_metadata({"made": "elsewhere"})],
        [[FIRST, SECOND]],
        [(FIRST, {"id": 2})],
        [FIRST, {"id": 2, "name": None}],
        [TABLE.slice(0, 1), {"id": 2}],
        [TABLE.slice(0, 1), [], TABLE.slice(0, 0), pa.table({"id": pa.array([2], pa.int64())})],
    ],
    ids=["table", "batch", "chunks", "order", "metadata", "dicts", "tuple", "dict", "both", "cast"],
)
def test_rows_come_out_as_they_went_in(given: list[Any]) -> None:
    """Whatever form they are in, and however many are given at once."""
    log = new_log(VISITS)
    append_each(log, *given)

    assert rows(log) == {0: FIRST, 1: SECOND}


def test_json_lines_are_rows(given_lines: list[str | bytes]) -> None:
    """What people have at hand when they try something out."""
    log = new_log(pa.schema([("n", pa.int64()), ("place", PLACE)]))
    append_each(log, from_json_lines("stdin", given_lines))

    assert rows(log) == {
        0: {"n": 1, "place": None},
        1: {"n": None, "place": {"x": 2.0, "y": None}},
    }


@pytest.fixture(params=[str, bytes])
def given_lines(request: pytest.FixtureRequest) -> list[str | bytes]:
    lines = ['{"n": 1}\n', "\n", "  ", '{"place": {"x": 2}}']
    return [line if request.param is str else line.encode() for line in lines]


@pytest.mark.parametrize("line", ["{", "[1]", "5", '"text"', '{"n": 01}', b"\xff{}", "nul"])
def test_a_line_that_is_no_object_is_named(line: str | bytes) -> None:
    """One bad line in a million is found by its number."""
    with pytest.raises(Invalid) as caught:
        from_json_lines("stdin", ['{"n": 1}', "", line], first=100)

    assert caught.value.subject == "stdin, line 102"


GOOD = {"id": 7}
WRONG_DICTS = {
    "a word for a number": ([GOOD, {"id": "x"}], ", row 1, column 'id'"),
    "too large a number": ([GOOD, GOOD, {"id": 1 << 31}], ", row 2, column 'id'"),
    "far too large a number": ({"id": 1 << 70}, ", row 0, column 'id'"),
    "part of a number": ([GOOD, {"id": 1.5}], ", row 1, column 'id'"),
    "a number for a word": ({"id": 1, "name": 5}, ", row 0, column 'name'"),
    "nothing where something must be": ([GOOD, {"id": None}], ", row 1, column 'id'"),
    "missing where something must be": ([GOOD, {"name": "a"}], ", row 1, column 'id'"),
    "a column that is not there": ([GOOD, {"id": 1, "nmae": "a"}], ", column 'nmae'"),
    "too large in a list": ([GOOD, {"id": 1, "tags": [1, 300]}], ", row 1, column 'tags'"),
    "no list": ({"id": 1, "tags": 3}, ", row 0, column 'tags'"),
    "a wrong field": ([GOOD, {"id": 1, "place": {"x": "far"}}], ", row 1, column 'place'"),
    "a field too large": ({"id": 1, "place": {"y": 1 << 15}}, ", row 0, column 'place'"),
    "no struct": ([GOOD, {"id": 1, "place": 5}], ", row 1, column 'place'"),
    "a field that is not there": ([GOOD, {"id": 1, "place": {"z": 1}}], ", row 1, column 'place'"),
    "a date in words": ({"id": 1, "at": "yesterday"}, ", row 0, column 'at'"),
    "no dict": ([GOOD, 5], ", row 1"),
}


@pytest.mark.parametrize(("given", "where"), WRONG_DICTS.values(), ids=WRONG_DICTS)
def test_a_dict_that_does_not_fit_is_named(given: Any, where: str) -> None:
    """All rows of a call are taken or none, so that it can be made again when corrected."""
    refused(given, where)


def table_of(**columns: Any) -> pa.Table:
    return pa.table(columns)


IDS = pa.array([1, 2, 3], pa.int32())
WRONG_TABLES = {
    "too large a number": (table_of(id=[1, 2, 1 << 31, 4]), ", row 2, column 'id'"),
    "part of a number": (table_of(id=[1.0, 1.5]), ", row 1, column 'id'"),
    "words": (table_of(id=["1", "2", "3"]), ", column 'id'"),
    "nothing where something must be": (table_of(id=[1, None]), ", row 1, column 'id'"),
    "missing where something must be": (table_of(name=["a"]), ", row 0, column 'id'"),
    "a null against its own schema": (
        pa.Table.from_pylist([FIRST, {}], VISITS),
        ", row 1, column 'id'",
    ),
    "a column that is not there": (table_of(id=IDS, nmae=IDS), ", column 'nmae'"),
    "a column twice": (
        pa.table([IDS, IDS, IDS], names=["id", "name", "name"]),
        ", column 'name'",
    ),
    "another type": (table_of(id=IDS, name=[[1], [2], None]), ", column 'name'"),
    "another type without a row": (
        table_of(id=pa.array([], pa.int32()), name=pa.array([], pa.list_(pa.int8()))),
        ", column 'name'",
    ),
    "too large in a list": (table_of(id=IDS, tags=[[1], [300], [2]]), ", row 1, column 'tags'"),
    "a wrong field": (
        table_of(id=IDS, place=[{"x": "1", "y": 1}, {"x": "1", "y": 1}, {"x": "far", "y": 1}]),
        ", column 'place'",
    ),
    "finer than a column": (
        table_of(id=IDS, at=pa.array([1000, 2000, 1], pa.timestamp("us", "UTC"))),
        ", row 2, column 'at'",
    ),
}


@pytest.mark.parametrize(("given", "where"), WRONG_TABLES.values(), ids=WRONG_TABLES)
def test_a_table_that_does_not_fit_is_named(given: pa.Table, where: str) -> None:
    """Values are cast only if they stay the same values; the first that would not is told."""
    refused(given, where)


@pytest.mark.parametrize(
    "given",
    [None, 5, "text", b"bytes", {1, 2}, iter([GOOD])],
    ids=lambda given: type(given).__name__,
)
def test_what_is_no_row_is_refused(given: Any) -> None:
    """With what can be given."""
    refused(given, "")


def refused(given: Any, where: str) -> None:
    """Appending fails, names the place, leaves no trace, and is no reason to stop."""
    log = new_log(VISITS)
    with log.producer(batching=AT_ONCE) as producer:
        with pytest.raises(Invalid) as caught:
            producer.append(given)
        producer.append(GOOD)

    assert caught.value.subject == log.name + where
    assert column(log, "id") == [7]


CUT_DOWN = [
    (pa.int64(), Decimal("1.5")),
    (pa.int64(), np.float32(1.5)),
    (pa.large_list(pa.int64()), [1, 1.5]),
    (pa.list_(pa.int64(), 2), [1, 1.5]),
    (pa.list_(pa.int64()), np.array([1.0, 1.5])),
    (pa.map_(pa.string(), pa.int64()), {"a": 1.5}),
    (pa.map_(pa.string(), pa.int64()), [("a", 1.5)]),
    (pa.float32(), 1e300),
    (pa.timestamp("ms", "UTC"), datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
    (pa.timestamp("ms", "UTC"), 1.5),
    (pa.duration("s"), timedelta(seconds=1.5)),
]


@pytest.mark.parametrize(("kind", "value"), CUT_DOWN, ids=str)
def test_no_value_is_cut_down_to_fit(kind: pa.DataType, value: Any) -> None:
    """A dict is read as strictly as a table: what would come out as something else is refused."""
    log = new_log(pa.schema([("c", kind)]))
    with log.producer(batching=AT_ONCE) as producer, pytest.raises(Invalid) as caught:
        producer.append([{"c": None}, {"c": value}])

    assert caught.value.subject == f"{log.name}, row 1, column 'c'"
    assert spans(log) == {"0": (0, 0)}


STRICT = pa.schema(
    [
        ("place", pa.struct([pa.field("x", pa.int64(), nullable=False)])),
        ("tags", pa.list_(pa.field("item", pa.int64(), nullable=False))),
    ]
)


@pytest.mark.parametrize("form", ["dicts", "table"])
@pytest.mark.parametrize(
    ("column", "value"), [("place", {"x": None}), ("place", {}), ("tags", [1, None])]
)
def test_a_null_inside_that_may_not_be_is_named(form: str, column: str, value: Any) -> None:
    """A promise that something is there holds at any depth, or readers cannot rely on it."""
    log = new_log(STRICT)
    given: Any = [{"place": {"x": 1}, "tags": [1]}, {column: value}]
    if form == "table":
        given = pa.Table.from_pylist(given, STRICT)

    with log.producer(batching=AT_ONCE) as producer, pytest.raises(Invalid) as caught:
        producer.append(given)

    assert caught.value.subject == f"{log.name}, row 1, column '{column}'"
    assert spans(log) == {"0": (0, 0)}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1_767_312_000_250, pa.int64()),
        (1_767_312_000_250, pa.uint64()),
        (1_767_312_000_250_000_999, pa.timestamp("ns")),
        (1_767_312_000_250_000, pa.timestamp("us", "UTC")),
        (1_767_312_000_250, pa.timestamp("ms", "Asia/Tokyo")),
    ],
    ids=str,
)
def test_event_times_are_moments_whatever_the_column_holds(value: int, kind: pa.DataType) -> None:
    """Whole numbers are milliseconds; what has no zone is UTC."""
    log = new_log(pa.schema([("at", kind)]), event_time="at")
    append_each(log, pa.table({"at": pa.array([value, None], kind)}))
    [batch] = batches(log)

    assert batch.column("at").cast(pa.int64()).to_pylist() == [value, None]
    assert batch.column("_meta").field("event_time").to_pylist() == [
        datetime.fromtimestamp(1_767_312_000.25, UTC),
        None,
    ]


@pytest.mark.parametrize(
    ("value", "kind"),
    [(1 << 63, pa.uint64()), (1 << 60, pa.int64()), (1 << 60, pa.timestamp("s"))],
    ids=str,
)
def test_an_event_time_that_is_no_moment_is_named(value: int, kind: pa.DataType) -> None:
    """It is refused like any other wrong value, and does not end the producer's life."""
    log = new_log(pa.schema([("at", kind)]), event_time="at")
    with log.producer(batching=AT_ONCE) as producer:
        with pytest.raises(Invalid) as caught:
            producer.append(pa.table({"at": pa.array([1, value], kind)})).wait()
        producer.append(pa.table({"at": pa.array([2], kind)})).wait()

    assert caught.value.subject == f"{log.name}, row 1, column 'at'"
    assert spans(log) == {"0": (0, 1)}
