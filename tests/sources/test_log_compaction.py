"""Compaction: the last row of each key stays, at its offset, and nobody who reads notices more."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.checkpoint.perform import perform, store_handlers
from penstock.clock import SystemChance
from penstock.effects import Put
from penstock.sources import Log, Range
from penstock.sources.log_compact import Compacted, compact
from penstock.sources.log_rewrite import KEYS_MAX, ArrowRewriter
from tests.support.logs import (
    append_each,
    batches,
    clock_of,
    column,
    meta,
    narrow,
    new_log,
    numbered,
    objects,
    rows,
    segments,
    spans,
    store_of,
    tail_of,
)

GRACE_S = 100.0


def compacted_log(**settings: Any) -> Log:
    grace = timedelta(seconds=GRACE_S)
    return new_log(**{"key": "user", "compacted": True, "tombstone_grace": grace, **settings})


def pairs(log: Log) -> dict[int, tuple[Any, Any]]:
    """User and number of each row, by offset."""
    return {offset: (row["user"], row["n"]) for offset, row in rows(log).items()}


def user(name: str | None, *numbers: int | None) -> list[dict[str, Any]]:
    return numbered(*numbers, user=name)


def test_the_last_row_of_each_key_stays_at_its_offset() -> None:
    """A reader that starts over learns the last value of every key, and of none a wrong one."""
    log = compacted_log()
    append_each(log, user("a", 0, 1) + user("b", 2), user("a", 3), user("c", 4, 5) + user("b", 6))

    assert log.compact() == [Compacted(7, 7, 3, 3, 1)]
    assert pairs(log) == {3: ("a", 3), 5: ("c", 5), 6: ("b", 6)}
    assert spans(log) == {"0": (0, 7)}
    append_each(log, user("a", 7))
    assert pairs(log) == {3: ("a", 3), 5: ("c", 5), 6: ("b", 6), 7: ("a", 7)}
    log.compact()
    assert pairs(log) == {5: ("c", 5), 6: ("b", 6), 7: ("a", 7)}


def test_compacting_again_changes_nothing() -> None:
    """It may run as often as one likes."""
    log = compacted_log()
    append_each(log, user("a", 0, 1), user("b", 2, 3))
    log.compact()
    before = batches(log)

    assert log.compact() == [Compacted(4, 2, 2, 1, 1)]
    assert batches(log) == before


def test_rows_that_stay_keep_their_times() -> None:
    """When they happened and when the log took them in, also to those who ask for a moment."""
    schema = pa.schema([("user", pa.string()), ("at", pa.int64()), ("n", pa.int64())])
    log = compacted_log(schema=schema, event_time="at")
    for number, name in enumerate("abcab"):
        append_each(log, {"user": name, "at": 10 * number, "n": number})
        clock_of(log).sleep(1)
    before = times(log)
    log.compact()

    assert times(log) == {offset: before[offset] for offset in (2, 3, 4)}
    append_each(log, {"user": "d", "at": 50, "n": 5})
    log.compact()
    assert {offset: times(log)[offset] for offset in (2, 3, 4)} == {
        offset: before[offset] for offset in (2, 3, 4)
    }
    assert [log.offsets_at(at)["0"] for at in (0, 20, 21, 40, 51)] == [2, 2, 3, 4, 6]


def times(log: Log) -> dict[int, tuple[Any, Any]]:
    """When each row happened, and when it was taken in, by offset."""
    found = zip(meta(log, "event_time"), meta(log, "broker_time"), strict=True)
    return dict(zip(rows(log), found, strict=True))


def test_a_removed_key_is_told_for_a_while_and_then_forgotten() -> None:
    """Readers that lag must learn of it before it goes."""
    log = compacted_log()
    append_each(log, user("a", 0), user("b", 1), user("a", None))
    log.compact()
    assert pairs(log) == {1: ("b", 1), 2: ("a", None)}

    clock_of(log).sleep(GRACE_S)
    log.compact()
    assert pairs(log) == {1: ("b", 1), 2: ("a", None)}
    clock_of(log).sleep(0.001)
    log.compact()
    assert pairs(log) == {1: ("b", 1)}
    assert spans(log) == {"0": (0, 3)}


def test_a_removed_key_may_come_back() -> None:
    """A row after the removal is what counts, whatever the grace says."""
    log = compacted_log()
    append_each(log, user("a", 0), user("a", None), user("a", 2))
    clock_of(log).sleep(2 * GRACE_S)
    log.compact()

    assert pairs(log) == {2: ("a", 2)}


def test_a_log_of_nothing_but_removals_becomes_empty() -> None:
    """Its offsets stay, and rows go on behind them."""
    log = compacted_log()
    append_each(log, user("a", None), user("b", None))
    clock_of(log).sleep(2 * GRACE_S)

    assert log.compact() == [Compacted(2, 2, 0, 2, 1)]
    assert (pairs(log), spans(log)) == ({}, {"0": (0, 2)})
    append_each(log, user("a", 2))
    log.compact()
    assert pairs(log) == {2: ("a", 2)}


def test_an_event_time_does_not_make_a_removal_a_value() -> None:
    """It says when the key was removed."""
    schema = pa.schema([("user", pa.string()), ("at", pa.int64()), ("n", pa.int64())])
    log = compacted_log(schema=schema, event_time="at")
    append_each(log, [{"user": "a", "at": 5, "n": None}, {"user": "b", "at": None, "n": 1}])
    clock_of(log).sleep(2 * GRACE_S)
    log.compact()

    assert column(log, "user") == ["b"]


def test_rows_of_a_topic_of_keys_are_no_removals() -> None:
    """Where there is nothing but a key, its presence is the value."""
    log = compacted_log(schema=pa.schema([("user", pa.string())]))
    append_each(log, [{"user": "a"}, {"user": "b"}, {"user": "a"}])
    clock_of(log).sleep(2 * GRACE_S)
    log.compact()

    assert rows(log) == {1: {"user": "b"}, 2: {"user": "a"}}


@pytest.mark.parametrize("number", [1, None])
def test_rows_without_a_key_always_stay(number: int | None) -> None:
    """They follow nobody and nobody follows them; so they cannot be removals either."""
    log = compacted_log()
    append_each(log, user(None, 0, number), user("a", 2), user(None, number))
    clock_of(log).sleep(2 * GRACE_S)
    log.compact()

    assert pairs(log) == {0: (None, 0), 1: (None, number), 2: ("a", 2), 3: (None, number)}


def test_several_columns_make_one_key() -> None:
    """Equal in all of them, or not equal; and one that is null is no key."""
    log = compacted_log(
        schema=pa.schema([("user", pa.string()), ("n", pa.int64()), ("v", pa.int64())]),
        key=("user", "n"),
    )
    keys = [("a", 1), ("a", 2), ("b", 1), ("a", None), ("a", 1), ("a", None), (None, 1), (None, 1)]
    append_each(log, *({"user": u, "n": n, "v": v} for v, (u, n) in enumerate(keys)))
    log.compact()

    assert list(rows(log)) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("keys_max", [0, 1, 2, 3, 7])
def test_few_keys_at_a_time_come_to_the_same_end(keys_max: int) -> None:
    """Memory is bounded; what does not fit waits for the next time, and every time gets further."""
    log, whole = compacted_log(), compacted_log()
    names = [f"user {n * 7 % 10}" for n in range(40)]
    for each in (log, whole):
        append_each(each, *(user(name, n) for n, name in enumerate(names)))
    whole.compact()
    stops = [0]
    while stops[-1] < len(names):
        stops.append(log.compact(keys_max)[0].stop)
        assert stops[-1] > stops[-2]
        assert {name for name, _ in pairs(log).values()} == set(names)

    assert pairs(log) == pairs(whole) == {n: (names[n], n) for n in range(30, 40)}
    assert (len(stops) > 2) == (keys_max < 10)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.tuples(st.sampled_from("abc\0"), st.integers(0, 2)), max_size=4)))
def test_compacting_is_what_a_dict_does(calls: list[list[tuple[str, int]]]) -> None:
    """Whatever is appended in whatever batches: per key, the last."""
    log = compacted_log()
    narrow(log, 2)
    append_each(log, *(user_rows(call) for call in calls))
    given = [pair for call in calls for pair in call]
    last = {name: offset for offset, (name, _) in enumerate(given)}
    log.compact(2)
    log.compact()

    assert pairs(log) == {offset: given[offset] for offset in sorted(last.values())}


def user_rows(call: list[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"user": name, "n": number} for name, number in call]


@pytest.mark.parametrize("settings", [{}, {"key": "user"}], ids=str)
def test_a_topic_that_is_not_compacted_gets_fewer_segments(settings: dict[str, Any]) -> None:
    """Every row stays, at its offset and with its time."""
    log = new_log(**settings)
    for number in range(70):
        append_each(log, numbered(number, None))
        clock_of(log).sleep(1)
    before = pa.Table.from_batches(batches(log)).combine_chunks()

    assert log.compact() == [Compacted(140, 140, 140, 70, 1)]
    assert pa.Table.from_batches(batches(log)).combine_chunks() == before
    assert len(segments(log)) == 1
    assert len(objects(log)) == 3


def test_partitions_are_compacted_each_for_itself() -> None:
    """A key is in one of them; rows that were put elsewhere by hand are not looked for."""
    log = compacted_log(partitions=2)
    for partition in (0, 1, 1):
        append_each(log, user("a", partition), partition=partition)

    assert log.compact() == [Compacted(1, 1, 1, 1, 1), Compacted(2, 2, 1, 2, 1)]
    assert (list(rows(log, 0)), list(rows(log, 1))) == ([0], [1])


def test_a_reader_in_the_middle_goes_on() -> None:
    """It has rows that are no more, and gets of the rest what there is now."""
    log = compacted_log()
    append_each(log, *(user("ab"[n % 2], n) for n in range(8)))
    reading = log.read("0", Range(start=0, stop=8))
    found = [row for _ in range(3) for row in next(reading).to_pylist()]
    log.compact()
    found += [row for batch in reading for row in batch.to_pylist()]

    assert [row["_meta"]["offset"] for row in found] == [0, 1, 2, 6, 7]
    assert [(row["user"], row["n"]) for row in found] == [
        ("a", 0),
        ("b", 1),
        ("a", 2),
        ("a", 6),
        ("b", 7),
    ]


def test_a_reader_in_the_middle_of_merged_segments_misses_nothing() -> None:
    """Again and again, while everything it was told is moved."""
    log = new_log()
    append_each(log, *(numbered(number) for number in range(6)))
    found = []
    for batch in log.read("0", Range(start=1, stop=6)):
        found += batch["n"].to_pylist()
        log.compact()
        append_each(log, numbered(99))

    assert found == [1, 2, 3, 4, 5]


def interrupted(log: Log, meanwhile: Callable[[], Any]) -> Compacted:
    """Compact the first partition, and do something else when its first segment is staged."""
    topic, store = log.topic(), store_of(log)
    left = [meanwhile]

    def put(effect: Put) -> None:
        store.put(effect.key, effect.body)
        if left:
            left.pop()()

    handlers = {**store_handlers(store, clock_of(log)), Put: put}
    now_ms = round(clock_of(log).wall() * 1000)
    protocol = compact(topic.id, 0, lambda: ArrowRewriter(topic, now_ms, KEYS_MAX), SystemChance())
    return perform(protocol, handlers)


def test_what_is_appended_meanwhile_stays_as_it_is() -> None:
    """A compaction touches nothing behind the end it has seen."""
    log = compacted_log()
    append_each(log, user("a", 0), user("a", 1))
    interrupted(log, lambda: append_each(log, user("a", 2), user("b", 3)))

    assert pairs(log) == {1: ("a", 1), 2: ("a", 2), 3: ("b", 3)}
    log.compact()
    assert pairs(log) == {2: ("a", 2), 3: ("b", 3)}


@pytest.mark.parametrize("other", ["compact", "expire", "sweep", "sweep twice"])
def test_of_two_who_tidy_up_at_once_one_wins(other: str) -> None:
    """The other leaves the log as it found it, and garbage for the sweep."""
    log = compacted_log()
    append_each(log, user("a", 0), user("b", 1), user("a", 2))
    log.change(retention_bytes=segments(log)[-1].size_bytes)

    def meanwhile() -> None:
        if other in ("compact", "expire"):
            getattr(log, other)()
        else:
            for _ in range(2 if other == "sweep twice" else 1):
                log.sweep()

    interrupted(log, meanwhile)
    expected = {1: ("b", 1), 2: ("a", 2)} if other != "expire" else {2: ("a", 2)}
    if other == "sweep twice":
        log.compact()

    assert pairs(log) == expected
    for _ in range(3):
        log.sweep()
    assert pairs(log) == expected
    assert len(objects(log, "partitions/000000/segments/")) == len(segments(log))


def test_columns_that_came_later_are_null_in_older_rows() -> None:
    """Segments of all ages are put together into one."""
    log = compacted_log()
    append_each(log, user("a", 0), user("b", 1))
    wider = log.schema().append(pa.field("more", pa.string()))
    log.change(schema=wider)
    append_each(log, [{"user": "b", "n": None, "more": "x"}, {"user": "c", "n": None}])
    clock_of(log).sleep(2 * GRACE_S)
    log.compact()

    assert rows(log) == {
        0: {"user": "a", "n": 0, "more": None},
        2: {"user": "b", "n": None, "more": "x"},
    }


def test_a_topic_may_be_compacted_from_some_day_on() -> None:
    """Also what was merged before that day: below the mark no key may come twice."""
    log = new_log(key="user")
    append_each(log, user("a", 0), user("a", 1))
    log.compact()
    log.change(compacted=True)
    append_each(log, user("b", 2))
    log.compact()

    assert pairs(log) == {1: ("a", 1), 2: ("b", 2)}
    assert tail_of(log).compacted_to == 3


def test_merging_often_still_makes_fewer_segments() -> None:
    """A log that is tidied up every minute must not end with a segment a minute."""
    log = new_log()
    for number in range(10):
        append_each(log, numbered(number))
        log.compact()

    assert column(log) == list(range(10))
    assert len(segments(log)) < 10
