"""How far event time has come: never too far, never back."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.checkpoint.manifest import Range, SourceProgress
from penstock.runtime.topology import SourceNode, Topology
from penstock.runtime.watermarks import advanced, operator_watermark, source_watermark
from tests.support.in_process import CLICKS, no_spark
from tests.support.logs import new_log

LOG, OTHER = new_log(CLICKS), new_log(CLICKS)


def node(delay_ms: int = 0, idle_ms: int | None = None) -> SourceNode:
    return SourceNode(
        name="clicks",
        source=LOG,
        schema=CLICKS,
        event_time="at",
        delay_ms=delay_ms,
        idle_ms=idle_ms,
        start="earliest",
    )


@dataclass
class Reading:
    """A source of two partitions, epoch by epoch."""

    node: SourceNode
    progress: SourceProgress = field(default_factory=SourceProgress)

    def epoch(self, planned_ms: int = 0, **latest_ms: int | None) -> int | None:
        """Read one event of each partition named, with that time; the watermark after it."""
        starts = {"a": 0, "b": 0}
        at = {**starts, **self.progress.resume_at}
        ranges = {p: Range(start=at[p], stop=at[p] + 1) for p in latest_ms}
        latest = {p: ms for p, ms in latest_ms.items() if ms is not None}
        self.progress = advanced(self.node, self.progress, ranges, latest, planned_ms, starts)
        return self.progress.watermark_ms


def test_the_slowest_partition_decides() -> None:
    """An event of it may still be as old as that."""
    reading = Reading(node(delay_ms=10))

    assert reading.epoch(a=100, b=70) == 60
    assert reading.epoch(a=500) == 60
    assert reading.epoch(b=200) == 190


def test_a_partition_that_has_shown_nothing_holds_time_back() -> None:
    """Nobody knows how old its first event is; nor that of one whose events have no time."""
    reading = Reading(node())

    assert reading.epoch(a=100) is None
    assert reading.epoch(b=None) is None
    assert reading.epoch(b=50) == 50


def test_time_never_falls() -> None:
    """What has fired cannot be taken back."""
    reading = Reading(node())

    assert [reading.epoch(a=100, b=100), reading.epoch(a=10, b=20)] == [100, 100]
    assert reading.progress.seen_ms == {"a": 100, "b": 100}


def test_an_idle_partition_does_not_hold_the_others_back() -> None:
    """After the set time; and it counts again when it comes back, without time falling."""
    reading = Reading(node(idle_ms=1000))

    assert reading.epoch(planned_ms=0, a=100, b=50) == 50
    assert reading.epoch(planned_ms=999, a=200) == 50
    assert reading.epoch(planned_ms=1000, a=300) == 300
    assert reading.epoch(planned_ms=1500, b=60) == 300
    assert reading.epoch(planned_ms=1600, a=900, b=400) == 400


def test_a_partition_becomes_idle_while_nothing_is_read() -> None:
    """What the others have shown comes true by the clock alone, or a quiet night stops time."""
    reading = Reading(node(idle_ms=1000))
    reading.epoch(planned_ms=0, a=100, b=50)
    reading.epoch(planned_ms=500, a=300)

    marks = [source_watermark(reading.node, reading.progress, at) for at in (999, 1000, 9000)]
    assert marks == [50, 300, 300]


def test_what_the_operators_were_told_does_not_fall_with_a_return() -> None:
    """The epoch in which an idle partition comes back was planned without it."""
    reading = Reading(node(idle_ms=1000))
    reading.epoch(planned_ms=0, a=100, b=50)
    reading.epoch(planned_ms=500, a=300)
    told = source_watermark(reading.node, reading.progress, 1200)

    assert (told, reading.epoch(planned_ms=1200, b=60)) == (300, 300)


def test_with_all_idle_time_is_as_far_as_any_has_shown() -> None:
    """There is nothing to wait for."""
    reading = Reading(node(idle_ms=10))
    reading.epoch(planned_ms=0, a=100, b=50)

    assert source_watermark(reading.node, reading.progress, 50) == 100


def test_progress_says_where_to_read_on() -> None:
    """Also of partitions that nothing was read of yet."""
    reading = Reading(node())
    reading.epoch(planned_ms=7, a=100)

    assert reading.progress == SourceProgress(
        ranges={"a": Range(start=0, stop=1)},
        resume_at={"a": 1, "b": 0},
        watermark_ms=None,
        seen_ms={"a": 100},
        active_ms={"a": 7, "b": 7},
    )


steps = st.lists(
    st.tuples(
        st.integers(0, 50),
        st.dictionaries(st.sampled_from("ab"), st.none() | st.integers(0, 100), max_size=2),
    ),
    max_size=12,
)


@settings(max_examples=200, deadline=None)
@given(steps=steps, idle_ms=st.none() | st.integers(1, 60), delay_ms=st.integers(0, 5))
def test_whatever_comes_time_goes_one_way(
    steps: list[tuple[int, dict[str, int | None]]], idle_ms: int | None, delay_ms: int
) -> None:
    """And without idle partitions it is the least of what all have shown."""
    reading, now_ms, before = Reading(node(delay_ms, idle_ms)), 0, -100
    seen: dict[str, int] = {}
    for wait_ms, latest in steps:
        now_ms += wait_ms
        told = source_watermark(reading.node, reading.progress, now_ms)
        mark = reading.epoch(now_ms, **latest)
        assert before <= (told if told is not None else before)
        assert (told if told is not None else before) <= (mark if mark is not None else before)
        before = mark if mark is not None else before
        for partition, ms in latest.items():
            seen[partition] = max(ms if ms is not None else -1, seen.get(partition, -1))
        if idle_ms is None and len(seen) == 2 and min(seen.values()) >= 0:
            assert mark == min(seen.values()) - delay_ms


@ps.stateful(emits="user string")
def see(user: str, events: ps.Events) -> object:
    """Passes keys on."""
    yield {"user": user}


def joined() -> Topology:
    """Two sources; the second operator follows both, the first only one."""
    job = ps.Job("clicks", partitions=1)
    seen = job.read(LOG, name="clicks", event_time="at").key_by("user").process(see, name="one")
    other = job.read(OTHER, name="views", event_time="at").key_by("user")
    ps.merge(seen.key_by("user"), other).process(see, name="two", on_error="quarantine")
    return job.topology("memory://root", no_spark)


@pytest.mark.parametrize(
    ("views", "mark"),
    [(SourceProgress(watermark_ms=50), 50), (SourceProgress(watermark_ms=900), 100), (None, None)],
)
def test_an_operator_follows_the_slowest_of_its_sources(
    views: SourceProgress | None, mark: int | None
) -> None:
    """Through every operator before it; letters that are played again hold nothing back."""
    topology = joined()
    sources = {"clicks": SourceProgress(watermark_ms=100)}
    if views is not None:
        sources["views"] = views

    marks = [operator_watermark(topology, operator, sources, 0) for operator in topology.operators]
    assert marks == [100, mark]
