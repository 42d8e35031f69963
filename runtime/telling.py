"""What a running job tells: epochs as they are committed, retries, restores."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from penstock.checkpoint.manifest import Draft
from penstock.checkpoint.restore import Way
from penstock.ids import Epoch
from penstock.runtime.planning import EpochPlan
from penstock.runtime.topology import Topology
from penstock.runtime.wire import Report

__all__ = ["EpochDone", "Listener", "Ran", "Silent"]

QUIET_WAYS = (Way.NEW.value, Way.LOCAL_DATABASE.value, "")
"""Ways of opening state that are not worth telling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochDone:
    """One committed epoch."""

    epoch: Epoch
    rows_in: int
    rows_out: int
    quarantined: int
    seconds: float
    """From planning to the last report."""
    retries: int
    watermark_ms: int | None
    """The least of all sources that know their time."""
    restores: Mapping[str, int]
    """How often state was brought up in each way."""
    work: Mapping[str, float]
    """Seconds of work by kind, of the slowest task."""
    direct: bool
    commit_s: float = 0.0
    lag: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        plan: EpochPlan,
        draft: Draft,
        reports: Sequence[Report],
        seconds: float,
        retries: int,
    ) -> "EpochDone":
        """What is known before the commit."""
        marks = [p.watermark_ms for p in draft.sources.values() if p.watermark_ms is not None]
        slowest = max(reports, key=lambda report: sum(report.seconds.values()), default=None)
        return cls(
            epoch=plan.epoch,
            rows_in=draft.rows_in,
            rows_out=sum(output.rows for outputs in draft.sinks.values() for output in outputs),
            quarantined=sum(report.quarantined for report in reports),
            seconds=seconds,
            retries=retries,
            watermark_ms=min(marks, default=None),
            restores=Counter(report.restored for report in reports if report.restored),
            work=slowest.seconds if slowest is not None else {},
            direct=plan.direct,
        )

    def with_commit(self, commit_s: float, lag: Mapping[str, Mapping[str, int]]) -> "EpochDone":
        """The same, committed."""
        return replace(self, commit_s=commit_s, lag=lag)

    @property
    def rebuilt(self) -> dict[str, int]:
        """How often state had to be brought here from elsewhere."""
        return {way: count for way, count in self.restores.items() if way not in QUIET_WAYS}


class Listener(Protocol):
    """Promise: returns soon, and never raises."""

    def waiting(self, for_what: str) -> None:
        """Something is done first that takes a while."""

    def started(self, topology: Topology, where: str) -> None:
        """A job leads its root and begins."""

    def committed(self, done: EpochDone) -> None:
        """An epoch has become real."""

    def retried(self, epoch: Epoch, why: str) -> None:
        """An epoch is tried again."""

    def held(self, sinks: Mapping[str, str]) -> None:
        """Sinks that are away hold the job, and what each says; none: it goes on."""

    def failed(self, epoch: Epoch, why: str) -> None:
        """An epoch has failed for good, and the job ends once the one before is settled."""


class Silent:
    """Tells nobody."""

    def waiting(self, for_what: str) -> None:
        """Nothing."""

    def started(self, topology: Topology, where: str) -> None:
        """Nothing."""

    def committed(self, done: EpochDone) -> None:
        """Nothing."""

    def retried(self, epoch: Epoch, why: str) -> None:
        """Nothing."""

    def held(self, sinks: Mapping[str, str]) -> None:
        """Nothing."""

    def failed(self, epoch: Epoch, why: str) -> None:
        """Nothing."""


@dataclass(slots=True)
class Ran:
    """What a run did, all in all. It is a listener that counts."""

    then: Listener = field(default_factory=Silent)
    epochs: int = 0
    last_epoch: int = 0
    rows_in: int = 0
    rows_out: int = 0
    quarantined: int = 0
    retries: int = 0
    seconds: float = 0.0
    restores: Counter[str] = field(default_factory=Counter)

    def waiting(self, for_what: str) -> None:
        """Pass it on."""
        self.then.waiting(for_what)

    def started(self, topology: Topology, where: str) -> None:
        """Pass it on."""
        self.then.started(topology, where)

    def committed(self, done: EpochDone) -> None:
        """Count an epoch, and pass it on."""
        self.epochs += 1
        self.last_epoch = done.epoch
        self.rows_in += done.rows_in
        self.rows_out += done.rows_out
        self.quarantined += done.quarantined
        self.seconds += done.seconds
        self.restores.update(done.restores)
        self.then.committed(done)

    def retried(self, epoch: Epoch, why: str) -> None:
        """Count a retry, and pass it on."""
        self.retries += 1
        self.then.retried(epoch, why)

    def held(self, sinks: Mapping[str, str]) -> None:
        """Pass it on."""
        self.then.held(sinks)

    def failed(self, epoch: Epoch, why: str) -> None:
        """Pass it on."""
        self.then.failed(epoch, why)
