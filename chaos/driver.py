"""One driver of a chaos run: the user's job, untouched, among traps.

    python -m penstock.chaos.driver BRIEF.json

It does what `penstock run` does, with equipment of its own: a root whose protocols look for traps,
a workshop whose store does, a clock that may jump, sinks that may lose an answer. What happens it
writes to standard output, a line of JSON each; what goes wrong is the last line on standard error.
"""

import logging
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from penstock.chaos.brief import Brief, Generated, Recorded, made_of, read_brief
from penstock.chaos.dressing import dressed
from penstock.chaos.history import Committed, Happening, Held, Led, Retried
from penstock.chaos.jumping_clock import JumpingClock
from penstock.chaos.replaying import FollowingLoop, FollowingPlanner, QuietLoop, as_table, recorded
from penstock.chaos.rerouting import rerouted
from penstock.chaos.sink_faults import unsteady
from penstock.chaos.traps import Snare, TrappedStore, snared
from penstock.chaos.watch import install
from penstock.checkpoint.collector import Retention
from penstock.checkpoint.root import Lease, Root
from penstock.checkpoint.signed_store import open_root_store
from penstock.checkpoint.snapshots import SnapshotPolicy
from penstock.checkpoint.store import ObjectStore
from penstock.errors import Fenced, PenstockError
from penstock.ids import Epoch
from penstock.runtime.answers import EXIT_ERROR
from penstock.runtime.cli_run import EXIT_FENCED
from penstock.runtime.job import Job
from penstock.runtime.loading import load_job
from penstock.runtime.run import Equipment, RunSettings, run_job, workshop_for
from penstock.runtime.telling import EpochDone
from penstock.runtime.topology import Topology
from penstock.runtime.workshop import Workshop
from penstock.sinks.protocol import Sink
from penstock.sources.log import Log
from penstock.sources.protocol import Limits, Source

__all__ = ["UNEXPECTED", "Teller", "TrappedWorkshop", "dressed_job", "inputs_of", "main"]

UNEXPECTED = "Unexpected"
"""What a driver calls an error that it should never have met."""
KEPT_EPOCHS = 100_000
"""How much history is kept: all of it, because a replay begins with the first epoch."""
COLLECT_EVERY = 10
SNAPSHOT_EVERY = 5


@dataclass
class TrappedWorkshop(Workshop):
    """A workshop in which storing may be the last thing a task does, and effects are noticed."""

    traps: str = ""

    @property
    def store(self) -> ObjectStore:
        """The job's store, behind traps."""
        if "_trapped" not in vars(self):
            trapped: Any = TrappedStore(open_root_store(self.root_url), Snare(Path(self.traps)))
            self.__dict__["_trapped"] = trapped
        found: ObjectStore = self.__dict__["_trapped"]
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Without what is opened."""
        return {name: value for name, value in super().__getstate__().items() if name != "_trapped"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """In a worker: from now on everything its tasks do outside is noticed."""
        vars(self).update(state)
        install(self.traps)


@dataclass(frozen=True, slots=True)
class Teller:
    """Writes what happens for the conductor to read, whose clock alone counts."""

    driver: int
    write: Callable[[bytes], object]

    def waiting(self, for_what: str) -> None:
        """Nothing."""

    def started(self, topology: Topology, where: str) -> None:
        """Nothing: who leads is told with the first epoch that it knows."""

    def leads(self, epoch: Epoch) -> None:
        """This driver leads, from that epoch on."""
        self._tell(Led(at_s=0.0, driver=self.driver, epoch=epoch))

    def committed(self, done: EpochDone) -> None:
        """An epoch has become real."""
        self._tell(
            Committed(
                at_s=0.0,
                driver=self.driver,
                epoch=done.epoch,
                rows_in=done.rows_in,
                rows_out=done.rows_out,
                seconds=round(done.seconds, 3),
                retries=done.retries,
                restores=done.rebuilt,
                lag=sum(sum(each.values()) for each in done.lag.values()) if done.lag else None,
            )
        )

    def retried(self, epoch: Epoch, why: str) -> None:
        """An epoch is tried again."""
        self._tell(Retried(at_s=0.0, driver=self.driver, epoch=epoch, why=why))

    def held(self, sinks: Mapping[str, str]) -> None:
        """Sinks that are away hold the job."""
        self._tell(Held(at_s=0.0, driver=self.driver, sinks=dict(sinks)))

    def failed(self, epoch: Epoch, why: str) -> None:
        """Nothing: the end of the driver tells why."""

    def _tell(self, happening: Happening) -> None:
        self.write(msgspec.json.encode(happening) + b"\n")


def dressed_job(brief: Brief) -> Job:
    """The job of the file, with its inputs replaced and its sinks made unsteady as told."""
    job = load_job(brief.file, brief.name)
    inputs = inputs_of(job, brief.inputs)
    if brief.follows is not None:
        return dressed(job, sources=inputs, sinks=as_table, changelog=False)

    def change(sink: Sink) -> Sink:
        port = brief.routes.get(sink.name)
        return unsteady(sink if port is None else rerouted(sink, port), brief.folder)

    return dressed(job, sources=inputs, sinks=change)


def inputs_of(job: Job, asked: Mapping[str, Generated | Recorded]) -> dict[str, Source]:
    """The sources that take the places of a job's own."""
    return {
        name: made_of(each, job.described.inputs[name].source)
        if isinstance(each, Generated)
        else Log(each.url)
        for name, each in asked.items()
    }


