"""Lines of a text file: found from any byte of it, or one after the other from its start.

A line ends with a line feed, before which a carriage return is left out, or with the file. It
belongs to where its first byte is, so a range may begin and end anywhere: the reader looks for
the first line that begins in it, and reads the last one to its end. Empty lines are no rows.
"""

from collections.abc import Iterator
from io import BufferedIOBase
from typing import NamedTuple

import numpy as np

from penstock.sources.files_listing import RangedFile

__all__ = [
    "BLOCK_BYTES",
    "HEAD_BYTES",
    "LINE_BYTES_MAX",
    "Lines",
    "line_blocks",
    "line_start",
    "records",
]

BLOCK_BYTES = 4 << 20
HEAD_BYTES = 64 << 10
"""How much is read to find one line. Most are shorter; a longer one is read in further steps."""

LINE_BYTES_MAX = 16 << 20
"""A longer line is bad. One byte more than this is kept of it, so that it is seen to be."""


class Lines(NamedTuple):
    """Rows of text, none of them empty."""

    lines: list[bytes]
    positions: np.ndarray
    """Where each begins."""
    nexts: np.ndarray
    """Where the line after it begins, or the file ends."""


def line_blocks(
    file: RangedFile, start: int, stop: int, block_bytes: int = BLOCK_BYTES
) -> Iterator[Lines]:
    """The lines whose first byte is at `start` or later and before `stop`, a block at a time.

    A line must begin at `start`.
    """
    position = start
    while position < min(stop, file.size_bytes):
        text = _whole_lines(file, position, min(block_bytes, stop - position + HEAD_BYTES))
        after = position + len(text)
        if len(text) > LINE_BYTES_MAX and not text.endswith(b"\n"):
            after = line_start(file, after)
        yield _split(text, position, stop, after)
        position = after


def _whole_lines(file: RangedFile, position: int, size_bytes: int) -> bytes:
    """About as many bytes as asked for, cut after a line; or the beginning of one too long."""
    while True:
        text = file.read_at(position, size_bytes)
        if position + len(text) >= file.size_bytes:
            return text
        if whole := text.rfind(b"\n") + 1:
            return text[:whole]
        if size_bytes > LINE_BYTES_MAX:
            return text
        size_bytes = min(2 * size_bytes, LINE_BYTES_MAX + 1)


def _split(text: bytes, position: int, stop: int, after: int) -> Lines:
    """The lines of a text at `position` that begin before `stop`. It ends at `after`."""
    lines = text.split(b"\n")
    sizes = np.fromiter(map(len, lines), np.int64, len(lines))
    bounds = position + np.concatenate(([0], np.cumsum(sizes + 1)))
    bounds[-1] = after
    begun = int(np.searchsorted(bounds[:-1], stop))
    if b"\r" in text:
        lines = [line.removesuffix(b"\r") for line in lines]
    filled = np.array([number for number, line in enumerate(lines[:begun]) if line], np.int64)
    nexts = np.minimum(bounds[filled + 1], after)
    return Lines([lines[number] for number in filled], bounds[filled], nexts)


def line_start(file: RangedFile, position: int) -> int:
    """Where the first line begins that does so at `position` or later; at 0, one does."""
    at = position - 1
    while 0 <= at < file.size_bytes:
        text = file.read_at(at, HEAD_BYTES)
        found = text.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(text)
    return min(position, file.size_bytes) if at < 0 else file.size_bytes


def records(stream: BufferedIOBase, quoted: bool) -> Iterator[bytes]:
    """The rows of a text that is read from its start. With `quoted`, a line that ends inside
    quotation marks goes on in the next."""
    parts: list[bytes] = []
    size_bytes = quotes = 0
    while part := stream.readline(LINE_BYTES_MAX):
        if size_bytes <= LINE_BYTES_MAX:
            parts.append(part)
        size_bytes += len(part)
        quotes += part.count(b'"') if quoted else 0
        if part.endswith(b"\n") and quotes % 2 == 0:
            yield from _row(parts)
            parts, size_bytes, quotes = [], 0, 0
    yield from _row(parts)


def _row(parts: list[bytes]) -> Iterator[bytes]:
    line = b"".join(parts).removesuffix(b"\n").removesuffix(b"\r")
    if line:
        yield line
