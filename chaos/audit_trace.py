"""Rows on trial: are they numbered as they must be, and did their epoch read what they came from?

A row is unique by epoch, partition and sequence if each partition stages one object in an epoch,
and its rows are numbered from 0 without a gap: no names have to be remembered. A row can be traced
if the offsets it was computed from lie in what its epoch read. Of offsets only the least and the
greatest of each partition are kept, so nothing grows with the rows.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from penstock.checkpoint.manifest import Range
from penstock.errors import Corrupt
from penstock.sinks.protocol import PLACE, PROVENANCE

__all__ = [
    "LETTER",
    "TRACED",
    "Inputs",
    "Reads",
    "Rising",
    "Stretch",
    "flaw_in_places",
    "inputs_of",
]

LETTER = {"_source": pa.string(), "_source_partition": pa.string(), "_offset": pa.int64()}
"""Where a dead letter keeps what others keep in `_input`."""
TRACED = (*PLACE, "_input", *LETTER)
"""The columns that are looked at."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Offsets of one origin, both ends inclusive."""

    first: int
    last: int

    def with_other(self, other: "Stretch") -> "Stretch":
        """The least stretch that has both."""
        return Stretch(min(self.first, other.first), max(self.last, other.last))


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the rows of a batch were computed from, one entry for each row and origin."""

    names: list[str]
    """Origins: a source or an operator, a slash, a partition."""
    codes: NDArray[Any]
    firsts: NDArray[np.int64]
    lasts: NDArray[np.int64]
    rows: NDArray[Any]
    """The place in the batch of the row that an entry is of."""

    def stretches(self) -> Iterator[tuple[str, Stretch]]:
        """The least and the greatest offset of each origin."""
        for code, name in enumerate(self.names):
            mine = slice(None) if len(self.names) == 1 else self.codes == code
            if len(self.firsts[mine]):
                yield name, Stretch(int(self.firsts[mine].min()), int(self.lasts[mine].max()))

    def backwards(self) -> NDArray[Any]:
        """The rows whose input ends before it begins."""
        backwards: NDArray[Any] = self.rows[self.firsts > self.lasts]
        return backwards

    def outside(self, name: str, read: Range | None) -> NDArray[Any]:
        """The rows that came from an origin, and not from within this range."""
        mine = self.codes == self.names.index(name)
        if read is not None:
            mine &= (self.firsts < read.start) | (self.lasts >= read.stop)
        rows: NDArray[Any] = self.rows[mine]
        return rows


def flaw_in_places(batch: pa.RecordBatch, epoch: int, partition: int, first: int) -> str | None:
    """What is wrong with the numbering of rows that should begin with `first`; None: nothing."""
    for name, wanted in zip(PLACE, (epoch, partition, None), strict=True):
        if name not in batch.schema.names:
            return f"have no column {name!r}"
        column = batch.column(name)
        if column.null_count:
            return f"have rows without {name!r}"
        numbers = column.to_numpy()
        expected = np.arange(first, first + len(numbers)) if wanted is None else wanted
        other = np.flatnonzero(numbers != expected)
        if len(other):
            at = int(other[0])
            instead = first + at if wanted is None else wanted
            return f"have {name} {numbers[at]} in row {first + at}, where it must be {instead}"
    return None


def inputs_of(batch: pa.RecordBatch) -> Inputs:
    """What its rows were computed from; a dead letter, from its event."""
    if all(name in batch.schema.names for name in LETTER):
        return _of_letters(batch)
    lists = _sound(batch, "_input", PROVENANCE.field("_input").type)
    names, firsts, lasts = lists.flatten().flatten()
    encoded = names.dictionary_encode()
    return Inputs(
        encoded.dictionary.to_pylist(),
        encoded.indices.to_numpy(zero_copy_only=False),
        firsts.to_numpy(),
        lasts.to_numpy(),
        pc.list_parent_indices(lists).to_numpy(),
    )


def _sound(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    """A column of that type; `Corrupt` if it is none, or holds bytes that are no values of it."""
    column = batch.column(name)
    try:
        if not column.type.equals(kind):
            raise ValueError(f"it is {column.type}, not {kind}")
        column.validate(full=True)
    except (pa.ArrowException, ValueError) as why:
        found = f"holds what Penstock does not write ({why})"
        advice = "restore the file from a copy: it was altered or forged"
        raise Corrupt(f"column {name!r} of a table's file", found, advice) from why
    return column


def _of_letters(batch: pa.RecordBatch) -> Inputs:
    """The letter of a timer has no event."""
    known = np.flatnonzero(batch.column("_offset").is_valid().to_numpy(zero_copy_only=False))
    letters = batch.take(pa.array(known))
    source, partition, offset = (_sound(letters, name, kind) for name, kind in LETTER.items())
    encoded = pc.binary_join_element_wise(source, partition, "/").dictionary_encode()
    offsets = offset.to_numpy()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    return Inputs(encoded.dictionary.to_pylist(), codes, offsets, offsets, known)


@dataclass(slots=True)
class Reads:
    """Where the rows of one epoch may have come from."""

    ranges: Mapping[str, Range]
    """By origin: what the epoch read. Of an epoch that is not kept any more: all that was read
    before the oldest that is."""
    sources: frozenset[str]
    """Any other origin is an operator, whose rows are numbered from 0 in every epoch."""
    operators: frozenset[str] | None = None
    """Those of the job; None if nobody knows them."""

    def is_source(self, origin: str) -> bool:
        """Whether offsets of this origin are those of a source."""
        return origin.partition("/")[0] in self.sources

    def allowed(self, origin: str) -> Range | None:
        """Where rows of an origin may be from; None: from nowhere."""
        if self.is_source(origin):
            return self.ranges.get(origin)
        if self.operators is not None and origin.partition("/")[0] not in self.operators:
            return None
        return Range(start=0, stop=1 << 62)


@dataclass(slots=True)
class Rising:
    """Offsets of sources along the epochs of a table: what a later epoch read lies behind all that
    earlier ones did, also where no manifest says so any more."""

    _before: dict[str, int] = field(default_factory=dict)
    _now: dict[str, int] = field(default_factory=dict)
    _epoch: int = 0

    def flaws(
        self, epoch: int, stretches: Iterable[tuple[str, Stretch]]
    ) -> Iterator[tuple[str, int, int]]:
        """Origins whose offsets an earlier epoch had: the least now, the greatest before."""
        if epoch != self._epoch:
            for origin, last in self._now.items():
                self._before[origin] = max(last, self._before.get(origin, last))
            self._now, self._epoch = {}, epoch
        for origin, stretch in stretches:
            before = self._before.get(origin)
            if before is not None and stretch.first <= before:
                yield origin, stretch.first, before
            self._now[origin] = max(stretch.last, self._now.get(origin, stretch.last))
