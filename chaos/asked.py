"""What a chaos run is asked to do, as a value; the command that asks for the same again."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.chaos.history import Family
from penstock.errors import Invalid

__all__ = ["ANSWER", "COMING_S", "EPOCH_RECORDS_MAX", "MASTER", "OWN_S3", "PAGE", "Asked"]

MASTER = "local-cluster[2,1,900]"
"""Two executors, each a process of its own."""
EPOCH_RECORDS, EPOCH_RECORDS_MAX = 1_000, 100_000
"""What an epoch reads unless told: of a source without an end, and at most of one that has one."""
COMING_S, SECONDS_MIN = 20.0, 40.0
"""Events at a rate come when a driver has about started, and for a while."""
CALM, CALM_S_MAX = 0.15, 60.0
"""The run lasts longer than they come, by this share of the time and at most so long: faults are
over when they are."""
OWN_S3 = "s3"
"""The root that is a store of the run's own."""
PAGE, ANSWER = "chaos.html", "chaos.json"
"""What is written into the folder of a report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a run is to do."""

    file: str
    name: str | None = None
    seed: int = 0
    faults: frozenset[Family] = frozenset(Family)
    count: int | None = None
    """How many faults; None: each kind about twice."""
    evenly: bool = False
    """Whether every fault has as much calm after it as the others; else some come at once."""
    epochs: int = 60
    records: int | None = None
    """How many events to make up; None: the job's own sources are read, unless there is a rate."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Topics with recorded events, by the names of the sources they stand for."""
    rate: float | None = None
    duration_s: float | None = None
    epoch_records: int | None = None
    root: str = OWN_S3
    master: str = MASTER
    lease_s: float = 3.0
    report: Path | None = None

    def __post_init__(self) -> None:
        report = self.report
        if report is not None and report.exists() and not _is_empty(report):
            raise Invalid(
                f"folder {report}", "is there and not empty", "name another, or remove it"
            )
        if self.rate is not None and self.made_up is None:
            found = "is given without --records and --duration"
            raise Invalid("--rate", found, "say how many events are made up, or for how long")
        ends_s = self.seconds
        if self.rate is not None and ends_s is not None and ends_s <= SECONDS_MIN:
            found = f"lasts {ends_s:.0f} s, and events at a rate come after {COMING_S:.0f} s"
            raise Invalid("the chaos run", found, f"let it last for more than {SECONDS_MIN:.0f}")
        if self.root == OWN_S3 and not self.master.startswith("local"):
            found = f"do not reach a store of this host's own (--root {OWN_S3})"
            raise Invalid(f"the executors of {self.master}", found, "name a --root they reach")
        if self.count is not None and self.count < 1:
            raise Invalid("the chaos run", "is asked for no fault", "use --count 1 or more")
        if not self.faults:
            raise Invalid("the chaos run", "is asked for no fault", "name some with --faults")

    @property
    def rows_per_epoch(self) -> int:
        """What an epoch reads at most."""
        if self.epoch_records is not None:
            return self.epoch_records
        if self.made_up is None:
            return EPOCH_RECORDS
        return max(1, -(-self.made_up // self.epochs))

    @property
    def made_up(self) -> int | None:
        """How many events are made up; None: the job's own sources are read. Those that come at a
        rate come to the end."""
        if self.records is not None or self.rate is None or self.duration_s is None:
            return self.records
        return max(1, round(self.rate * self.duration_s))

    @property
    def seconds(self) -> float | None:
        """How long the run lasts, if that does not follow from its epochs: events that come at a
        rate take their time."""
        if self.duration_s is not None or self.rate is None or self.records is None:
            return self.duration_s
        comes_s = COMING_S + self.records / self.rate
        return comes_s + min(CALM * comes_s, CALM_S_MAX)

    def command(self) -> str:
        """What repeats it from a shell."""
        words = ["penstock", "chaos", self.file, "--seed", str(self.seed)]
        options = {
            "--job": self.name,
            "--faults": ",".join(sorted(self.faults)) if len(self.faults) < len(Family) else None,
            "--count": self.count,
            "--epochs": self.epochs
            if self.duration_s is None or self.made_up is not None
            else None,
            "--records": self.records,
            "--rate": self.rate,
            "--duration": self.duration_s,
            "--epoch-records": self.epoch_records,
            "--root": None if self.root == OWN_S3 else self.root,
            "--master": None if self.master == MASTER else self.master,
        }
        for name, value in options.items():
            words += [] if value is None else [name, str(value)]
        words += ["--evenly"] if self.evenly else []
        for source, url in self.inputs.items():
            words += ["--input", f"{source}={url}"]
        return shlex.join(words)


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())
