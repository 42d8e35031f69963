"""Reading a log: offsets, times, pages, and what is said when something is damaged or lost."""

from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Corrupt, Gone, Invalid, PenstockError
from penstock.ids import Key
from penstock.sources import Limits, Log, Range
from penstock.sources.log_segment import BATCH_ROWS
from penstock.sources.log_tail import FAN
from penstock.sources.log_topic import TOPIC_KEY
from tests.support.logs import (
    EVENTS,
    append_each,
    clock_of,
    column,
    meta,
    new_log,
    numbered,
    objects,
    rows,
    segments,
    spans,
    spoil,
    store_of,
    tail_of,
)

MANY = 3 * 2 * FAN + 8
"""So many segments that TAIL lists pages, and some segments besides."""
FOREIGN = 2000


@pytest.fixture(scope="module")
def long_log() -> Log:
    """A log of one row a segment, taken in a second after one another."""
    log = new_log()
    for number in range(MANY):
        append_each(log, numbered(number))
        clock_of(log).sleep(1.0)
    return log


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def test_a_row_knows_its_offset_and_its_times() -> None:
    """When it happened, when the log took it in, and when the epoch that reads it was planned."""
    log = new_log(pa.schema([("n", pa.int64()), ("at", pa.int64())]), event_time="at")
    append_each(log, [{"n": 1, "at": 5_000}, {"n": 2, "at": None}])
    clock_of(log).sleep(0.25)
    append_each(log, {"n": 3, "at": -1})

    found = [
        row for batch in log.read("0", Range(start=1, stop=3), 777) for row in batch.to_pylist()
    ]

    assert found == [
        {
            "n": 2,
            "at": None,
            "_meta": {
                "offset": 1,
                "event_time": None,
                "broker_time": moment(1000),
                "ingest_time": moment(0.777),
            },
        },
        {
            "n": 3,
            "at": -1,
            "_meta": {
                "offset": 2,
                "event_time": moment(-0.001),
                "broker_time": moment(1000.25),
                "ingest_time": moment(0.777),
            },
        },
    ]


def test_a_clock_that_jumps_back_does_not_take_the_log_with_it() -> None:
    """Moments are found by the order of broker times, and retention goes by it."""
    log = new_log()
    jumps = [0.0, 5.0, -3.0, -1000.0, 999.0, 10.0]
    for number, jump in enumerate(jumps):
        clock_of(log).now_s += jump
        append_each(log, numbered(number))

    times = meta(log, "broker_time")

    assert times == [moment(at) for at in (1000, 1005, 1005, 1005, 1005, 1011)]
    assert log.offsets_at(1_005_000) == {"0": 1}
    assert log.offsets_at(1_005_001) == {"0": 5}


def test_a_segment_of_many_batches_is_cut_anywhere() -> None:
    """A segment is larger than what a task holds at once."""
    log, count = new_log(), BATCH_ROWS + 10
    append_each(log, pa.table({"n": range(count)}, schema=pa.schema([("n", pa.int64())])))
    edges = [0, 1, BATCH_ROWS - 1, BATCH_ROWS, BATCH_ROWS + 1, count - 1, count]

    found = [
        batch.column("n").to_pylist()
        for start, stop in pairwise(edges)
        for batch in log.read("0", Range(start=start, stop=stop))
    ]

    assert found == [list(range(start, stop)) for start, stop in pairwise(edges)]
    assert max(batch.num_rows for batch in log.read("0", Range(start=0, stop=count))) == BATCH_ROWS


def test_a_partition_nobody_has_written_to_is_empty() -> None:
    """A topic is there before its first row."""
    log = new_log(partitions=2)

    assert spans(log) == {"0": (0, 0), "1": (0, 0)}
    assert list(log.read("1", Range(start=0, stop=0))) == []
    assert (log.plan({}, Limits()), log.offsets_at(5)) == ({}, {"0": 0, "1": 0})
    with pytest.raises(Invalid, match="ends at offset 0 and was asked for 1"):
        list(log.read("1", Range(start=0, stop=1)))


def test_reading_leaves_no_trace(long_log: Log) -> None:
    """Any number of jobs may read; none of them writes a thing."""
    before = {key: store_of(long_log).get(Key(key)) for key in objects(long_log)}
    rows(long_log)
    long_log.offsets_at(0)
    long_log.plan({}, Limits(records=1))

    assert {key: store_of(long_log).get(Key(key)) for key in objects(long_log)} == before


def test_a_long_log_has_a_short_tail(long_log: Log) -> None:
    """However long it grows, an append writes little and an offset is found by a few reads."""
    heights = [piece.height for piece in tail_of(long_log).pieces]

    assert len(heights) <= 2 * (2 * FAN)
    assert heights == sorted(heights, reverse=True)
    assert max(heights) >= 1
    assert [piece.first for piece in segments(long_log)] == list(range(MANY))
    assert column(long_log) == list(range(MANY))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_range_of_a_long_log_is_exact(long_log: Log, data: st.DataObject) -> None:
    """Pages are looked up by offset, and give what lies between and nothing else."""
    start = data.draw(st.integers(0, MANY))
    stop = data.draw(st.integers(start, MANY))

    assert list(rows(long_log, start=start, stop=stop)) == list(range(start, stop))


@settings(max_examples=60, deadline=None)
@given(st.floats(-3.0, MANY + 3.0))
def test_any_moment_of_a_long_log_is_found(long_log: Log, seconds: float) -> None:
    """By the times that pages keep of what is in them."""
    at_ms = round((1000 + seconds) * 1000)
    expected = next((n for n in range(MANY) if (1000 + n) * 1000 >= at_ms), MANY)

    assert long_log.offsets_at(at_ms) == {"0": expected}


