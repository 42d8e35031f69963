"""Dead letters: what cannot be processed is kept in the same commit as all that could."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

import penstock as ps
from tests.support.in_process import (
    CLICKS,
    LocalRun,
    OnePartition,
    Sent,
    append,
    click,
    clicks_log,
)
from tests.support.logs import new_log

Rows = Iterator[dict[str, Any]]
LOG = new_log(CLICKS)


@ps.stateful(emits="user string, total long")
def total(user: str, events: ps.Events, so_far: ps.Value[int], seen: ps.Map[int, int]) -> Rows:
    """Sums, and cannot stand a 13."""
    for event in events:
        so_far.set(so_far.get(0) + event.n)
        seen.set(event.n, 1)
        if event.n == 13:
            raise ValueError("thirteen")
        yield {"user": user, "total": so_far.get() if event.n != 7 else 0.5}


@ps.stateful(emits="user string, total long", each=True)
def each(user: str, event: ps.Event | None, so_far: ps.Value[int], wake: ps.Timer) -> Rows:
    """The same by event, with an alarm that cannot stand being called."""
    if event is None:
        raise RuntimeError("woken")
    so_far.set(so_far.get(0) + event.n)
    wake.set(event.n)
    if event.n == 13:
        raise ValueError("thirteen")
    yield {"user": user, "total": so_far.get()}


def partition(function: Any, folder: Path) -> OnePartition:
    job = ps.Job("clicks", partitions=1)
    stream = job.read(LOG, name="clicks", event_time="at").key_by("user")
    stream.process(function, on_error="quarantine").write(ps.Table("out"))
    return OnePartition(job, folder)


LETTER = ("user", "n", "_key", "_error", "_source", "_source_partition", "_offset")


def test_only_the_event_that_fails_is_a_letter(tmp_path: Path) -> None:
    """The others of its call are processed without it, and other keys do not notice."""
    one = partition(total, tmp_path)
    one.run(Sent([click("ada", 1)]))
    done = one.run(Sent([click("ada", 2), click("bob", 3), click("ada", 13)], first=1))
    after = one.run(Sent([click("ada", 4)], first=4))

    assert sorted(done.rows("out", "user", "total")) == [("ada", 3), ("bob", 3)]
    assert done.report.quarantined == 1
    assert done.rows("total.dead-letters", *LETTER) == [
        ("ada", 13, "'ada'", "ValueError: thirteen", "clicks", "0", 3),
    ]
    assert after.rows("out", "total") == [(7,)]


@pytest.mark.parametrize("bad", [(0,), (173,), (5, 6, 100), tuple(range(174))], ids=len)
def test_the_innocent_are_not_set_aside(tmp_path: Path, bad: tuple[int, ...]) -> None:
    """One bad event made letters of all of its key's: 173 that were good."""
    one = partition(total, tmp_path)
    events = [click("ada", 13 if n in bad else 1) for n in range(174)]
    done = one.run(Sent(events, first=1000))

    assert done.rows("total.dead-letters", "_offset") == [(1000 + n,) for n in bad]
    good = 174 - len(bad)
    assert [row[0] for row in done.rows("out", "total")] == list(range(1, good + 1))
    inputs = [row[0] for row in done.rows("out", "_input")]
    seen = {n for each in inputs for r in each for n in range(r["first"], r["last"] + 1)}
    assert seen.isdisjoint(1000 + n for n in bad)


def test_halves_see_their_own_times(tmp_path: Path) -> None:
    """State ages by the latest event of a call, also of one that is made again with fewer."""

    @ps.stateful(emits="seen boolean")
    def known(user: str, events: ps.Events, last: Annotated[ps.Value[int], ps.ttl("10 s")]) -> Rows:
        if any(event.n == 13 for event in events):
            raise ValueError("thirteen")
        yield {"seen": last.get() is not None}
        last.set(1)

    one = partition(known, tmp_path)
    sent = [click("ada", 1, 0), click("ada", 1, 1), click("ada", 13, 5), click("ada", 1, 30)]
    done = one.run(Sent(sent))

    # The calls are (0 s, 1 s), then (5 s), which raises, then (30 s), which is too late.
    assert done.rows("out", "seen") == [(False,), (False,)]


