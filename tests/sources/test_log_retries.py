"""Producers that try again: no row goes twice, whatever is lost on the way and whoever dies."""

import threading
from typing import Any

import pytest

from penstock.errors import Fenced, Gone, Invalid
from penstock.sources import Batching, Log
from penstock.sources.log_append import Writer
from penstock.sources.log_layout import tail_key
from penstock.sources.log_tail import (
    MARK_AGE_MS_MIN,
    MARKS_MAX,
    Mark,
    Tail,
    tail_register,
)
from tests.support.driving import ManualClock
from tests.support.faulty_store import FaultyStore, Gate
from tests.support.logs import (
    AT_ONCE,
    NEVER,
    PATIENCE_S,
    ByHand,
    append_each,
    clock_of,
    column,
    new_log,
    numbered,
    placed,
    producer_on,
    store_of,
    tail_of,
)

REPEATS = 300


@pytest.mark.parametrize("lost", ["answers", "requests"])
@pytest.mark.parametrize("operation", ["put", "create", "replace", "get"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_what_is_lost_on_the_way_is_sent_again_once(lost: str, operation: str, number: int) -> None:
    """A request or its answer: rows are in the log once, in order, and acks say where."""
    log = new_log()
    faulty = FaultyStore(store_of(log), **{lost: {operation: {number, number + 1}}})
    with producer_on(faulty, log) as producer:
        acks = [producer.append(numbered(n, n)) for n in range(3)]
        found = [placed(ack.wait()) for ack in acks]
        append_each(log, numbered(7))
        found += [placed(producer.append(numbered(n)).wait()) for n in (3, 4, 5)]

    assert column(log) == [0, 0, 1, 1, 2, 2, 7, 3, 4, 5]
    assert found == [[(0, 0, 2)], [(0, 2, 4)], [(0, 4, 6)], [(0, 7, 8)], [(0, 8, 9)], [(0, 9, 10)]]


def test_a_sweep_between_staging_and_swap_costs_no_row() -> None:
    """What was staged is stale by then, and is staged again; also when the look at TAIL fails."""
    log = new_log()
    append_each(log, numbered(0))
    log.sweep()
    log.sweep()
    for number in (2, 3):
        faulty = FaultyStore(store_of(log), requests={"get": {number}})
        with producer_on(faulty, log) as producer:
            producer.append(numbered(number))

    assert column(log) == [0, 2, 3]


def test_a_swap_whose_answer_is_lost_is_not_made_again() -> None:
    """Step by step: the mark in TAIL tells that the batch is in."""
    log = new_log()
    faulty = FaultyStore(store_of(log), answers={"create": {1}, "replace": {1}})
    hand = ByHand.make(log, faulty)

    assert [hand.append(1, 0, 10), hand.append(2, 1, 20, 21)] == [{1: 1}, {2: 3}]
    assert hand.append(2, 1, 20, 21) == {2: 3}
    assert column(log) == [10, 20, 21]
    assert tail_of(log).marks["hand"].sequence == 2


def test_a_producer_that_starts_again_knows_how_far_it_got() -> None:
    """It goes on behind the last batch, without asking anybody but the log."""
    log = new_log(partitions=2)
    with log.producer("ada", AT_ONCE) as first:
        assert [first.last_sequence(n) for n in (0, 1)] == [0, 0]
        for sequence in (1, 5):
            first.append(numbered(sequence), 0, sequence)
        first.append(numbered(9), 1)

    with log.producer("ada", AT_ONCE) as second:
        assert [second.last_sequence(n) for n in (0, 1)] == [5, 1]
        assert [second.append(numbered(n), 0, n).wait() for n in (1, 5)] == [[], []]
        assert placed(second.append(numbered(6), 0, 6).wait()) == [(0, 2, 3)]

    assert (column(log), column(log, partition=1)) == ([1, 5, 6], [9])


def test_a_replaced_producer_is_refused() -> None:
    """In every partition, and for good: a process that was thought dead may wake up."""
    log = new_log(partitions=2)
    old = log.producer("ada", AT_ONCE)
    old.append(numbered(1), 0).wait()
    with log.producer("ada", AT_ONCE) as new:
        for partition in (0, 1):
            with pytest.raises(Fenced) as caught:
                old.append(numbered(2), partition).wait()
            assert (caught.value.held, caught.value.newest) == (1, 2)
            with pytest.raises(Fenced):
                old.append(numbered(3), partition)
        with pytest.raises(Fenced):
            old.close()
        new.append(numbered(4), 0)

    assert (column(log), column(log, partition=1)) == ([1, 4], [])


def test_a_replaced_producer_is_refused_where_nobody_was_told() -> None:
    """A partition that is younger than the claim has no mark of it; the first one has."""
    log = new_log(clock=ManualClock())
    for _ in range(2):
        log.producer("ada").close()
    log.change(partitions=2)
    old = ByHand(log, Writer(log.topic().id, "ada", 1), store_of(log), partition=1)
    new = ByHand(log, Writer(log.topic().id, "ada", 2), store_of(log), partition=1)

    with pytest.raises(Fenced) as caught:
        old.append(1, 0, 10)
    assert (caught.value.held, caught.value.newest) == (1, 2)
    assert new.append(1, 0, 20) == {1: 1}
    assert column(log, partition=1) == [20]


@pytest.mark.parametrize("sequence", [1, 2])
def test_a_failed_batch_is_not_called_done(sequence: int) -> None:
    """The same number again is a retry; the log has not got it, and that is told once more."""
    log = new_log()
    old = log.producer("ada", AT_ONCE)
    log.producer("ada").close()
    with pytest.raises(Fenced):
        old.append(numbered(1), 0, 1).wait()

    with pytest.raises(Fenced):
        old.append(numbered(1), 0, sequence).wait()
    assert column(log) == []


def test_a_batch_on_its_way_is_not_called_durable() -> None:
    """Whoever appends the same number again waits for the same rows, or is told to wait."""
    log = new_log()
    gate = Gate(store_of(log))
    producer = producer_on(gate, log)
    first = producer.append(numbered(1), 0, 1)
    assert gate.reached.wait(PATIENCE_S)
    try:
        again = producer.append(numbered(1), 0, 1)
    except Invalid:
        again = first
    is_done_early = again.is_done
    gate.open.set()
    producer.close()

    assert not is_done_early
    assert column(log) == [1]


def test_a_number_that_comes_again_at_any_moment_adds_nothing() -> None:
    """While its batch waits, is on its way, arrives, or is long in: the answer is the same."""
    log = new_log()
    with log.producer("ada", AT_ONCE) as producer:
        acks = [
            [producer.append(numbered(number), 0, number) for _ in range(4)]
            for number in range(1, REPEATS + 1)
        ]

    assert column(log) == list(range(1, REPEATS + 1))
    for number, (first, *again) in enumerate(acks):
        assert placed(first.wait()) == [(0, number, number + 1)]
        assert all(placed(ack.wait()) in ([], [(0, number, number + 1)]) for ack in again)


@pytest.mark.parametrize(
    ("partition", "sequence"), [(None, 1), ("round robin", 1), (0, 0), (0, -2)]
)
def test_a_number_needs_a_partition_and_begins_at_one(partition: Any, sequence: int) -> None:
    """Or it could not be told what the log has already."""
    log = new_log()
    with log.producer("ada", NEVER) as producer:
        with pytest.raises(Invalid, match="give a number of 1 or more, a partition, and rows"):
            producer.append(numbered(1), partition, sequence)
        with pytest.raises(Invalid, match="with 0 rows"):
            producer.append([], 0, 1)


def test_numbers_given_and_numbers_made_do_not_meet() -> None:
    """Rows without a number are counted too: one of theirs is taken, or told where it went."""
    log = new_log()
    with log.producer("ada", NEVER) as producer:
        unnumbered = producer.append(numbered(1), 0)
        try:
            acks = [unnumbered, producer.append(numbered(2), 0, 1)]
        except Invalid:
            acks = [unnumbered]

    found = column(log)
    assert [placed(ack.wait()) for ack in acks] == [[(0, n, n + 1)] for n in range(len(found))]


def marked(log: Log, nameless: int, **named: Mark) -> None:
    """Let so many producers without a name have appended, a millisecond after one another."""
    began_ms = round(clock_of(log).wall() * 1000) - nameless
    others = {f"nameless-{n}": Mark(0, 3, 0, began_ms + n) for n in range(nameless)}
    topic = log.topic()
    tail = Tail(topic=topic.id, partition=0, version=1, marks={**named, **others})
    assert store_of(log).create(tail_key(0), tail_register(0).encode(tail)) is not None


def test_a_producer_with_a_name_is_never_forgotten() -> None:
    """However many without one come after it: its last number is all that keeps rows single."""
    log = new_log()
    marked(log, MARKS_MAX, ada=Mark(4, 17, 0, 0))
    clock_of(log).sleep(100 * MARK_AGE_MS_MIN / 1000)
    append_each(log, *(numbered(number) for number in range(3)))
    with log.producer("ada", AT_ONCE) as producer:
        assert producer.last_sequence(0) == 17
        assert producer.append(numbered(7), 0, 17).wait() == []
        producer.append(numbered(8), 0, 18)

    assert column(log) == [0, 1, 2, 8]


def test_a_producer_without_a_name_is_forgotten_when_it_was_silent_for_long() -> None:
    """And is told so, for what it sent last can no longer be told from what it sends."""
    log = new_log()
    marked(log, MARKS_MAX)
    clock_of(log).sleep(100 * MARK_AGE_MS_MIN / 1000)
    append_each(log, numbered(0))
    names = set(tail_of(log).marks)
    silent = ByHand(log, Writer(log.topic().id, "nameless-0", 0), store_of(log))
    known = ByHand(log, Writer(log.topic().id, "nameless-1", 0), store_of(log))

    assert len(names) == MARKS_MAX
    assert "nameless-0" not in names
    with pytest.raises(Gone, match="was silent for so long that the log has forgotten it"):
        silent.append(4, 3, 1)
    assert known.append(4, 3, 2) == {4: 2}
    assert column(log) == [0, 2]


def test_producers_at_work_are_not_forgotten() -> None:
    """However many they are."""
    log = new_log()
    marked(log, 2 * MARKS_MAX)
    append_each(log, numbered(0))

    assert len(tail_of(log).marks) == 2 * MARKS_MAX + 1


def test_many_producers_at_once_lose_nothing() -> None:
    """Every swap but one is lost, and built again on the one that won."""
    log = new_log()

    def work(name: int) -> None:
        with log.producer(batching=Batching(rows=2, linger_s=0.001)) as producer:
            for n in range(20):
                producer.append(numbered(100 * name + n), 0)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = column(log)

    assert sorted(found) == [100 * name + n for name in range(6) for n in range(20)]
    for name in range(6):
        assert [n for n in found if n // 100 == name] == [100 * name + n for n in range(20)]
