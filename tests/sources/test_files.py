import gzip
import hashlib
import json
import os
import pickle  # noqa: TID251 - what crosses Spark's processes is pickled by Spark, not by us
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.clock import Chance, Clock, SystemChance
from penstock.errors import Corrupt, Gone, Invalid
from penstock.sources import files_discovery
from penstock.sources.files import Files
from penstock.sources.files_listing import Found, Listing, RangedFile
from penstock.sources.files_record import FileEntry
from penstock.sources.files_settings import World, open_listing
from penstock.sources.planning import start_offsets
from penstock.sources.protocol import META, TIME, Range, Source, Span
from tests.support.driving import ManualClock


@dataclass
class Scene:
    """A folder that files arrive in, one second after the other, and sources that read it."""

    folder: Path
    record: str = field(default_factory=lambda: f"memory://{SystemChance().unique()}")
    clock: ManualClock = field(default_factory=ManualClock)
    second: int = 100

    @classmethod
    def below(cls, folder: Path) -> "Scene":
        (folder / "in").mkdir()
        return cls(folder / "in")

    def write(self, path: str, body: bytes, modified_s: float | None = None) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body)
        self.second += 1
        modified_ns = round((self.second if modified_s is None else modified_s) * 1_000_000_000)
        os.utime(file, ns=(modified_ns, modified_ns))
        return file

    def source(self, **settings: Any) -> Files:
        world = World(clock=self.clock)
        return Files(str(self.folder), **{"record": self.record, "world": world, **settings})


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene.below(tmp_path)


