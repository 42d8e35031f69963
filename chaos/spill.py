"""Rows as short records on disk, parted by the hash of their key: any number, in bounded memory.

Each batch is sorted by part and appended to one file, and where each part begins in it is kept. A
part is read back by gathering its pieces. All rows of a key are in one part, so whatever is asked
of a key can be answered a part at a time.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from penstock.chaos.row_hash import Hashes

__all__ = ["PARTS", "RECORD", "Records", "Spill", "records"]

PARTS = 256
"""A hundred million records are 30 MB in each."""

RECORD = np.dtype(
    [
        ("key", np.uint64, (2,)),
        ("row", np.uint64, (2,)),
        ("epoch", np.int64),
        ("partition", np.int64),
        ("sequence", np.int64),
        ("count", np.int64),
        ("gone", np.bool_),
    ]
)
"""The hash of a row's key and of all of it, where it comes from, how often it is there, and whether
it takes its key away. A row that does not say where it comes from has -1 there."""

Records = NDArray[Any]


def records(keys: Hashes, rows: Hashes) -> Records:
    """Records of rows with these hashes, each there once, from nowhere."""
    made = np.zeros(len(keys), RECORD)
    made["key"], made["row"], made["count"] = keys, rows, 1
    for name in ("epoch", "partition", "sequence"):
        made[name] = -1
    return made


class Spill:
    """A file of records that is gone when it is left."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: where there is room; the system's own for temporary files unless told."""
        # Closed by whoever leaves this; a process that is killed leaves nothing either.
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._begins: list[NDArray[np.int64]] = []
        """For each batch, where its parts begin, in records of the file; and its end."""
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, batch: Records) -> None:
        """Keep these too."""
        parts = (batch["key"][:, 0] >> np.uint64(56)).astype(np.int64)
        ordered = batch[np.argsort(parts, kind="stable")]
        counts = np.bincount(parts, minlength=PARTS)
        begins = self._length + np.concatenate([[0], np.cumsum(counts)])
        self._begins.append(begins.astype(np.int64))
        self._file.seek(self._length * RECORD.itemsize)
        self._file.write(ordered.tobytes())
        self._length += len(batch)

    def part(self, number: int) -> Records:
        """All records of one part, in the order they were added."""
        return np.concatenate([np.empty(0, RECORD), *self._pieces(number)])

    def _pieces(self, number: int) -> Iterator[Records]:
        for begins in self._begins:
            first, stop = int(begins[number]), int(begins[number + 1])
            if stop > first:
                self._file.seek(first * RECORD.itemsize)
                size_bytes = (stop - first) * RECORD.itemsize
                yield np.frombuffer(self._file.read(size_bytes), RECORD)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
