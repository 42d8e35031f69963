"""Looking into state: what is shown is what the job stored, at any epoch that is kept."""

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.checkpoint import Draft, Lineage, MemoryStore, PartitionState, Retention
from penstock.checkpoint.inspect import KEY_COLUMN, StateView, plain
from penstock.checkpoint.restore import Identity, Restorer
from penstock.checkpoint.root import Root
from penstock.checkpoint.staging import stage_delta
from penstock.clock import SystemChance, SystemClock
from penstock.errors import Corrupt, Gone, Invalid
from penstock.ids import Attempt, Epoch, Generation
from penstock.state import Columns, EpochTimes, List, Map, Marker, Timer, Value, Workspace, ttl
from penstock.state.declare import declared
from penstock.state.host import HostFolder
from penstock.state.key_groups import groups_of, partition_of
from penstock.state.key_hash import key_groups
from penstock.state.keys import encode_key
from tests.support.small_job import OPERATOR, SETTINGS, SmallJob

NOW_MS = 1_700_000_000_000
PARTITIONS = 4


@dataclass
class Place:
    name: str
    size: int


def everything(  # noqa: PLR0917 - one of each kind
    total: Value[int],
    short: Annotated[Value[str], ttl("1 day")],
    place: Value[Place],
    price: Value[Decimal],
    seen: Annotated[Map[str, float], ttl("1 day", clock="processing")],
    days: Map[tuple[date, int], int],
    last: List[int],
    brief: Annotated[List[str], ttl("1 hour")],
    wake: Timer,
    dense: Columns[int, float],
) -> None:
    """Every kind of state there is, with and without a time to live."""


class WideJob:
    """A job whose keys are spread over several partitions as Spark would spread them."""

    def __init__(self, folder: Path, key_type: pa.DataType) -> None:
        self.root = Root(MemoryStore())
        self.session = self.root.lead("job", "test")
        self.host = HostFolder(folder, SystemChance())
        self.restorer = Restorer(self.root.store, SETTINGS, SystemClock())
        self.key_type = key_type

    def epoch(self, changes: dict[Any, dict[str, Any]], dense: int = 0) -> None:
        """Sets totals and more, by key and name of the state."""
        states = {
            partition: PartitionState(delta=self._attempt(partition, changes, dense))
            for partition in range(PARTITIONS)
        }
        self.session.commit(Draft(operators={"count": states}))

    def _attempt(self, partition: int, changes: dict[Any, dict[str, Any]], dense: int) -> Any:
        epoch, attempt = Epoch(self.session.head.epoch + 1), Attempt(SystemChance().unique())
        who = Identity("job", "count", partition, Generation(1))
        folder = self.host.partition("job", "count", partition)
        lineage = self.root.lineages().get(("count", partition))
        opened = self.restorer.open(who, lineage or Lineage((), ()), folder)
        try:
            mine = groups_of(partition, PARTITIONS)
            times = EpochTimes(NOW_MS, NOW_MS)
            space = Workspace(opened.database, "count", declared(everything), mine, times)
            for key, states in changes.items():
                group = self.group(key)
                if partition_of(group, PARTITIONS) == partition:
                    space.bind(group, encode_key(key))
                    for name, change in states.items():
                        change(space.states[name])
            if dense:
                numbers = np.arange(dense)
                groups = np.full(dense, mine.start, np.uint16)
                space.states["dense"].put_many(numbers, numbers * 1.0, groups)
            marker = Marker(
                job="job", operator="count", partition=partition, generation=Generation(1),
                epoch=epoch, attempt=attempt,
            )  # fmt: skip
            delta = space.finish(folder.delta(epoch, attempt), marker, SETTINGS)
            return None if delta is None else stage_delta(self.root.store, delta)
        finally:
            opened.close()

    def group(self, key: Any) -> int:
        return int(key_groups([pa.array([key], self.key_type)])[0])


def setting(value: Any) -> Any:
    return lambda handle: handle.set(value)


@pytest.fixture
def job(tmp_path: Path) -> WideJob:
    return WideJob(tmp_path / "host", pa.string())