def _settings(brief: Brief) -> RunSettings:
    lease = brief.lease_s
    return RunSettings(
        master=brief.master,
        until="caught-up" if brief.drains else None,
        limits=Limits(records=brief.epoch_records),
        epochs_max=brief.epochs_max,
        standby=brief.standby,
        lease=Lease(length_s=lease, beat_every_s=lease / 5, poll_every_s=lease / 15),
        retention=Retention(epochs=KEPT_EPOCHS, grace_s=0.0),
        collect_every=COLLECT_EVERY,
        snapshots=SnapshotPolicy(every_epochs=SNAPSHOT_EVERY),
        state_folder=brief.state_folder,
        backoff_s=0.2,
    )


def _among_traps(brief: Brief, teller: Teller) -> Equipment:
    folder = Path(brief.folder)

    def root(url: str) -> Root:
        found = Root(open_root_store(url), JumpingClock(folder))
        found.handlers = snared(found.handlers, Snare(folder))
        return found

    def workshop(topology: Topology, url: str, settings: RunSettings) -> Workshop:
        plain = workshop_for(topology, url, settings)
        return TrappedWorkshop(**vars(plain), traps=str(folder))

    return Equipment(root=root, workshop=workshop, loop=_telling_loop(teller))


def _telling_loop(teller: Teller) -> Callable[..., Any]:
    def made(*given: Any) -> QuietLoop:
        loop = QuietLoop(*given)
        teller.leads(loop.position.epoch)
        return loop

    return made


def _following(brief: Brief) -> tuple[Equipment, RunSettings]:
    assert brief.follows is not None
    original = Root.open(brief.follows)
    story = recorded(original)
    settings = msgspec.structs.replace(brief, epochs_max=max(story, default=0))

    def planner(*given: Any) -> FollowingPlanner:
        found = FollowingPlanner(*given)
        found.story, found.original = story, original
        return found

    return Equipment(planner=planner, loop=FollowingLoop), _settings(settings)


def _own_output() -> Callable[[bytes], object]:
    """Standard output for this process alone. What it starts inherits standard error in its place:
    it would otherwise keep the line to the conductor open after this process is dead."""
    own = os.dup(1)
    os.dup2(2, 1)
    return lambda line: os.write(own, line)


def main(path: str) -> int:
    """Run until the job is done, or dead; the exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    brief = read_brief(Path(path))
    teller = Teller(brief.driver, _own_output())
    try:
        job = dressed_job(brief)
        if brief.follows is None:
            equipment, settings = _among_traps(brief, teller), _settings(brief)
        else:
            equipment, settings = _following(brief)
            if not settings.epochs_max:
                return 0
        run_job(job, brief.root, settings, teller, equipment)
    except PenstockError as error:
        _say(type(error).__name__, error)
        return EXIT_FENCED if isinstance(error, Fenced) else EXIT_ERROR
    except Exception as error:  # noqa: BLE001 - the conductor is told, whatever it is
        traceback.print_exc()
        is_spark = type(error).__module__.startswith("py4j") or isinstance(error, ConnectionError)
        _say("Unavailable: Spark is gone" if is_spark else UNEXPECTED, error)
        return EXIT_ERROR
    return 0


def _say(kind: str, error: Exception) -> None:
    """The last thing on standard error, on one line."""
    said = " ".join(str(error).split()) or type(error).__name__
    print(f"penstock: {kind}: {said}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