def parquet(rows: list[dict[str, Any]], schema: pa.Schema | None = None, group: int = 2) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema), sink, row_group_size=group)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def jsonl(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def numbers(*values: int) -> bytes:
    """A file of JSON lines with a column `n`."""
    return jsonl(*({"n": value} for value in values))


def batches(
    source: Source, partition: str = "0", start: int = 0, stop: int | None = None
) -> list[pa.RecordBatch]:
    end = source.spans()[partition].latest if stop is None else stop
    return list(source.read(partition, Range(start=start, stop=end), 5))


def rows(
    source: Source, partition: str = "0", start: int = 0, stop: int | None = None
) -> list[dict[str, Any]]:
    """The rows of a range, each with its offset and without the rest of `_meta`."""
    found = []
    for batch in batches(source, partition, start, stop):
        for row in batch.to_pylist():
            meta = row.pop("_meta")
            found.append({"offset": meta["offset"], **row})
    return found


def column(source: Source, name: str = "n", partition: str = "0") -> list[Any]:
    return [row[name] for row in rows(source, partition)]


@dataclass
class Counted:
    """A listing that counts what is asked of it."""

    listing: Listing
    looks: int = 0
    read_bytes: int = 0

    @classmethod
    def world(cls, clock: Clock) -> tuple[World, "list[Counted]"]:
        made: list[Counted] = []

        def opened(folder: str, clock: Clock, chance: Chance) -> Listing:
            made.append(cls(open_listing(folder, clock, chance)))
            return made[-1]

        return World(clock=clock, open_listing=opened), made

    def files(self, wanted: Callable[[str], bool], settled_us: int | None) -> Iterator[Found]:
        self.looks += 1
        return self.listing.files(wanted, settled_us)

    def open(self, path: str, size_bytes: int, version: str) -> RangedFile:
        return CountedFile(self, self.listing.open(path, size_bytes, version))


@dataclass
class CountedFile:
    counted: Counted
    file: RangedFile

    @property
    def size_bytes(self) -> int:
        return self.file.size_bytes

    def read_at(self, position: int, size_bytes: int) -> bytes:
        read = self.file.read_at(position, size_bytes)
        self.counted.read_bytes += len(read)
        return read

    def close(self) -> None:
        self.file.close()


def test_parquet_has_an_offset_per_row(scene: Scene) -> None:
    """Files follow each other without a gap; what was read is also what is known of it."""
    scene.write("a.parquet", parquet([{"n": 1, "s": "x"}, {"n": 2, "s": None}, {"n": 3, "s": ""}]))
    scene.write("b.parquet", parquet([{"n": 4, "s": "ü"}]), modified_s=200.5)
    source = scene.source()

    assert source.spans() == {"0": Span(0, 4)}
    assert source.schema() == pa.schema([("n", pa.int64()), ("s", pa.string())])
    assert rows(source) == [
        {"offset": 0, "n": 1, "s": "x"},
        {"offset": 1, "n": 2, "s": None},
        {"offset": 2, "n": 3, "s": ""},
        {"offset": 3, "n": 4, "s": "ü"},
    ]
    [last] = batches(source, start=3)
    assert last.schema == source.schema().append(pa.field("_meta", META))
    assert last.column("_meta").to_pylist() == [
        {
            "offset": 3,
            "event_time": None,
            "broker_time": datetime.fromtimestamp(200.5, UTC),
            "ingest_time": datetime.fromtimestamp(0.005, UTC),
        }
    ]


def test_json_lines_have_an_offset_per_byte(scene: Scene) -> None:
    """A row is where its line begins, so any range cuts a file."""
    scene.write("a.jsonl", b'{"n": 1}\n\n{"n": 2}\r\n{"m": 0}')
    scene.write("b.ndjson", b'\xef\xbb\xbf{"n": 4}\n')
    source = scene.source()

    assert source.spans() == {"0": Span(0, 40)}
    assert rows(source) == [
        {"offset": 0, "n": 1, "m": None},
        {"offset": 10, "n": 2, "m": None},
        {"offset": 20, "n": None, "m": 0},
        {"offset": 28, "n": 4, "m": None},
    ]
    assert rows(source, start=1, stop=20) == [{"offset": 10, "n": 2, "m": None}]
    assert rows(source, start=10, stop=11) == [{"offset": 10, "n": 2, "m": None}]
    assert rows(source, start=11, stop=20) == []


def test_csv_has_an_offset_per_byte_and_a_header_that_is_nobodys(scene: Scene) -> None:
    """Every range reads the header again, and none gives it as a row."""
    scene.write("a.csv", b'\xef\xbb\xbfn,"s"\r\n1,x\r\n\r\n2,"y, ""z"""\n3,""\n4,')
    source = scene.source()

    assert source.spans() == {"0": Span(0, 37)}
    assert rows(source) == [
        {"offset": 10, "n": 1, "s": "x"},
        {"offset": 17, "n": 2, "s": 'y, "z"'},
        {"offset": 30, "n": 3, "s": ""},
        {"offset": 35, "n": 4, "s": None},
    ]
    assert rows(source, start=0, stop=10) == []
    assert rows(source, start=18, stop=32) == [{"offset": 30, "n": 3, "s": ""}]


def test_line_ends_in_values_make_an_offset_a_row(scene: Scene) -> None:
    """Such a file cannot be entered in the middle."""
    scene.write("a.csv", b'n,s\n1,"two\nlines"\n\n2,"one"\n')
    source = scene.source(newlines_in_values=True)

    assert source.spans() == {"0": Span(0, 2)}
    assert rows(source) == [
        {"offset": 0, "n": 1, "s": "two\nlines"},
        {"offset": 1, "n": 2, "s": "one"},
    ]
    assert rows(source, start=1) == [{"offset": 1, "n": 2, "s": "one"}]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("a.jsonl.gz", b'{"n": 1}\n\n{"n": 2}\n{"n": 3}'),
        ("a.csv.gz", b"n\n1\n\n2\r\n3\n"),
    ],
)
def test_compressed_text_has_an_offset_per_row(scene: Scene, name: str, body: bytes) -> None:
    """Nothing can be entered in the middle of it; its rows are counted when it is found."""
    scene.write(name, gzip.compress(body))
    source = scene.source()

    assert source.spans() == {"0": Span(0, 3)}
    assert rows(source, start=1, stop=2) == [{"offset": 1, "n": 2}]
    assert column(source) == [1, 2, 3]


