"""The history of a chaos run: what happened, in order, as it was seen from outside the job.

Every line is a value with its moment on one clock, that of whoever conducts the run. Faults,
processes and commits stand in one list, so that what came of what can be read off. What is
checked later is checked against this list and the root, and nothing else.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import msgspec

from penstock.chaos.findings import Check, Verdict

__all__ = [
    "ChaosRun",
    "Committed",
    "Ended",
    "Family",
    "Happening",
    "Held",
    "Led",
    "Missed",
    "Noted",
    "Recovery",
    "Retried",
    "Started",
    "Struck",
    "commits",
    "recoveries",
    "strikes",
]


class Family(StrEnum):
    """Kinds of faults, as `--faults` names them."""

    EXECUTOR = "executor"
    WORKER = "worker"
    DRIVER = "driver"
    PAUSE = "pause"
    STORE = "store"
    DISK = "disk"
    SINK = "sink"
    CLOCK = "clock"


class _Happening(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    at_s: float
    """Seconds since the run began."""


class Started(_Happening, frozen=True, kw_only=True, tag="started"):
    """A driver was started; they are numbered from 1."""

    driver: int
    standby: bool = False
    """Whether it is to wait while another one leads."""


class Led(_Happening, frozen=True, kw_only=True, tag="led"):
    """A driver leads the job: it has taken over, or begun."""

    driver: int
    epoch: int
    """The last one that was committed before."""


class Ended(_Happening, frozen=True, kw_only=True, tag="ended"):
    """A driver's process is gone."""

    driver: int
    code: int
    """Its exit code; below 0 the signal that ended it."""
    said: str = ""
    """The last thing it said of why, if it said anything."""


class Committed(_Happening, frozen=True, kw_only=True, tag="committed"):
    """An epoch became real."""

    driver: int
    epoch: int
    rows_in: int
    rows_out: int
    seconds: float
    """From planning it to the last report of its tasks."""
    retries: int = 0
    restores: dict[str, int] = {}
    """How often state was brought up from elsewhere, by the way that was taken."""
    lag: int | None = None
    """How many offsets were still to be read, if somebody has looked."""


class Retried(_Happening, frozen=True, kw_only=True, tag="retried"):
    """An epoch is tried again."""

    driver: int
    epoch: int
    why: str


class Held(_Happening, frozen=True, kw_only=True, tag="held"):
    """Sinks that are away hold the job, and what each says; none: it goes on."""

    driver: int
    sinks: dict[str, str] = {}


class Struck(_Happening, frozen=True, kw_only=True, tag="struck"):
    """A fault has happened."""

    fault: str
    """What it is called, such as `executor.kill`."""
    family: Family
    text: str
    """What exactly was done, for a person."""


class Missed(_Happening, frozen=True, kw_only=True, tag="missed"):
    """A fault was due and did not come about."""

    fault: str
    family: Family
    why: str


class Noted(_Happening, frozen=True, kw_only=True, tag="noted"):
    """Something else that is worth knowing."""

    text: str


Happening: TypeAlias = Started | Led | Ended | Committed | Retried | Held | Struck | Missed | Noted
"""One line of a history."""


class ChaosRun(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run: what was asked for, what happened, what was found."""

    penstock: str
    """The version of Penstock that ran."""
    job: str
    seed: int
    command: str
    """What repeats the schedule."""
    at_ms: int
    """When it began."""
    seconds: float
    """How long it took, checks included."""
    asked: dict[str, str]
    """What the run was asked to do, by option."""
    faults: dict[str, int]
    """How often each kind of fault happened; 0: it was asked for and did not."""
    happenings: tuple[Happening, ...]
    checks: tuple[Check, ...]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Recovery:
    """How long it took from a fault to the next commit."""

    fault: str
    family: Family
    at_s: float
    seconds: float | None
    """None: nothing was committed after it."""


def commits(happenings: Iterable[Happening]) -> list[Committed]:
    """The epochs, as they became real."""
    return [each for each in happenings if isinstance(each, Committed)]


def strikes(happenings: Iterable[Happening]) -> list[Struck]:
    """The faults, as they happened."""
    return [each for each in happenings if isinstance(each, Struck)]


def recoveries(happenings: Sequence[Happening]) -> list[Recovery]:
    """For every fault, how long the job needed to commit again."""
    moments = [each.at_s for each in commits(happenings)]
    found = []
    for struck in strikes(happenings):
        after = next((moment for moment in moments if moment > struck.at_s), None)
        seconds = None if after is None else after - struck.at_s
        found.append(Recovery(struck.fault, struck.family, struck.at_s, seconds))
    return found
