"""The outcome of a simulated run, and the judge who watches it."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.chaos.actions import Action
from penstock.chaos.faults import Fault
from penstock.points import Point

__all__ = ["Judge", "Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run gave."""

    broken: tuple[str, ...]
    requests: int
    exposed: int
    """Requests made before the faults were switched off."""
    faults: Counter[Fault]
    actions: Counter[Action]
    points: Counter[Point]
    trace_hash: str
    story: tuple[str, ...]


class Judge(Protocol):
    """Watches a run, and says which promise was broken."""

    broken: list[str]

    def heard(self, process: str, what: str, *facts: Any) -> None:
        """A process told its user something."""

    def finish(self) -> Any:
        """Judge the end of the run, when everything has arrived and everybody is gone."""