def test_files_keep_the_place_they_were_first_seen_at(scene: Scene) -> None:
    """Within a look by time, then by path; never before what is recorded."""
    scene.write("late.jsonl", numbers(3), modified_s=300)
    scene.write("b.jsonl", numbers(2), modified_s=200)
    scene.write("a/z.jsonl", numbers(1), modified_s=200)
    source = scene.source()
    assert column(source) == [1, 2, 3]

    scene.write("0.jsonl", numbers(4), modified_s=100)

    assert column(source) == [1, 2, 3, 4]
    assert column(scene.source()) == [1, 2, 3, 4]


def test_each_file_has_one_partition_for_ever(scene: Scene) -> None:
    """Files are dealt out in turn. More partitions later are for later files."""
    for number in range(5):
        scene.write(f"{number}.jsonl", numbers(number))
    source = scene.source(partitions=2)
    width = len(numbers(0))

    assert source.spans() == {"0": Span(0, 3 * width), "1": Span(0, 2 * width)}
    assert (column(source), column(source, partition="1")) == ([0, 2, 4], [1, 3])

    scene.write("5.jsonl", numbers(5))
    wider = scene.source(partitions=4)

    assert [column(wider, partition=str(number)) for number in range(4)] == [
        [0, 2, 4],
        [1, 3, 5],
        [],
        [],
    ]


def test_partitions_without_a_file_are_there(scene: Scene) -> None:
    """Partitions may come, never go; and an empty folder has them all."""
    assert scene.source(partitions=2).spans() == {"0": Span(0, 0), "1": Span(0, 0)}


def test_empty_files_are_recorded_and_give_nothing(scene: Scene) -> None:
    """They take a number, and no offsets."""
    scene.write("a.jsonl", b"")
    scene.write("b.csv", b"")
    scene.write("c.jsonl", b"\n\n")
    scene.write("d.csv", b"n\n")
    scene.write("e.parquet", parquet([], pa.schema([("n", pa.int64())])))
    scene.write("f.jsonl.gz", gzip.compress(b""))
    source = scene.source()

    assert source.discover() == 6
    assert source.discover() == 0
    assert source.spans() == {"0": Span(0, 4)}
    assert rows(source) == []


def test_reading_never_looks_for_files(scene: Scene) -> None:
    """Tasks know what to read; a listing for each of them would be a listing too many."""
    scene.write("a.jsonl", numbers(1))
    world, made = Counted.world(scene.clock)
    span = scene.source().spans()["0"]

    copy: Files = pickle.loads(pickle.dumps(scene.source()))
    assert len(list(copy.read("0", Range(start=0, stop=span.latest)))) == 1
    reader = scene.source(world=world)
    list(reader.read("0", Range(start=0, stop=span.latest)))

    assert [counted.looks for counted in made] == [0]


