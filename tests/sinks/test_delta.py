"""`Delta` as it is described, what it refuses, and what others read in its tables."""

import pickle  # noqa: TID251 - what crosses Spark's processes is pickled by Spark, not by us
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.errors import Invalid
from penstock.sinks.delta import Delta
from tests.support.delta_case import rows_at, target
from tests.support.sink_cases import PEOPLE, Row, apply, in_order, people

HOSTILE = 'it\'s "a" `b`, 김.{c}; -- \\ 🚀'


def table_of(kind: pa.DataType, *values: Any) -> pa.Table:
    users = pa.array(["u"] * len(values), pa.string())
    return pa.table({"user": users, "x": pa.array(values, kind)})


def test_a_sink_is_a_description_that_travels(tmp_path: Path) -> None:
    """Tasks and manifests get it; nothing is opened by making it."""
    sink = Delta("lake", str(tmp_path), key="user", partition_by="day", deletes="gone")

    assert pickle.loads(pickle.dumps(sink)) == sink
    assert (sink.key, sink.partition_by, sink.shards(8)) == (("user",), ("day",), 1)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_means_the_same_in_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative one is where the job was described, not where the leader happens to run."""
    monkeypatch.chdir(tmp_path)

    assert Delta("lake", "here/table").url == str(tmp_path / "here/table")
    assert Delta("lake", f"file://{tmp_path}/a%20b").url == str(tmp_path / "a b")
    assert Delta("lake", "s3://bucket/lake/").url == "s3://bucket/lake"


@pytest.mark.parametrize(
    "url",
    ["", "memory://x", "s3://", "s3://key:hunter2@bucket/x", "s3://b/x?y=hunter2", "s3://b/x//y"],
)
def test_a_place_where_no_table_can_be_is_refused(url: str) -> None:
    """Before anything runs; and a key in it is not shown again."""
    with pytest.raises(Invalid) as caught:
        Delta("lake", url)

    assert "where no table can be" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("letter", ["%", "\\", "[", "^", "|", "\n", "\x7f"])
def test_a_name_that_the_client_would_mangle_is_refused(tmp_path: Path, letter: str) -> None:
    """deltalake takes it for another place, or crashes."""
    for url in (f"{tmp_path}/a{letter}b", f"s3://bucket/a{letter}b"):
        with pytest.raises(Invalid, match=r"cannot have|no table can be"):
            Delta("lake", url)


def test_a_column_has_one_meaning(tmp_path: Path) -> None:
    """Neither twice in a key nor a key that deletes itself."""
    for settings in ({"key": ("a", "a")}, {"key": "a", "deletes": "a"}):
        with pytest.raises(Invalid, match="two meanings"):
            Delta("lake", str(tmp_path), **settings)


def test_a_row_without_a_key_is_refused_before_it_is_staged(tmp_path: Path) -> None:
    """A null is equal to nothing, so a merge would add it again and again."""
    sink = Delta("lake", str(tmp_path), key="user")

    with pytest.raises(Invalid, match=r"column 'user' is its key, and has no value"):
        sink.check(pa.table({"user": ["ada", None], "n": [1, 2]}))


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.float64()])
def test_a_key_that_cannot_be_compared_is_refused(tmp_path: Path, kind: pa.DataType) -> None:
    """Two that look the same may differ in a bit nobody sees."""
    with pytest.raises(Invalid, match=f"column 'x' is its key, and is {kind}".replace("[", r"\[")):
        Delta("lake", str(tmp_path), key="x").check(table_of(kind))


UNKNOWN = [
    pa.uint64(),
    pa.time64("us"),
    pa.duration("us"),
    pa.null(),
    pa.month_day_nano_interval(),
    pa.decimal256(60, 2),
    pa.decimal128(10, -2),
    pa.list_view(pa.int64()),
    pa.struct([]),
    pa.struct([("a", pa.int64()), ("A", pa.int64())]),
    pa.list_(pa.time32("s")),
    pa.map_(pa.string(), pa.uint64()),
]


@pytest.mark.parametrize("kind", UNKNOWN, ids=str)
def test_a_type_that_delta_lacks_is_refused_by_name(tmp_path: Path, kind: pa.DataType) -> None:
    """When the job is loaded, not when its first rows are committed."""
    with pytest.raises(Invalid) as caught:
        Delta("lake", str(tmp_path)).check(table_of(kind))

    assert str(caught.value) == (
        f"sink lake, column 'x' is {kind}, and Delta has no such type: cast it to one that it has."
    )


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
KEPT: list[tuple[pa.DataType, Any]] = [
    (pa.uint8(), 255),
    (pa.uint16(), 2**16 - 1),
    (pa.uint32(), 2**32 - 1),
    (pa.int8(), -128),
    (pa.int16(), -(2**15)),
    (pa.float16(), 0.5),
    (pa.float32(), 0.25),
    (pa.large_string(), "text"),
    (pa.string_view(), "text"),
    (pa.dictionary(pa.int32(), pa.string()), "text"),
    (pa.large_binary(), b"\x00\xff"),
    (pa.binary(2), b"\x00\xff"),
    (pa.date64(), date(2026, 3, 1)),
    (pa.timestamp("s", tz="Asia/Seoul"), NOON),
    (pa.timestamp("ns", tz="UTC"), NOON),
    (pa.timestamp("us"), datetime(2026, 3, 1, 12)),
    (pa.decimal256(30, 2), Decimal("-1.50")),
    (pa.decimal32(5, 2), Decimal("1.50")),
    (pa.large_list(pa.uint8()), [255, None]),
    (pa.list_(pa.int64(), 2), [1, 2]),
    (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    (pa.struct([("a", pa.list_(pa.struct([("b", pa.decimal128(38, 38))])))]), {"a": [{"b": None}]}),
]


@pytest.mark.parametrize(("kind", "value"), KEPT, ids=[str(kind) for kind, _ in KEPT])
def test_other_types_become_one_that_holds_every_value(
    tmp_path: Path, kind: pa.DataType, value: Any
) -> None:
    """What is read back is what was written, in a type that every reader knows."""
    sink = Delta("lake", str(tmp_path))
    columns = table_of(kind).schema
    rows = [{"user": "u", "x": value}, {"user": "u", "x": None}]
    sink.check(pa.Table.from_pylist(rows, columns))
    writer = sink.open(target(columns))
    writer.apply(apply(1, rows, columns=columns))
    writer.apply(apply(2, rows, columns=columns))

    found = rows_at(sink.url, columns)
    moment = found[0]["x"] or found[1]["x"]
    if isinstance(moment, datetime) and moment.tzinfo:
        assert moment.utcoffset() == NOON.utcoffset()
    assert in_order(found) == in_order([*rows, *rows])


def test_a_value_that_would_be_cut_is_refused_before_it_is_staged(tmp_path: Path) -> None:
    """Delta counts microseconds; a nanosecond would be gone without a word."""
    sink = Delta("lake", str(tmp_path))
    sink.check(table_of(pa.timestamp("ns"), 1000))

    with pytest.raises(Invalid, match=r"'x', row 0 is timestamp\[ns\] and cannot be kept"):
        sink.check(table_of(pa.timestamp("ns"), 1001))


def test_names_that_differ_in_capitals_alone_are_refused(tmp_path: Path) -> None:
    """For Delta they are one column."""
    with pytest.raises(Invalid, match="takes 'USER' for the same name"):
        Delta("lake", str(tmp_path)).check(pa.table({"user": ["a"], "USER": ["b"]}))


def test_hostile_names_are_names_like_any_other(tmp_path: Path) -> None:
    """Of the folder, of columns, of a key and of a partition: none is read as a command."""
    folder = tmp_path / "it's \"a\" 'b' 김 🚀 #?*{}$;&"
    other = f"{HOSTILE} other"
    columns = pa.schema([(HOSTILE, pa.string()), (other, pa.string()), ("n", pa.int64())])
    sink = Delta("lake", str(folder), key=(HOSTILE, "n"), partition_by=(other,))
    writer = sink.open(target(columns, job='a/"job" 김'))
    first = [{HOSTILE: HOSTILE, other: HOSTILE, "n": n} for n in range(3)]
    second = [{HOSTILE: HOSTILE, other: "moved", "n": 1}]
    for epoch, rows in ((1, first), (2, second)):
        writer.apply(apply(epoch, rows, columns=columns))

    assert in_order(rows_at(str(folder), columns)) == in_order([first[0], second[0], first[2]])


def test_names_of_cursors_cannot_be_mistaken(tmp_path: Path) -> None:
    """Not even if a job is called like another job and its sink."""
    one = Delta("c", str(tmp_path)).open(target(job="a/b"))
    other = Delta("b", str(tmp_path)).open(target(job="a"))
    one.apply(apply(1, people(1)))

    assert other.read_cursor(0) is None


DAYS = pa.schema([("user", pa.string()), ("day", pa.date32()), ("place", pa.string())])


def test_a_partition_is_a_folder(tmp_path: Path) -> None:
    """Whoever looks for one day reads the files of that day alone."""
    sink = Delta("lake", str(tmp_path), partition_by=("day", "place"))
    rows = [
        {"user": "a", "day": date(2026, 3, 1), "place": "a/b=c %20"},
        {"user": "b", "day": date(2026, 3, 2), "place": "김"},
        {"user": "c", "day": None, "place": None},
    ]
    sink.open(target(DAYS)).apply(apply(1, rows, columns=DAYS))

    files = DeltaTable(str(tmp_path)).file_uris()
    folders = {str(Path(each).parent.relative_to(tmp_path)) for each in files}
    assert sorted(folders) == [
        "day=2026-03-01/place=a%2Fb%3Dc%20%2520",
        "day=2026-03-02/place=%EA%B9%80",
        "day=__HIVE_DEFAULT_PARTITION__/place=__HIVE_DEFAULT_PARTITION__",
    ]
    assert in_order(rows_at(str(tmp_path), DAYS)) == in_order(rows)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (["fine", ""], "is the empty text, which Delta reads as no value"),
        (["김" * 30], "is too long for the name of a folder"),
    ],
)
def test_a_partition_that_could_not_be_read_back_is_refused(
    tmp_path: Path, values: list[str], found: str
) -> None:
    """The empty text would come back as null; a name that is too long would never be written."""
    rows = pa.table({"user": ["u"] * len(values), "place": values})

    with pytest.raises(Invalid, match=f"column 'place' parts the table, and .*{found}"):
        Delta("lake", str(tmp_path), partition_by="place").check(rows)


def test_columns_that_cannot_part_a_table_are_refused(tmp_path: Path) -> None:
    """A column that is not there, or is no name of a folder, or leaves no other."""
    for names, found in ((("z",), "the rows have only user, x"), (("x",), "is double")):
        with pytest.raises(Invalid, match=found):
            Delta("lake", str(tmp_path), partition_by=names).check(table_of(pa.float64()))
    with pytest.raises(Invalid, match="no column besides those that part its table"):
        Delta("lake", str(tmp_path), partition_by="user").check(pa.table({"user": ["a"]}))


def test_where_a_row_comes_from_can_be_written_with_it(tmp_path: Path) -> None:
    """So that anybody can check the table against the log."""
    sink = Delta("lake", str(tmp_path), key="user", provenance=True)
    writer = sink.open(target())
    writer.apply(apply(1, people(1, 2)))
    writer.apply(apply(2, people(1, 1)))

    assert in_order(DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist()) == in_order(
        [
            row
            | {"_epoch": epoch, "_partition": 0, "_sequence": n}
            | {"_input": [{"from": "log/0", "first": n, "last": n}]}
            for epoch, n, row in ((2, 0, people(1)[0]), (1, 1, people(1)[1]))
        ]
    )


def test_duckdb_reads_what_deltalake_reads(tmp_path: Path) -> None:
    """A table is for other programs than this one."""
    sink = Delta("lake", str(tmp_path), key="user", partition_by="n")
    writer = sink.open(target())
    for epoch in range(1, 13):
        writer.apply(apply(epoch, people(epoch)))
    lake = DeltaTable(str(tmp_path)).to_pyarrow_dataset()

    found = duckdb.sql("SELECT user, n FROM lake WHERE n < 2 ORDER BY user").fetchall()
    every: list[Row] = [row for epoch in range(1, 13) for row in people(epoch)]
    assert found == sorted((row["user"], row["n"]) for row in every if row["n"] < 2)
    assert lake.schema == PEOPLE


def test_the_package_is_asked_for_only_when_the_sink_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever describes a job or runs its tasks needs no client of its sinks."""
    for name in ("writer", "table", "errors"):
        monkeypatch.delitem(sys.modules, f"penstock.sinks.delta_{name}", raising=False)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    sink = Delta("lake", str(tmp_path))
    sink.check(PEOPLE.empty_table())

    with pytest.raises(Invalid, match=r"pip install 'penstock\[delta\]'"):
        sink.open(target())
