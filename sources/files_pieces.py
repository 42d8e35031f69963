"""What reading a file gives: rows with their positions, and what cannot be read, in order.

A row is good or bad by itself alone: whether it converts never depends on the rows that happen
to be read with it. That is what makes every reading of a range the same, however it is cut.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import SEEK_CUR, SEEK_END, SEEK_SET, RawIOBase
from typing import Protocol

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.sources.files_listing import RangedFile
from penstock.sources.files_shape import Shape

__all__ = ["DAMAGE", "Bad", "Format", "Kept", "Stream", "reason", "sift"]

DAMAGE = (
    ValueError,
    OSError,
    EOFError,
    zlib.error,
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowKeyError,
    pa.ArrowNotImplementedError,
)
"""What Arrow and gzip raise about bytes they cannot use. What goes wrong with the folder or the
store is a Penstock error long before it gets there. Too little memory is none of these: it may
be there on the next reading."""

REASON_CHARS_MAX = 200
VALUE_BYTES_MAX = 1 << 16
"""How much is kept of a row that cannot be read."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Rows that fit the columns."""

    positions: np.ndarray
    """Where each is in the file, in the unit of its offsets."""
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Bad:
    """Rows that cannot be read, and why."""

    position: int
    reason: str
    count: int = 1
    """How many offsets are lost with it."""
    value: bytes | None = None
    """What is there, or the beginning of it, where it is text."""


class Format(Protocol):
    """Promise: the same file gives the same rows at the same positions, whatever range of it is
    asked for. What is wrong with a file as a whole raises one of `DAMAGE`."""

    def infer(self, file: RangedFile) -> pa.Schema | None:
        """The columns a file has; None if it has no row to tell."""

    def measure(self, file: RangedFile, shape: Shape | None) -> int:
        """How many offsets a file takes; raises if no row of it can fit the shape."""

    def try_first(self, file: RangedFile, shape: Shape) -> None:
        """Raise if its first row does not fit the shape, where a short look tells."""

    def pieces(self, file: RangedFile, start: int, stop: int, shape: Shape) -> Iterator[Kept | Bad]:
        """What lies at the positions from `start` up to, not including, `stop`, in order."""


def sift(
    positions: np.ndarray,
    convert: Callable[[int, int], pa.RecordBatch],
    texts: Sequence[bytes] | None = None,
) -> Iterator[Kept | Bad]:
    """Convert rows in runs as long as possible, until those that do not convert stand alone.

    `convert(first, last)` makes those rows, or raises if there is a bad one among them. `texts` are
    the rows as they are in the file, if they are lines.
    """
    waiting = [(0, len(positions))] if len(positions) else []
    while waiting:
        first, last = waiting.pop()
        try:
            rows = convert(first, last)
        except DAMAGE as why:
            if last - first == 1:
                text = None if texts is None else bytes(texts[first][:VALUE_BYTES_MAX])
                yield Bad(int(positions[first]), reason(why), value=text)
                continue
        else:
            yield Kept(positions[first:last], rows)
            continue
        middle = (first + last) // 2
        waiting += [(middle, last), (first, middle)]


def reason(why: BaseException) -> str:
    """What is wrong, in one short line."""
    first = str(why).strip().partition("\n")[0] or type(why).__name__
    return first[:REASON_CHARS_MAX]


class Stream(RawIOBase):
    """A ranged file for those who read on from where they stand."""

    def __init__(self, file: RangedFile) -> None:
        self._file = file
        self._position = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        """Stand elsewhere."""
        origin = {SEEK_SET: 0, SEEK_CUR: self._position, SEEK_END: self._file.size_bytes}[whence]
        self._position = max(0, origin + offset)
        return self._position

    def tell(self) -> int:
        """Where it stands."""
        return self._position

    def readinto(self, buffer: "memoryview[int]") -> int:  # type: ignore[override]
        """Fill a buffer, or as much of it as there is."""
        read = self._file.read_at(self._position, len(buffer))
        buffer[: len(read)] = read
        self._position += len(read)
        return len(read)
