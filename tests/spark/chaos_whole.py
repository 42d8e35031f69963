"""`make chaos`: sixty faults and more, of all classes, on a job with sinks of every other kind.

It is not part of `make test`: it takes a quarter of an hour.
"""

import os
from pathlib import Path

from penstock.chaos.history import Family, commits, strikes
from tests.support.ordeal import ordeal, show

SEED = int(os.environ.get("SEED", "20261117"))


def test_the_whole_of_it() -> None:
    """Sixty faults of all classes, a hundred thousand records, a hundred epochs, five sinks."""
    report = Path(os.environ.get("PENSTOCK_CHAOS_REPORT", "scratch/chaos"))

    result = ordeal(
        True, seed=SEED, records=104_000, epochs=110, count=66,
        report=report if not report.exists() else None,
    )  # fmt: skip

    show(result.run)
    result.assert_valid()
    struck = strikes(result.run.happenings)
    assert len(struck) >= 60
    assert {each.family for each in struck} == set(Family)
    assert min(result.run.faults.values()) >= 1
    epochs = commits(result.run.happenings)
    assert len(epochs) >= 100
    assert sum(each.rows_in for each in epochs) >= 100_000
    [readers] = (check for check in result.run.checks if check.name == "readers")
    assert readers.counted["looks at tables"] > 10
