import csv
import io
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.sources import files_lines, files_text
from penstock.sources.files_formats import SplitText, WholeText
from penstock.sources.files_lines import line_blocks, line_start
from penstock.sources.files_parquet import ParquetFormat
from penstock.sources.files_pieces import Bad, Format, Kept
from penstock.sources.files_shape import Shape
from penstock.sources.files_text import Csv, JsonLines
from tests.sources.test_files import parquet

SHAPE = Shape(pa.schema([("n", pa.int64()), ("s", pa.string())]))
QUICK = settings(max_examples=60, deadline=None)


@dataclass
class InMemory:
    """A file that is nowhere."""

    body: bytes
    reads: int = 0

    @property
    def size_bytes(self) -> int:
        return len(self.body)

    def read_at(self, position: int, size_bytes: int) -> bytes:
        self.reads += 1
        return self.body[position : position + size_bytes]

    def close(self) -> None:
        """Nothing was opened."""


def told(pieces: Iterator[Kept | Bad]) -> list[tuple[Any, ...]]:
    """Every row and everything bad, in order."""
    found: list[tuple[Any, ...]] = []
    for piece in pieces:
        if isinstance(piece, Bad):
            found += [
                (at, piece.reason) for at in range(piece.position, piece.position + piece.count)
            ]
        else:
            values = zip(*(piece.rows.column(name).to_pylist() for name in ("n", "s")), strict=True)
            found += [(int(at), *row) for at, row in zip(piece.positions, values, strict=True)]
    return found


def whole(reader: Format, body: bytes, length: int) -> list[tuple[Any, ...]]:
    return told(reader.pieces(InMemory(body), 0, length, SHAPE))


def in_parts(
    reader: Format, body: bytes, length: int, cuts: Sequence[float]
) -> list[tuple[Any, ...]]:
    """The same, read in ranges that begin and end at these shares of the file."""
    bounds = [0, *sorted(int(cut * (length + 1)) for cut in cuts), length]
    found = []
    for start, stop in pairwise(bounds):
        found += told(reader.pieces(InMemory(body), start, stop, SHAPE))
    return found


CUTS = st.lists(st.floats(0, 1, exclude_max=True), max_size=6)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\n\n", b"\n\r\n"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ROWS = st.lists(
    st.tuples(st.integers(-(2**63), 2**63 - 1) | st.none(), TEXTS | st.none()), max_size=12
)


def joined(draw: st.DrawFn, lines: list[bytes]) -> bytes:
    ended = [line + draw(ENDS) for line in lines]
    last = ended[-1].rstrip(b"\r\n") if ended and draw(st.booleans()) else b"".join(ended[-1:])
    return b"".join([*ended[:-1], last])


@st.composite
def json_files(draw: st.DrawFn) -> tuple[bytes, list[tuple[Any, ...]]]:
    rows = draw(ROWS)
    plain = draw(st.booleans())
    lines = [json.dumps({"n": n, "s": s}, ensure_ascii=plain).encode() for n, s in rows]
    return joined(draw, lines), rows


@given(json_files(), CUTS)
@QUICK
def test_any_split_of_json_lines_gives_the_same_rows(
    file: tuple[bytes, list[tuple[Any, ...]]], cuts: list[float]
) -> None:
    """And they are what Python's own reader finds."""
    body, expected = file
    reader = SplitText(JsonLines())
    found = whole(reader, body, len(body))

    assert [row[1:] for row in found] == expected
    assert [json.loads(body[at:].partition(b"\n")[0]) for at, *_ in found] == [
        {"n": n, "s": s} for n, s in expected
    ]
    assert in_parts(reader, body, len(body), cuts) == found


def cell(text: str | None) -> str:
    return "" if text is None else '"' + text.replace('"', '""') + '"'


@st.composite
def csv_files(draw: st.DrawFn, newlines: bool) -> tuple[bytes, list[tuple[Any, ...]]]:
    rows = draw(ROWS)
    removed = str.maketrans("", "", "\x1e" if newlines else "\r\n\x1e")
    rows = [(n, None if s is None else s.translate(removed)) for n, s in rows]
    lines = [f"{'' if n is None else n},{cell(s)}".encode() for n, s in rows]
    return joined(draw, [b"n,s", *lines]), rows


@given(csv_files(newlines=False), CUTS)
@QUICK
def test_any_split_of_csv_gives_the_same_rows(
    file: tuple[bytes, list[tuple[Any, ...]]], cuts: list[float]
) -> None:
    """And they are what was written."""
    body, expected = file
    reader = SplitText(Csv())
    found = whole(reader, body, len(body))

    assert [row[1:] for row in found] == expected
    assert in_parts(reader, body, len(body), cuts) == found


@given(csv_files(newlines=True), CUTS)
@QUICK
def test_any_split_of_csv_with_line_ends_in_values_gives_the_same_rows(
    file: tuple[bytes, list[tuple[Any, ...]]], cuts: list[float]
) -> None:
    """And Python's own reader agrees on what a row is."""
    body, expected = file
    reader = WholeText(Csv(), compressed=False)
    length = reader.measure(InMemory(body), SHAPE)

    assert length == len(expected)
    assert whole(reader, body, length) == [(at, *row) for at, row in enumerate(expected)]
    assert in_parts(reader, body, length, cuts) == whole(reader, body, length)
    told_by_python = list(csv.reader(io.StringIO(body.decode(), newline="")))
    assert len([row for row in told_by_python if row]) == length + 1


