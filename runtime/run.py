"""Running a job: check it, wait for one's turn, start Spark, lead, loop, release.

1. The job is checked as far as that goes without Spark, and then with it, if a transform needs it;
   so is every sink that can be reached.
2. A root that is led by a living process is left alone: `Invalid`, or wait for it as a standby.
3. Spark is started before leading, so that nobody is deposed by a job that cannot run.
4. Lead: from here on any older leader's commit fails.
5. Run epochs. SIGINT and SIGTERM finish the epoch under way and release the job; a second one
   does not wait. After a kill nothing is needed but starting again.
"""

import hashlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.checkpoint.open_store import absolute_url, without_secrets
from penstock.checkpoint.root import Root
from penstock.errors import Invalid
from penstock.runtime.applying import check_targets
from penstock.runtime.compatibility import check_same_job
from penstock.runtime.loop import EpochLoop, position_of
from penstock.runtime.planning import Planner
from penstock.runtime.settings import RunSettings
from penstock.runtime.telling import Listener, Ran, Silent
from penstock.runtime.topology import Topology
from penstock.runtime.workshop import Workshop
from penstock.sinks.guarantee import parse_guarantee

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.runtime.job import Job

__all__ = [
    "Equipment",
    "Ran",
    "RunSettings",
    "SparkOnDemand",
    "absolute_root",
    "check_guarantees",
    "run_job",
    "workshop_for",
]

log = logging.getLogger("penstock.run")


def run_job(
    job: "Job",
    root_url: str,
    settings: RunSettings,
    listener: Listener | None = None,
    equipment: "Equipment | None" = None,
) -> Ran:
    """Run a job on a root."""
    url = absolute_root(root_url)
    spark = SparkOnDemand(job.name, settings)
    ran = Ran(listener or Silent())
    made_with = equipment or Equipment()
    root = made_with.root(url)
    try:
        topology = job.topology(url, spark.transformed)  # 1
        check_guarantees(topology, settings.require)
        check_targets(topology, root.store)
        _wait_for_turn(root, url, job.name, topology, settings)  # 2
        ran.waiting(f"starting Spark on {settings.master}")
        runner = spark.runner(made_with.workshop(topology, url, settings))  # 3
        with root.lead(job.name) as session, _stopping() as stopped:  # 4
            session.beat(settings.lease.beat_every_s)
            undescribed = check_same_job(topology, root, session.manifest, without_secrets(url))
            planner = made_with.planner(
                topology,
                settings.limits,
                settings.snapshots,
                settings.read_tasks or spark.cores(),
                root.clock,
                root.chance,
            )
            generation = session.head.generation
            position = position_of(root, session.manifest, generation, topology, undescribed)
            ran.last_epoch = position.epoch
            loop = made_with.loop(
                root, session, planner, runner, settings, ran, root.clock, position
            )
            ran.started(topology, f"{without_secrets(url)}, {settings.master}")
            loop.run(stopped)  # 5
    finally:
        spark.stop()
    return ran


def absolute_root(url: str) -> str:
    """The root as every process on every host may call it."""
    if url.startswith("memory:"):
        found = "is in the memory of one process, and a job runs in several"
        raise Invalid(url, found, "give a folder or s3://bucket/prefix")
    return absolute_url(url)


def workshop_for(topology: Topology, url: str, settings: RunSettings) -> Workshop:
    """What the workers of a job are given."""
    mark = hashlib.sha256(url.encode()).hexdigest()[:8]
    folder = None if settings.state_folder is None else str(Path(settings.state_folder).absolute())
    return Workshop(
        topology=topology,
        root_url=url,
        folder_name=f"{topology.job}-{mark}",
        settings=settings.state,
        snapshots=settings.snapshots,
        state_folder=folder,
    )


@dataclass(frozen=True, slots=True)
class Equipment:
    """What a run is made with. A chaos run brings its own; nothing else is changed for it."""

    root: Callable[[str], Root] = Root.open
    workshop: Callable[[Topology, str, RunSettings], Workshop] = workshop_for
    planner: Callable[..., Planner] = Planner
    loop: Callable[..., EpochLoop] = EpochLoop


def check_guarantees(topology: Topology, require: str | None) -> None:
    """Raise if some sink promises less than is required."""
    if require is None:
        return
    wanted = parse_guarantee(require)
    for node in topology.sinks:
        if not node.sink.guarantee.at_least(wanted):
            raise Invalid(
                f"sink {node.name!r}",
                f"gives {node.sink.guarantee.value}, and {wanted.value} is required",
                "use another sink, or require less",
            )


def _wait_for_turn(
    root: Root, url: str, job: str, topology: Topology, settings: RunSettings
) -> None:
    holder = root.is_led(settings.lease)
    if holder is not None and not settings.standby:
        raise Invalid(
            f"job {job} at {without_secrets(url)}",
            f"is led by {holder}, which is alive",
            "stop that process first, or start this one with --standby to wait for its end",
        )
    if holder is not None:
        log.info("%s leads; standing by", holder)
        root.wait_for_turn(settings.lease)
    try:
        newest = root.newest()
    except Invalid:  # there is nothing yet
        return
    check_same_job(topology, root, newest, without_secrets(url))


class SparkOnDemand:
    """The session, started when it is first needed."""

    def __init__(self, job: str, settings: RunSettings) -> None:
        self._job = job
        self._settings = settings
        self._session: SparkSession | None = None
        self._is_ours = False

    def session(self) -> "SparkSession":
        """The session."""
        if self._session is None:
            from pyspark.sql import SparkSession

            from penstock.runtime.session import send_files, start_spark

            self._is_ours = SparkSession.getActiveSession() is None
            self._session = start_spark(self._job, self._settings.master, self._settings.spark)
            send_files(self._session, self._settings.py_files)
        return self._session

    def transformed(self, transform: Callable[[Any], Any], schema: pa.Schema) -> pa.Schema:
        """The columns that a transform makes of others."""
        from penstock.runtime.frames import transformed_schema

        return transformed_schema(self.session(), transform, schema)

    def runner(self, shop: Workshop) -> Any:
        """What runs epochs on it."""
        from penstock.runtime.frames import EpochRunner

        return EpochRunner(self.session(), shop)

    def cores(self) -> int:
        """How many tasks it runs at once."""
        return max(1, int(self.session().sparkContext.defaultParallelism))

    def stop(self) -> None:
        """End it, if it is ours."""
        if self._session is not None and self._is_ours:
            try:
                self._session.stop()
            except Exception as error:  # noqa: BLE001 - its JVM may be gone
                log.info("Spark did not stop cleanly: %s", error)


@contextmanager
def _stopping() -> Iterator[Callable[[], bool]]:
    """Whether somebody has asked to stop. Only the main thread can be asked by signals."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def ask(number: int, frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        log.warning("stopping after this epoch; once more to stop at once")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
