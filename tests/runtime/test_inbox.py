"""Alignment: a task begins only with everything of one run, each once."""

from typing import Any

import pytest

import penstock as ps
from penstock.errors import Unavailable
from penstock.ids import Epoch, Generation, Token
from penstock.runtime.inbox import Inbox, Misaligned
from penstock.runtime.wire import Barrier, Kind, Orders, Part, RowsHead, encode


def orders(*origins: tuple[str, int]) -> Orders:
    """Orders that speak of these feeds."""
    return Orders(
        run="run",
        epoch=Epoch(1),
        generation=Generation(1),
        token=Token(1),
        watermark_ms=None,
        planned_ms=0,
        files=(),
        deltas=(),
        files_at=None,
        cuts_snapshot=False,
        origins=origins,
    )


def barrier(task: int, rows: int = 0, feed: int = 0, run: str = "run") -> Part:
    made = Barrier(run=run, feed=feed, origin="clicks", task=task, tasks=2, rows=rows)
    return Part(0, 1, Kind.BARRIER, encode(made))


def rows(count: int) -> Part:
    head = RowsHead(feed=0, source="clicks", partition="0", rank=(0, 0))
    return Part(0, 1, Kind.ROWS, encode(head), count, b"")


def inbox(*parts: Part, of: Orders | None = None) -> Inbox:
    """An inbox of a partition with two upstream tasks, and what came."""
    made = Inbox(1)
    made.add(Part(0, 1, Kind.ORDERS, encode(of or orders(("clicks", 2)))))
    for part in parts:
        made.add(part)
    return made


def test_everything_that_was_sent_has_come() -> None:
    """Then, and only then, there are orders to follow."""
    whole = inbox(barrier(1, 2), rows(2), rows(1), barrier(0, 1))

    assert whole.checked("count", 0) == orders(("clicks", 2))
    assert whole.rows_in() == {"clicks": 3}


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([barrier(0)], "got barriers of tasks [0] of 'clicks', where there are 2"),
        ([], "got barriers of tasks [] of 'clicks', where there are 2"),
        ([barrier(0), barrier(0)], "got barriers of tasks [0, 0] of 'clicks', where there are 2"),
        (
            [barrier(0), barrier(1), barrier(1)],
            "got barriers of tasks [0, 1, 1] of 'clicks', where there are 2",
        ),
        ([barrier(0), barrier(1, run="old")], "got a barrier of 'clicks' of another run"),
        ([barrier(0, 1), barrier(1, 2), rows(2)], "got 2 rows of 3"),
        ([barrier(0, 1), barrier(1), rows(1), rows(1)], "got 2 rows of 1"),
    ],
    ids=["missing", "none", "doubled", "one more", "another run", "too few", "too many"],
)
def test_anything_else_is_misaligned(parts: list[Part], said: str) -> None:
    """Rows of a lost attempt, or twice those of one, would be wrong sums for ever."""
    with pytest.raises(Misaligned) as caught:
        inbox(*parts).checked("count", 3)

    assert str(caught.value) == (
        f"operator 'count', partition 3 {said}: "
        "the epoch is tried again; if it goes on, report this."
    )


def test_a_partition_without_orders_does_nothing() -> None:
    """It would not know which version of its state to open."""
    with pytest.raises(Misaligned, match="got no orders"):
        Inbox(1).checked("count", 0)


def test_being_misaligned_passes() -> None:
    """The epoch is tried again, as with any other loss."""
    assert issubclass(Misaligned, Unavailable)
    assert not issubclass(Misaligned, ps.Invalid)


def test_one_origin_may_feed_an_operator_twice() -> None:
    """By two keys, or with two outputs: each feed has barriers of its own."""
    twice = orders(("clicks", 1), ("clicks", 1))
    both = inbox(barrier(0, 1), rows(1), barrier(0, feed=1), of=twice)

    assert both.checked("join", 0) == twice
    with pytest.raises(Misaligned, match=r"got barriers of tasks \[\] of 'clicks'"):
        inbox(barrier(0, 1), rows(1), of=twice).checked("join", 0)


@pytest.mark.parametrize("came", [[], [5, 7]])
def test_where_nobody_knows_the_tasks_any_will_do_once(came: list[Any]) -> None:
    """Spark decides how many tasks a transform takes; the driver counts the rows instead."""
    unknown = orders(("clicks", 0))

    assert inbox(*map(barrier, came), of=unknown).checked("count", 0) == unknown
    with pytest.raises(Misaligned):
        inbox(barrier(5), barrier(5), of=unknown).checked("count", 0)