def test_moments_are_found_among_event_times_in_any_order() -> None:
    """Late rows lie behind later ones, also where pages are looked up."""
    log = new_log(pa.schema([("at", pa.int64())]), event_time="at")
    times = [(number * 37) % 101 if number % 7 else None for number in range(3 * 2 * FAN)]
    append_each(log, *([{"at": at}, {"at": None}] for at in times))
    tried = range(-1, 103)

    found = [log.offsets_at(at)["0"] for at in tried]

    assert found == [
        next(
            (2 * n for n, at in enumerate(times) if at is not None and at >= asked), 2 * len(times)
        )
        for asked in tried
    ]


def read_what_can_be(log: Log, each: list[Range]) -> list[int | str]:
    """The rows of some ranges, or what is told instead."""
    found: list[int | str] = []
    for wanted in each:
        try:
            found += [row for batch in log.read("0", wanted) for row in batch["n"].to_pylist()]
        except PenstockError as error:
            found.append(f"{type(error).__name__} {error}")
    return found


@pytest.mark.parametrize("damage", ["damaged", "missing"])
def test_a_segment_that_is_no_more_is_named(damage: str) -> None:
    """Which object to restore, which offsets it held; and all others can be read."""
    log = new_log()
    append_each(log, numbered(0, 1), numbered(2, 3), numbered(4))
    key = segments(log)[1].key
    if damage == "damaged":
        spoil(log, key)
    else:
        store_of(log).delete(key)

    found = read_what_can_be(log, [Range(start=n, stop=n + 1) for n in range(5)])

    told = (
        f"Corrupt {key} is {damage}: offsets 2 up to 4 cannot be read: restore this object from "
        "a copy; what is before and after it can be read."
    )
    assert found == [0, 1, told, told, 4]
    with pytest.raises(Corrupt) as caught:
        rows(log)
    assert caught.value.subject == key


@pytest.mark.parametrize("damage", ["damaged", "missing"])
def test_a_page_that_is_no_more_is_named(damage: str) -> None:
    """What lies behind it can be read, and what is appended from now on."""
    log = new_log()
    append_each(log, *(numbered(number) for number in range(2 * FAN + 1)))
    page, *others = tail_of(log).pieces
    assert (page.height, page.first, page.stop, len(others)) == (1, 0, FAN, FAN + 1)
    if damage == "damaged":
        spoil(log, page.key)
    else:
        store_of(log).delete(page.key)

    with pytest.raises(Corrupt) as caught:
        rows(log)

    assert caught.value.subject == page.key
    assert damage in caught.value.found
    append_each(log, numbered(-1))
    assert list(rows(log, start=FAN)) == list(range(FAN, 2 * FAN + 2))


@pytest.mark.parametrize("key", [TOPIC_KEY, Key("partitions/000000/TAIL")])
@pytest.mark.parametrize("body", [b"", b"{}", b"garbage", None], ids=str)
def test_a_damaged_register_stops_everybody(key: Key, body: bytes | None) -> None:
    """Nothing is read, appended or cleaned up on a guess."""
    log = new_log()
    append_each(log, numbered(1))
    if body is None:
        spoil(log, key)
    else:
        store_of(log).put(key, body)
    before = objects(log)

    for attempt in (
        lambda: list(log.read("0", Range(start=0, stop=1))),
        log.spans,
        lambda: log.offsets_at(0),
        lambda: log.plan({}, Limits()),
        lambda: append_each(log, numbered(2)),
        lambda: log.producer("named"),
        log.expire,
        log.compact,
        log.sweep,
    ):
        with pytest.raises(Corrupt) as caught:
            attempt()
        assert caught.value.subject == key
    left = [name for name in objects(log) if name not in before]
    assert [name for name in left if "/segments/" not in name] == []


def test_a_topic_that_is_not_there_is_told_so(tmp_path: Path) -> None:
    """Asking for it does not make it."""
    log = Log(str(tmp_path / "nothing"))

    for attempt in (log.spans, log.schema, log.producer, log.compact, log.expire, log.sweep):
        with pytest.raises(Gone, match="nothing does not exist: make it"):
            attempt()
    assert not (tmp_path / "nothing").exists()


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    """People keep things beside a log, and sometimes in it."""
    folder = tmp_path / "topic"
    log = new_log(EVENTS, url=str(folder), keep_bytes=1)
    append_each(log, numbered(1), numbered(2))
    places = [folder, folder / "partitions", *(folder / "partitions/000000").glob("*/")]
    foreign = {
        place / f"foreign {number}.txt": f"{number}".encode()
        for number in range(FOREIGN // len(places) + 1)
        for place in places
    }
    for path, body in foreign.items():
        path.write_bytes(body)

    append_each(log, numbered(3), numbered(4))
    log.compact()
    append_each(log, numbered(5))
    assert column(log) == [1, 2, 3, 4, 5]
    log.expire()
    log.sweep()
    log.sweep()

    assert column(log) == [5]
    assert len(foreign) >= FOREIGN
    assert {path: path.read_bytes() for path in foreign} == foreign
    ours = {path for path in folder.rglob("*") if path.is_file()} - set(foreign)
    assert {str(path.relative_to(folder)) for path in ours} >= {*objects(log)}
    assert len(segments(log)) == 1
