"""Comparing records against the plainest way to do it: dicts and counters."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.chaos.audit_compare import Judge, Kind, compared, wanted
from penstock.chaos.spill import RECORD, Records

SHARDS = 2


@dataclass(frozen=True)
class Row:
    """A row as small as it can be."""

    key: int
    value: int
    epoch: int = 1
    partition: int = 0
    sequence: int = 0
    gone: bool = False


ROWS = st.builds(
    Row,
    key=st.integers(0, 3),
    value=st.integers(0, 2),
    epoch=st.integers(1, 4),
    partition=st.integers(0, 1),
    sequence=st.integers(0, 3),
    gone=st.booleans(),
)


def of(rows: list[Row], *, by: str = "key", places: bool = True) -> Records:
    """Records of rows; `by` is what tells them apart."""
    made = np.zeros(len(rows), RECORD)
    for at, row in enumerate(rows):
        name = {
            "key": (row.key, 0),
            "place": (row.epoch, row.partition * 100 + row.sequence),
            "row": (row.key, row.value),
        }[by]
        place = (row.epoch, row.partition, row.sequence) if places else (-1, -1, -1)
        made[at] = (name, (row.key, row.value), *place, 1, row.gone)
    return made


def judge(**settings: object) -> Judge:
    given: dict[str, object] = {
        "is_keyed": False,
        "has_places": False,
        "is_settled": True,
        "is_still": True,
        "repeats": False,
        "is_whole": True,
        "since": 1,
        "upto": np.array([9] * SHARDS),
        **settings,
    }
    return Judge(**given)  # type: ignore[arg-type]


def totals(expected: Records, found: Records, by: Judge) -> dict[Kind, int]:
    """How many rows are of each kind."""
    total: Counter[Kind] = Counter()
    for difference in compared(wanted(expected, by), found, by):
        total[difference.kind] += difference.surplus
    return dict(total)


@given(st.lists(ROWS, max_size=12), st.lists(ROWS, max_size=12))
def test_rows_without_a_name_are_counted(ours: list[Row], theirs: list[Row]) -> None:
    """A row too few is missing; one too many is doubled, or nobody's."""
    mine = [row for row in ours if not row.gone]
    expected, found = (Counter((r.key, r.value) for r in rows) for rows in (mine, theirs))
    none = [Row(r.key, r.value) for r in theirs]
    said = totals(of(mine, by="row"), of(none, by="row", places=False), judge())

    assert said == {
        kind: number
        for kind, number in {
            Kind.MISSING: (expected - found).total(),
            Kind.DOUBLED: sum(max(0, found[k] - n) for k, n in expected.items()),
            Kind.STRANGE: sum(n for k, n in found.items() if k not in expected),
        }.items()
        if number
    }


@given(st.lists(ROWS, max_size=12), st.lists(ROWS, max_size=12))
def test_of_a_part_of_history_only_what_is_missing_is_told(
    ours: list[Row], theirs: list[Row]
) -> None:
    """A row too many may be one of an epoch that nobody remembers."""
    mine = [row for row in ours if not row.gone]
    none = [Row(r.key, r.value) for r in theirs]
    expected, found = (Counter((r.key, r.value) for r in rows) for rows in (mine, theirs))
    said = totals(of(mine, by="row"), of(none, by="row", places=False), judge(is_whole=False))

    said.pop(Kind.BEFORE, None)
    missing = (expected - found).total()
    assert said == ({Kind.MISSING: missing} if missing else {})


@given(st.lists(ROWS, max_size=12), st.lists(ROWS, max_size=12, unique_by=lambda row: row.key))
def test_of_a_key_the_last_row_counts(ours: list[Row], theirs: list[Row]) -> None:
    """By epoch, partition and sequence; a row that takes its key away leaves nothing."""
    ordered = sorted(ours, key=lambda r: (r.epoch, r.partition, r.sequence))
    unlike = {(r.epoch, r.partition, r.sequence): r for r in ordered}
    ordered = list(unlike.values())  # no two rows have one place
    last = {row.key: row for row in ordered}
    there = {row.key: row for row in theirs}
    by = judge(is_keyed=True, upto=np.array([9]))
    said = totals(of(ordered), of([Row(r.key, r.value) for r in theirs], places=False), by)

    want = {key: row for key, row in last.items() if not row.gone}
    assert said == {
        kind: number
        for kind, number in {
            Kind.MISSING: len(want.keys() - there.keys()),
            Kind.ALTERED: sum(there[k].value != want[k].value for k in want.keys() & there.keys()),
            Kind.RETURNED: len({k for k, r in last.items() if r.gone} & there.keys()),
            Kind.STRANGE: len(there.keys() - last.keys()),
        }.items()
        if number
    }


