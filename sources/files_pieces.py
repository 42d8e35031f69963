"""What reading a file gives: rows with their positions, and what cannot be read, in order.

A row is good or bad by itself alone: whether it converts never depends on the rows that happen
to be read with it. That is what makes every reading of a range the same, however it is cut.
"""

import zlib
from collections.abc import Callable, Iterator
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


class Format(Protocol):
    """Promise: the same file gives the same rows at the same positions, whatever range of it is
    asked for. What is wrong with a file as a whole raises one of `DAMAGE`."""

    def infer(self, file: RangedFile) -> pa.Schema | None:
        """The columns a file has; None if it has no row to tell."""

    def measure(self, file: RangedFile, shape: Shape | None) -> int:
        """How many offsets a file takes; raises if its beginning does not fit the shape."""

    def pieces(self, file: RangedFile, start: int, stop: int, shape: Shape) -> Iterator[Kept | Bad]:
        """What lies at the positions from `start` up to, not including, `stop`, in order."""


def sift(
    positions: np.ndarray, convert: Callable[[int, int], pa.RecordBatch]
) -> Iterator[Kept | Bad]:
    """Convert rows in runs as long as possible, until those that do not convert stand alone.

    `convert(first, last)` makes those rows, or raises if there is a bad one among them.
    """
    if len(positions):
        yield from _sift(positions, 0, len(positions), convert)


def _sift(
    positions: np.ndarray, first: int, last: int, convert: Callable[[int, int], pa.RecordBatch]
) -> Iterator[Kept | Bad]:
    try:
        rows = convert(first, last)
    except DAMAGE as why:
        if last - first == 1:
            yield Bad(int(positions[first]), reason(why))
            return
    else:
        yield Kept(positions[first:last], rows)
        return
    middle = (first + last) // 2
    yield from _sift(positions, first, middle, convert)
    yield from _sift(positions, middle, last, convert)


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
