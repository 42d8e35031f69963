import gzip
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import Invalid
from penstock.sources.files import Dropped, Quarantined
from penstock.sources.protocol import Range
from tests.sources.test_files import Scene, column, numbers, parquet, rows

NUMBERED = pa.schema([pa.field("n", pa.int64(), nullable=False), ("s", pa.string())])


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene.below(tmp_path)


UNREADABLE: dict[str, tuple[str, bytes, str]] = {
    "no parquet": (
        "x.parquet",
        b"no parquet at all",
        "Parquet magic bytes not found in footer. Either the file is corrupted or this is not a "
        "parquet file.",
    ),
    "empty parquet": ("x.parquet", b"", "Parquet file size is 0 bytes"),
    "cut parquet": (
        "x.parquet",
        parquet([{"n": 1}])[:-10],
        "Parquet magic bytes not found in footer. Either the file is corrupted or this is not a "
        "parquet file.",
    ),
    "parquet without a column": (
        "x.parquet",
        parquet([{"s": "x"}]),
        "it lacks column 'n', which may not be null",
    ),
    "parquet with another type": (
        "x.parquet",
        parquet([{"n": [1, 2]}]),
        "column 'n' is list<element: int64>, which cannot be cast to int64",
    ),
    "no object": ("x.jsonl", b"hello\n", "it is not an object in braces"),
    "two objects": ("x.jsonl", b'{"n": 1} {"n": 2}\n', "it is not exactly one object"),
    "broken object": (
        "x.jsonl",
        b'{"n": 1,}\n',
        "JSON parse error: Missing a name for object member.",
    ),
    "json of another type": (
        "x.jsonl",
        b'{"n": "one"}\n',
        "JSON parse error: Column(/n) changed from number to string",
    ),
    "json without a column": ("x.jsonl", b'{"s": "x"}\n', "column 'n' is null, and may not be"),
    "json that is no UTF-8": ("x.jsonl", b'{"n": 1, "s": "\xff"}\n', "it is not UTF-8"),
    "csv without a column": ("x.csv", b"s\nx\n", "it lacks column 'n', which may not be null"),
    "csv with a column twice": ("x.csv", b"n,n\n1,2\n", "it has column 'n' more than once"),
    "csv of another type": (
        "x.csv",
        b"more,n\n?,one\n",
        "column 'n': CSV conversion error to int64: invalid value 'one'",
    ),
    "csv with too few values": ("x.csv", b"n,s\n1\n", "it has 1 values below 2 names"),
    "csv with line ends in values": (
        "x.csv",
        b'n,s\n1,"two\nlines"\n',
        "it is not one row: is a value with line ends in it?",
    ),
    "csv that is no UTF-8": ("x.csv", b"n,s\n1,\xff\n", "it is not UTF-8"),
    "csv with a header that is no UTF-8": ("x.csv", b"n,\xff\n1,2\n", "it is not UTF-8"),
    "no gzip": ("x.jsonl.gz", numbers(1), "Not a gzipped file (b'{\"')"),
    "cut gzip": (
        "x.jsonl.gz",
        gzip.compress(numbers(1, 2, 3), mtime=0)[:-4],
        "Compressed file ended before the end-of-stream marker was reached",
    ),
    "unknown suffix": (
        "x.txt",
        b"?",
        "its suffix does not tell its format, and the source was given none",
    ),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_an_unreadable_file_stops_the_source(scene: Scene, case: str) -> None:
    """Nothing behind it is recorded: once it is mended it stands where it should."""
    name, body, reason = UNREADABLE[case]
    scene.write("before.jsonl", numbers(1))
    scene.write(name, body)
    scene.write("later.jsonl", numbers(3))
    source = scene.source(schema=NUMBERED, pattern="*")

    with pytest.raises(Invalid) as caught:
        source.spans()

    assert str(caught.value) == (
        f"file {name} of files {scene.folder} cannot be read ({reason}); nothing was recorded of "
        "it and of later files: correct or remove it, or go on without it by poison='quarantine'."
    )
    (scene.folder / name).unlink()
    assert source.discover() == 1
    assert column(source) == [1, 3]


BY_ROW = {
    "no object", "two objects", "broken object", "json of another type", "json without a column",
    "json that is no UTF-8", "csv of another type", "csv with too few values",
    "csv with line ends in values", "csv that is no UTF-8",
}  # fmt: skip
"""Files that are bad by their first row. A later one may be good, so they are read."""


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_is_unreadable_can_be_set_aside(scene: Scene, case: str) -> None:
    """It leaves a trace: an offset that an epoch reads, with the reason in its place."""
    name, body, reason = UNREADABLE[case]
    scene.write("before.jsonl", numbers(1))
    scene.write(name, body)
    scene.write("later.jsonl", numbers(3))
    source = scene.source(schema=NUMBERED, pattern="*", poison="quarantine")
    end = source.spans()["0"].latest
    dropped = list(source.dropped("0", Range(start=0, stop=end)))

    assert column(source) == [1, 3]
    assert {each.path for each in dropped} == {name}
    assert dropped[0].why == reason
    unreadable = [] if case in BY_ROW else [Quarantined(name, len(body), reason)]
    assert list(source.quarantined()) == unreadable
    assert list(scene.source().quarantined()) == unreadable
    assert source.discover() == 0
    if unreadable:
        assert (dropped[0].offset, dropped[0].place, end) == (9, "", 19)


WHOLE_NUMBERS = pa.schema([("n", pa.int64())])
OOPS = b'oops\n{"n": 1}\n{"n": 2}\n'


@pytest.mark.parametrize(
    ("name", "body", "schema"),
    [
        ("a.jsonl", OOPS, WHOLE_NUMBERS),
        ("a.jsonl", OOPS, None),
        ("a.jsonl.gz", gzip.compress(OOPS), WHOLE_NUMBERS),
        ("a.jsonl.gz", gzip.compress(OOPS), None),
        ("a.csv", b"n\noops\n1\n2\n", WHOLE_NUMBERS),
    ],
)
def test_a_bad_first_row_leaves_the_others(
    scene: Scene, name: str, body: bytes, schema: pa.Schema | None
) -> None:
    """The whole file used to be dropped for it, without a trace."""
    scene.write(name, body)
    source = scene.source(schema=schema, poison="quarantine")
    end = source.spans()["0"].latest

    assert column(source) == [1, 2]
    (dropped,) = source.dropped("0", Range(start=0, stop=end))
    assert (dropped.value, dropped.path) == (b"oops", name)
    scene.record = f"memory://{scene.record}-other"
    with pytest.raises(Invalid, match=f"file {name} of files"):
        scene.source(schema=schema).spans()


@pytest.mark.parametrize(
    ("name", "body", "reason"),
    [
        ("a.csv", b"n,n\n1,2\n", "its header has a name more than once"),
        ("a.jsonl", b'{"_meta": 1}\n', "'_meta' is what a source itself adds"),
        ("a.jsonl", b'{"n": 1}\n', "there is no column 'at' to take event times from"),
    ],
)
def test_a_file_that_cannot_settle_the_columns_leaves_it_to_the_next(
    scene: Scene, name: str, body: bytes, reason: str
) -> None:
    """Columns are for ever; those of a bad file must not be."""
    scene.write(name, body)
    scene.write("b.jsonl", b'{"at": "2026-01-01T00:00:00", "n": 7}\n')
    source = scene.source(event_time="at", poison="quarantine")

    assert column(source) == [7]
    assert [file.reason for file in source.quarantined()] == [reason]


CSV = b'n,s\n1,a\ntwo,b\n3,"c\n4,d"\n5,e,f\n6,\xff\n7,g\n,h\n8,i'
JSON = b'{"n": 1}\n{"n": "two"}\n{"n": 3\n{"n": 4.5}\n[5]\n{"n": null}\n{"n": 7}\n'
NUMBERS = "JSON parse error: Column(/n) changed from number to string"
LATER: dict[str, tuple[str, bytes, list[int], list[tuple[int, str]]]] = {
    "csv": (
        "a.csv",
        CSV,
        [1, 4, 7, 8],
        [
            (8, "column 'n': CSV conversion error to int64: invalid value 'two'"),
            (14, "it is not one row: is a value with line ends in it?"),
            (24, "it has 3 values below 2 names"),
            (30, "it is not UTF-8"),
            (38, "column 'n' is null, and may not be"),
        ],
    ),
    "jsonl": (
        "a.jsonl",
        JSON,
        [1, 7],
        [
            (9, NUMBERS),
            (22, "it is not an object in braces"),
            (30, "Failed to convert JSON to int64, couldn't parse:4.5"),
            (41, "it is not an object in braces"),
            (45, "column 'n' is null, and may not be"),
        ],
    ),
}


@pytest.mark.parametrize("case", LATER)
def test_a_bad_row_stops_the_reading(scene: Scene, case: str) -> None:
    """Whoever reads it is told where it is, in a file of millions of rows."""
    name, body, _, bad = LATER[case]
    scene.write(name, body)
    source = scene.source(schema=NUMBERED)

    with pytest.raises(Invalid) as caught:
        rows(source)

    assert str(caught.value) == (
        f"file {name} of files {scene.folder} cannot be read at byte {bad[0][0]}, which is offset "
        f"{bad[0][0]} of partition 0 ({bad[0][1]}): "
        "give it other columns by a schema, or leave out such rows by poison='quarantine'."
    )


@pytest.mark.parametrize("case", LATER)
def test_bad_rows_can_be_left_out_the_same_ones_always(scene: Scene, case: str) -> None:
    """However a file is cut, each row is in or out by itself; what is out can be asked for."""
    name, body, good, bad = LATER[case]
    scene.write("0.jsonl", numbers(0))
    scene.write(name, body)
    source = scene.source(schema=NUMBERED, poison="quarantine")
    end = source.spans()["0"].latest
    lines = {at: body[at:].partition(b"\n")[0].removesuffix(b"\r") for at, _ in bad}
    expected = [Dropped(9 + at, name, f"byte {at}", reason, value=lines[at]) for at, reason in bad]

    assert column(source) == [0, *good]
    assert list(source.dropped("0", Range(start=0, stop=end))) == expected
    everything = rows(source)
    for cut in range(0, end + 1, 2):
        parts = (Range(start=0, stop=cut), Range(start=cut, stop=end))
        assert [d for part in parts for d in source.dropped("0", part)] == expected
        assert rows(source, stop=cut) + rows(source, start=cut, stop=end) == everything


def test_values_that_would_change_are_bad_rows_of_parquet(scene: Scene) -> None:
    """A cast is safe or refused, row by row."""
    scene.write("a.parquet", parquet([{"n": n} for n in (1, 300, 3, -200, 5)]))
    schema = pa.schema([("n", pa.int8())])

    with pytest.raises(Invalid, match=r"at row 1, .* \(Integer value 300 not in range"):
        column(scene.source(schema=schema))
    source = scene.source(schema=schema, poison="quarantine")
    assert [(row["offset"], row["n"]) for row in rows(source)] == [(0, 1), (2, 3), (4, 5)]
    assert [bad.offset for bad in source.dropped("0", Range(start=0, stop=5))] == [1, 3]


def test_a_damaged_page_takes_its_row_group_with_it(scene: Scene) -> None:
    """There is no telling where the next row begins; the next group is whole."""
    body = bytearray(parquet([{"n": n, "s": f"{n}" * 50} for n in range(6)]))
    at = body.index(b"2" * 20)
    body[at - 30 : at + 30] = b"\xff" * 60
    scene.write("a.parquet", bytes(body))
    source = scene.source(poison="quarantine")

    assert [row["n"] for row in rows(source)] == [0, 1, 4, 5]
    for start, stop in ((0, 6), (2, 4), (3, 5)):
        [bad] = source.dropped("0", Range(start=start, stop=stop))
        assert (bad.offset, bad.count) == (max(2, start), min(4, stop) - max(2, start))
        assert bad.why.startswith("row group 1: ")
        assert bad.reason.startswith(f"file a.parquet, row {bad.offset}: row group 1: ")
    with pytest.raises(Invalid, match="cannot be read at row 2"):
        rows(scene.source())


def test_bad_event_times_are_bad_rows(scene: Scene) -> None:
    """A row that cannot say when it happened would be late or early by accident."""
    scene.write("a.csv", b"at\n2026-01-01T00:00:00Z\nyesterday\n2026-01-01T00:00:00\n")
    schema = pa.schema([("at", pa.string())])
    source = scene.source(schema=schema, event_time="at", poison="quarantine")

    assert column(source, "at") == ["2026-01-01T00:00:00Z"]
    assert [bad.offset for bad in source.dropped("0", Range(start=0, stop=54))] == [24, 34]


def test_another_schema_than_a_file_was_recorded_with_is_told_when_it_is_read(
    scene: Scene,
) -> None:
    """What is recorded stays; whether it fits is asked again."""
    scene.write("a.csv", b"n\n1\n")
    scene.source().discover()
    settings: dict[str, Any] = {"schema": pa.schema([pa.field("m", pa.int64(), nullable=False)])}

    with pytest.raises(Invalid, match=r"at byte 0, .* \(it lacks column 'm', which may not be"):
        rows(scene.source(**settings))
    lenient = scene.source(**settings, poison="quarantine")
    assert rows(lenient) == []
    assert [bad.count for bad in lenient.dropped("0", Range(start=1, stop=4))] == [3]


def int96(*times: datetime) -> bytes:
    """A file as Spark writes it by default."""
    sink = pa.BufferOutputStream()
    table = pa.table({"at": pa.array(times, pa.timestamp("us"))})
    pq.write_table(table, sink, use_deprecated_int96_timestamps=True)
    body: bytes = sink.getvalue().to_pybytes()
    return body


FAR = [datetime(1, 1, 1), datetime(1677, 1, 1), datetime(2262, 6, 1), datetime(9999, 12, 31, 23)]


def test_times_that_spark_writes_do_not_wrap_around(scene: Scene) -> None:
    """The last day of the calendar was read as a day of 1816."""
    scene.write("a.parquet", int96(*FAR))

    assert column(scene.source(), "at") == FAR


def test_times_that_spark_writes_may_be_declared_in_utc(scene: Scene) -> None:
    """The file does not say; Spark means UTC."""
    scene.write("a.parquet", int96(*FAR))
    schema = pa.schema([("at", pa.timestamp("us", "UTC"))])

    assert column(scene.source(schema=schema), "at") == [at.replace(tzinfo=UTC) for at in FAR]


def test_nanoseconds_of_int96_are_not_cut(scene: Scene) -> None:
    """Row by row: what is finer than a microsecond is refused."""
    sink = pa.BufferOutputStream()
    table = pa.table({"at": pa.array([0, 1, 1000, -1, None], pa.timestamp("ns"))})
    pq.write_table(table, sink, use_deprecated_int96_timestamps=True)
    scene.write("a.parquet", sink.getvalue().to_pybytes())
    source = scene.source(poison="quarantine")

    assert [row["offset"] for row in rows(source)] == [0, 2, 4]
    told = [bad.why for bad in source.dropped("0", Range(start=0, stop=5))]
    assert told == ["column 'at' is INT96 with nanoseconds, which would be cut"] * 2


ZONED = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (ZONED, b'"2026-01-01T00:00:00Z"', b'"2026-01-01 00:00:00"'),
        (pa.struct([("at", ZONED)]), b'{"at": "2026-01-01T00:00:00Z"}', b'{"at": "2026-01-01"}'),
        (pa.list_(ZONED), b'["2026-01-01T00:00:00Z"]', b'["2026-01-01T00:00:00"]'),
    ],
    ids=["plain", "struct", "list"],
)
def test_a_time_without_a_zone_is_not_taken_for_utc(
    scene: Scene, kind: pa.DataType, good: bytes, bad: bytes
) -> None:
    """In JSON lines neither; with a zone it is read as what it says."""
    scene.write("a.jsonl", b'{"x": ' + good + b"}\n")
    source = scene.source(schema=pa.schema([("x", kind)]))
    assert len(rows(source)) == 1
    scene.write("b.jsonl", b'{"x": ' + bad + b"}\n")

    with pytest.raises(Invalid, match=r"file b\.jsonl of"):
        rows(source)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_line_of_blanks_is_no_row_of_json(scene: Scene, name: str) -> None:
    """Nor is it a reason to stop: an empty line is none either."""
    body = b'  \n{"n": 1}\n\t \n\n{"n": 2}\n '
    scene.write(name, gzip.compress(body) if name.endswith("gz") else body)
    source = scene.source()

    assert column(source) == [1, 2]
    assert list(source.dropped("0", Range(start=0, stop=source.spans()["0"].latest))) == []
