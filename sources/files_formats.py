"""Which reader reads a file, and how text is read by either of them.

`SplitText`: an offset is a byte; a range reads its own lines and little more. `WholeText`: an
offset is a row; for what cannot be entered in the middle, because it is compressed or because a
value may hold line ends. Reading a range of it reads all before.
"""

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from itertools import islice

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.sources.files_lines import (
    BLOCK_BYTES,
    HEAD_BYTES,
    Lines,
    line_blocks,
    line_start,
    records,
)
from penstock.sources.files_listing import RangedFile
from penstock.sources.files_names import FileFormat, is_compressed
from penstock.sources.files_parquet import ParquetFormat
from penstock.sources.files_pieces import DAMAGE, Bad, Format, Kept, Stream, sift
from penstock.sources.files_shape import Shape
from penstock.sources.files_text import Csv, JsonLines, Parse, Text

__all__ = ["SplitText", "WholeText", "format_for"]

SAMPLE_BYTES = 1 << 20
"""From how much of the first file its columns are inferred."""

BATCH_LINES = 1 << 14
_TEXTS: dict[FileFormat, Text] = {"jsonl": JsonLines(), "csv": Csv()}


def format_for(path: str, kind: FileFormat, by_rows: bool) -> Format:
    """How a file is read; `by_rows` if its offsets are rows though it is text."""
    if kind == "parquet":
        return ParquetFormat()
    if by_rows:
        return WholeText(_TEXTS[kind], is_compressed(path))
    return SplitText(_TEXTS[kind])


@dataclass(frozen=True, slots=True)
class SplitText:
    """Text whose offsets are bytes."""

    text: Text

    def infer(self, file: RangedFile) -> pa.Schema | None:
        """The columns of its first lines."""
        header, start = self.head(file)
        sample = next(line_blocks(file, start, file.size_bytes, SAMPLE_BYTES), None)
        return _inferred(self.text, header, sample.lines if sample else [])

    def measure(self, file: RangedFile, shape: Shape | None) -> int:
        """Its length in bytes, if its header fits."""
        header, start = self.head(file)
        if shape is not None and start < file.size_bytes:
            self.text.parser(header, shape)
        return file.size_bytes

    def try_first(self, file: RangedFile, shape: Shape) -> None:
        """Parse the first line."""
        header, start = self.head(file)
        first = _first(file, start) if start < file.size_bytes else None
        lines = [] if first is None else [each for each in first.lines if self.text.is_row(each)]
        if lines:
            self.text.parser(header, shape)(lines[:1])

    def pieces(self, file: RangedFile, start: int, stop: int, shape: Shape) -> Iterator[Kept | Bad]:
        """Lines by the position of their first byte."""
        header, floor = self.head(file)
        if stop <= floor:
            return
        parse = self.text.parser(header, shape)
        begin = line_start(file, start) if start > floor else floor
        for found in line_blocks(file, begin, stop):
            yield from _sifted(self.text, found.positions, found.lines, parse)

    def head(self, file: RangedFile) -> tuple[bytes, int]:
        """The header, if there is one, and where the lines below it begin."""
        if not self.text.has_header:
            return b"", 0
        first = _first(file, 0)
        return (b"", file.size_bytes) if first is None else (first.lines[0], int(first.nexts[0]))


def _first(file: RangedFile, start: int) -> Lines | None:
    """The first line that is not empty, perhaps with more after it."""
    blocks = line_blocks(file, start, file.size_bytes, HEAD_BYTES)
    return next((found for found in blocks if found.lines), None)


@dataclass(frozen=True, slots=True)
class WholeText:
    """Text whose offsets are rows."""

    text: Text
    compressed: bool

    def infer(self, file: RangedFile) -> pa.Schema | None:
        """The columns of its first rows."""
        rows = self._records(file)
        header = next(rows, b"") if self.text.has_header else b""
        return _inferred(self.text, header, next(_batches(rows, SAMPLE_BYTES), []))

    def measure(self, file: RangedFile, shape: Shape | None) -> int:
        """How many rows it has, if its header fits."""
        rows = self._records(file)
        header = next(rows, b"") if self.text.has_header else b""
        count = sum(1 for _ in rows)
        if count and shape is not None:
            self.text.parser(header, shape)
        return count

    def try_first(self, file: RangedFile, shape: Shape) -> None:
        """Parse the first row."""
        rows = self._records(file)
        header = next(rows, b"") if self.text.has_header else b""
        first = list(islice(filter(self.text.is_row, rows), 1))
        if first:
            self.text.parser(header, shape)(first)

    def pieces(self, file: RangedFile, start: int, stop: int, shape: Shape) -> Iterator[Kept | Bad]:
        """Rows by their number below the header."""
        rows = self._records(file)
        header = next(rows, b"") if self.text.has_header else b""
        parse, first = self.text.parser(header, shape), start
        for lines in _batches(islice(rows, start, stop), BLOCK_BYTES):
            yield from _sifted(self.text, np.arange(first, first + len(lines)), lines, parse)
            first += len(lines)

    def _records(self, file: RangedFile) -> Iterator[bytes]:
        stream = BufferedReader(Stream(file), BLOCK_BYTES)
        unpacked = gzip.GzipFile(fileobj=stream) if self.compressed else stream
        return records(unpacked, quoted=self.text.has_header)


def _batches(rows: Iterator[bytes], size_bytes: int) -> Iterator[list[bytes]]:
    """Rows in lists of bounded length and size."""
    batch: list[bytes] = []
    held_bytes = 0
    for row in rows:
        batch.append(row)
        held_bytes += len(row)
        if len(batch) >= BATCH_LINES or held_bytes >= size_bytes:
            yield batch
            batch, held_bytes = [], 0
    if batch:
        yield batch


def _inferred(text: Text, header: bytes, lines: Sequence[bytes]) -> pa.Schema | None:
    """Columns from as many of the lines as agree, beginning with the first that can be read; raises
    what the first line says if none can."""
    lines = [line for line in lines if text.is_row(line)]
    refusal: BaseException | None = None
    for start in range(len(lines)):
        agreeing = lines[start:]
        while agreeing:
            try:
                columns = text.infer(header, agreeing)
                return columns if columns.names else None
            except DAMAGE as why:
                refusal = refusal or why
            agreeing = agreeing[: len(agreeing) // 2]
    if refusal is not None:
        raise refusal
    return None


def _sifted(
    text: Text, positions: np.ndarray, lines: list[bytes], parse: Parse
) -> Iterator[Kept | Bad]:
    rows = [number for number, line in enumerate(lines) if text.is_row(line)]
    if len(rows) < len(lines):
        positions, lines = positions[rows], [lines[number] for number in rows]
    return sift(positions, lambda first, last: parse(lines[first:last]), lines)
