"""What a sink must hold against what it holds, record by record, and what each difference means.

Records are hashes; both sides come parted by the hash of the key, one part at a time. Of a sink
with a key, the last row that its shards have taken counts; of others, every row.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from penstock.chaos.spill import RECORD, Records

__all__ = ["Difference", "Judge", "Kind", "Wanted", "compared", "gathered", "wanted"]

Mask = NDArray[np.bool_]
Places = NDArray[np.int64]


class Kind(StrEnum):
    """What is the matter with a row, as it is said."""

    MISSING = "is missing"
    ALTERED = "is there with other values"
    DOUBLED = "is there more than once"
    RETURNED = "is there, though its key was taken away"
    STRANGE = "is there, and nobody committed it"
    FOREIGN = "is there, and does not say where it comes from"
    EARLY = "is there, and is of an epoch that the sink has not taken"
    LATER = "came while the sink was looked at"
    MOVED = "may have gone while the sink was looked at"
    UNORDERED = "has a key that several partitions write, so that its rows have no order"
    BEFORE = "is older than the epochs that are audited"


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows of which one is expected and another found, or one of the two is not there."""

    kind: Kind
    expected: Records
    found: Records
    """The same number of each; where there is none, a record of zeros."""

    def __len__(self) -> int:
        return len(self.expected)

    @property
    def surplus(self) -> int:
        """How many rows there are too few or too many, all together."""
        apart = np.abs(self.expected["count"] - self.found["count"])
        return int(np.maximum(apart, 1).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """What must be known of a sink to judge its rows."""

    is_keyed: bool
    has_places: bool
    is_settled: bool
    """Whether only rows of epochs that the cursors speak of can be there."""
    is_still: bool
    """Whether nothing was on its way into the sink while it was looked at."""
    repeats: bool
    is_whole: bool
    """Whether all that was ever committed for it is expected: then there is nothing else."""
    since: int
    """The first epoch whose rows are expected."""
    upto: NDArray[np.int64]
    """For each shard the last epoch it has taken."""

    def is_later(self, found: Records) -> Mask:
        """Which rows are of an epoch that their shard has not taken."""
        if not self.has_places:
            return np.zeros(len(found), np.bool_)
        shards = np.maximum(found["partition"], 0) % len(self.upto)
        later: Mask = found["epoch"] > self.upto[shards]
        return later

    def is_older(self, found: Records) -> Mask:
        """Which rows that are not expected may be of epochs before those that are."""
        if not self.has_places:
            return np.full(len(found), not self.is_whole)
        older: Mask = (found["epoch"] >= 0) & (found["epoch"] < self.since)
        return older


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a sink must hold of one part: a record for each key."""

    records: Records
    unordered: Mask
    """Of which keys nobody can say which row is the last."""

    def total(self) -> tuple[int, int, int]:
        """How many rows that is, and the sum of their hashes, whatever their order."""
        there = self.records[~self.records["gone"] & ~self.unordered]
        sums = (there["row"] * there["count"].astype(np.uint64)[:, None]).sum(axis=0)
        return int(there["count"].sum()), int(sums[0]), int(sums[1])


def wanted(expected: Records, judge: Judge) -> Wanted:
    """One record for each key: the last, or the first with how often it must be there."""
    return _last(expected, judge) if judge.is_keyed else Wanted(*_unflagged(gathered(expected)))


def compared(ours: Wanted, found: Records, judge: Judge) -> Iterator[Difference]:
    """The differences in one part; what is equal is not told of."""
    theirs = gathered(found)
    if judge.repeats:
        theirs["count"] = np.minimum(theirs["count"], 1)
    yield from _judged(_paired(ours.records, ours.unordered, theirs), judge)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """For each key on either side, a record of each; of zeros where there is none."""

    ours: Records
    theirs: Records
    unordered: Mask
    """Of which keys nobody can say which row is the last."""

    def of(self, kind: Kind, mask: Mask) -> Iterator[Difference]:
        if mask.any():
            yield Difference(kind, self.ours[mask], self.theirs[mask])


def _judged(pairs: _Pairs, judge: Judge) -> Iterator[Difference]:
    ours, theirs = pairs.ours, pairs.theirs
    has_ours, has_theirs = ours["count"] > 0, theirs["count"] > 0
    yield from pairs.of(Kind.UNORDERED, pairs.unordered)
    later = has_theirs & judge.is_later(theirs) & ~pairs.unordered
    yield from pairs.of(Kind.EARLY if judge.is_settled else Kind.LATER, later)
    left = ~later & ~pairs.unordered
    wanted = left & has_ours & ~ours["gone"]
    yield from pairs.of(Kind.MISSING if judge.is_still else Kind.MOVED, wanted & ~has_theirs)
    yield from pairs.of(Kind.RETURNED, left & has_ours & ours["gone"] & has_theirs)
    both, differs = wanted & has_theirs, _differs(ours, theirs, judge)
    yield from pairs.of(Kind.ALTERED, both & differs)
    yield from pairs.of(Kind.MISSING, both & ~differs & (theirs["count"] < ours["count"]))
    # Without a name, a row too many may be one of an older epoch.
    is_told = judge.is_whole or judge.is_keyed or judge.has_places
    yield from pairs.of(Kind.DOUBLED, both & (theirs["count"] > ours["count"]) & is_told)
    strange, older = left & ~has_ours & has_theirs, judge.is_older(theirs)
    yield from pairs.of(Kind.BEFORE, strange & older)
    foreign = (theirs["epoch"] < 0) & judge.has_places
    yield from pairs.of(Kind.FOREIGN, strange & ~older & foreign)
    yield from pairs.of(Kind.STRANGE, strange & ~older & ~foreign)


def _differs(ours: Records, theirs: Records, judge: Judge) -> Mask:
    differs: Mask = (ours["row"] != theirs["row"]).any(axis=1)
    if judge.has_places:
        for name in ("epoch", "partition", "sequence"):
            differs |= ours[name] != theirs[name]
    return differs


def _sorted(given: Records) -> tuple[Records, Places]:
    """By key, and for each key as rows were committed; and where each key begins."""
    key = given["key"]
    order = (given["sequence"], given["partition"], given["epoch"], key[:, 1], key[:, 0])
    ordered = given[np.lexsort(order)]
    return ordered, np.flatnonzero(_new(ordered["key"]))


def _new(keys: NDArray[np.uint64]) -> Mask:
    """Where, of sorted keys, another one begins."""
    new = np.ones(len(keys), np.bool_)
    new[1:] = (keys[1:] != keys[:-1]).any(axis=1)
    return new


def _last(given: Records, judge: Judge) -> Wanted:
    """The last record of each key. If several shards have written a key, in a sink that does not
    compare versions, nobody knows which that is."""
    ordered, begins = _sorted(given)
    if not len(begins):
        return Wanted(*_unflagged(ordered))
    last = ordered[np.append(begins[1:], len(ordered)) - 1]
    last["count"] = 1
    if judge.has_places or len(judge.upto) == 1:
        return Wanted(*_unflagged(last))
    shards = ordered["partition"] % len(judge.upto)
    several = np.minimum.reduceat(shards, begins) != np.maximum.reduceat(shards, begins)
    return Wanted(last, several)


def _unflagged(given: Records) -> tuple[Records, Mask]:
    return given, np.zeros(len(given), np.bool_)


def gathered(given: Records) -> Records:
    """The first record of each key, counted as often as the key comes."""
    ordered, begins = _sorted(given)
    if not len(begins):
        return ordered
    first = ordered[begins]
    first["count"] = np.add.reduceat(ordered["count"], begins)
    return first


def _paired(ours: Records, unordered: Mask, theirs: Records) -> _Pairs:
    keys = np.concatenate([ours["key"], theirs["key"]])
    order = np.lexsort((keys[:, 1], keys[:, 0]))
    new = _new(keys[order])
    group = np.empty(len(keys), np.int64)
    group[order] = np.cumsum(new) - 1
    one, other = (np.zeros(int(new.sum()), RECORD) for _ in range(2))
    one[group[: len(ours)]], other[group[len(ours) :]] = ours, theirs
    flags = np.zeros(len(one), np.bool_)
    flags[group[: len(ours)]] = unordered
    return _Pairs(one, other, flags)
