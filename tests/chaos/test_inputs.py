"""Made-up events reach what a job is made of: timers, joins, state that is read again."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from examples.sessions import sessions_job
from penstock.chaos.asked import Asked
from penstock.chaos.dressing import dressed
from penstock.chaos.driver import inputs_of
from penstock.chaos.inputs import generated_for
from penstock.sources.protocol import Limits
from tests.support.in_process import SETTINGS, LocalRun

RECORDS = 2_000
VISITS = pa.schema([("user", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
ORDERS = pa.schema([("buyer", pa.string()), ("shop", pa.string()), ("paid", pa.bool_())])


def made_up(job: ps.Job, records: int = RECORDS) -> ps.Job:
    """The job as a chaos run has it."""
    asked = Asked(file="job.py", records=records, seed=3)
    return dressed(job, sources=inputs_of(job, generated_for(job, asked, 0, ())))


def ran(job: ps.Job, folder: Path) -> LocalRun:
    found = LocalRun(made_up(job), folder)
    found.run(replace(SETTINGS, limits=Limits(records=200)))
    return found


def test_sessions_of_made_up_visits_end(tmp_path: Path) -> None:
    """They end after half an hour of silence: with events a millisecond apart, none ever did."""
    ps.Log.create(str(tmp_path / "visits"), VISITS)
    rows = ran(sessions_job(str(tmp_path / "visits")), tmp_path).rows("sessions", "user", "events")

    users = Counter(user for user, _ in rows)
    assert len(users) == RECORDS // 100
    assert min(users.values()) >= 5
    assert max(events for _, events in rows) >= 5
    assert RECORDS // 2 < sum(events for _, events in rows) <= RECORDS


@ps.stateful(emits="buyer string, shop string, orders long")
def matched(key: tuple[str, str], events: ps.Events, orders: ps.Value[int]) -> Iterator[Any]:
    """Orders of one buyer in one shop."""
    orders.set(orders.get(0) + len(events))
    yield {"buyer": key[0], "shop": key[1], "orders": orders.get()}


@ps.stateful(emits="user string, sources long")
def met(user: str, events: ps.Events, seen: ps.Value[list[str]]) -> Iterator[Any]:
    """How many sources a key came from."""
    found = {*seen.get([]), *(event.meta.source for event in events)}
    seen.set(sorted(found))
    yield {"user": user, "sources": len(found)}


@ps.stateful
def counted(paid: bool, events: ps.Events, seen: ps.Value[int]) -> None:
    """By a key of which there are two: too few to be one of the made-up keys."""
    seen.set(seen.get(0) + len(events))


def two_sources(folder: Path) -> ps.Job:
    """Visits and orders, which call the same people by other names."""
    job = ps.Job("shops", partitions=2)
    visits = job.read(ps.Log.create(str(folder / "visits"), VISITS), name="visits")
    orders = job.read(ps.Log.create(str(folder / "orders"), ORDERS), name="orders")
    ps.merge(visits.key_by("user"), orders.key_by("buyer")).process(met).write(ps.Table("met"))
    orders.key_by("buyer", "shop").process(matched).write(ps.Table("matched"))
    orders.key_by("paid").process(counted)
    return job


def test_keys_meet_across_sources_and_come_again_whole(tmp_path: Path) -> None:
    """Whatever a source calls its column, and however many columns a key has."""
    job = two_sources(tmp_path)
    made = generated_for(job, Asked(file="job.py", records=RECORDS), 0, ())
    found = ran(job, tmp_path)

    assert {name: (each.key, each.key_with) for name, each in made.items()} == {
        "visits": ("user", ()),
        "orders": ("buyer", ("shop",)),
    }
    assert {sources for _, sources in found.rows("met", "user", "sources")} == {2}
    orders = Counter(each[:2] for each in found.rows("matched", "buyer", "shop", "orders"))
    assert len(orders) == RECORDS // 2 // 100
    assert min(orders.values()) > 1


@pytest.mark.parametrize(("records", "keys"), [(1, 1), (150, 1), (20_000, 200), (10**6, 500)])
def test_there_are_fewer_keys_than_events(tmp_path: Path, records: int, keys: int) -> None:
    """A hundred times fewer, and never more than five hundred."""
    ps.Log.create(str(tmp_path / "visits"), VISITS)
    job = sessions_job(str(tmp_path / "visits"))
    made = generated_for(job, Asked(file="job.py", records=records), 0, ())["visits"]

    assert made.keys == keys
