import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Corrupt
from penstock.sources.files import Files
from penstock.sources.protocol import Limits, Range
from tests.sources.test_files import Counted, Scene, column, jsonl, numbers, parquet, rows


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene.below(tmp_path)


def epochs(source: Files, limits: Limits) -> list[dict[str, list[Any]]]:
    """What each epoch reads until there is nothing left."""
    resume: dict[str, int] = {}
    read = []
    while ranges := source.plan(resume, limits):
        assert all(resume.get(p, 0) == wanted.start for p, wanted in ranges.items())
        resume |= {partition: wanted.stop for partition, wanted in ranges.items()}
        read.append(
            {p: [row["n"] for row in rows(source, p, r.start, r.stop)] for p, r in ranges.items()}
        )
    return read


def test_without_limits_everything_is_planned(scene: Scene) -> None:
    """And then nothing, until a new file comes."""
    scene.write("a.jsonl", numbers(1, 2))
    scene.write("b.parquet", parquet([{"n": 3}]))
    source = scene.source()

    assert source.plan({}, Limits()) == {"0": Range(start=0, stop=19)}
    assert source.plan({"0": 9}, Limits()) == {"0": Range(start=9, stop=19)}
    assert source.plan({"0": 19}, Limits()) == {}
    scene.write("c.jsonl", numbers(4))
    assert source.plan({"0": 19}, Limits()) == {"0": Range(start=19, stop=28)}


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("a.jsonl", b"\n\n" + numbers(1, 2) + b"\n\r\n" + numbers(3, 4, 5)),
        ("a.csv", b"n,s\n\n1,x\n2,yyyyyyyyyyyyyyyyy\r\n3,\n\n4,\n5,"),
        ("a.parquet", parquet([{"n": n} for n in (1, 2, 3, 4, 5)])),
        ("a.jsonl.gz", gzip.compress(numbers(1, 2, 3, 4, 5), mtime=0)),
    ],
)
@pytest.mark.parametrize("allowed", [1, 2, 4, 100])
def test_a_limit_of_rows_counts_rows(scene: Scene, name: str, body: bytes, allowed: int) -> None:
    """Whatever an offset is: neither headers nor empty lines nor bytes are rows."""
    scene.write(name, body)
    expected = [[1, 2, 3, 4, 5][at : at + allowed] for at in range(0, 5, allowed)]

    read = epochs(scene.source(), Limits(records=allowed))

    assert [values["0"] for values in read if values["0"]] == expected
    assert len(read) == len(expected)


@pytest.mark.parametrize("size_bytes", [1, 12, 20, 1000])
def test_a_limit_of_bytes_ends_where_a_line_begins(scene: Scene, size_bytes: int) -> None:
    """However small it is, each epoch reads a row: bytes of a long header are no progress."""
    scene.write("a.csv", b"n,a long name for a column,\n\n\n1,x,\n2,yyyyyyyyyyyyyyyyy,\r\n3,,\n\n")
    scene.write("b.jsonl", b"\n" + numbers(4, 5))

    read = epochs(scene.source(), Limits(size_bytes=size_bytes))

    assert [n for values in read for n in values["0"]] == [1, 2, 3, 4, 5]
    assert all(values["0"] for values in read[:-1])
    assert len(read) == {1: 5, 12: 4, 20: 3, 1000: 1}[size_bytes]


def test_rows_are_shared_between_partitions(scene: Scene) -> None:
    """One with little leaves the rest to the others; none is passed over for ever."""
    scene.write("a.jsonl", numbers(*range(10, 19)))
    scene.write("b.jsonl", numbers(20))
    scene.write("c.jsonl", numbers(30, 31, 32))
    source = scene.source(partitions=3)

    assert epochs(source, Limits(records=6)) == [
        {"0": [10, 11], "2": [30, 31], "1": [20]},
        {"0": [12, 13, 14], "2": [32]},
        {"0": [15, 16, 17, 18]},
    ]
    assert source.plan({}, Limits(records=1)) == {"0": Range(start=0, stop=10)}


def test_planning_reads_no_more_than_it_plans(scene: Scene) -> None:
    """A small epoch of a large file costs the leader little."""
    scene.write("a.jsonl", jsonl(*({"n": n, "s": "x" * 100} for n in range(50_000))))
    world, made = Counted.world(scene.clock)
    source = scene.source(world=world)
    source.discover()
    before = made[0].read_bytes

    source.plan({}, Limits(size_bytes=1_000_000))
    source.plan({}, Limits(records=100))
    assert made[0].read_bytes - before < 6 << 20
    before = made[0].read_bytes
    source.plan({}, Limits())

    assert made[0].read_bytes == before


def test_planning_a_changed_file_is_refused(scene: Scene) -> None:
    """Where its lines begin now is not where they did."""
    scene.write("a.jsonl", numbers(1, 2), modified_s=100)
    source = scene.source()
    source.discover()
    scene.write("a.jsonl", numbers(3, 4), modified_s=101)

    with pytest.raises(Corrupt):
        source.plan({}, Limits(records=1))


LINES = st.lists(st.sampled_from([b"", b"\r", b'{"n":1}', b'{"n":22}\r', b"bad"]), max_size=6)
SOME = st.integers(1, 40) | st.none()


@given(files=st.lists(LINES.map(b"\n".join), min_size=1, max_size=3), records=SOME, size=SOME)
@settings(max_examples=40, deadline=None)
def test_any_limits_read_everything_once(
    files: list[bytes], records: int | None, size: int | None, tmp_path_factory: Any
) -> None:
    """Nothing is left out or read twice between two epochs, and none stands still."""
    scene = Scene.below(tmp_path_factory.mktemp("plan"))
    scene.write("first.jsonl", numbers(0))
    for number, body in enumerate(files):
        scene.write(f"{number}.jsonl", b'{"n":7}\n' + body)
    source = scene.source(partitions=2, poison="quarantine")
    whole = [column(source, partition=p) for p in ("0", "1")]

    read = epochs(source, Limits(records=records, size_bytes=size))

    assert [[n for epoch in read for n in epoch.get(p, [])] for p in ("0", "1")] == whole
    for epoch in read:
        assert records is None or sum(map(len, epoch.values())) <= records
