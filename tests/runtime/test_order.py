"""The order of a key's events: total, and the same however the rows travelled."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.runtime.grouping import group_by_key
from penstock.runtime.inbox import Inbox, gather
from penstock.runtime.packing import Packer
from penstock.runtime.processing import _base_order
from penstock.runtime.topology import Topology
from penstock.runtime.wire import Kind, Part
from penstock.state.key_hash import key_groups
from tests.support.in_process import CLICKS, no_spark, workshop
from tests.support.logs import new_log

USERS = ("ada", "bob", "cleo", "", "ä\0b")
CLICKS_LOG, VIEWS_LOG = new_log(CLICKS), new_log(CLICKS)


@ps.stateful()
def see(user: str, events: ps.Events, seen: ps.Value[int]) -> None:
    """Does nothing."""


@cache
def topology(partitions: int, order: str) -> Topology:
    """Two sources that feed one operator."""
    job = ps.Job("clicks", partitions=partitions, order=order)
    views = job.read(VIEWS_LOG, name="views", event_time="at").key_by("user")
    clicks = job.read(CLICKS_LOG, name="clicks", event_time="at").key_by("user")
    ps.merge(views, clicks).process(see)
    return job.topology("memory://root", no_spark)


Place = tuple[int, str, str]
"""Feed, source and partition."""
PLACES: list[Place] = [(0, "views", "0"), (0, "views", "2"), (0, "views", "10"), (1, "clicks", "0")]
Logs = dict[Place, list[tuple[str, int | None]]]
"""User and time of each event, by where it stands; its offset is its index."""

events = st.tuples(st.sampled_from(USERS), st.none() | st.integers(0, 5))
logs = st.fixed_dictionaries({place: st.lists(events, max_size=12) for place in PLACES})


def reference(found: Logs, order: str) -> dict[str, list[tuple[Any, ...]]]:
    """What each key should see, by the definition."""
    rows = []
    for place, listed in found.items():
        for offset, (user, at) in enumerate(listed):
            time = -1 if at is None or order == "log" else at
            rows.append((user, (time, place[0], place[1], int(place[2]), offset)))
    by_key: dict[str, list[tuple[Any, ...]]] = {}
    for user, place in sorted(rows, key=lambda row: row[1]):
        by_key.setdefault(user, []).append(place[1:])
    return by_key


def table(listed: list[tuple[str, int | None]], first: int) -> pa.Table:
    """Events as a reading task has them."""
    times = [None if at is None else datetime.fromtimestamp(at, tz=UTC) for _, at in listed]
    return pa.table(
        {
            "user": pa.array([user for user, _ in listed], pa.string()),
            "n": pa.array(range(len(listed)), pa.int64()),
            "at": pa.array(times, CLICKS.field("at").type),
            "_offset": pa.array(range(first, first + len(listed)), pa.int64()),
            "_event_time": pa.array(times, CLICKS.field("at").type),
        }
    )


def packed(shape: Topology, found: Logs, random: Random) -> Iterator[Part]:
    """The events as parts: ranges cut anywhere."""
    operator = shape.operator(1)
    for (number, source, partition), listed in found.items():
        cuts = sorted(random.sample(range(len(listed)), k=min(2, len(listed))))
        for start, stop in zip([0, *cuts], [*cuts, len(listed)], strict=True):
            packer = Packer.to(shape, 1, number, operator.feeds[number], "run")
            rows = table(listed[start:stop], start)
            yield from packer.pack(rows, source, partition, (start, 0))


def transformed(shape: Topology, found: Logs, random: Random) -> Iterator[Part]:
    """The same events after Spark has moved them between tasks: each row says where it is from."""
    operator = shape.operator(1)
    for number in range(len(operator.feeds)):
        rows = []
        for (feed, source, partition), listed in found.items():
            if feed == number and listed:
                whole = table(listed, 0)
                whole = whole.append_column("_source", pa.array([source] * len(listed)))
                whole = whole.append_column("_partition", pa.array([partition] * len(listed)))
                rows += [whole.slice(at, 1) for at in range(len(listed))]
        random.shuffle(rows)
        for task, row in enumerate(rows):
            packer = Packer.to(shape, 1, number, operator.feeds[number], "run")
            yield from packer.pack(row, None, str(task % 3), (task % 3, task))


def seen_by_key(shape: Topology, parts: Iterable[Part]) -> dict[Any, list[tuple[Any, ...]]]:
    """What each key sees, over all partitions."""
    inboxes = [Inbox(1) for _ in range(shape.partitions)]
    for part in parts:
        assert part.kind is Kind.ROWS
        inboxes[part.to].add(part)
    by_key: dict[Any, list[tuple[Any, ...]]] = {}
    groups: list[tuple[int, bytes]] = []
    for inbox in inboxes:
        gathered = gather(shape.operator(1), inbox.parts, 0)
        base = _base_order(workshop(shape, Path("nowhere")), gathered)
        grouped = group_by_key(gathered.keys, gathered.groups, base)
        groups += zip(grouped.groups, grouped.encoded, strict=True)
        for at, key in enumerate(grouped.keys):
            assert key not in by_key
            rows = grouped.order[grouped.starts[at] : grouped.stops[at]]
            metas = [gathered.origins.of(int(row)) for row in rows]
            feeds = {"views": 0, "clicks": 1}
            by_key[key] = [(feeds[m.source], m.source, int(m.partition), m.offset) for m in metas]
    assert groups == sorted(groups)
    return by_key


@pytest.mark.parametrize("order", ["event-time", "log"])
@pytest.mark.parametrize("pack", [packed, transformed], ids=["read", "transformed"])
@settings(max_examples=50, deadline=None)
@given(found=logs, seed=st.integers(0, 1 << 16))
def test_a_key_sees_its_events_in_the_same_order_whatever_happens(
    order: str, pack: Any, found: Logs, seed: int
) -> None:
    """A replay, another number of partitions or of tasks must not change any result."""
    random = Random(seed)
    for partitions in (1, 2, 4, 8):
        shape = topology(partitions, order)
        parts = list(pack(shape, found, random))
        random.shuffle(parts)

        assert seen_by_key(shape, parts) == reference(found, order)


START = datetime(2026, 1, 1)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [3, -7, 0, 1 << 62, -(1 << 63), 3]),
        (pa.int16(), [3, -7, 0, 3]),
        (pa.float64(), [0.0, -0.0, 1.5, -1.5, 0.0]),
        (pa.bool_(), [True, False, True]),
        (pa.binary(), [b"b", b"", b"a", b"b"]),
        (pa.string(), ["b", "", "a", "ä", "b"]),
        (pa.date32(), [START.date(), (START + timedelta(days=9)).date()]),
        (pa.timestamp("us"), [START, START - timedelta(days=40_000), START]),
        (pa.timestamp("ms", "UTC"), [START.replace(tzinfo=UTC), datetime(1901, 1, 1, tzinfo=UTC)]),
    ],
    ids=str,
)
def test_keys_of_every_type_are_grouped(kind: pa.DataType, values: list[Any]) -> None:
    """Equal keys once, as the values they are; keys in the order of the database."""
    column = pa.chunked_array([pa.array(values, kind)])
    grouped = group_by_key([column], key_groups([column]), None)

    by_key: dict[Any, list[int]] = {}
    for row, value in enumerate(values):
        by_key.setdefault(value, []).append(row)
    spans = zip(grouped.keys, grouped.starts, grouped.stops, strict=True)
    assert {key: grouped.order[start:stop].tolist() for key, start, stop in spans} == by_key
    assert len(grouped.keys) == len(by_key)
    places = list(zip(grouped.groups, grouped.encoded, strict=True))
    assert places == sorted(places)


def test_a_key_of_several_columns_is_a_tuple() -> None:
    """The function is given both, in the order they were named."""
    columns = [pa.chunked_array([["a", "b", "a"]]), pa.chunked_array([[1, 1, 1]])]
    grouped = group_by_key(columns, np.zeros(3, np.uint16), np.array([2, 1, 0]))

    assert (grouped.keys, grouped.order.tolist()) == ([("a", 1), ("b", 1)], [2, 0, 1])


def test_nothing_is_grouped_as_nothing() -> None:
    """Every partition runs in every epoch, also those that got no row."""
    empty = pa.chunked_array([], pa.string())
    for columns in ([empty], [empty, empty]):
        grouped = group_by_key(columns, np.empty(0, np.uint16), None)

        assert (grouped.keys, grouped.starts, grouped.stops) == ([], [], [])
