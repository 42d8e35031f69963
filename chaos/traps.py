"""Traps: a process dies at a named crash point, the n-th time it gets there.

A trap is a file in a folder that the conductor of a chaos run and the job's processes share. A
process that reaches the point for the n-th time since the trap was laid takes the file away by
renaming it, which only one process can, and kills itself as `kill -9` would. Production code knows
nothing of it: protocols are performed with other handlers (`penstock.checkpoint.perform.armed`),
and tasks store through a store that looks for traps first.
"""

import os
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec

from penstock.checkpoint.perform import Handlers, armed
from penstock.checkpoint.store import ObjectStore
from penstock.clock import Chance
from penstock.ids import Key
from penstock.points import Point

__all__ = ["Laid", "Moment", "Snare", "Trap", "TrappedStore", "lay", "snared"]

Moment = Literal["before", "after"]
_LAID, _SPRUNG = "trap-*.json", "sprung-"
_STAGES = {
    "changelog/": Point.STAGE_DELTA,
    "snapshots/": Point.STAGE_SNAPSHOT,
    "outputs/": Point.STAGE_OUTPUT,
    "tables/": Point.STAGE_OUTPUT,
}
"""What a task is doing when it writes an object of such a name."""


class Trap(msgspec.Struct, frozen=True, kw_only=True):
    """Where a process dies."""

    point: Point
    moment: Moment
    nth: int = 1

    def __str__(self) -> str:
        times = "" if self.nth == 1 else f", time {self.nth}"
        return f"{self.moment} {self.point}{times}"


@dataclass(frozen=True, slots=True)
class Laid:
    """A trap that was laid."""

    path: Path

    @property
    def is_sprung(self) -> bool:
        """Whether somebody has died in it."""
        return self.path.with_name(_SPRUNG + self.path.name).exists()

    def take_away(self) -> None:
        """Nobody dies in it any more."""
        self.path.unlink(missing_ok=True)


def lay(folder: Path, trap: Trap, chance: Chance) -> Laid:
    """Lay a trap. It is there whole or not at all."""
    name = f"trap-{chance.unique()}.json"
    part = folder / f"{name}.part"
    part.write_bytes(msgspec.json.encode(trap))
    part.rename(folder / name)
    return Laid(folder / name)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(slots=True)
class Snare:
    """One process's eye on the traps of a folder."""

    folder: Path
    die: Callable[[], None] = _die
    _seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often each trap's point was reached since it was laid."""

    def at(self, point: Point, moment: Moment) -> None:
        """Die, if a trap says so."""
        for path in sorted(self.folder.glob(_LAID)):
            trap = _read(path)
            if trap is None or (trap.point, trap.moment) != (point, moment):
                continue
            self._seen[path.name, moment] += 1
            if self._seen[path.name, moment] >= trap.nth and _take(path):
                self.die()


def snared(handlers: Handlers, snare: Snare) -> Handlers:
    """The same handlers, with traps around every effect that has a point."""
    return armed(
        handlers,
        lambda point: snare.at(point, "before"),
        lambda point: snare.at(point, "after"),
    )


class TrappedStore:
    """A store as a task has it: whatever is staged may be the last thing that happens."""

    def __init__(self, store: ObjectStore, snare: Snare) -> None:
        self._store = store
        self._snare = snare

    def put(self, key: Key, body: bytes) -> None:
        """Write an object."""
        self._around(key, lambda: self._store.put(key, body))

    def upload(self, key: Key, source: BinaryIO) -> None:
        """Write an object of any size."""
        self._around(key, lambda: self._store.upload(key, source))

    def __getattr__(self, name: str) -> Any:
        """Everything else as it is."""
        return getattr(self._store, name)

    def _around(self, key: Key, work: Callable[[], None]) -> None:
        point = next((at for start, at in _STAGES.items() if key.startswith(start)), None)
        if point is not None:
            self._snare.at(point, "before")
        work()
        if point is not None:
            self._snare.at(point, "after")


def _read(path: Path) -> Trap | None:
    """A trap, or None if somebody has just died in it."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(path.read_bytes(), type=Trap)
    return None


def _take(path: Path) -> bool:
    """Whether it is ours to die in."""
    try:
        path.rename(path.with_name(_SPRUNG + path.name))
    except OSError:
        return False
    return True
