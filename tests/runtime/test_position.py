"""A root belongs to one job of one shape, and says so before anything is changed."""

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.runtime.compatibility import check_same_job
from penstock.runtime.settings import RunSettings
from tests.support.in_process import LocalRun, append, click, clicks_log, no_spark


@ps.stateful(emits="user string")
def see(user: str, events: ps.Events, seen: ps.Value[int]) -> Any:
    """Keeps a number."""
    seen.set(len(events))
    yield {"user": user}


@ps.stateful(emits="user string")
def pass_on(user: str, events: ps.Events) -> Any:
    """Keeps nothing."""
    yield {"user": user}


def job(
    log: ps.Log,
    *,
    partitions: int = 2,
    source: str = "clicks",
    function: Any = see,
    sink: str = "out",
) -> ps.Job:
    made = ps.Job("clicks", partitions=partitions)
    made.read(log, name=source).key_by("user").process(function).write(ps.Table(sink))
    return made


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"partitions": 4},
            "root remembers another job: the number of partitions was 2 and is 4 now: run it with "
            "partitions=2, or give the job a new root and let it read its sources again.",
        ),
        (
            {"function": pass_on},
            "root remembers another job: the state of operator 'see' was kept and is gone now: "
            "put the operator back, or give the job a new root.",
        ),
        (
            {"sink": "other"},
            "root remembers another job: sink 'out' was Table and is gone now: "
            "put the sink back, or give the job a new root.",
        ),
        (
            {"source": "views"},
            "root remembers another job: source 'clicks' was Log and is gone now: "
            "put the source back, or give the job a new root.",
        ),
    ],
    ids=["partitions", "operator", "sink", "source"],
)
def test_a_job_of_another_shape_is_refused(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    """Its state would be read by the wrong partitions, or left behind without a word."""
    log = clicks_log(tmp_path)
    append(log, [click("ada", 1)])
    run = LocalRun(job(log), tmp_path)
    run.run()
    root, newest = run.root, run.root.newest()

    check_same_job(job(log).topology(run.url, no_spark), root, newest, "root")
    check_same_job(job(log, **change).topology(run.url, no_spark), root, None, "root")
    with pytest.raises(ps.Invalid) as caught:
        check_same_job(job(log, **change).topology(run.url, no_spark), root, newest, "root")
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"until": "done"},
            "until='done' is unknown: use 'caught-up', or leave it out.",
        ),
        ({"retries_max": -1}, "retries_max=-1 is too small: use 0 or more."),
        ({"collect_every": 0}, "collect_every=0 is too small: use 1 or more."),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], said: str) -> None:
    """When they are made, and not after Spark has started."""
    with pytest.raises(ps.Invalid) as caught:
        RunSettings(**settings)

    assert str(caught.value) == said