@given(ROWS, CUTS, st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_any_split_of_parquet_gives_the_same_rows(
    rows: list[tuple[Any, ...]], cuts: list[float], group: int
) -> None:
    """Row groups are where a file is read, not where it is cut."""
    named = [{"n": n, "s": s} for n, s in rows]
    body = parquet(named, SHAPE.columns, group)
    found = whole(ParquetFormat(), body, len(rows))

    assert found == [(at, *row) for at, row in enumerate(rows)]
    assert in_parts(ParquetFormat(), body, len(rows), cuts) == found


BITS = (
    *(b"1,x", b'2,"y"', b'"', b'""', b",", b"\r", b" ", b"\x1e", b"\xff", b"\x00", b"\xef\xbb\xbf"),
    *(b"{", b"}", b"[", b"]", b'{"n":1}', b'{"n":', b'"s":"x"}', b'{"n":1,"s":null}'),
)
ODD = st.lists(st.sampled_from(BITS), max_size=5).map(b"".join)


@pytest.mark.parametrize("text", [Csv(), JsonLines()], ids=["csv", "jsonl"])
@given(lines=st.lists(ODD, max_size=10), cuts=CUTS)
@example(lines=[b'1,"x', b'2,y"', b"3,z"], cuts=[0.3, 0.6])
@example(lines=[b"1,x\r3,z", b'2,"y', b'"4,w"'], cuts=[0.5])
@example(lines=[b'{"n":1}{"n":2}', b'{"n":', b"3}"], cuts=[0.5])
@example(lines=[b'x"y,"zz', b'1,"a"'], cuts=[0.7])
@settings(max_examples=60, deadline=None)
def test_what_is_wrong_with_a_line_never_depends_on_others(
    text: Any, lines: list[bytes], cuts: list[float]
) -> None:
    """A quotation mark that is never closed must not swallow the next line on some readings."""
    header = b"n,s\n" if text.has_header else b""
    body = header + b"\n".join(lines)
    reader = SplitText(text)
    found = whole(reader, body, len(body))
    alone = [
        told(reader.pieces(InMemory(header + line), 0, len(header) + len(line), SHAPE))
        for line in lines
    ]

    assert in_parts(reader, body, len(body), cuts) == found
    assert [row[1:] for row in found] == [row[1:] for one in alone for row in one]


@given(st.lists(st.sampled_from([b"", b"\r", b"ab", b"c", b"defgh"]), max_size=12), st.data())
@settings(max_examples=100, deadline=None)
def test_blocks_of_any_size_give_the_same_lines(lines: list[bytes], data: st.DataObject) -> None:
    """Where a block ends is an accident, like where a range does."""
    body = b"\n".join(lines)
    expected, at = [], 0
    for line in lines:
        if line.removesuffix(b"\r"):
            expected.append((at, line, min(at + len(line) + 1, len(body))))
        at += len(line) + 1
    start = data.draw(st.integers(0, len(body)))
    stop = data.draw(st.integers(start, len(body)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files_lines, "HEAD_BYTES", data.draw(st.integers(1, 4)))
        file = InMemory(body)
        begin = line_start(file, start)
        found = [
            line
            for block in line_blocks(file, begin, stop, data.draw(st.integers(1, 9)))
            for line in zip(block.positions, block.lines, block.nexts, strict=True)
        ]

    assert [(int(at), line, int(after)) for at, line, after in found] == [
        line for line in expected if start <= line[0] < stop
    ]


@pytest.mark.parametrize("by_rows", [False, True])
def test_a_line_that_is_too_long_is_bad_and_the_next_one_is_not(
    by_rows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded by the longest line there may be, not by the longest there is."""
    monkeypatch.setattr(files_lines, "LINE_BYTES_MAX", 40)
    monkeypatch.setattr(files_text, "LINE_BYTES_MAX", 40)
    monkeypatch.setattr(files_lines, "HEAD_BYTES", 16)
    long = b'{"n": 2, "s": "' + b"x" * 500 + b'"}\n'
    body = b'{"n": 1}\n' + long + b'{"n": 3}\n'
    reader = WholeText(JsonLines(), compressed=False) if by_rows else SplitText(JsonLines())
    third = 2 if by_rows else 9 + len(long)

    assert whole(reader, body, reader.measure(InMemory(body), SHAPE)) == [
        (0, 1, None),
        (1 if by_rows else 9, "it is longer than 40 bytes"),
        (third, 3, None),
    ]


def test_a_large_file_is_read_block_by_block() -> None:
    """Lines cut by a block's end are whole all the same."""
    chance = random.Random(7)
    expected = [(number, "ä" * chance.randrange(200)) for number in range(40_000)]
    lines = [json.dumps({"n": n, "s": s}, ensure_ascii=False).encode() for n, s in expected]
    file = InMemory(b"\n".join(lines))
    found = told(SplitText(JsonLines()).pieces(file, 0, file.size_bytes, SHAPE))

    assert file.size_bytes > 2 * files_lines.BLOCK_BYTES
    assert 2 < file.reads < 8
    assert [row[1:] for row in found] == expected