def test_a_small_range_reads_little_of_a_large_file(scene: Scene) -> None:
    """A task's share of a file costs what it is long, not what the file is."""
    wide = [{"n": number, "s": f"{number:0100}"} for number in range(20_000)]
    scene.write("a.jsonl", jsonl(*wide))
    scene.write("b.parquet", parquet(wide, group=500))
    world, made = Counted.world(scene.clock)
    source = scene.source(world=world)
    span = source.spans()["0"]
    text_bytes = span.latest - 20_000
    before = made[0].read_bytes

    list(source.read("0", Range(start=text_bytes // 2, stop=text_bytes // 2 + 100)))
    list(source.read("0", Range(start=span.latest - 5, stop=span.latest)))

    assert before < 4 << 20
    assert made[0].read_bytes - before < 400_000


def test_columns_are_cast_filled_and_left_out(scene: Scene) -> None:
    """A source has the columns it promises, whatever a file has."""
    schema = pa.schema([("n", pa.int16()), ("day", pa.date32()), ("s", pa.string())])
    scene.write("a.parquet", parquet([{"day": date(2026, 1, 2), "n": 1, "more": True}]))
    scene.write("b.jsonl", b'{"s": "x", "n": 2, "day": "2026-01-03", "more": {"z": []}}\n')
    scene.write("c.csv", b"more,n\n?,3\n")
    source = scene.source(schema=schema)

    assert [{**row, "offset": 0} for row in rows(source)] == [
        {"offset": 0, "n": 1, "day": date(2026, 1, 2), "s": None},
        {"offset": 0, "n": 2, "day": date(2026, 1, 3), "s": "x"},
        {"offset": 0, "n": 3, "day": None, "s": None},
    ]
    assert source.schema() == schema


def test_the_first_file_settles_the_columns_for_good(scene: Scene) -> None:
    """They are in the record: whoever comes later finds the same, though the file be gone."""
    scene.write("a.jsonl", b"\n")
    told = b'{"n": 1, "at": "2026-01-01T00:00:00", "none": null}\n'
    first = scene.write("b.jsonl", told)
    expected = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us")), ("none", pa.string())])
    assert scene.source().schema() == expected
    first.unlink()
    scene.write("c.jsonl", b'{"other": 1, "at": "2026-01-01T00:00:00.25"}\n')

    source = scene.source()
    source.discover()

    assert source.schema() == expected
    [row] = rows(source, start=1 + len(told))
    assert row["at"] == datetime(2026, 1, 1, 0, 0, 0, 250_000)


def test_the_columns_of_nothing_are_unknown(scene: Scene) -> None:
    """Guessing would settle them for ever."""
    with pytest.raises(Invalid) as caught:
        scene.source().schema()

    assert str(caught.value) == (
        f"files {scene.folder} has no file yet that would tell its columns: "
        "give a schema, or wait for the first file with a row."
    )


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.timestamp("ns"), datetime(2026, 1, 1, 12)),
        (pa.timestamp("s", tz="UTC"), datetime(2026, 1, 1, 12, tzinfo=UTC)),
        (pa.string(), "2026-01-01T14:00:00+02:00"),
    ],
)
def test_event_times_come_from_a_column(scene: Scene, kind: pa.DataType, value: object) -> None:
    """Whatever says when it happened, it is told in microseconds of UTC."""
    schema = pa.schema([("at", kind)])
    scene.write("a.parquet", parquet([{"at": value}, {"at": None}], schema))
    source = scene.source(event_time="at")

    [batch] = batches(source)

    assert batch.column("_meta").field("event_time") == pa.array(
        [datetime(2026, 1, 1, 12, tzinfo=UTC), None], TIME
    )


def test_a_moment_is_the_first_file_as_late(scene: Scene) -> None:
    """Files in another partition, or older ones recorded later, do not matter."""
    for number, modified_s in enumerate((100, 200, 300, 400)):
        scene.write(f"{number}.jsonl", numbers(number), modified_s=modified_s)
    source = scene.source(partitions=2)
    width = len(numbers(0))
    source.discover()
    scene.write("old.jsonl", numbers(9), modified_s=50)

    assert source.offsets_at(0) == {"0": 0, "1": 0}
    assert source.offsets_at(200_000) == {"0": width, "1": 0}
    assert source.offsets_at(200_001) == {"0": width, "1": width}
    assert source.offsets_at(400_001) == {"0": 3 * width, "1": 2 * width}
    assert start_offsets(source, datetime.fromtimestamp(300, UTC)) == {"0": width, "1": width}


def test_a_file_rewritten_with_equal_size_and_time_gives_no_rows(scene: Scene) -> None:
    """A copy that keeps times, such as rsync makes, must not put other rows at recorded offsets."""
    scene.write("a.jsonl", numbers(1, 2), modified_s=200)
    source = scene.source()
    assert column(source) == [1, 2]
    scene.write("a.jsonl", numbers(1, 3), modified_s=200)
    was, now = (hashlib.sha256(2 * numbers(*each)).hexdigest()[:32] for each in ((1, 2), (1, 3)))

    for reader in (source, scene.source()):
        with pytest.raises(Corrupt) as caught:
            column(reader)
        assert str(caught.value) == (
            f"file a.jsonl of files {scene.folder} was changed after it was recorded: it had a "
            f"beginning and an end that hash to {was}, and has {now}: put it back as it was, and "
            "give new rows to a file of a new name."
        )
    scene.write("a.jsonl", numbers(1, 2), modified_s=200)
    assert column(source) == [1, 2]


