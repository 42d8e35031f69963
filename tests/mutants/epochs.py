"""Planted bugs of the runtime, caught as a chaos run catches them: the epochs of a job that had
trouble are gone through once more without any, and compared."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

import penstock as ps
from penstock.chaos.comparing import Comparison
from penstock.chaos.replaying import recorded
from penstock.errors import Invalid, PenstockError, Unavailable
from penstock.runtime import planning, session
from penstock.runtime.checking import Outcome
from penstock.runtime.loop import Runner
from penstock.runtime.session import start_spark
from penstock.runtime.wire import Plan
from penstock.sources.protocol import Limits
from penstock.state import StateSettings
from penstock.state.database import PartitionDatabase
from penstock.state.delta import DeltaFile, Marker
from penstock.state.layout import MARKER_KEY
from penstock.state.workspace import Workspace
from tests.mutants.mutant import Mutant, by
from tests.support.driving import ManualClock
from tests.support.in_process import SETTINGS, LocalRun, append, click, clicks_log
from tests.support.replays import replayed

ROWS = 60
EVERY = 3
"""Of so many tries or ingestions one meets with trouble."""

honest_finish = Workspace.finish
honest_ingest = PartitionDatabase.ingest
honest_watermark = planning.operator_watermark


class Trouble:
    """Whether anything goes wrong at the moment."""

    is_on = False
    counts = count(1)

    @classmethod
    def comes(cls) -> bool:
        """Whether it goes wrong this time."""
        return cls.is_on and next(cls.counts) % EVERY == 0


class Unheard:
    """A runner whose tasks do their work, and now and then nobody hears of it."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def run(self, plan: Plan) -> Outcome:
        """One try of an epoch."""
        outcome = self._runner.run(plan)
        if Trouble.comes():
            raise Unavailable("Spark", "lost the results of its tasks", "try again")
        return outcome

    def is_alive(self) -> bool:
        """It always is."""
        return True


@ps.stateful(emits="user string, n long, seen long")
def counted(
    user: str, events: ps.Events, seen: ps.Value[int], quiet: ps.Timer
) -> Iterator[dict[str, Any]]:
    """Every click and how many there were; who is quiet is told of, and forgotten."""
    if quiet.fired is not None:
        yield {"user": user, "n": -1, "seen": seen.get(0)}
        seen.clear()
        return
    for event in events:
        seen.set(seen.get(0) + 1)
        yield {"user": user, "n": event.n, "seen": seen.get()}
    quiet.clear()
    quiet.set(max(event.at for event in events) + timedelta(seconds=4))


def troubled(folder: Path) -> LocalRun:
    """A job that has run to its end, and had trouble on the way."""
    log = clicks_log(folder, partitions=2)
    clicks = [click(f"user-{number % 7}", number, at_s=number) for number in range(ROWS)]
    for partition in (0, 1):
        append(log, clicks[partition::2], partition)
    job = ps.Job("clicks", partitions=2)
    stream = job.read(log, name="clicks", event_time="at", delay="2 s").key_by("user")
    stream.process(counted).write(ps.Table("rows"))
    run = LocalRun(job, folder, ManualClock())
    Trouble.is_on, Trouble.counts = True, count(1)
    try:
        run.run(replace(SETTINGS, limits=Limits(records=5)), around=Unheard)
    finally:
        Trouble.is_on = False
    return run


def by_replay() -> str | None:
    """Caught because the same epochs give something else without trouble."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            run = troubled(folder / "run")
            calm = replayed(run.job, run.root, folder / "calm")
        except PenstockError as failure:  # noticing it is being caught
            return f"the run fell over: {failure!r}"
        comparison = Comparison(run.root, calm, folder / "scratch")
        unlike = comparison.differences(recorded(run.root), recorded(calm))
        first = next(unlike, None)
        return None if first is None else f"{first.invariant}: {first}"


def changes_the_database_at_once(
    self: Any, path: Path, marker: Marker, settings: StateSettings
) -> DeltaFile | None:
    """Does not wait for the commit."""
    made = honest_finish(self, path, marker, settings)
    for entry, value in self.overlay.changes.items():
        if value is None:
            del self._database._db[entry]
        else:
            self._database._db[entry] = value
    return made


def marks_by_itself(self: Any, paths: Sequence[Path]) -> None:
    """Writes down which version it is, then takes in the delta, and dies in between."""
    if not paths:
        return
    with (
        tempfile.TemporaryDirectory() as scratch,
        PartitionDatabase(Path(scratch) / "db", StateSettings()) as other,
    ):
        honest_ingest(other, paths[-1:])
        marker = other.marker
    self._db[MARKER_KEY] = msgspec.json.encode(marker)
    if Trouble.comes():
        raise Unavailable("a worker", "died", "try again")
    honest_ingest(self, paths)


def is_ahead(topology: Any, operator: Any, sources: Any, at_ms: int) -> int | None:
    """Tells functions of a time that no manifest vouches for."""
    honest = honest_watermark(topology, operator, sources, at_ms)
    return None if honest is None else honest + 3_000


def a_stage_is_tried_once() -> None:
    """Spark would run only a part of an epoch again, on other data."""
    try:
        started = start_spark("mutant", "local[1]", {"spark.stage.maxConsecutiveAttempts": "4"})
    except Invalid:
        return
    started.stop()
    raise AssertionError("a stage may be tried again")


_LAX = {name: value for name, value in session.INSISTED.items() if "Attempts" not in name}

MUTANTS = (
    Mutant(
        "14 database",
        "the database is changed before the commit",
        ((Workspace, "finish", changes_the_database_at_once),),
        by_replay,
    ),
    Mutant(
        "14 marker",
        "the marker is not in the delta",
        ((PartitionDatabase, "ingest", marks_by_itself),),
        by_replay,
    ),
    Mutant(
        "11 ahead",
        "a watermark ahead of the manifest",
        ((planning, "operator_watermark", is_ahead),),
        by_replay,
    ),
    Mutant(
        "B14",
        "a stage may be tried again",
        ((session, "INSISTED", _LAX),),
        by(a_stage_is_tried_once),
    ),
)
