"""What a worker process has at hand for every task: the store, the state folder, the topology.

It is made once per process and kept: opening a store or reading a topology for every task of every
epoch would cost more than small epochs do.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.perform import Handlers, perform, store_handlers
from penstock.checkpoint.recovery import Lineage, whole_changelog
from penstock.checkpoint.restore import Elsewhere, Identity, Restorer
from penstock.checkpoint.root import Root
from penstock.checkpoint.signed_store import chain_keys, open_root_store
from penstock.checkpoint.snapshots import SnapshotPolicy
from penstock.checkpoint.store import ObjectStore
from penstock.clock import Chance, Clock, SystemChance, SystemClock
from penstock.ids import check_name
from penstock.runtime.rebuilding import fill
from penstock.runtime.topology import Topology
from penstock.runtime.wire import Orders
from penstock.sinks.changelog import Rebuilding
from penstock.state import (
    EpochTimes,
    HostFolder,
    PartitionFolder,
    StateSettings,
    Workspace,
    default_state_folder,
)

__all__ = ["Workshop"]


class _NoDatabase:
    """Stands where an operator keeps no state."""

    settings = StateSettings()
    schemas = None

    def get(self, key: bytes) -> bytes | None:
        return None

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        return [None] * len(keys)


@dataclass
class Workshop:
    """One job's tools in one process."""

    topology: Topology
    root_url: str
    folder_name: str
    """What this job is called in the state folder: the job and its root, so that two roots of
    one job on one host do not take each other's databases for stale ones."""
    settings: StateSettings
    snapshots: SnapshotPolicy
    state_folder: str | None = None
    clock: Clock = field(default_factory=SystemClock)
    chance: Chance = field(default_factory=SystemChance)
    is_signed: bool = field(default_factory=lambda: bool(chain_keys()))
    """Whether the driver verifies history. A worker without the key then reads none by itself."""

    @cached_property
    def store(self) -> ObjectStore:
        """The job's store."""
        return open_root_store(self.root_url)

    @cached_property
    def handlers(self) -> Handlers:
        """How protocols are performed on it."""
        return store_handlers(self.store, self.clock)

    @cached_property
    def host(self) -> HostFolder:
        """This host's state folder."""
        folder = Path(self.state_folder) if self.state_folder else default_state_folder()
        return HostFolder(folder, self.chance)

    @cached_property
    def restorer(self) -> Restorer:
        """Opens partitions."""
        return Restorer(self.store, self.settings, self.clock, self.host)

    def folder(self, operator: str, partition: int) -> PartitionFolder:
        """What this host keeps of one partition."""
        return self.host.partition(check_name("job", self.folder_name), operator, partition)

    def whole(self, orders: Orders, identity: Identity) -> Callable[[], Lineage | None]:
        """How to find the changelog from the first epoch on, should a snapshot be damaged."""

        def find() -> Lineage | None:
            if self.is_signed and not chain_keys():
                return None  # HEAD could be forged, and nothing here could tell
            newest: Manifest | None = Root(self.store).newest()
            name = (identity.operator, identity.partition)
            if newest is None or newest.epoch != orders.epoch - 1:
                return None  # the epoch before this one is still being committed
            return perform(
                whole_changelog(Chain(generation=identity.generation), newest, name), self.handlers
            )

        return find

    def elsewhere(self, operator: str, partition: int) -> Elsewhere | None:
        """How to rebuild a partition from a changelog outside the root, if the job has one."""
        node = self.topology.changelog_of(operator)
        if node is None or not isinstance(node.sink, Rebuilding):
            return None
        pieces = partial(node.sink.entries, partition)
        return lambda database, scratch: fill(database, pieces(), scratch)

    def no_state(self) -> Workspace:
        """A workspace for a function that keeps nothing."""
        nothing: Any = _NoDatabase()
        return Workspace(nothing, "", [], range(0), EpochTimes(None, 0))

    def stopwatch(self) -> Callable[[dict[str, float], str], None]:
        """Writes down how long it has been since it was last asked."""
        last = [self.clock.monotonic()]

        def lap(seconds: dict[str, float], name: str) -> None:
            now = self.clock.monotonic()
            seconds[name] = round(seconds.get(name, 0.0) + now - last[0], 6)
            last[0] = now

        return lap

    def __getstate__(self) -> dict[str, Any]:
        """Without what is opened: each process opens its own."""
        opened = ("store", "handlers", "host", "restorer")
        return {name: value for name, value in vars(self).items() if name not in opened}
