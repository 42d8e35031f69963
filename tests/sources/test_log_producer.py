"""Producers: where rows go, and when."""

from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import Fenced, Invalid, PenstockError, Unavailable
from penstock.sources import Batching
from penstock.state.key_groups import GROUPS
from penstock.state.key_hash import key_groups
from tests.support.faulty_store import ALWAYS, FaultyStore, Gate
from tests.support.logs import (
    EVENTS,
    NEVER,
    PATIENCE_S,
    column,
    ends,
    new_log,
    numbered,
    placed,
    producer_on,
    rows,
    segments,
    spans,
    store_of,
)


@pytest.mark.parametrize("partitions", [1, 2, 3, 40])
@pytest.mark.parametrize("key", [("user",), ("user", "n"), ("n",)], ids=str)
def test_rows_go_where_their_key_belongs(key: tuple[str, ...], partitions: int) -> None:
    """Where Spark would shuffle them, so that whoever knows the key knows the partition."""
    log = new_log(key=key, partitions=partitions)
    given = [
        {"user": None if n % 11 == 0 else f"user {n % 50}", "n": n % 5 or None} for n in range(200)
    ]
    table = pa.Table.from_pylist(given, EVENTS)
    groups = key_groups([table.column(name) for name in key])
    expected: dict[int, list[Any]] = {number: [] for number in range(partitions)}
    for row, group in zip(given, groups.tolist(), strict=True):
        expected[group * partitions // GROUPS].append(row)

    with log.producer(batching=NEVER) as producer:
        ack = producer.append(table)

    assert {n: list(rows(log, n).values()) for n in range(partitions)} == expected
    assert placed(ack.wait()) == [(n, 0, len(each)) for n, each in expected.items() if each]


def test_rows_without_a_key_go_in_turn() -> None:
    """Call by call, so that the rows of one call stay together."""
    log = new_log(partitions=3)
    with log.producer(batching=NEVER) as producer:
        acks = [producer.append(numbered(n, n)) for n in range(6)]

    found = [column(log, partition=n) for n in range(3)]
    assert sorted(found) == [[0, 0, 3, 3], [1, 1, 4, 4], [2, 2, 5, 5]]
    assert sorted(placed(acks[0].wait() + acks[3].wait()))[0][1:] == (0, 2)


def test_rows_go_where_they_are_told() -> None:
    """To one partition, or in turn although there is a key."""
    log = new_log(key="user", partitions=2)
    with log.producer(batching=NEVER) as producer:
        told = producer.append(numbered(1, 2), 1)
        turns = [producer.append(numbered(n), "round robin") for n in (3, 4)]

    assert placed(told.wait()) == [(1, 0, 2)]
    assert sorted(n for ack in turns for n, _, _ in placed(ack.wait())) == [0, 1]
    assert sorted(column(log) + column(log, partition=1)) == [1, 2, 3, 4]


@pytest.mark.parametrize("partition", [2, -1, "0", "random"], ids=repr)
def test_a_partition_that_is_not_there_is_refused(partition: Any) -> None:
    """And nothing of the call is taken."""
    log = new_log(partitions=2)
    with log.producer(batching=NEVER) as producer:
        with pytest.raises(Invalid):
            producer.append(numbered(1), partition)
        with pytest.raises(Invalid):
            producer.append(numbered(1), partition, sequence=1)

    assert spans(log) == {"0": (0, 0), "1": (0, 0)}


def test_rows_of_one_producer_stay_in_order() -> None:
    """However they are batched, and whoever appends besides."""
    log = new_log()
    with (
        log.producer(batching=Batching(rows=7, linger_s=0.001)) as one,
        log.producer(batching=Batching(rows=3, linger_s=0.001)) as other,
    ):
        acks = []
        for n in range(100):
            acks += [one.append(numbered(n), 0), other.append(numbered(1000 + n), 0)]
    found = column(log)

    assert [n for n in found if n < 1000] == list(range(100))
    assert [n for n in found if n >= 1000] == list(range(1000, 1100))
    starts = [ack.wait()[0].offsets.start for ack in acks]
    assert [found[start] for start in starts] == [
        n for pair in zip(range(100), range(1000, 1100), strict=True) for n in pair
    ]


def test_rows_wait_until_there_are_enough() -> None:
    """A segment for every row would be a request for every row."""
    log = new_log()
    with log.producer(batching=Batching(rows=3, linger_s=3600.0)) as producer:
        few = [producer.append(numbered(n)) for n in (1, 2)]
        assert [ack.is_done for ack in few] == [False, False]
        enough = producer.append(numbered(3))

        assert placed(enough.wait(PATIENCE_S)) == [(0, 2, 3)]
        assert [placed(ack.wait()) for ack in few] == [[(0, 0, 1)], [(0, 1, 2)]]
    assert [piece.rows for piece in segments(log)] == [3]


def test_rows_wait_until_they_are_large_enough() -> None:
    """Long rows do not wait for as many."""
    log = new_log()
    long = [{"user": "x" * 600, "n": 1}]
    with log.producer(batching=Batching(size_bytes=1000, linger_s=3600.0)) as producer:
        few = producer.append(long)
        assert not few.is_done
        enough = producer.append(long)

        assert placed(few.wait(PATIENCE_S) + enough.wait(PATIENCE_S)) == [(0, 0, 1), (0, 1, 2)]


def test_rows_do_not_wait_for_ever() -> None:
    """A quiet producer's rows go by themselves, one call after the other."""
    log = new_log(partitions=2)
    with log.producer(batching=Batching(linger_s=0.01)) as producer:
        for number in range(3):
            acks = [producer.append(numbered(number), partition) for partition in (0, 1)]
            assert [placed(ack.wait(PATIENCE_S)) for ack in acks] == [
                [(partition, number, number + 1)] for partition in (0, 1)
            ]


def test_batches_are_no_larger_than_they_may_be() -> None:
    """What has gathered is cut where one batch is full."""
    log = new_log()
    gate = Gate(store_of(log))
    with producer_on(gate, log, rows=4) as producer:
        producer.append(numbered(*range(4)))
        assert gate.reached.wait(PATIENCE_S)
        for number in range(4, 15):
            producer.append(numbered(number))
        gate.open.set()

    assert column(log) == list(range(15))
    assert [piece.rows for piece in segments(log)] == [4, 4, 4, 3]


def test_what_may_wait_is_bounded() -> None:
    """Whoever appends faster than the store takes it in must wait, or memory runs out."""
    log, row = new_log(), pa.Table.from_pylist([{"user": "x" * 90, "n": 1}], EVENTS)
    most = 10 * row.nbytes
    acks, waiting = [], []
    with log.producer(batching=Batching(rows=5, waiting_bytes_max=most)) as producer:
        for _ in range(300):
            acks.append(producer.append(row))
            waiting.append(row.nbytes * sum(not ack.is_done for ack in acks))

    assert max(waiting) <= most
    assert spans(log) == {"0": (0, 300)}


def test_rows_larger_than_what_may_wait_pass_alone() -> None:
    """Or they would wait for ever."""
    log = new_log()
    batching = Batching(waiting_bytes_max=10, linger_s=3600.0)
    with log.producer(batching=batching) as producer:
        assert ends(lambda: [producer.append(numbered(*range(50))) for _ in range(3)])

    assert spans(log) == {"0": (0, 150)}


def test_what_was_refused_takes_no_room() -> None:
    """A producer that was replaced is told so as often as it tries, and never left waiting."""
    log = new_log()
    batching = Batching(rows=1, waiting_bytes_max=100)
    old = log.producer("ada", batching)
    log.producer("ada").close()
    told: list[PenstockError] = []

    def try_again() -> None:
        for _ in range(20):
            try:
                old.append(numbered(1)).wait()
            except PenstockError as error:
                told.append(error)

    assert ends(try_again)
    assert [isinstance(error, Fenced) for error in told] == [True] * 20


def test_a_closed_producer_takes_no_rows() -> None:
    """Leaving the context sends what is left; closing twice is closing once."""
    log = new_log()
    with log.producer(batching=NEVER) as producer:
        ack = producer.append(numbered(1))
    producer.close()

    assert ack.is_done
    assert column(log) == [1]
    with pytest.raises(Invalid, match="after its producer closed: make a new one"):
        producer.append(numbered(2))


def test_flushing_is_being_sure() -> None:
    """When it returns, everything is durable; when it raises, something is not."""
    log = new_log()
    with log.producer(batching=NEVER) as producer:
        acks = [producer.append(numbered(n)) for n in range(3)]
        producer.flush()
        assert [ack.is_done for ack in acks] == [True] * 3
        assert column(log) == [0, 1, 2]
    dead = FaultyStore(store_of(log), requests={"replace": ALWAYS, "create": ALWAYS})
    failing = producer_on(dead, log, give_up_s=1.0)
    failing.append(numbered(4))
    for _ in range(2):
        with pytest.raises(Unavailable):
            failing.flush()
    with pytest.raises(Unavailable):
        failing.close()


def test_who_waits_too_short_is_told_and_may_wait_again() -> None:
    """Time is for all of a call's rows together, and nothing is lost when it is over."""
    log = new_log(partitions=2, key="user")
    with log.producer(batching=NEVER) as producer:
        ack = producer.append(numbered(*range(20)))
        with pytest.raises(Unavailable, match="wait again"):
            ack.wait(0.01)
        producer.flush()
        assert sum(p.offsets.stop - p.offsets.start for p in ack.wait(PATIENCE_S)) == 20
