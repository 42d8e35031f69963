"""How fast a partition comes back, and what its snapshots cost: rows of `make bench-state`.

Keys of 16 bytes, values of 32, on a folder store. A restore downloads, verifies and links the
snapshot's files and takes in twenty deltas. The replay it is compared with reads the same
changelog and puts every record into a database of its own, one by one.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rocksdict import Rdict

from penstock.checkpoint import Lineage
from penstock.checkpoint.directory_store import DirectoryStore
from penstock.checkpoint.manifest import Delta
from penstock.checkpoint.restore import Identity, OpenPartition, Restorer
from penstock.checkpoint.snapshots import Place, SnapshotPolicy, cut_snapshot
from penstock.checkpoint.staging import stage_delta
from penstock.checkpoint.store import ObjectStore
from penstock.clock import SystemChance, SystemClock
from penstock.ids import Attempt, Epoch, Generation
from penstock.state.changelog import read_changes
from penstock.state.delta import Marker, write_delta
from penstock.state.host import HostFolder, PartitionFolder
from penstock.state.layout import DATA, section_prefix
from penstock.state.settings import StateSettings, database_options

__all__ = ["Restored", "Uploaded", "restored", "uploaded"]

SETTINGS = StateSettings()
IDENTITY = Identity("bench", "totals", 0, Generation(1))
KEY_BYTES, VALUE_BYTES = 16, 32
BUILD_CHUNK = 1_000_000
TAIL_DELTAS = 20
REPLAYED_MAX = 500_000
"""The replay is measured on a part; its rate does not get better with more."""


@dataclass(frozen=True)
class Restored:
    """One restore against one replay."""

    keys: int
    restore_s: float
    downloaded_bytes: int
    restored_per_s: float
    replayed_per_s: float

    @property
    def ratio(self) -> float:
        """How many times faster than record by record."""
        return self.restored_per_s / self.replayed_per_s


@dataclass(frozen=True)
class Uploaded:
    """What a fixed rate of change uploads, snapshots included."""

    keys: int
    epochs: int
    bytes_per_epoch: float
    cuts: int


class Partition:
    """One partition of a job without a leader: its lineage is kept here."""

    def __init__(self, store: ObjectStore, host: Path, policy: SnapshotPolicy) -> None:
        self.store = store
        self.policy = policy
        self.lineage = Lineage((), ())
        self.epoch = Epoch(0)
        self.cuts = 0
        self.folder: PartitionFolder = HostFolder(host, SystemChance()).partition(
            "bench", "totals", 0
        )
        self.restorer = Restorer(store, SETTINGS, SystemClock())

    def open(self) -> OpenPartition:
        """The partition at its present version."""
        return self.restorer.open(IDENTITY, self.lineage, self.folder)

    def change(self, numbers: np.ndarray) -> None:
        """One epoch that gives these keys new values, with a snapshot when it is due."""
        self.epoch = Epoch(self.epoch + 1)
        attempt = Attempt(f"a{self.epoch}")
        if self.policy.wants_snapshot(self.epoch, 0):
            self._snapshot(attempt)
        changes = dict(zip(_keys(numbers), _values(len(numbers)), strict=True))
        marker = Marker(
            job="bench",
            operator="totals",
            partition=0,
            generation=Generation(1),
            epoch=self.epoch,
            attempt=attempt,
        )
        path = self.folder.delta(self.epoch, attempt)
        delta = stage_delta(self.store, write_delta(path, marker, changes, b"{}", SETTINGS))
        self._add(delta)

    def _snapshot(self, attempt: Attempt) -> None:
        opened = self.open()
        place = Place("totals", 0, self.epoch, attempt)
        before = self.lineage.files
        snapshot = cut_snapshot(
            self.store, opened.database, self.lineage, self.folder, place, self.policy
        )
        opened.close()
        self.lineage = Lineage(snapshot.files, snapshot.tail, snapshot.files_at)
        self.cuts += snapshot.files != before

    def _add(self, delta: Delta) -> None:
        deltas = (*self.lineage.deltas, (self.epoch, delta))
        self.lineage = Lineage(self.lineage.files, deltas, self.lineage.files_at)


def restored(keys: int) -> Restored:
    """Build a state, cut it, change it twenty times, and bring it back on a new host."""
    with tempfile.TemporaryDirectory() as folder:
        store = DirectoryStore(Path(folder) / "store")
        partition = Partition(store, Path(folder) / "old", SnapshotPolicy(every_epochs=1_000_000))
        _build(partition, keys)
        partition.policy = SnapshotPolicy(every_epochs=1, growth=0.0)
        rng = np.random.default_rng(1)
        share = max(1, keys // 100)
        partition.change(rng.integers(0, keys, share))
        partition.policy = SnapshotPolicy(every_epochs=1_000_000)
        for _ in range(TAIL_DELTAS - 1):
            partition.change(rng.integers(0, keys, share))
        deltas = [partition.folder.delta(e, d.attempt) for e, d in partition.lineage.deltas]
        replayed_per_s = _replay(deltas, Path(folder))

        partition.folder = HostFolder(Path(folder) / "new", SystemChance()).partition(
            "bench", "totals", 0
        )
        started = time.perf_counter()
        opened = partition.open()
        taken_s = time.perf_counter() - started
        opened.close()
        downloaded = opened.restore.downloaded_bytes
    return Restored(keys, taken_s, downloaded, keys / taken_s, replayed_per_s)


def uploaded(keys: int, changed: int, growth: float = 1.0) -> Uploaded:
    """Change the same number of random keys every epoch, over two whole cycles of cuts."""
    with tempfile.TemporaryDirectory() as folder:
        store = DirectoryStore(Path(folder) / "store")
        partition = Partition(store, Path(folder) / "host", SnapshotPolicy(every_epochs=1_000_000))
        _build(partition, keys)
        partition.policy = SnapshotPolicy(every_epochs=1, growth=0.0)
        rng = np.random.default_rng(2)
        partition.change(rng.integers(0, keys, changed))
        partition.policy = SnapshotPolicy(every_epochs=2, growth=growth)
        before, first, cuts = _size(store), partition.epoch, partition.cuts
        while partition.cuts < cuts + 2:
            partition.change(rng.integers(0, keys, changed))
        epochs = partition.epoch - first
        return Uploaded(keys, epochs, (_size(store) - before) / epochs, 2)


def _build(partition: Partition, keys: int) -> None:
    for start in range(0, keys, BUILD_CHUNK):
        partition.change(np.arange(start, min(keys, start + BUILD_CHUNK)))


def _replay(deltas: list[Path], folder: Path) -> float:
    """Records per second, put one by one into a database with the same options."""
    options = database_options(SETTINGS)
    target = Rdict(str(folder / "replayed"), options)
    started, done = time.perf_counter(), 0
    for number, delta in enumerate(deltas):
        for key, value in read_changes(delta, folder / f"reading{number}", SETTINGS):
            target[key] = value if value is not None else b""
            done += 1
        if done >= REPLAYED_MAX:
            break
    taken_s = time.perf_counter() - started
    target.close()
    return done / taken_s


def _keys(numbers: np.ndarray) -> Iterator[bytes]:
    """Entries of 16 bytes: a key group's prefix and a hashed number."""
    mixed = (numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(">u8")
    groups = (np.frombuffer(mixed.tobytes(), np.uint8)[::8]).tolist()
    body = numbers.astype(">u4").tobytes()
    mixed_body = mixed.tobytes()
    for number, group in enumerate(groups):
        yield (
            section_prefix(group, DATA)
            + mixed_body[number * 8 : number * 8 + 8]
            + body[number * 4 : number * 4 + 4]
        )


def _values(count: int) -> Iterator[bytes]:
    """Values that do not compress."""
    body = os.urandom(count * VALUE_BYTES)
    return (body[at : at + VALUE_BYTES] for at in range(0, len(body), VALUE_BYTES))


def _size(store: ObjectStore) -> int:
    """Bytes of everything on the store. Nothing is ever deleted here, so all were uploaded."""
    total, after = 0, ""
    while page := store.list("", after):
        total += sum(entry.size_bytes for entry in page)
        after = page[-1].key
    return total


if __name__ == "__main__":
    print(restored(200_000))
    print(uploaded(100_000, 5_000), uploaded(1_000_000, 5_000))
