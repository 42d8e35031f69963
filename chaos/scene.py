"""What a nemesis can lay its hands on: the processes, the disks, the store, the sinks, the clock.

A scene is looked at from outside the job. Asking it is always safe: what has just died is simply
not there any more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from penstock.chaos.line_faults import Lines
from penstock.chaos.processes import DriverProcess
from penstock.chaos.sink_faults import SinkOrders
from penstock.chaos.store_faults import StoreFaults
from penstock.clock import Chance, Clock
from penstock.points import Point

__all__ = ["PATIENCE_S", "Cast", "NothingThere", "Scene"]

POLL_S = 0.05
PATIENCE_S = 60.0
"""How long a fault may take to come about."""

T = TypeVar("T")


class NothingThere(Exception):
    """There is nothing now that this fault could happen to."""


class Cast(Protocol):
    """Who conducts the drivers. Promise: always answers, and keeps one of them running."""

    def leader(self) -> DriverProcess:
        """The driver that leads, or will."""

    def understudy(self) -> DriverProcess:
        """Another driver, started now, that waits for its turn; from its first epoch on it is the
        leader."""

    def epochs(self) -> int:
        """The last epoch that is known to be committed."""

    def has_led(self, driver: DriverProcess) -> bool:
        """Whether that driver has come to lead."""

    def dismiss(self, driver: DriverProcess) -> None:
        """End a driver that did not come to lead in time: the one before it counts again."""

    def retried(self) -> Sequence[str]:
        """Why epochs were tried again, so far."""

    def is_over(self) -> bool:
        """Whether the job is done, or its time is up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything that can be harmed in one run."""

    cast: Cast
    clock: Clock
    chance: Chance
    folder: Path
    """Where traps are laid and clocks are set."""
    state_folder: Path
    store: StoreFaults | None = None
    """None: the store cannot be reached but by its own ways."""
    sinks: SinkOrders | None = None
    """None: no sink is outside the root."""
    lines: Lines | None = None
    """None: no sink is a server."""
    committing: frozenset[str] = frozenset()
    """Of those sinks, the ones that say COMMIT."""
    points: frozenset[Point] = frozenset(Point)
    """Where a process of this job can be made to die."""

    def patiently(self, look: Callable[[], T], *, to_the_end: bool = False) -> T:
        """What `look` finds, once it finds something; the last it found when patience is over,
        or the run is and nobody must see this `to_the_end`."""
        deadline_s = self.clock.monotonic() + PATIENCE_S
        found = look()
        while not found and self.clock.monotonic() < deadline_s:
            if self.cast.is_over() and not to_the_end:
                break
            self.clock.sleep(POLL_S)
            found = look()
        return found
