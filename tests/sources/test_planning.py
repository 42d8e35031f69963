"""Sharing out an epoch's limits: what each partition gets, and what it never gets."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import permutations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Gone, Invalid
from penstock.sources import Limits, Range, Span, plan_ranges, start_offsets
from penstock.sources.planning import check_range
from tests.support.logs import append_each, new_log

ROW_BYTES_MAX = 1000.0


@dataclass(frozen=True)
class Scene:
    """Some partitions, how far they were read, and about what their rows take."""

    spans: Mapping[str, Span]
    resume: Mapping[str, int]
    row_bytes: Mapping[str, float]

    def plan(self, limits: Limits) -> Mapping[str, Range]:
        return plan_ranges("source", self.spans, self.resume, limits, self.row_bytes)

    def start(self, partition: str) -> int:
        return self.resume.get(partition, self.spans[partition].earliest)

    def lags(self) -> dict[str, int]:
        found = {p: span.latest - self.start(p) for p, span in self.spans.items()}
        return {partition: rows for partition, rows in found.items() if rows}

    def size_bytes(self, ranges: Mapping[str, Range]) -> float:
        return sum(rows * self.row_bytes.get(p, 0.0) for p, rows in counts(ranges).items())


def counts(ranges: Mapping[str, Range]) -> dict[str, int]:
    return {partition: each.stop - each.start for partition, each in ranges.items()}


@st.composite
def scenes(draw: st.DrawFn, names: str = "abcdef") -> Scene:
    spans, resume, row_bytes = {}, {}, {}
    for name in draw(st.lists(st.sampled_from(names), unique=True)):
        earliest, rows = draw(st.integers(0, 50)), draw(st.integers(0, 60))
        spans[name] = Span(earliest, earliest + rows)
        if draw(st.booleans()):
            resume[name] = earliest + draw(st.integers(0, rows))
        if draw(st.booleans()):
            row_bytes[name] = draw(st.floats(0.0, ROW_BYTES_MAX))
    return Scene(spans, resume, row_bytes)


records = st.integers(0, 200)
sizes = st.integers(0, 50_000)
limits = st.builds(Limits, records=st.none() | records, size_bytes=st.none() | sizes)


@settings(deadline=None)
@given(scenes(), limits)
def test_ranges_are_what_comes_next(scene: Scene, limits: Limits) -> None:
    """Each begins where its partition is to be resumed, and holds only offsets that are there."""
    for partition, each in scene.plan(limits).items():
        assert each.start == scene.start(partition)
        assert each.start < each.stop <= scene.spans[partition].latest


@settings(deadline=None)
@given(scenes(), limits)
def test_limits_are_never_exceeded(scene: Scene, limits: Limits) -> None:
    """Except by the one row without which nothing would ever go on."""
    ranges = scene.plan(limits)
    rows = sum(counts(ranges).values())

    if rows != 1:
        assert limits.records is None or rows <= limits.records
        assert limits.size_bytes is None or scene.size_bytes(ranges) <= limits.size_bytes + 1e-6


@settings(deadline=None)
@given(scenes(), records)
def test_as_many_rows_as_are_allowed_are_planned(scene: Scene, records: int) -> None:
    """What one partition has not got is not lost to the others."""
    rows = sum(counts(scene.plan(Limits(records=records))).values())

    assert rows == min(max(1, records), sum(scene.lags().values()))


@settings(deadline=None)
@given(scenes(), sizes)
def test_no_more_than_a_row_of_each_partition_stays_unused(scene: Scene, size: int) -> None:
    """Bytes are an estimate, but not a bad one."""
    ranges = scene.plan(Limits(size_bytes=size))
    widths = {partition: scene.row_bytes.get(partition, 0.0) for partition in scene.lags()}
    wanted = sum(rows * widths[partition] for partition, rows in scene.lags().items())
    slack = sum(width + 1 for width in widths.values())

    assert scene.size_bytes(ranges) >= min(size, wanted) - slack


@settings(deadline=None)
@given(scenes(), st.integers(1, 200))
def test_who_gets_less_than_it_wants_gets_as_much_as_any(scene: Scene, records: int) -> None:
    """A busy partition does not starve the others, nor do many quiet ones starve it."""
    lags = scene.lags()
    shares = {**dict.fromkeys(lags, 0), **counts(scene.plan(Limits(records=records)))}

    for partition, share in shares.items():
        assert share == lags[partition] or max(shares.values()) <= share + 1


def test_shares_are_equal_but_for_what_is_not_there() -> None:
    """Water in a trough with an uneven floor."""
    spans = {"a": Span(0, 2), "b": Span(0, 100), "c": Span(0, 100), "d": Span(5, 8)}
    scene = Scene(spans, {}, {"b": 10.0, "c": 1.0})

    assert counts(scene.plan(Limits(records=20))) == {"a": 2, "b": 7, "c": 8, "d": 3}
    assert counts(scene.plan(Limits(size_bytes=300))) == {"a": 2, "b": 20, "c": 100, "d": 3}
    assert counts(scene.plan(Limits(records=20, size_bytes=30))) == {
        "a": 2,
        "b": 2,
        "c": 8,
        "d": 3,
    }


@settings(deadline=None)
@given(scenes("abcd"), limits)
def test_the_order_in_which_partitions_are_named_is_of_no_effect(
    scene: Scene, limits: Limits
) -> None:
    """Two leaders plan the same epoch."""
    expected = scene.plan(limits)

    for order in permutations(scene.spans.items()):
        assert Scene(dict(order), scene.resume, scene.row_bytes).plan(limits) == expected


@settings(deadline=None)
@given(scenes(), limits)
def test_something_is_planned_while_something_is_left(scene: Scene, limits: Limits) -> None:
    """Plan after plan comes to the end of every partition, and then to nothing."""
    resume = dict(scene.resume)
    for _ in range(1 + sum(scene.lags().values())):
        ranges = Scene(scene.spans, resume, scene.row_bytes).plan(limits)
        resume |= {partition: each.stop for partition, each in ranges.items()}
        if not ranges:
            break

    assert not ranges
    assert all(resume.get(p, span.earliest) == span.latest for p, span in scene.spans.items())


def test_a_limit_below_one_row_lets_the_one_furthest_behind_go_on() -> None:
    """Rows that are larger than the limit are read one by one, not never."""
    spans = {"a": Span(0, 5), "b": Span(10, 30), "c": Span(0, 20)}
    scene = Scene(spans, {"b": 11}, dict.fromkeys("abc", 500.0))

    for limits in (Limits(records=0), Limits(records=-3), Limits(size_bytes=10)):
        assert scene.plan(limits) == {"c": Range(start=0, stop=1)}


def test_a_range_is_refused_with_what_can_be_done() -> None:
    """Who fell behind retention must choose; who is ahead of the log has the wrong one."""
    span = Span(10, 20)
    refused = {}
    for start, stop in ((9, 15), (10, 21), (12, 11), (-1, 3)):
        with pytest.raises(Invalid) as caught:
            check_range("log x", "3", Range(start=start, stop=stop), span)
        refused[start, stop] = (type(caught.value), str(caught.value))

    assert refused == {
        (9, 15): (
            Gone,
            "log x, partition 3 begins at offset 10 now and was asked for 9: retention has "
            "removed 1 offsets that were not read: restore them from a copy, or start again at "
            "'earliest' or at an offset of your choice and accept the gap, or rebuild from a "
            "snapshot that has passed them.",
        ),
        (10, 21): (
            Invalid,
            "log x, partition 3 ends at offset 20 and was asked for 21: was the log truncated or "
            "made anew? start again at 'earliest' or 'latest'.",
        ),
        (12, 11): (
            Invalid,
            "log x, partition 3 was asked for offsets 12 up to 11: give a start of 0 or more and "
            "a stop that is not before it.",
        ),
        (-1, 3): (
            Invalid,
            "log x, partition 3 was asked for offsets -1 up to 3: give a start of 0 or more and "
            "a stop that is not before it.",
        ),
    }


@pytest.mark.parametrize("moment_us", [9_999, 10_000, 10_001, 10_499, 10_501, 10_550, 10_600])
def test_a_start_between_two_milliseconds_misses_no_row(moment_us: int) -> None:
    """Sources are asked by the millisecond, and rows happen in between."""
    log = new_log(pa.schema([("at", pa.timestamp("us", "UTC"))]), event_time="at")
    happened = [datetime.fromtimestamp(us / 1e6, UTC) for us in (5_000, 10_600)]
    append_each(log, [{"at": at} for at in happened])
    moment = datetime.fromtimestamp(moment_us / 1e6, UTC)

    assert start_offsets(log, moment) == {"0": 1}