@pytest.mark.parametrize("place", [0, 9_999], ids=["first line", "last line"])
def test_a_long_file_is_known_by_both_its_ends(scene: Scene, place: int) -> None:
    """Most rewrites touch one of them: a header, a footer, a checksum, a line appended or cut."""
    lines = [1] * 10_000
    scene.write("a.jsonl", numbers(*lines), modified_s=200)
    source = scene.source()
    source.discover()
    lines[place] = 2
    scene.write("a.jsonl", numbers(*lines), modified_s=200)

    with pytest.raises(Corrupt, match="was changed after it was recorded"):
        column(source)


def test_a_file_recorded_without_its_ends_goes_by_size_and_time(scene: Scene) -> None:
    """Records of earlier versions say nothing more, and are read as they were."""
    scene.write("a.jsonl", numbers(1, 2))
    with pytest.MonkeyPatch.context() as before:
        before.setattr(files_discovery, "hash_ends", lambda file: "")
        assert scene.source().discover() == 1

    assert column(scene.source()) == [1, 2]
    entry = FileEntry("a.jsonl", 18, "1", 1, 0, 18, "jsonl", "bytes")
    earlier = msgspec.json.encode(msgspec.to_builtins(entry)[:8])
    assert msgspec.json.decode(earlier, type=FileEntry) == entry


def test_a_file_that_was_changed_gives_no_rows(scene: Scene) -> None:
    """Other rows at the same offsets would break everything built on them."""
    file = scene.write("a.jsonl", numbers(1, 2), modified_s=100)
    source = scene.source()
    source.discover()
    scene.write("a.jsonl", numbers(1, 3), modified_s=160)

    with pytest.raises(Corrupt) as caught:
        rows(source)

    assert str(caught.value) == (
        f"file {file} was changed after it was recorded: it had 18 bytes written at "
        "1970-01-01T00:01:40+00:00, and has 18 bytes written at 1970-01-01T00:02:40+00:00: "
        "put it back as it was, and give new rows to a file of a new name."
    )
    assert source.discover() == 0


@pytest.mark.parametrize("body", [numbers(1), numbers(1, 2, 3)])
def test_a_file_of_another_length_gives_no_rows(scene: Scene, body: bytes) -> None:
    """Not even if its time was put back."""
    scene.write("a.jsonl", numbers(1, 2), modified_s=100)
    source = scene.source()
    source.discover()
    scene.write("a.jsonl", body, modified_s=100)

    with pytest.raises(Corrupt):
        rows(source)


def test_a_file_that_was_put_back_is_read(scene: Scene) -> None:
    """What counts is what it is, not which inode it has."""
    file = scene.write("a.jsonl", numbers(1, 2), modified_s=100)
    source = scene.source()
    source.discover()
    file.unlink()
    scene.write("a.jsonl", numbers(1, 2), modified_s=100)

    assert column(source) == [1, 2]


def test_a_file_that_was_removed_is_gone(scene: Scene) -> None:
    """A range is exact or refused, never cut short."""
    file = scene.write("a.jsonl", numbers(1))
    scene.write("b.jsonl", numbers(2))
    source = scene.source()
    source.discover()
    file.unlink()

    with pytest.raises(Gone) as caught:
        rows(source)

    assert str(caught.value) == (
        f"file {file} was recorded and is no longer there: "
        "put it back as it was, or go on from an offset behind it and accept the gap."
    )
    assert rows(source, start=9) == [{"offset": 9, "n": 2}]


def test_a_source_travels_closed(scene: Scene) -> None:
    """It is sent to every task; nothing that is open can go with it."""
    scene.write("a.jsonl", numbers(1, 2))
    source = scene.source()
    assert column(source) == [1, 2]

    copy = pickle.loads(pickle.dumps(source))

    assert (copy.name, repr(copy)) == (f"files {scene.folder}", f"<files {scene.folder}>")
    assert column(copy) == [1, 2]


