"""A job of one operator, from open to commit, made of the production parts: for restore tests."""

from dataclasses import dataclass, field
from pathlib import Path

from penstock.checkpoint import (
    Chain,
    Draft,
    Lineage,
    ObjectStore,
    PartitionState,
    Root,
    Session,
    perform,
    recover,
)
from penstock.checkpoint.recovery import whole_changelog
from penstock.checkpoint.restore import Identity, OpenPartition, Restorer
from penstock.checkpoint.snapshots import Place, SnapshotPolicy, cut_snapshot
from penstock.checkpoint.staging import stage_delta
from penstock.clock import Chance, SystemChance, SystemClock
from penstock.ids import Attempt, Epoch, Generation
from penstock.state.declare import declared
from penstock.state.delta import Marker
from penstock.state.host import HostFolder, PartitionFolder
from penstock.state.keys import encode_key
from penstock.state.kinds import Map, Value
from penstock.state.settings import StateSettings
from penstock.state.workspace import EpochTimes, Workspace
from tests.support.driving import ManualClock

JOB, OPERATOR, GROUPS = "clicks", "totals", range(8)
SETTINGS = StateSettings(block_cache_bytes=4 << 20)


def states(total: Value[int], seen: Map[str, int]) -> None:
    """What the job's function declares."""


@dataclass
class SmallJob:
    """One partition of one job on one host. Give another `host` to move it."""

    store: ObjectStore
    host: Path
    policy: SnapshotPolicy = field(default_factory=lambda: SnapshotPolicy(every_epochs=3))
    chance: Chance = field(default_factory=SystemChance)
    expected: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root = Root(self.store, ManualClock(), self.chance)
        self.restorer = Restorer(self.store, SETTINGS, SystemClock())
        self.identity = Identity(JOB, OPERATOR, 0, Generation(1))
        self.session: Session = self.root.lead(JOB, "test")

    @property
    def folder(self) -> PartitionFolder:
        return HostFolder(self.host, self.chance).partition(JOB, OPERATOR, 0)

    def lineage(self) -> Lineage:
        found = perform(recover(Chain(), self.session.manifest), self.root.handlers)
        return found.get((OPERATOR, 0), Lineage((), ()))

    def whole(self) -> Lineage | None:
        """Every delta since the first epoch, if all manifests are still there."""
        steps = whole_changelog(Chain(), self.session.manifest, (OPERATOR, 0))
        return perform(steps, self.root.handlers)

    def open(self) -> OpenPartition:
        return self.restorer.open(self.identity, self.lineage(), self.folder, self.whole)

    def epoch(self, changes: dict[str, int | None]) -> OpenPartition:
        """One epoch that sets or removes totals. The partition is closed when it returns."""
        opened = self.open()
        try:
            state = self.attempt(opened, changes)
            self.session.commit(Draft(operators={OPERATOR: {0: state}}))
        finally:
            opened.close()
        for key, value in changes.items():
            if value is None:
                self.expected.pop(key, None)
            else:
                self.expected[key] = value
        return opened

    def attempt(self, opened: OpenPartition, changes: dict[str, int | None]) -> PartitionState:
        """What one attempt stages for the next epoch. Nothing is committed."""
        epoch, attempt = Epoch(self.session.head.epoch + 1), Attempt(self.chance.unique())
        snapshot = None
        if self.policy.wants_snapshot(epoch, 0):
            place = Place(OPERATOR, 0, epoch, attempt)
            snapshot = cut_snapshot(
                self.store, opened.database, self.lineage(), self.folder, place, self.policy
            )
        space = Workspace(opened.database, OPERATOR, declared(states), GROUPS, EpochTimes(None, 0))
        apply(space, changes)
        marker = Marker(
            job=JOB, operator=OPERATOR, partition=0, generation=Generation(1), epoch=epoch,
            attempt=attempt,
        )  # fmt: skip
        delta = space.finish(self.folder.delta(epoch, attempt), marker, SETTINGS)
        staged = None if delta is None else stage_delta(self.store, delta)
        return PartitionState(delta=staged, snapshot=snapshot)

    def contents(self) -> dict[str, int]:
        """What a fresh opening shows."""
        opened = self.open()
        try:
            return totals(opened)
        finally:
            opened.close()


def apply(space: Workspace, changes: dict[str, int | None]) -> None:
    """Set or remove totals."""
    for key, value in changes.items():
        space.bind(sum(key.encode()) % len(GROUPS), encode_key(key))
        if value is None:
            space.states["total"].clear()
        else:
            space.states["total"].set(value)


def totals(opened: OpenPartition) -> dict[str, int]:
    """Every total in a database, by key."""
    from penstock.state.keys import decode_key
    from penstock.state.layout import after_prefix
    from penstock.state.values import Codec

    codec: Codec[int] = Codec(int, "total")
    found = {}
    for entry, raw in opened.database.scan(b"\x01", after_prefix(b"\x01")):
        key, _ = decode_key(entry, 4)
        found[key] = codec.decode(raw)
    return found
