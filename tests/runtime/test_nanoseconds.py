"""Times in nanoseconds, of which Python knows the microseconds: one time is one value."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.runtime.events import python_values
from penstock.state.key_hash import key_groups
from tests.support.in_process import LocalRun
from tests.support.logs import AT_ONCE

ZONES = [None, "UTC", "Asia/Seoul"]
NANOS = [-1_000_001, -1_001, -1_000, -999, -1, 0, 1, 999, 1_000, 1_001]
MICROS = [-1_001, -2, -1, -1, -1, 0, 0, 0, 1, 1]


def moments(nanos: list[int | None], zone: str | None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(nanos, pa.int64()).cast(pa.timestamp("ns", zone))])


@pytest.mark.parametrize("with_null", [False, True], ids=["all there", "one is null"])
@pytest.mark.parametrize("zone", ZONES)
def test_nanoseconds_are_rounded_down(zone: str | None, with_null: bool) -> None:
    """Before 1970 as after it, whatever the zone, and whatever other rows hold."""
    more = [None] if with_null else []
    found = python_values(moments([*NANOS, *more], zone))
    epoch = datetime(1970, 1, 1, tzinfo=None if zone is None else UTC)

    assert found[: len(NANOS)] == [epoch + timedelta(microseconds=each) for each in MICROS]
    assert found[len(NANOS) :] == more


@pytest.mark.parametrize("zone", ZONES)
def test_moments_that_are_one_key_are_of_one_key_group(zone: str | None) -> None:
    """A key that two partitions have is counted twice, and neither count is right."""
    column = moments(NANOS, zone)
    groups: dict[Any, set[int]] = {}
    for key, group in zip(python_values(column), key_groups([column]).tolist(), strict=True):
        groups.setdefault(key, set()).add(group)

    assert [len(found) for found in groups.values()] == [1] * len(set(MICROS))


@ps.stateful(emits="n long, said string", each=True)
def tell(key: str, event: ps.Event) -> Iterator[dict[str, Any]]:
    """Says what it is given."""
    yield {"n": event.n, "said": str(event.t)}


@pytest.mark.parametrize("cuts", [[2], [1, 1]], ids=["one epoch", "two epochs"])
def test_a_time_does_not_depend_on_the_other_rows_of_its_epoch(
    tmp_path: Path, cuts: list[int]
) -> None:
    """Which rows come together is decided by rates and crashes; results are not."""
    rows = pa.table(
        {
            "key": ["a", "b"],
            "n": pa.array([1, 2], pa.int64()),
            "t": moments([-1, None], "UTC"),
        }
    )
    log = ps.Log.create(str(tmp_path / "log"), rows.schema)
    job = ps.Job("job", partitions=1)
    job.read(log, name="log").key_by("key").process(tell, name="op").write(ps.Table("out"))
    run = LocalRun(job, tmp_path)
    for count in cuts:
        with log.producer(batching=AT_ONCE) as producer:
            producer.append(rows.slice(0, count), 0)
        rows = rows.slice(count)
        run.run()

    assert run.rows("out", "n", "said") == [(1, "1969-12-31 23:59:59.999999+00:00"), (2, "None")]
