"""`penstock chaos` on real Spark processes: a right job stays right, and a wrong one is told.

`make chaos` does the whole of it: every fault there is, on a job with five sinks.
"""

from pathlib import Path

import pytest

from penstock import chaos
from penstock.chaos.findings import Check, Verdict
from penstock.chaos.history import ChaosRun, Family
from tests.support.ordeal import corpus, ordeal, show

pytestmark = pytest.mark.slow

WRONG = """
import random, time
from typing import Any
import pyarrow as pa
import penstock as ps

COLUMNS = pa.schema([("user", pa.string()), ("n", pa.int64())])

@ps.stateful(emits="user string, n long, at double")
def careless(user: str, events: ps.Events, seen: ps.Value[int]) -> Any:
    seen.set(seen.get(0) + len(events))
    with open({path!r}, "a") as file:
        file.write(user)
    yield {{"user": user, "n": random.randrange(1000), "at": time.time()}}

job = ps.Job("careless", partitions=2)
source = ps.Rate(columns=COLUMNS, rows=2000, key="user", keys=50)
job.read(source, name="events").key_by("user").process(careless).write(ps.Table("rows"))
"""


def check_of(run: ChaosRun, name: str) -> Check:
    [found] = (check for check in run.checks if check.name == name)
    return found


@pytest.mark.parametrize(("seed", "families"), corpus())
def test_what_was_found_once_stays_mended(seed: int, families: str) -> None:
    """Seeds that have found something are run again, with everything that was mended since."""
    chosen = frozenset(map(Family, families.split(",")))

    result = ordeal(seed=seed, faults=chosen, records=4_800, epochs=16, count=12)

    show(result.run)
    wrong = [str(each) for check in result.run.checks for each in check.violations]
    assert wrong == [], f"again: {result.run.command}"
    assert sum(result.run.faults.values()) >= 4, "faults have happened"


def test_a_careless_job_is_reported_for_what_it_is(tmp_path: Path) -> None:
    """It writes to a file, asks for the time and throws dice: each is named, with its line."""
    file = tmp_path / "careless.py"
    file.write_text(WRONG.format(path=str(tmp_path / "log.txt")))

    result = chaos.run(
        file, seed=3, root="folder", faults=frozenset({Family.WORKER, Family.EXECUTOR}),
        epochs=10, epoch_records=200, count=5, report=tmp_path / "report",
    )  # fmt: skip

    assert result.verdict is Verdict.INVALID
    function = check_of(result.run, "function")
    told = " ".join([*map(str, function.violations), *map(str, function.unknown), *function.notes])
    assert "the function is not deterministic" in told
    for place in ("line 12", "line 14"):
        assert f"careless.py, {place}" in told
    assert "log.txt" in told
    assert check_of(result.run, "replay").verdict is Verdict.UNKNOWN, "no fault is to blame"
    assert (tmp_path / "report" / "chaos.html").read_text().startswith("<!doctype html>")
    with pytest.raises(AssertionError, match="Again: penstock chaos"):
        result.assert_valid()
