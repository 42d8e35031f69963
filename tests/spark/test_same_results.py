"""The same job over the same log: the same state and outputs, whatever happens to its processes."""

import os
import random
import shutil
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.checkpoint import Root
from penstock.runtime.run import Ran, RunSettings, run_job
from penstock.runtime.session import start_spark
from penstock.sources import Limits, Range
from tests.support.runs import Run, standalone_cluster
from tests.support.shop_job import expected, fill, found, in_full, make_job

pytestmark = pytest.mark.slow

ROWS = 9_000
EPOCH_ROWS = 500
SEED = 20261116
OPTIONS = ("--until", "caught-up", "--records", str(EPOCH_ROWS), "--lease", "3")
KILLS = int(os.environ.get("PENSTOCK_DRIVER_KILLS", "2"))
EXECUTOR_KILLS = int(os.environ.get("PENSTOCK_EXECUTOR_KILLS", "2"))
"""`make storm-spark` asks for ten and five."""


@dataclass(frozen=True)
class Once:
    """One undisturbed run."""

    folder: Path
    tables: Mapping[str, list[str]]
    epochs: int


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session that several runs share."""
    session = start_spark("tests", "local[2]", {})
    yield session
    session.stop()


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Once:
    """What every other run must give: one run, checked against plain Python row by row."""
    folder = tmp_path_factory.mktemp("once")
    fill(str(folder / "log"), ROWS)
    ran = run_here(folder, 4)
    root = str(folder / "root")

    assert ran.rows_in == ROWS
    assert found(root) == expected(Root.open(root), ps.Log(str(folder / "log")))
    assert any(row[2] == "quiet" for row in found(root)["totals"]), "timers have fired"
    return Once(folder, in_full(root), ran.epochs)


def run_here(folder: Path, partitions: int, **settings: object) -> Ran:
    chosen = RunSettings(
        until="caught-up",
        limits=Limits(records=EPOCH_ROWS),
        state_folder=str(folder / "state"),
        **settings,  # type: ignore[arg-type]
    )
    return run_job(make_job(str(folder / "log"), partitions), str(folder / "root"), chosen)


@pytest.fixture
def folder(once: Once, tmp_path: Path) -> Path:
    """A folder with the same log."""
    shutil.copytree(once.folder / "log", tmp_path / "log")
    return tmp_path


def check(folder: Path, once: Once) -> None:
    root = str(folder / "root")
    assert in_full(root) == once.tables
    assert found(root) == expected(Root.open(root), ps.Log(str(folder / "log")))
    assert Root.open(root).check().clean


@pytest.mark.parametrize("partitions", [1, 2, 8])
def test_any_number_of_partitions_gives_the_same(
    partitions: int, folder: Path, once: Once, spark: SparkSession
) -> None:
    """Nothing a user sees may depend on how the work is parted."""
    run_here(folder, partitions)

    check(folder, once)


def test_a_log_that_is_parted_by_the_key_needs_no_shuffle(
    tmp_path: Path, spark: SparkSession
) -> None:
    """The direct way must give what the shuffle gives."""
    tables = []
    for name, partitions in (("direct", 3), ("shuffled", 2)):  # 2 does not divide the topic's 3
        folder = tmp_path / name
        fill(str(folder / "log"), ROWS // 4, key="user", partitions=3)
        run_here(folder, partitions)
        root = str(folder / "root")
        assert found(root) == expected(Root.open(root), ps.Log(str(folder / "log")))
        tables.append(in_full(root))

    assert tables[0] == tables[1]


def test_rows_in_the_wrong_partition_of_a_topic_are_shuffled(
    tmp_path: Path, spark: SparkSession
) -> None:
    """A producer may have put rows by partition: then the topic's key promises nothing."""
    log = fill(str(tmp_path / "log"), 600, key="user", partitions=2)
    stray = next(log.read("0", Range(start=0, stop=1))).to_pylist()[0]
    stray.pop("_meta")
    with log.producer() as producer:
        producer.append(stray, 1)

    ran = run_here(tmp_path, 2)

    assert (ran.rows_in, ran.retries) == (601, 1)
    root = str(tmp_path / "root")
    assert found(root) == expected(Root.open(root), log)


def test_lost_local_state_is_restored(folder: Path, once: Once, spark: SparkSession) -> None:
    """A host may come back with empty disks at any time."""
    ways: set[str] = set()
    for last in (5, 11, None):
        ran = run_here(folder, 4, epochs_max=last)
        ways |= set(ran.restores)
        shutil.rmtree(folder / "state")

    check(folder, once)
    assert "the whole changelog" in ways


def test_a_driver_killed_again_and_again_loses_nothing(folder: Path, once: Once) -> None:
    """kill -9 needs nothing but starting again."""
    chance = random.Random(SEED)
    kills = 0
    while kills < KILLS:
        run = Run(folder, *OPTIONS, "--master", "local[2]")
        if not run.wait_for(1):
            break
        run.kill_after(chance.uniform(0.0, 1.0))
        kills += 1
    last = Run(folder, *OPTIONS, "--master", "local[2]")

    assert last.end() == 0, last.said
    assert kills == KILLS, f"seed {SEED}: the job was done after {kills} kills"
    check(folder, once)


def test_executors_killed_in_the_middle_lose_nothing(folder: Path, once: Once) -> None:
    """A real cluster loses executors, and with them shuffle files and tasks under way."""
    chance = random.Random(SEED)
    run = Run(folder, *OPTIONS, "--master", "local-cluster[2,1,900]")
    kills = 0
    while kills < EXECUTOR_KILLS and run.wait_for(1 + 2 * kills):
        victims = run.executors()
        if victims:
            chance.choice(victims).kill()
            kills += 1

    assert run.end() == 0, run.said
    assert kills == EXECUTOR_KILLS
    check(folder, once)


def test_a_standalone_cluster_gives_the_same(folder: Path, once: Once) -> None:
    """The job file does not change with the master."""
    with standalone_cluster(folder) as master:
        run = Run(folder, *OPTIONS, "--master", master, "--conf", "spark.executor.memory=600m")
        assert run.end() == 0, run.said

    check(folder, once)


def test_a_second_driver_is_refused_while_the_first_works(folder: Path, once: Once) -> None:
    """Two drivers on one root must not fight: the second one is told, and changes nothing."""
    first = Run(folder, "--records", str(EPOCH_ROWS), "--lease", "3", "--master", "local[2]")
    assert first.wait_for(1), first.said
    token = Root.open(str(folder / "root")).head().token
    second = Run(folder, *OPTIONS, "--master", "local[2]")

    assert second.end() == 2
    assert "is led by" in second.said
    assert "which is alive" in second.said
    assert Root.open(str(folder / "root")).head().token == token

    first.wait_for(once.epochs)
    first.signal(signal.SIGTERM)
    assert first.end() == 0, first.said
    check(folder, once)


def test_a_stopped_driver_that_wakes_up_changes_nothing(folder: Path, once: Once) -> None:
    """A paused leader, resumed after another has finished, must find that it leads no more."""
    old = Run(folder, *OPTIONS, "--master", "local[2]")
    assert old.wait_for(2), old.said
    old.signal(signal.SIGSTOP)
    new = Run(folder, *OPTIONS, "--master", "local[2]")
    assert new.end() == 0, new.said
    head = Root.open(str(folder / "root")).head()

    old.signal(signal.SIGCONT)

    assert old.end() == 3, old.said
    assert "was taken over by" in old.said
    assert Root.open(str(folder / "root")).head() == head
    check(folder, once)
