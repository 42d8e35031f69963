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

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise self._error


@ps.stateful(emits="user string")
def seen(user: str, events: ps.Events) -> Any:
    yield {"user": user}


def run_on(session: Any, tmp_path: Path) -> tuple[EpochRunner, str]:
    """An epoch on a session of which nothing can be had."""
    job = ps.Job("clicks", partitions=1)
    job.read(new_log(CLICKS), name="clicks").key_by("user").process(seen).write(ps.Table("out"))
    topology = job.topology(str(tmp_path / "root"), no_spark)
    runner = EpochRunner(session, workshop(topology, tmp_path))
    plan = Plan(run="run", epoch=Epoch(1), planned_ms=0, direct=False, tasks=(ReadTask(),))
    with pytest.raises(SparkFailed) as caught:
        runner.run(plan)
    return runner, str(caught.value)


def test_a_spark_that_died_between_two_epochs_is_a_failure_like_any_other(tmp_path: Path) -> None:
    """Also while a query is only described: the loop then asks whether Spark is alive, and says."""
    runner, said = run_on(Gone(ConnectionRefusedError(111, "Connection refused")), tmp_path)

    assert "Connection refused" in said
    assert not runner.is_alive()


LOST = """An error occurred while calling o329.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:53)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 4.0 \
failed 4 times, most recent failure: Lost task 1.3 in stage 4.0 (TID 12) (host executor 1): \
ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: exited with 137
Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2896)
"""
RAISED = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "tasks.py", line 90, in run
    except PenstockError as error:
OSError: [Errno 27] File too large
\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:5)
"""


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (LOST, "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: "
               "exited with 137"),
        (RAISED, "OSError: [Errno 27] File too large"),
        (RAISED.replace("OSError: [Errno 27] File too large", "MemoryError"), "MemoryError"),
        (RAISED.replace("OSError: [Errno 27]", "pyarrow.lib.ArrowInvalid:"),
         "pyarrow.lib.ArrowInvalid: File too large"),
        (": java.io.IOException: a\nCaused by: x.SparkException: b", "x.SparkException: b"),
        ("SparkContext was shut down", "SparkContext was shut down"),
        ("", "RuntimeError"),
    ],
)  # fmt: skip
def test_of_all_that_spark_says_the_line_that_tells_why_is_passed_on(
    says: str, why: str, tmp_path: Path
) -> None:
    """Neither what was around it in the code, nor that somebody waited for it."""
    _, said = run_on(Gone(RuntimeError(says)), tmp_path)

    assert said == f"Spark failed ({why}): the epoch is tried again."
