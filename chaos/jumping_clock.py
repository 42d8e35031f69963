"""A wall clock that is set forward and back while a job runs; its monotonic side never is."""

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from penstock.clock import Clock, SystemClock

__all__ = ["JumpingClock", "jump"]

_FILE = "clock"


def jump(folder: Path, seconds: float) -> None:
    """Set the wall clocks of all drivers who share this folder to so many seconds off. Tasks ask
    no wall clock: they are told the time of their epoch."""
    part = folder / f"{_FILE}.part"
    part.write_text(repr(seconds))
    part.rename(folder / _FILE)


@dataclass(frozen=True, slots=True)
class JumpingClock:
    """The machine's clocks, with a wall that is as wrong as a file in a folder says."""

    folder: Path
    true: Clock = field(default_factory=SystemClock)

    def wall(self) -> float:
        """Seconds since 1970, as this host believes now."""
        return self.true.wall() + self._off_s()

    def monotonic(self) -> float:
        """As the machine has it."""
        return self.true.monotonic()

    def sleep(self, seconds: float) -> None:
        """As the machine does it."""
        self.true.sleep(seconds)

    def _off_s(self) -> float:
        with suppress(OSError, ValueError):
            return float((self.folder / _FILE).read_text())
        return 0.0
