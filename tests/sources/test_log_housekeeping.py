"""Keeping a log in bounds: retention by age and size, and sweeping up what crashes leave."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from penstock.checkpoint.perform import perform, store_handlers
from penstock.clock import SystemChance
from penstock.effects import Delete
from penstock.errors import Gone, Invalid
from penstock.ids import Key
from penstock.sources import Limits, Log, Range
from penstock.sources.log_append import Batch, Outdated, Writer, append, stage
from penstock.sources.log_expire import Expired
from penstock.sources.log_layout import TOPIC_KEY, page_key, tail_key
from penstock.sources.log_pieces import walk
from penstock.sources.log_segment import encode
from penstock.sources.log_sweep import Swept, sweep
from penstock.sources.log_tail import FAN
from tests.support.logs import (
    EVENTS,
    append_each,
    clock_of,
    column,
    narrow,
    new_log,
    numbered,
    objects,
    rows,
    run,
    segments,
    spans,
    stage_only,
    store_of,
    tail_of,
)

MANY = 3 * 2 * FAN + 10


def needed(log: Log) -> set[str]:
    """Every object that the log still has use for."""
    found = {str(TOPIC_KEY)}
    for tail in log.tails():
        pieces = run(log, walk(tail.pieces))
        found |= {str(tail_key(tail.partition)), *(str(piece.key) for piece in pieces)}
    return found


def a_row_every_second(log: Log, count: int) -> None:
    for number in range(count):
        append_each(log, numbered(number))
        clock_of(log).sleep(1.0)


def test_old_segments_are_given_up() -> None:
    """As a whole, when their last row is too old; and nothing of them stays."""
    log = new_log(keep=timedelta(seconds=25))
    for number in range(3):
        append_each(log, numbered(number, number))
        clock_of(log).sleep(10)
    first, _, _ = segments(log)

    assert log.expire() == [Expired(2, 2, first.size_bytes)]
    assert rows(log) == {n: {"user": "ada", "n": n // 2} for n in range(2, 6)}
    assert set(objects(log)) == needed(log)
    assert log.expire() == [Expired(2, 0, 0)]


def test_what_is_too_much_is_given_up() -> None:
    """The oldest first, in each partition, and never so much that less is kept than was said."""
    log = new_log(partitions=2)
    append_each(log, *(numbered(number) for number in range(5)))
    append_each(log, numbered(7), partition=1)
    sizes = [piece.size_bytes for piece in segments(log)]
    log.change(retention_bytes=sizes[-1] + sizes[-2] + 1)

    assert log.expire() == [Expired(2, 2, sum(sizes[:2])), Expired(0, 0, 0)]
    assert (column(log), column(log, partition=1)) == ([2, 3, 4], [7])
    assert set(objects(log)) == needed(log)


def test_either_rule_lets_a_segment_go() -> None:
    """What is young enough may be too much, and what is little may be too old."""
    log = new_log(keep=timedelta(seconds=3))
    a_row_every_second(log, 6)
    size = segments(log)[0].size_bytes

    log.change(retention_bytes=100 * size)
    assert [each.earliest for each in log.expire()] == [3]
    log.change(retention_bytes=2 * size)
    assert [each.earliest for each in log.expire()] == [4]


def test_a_clock_that_was_ahead_does_not_keep_rows_for_ever() -> None:
    """One wrong producer must not fill the disk for all the others."""
    log = new_log(keep=timedelta(hours=1))
    clock_of(log).now_s += 1e9
    append_each(log, numbered(0))
    clock_of(log).now_s -= 1e9
    append_each(log, numbered(1))
    clock_of(log).sleep(3601)
    append_each(log, numbered(2))
    log.expire()

    assert column(log) == [2]


def test_a_clock_that_was_behind_does_not_take_young_rows_with_it() -> None:
    """A host that starts without the time believes it is 1970; what others wrote is not old."""
    log = new_log(keep=timedelta(hours=1))
    clock_of(log).now_s += 1e9
    append_each(log, numbered(0), numbered(1))
    clock_of(log).now_s -= 1e9
    append_each(log, numbered(2))
    clock_of(log).now_s += 1e9
    append_each(log, numbered(3))
    log.expire()

    assert column(log)[-1:] == [3]
    assert {0, 1} <= set(column(log))


def test_without_a_rule_everything_is_kept() -> None:
    """For ever is the default."""
    log = new_log()
    append_each(log, numbered(1))
    clock_of(log).sleep(1e9)

    assert (log.expire(), column(log)) == ([Expired(0, 0, 0)], [1])


def test_a_log_that_has_forgotten_all_goes_on_where_it_was() -> None:
    """An offset is never given twice."""
    log = new_log(keep_bytes=0)
    append_each(log, numbered(1, 2), numbered(3))
    log.expire()

    assert spans(log) == {"0": (3, 3)}
    assert (column(log), log.plan({}, Limits())) == ([], {})
    assert log.offsets_at(0) == {"0": 3}
    append_each(log, numbered(4))
    assert rows(log) == {3: {"user": "ada", "n": 4}}
    assert set(objects(log)) == needed(log)


def test_what_is_gone_is_told_with_the_choices_there_are() -> None:
    """A job that fell behind stops, and its owner decides."""
    log = new_log(keep_bytes=0)
    append_each(log, numbered(1, 2))
    log.expire()
    append_each(log, numbered(3))

    for attempt in (
        lambda: list(log.read("0", Range(start=1, stop=3))),
        lambda: log.plan({"0": 1}, Limits()),
    ):
        with pytest.raises(Gone) as caught:
            attempt()
        assert str(caught.value) == (
            f"{log.name}, partition 0 begins at offset 2 now and was asked for 1: retention has "
            "removed 1 offsets that were not read: restore them from a copy, or start again at "
            "'earliest' or at an offset of your choice and accept the gap, or rebuild from a "
            "snapshot that has passed them."
        )


def test_a_reader_that_retention_overtakes_is_told() -> None:
    """Never cut short: what it has not got yet is gone, and that is not the end of the range."""
    log = new_log()
    append_each(log, *(numbered(number) for number in range(4)))
    reading = log.read("0", Range(start=0, stop=4))
    found = [next(reading)["n"].to_pylist()]
    log.change(retention_bytes=0)
    log.expire()

    with pytest.raises(Gone, match="begins at offset 4 now and was asked for 1"):
        found += [batch["n"].to_pylist() for batch in reading]
    assert found == [[0]]


@pytest.mark.parametrize("fan", [2, FAN])
def test_retention_cuts_through_pages(fan: int) -> None:
    """Pages are taken apart where the cut goes through them, and go with what they listed."""
    log = new_log()
    narrow(log, fan)
    a_row_every_second(log, MANY)
    for kept in (MANY - 1, MANY - FAN, MANY - FAN - 1, 2 * FAN + 20, FAN, FAN - 1, 3, 1, 0):
        log.change(retention_age_ms=kept * 1000)
        [expired] = log.expire()

        assert expired.earliest == MANY - kept
        assert column(log) == list(range(MANY - kept, MANY))
        assert set(objects(log)) == needed(log)


@pytest.mark.parametrize("fan", [2, FAN])
def test_retention_by_size_cuts_through_pages(fan: int) -> None:
    """Pages know how large their segments are."""
    log = new_log()
    narrow(log, fan)
    append_each(log, *(numbered(number) for number in range(MANY)))
    sizes = [piece.size_bytes for piece in segments(log)]
    for kept in (MANY - 1, MANY - FAN, MANY - FAN - 1, 2 * FAN, 5, 1):
        log.change(retention_bytes=sum(sizes[-kept:]))
        log.expire()

        assert column(log) == list(range(MANY - kept, MANY))
        assert set(objects(log)) == needed(log)


@pytest.mark.parametrize("setting", [{"keep": timedelta(days=-1)}, {"keep_bytes": -1}], ids=str)
def test_less_than_nothing_cannot_be_kept(setting: dict[str, Any]) -> None:
    """A slip of a sign would remove everything."""
    with pytest.raises(Invalid, match="keeps less than nothing"):
        new_log(**setting)


def test_an_orphan_goes_with_the_second_sweep() -> None:
    """Its producer may be slow and not dead: it has from one sweep to the next."""
    log = new_log()
    append_each(log, numbered(1), numbered(2))
    orphan = stage_only(log)
    size = len(b"never taken in")

    assert log.sweep() == [Swept(0, 0)]
    assert orphan in objects(log)
    assert log.sweep() == [Swept(1, size)]
    assert set(objects(log)) == needed(log)
    assert [log.sweep(), column(log)] == [[Swept(0, 0)], [1, 2]]


def test_orphans_of_compactions_go_too() -> None:
    """A page or a segment that lost its swap is as dead as one whose producer died."""
    log = new_log()
    append_each(log, numbered(1))
    version = tail_of(log).version
    store_of(log).put(page_key(0, version, "orphan"), b"[]")
    stage_only(log)
    log.sweep()

    assert log.sweep() == [Swept(2, 2 + len(b"never taken in"))]
    assert set(objects(log)) == needed(log)


@pytest.mark.parametrize("fan", [2, FAN])
def test_a_sweep_never_removes_what_is_in_use(fan: int) -> None:
    """Segments and pages of all ages, below the floor and above it."""
    log = new_log(partitions=2)
    narrow(log, fan)
    expected: list[int] = []
    for start in range(0, 90, 30):
        expected += range(start, start + 30)
        append_each(log, *(numbered(number) for number in range(start, start + 30)))
        stage_only(log)
        stage_only(log, 1)
        log.sweep()
        assert (column(log), column(log, partition=1)) == (expected, [])
    log.sweep()
    log.sweep()

    assert column(log) == expected
    assert set(objects(log)) == needed(log)


def test_a_producer_between_staging_and_swap_survives_one_sweep() -> None:
    """And is told to stage again after two, when what it staged may be gone."""
    log = new_log()
    append_each(log, numbered(0))

    def staged_then(sweeps: int, sequence: int) -> Any:
        body = encode_rows(sequence)
        batch = Batch(sequence, sequence - 1, 1, None, body)
        version = tail_of(log).version
        staged = run(log, stage(0, batch, version, SystemChance()))
        for _ in range(sweeps):
            log.sweep()
        return append(Writer(log.topic().id, "slow", 1), 0, [staged], 0, SystemChance())

    run(log, staged_then(1, 1))
    assert column(log) == [0, 1]
    with pytest.raises(Outdated):
        run(log, staged_then(2, 2))
    log.sweep()
    assert column(log) == [0, 1]
    assert set(objects(log)) == needed(log)


def encode_rows(*numbers: int) -> bytes:
    return encode(pa.Table.from_pylist(numbered(*numbers), EVENTS))


def test_a_sweep_beside_producers_loses_nothing() -> None:
    """Whatever is appended, compacted or given up between its steps."""
    log = new_log()
    append_each(log, *(numbered(number) for number in range(3)))
    for _ in range(3):
        stage_only(log)
    log.sweep()
    meanwhile = iter([lambda: append_each(log, numbered(3)), log.compact, log.sweep])

    def delete(effect: Delete) -> None:
        next(meanwhile, lambda: None)()
        store_of(log).delete(effect.key)

    handlers = {**store_handlers(store_of(log), clock_of(log)), Delete: delete}
    perform(sweep(log.topic().id, 0, SystemChance()), handlers)

    assert column(log) == [0, 1, 2, 3]
    for _ in range(2):
        log.sweep()
    assert set(objects(log)) == needed(log)
    assert column(log) == [0, 1, 2, 3]


def test_sweeping_a_partition_that_is_empty_does_nothing() -> None:
    """There is no TAIL that could promise anything."""
    log = new_log()

    assert (log.sweep(), objects(log)) == ([Swept(0, 0)], [str(TOPIC_KEY)])


@pytest.mark.parametrize("keeping", ["expire", "compact"])
def test_a_crash_before_the_deletes_leaves_work_for_the_sweep(keeping: str) -> None:
    """First TAIL lets go, then objects are deleted; in between nothing is lost, only late."""
    log = new_log(keep_bytes=0) if keeping == "expire" else new_log()
    append_each(log, *(numbered(number) for number in range(3)))
    expected = [] if keeping == "expire" else [0, 1, 2]
    crashing = store_of(log)
    kept = {key: crashing.get(Key(key)) for key in objects(log, "partitions/000000/segments/")}
    housekeeping: Callable[[], Any] = getattr(log, keeping)
    housekeeping()
    for key, stored in kept.items():
        assert stored is not None
        crashing.put(Key(key), stored.body)

    assert column(log) == expected
    log.sweep()
    log.sweep()
    assert column(log) == expected
    assert set(objects(log)) == needed(log)
