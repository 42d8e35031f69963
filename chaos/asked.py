"""What a chaos run is asked to do, as a value; the command that asks for the same again."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.chaos.history import Family
from penstock.errors import Invalid

__all__ = ["ANSWER", "EPOCH_RECORDS_MAX", "MASTER", "PAGE", "Asked"]

MASTER = "local-cluster[2,1,900]"
"""Two executors, each a process of its own."""
EPOCH_RECORDS, EPOCH_RECORDS_MAX = 1_000, 100_000
"""What an epoch reads unless told: of a source without an end, and at most of one that has one."""
STARTING_S, LONGER = 60.0, 1.2
"""A run with a rate lasts longer than its events come, and needs a while before them."""
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
    """How many events to make up; None: the job's own sources are read."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Topics with recorded events, by the names of the sources they stand for."""
    rate: float | None = None
    duration_s: float | None = None
    epoch_records: int | None = None
    root: str = "s3"
    master: str = MASTER
    lease_s: float = 3.0
    report: Path | None = None

    def __post_init__(self) -> None:
        report = self.report
        if report is not None and report.exists() and not _is_empty(report):
            raise Invalid(
                f"folder {report}", "is there and not empty", "name another, or remove it"
            )
        if self.rate is not None and self.records is None:
            raise Invalid("--rate", "is given without --records", "say how many are made up")
        if self.count is not None and self.count < 1:
            raise Invalid("the chaos run", "is asked for no fault", "use --count 1 or more")
        if not self.faults:
            raise Invalid("the chaos run", "is asked for no fault", "name some with --faults")

    @property
    def rows_per_epoch(self) -> int:
        """What an epoch reads at most."""
        if self.epoch_records is not None:
            return self.epoch_records
        if self.records is None:
            return EPOCH_RECORDS
        return max(1, -(-self.records // self.epochs))

    @property
    def seconds(self) -> float | None:
        """How long the run lasts, if that does not follow from its epochs: events that come at a
        rate take their time."""
        if self.duration_s is not None or self.rate is None or self.records is None:
            return self.duration_s
        return STARTING_S + LONGER * self.records / self.rate

    def command(self) -> str:
        """What repeats it from a shell."""
        words = ["penstock", "chaos", self.file, "--seed", str(self.seed)]
        options = {
            "--job": self.name,
            "--faults": ",".join(sorted(self.faults)) if len(self.faults) < len(Family) else None,
            "--count": self.count,
            "--epochs": self.epochs if self.duration_s is None else None,
            "--records": self.records,
            "--rate": self.rate,
            "--duration": self.duration_s,
            "--epoch-records": self.epoch_records,
            "--root": None if self.root == "s3" else self.root,
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