def full() -> dict[str, Any]:
    """One key with something of everything."""

    def see(handle: Any) -> None:
        handle.set("a", 1.5)
        handle.set("b", 2.0)

    return {
        "total": setting(7),
        "short": setting("soon gone"),
        "place": setting(Place("here", 3)),
        "price": setting(Decimal("9.50")),
        "seen": see,
        "days": lambda handle: handle.set((date(2026, 1, 2), 3), 4),
        "last": lambda handle: handle.extend([3, 1, 2]),
        "brief": lambda handle: handle.append("one"),
        "wake": lambda handle: handle.set(datetime(2026, 1, 2, 3, tzinfo=UTC)),
    }


def test_every_kind_of_state_is_shown(job: WideJob, tmp_path: Path) -> None:
    """With and without a time to live, of any type, without the job's own classes."""
    job.epoch({"ann": full()})
    view = StateView(job.root, "count", scratch=tmp_path / "scratch")

    assert view.get("ann") == {
        "total": 7,
        "short": "soon gone",
        "place": {"name": "here", "size": 3},
        "price": "9.50",
        "seen": {"a": 1.5, "b": 2.0},
        "days": {(date(2026, 1, 2), 3): 4},
        "last": [3, 1, 2],
        "brief": ["one"],
        "wake": ["2026-01-02T03:00:00+00:00"],
    }
    assert view.get("nobody") == {}


def test_keys_are_found_in_whatever_partition_they_are(job: WideJob, tmp_path: Path) -> None:
    """Each in its own, and none twice."""
    expected = {f"user{number}": number for number in range(50)}
    job.epoch({key: {"total": setting(number)} for key, number in expected.items()})
    view = StateView(job.root, "count", scratch=tmp_path / "scratch")

    assert {key: view.get(key) for key in expected} == {
        key: {"total": number} for key, number in expected.items()
    }
    rows = list(view.scan())
    assert {key: states["total"] for key, states in rows} == expected
    assert len(rows) == 50
    order = [(job.group(key), encode_key(key)) for key, _ in rows]
    assert order == sorted(order)
    assert list(view.scan(3)) == rows[:3]


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
def test_a_number_is_found_whatever_its_width_in_the_job(kind: pa.DataType, tmp_path: Path) -> None:
    """Spark hashes an int and a long differently, and a Python int is neither."""
    job = WideJob(tmp_path / "host", kind)
    job.epoch({number: {"total": setting(number * 2)} for number in range(40)})
    view = StateView(job.root, "count", scratch=tmp_path / "scratch")

    found = {number: (view.get(number), view.get(number, kind)) for number in range(40)}

    expected = {number: ({"total": number * 2}, {"total": number * 2}) for number in range(40)}
    assert found == expected


def test_an_earlier_epoch_shows_what_was_then(tmp_path: Path) -> None:
    """Retained or pinned, by number or by name, and the last one unless told otherwise."""
    job = SmallJob(MemoryStore(), tmp_path / "host")
    for number in range(1, 6):
        job.epoch({"ann": number, f"user{number}": 1})
    job.root.pin("good", Epoch(2))
    scratch = tmp_path / "scratch"

    def ann(epoch: Any) -> Any:
        view = StateView(job.root, OPERATOR, epoch, scratch=scratch)
        return view.get("ann")["total"], view.manifest.epoch, len(list(view.scan()))

    assert ann(None) == (5, 5, 6)
    assert [ann(Epoch(epoch)) for epoch in (1, 4, 3)] == [(1, 1, 2), (4, 4, 5), (3, 3, 4)]
    assert ann("good") == (2, 2, 3)


def test_a_pinned_epoch_of_a_line_that_was_left_can_be_looked_into(tmp_path: Path) -> None:
    """What one has gone back from is often what one wants to look at."""
    job = SmallJob(MemoryStore(), tmp_path / "host")
    for number in range(1, 5):
        job.epoch({"ann": number})
    job.root.pin("wrong", Epoch(4))
    job.root.rewind("clicks", Epoch(2))
    scratch = tmp_path / "scratch"

    assert StateView(job.root, OPERATOR, scratch=scratch).get("ann") == {"total": 2}
    assert StateView(job.root, OPERATOR, "wrong", scratch=scratch).get("ann") == {"total": 4}


