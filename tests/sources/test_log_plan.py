"""Planning where compaction left gaps: limits are of rows, and gaps cost no epoch."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.sources import Limits, Log, Range, log_rewrite
from penstock.sources.log_segment import BATCH_ROWS
from tests.support.logs import append_each, clock_of, narrow, new_log, numbered, rows, segments

SEGMENT_ROWS = 2


@pytest.fixture(scope="module", autouse=True)
def small_segments() -> Iterator[None]:
    """Let compactions make segments of a few rows, or there would be one of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_rewrite, "SEGMENT_ROWS", SEGMENT_ROWS)
        yield


def compacted_log(users: list[str | None], behind: list[str | None], fan: int) -> Log:
    """A row for each user, each a segment: some compacted, and some appended behind them."""
    log = new_log(key="user", compacted=True, tombstone_grace=timedelta(0))
    narrow(log, fan)
    append_each(log, *(numbered(n, user=user) for n, user in enumerate(users)))
    clock_of(log).sleep(1)
    log.compact()
    append_each(log, *(numbered(n, user=user) for n, user in enumerate(behind)))
    return log


def planned(log: Log, start: int, limits: Limits) -> tuple[Mapping[str, Range], list[int]]:
    """The ranges from an offset on, and the offsets of the rows in them."""
    ranges = log.plan({"0": start}, limits)
    found = [list(rows(log, int(n), each.start, each.stop)) for n, each in ranges.items()]
    return ranges, [offset for each in found for offset in each]


def test_no_range_is_planned_that_holds_no_row() -> None:
    """Of each epoch at least one row is read, if there is one."""
    log = compacted_log(["a"] * 5, [], 32)

    ranges, found = planned(log, 0, Limits(records=1))

    assert (ranges, found) == ({"0": Range(start=0, stop=5)}, [4])


def test_a_gap_at_the_end_is_passed_at_once() -> None:
    """Or a job would never be told that it has read everything."""
    log = compacted_log(["a", "b"], [], 32)
    append_each(log, {"user": "b", "n": None})
    clock_of(log).sleep(1)
    log.compact()

    assert list(rows(log)) == [0]
    assert planned(log, 1, Limits(records=1)) == ({"0": Range(start=1, stop=3)}, [])
    assert planned(log, 3, Limits(records=1)) == ({}, [])


users = st.lists(st.none() | st.sampled_from("abcdef"), max_size=14)


@settings(max_examples=100, deadline=None)
@example(list("ababcdcdefef"), [], 32, 0, 2)  # exactly one segment, and another behind it
@given(users, users, st.sampled_from([1, 2, 32]), st.integers(0, 28), st.integers(1, 12))
def test_as_many_rows_are_planned_as_are_allowed(
    front: list[Any], behind: list[Any], fan: int, start: int, records: int
) -> None:
    """Wherever segments begin and end, and wherever the gaps are."""
    log = compacted_log(front, behind, fan)
    latest = len(front) + len(behind)
    start = min(start, latest)
    left = [offset for offset in rows(log) if offset >= start]

    ranges, found = planned(log, start, Limits(records=records))

    assert found == left[:records]
    assert (ranges == {}) == (start == latest)
    assert all(each.start == start < each.stop <= latest for each in ranges.values())


def test_plan_after_plan_passes_all_gaps() -> None:
    """Row by row to the end, in as many epochs as there are rows."""
    log = compacted_log(list("abcabcaabbcdeabe"), list("aab"), 2)
    expected, found, start = list(rows(log)), [], 0
    while ranges := log.plan({"0": start}, Limits(records=1)):
        found.append(list(rows(log, 0, start, ranges["0"].stop)))
        start = ranges["0"].stop

    assert found == [[offset] for offset in expected]
    assert len(segments(log)) > 3


@pytest.mark.parametrize("records", [1, BATCH_ROWS - 1, BATCH_ROWS, BATCH_ROWS + 1])
def test_a_compacted_segment_of_many_batches_is_counted_right(records: int) -> None:
    """Also where the limit falls between two batches."""
    log = new_log(pa.schema([("n", pa.int64())]), key="n", compacted=True)
    count = BATCH_ROWS + 10
    append_each(log, {"n": 0}, pa.table({"n": range(count)}))
    log.compact()
    [(partition, wanted)] = log.plan({}, Limits(records=records)).items()

    found = sum(batch.num_rows for batch in log.read(partition, wanted))

    assert found == records


def test_bytes_are_shared_out_by_rows() -> None:
    """A segment with few rows and many gaps is not thought to be large."""
    log = compacted_log(["a"] * 50 + ["b", "c", "d", "e"], [], 32)
    sizes = [piece.size_bytes for piece in segments(log)]

    assert planned(log, 0, Limits(size_bytes=sum(sizes)))[1] == list(rows(log))
    assert len(planned(log, 0, Limits(size_bytes=sum(sizes) // 2))[1]) in (2, 3)
    assert len(planned(log, 0, Limits(size_bytes=1))[1]) == 1
