"""Dead letters: what cannot be processed is kept in the same commit as all that could."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import penstock as ps
from tests.support.in_process import CLICKS, OnePartition, Sent, click
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


def test_a_key_that_fails_stays_as_it_was(tmp_path: Path) -> None:
    """All events of the call are letters, its rows are gone, and other keys do not notice."""
    one = partition(total, tmp_path)
    one.run(Sent([click("ada", 1)]))
    done = one.run(Sent([click("ada", 2), click("bob", 3), click("ada", 13)], first=1))
    after = one.run(Sent([click("ada", 4)], first=4))

    assert done.rows("out", "user", "total") == [("bob", 3)]
    assert done.report.quarantined == 2
    assert done.rows("total.dead-letters", *LETTER) == [
        ("ada", 2, "'ada'", "ValueError: thirteen", "clicks", "0", 1),
        ("ada", 13, "'ada'", "ValueError: thirteen", "clicks", "0", 3),
    ]
    assert after.rows("out", "total") == [(5,)]


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