def test_state_as_a_table_keeps_plain_values_and_writes_the_rest_as_json(
    job: WideJob, tmp_path: Path
) -> None:
    """For pandas, DuckDB and the like."""
    job.epoch({"ann": full(), "bob": {"total": setting(1)}})
    found = StateView(job.root, "count", scratch=tmp_path / "scratch").as_table()
    rows = {row[KEY_COLUMN]: row for row in found.to_pylist()}

    assert found.schema.field("total").type == pa.int64()
    assert rows["bob"] == dict.fromkeys(found.column_names) | {KEY_COLUMN: "bob", "total": 1}
    assert (rows["ann"]["short"], rows["ann"]["price"]) == ("soon gone", "9.50")
    assert {name: json.loads(rows["ann"][name]) for name in ("place", "seen", "last", "days")} == {
        "place": {"name": "here", "size": 3},
        "seen": {"a": 1.5, "b": 2.0},
        "last": [3, 1, 2],
        "days": {'["2026-01-02",3]': 4},
    }


def test_an_empty_state_is_an_empty_table(job: WideJob, tmp_path: Path) -> None:
    """A job that has only begun is no error."""
    job.epoch({})
    view = StateView(job.root, "count", scratch=tmp_path / "scratch")

    assert (list(view.scan()), view.columns()) == ([], {})
    assert view.as_table().column_names == [KEY_COLUMN]


def test_vectorised_state_is_counted(job: WideJob, tmp_path: Path) -> None:
    """It belongs to key groups and not to keys, and must not be taken for keys."""
    job.epoch({"ann": {"total": setting(1)}}, dense=1000)
    view = StateView(job.root, "count", scratch=tmp_path / "scratch")

    assert list(view.scan()) == [("ann", {"total": 1})]
    assert view.columns() == {"dense": f"columns state, {1000 * PARTITIONS} entries"}


def test_an_unknown_operator_is_told_who_there_is(job: WideJob, tmp_path: Path) -> None:
    """A typing error is the usual case."""
    job.epoch({})
    with pytest.raises(Invalid) as caught:
        StateView(job.root, "cuont", scratch=tmp_path)

    assert str(caught.value) == (
        "operator cuont has no state in epoch 1; those that have: count: choose one of these."
    )


def test_a_job_that_has_committed_nothing_has_no_state(job: WideJob, tmp_path: Path) -> None:
    """And an epoch that is not there is not there."""
    with pytest.raises(Invalid, match="operator count has no state yet: run the job first"):
        StateView(job.root, "count", scratch=tmp_path)
    with pytest.raises(Invalid, match="epoch 3 is not kept"):
        StateView(job.root, "count", Epoch(3), scratch=tmp_path)


def test_an_epoch_given_up_meanwhile_is_gone_and_not_damaged(tmp_path: Path) -> None:
    """Nobody is called at night because a job went on."""
    job = SmallJob(MemoryStore(), tmp_path / "host")
    for number in range(1, 4):
        job.epoch({"ann": number})
    view = StateView(job.root, OPERATOR, Epoch(1), scratch=tmp_path / "scratch")
    for _ in range(8):
        job.session.collect(Retention(epochs=1, age_s=0.0, grace_s=0.0))
        job.epoch({"ann": 9})
    job.session.collect(Retention(epochs=1, age_s=0.0, grace_s=0.0))
    for delta in [entry.key for entry in job.store.list("changelog/")]:
        job.store.delete(delta)

    with pytest.raises(Gone, match="epoch 1 has been given up while it was looked at"):
        view.get("ann")


def test_damage_is_called_damage(tmp_path: Path) -> None:
    """When the epoch is kept, what is missing is missing."""
    job = SmallJob(MemoryStore(), tmp_path / "host")
    job.epoch({"ann": 1})
    view = StateView(job.root, OPERATOR, scratch=tmp_path / "scratch")
    job.store.delete(job.lineage().deltas[0][1].ref.key)

    with pytest.raises(Corrupt, match="is missing"):
        view.get("ann")


def test_a_key_that_does_not_fit_the_type_it_is_said_to_have_is_refused(
    job: WideJob, tmp_path: Path
) -> None:
    """Better than not to find it."""
    job.epoch({})
    view = StateView(job.root, "count", scratch=tmp_path / "scratch")
    with pytest.raises(Invalid, match="key 'ann' is no int64: give the key's type"):
        view.get("ann", pa.int64())


def test_plain_values_are_what_json_can_hold() -> None:
    """Keys become text; nothing else is touched."""
    assert plain({("a", 1): [(1, 2)], date(2026, 1, 2): {3: "x"}, "k": None}) == {
        '["a",1]': [[1, 2]],
        "2026-01-02": {3: "x"},
        "k": None,
    }
