"""One partition of one operator, from what came to what is staged, without Spark."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest

import penstock as ps
from penstock.runtime.processing import process
from penstock.runtime.wire import Barrier, Kind, decode
from tests.support.in_process import CLICKS, OnePartition, Sent, click
from tests.support.logs import new_log

Rows = Iterator[dict[str, Any]]
LOG = new_log(CLICKS)


def alone(function: Any, folder: Path, key: str = "user", **job: Any) -> OnePartition:
    """A job of one function and one partition, whose rows go to the table `out`."""
    made = ps.Job("clicks", **{"partitions": 1, **job})
    stream = made.read(LOG, name="clicks", event_time="at").key_by(key).process(function)
    if function.outputs:
        stream.write(ps.Table("out"))
    return OnePartition(made, folder)


@ps.stateful(emits="user string, total long")
def total(user: str, events: ps.Events, so_far: ps.Value[int]) -> Rows:
    """Sums."""
    so_far.set(so_far.get(0) + sum(events.values("n")))
    yield {"user": user, "total": so_far.get()}


def test_an_epoch_is_staged_and_reported(tmp_path: Path) -> None:
    """What the manifest will name is on the store, under names of this attempt."""
    one = alone(total, tmp_path)
    done = one.run(Sent([click("bob", 1), click("ada", 2), click("bob", 3)], first=10))

    assert sorted(done.rows("out", "user", "total", "_input")) == [
        ("ada", 2, [{"from": "clicks/0", "first": 11, "last": 11}]),
        ("bob", 4, [{"from": "clicks/0", "first": 10, "last": 12}]),
    ]
    assert done.rows("out", "_epoch", "_partition", "_sequence") == [(1, 0, 0), (1, 0, 1)]
    report = done.report
    assert (report.run, report.stage, report.partition) == ("run", 1, 0)
    assert (report.rows_in, report.rows_out, report.quarantined) == ({"clicks": 3}, 2, 0)
    assert report.delta is not None
    assert one.shop.store.get(report.delta.ref.key) is not None
    assert [part.kind for part in done.parts] == [Kind.REPORT]


def test_state_carries_over_with_the_lineage(tmp_path: Path) -> None:
    """An attempt that is not committed leaves nothing behind for the next."""
    one = alone(total, tmp_path)
    one.run(Sent([click("ada", 1)]))
    lost = one.attempt(Sent([click("ada", 100)], first=1))
    kept = one.run(Sent([click("ada", 2)], first=1))
    last = one.run(Sent([click("ada", 3)], first=2))

    assert lost.rows("out", "total") == [(101,)]
    assert kept.rows("out", "total") == [(3,)]
    assert last.rows("out", "total") == [(6,)]


def test_an_epoch_without_changes_has_no_delta(tmp_path: Path) -> None:
    """Most partitions of a quiet job cost nothing."""
    one = alone(total, tmp_path)
    done = one.run()

    assert (done.report.delta, done.report.outputs, done.report.rows_out) == (None, {}, 0)


@ps.stateful(emits="user string, n long", each=True)
def echo(user: str, event: ps.Event | None) -> Rows:
    """Every event as it is."""
    assert event is not None
    yield {"user": user, "n": event.n}


@pytest.mark.parametrize(("order", "seen"), [("event-time", [2, 3, 1]), ("log", [1, 2, 3])])
def test_events_are_called_for_one_by_one(tmp_path: Path, order: str, seen: list[int]) -> None:
    """In order, and each row comes from its own event and from no other of the key."""
    one = alone(echo, tmp_path, order=order)
    done = one.run(Sent([click("ada", 1, 9), click("ada", 2, None), click("ada", 3, 5)]))

    assert done.rows("out", "n", "_input") == [
        (n, [{"from": "clicks/0", "first": n - 1, "last": n - 1}]) for n in seen
    ]


@ps.stateful(emits="user string, what string, at long")
def wake(user: str, events: ps.Events, alarm: ps.Timer, set_at: ps.Value[int]) -> Rows:
    """Sets an alarm for every event, and says so when it goes off."""
    if alarm.fired is not None:
        yield {"user": user, "what": "timer", "at": alarm.fired}
    for event in events:
        alarm.set(event.n)
        yield {"user": user, "what": "event", "at": event.n}


def test_timers_fire_in_time_order_before_the_events(tmp_path: Path) -> None:
    """For keys without input too; none before its time, none twice."""
    one = alone(wake, tmp_path)
    first = [click("ada", 300), click("bob", 100), click("cleo", 200), click("bob", 900)]
    one.run(Sent(first))
    fired = one.run(Sent([click("ada", 1000)], first=4), watermark_ms=300)
    after = one.run(watermark_ms=400)

    assert fired.rows("out", "user", "what", "at", "_input") == [
        ("bob", "timer", 100, []),
        ("cleo", "timer", 200, []),
        ("ada", "timer", 300, []),
        ("ada", "event", 1000, [{"from": "clicks/0", "first": 4, "last": 4}]),
    ]
    assert after.rows("out", "user") == []


def test_no_timer_fires_before_time_is_known(tmp_path: Path) -> None:
    """A source that has shown nothing holds event time back."""
    one = alone(wake, tmp_path)
    one.run(Sent([click("ada", 0)]))

    assert one.run(watermark_ms=None).outputs == {}
    assert one.run(watermark_ms=0).rows("out", "what") == [("timer",)]


@ps.stateful(emits="user string, at long")
def later(
    user: str, events: ps.Events, alarm: Annotated[ps.Timer, ps.by_clock("processing")]
) -> Rows:
    """An alarm by the time epochs are planned at."""
    if alarm.fired is not None:
        yield {"user": user, "at": alarm.fired}
    for event in events:
        alarm.set(event.n)


def test_timers_by_processing_time_say_when_the_next_is_due(tmp_path: Path) -> None:
    """So the loop need not run epochs to find out."""
    one = alone(later, tmp_path)
    set_ = one.run(Sent([click("ada", 5000), click("bob", 7000)]), planned_ms=4000)
    fired = one.run(planned_ms=6000)

    assert (set_.report.next_timer_ms, fired.report.next_timer_ms) == (5000, 7000)
    assert fired.rows("out", "user", "at") == [("ada", 5000)]
    assert one.run(planned_ms=7000).report.next_timer_ms is None


@ps.stateful(emits="user string, known long")
def remember(user: str, events: ps.Events, seen: Annotated[ps.Value[int], ps.ttl("10 s")]) -> Rows:
    """What is known of a key before this epoch."""
    yield {"user": user, "known": seen.get(0)}
    seen.set(seen.get(0) + len(events))


def test_state_ends_when_its_time_is_over(tmp_path: Path) -> None:
    """By event time, which is the same on every replay."""
    one = alone(remember, tmp_path)
    one.run(Sent([click("ada", 1, 0)]), watermark_ms=0)
    before = one.run(Sent([click("ada", 1, 9)], first=1), watermark_ms=0)
    after = one.run(Sent([click("ada", 1, 19)], first=2), watermark_ms=9000)

    assert before.rows("out", "known") == [(1,)]
    assert after.rows("out", "known") == [(0,)]


@ps.stateful(emits="user string, drawn double, at timestamp")
def draw(moment: ps.Moment, user: str, events: ps.Events) -> Rows:
    """Chance and time as the epoch has them."""
    yield {"user": user, "drawn": moment.random.random(), "at": moment.time}


def test_chance_and_time_are_the_same_on_every_attempt(tmp_path: Path) -> None:
    """Else an attempt that was half sent on would not agree with the one that follows."""
    one = alone(draw, tmp_path)
    sent = Sent([click("ada", 1), click("bob", 1)])
    first, again = one.attempt(sent), one.attempt(sent)
    one.run(sent)
    later_on = one.run(sent)

    assert first.outputs == again.outputs
    drawn = [row for done in (first, later_on) for row in done.rows("out", "drawn")]
    assert len(set(drawn)) == 4


@ps.vectorized(emits="n long, seen long")
def seen(batch: ps.Batch, counts: ps.Columns[int, int]) -> dict[str, Any]:
    """How often each number was seen, for all numbers at once."""
    keys, groups, places = batch.by_key()
    before, known = counts.get_many(keys, groups)
    now = np.where(known, before, 0) + np.bincount(places, minlength=len(keys))
    counts.put_many(keys, now, groups)
    return {"n": keys, "seen": now}


def test_a_vectorised_function_is_called_once(tmp_path: Path) -> None:
    """With all events, and every row comes from all of them."""
    one = alone(seen, tmp_path, key="n")
    one.run(Sent([click("ada", 1), click("bob", 2)]))
    done = one.run(Sent([click("bob", 2), click("ada", 2), click("ada", 3)], first=2))

    assert done.rows("out", "n", "seen") == [(2, 3), (3, 1)]
    assert done.rows("out", "_input")[0] == ([{"from": "clicks/0", "first": 2, "last": 4}],)


@ps.stateful(emits="user string, total long")
def divide(user: str, events: ps.Events) -> Rows:
    """Fails for nothing."""
    yield {"user": user, "total": 1 // sum(events.values("n"))}


@ps.stateful(emits="user string, total long")
def misspell(user: str, events: ps.Events) -> Rows:
    """Asks for what is not there."""
    yield {"user": user, "total": events.values("m")[0]}


@ps.stateful(emits="user string, total long")
def too_much(user: str, events: ps.Events, so_far: ps.Value[int]) -> Rows:
    """Keeps what is no whole number."""
    so_far.set("many")
    yield {"user": user, "total": 1}


@ps.stateful(emits="user string, total long")
def unfit(user: str, events: ps.Events) -> Rows:
    """Emits a fraction where a whole number is promised."""
    yield {"user": user, "total": 0.5}


@ps.vectorized(emits="user string, total long")
def half(batch: ps.Batch) -> dict[str, Any]:
    """Returns one column of two."""
    return {"user": batch.keys}


@pytest.mark.parametrize(
    ("function", "subject", "found"),
    [
        (divide, "operator 'divide', key 'ada'", "raised ZeroDivisionError: "),
        (misspell, "operator 'misspell', key 'ada'", "was refused: the events have no column 'm'"),
        (too_much, "operator 'too_much', key 'ada'", "was refused: state 'so_far' "),
        (unfit, "operator 'unfit', row 0, column 'total'", "is '0.5', not int64"),
        (half, "operator 'half'", "returned no column 'total'"),
    ],
)
def test_a_function_that_fails_is_named_with_its_key(
    tmp_path: Path, function: Any, subject: str, found: str
) -> None:
    """The driver says it word for word; trying again would not help."""
    failure = alone(function, tmp_path).attempt(Sent([click("ada", 0)])).failure

    assert (failure.kind, failure.subject) == ("Invalid", subject)
    assert failure.found.startswith(found)
    assert isinstance(failure.error(), ps.Invalid)


def test_the_place_in_the_users_code_comes_along(tmp_path: Path) -> None:
    """And none of ours stands before it."""
    failure = alone(divide, tmp_path).attempt(Sent([click("ada", 0)])).failure

    assert (failure.code, failure.stage, failure.partition) == ("UserError", 1, 0)
    assert 'yield {"user": user, "total": 1 // sum(events.values("n"))}' in failure.trace
    assert "calling.py" not in failure.trace


@pytest.mark.parametrize("function", [total, echo, half], ids=["by key", "each", "vectorised"])
def test_a_null_key_is_named_by_its_place(tmp_path: Path, function: Any) -> None:
    """Whoever wrote it can be found, and the row repaired or filtered out."""
    one = alone(function, tmp_path)
    failure = one.attempt(Sent([click("ada", 1), click(None, 2)], "3", 10)).failure

    assert str(failure.error()) == (
        f"operator '{function.name}' was given a null as its key (user), at offset 11 of clicks, "
        "partition 3: filter such events out in a transform, or use on_error='quarantine'."
    )


def test_rows_go_on_to_the_next_operator_with_a_barrier_each(tmp_path: Path) -> None:
    """Also to partitions that get nothing: they could not begin otherwise."""
    job = ps.Job("clicks", partitions=4)
    counted = job.read(LOG, name="clicks", event_time="at").key_by("user").process(total)
    counted.key_by("user").process(total, name="again")
    one = OnePartition(job, tmp_path)
    done = one.attempt(Sent([click(f"user {n}", n) for n in range(40)]))

    sent = [part for part in done.parts if part.stage == 2]
    barriers = [(p.to, decode(p.head, Barrier)) for p in sent if p.kind is Kind.BARRIER]
    rows = {part.to: part.rows for part in sent if part.kind is Kind.ROWS}
    assert barriers == [
        (to, Barrier(run="run", feed=0, origin="total", task=0, tasks=4, rows=rows.get(to, 0)))
        for to in range(4)
    ]
    # The next operator has the same key, so all of them stay in this partition.
    assert rows == {0: done.report.rows_out}


@pytest.mark.parametrize("spoil", [lambda i: i.barriers.clear(), lambda i: i.parts.clear()])
def test_a_misaligned_task_says_so_and_does_nothing(
    tmp_path: Path, spoil: Callable[[Any], None]
) -> None:
    """Not even its state is opened."""
    one = alone(total, tmp_path)
    inbox = one.inbox(one.orders(), [Sent([click("ada", 1)])])
    spoil(inbox)
    [part] = process(one.shop, inbox, 0)

    assert part.kind is Kind.FAILURE
    assert not (tmp_path / "state").exists()


QUIET = 19_000
"""Users up to here make no rows."""


@ps.stateful(emits="user string, n long")
def some(user: str, events: ps.Events, wake: ps.Timer, seen: ps.Value[int]) -> Rows:
    """As many rows as the number of a user says, up to two, and none of most; and one for a
    timer."""
    if not len(events):
        yield {"user": user, "n": -1}
        return
    number = int(user[1:])
    if not number:
        wake.set(5_000)
    seen.set(number)
    for _ in range(number % 3 if number >= QUIET else 0):
        yield {"user": user, "n": number}


def test_rows_of_many_keys_know_where_they_come_from(tmp_path: Path) -> None:
    """However many lots of keys are fetched, and of rows are made columns, one after the other."""
    one = alone(some, tmp_path)
    one.run(Sent([click("u0", 0)]))
    done = one.run(Sent([click(f"u{n}", n) for n in range(20_000)], first=1), watermark_ms=6_000)

    rows = done.rows("out", "user", "n", "_input")
    assert rows[0] == ("u0", -1, [])
    assert len(rows) == 1 + sum(n % 3 for n in range(QUIET, 20_000))
    for user, n, ranges in rows[1:]:
        assert user == f"u{n}"
        assert ranges == [{"from": "clicks/0", "first": n + 1, "last": n + 1}]
