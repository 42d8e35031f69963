"""What a function is given: events by row or by column, and the moment."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.ids import Epoch
from penstock.runtime.events import (
    Batch,
    Columns,
    Events,
    Meta,
    Moment,
    Origins,
    event_type,
    events_type,
)

AT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
TABLE = pa.table(
    {
        "user": ["ada", "bob", "ada"],
        "n": pa.array([1, None, 3], pa.int64()),
        "price": [0.5, 1.5, 2.5],
        "at": pa.array([AT, AT, AT], pa.timestamp("us", tz="UTC")),
        "_group": [0, 1, 0],
    }
)
META = pa.table(
    {
        "offset": pa.array([7, 8, 9], pa.int64()),
        "event_time": pa.array([AT, None, AT], pa.timestamp("us", tz="UTC")),
        "broker_time": pa.nulls(3, pa.timestamp("us", tz="UTC")),
    }
)


def columns(order: list[int] | None = None) -> Columns:
    """The table, in some order."""
    origins = Origins([("clicks", "0"), ("views", "1")], np.array([0, 1, 0]), META, 2000)
    return Columns(TABLE, None if order is None else np.array(order), origins)


def events(order: list[int], start: int, stop: int) -> Events:
    made = columns(order)
    return events_type(made, event_type(made))(start, stop)


def test_an_event_has_its_columns_as_attributes() -> None:
    """Or by their names, for those that are no identifiers."""
    [first, second] = events([2, 0, 1], 0, 2)

    assert (first.user, first.n, first["price"], first.at) == ("ada", 3, 2.5, AT)
    assert second.as_dict() == {"user": "ada", "n": 1, "price": 0.5, "at": AT}
    assert repr(second) == f"Event({second.as_dict()!r})"


def test_events_are_counted_indexed_and_sliced() -> None:
    """As any sequence is."""
    seen = events([2, 0, 1], 1, 3)

    assert len(seen) == 2
    assert (seen[0].user, seen[-1].user) == ("ada", "bob")
    assert [event.user for event in seen[1:]] == ["bob"]
    with pytest.raises(IndexError):
        seen[2]


def test_events_are_columns_too() -> None:
    """Only this key's share of them; a column with a null is one of objects."""
    seen = events([2, 0, 1], 0, 2)

    assert seen.column("price").tolist() == [2.5, 0.5]
    assert seen.column("price").dtype == np.float64
    assert seen.column("n").tolist() == [3, 1]
    assert seen.column("n").dtype == object
    assert seen.values("user") == ["ada", "ada"]


def test_an_unknown_column_is_named() -> None:
    """Ours are not offered."""
    with pytest.raises(ps.Invalid) as caught:
        events([0, 1, 2], 0, 1).values("uesr")

    assert str(caught.value) == ("the events have no column 'uesr': use one of user, n, price, at.")


def test_an_event_says_where_it_is_from() -> None:
    """By its own row, whatever the order it is seen in."""
    seen = events([2, 0, 1], 0, 3)
    planned = datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)

    assert [event.meta for event in seen] == [
        Meta("clicks", "0", 9, AT, None, planned),
        Meta("clicks", "0", 7, AT, None, planned),
        Meta("views", "1", 8, None, None, planned),
    ]


def test_a_batch_knows_each_key_once() -> None:
    """With its key group and the place of every row's key, as columns of state want them."""
    batch = Batch(TABLE.select(["user", "price"]), ["user"], np.array([4, 5, 4], np.uint16))
    keys, groups, places = batch.by_key()

    assert (len(batch), batch.column("price").tolist()) == (3, [0.5, 1.5, 2.5])
    assert (keys.to_pylist(), groups.tolist(), places.tolist()) == (
        ["ada", "bob"],
        [4, 5],
        [0, 1, 0],
    )


def test_chance_is_that_of_the_key() -> None:
    """The same for every attempt; another for every key, epoch and operator."""

    def drawn(job: str, epoch: int, key: bytes) -> list[float]:
        moment = Moment(job, Epoch(epoch), 0, None)
        moment.move_to(key)
        return [moment.random.random() for _ in range(3)]

    first = drawn("job/a", 1, b"ada")
    others = [drawn("job/a", 1, b"bob"), drawn("job/a", 2, b"ada"), drawn("job/b", 1, b"ada")]

    assert drawn("job/a", 1, b"ada") == first
    assert first not in others


def test_the_moment_is_that_of_the_plan() -> None:
    """Never the machine's, which differs on every attempt."""
    moment = Moment("job", Epoch(3), 1500, None)

    assert moment.epoch == 3
    assert moment.time == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert moment.watermark is None
    assert Moment("job", Epoch(3), 0, 1000).watermark == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
