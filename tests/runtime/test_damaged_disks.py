"""A host's disk may lose or alter anything: the job notices, restores, and gives the same rows."""

import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.sources.protocol import Limits
from tests.support.driving import ManualClock
from tests.support.in_process import SETTINGS, LocalRun, append, click, clicks_log

ROWS, USERS, EPOCH_ROWS = 2_400, 300, 300
FLIPS = 8


@ps.stateful(emits="user string, n long, seen long")
def counted(
    user: str, events: ps.Events, seen: ps.Value[int], by: ps.Map[int, int]
) -> Iterator[dict[str, Any]]:
    """Every click, and how many there were by then."""
    for event in events:
        seen.set(seen.get(0) + 1)
        by.set(event.n, by.get(event.n, 0) + 1)
        yield {"user": user, "n": event.n, "seen": seen.get()}


@pytest.fixture
def run(tmp_path: Path) -> LocalRun:
    """A job that stands in the middle, with state on this host's disk."""
    log = clicks_log(tmp_path, partitions=1)
    append(log, [click(f"user-{n % USERS}", n % 3, at_s=n // 50) for n in range(ROWS)], 0)
    job = ps.Job("clicks", partitions=1)
    stream = job.read(log, name="clicks", event_time="at").key_by("user")
    stream.process(counted).write(ps.Table("rows"))
    found = LocalRun(job, tmp_path, ManualClock())
    found.run(settings(4))
    return found


def settings(last: int | None = None) -> ps.RunSettings:
    return replace(SETTINGS, limits=Limits(records=EPOCH_ROWS), epochs_max=last)


def check(run: LocalRun) -> None:
    run.run(settings())
    seen = {(user, count) for user, _, count in run.rows("rows", "user", "n", "seen")}
    every = {(f"user-{n}", count + 1) for n in range(USERS) for count in range(ROWS // USERS)}
    assert seen == every
    assert len(run.rows("rows", "user")) == ROWS


@pytest.mark.parametrize("seed", range(8))
def test_flipped_bits_cost_a_restore_and_nothing_else(run: LocalRun, seed: int) -> None:
    """Wherever they are: some show when a database is opened, some only where it is read."""
    chance = random.Random(seed)
    path = chance.choice(sorted((run.folder / "state").glob("*/*/*/db-*/*.sst")))
    body = bytearray(path.read_bytes())
    for _ in range(FLIPS):
        body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
    path.write_bytes(body)

    check(run)


@pytest.mark.parametrize("pattern", ["*/*/*/db-*/", "*/*/*/deltas", "*/*/*", "*"])
def test_whatever_is_deleted_is_fetched_again(run: LocalRun, pattern: str) -> None:
    """Nothing on a host's disk is needed."""
    for path in list((run.folder / "state").glob(pattern)):
        shutil.rmtree(path)

    check(run)


def test_a_database_cut_short_is_discarded(run: LocalRun) -> None:
    """A disk that was full, or a machine that lost its power."""
    for path in (run.folder / "state").glob("*/*/*/db-*/*.sst"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    check(run)
