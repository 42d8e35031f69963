"""A partition's state on one host, epoch by epoch, without a store."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.ids import Attempt, Epoch, Generation
from penstock.state.database import PartitionDatabase
from penstock.state.declare import StateSpec, declared
from penstock.state.delta import DeltaFile, Marker
from penstock.state.keys import encode_key
from penstock.state.kinds import List, Map, Timer, Value
from penstock.state.settings import StateSettings
from penstock.state.workspace import EpochTimes, Workspace

SETTINGS = StateSettings(block_cache_bytes=1 << 20)
GROUPS = range(4)


class Engine:
    """A partition on one host: each epoch is a workspace, a delta, and its ingestion."""

    def __init__(self, folder: Path, function: Callable[..., Any]) -> None:
        self.folder = folder
        self.database = PartitionDatabase(folder / "db", SETTINGS)
        self.specs: list[StateSpec] = []
        self.epoch = 0
        self.run(function)

    def run(self, function: Callable[..., Any]) -> None:
        """From the next epoch on, this is the program."""
        self.specs = declared(function)

    def space(
        self, watermark_ms: int | None = None, planned_ms: int = 0, key: Any = "k", group: int = 0
    ) -> Workspace:
        """A new attempt at the next epoch, bound to a key."""
        times = EpochTimes(watermark_ms, planned_ms)
        space = Workspace(self.database, "count", self.specs, GROUPS, times)
        space.bind(group, encode_key(key))
        return space

    def finish(self, space: Workspace, attempt: str = "a") -> DeltaFile | None:
        """The delta of an attempt, which may or may not become real."""
        marker = Marker(
            job="job",
            operator="count",
            partition=0,
            generation=Generation(1),
            epoch=Epoch(self.epoch + 1),
            attempt=Attempt(attempt),
        )
        return space.finish(self.folder / f"{self.epoch + 1}-{attempt}.sst", marker, SETTINGS)

    def commit(self, space: Workspace) -> dict[bytes, bytes | None]:
        """Make an attempt real; what it changed."""
        delta = self.finish(space)
        self.epoch += 1
        if delta is not None:
            self.database.ingest([delta.path])
            assert self.database.marker == delta.marker
        return space.overlay.changes

    def contents(self) -> dict[bytes, bytes]:
        """Everything there is, the marker too."""
        return dict(self.database.scan(b"", b"\xff"))

    def entries(self) -> dict[bytes, bytes]:
        """Everything the states have stored."""
        return dict(self.database.scan(b"\x01", b"\x02"))


def shown(space: Workspace) -> dict[str, Any]:
    """All states of the key that is bound."""
    return {name: show(handle) for name, handle in space.states.items()}


def show(handle: Any) -> Any:
    match handle:
        case Value():
            return handle.get()
        case Map():
            return list(handle.items())
        case List():
            return list(handle)
        case Timer():
            return handle.pending()