def test_ranges_that_are_not_there_are_refused(scene: Scene) -> None:
    """A reader that is asked for too much must not answer with less."""
    scene.write("a.jsonl", numbers(1))
    source = scene.source()
    source.discover()

    with pytest.raises(Invalid, match="ends at offset 9 and was asked for 10"):
        list(source.read("0", Range(start=0, stop=10)))
    with pytest.raises(Invalid, match="was asked for offsets 2 up to 1"):
        list(source.read("0", Range(start=2, stop=1)))
    for name in ("1", "-1", "x", ""):
        with pytest.raises(Invalid) as caught:
            list(source.read(name, Range(start=0, stop=0)))
        assert str(caught.value) == f"{source.name} has no partition {name!r}: use 0 to 0."


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"format": "xml"}, "cannot have format 'xml': use one of parquet, jsonl, csv, or None"),
        ({"pattern": ""}, "cannot have an empty pattern: leave it out, or use '*'."),
        ({"record": ""}, "needs a record: give a store's URL, such as a folder."),
        ({"partitions": 0}, "cannot have 0 partitions: use a number from 1 to 256."),
        ({"partitions": 2.0}, "cannot have 2.0 partitions: use a number from 1 to 256."),
        ({"partitions": True}, "cannot have True partitions: use a number from 1 to 256."),
        ({"settle_s": -1}, "cannot let a file settle for -1 seconds: use 0 or more."),
        ({"settle_s": float("nan")}, "cannot let a file settle for nan seconds: use 0 or more."),
        ({"poison": "drop"}, "cannot have poison='drop': use 'fail' or 'quarantine'."),
        (
            {"schema": pa.schema([])},
            "cannot have this schema (there are no columns): correct it.",
        ),
        (
            {"schema": pa.schema([("a", pa.int8()), ("a", pa.int8())])},
            "cannot have this schema (column 'a' is there twice): correct it.",
        ),
        (
            {"schema": pa.schema([("_meta", pa.int8())])},
            "cannot have this schema ('_meta' is what a source itself adds): correct it.",
        ),
        (
            {"schema": pa.schema([("a", pa.int8())]), "event_time": "b"},
            "cannot have this schema (there is no column 'b' to take event times from)",
        ),
        (
            {"schema": pa.schema([("a", pa.int64())]), "event_time": "a"},
            "cannot have this schema (event times cannot be taken from column 'a', which is "
            "int64: make it a timestamp, a date, or text with a zone): correct it.",
        ),
    ],
)
def test_settings_that_cannot_be_kept_are_refused(
    scene: Scene, settings: dict[str, Any], sentence: str
) -> None:
    """At once, where they are written, with what to write instead."""
    with pytest.raises(Invalid) as caught:
        scene.source(**settings)

    assert str(caught.value).startswith(f"files {scene.folder} {sentence}")


@pytest.mark.parametrize(
    ("folder", "found"),
    [
        ("ftp://host/in", "folder 'ftp://host/in' is not something that can be opened"),
        ("s3://user:secret@bucket/in", "folder 's3://bucket/in' is not something"),
        ("s3:///in", "folder 's3:///in' is not something"),
    ],
)
def test_a_place_that_is_none_is_refused_without_its_secrets(folder: str, found: str) -> None:
    """What stands before the host must not meet anybody in a log."""
    source = Files(folder, record=f"memory://{SystemChance().unique()}")

    with pytest.raises(Invalid) as caught:
        source.spans()

    assert str(caught.value).startswith(found)
    assert "secret" not in f"{caught.value} {source.name} {source!r}"


def test_a_folder_can_be_given_as_a_url(scene: Scene) -> None:
    """The record knows that both are the same place."""
    scene.write("a.jsonl", numbers(1))
    scene.source().discover()
    source = Files(f"file://{scene.folder}", record=scene.record, settle_s=0)

    assert column(source) == [1]
