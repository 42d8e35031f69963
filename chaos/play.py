"""A chaos run from its first driver to the verdict: everything about it that does not change."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from penstock.chaos.asked import EPOCH_RECORDS_MAX, OWN_S3, Asked
from penstock.chaos.brief import Brief, Generated, Recorded
from penstock.chaos.conductor import Conducted, Conductor
from penstock.chaos.dressing import dressed
from penstock.chaos.driver import inputs_of
from penstock.chaos.findings import Check, worst
from penstock.chaos.history import ChaosRun, Family, Happening, commits
from penstock.chaos.inputs import generated_for
from penstock.chaos.invariants import Observed, check_invariants, invariants_of
from penstock.chaos.judging import Evidence, judged
from penstock.chaos.line_faults import Lines
from penstock.chaos.nemesis import Nemesis
from penstock.chaos.possible import EVERY, impossible, points_of
from penstock.chaos.processes import DriverProcess
from penstock.chaos.reading_along import ReadersAlong
from penstock.chaos.rerouting import address_of
from penstock.chaos.scene import Scene
from penstock.chaos.schedule import Due, Length, schedule
from penstock.chaos.sink_faults import SinkOrders
from penstock.chaos.stage import Stage
from penstock.checkpoint.open_store import without_secrets
from penstock.checkpoint.root import Root
from penstock.clock import Chance, Clock
from penstock.errors import Invalid
from penstock.runtime.job import Job
from penstock.runtime.loading import load_job
from penstock.runtime.run import RunSettings, SparkOnDemand, absolute_root, workshop_for
from penstock.runtime.topology import Topology
from penstock.sinks.dynamodb import DynamoDB
from penstock.sinks.postgres import Postgres

__all__ = ["Play"]

REPLAY_S_MAX = 1_800.0
REPLAY_MASTER = "local[2]"
"""Another kind of cluster on purpose: results must not depend on it."""


@dataclass(slots=True)
class Play:
    """One run: everything about it that does not change while it goes on."""

    asked: Asked
    folder: Path
    stage: Stage
    clock: Clock
    chance: Chance
    job: Job
    inputs: dict[str, Generated | Recorded]
    topology: Topology
    invariants: list[Callable[..., object]]

    @classmethod
    def of(cls, asked: Asked, folder: Path, stage: Stage, clock: Clock, chance: Chance) -> "Play":
        """Load the job, choose its inputs, check all of it."""
        job = load_job(asked.file, asked.name)
        _refuse_taken(stage.root)
        inputs: dict[str, Generated | Recorded] = {
            name: Recorded(url=url) for name, url in asked.inputs.items()
        }
        if asked.made_up is not None:
            inputs |= generated_for(job, asked, round(clock.wall() * 1000), set(inputs))
        topology = _described(dressed(job, sources=inputs_of(job, inputs)), stage.root)
        if asked.root == OWN_S3:
            _refuse_other_s3(topology)
        module = sys.modules[f"penstock_job_{Path(asked.file).stem}"]
        for name in ("laid", "drivers", "state"):
            (folder / name).mkdir()
        return cls(
            _measured(asked, topology),
            folder,
            stage,
            clock,
            chance,
            job,
            inputs,
            topology,
            invariants_of(module),
        )

    def addresses(self) -> dict[str, tuple[str, int]]:
        """The sinks that a proxy can stand before."""
        found = {node.name: address_of(node.sink) for node in self.topology.applied}
        return {name: address for name, address in found.items() if address is not None}

    def run(
        self, lines: Lines, tell: Callable[[str], None], watch: Callable[[Happening], None]
    ) -> ChaosRun:
        """Conduct it, then judge it."""
        began_s, at_ms = self.clock.monotonic(), round(self.clock.wall() * 1000)
        asked, cannot = self.asked, self._impossible(lines)
        nemeses = [n for n in EVERY if n.family in asked.faults and n.name not in cannot]
        if not nemeses:
            why = next(cannot[n.name] for n in EVERY if n.family in asked.faults)
            found = f"asks for no fault that can happen to it ({why})"
            raise Invalid(f"job {self.job.name}", found, "ask for others with --faults")
        count = 2 * len(nemeses) if asked.count is None else asked.count
        length = Length(asked.epochs, asked.seconds)
        dues = schedule(asked.seed, nemeses, count, length, evenly=asked.evenly)
        done, seen = self._conducted(lines, dues, watch)
        self._refuse_dead(done)
        checks = [*self._judged(done, self._missing(nemeses, cannot), tell), seen]
        return ChaosRun(
            penstock=version("penstock"),
            job=self.job.name,
            seed=asked.seed,
            command=asked.command(),
            at_ms=at_ms,
            seconds=round(self.clock.monotonic() - began_s, 1),
            asked=self._told(nemeses),
            faults=done.faults,
            happenings=done.happenings,
            checks=tuple(checks),
            verdict=worst(check.verdict for check in checks),
        )

    def _conducted(
        self, lines: Lines, dues: Sequence[Due], watch: Callable[[Happening], None]
    ) -> tuple[Conducted, Check]:
        """The run, and what those have seen who read along."""
        readers = ReadersAlong(self.stage.root, self.clock)
        readers.start()
        conductor = Conductor(lambda *how: self.start(lines, *how), self.clock, watch)
        try:
            done = conductor.conduct(lambda cast: self.scene(cast, lines), dues, self.asked.seconds)
        finally:
            seen = readers.finish()
            if self.stage.store is not None:
                self.stage.store.close()  # what is late must not come while the run is judged
        return done, seen

    def _impossible(self, lines: Lines) -> dict[str, str]:
        has_proxy = self.stage.store is not None
        return impossible(self.topology, list(lines.ports), self.asked.master, has_proxy)

    def _missing(self, nemeses: Sequence[Nemesis], cannot: Mapping[str, str]) -> dict[str, str]:
        """Families that were asked for by name and of which nothing can happen, and why."""
        if self.asked.faults == frozenset(Family):
            return {}
        there = {nemesis.family for nemesis in nemeses}
        return {
            nemesis.family: cannot[nemesis.name]
            for nemesis in EVERY
            if nemesis.family in self.asked.faults - there
        }

    def start(
        self, lines: Lines, number: int, standby: bool, tell: Callable[[Happening], None]
    ) -> DriverProcess:
        """One more driver."""
        brief = self.brief(number, standby=standby, routes=dict(lines.ports))
        return DriverProcess(brief, self.folder / "drivers", self.stage.environment, tell)

    def brief(self, number: int, **given: object) -> Brief:
        """What a driver is told."""
        values: dict[str, object] = {
            "driver": number,
            "file": self.asked.file,
            "name": self.asked.name,
            "root": self.stage.root,
            "master": self.asked.master,
            "state_folder": str(self.folder / "state"),
            "folder": str(self.folder / "laid"),
            "epoch_records": self.asked.rows_per_epoch,
            "epochs_max": self._epochs_max(),
            "drains": self.asked.seconds is None,
            "lease_s": self.asked.lease_s,
            "inputs": self.inputs,
            **given,
        }
        return Brief(**values)  # type: ignore[arg-type]

    def scene(self, cast: Conductor, lines: Lines) -> Scene:
        """What the nemeses see."""
        has_sinks = bool(self.topology.applied)
        return Scene(
            cast=cast,
            clock=self.clock,
            chance=self.chance,
            folder=self.folder / "laid",
            state_folder=self.folder / "state",
            store=self.stage.store,
            sinks=SinkOrders(self.folder / "laid") if has_sinks else None,
            lines=lines if lines.ports else None,
            committing=frozenset(
                node.name
                for node in self.topology.applied
                if isinstance(node.sink, Postgres) and node.name in lines.ports
            ),
            points=points_of(self.topology),
        )

    def _epochs_max(self) -> int | None:
        """Own sources may have no end; made-up ones have."""
        ends = bool(self.inputs) or self.asked.seconds is not None
        return None if ends else self.asked.epochs

    def _refuse_dead(self, done: Conducted) -> None:
        """A job that never commits anything is broken by itself, and no case for chaos."""
        if done.stuck is not None and not commits(done.happenings):
            advice = "make it run first: penstock run"
            raise Invalid(f"job {self.job.name}", f"commits nothing ({done.stuck})", advice)

    def _judged(
        self, done: Conducted, missing: Mapping[str, str], tell: Callable[[str], None]
    ) -> list[Check]:
        root = Root.open(self.stage.root)
        shop = workshop_for(self.topology, absolute_root(self.stage.root), RunSettings())
        evidence = Evidence(
            root=root,
            topology=self.topology,
            conducted=done,
            folder=self.folder / "laid",
            job_state=self.folder / "state" / shop.folder_name,
            replay=self._replay,
            drained=frozenset() if self.asked.seconds is not None else frozenset(self.inputs),
            impossible=missing,
        )
        checks = judged(evidence, tell)
        if self.invariants:
            tell("the job's own invariants")
            observed = Observed(root, self.topology, self.folder)
            checks.append(check_invariants(self.invariants, observed))
        return checks

    def _replay(self, number: int) -> Root | str:
        """The same epochs without a fault, on a folder of their own and on this process's way to
        the store; or why that could not be."""
        target = self.folder / f"replay-{number}"
        folder = self.folder / f"replay-{number}-laid"
        folder.mkdir()
        brief = self.brief(
            1_000 + number,
            root=str(target),
            master=REPLAY_MASTER,
            state_folder=str(self.folder / f"replay-{number}-state"),
            folder=str(folder),
            follows=self.stage.root,
            drains=True,
        )
        driver = DriverProcess(brief, self.folder / "drivers", {}, lambda happening: None)
        code = driver.wait(REPLAY_S_MAX)
        driver.end_all()
        if code != 0:
            return f"ended with {code}: {driver.said()}"
        return Root.open(str(target))

    def _told(self, nemeses: Sequence[Nemesis]) -> dict[str, str]:
        sinks = ", ".join(
            f"{node.name} ({type(node.sink).__name__})" for node in self.topology.sinks
        )
        return {
            "job": self.asked.file,
            "input": ", ".join(map(str, self.inputs)) or "the job's own sources",
            "epochs": str(self.asked.epochs),
            "records of an epoch": f"{self.asked.rows_per_epoch:,}",
            "store": self.asked.root,
            "master": self.asked.master,
            "kinds of faults": str(len(nemeses)),
            "sinks": sinks or "none",
        }


def _refuse_taken(root: str) -> None:
    """A root that a job lives on already is none to play with; one that does not answer is none
    to begin with."""
    try:
        head = Root.open(root).head()
    except Invalid:  # there is nothing yet
        return
    found = f"is where job {head.job} lives already"
    raise Invalid(f"root {without_secrets(root)}", found, "name a place where nothing is")


def _described(job: Job, root: str) -> Topology:
    spark = SparkOnDemand(job.name, RunSettings(master="local[1]"))
    try:
        return job.topology(absolute_root(root), spark.transformed)
    finally:
        spark.stop()


def _measured(asked: Asked, topology: Topology) -> Asked:
    """With epochs of such a size that what is there lasts for all of them."""
    if asked.epoch_records is not None or asked.made_up is not None or asked.seconds is not None:
        return asked
    spans = [s for node in topology.sources.values() for s in node.source.spans().values()]
    share = -(-sum(span.latest - span.earliest for span in spans) // asked.epochs)
    if not share:
        found = "has nothing to read"
        raise Invalid("the job", found, "let events be made up with --records, or name an --input")
    return replace(asked, epoch_records=share) if share <= EPOCH_RECORDS_MAX else asked


def _refuse_other_s3(topology: Topology) -> None:
    """A store of our own is found by settings that all of AWS's clients obey."""
    ends = [
        *((f"source {name}", node.source) for name, node in topology.sources.items()),
        *((f"sink {node.name}", node.sink) for node in topology.sinks),
    ]
    for name, end in ends:
        url = getattr(end, "url", None)
        if isinstance(end, DynamoDB) or (isinstance(url, str) and url.startswith("s3://")):
            found = "is at AWS, where the run would put a store of its own in the way"
            raise Invalid(name, found, "use --root folder, or a root beside it")