LIMITED = [
    (0, "1 %", False),
    (1, "1 %", False),
    (2, "1 %", True),
    (2, "2 %", False),
    (3, 3, False),
    (4, 3, True),
    (1, 0, True),
]


@pytest.mark.parametrize(("bad", "limit", "stops"), LIMITED)
def test_too_many_letters_stop_the_job(
    tmp_path: Path, bad: int, limit: int | str, stops: bool
) -> None:
    """A mistake in the function sets everything aside, and the job looks healthy."""
    log = clicks_log(tmp_path)
    append(log, [click("ada", 13 if n < bad else 1) for n in range(100)])
    job = ps.Job("clicks", partitions=2)
    policy = ps.quarantine(at_most=limit)
    read = job.read(log, name="clicks", event_time="at").key_by("user")
    read.process(total, on_error=policy).write(ps.Table("out"))
    run = LocalRun(job, tmp_path)

    if not stops:
        run.run()
        assert len(run.rows("out", "total")) == 100 - bad
        return
    with pytest.raises(ps.Invalid, match=rf"set {bad} of 100 events aside, and may set aside"):
        run.run()
    assert run.root.head().epoch == 0


@pytest.mark.parametrize("limit", ["1", "101 %", "% 1", -1, True, 0.5], ids=str)
def test_a_limit_is_a_number_or_a_share(limit: Any) -> None:
    """Said when the job is written."""
    with pytest.raises(ps.Invalid, match="is no limit: use a number or '1 %'"):
        ps.quarantine(at_most=limit)


def test_a_row_that_does_not_fit_undoes_its_call(tmp_path: Path) -> None:
    """It is found out while the call can still be undone."""
    one = partition(total, tmp_path)
    done = one.run(Sent([click("ada", 7), click("bob", 1)]))
    after = one.run(Sent([click("ada", 1)], first=2))

    [error] = [row[0] for row in done.rows("total.dead-letters", "_error")]
    assert error.startswith("operator 'total', row 0, column 'total' is '0.5', not int64")
    assert (done.rows("out", "user", "total"), after.rows("out", "total")) == ([("bob", 1)], [(1,)])


def test_one_event_of_a_key_can_fail_alone(tmp_path: Path) -> None:
    """Called event by event, those before and after it count."""
    one = partition(each, tmp_path)
    done = one.run(Sent([click("ada", 1), click("ada", 13), click("ada", 2)]))

    assert done.rows("out", "total") == [(1,), (3,)]
    assert done.rows("each.dead-letters", "n", "_offset") == [(13, 1)]


def test_a_timer_that_fails_is_a_letter_without_an_event(tmp_path: Path) -> None:
    """It is not called again for the same moment."""
    one = partition(each, tmp_path)
    one.run(Sent([click("ada", 1)]))
    done = one.run(watermark_ms=5)
    after = one.run(watermark_ms=6)

    assert done.rows("each.dead-letters", *LETTER) == [
        (None, None, "'ada'", "RuntimeError: woken", None, None, None)
    ]
    assert after.outputs == {}


def test_an_event_without_a_key_is_a_letter(tmp_path: Path) -> None:
    """The others of its part are processed, in their order."""
    one = partition(total, tmp_path)
    rows = [click("ada", 1, 9), click(None, 2, 1), click("ada", 3, 5), click(None, 13, 0)]
    done = one.run(Sent(rows, "4", 10))

    assert done.rows("out", "total") == [(3,), (4,)]
    assert done.rows("out", "_input")[0] == ([{"from": "clicks/4", "first": 10, "last": 12}],)
    assert done.rows("total.dead-letters", *LETTER) == [
        (None, 2, "None", "the key is null", "clicks", "4", 11),
        (None, 13, "None", "the key is null", "clicks", "4", 13),
    ]
