"""One epoch as a Spark job, where there is no Spark to run it on."""

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.ids import Epoch
from penstock.runtime.frames import EpochRunner, SparkFailed
from penstock.runtime.wire import Plan, ReadTask
from tests.support.in_process import CLICKS, no_spark, workshop
from tests.support.logs import new_log


class Gone:
    """A session whose JVM has died: whatever is asked of it, py4j finds nobody there."""

    def __getattr__(self, name: str) -> Any:
        raise ConnectionRefusedError(111, "Connection refused")


@ps.stateful(emits="user string")
def seen(user: str, events: ps.Events) -> Any:
    yield {"user": user}


def test_a_spark_that_died_between_two_epochs_is_a_failure_like_any_other(tmp_path: Path) -> None:
    """Also while a query is only described: the loop then asks whether Spark is alive, and says."""
    job = ps.Job("clicks", partitions=1)
    job.read(new_log(CLICKS), name="clicks").key_by("user").process(seen).write(ps.Table("out"))
    topology = job.topology(str(tmp_path / "root"), no_spark)
    gone: Any = Gone()
    runner = EpochRunner(gone, workshop(topology, tmp_path))
    plan = Plan(run="run", epoch=Epoch(1), planned_ms=0, direct=False, tasks=(ReadTask(),))

    with pytest.raises(SparkFailed, match="Connection refused"):
        runner.run(plan)
    assert not runner.is_alive()