def test_keys_that_two_shards_write_are_not_judged() -> None:
    """Which of their rows stays is not said; where versions are compared, it is."""
    ours = [Row(1, 1, epoch=1, partition=0), Row(1, 2, epoch=1, partition=1)]
    theirs = of([Row(1, 1)], places=False)
    versioned = of([Row(1, 1, epoch=1, partition=0)])

    assert totals(of(ours), theirs, judge(is_keyed=True)) == {Kind.UNORDERED: 1}
    assert totals(of(ours), theirs, judge(is_keyed=True, upto=np.array([9]))) == {Kind.ALTERED: 1}
    assert totals(of(ours), versioned, judge(is_keyed=True, has_places=True)) == {Kind.ALTERED: 1}


def test_rows_of_epochs_that_a_shard_has_not_taken() -> None:
    """Wrong where rows and cursor are of one moment; else they came while we looked."""
    upto = np.array([2, 3])
    ours = [Row(1, 1, epoch=2)]
    theirs = of(
        [Row(1, 1, epoch=2), Row(2, 2, epoch=3), Row(3, 3, epoch=3, partition=1)], by="place"
    )
    settled = judge(has_places=True, upto=upto)
    moving = judge(has_places=True, upto=upto, is_settled=False, is_still=False)

    assert totals(of(ours, by="place"), theirs, settled) == {Kind.EARLY: 1, Kind.STRANGE: 1}
    assert totals(of(ours, by="place"), theirs, moving) == {Kind.LATER: 1, Kind.STRANGE: 1}


def test_a_key_that_is_being_changed_is_not_called_missing() -> None:
    """The next epoch may have taken it away while the sink was looked at."""
    ours, nothing = of([Row(1, 1)]), of([])
    moving = judge(is_keyed=True, has_places=True, is_settled=False, is_still=False)

    assert totals(ours, nothing, moving) == {Kind.MOVED: 1}
    assert totals(ours, nothing, judge(is_keyed=True, has_places=True)) == {Kind.MISSING: 1}


def test_what_a_row_says_of_itself_decides_whose_it_is() -> None:
    """Of an earlier epoch, of nobody, or of somebody who says nothing."""
    theirs = of([Row(1, 1, epoch=2), Row(2, 2, epoch=5)], by="place")
    silent = of([Row(3, 3)], by="row", places=False)
    by = judge(has_places=True, since=4)

    assert totals(of([]), np.concatenate([theirs, silent]), by) == {
        Kind.BEFORE: 1,
        Kind.STRANGE: 1,
        Kind.FOREIGN: 1,
    }


def test_a_key_that_is_shown_twice_is_there_once() -> None:
    """SCAN may do so; an upsert that went wrong must not."""
    ours, twice = of([Row(1, 1)]), of([Row(1, 1), Row(1, 1)])
    by = {"is_keyed": True, "has_places": True}

    assert totals(ours, twice, judge(**by, repeats=True)) == {}
    assert totals(ours, twice, judge(**by)) == {Kind.DOUBLED: 1}


def test_the_sum_does_not_depend_on_the_order() -> None:
    """So two readings of one sink agree, and a row more or less does not hide."""
    rows = [Row(key, value) for key in range(4) for value in range(3)]
    some = wanted(of(rows, by="row"), judge()).total()

    assert wanted(of(rows[::-1], by="row"), judge()).total() == some
    assert wanted(of(rows[1:], by="row"), judge()).total() != some
    assert wanted(of([*rows, rows[0]], by="row"), judge()).total()[0] == some[0] + 1
