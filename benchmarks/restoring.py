"""How fast a partition comes back, and what its snapshots cost: rows of `make bench-state`.

Keys of 16 bytes, values of 32, on a folder store. A restore downloads, verifies and links the
snapshot's files and takes in twenty deltas. The replay it is compared with reads the first delta
the state was built from and puts every record into a database of its own, one by one: with the
engine's options and a log, and as a replay is best set up, without a log, because what it reads
is one, and with the memtables of rocksdict.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from rocksdict import Options, Rdict, WriteOptions

from benchmarks.state_data import (
    ROUNDS,
    SETTINGS,
    SPECS,
    TIMES,
    VALUE_BYTES,
    Array,
    Watch,
    cut,
)
from penstock.checkpoint import Lineage
from penstock.checkpoint.directory_store import DirectoryStore
from penstock.checkpoint.manifest import Delta
from penstock.checkpoint.restore import Identity, OpenPartition, Restorer, Way
from penstock.checkpoint.snapshots import Place, SnapshotPolicy, cut_snapshot
from penstock.checkpoint.staging import stage_delta
from penstock.checkpoint.store import ObjectStore
from penstock.clock import SystemChance, SystemClock
from penstock.effects import Entry
from penstock.ids import Attempt, Epoch, Generation
from penstock.state.changelog import read_changes
from penstock.state.delta import Marker, write_delta
from penstock.state.host import HostFolder, PartitionFolder
from penstock.state.keys import encode_key
from penstock.state.layout import DATA, section_prefix
from penstock.state.workspace import Workspace

__all__ = [
    "BUILD_CHUNK", "TAIL_DELTAS", "Idled", "Restored", "Uploaded", "idled", "restored", "uploaded",
]  # fmt: skip

IDENTITY = Identity("bench", "totals", 0, Generation(1))
BUILD_CHUNK = 500_000
REPLAYED_MAX = 2_000_000
"""Of a longer changelog the beginning is replayed, which is its fastest part."""
"""Keys of one delta when a state is built. The first is what is replayed; more go no faster."""
TAIL_DELTAS = 20
NEVER, ALWAYS = SnapshotPolicy(every_epochs=1 << 30), SnapshotPolicy(every_epochs=1, growth=0.0)


@dataclass(frozen=True)
class Restored:
    """A restore, in keys per second, against a replay, in records per second."""

    keys: int
    downloaded_bytes: int
    restored_per_s: float
    replayed_per_s: float
    replayed_unlogged_per_s: float
    """The same without a write-ahead log, and with the memtables of rocksdict."""


@dataclass(frozen=True)
class Uploaded:
    """What a fixed rate of change uploads, snapshots included."""

    keys: int
    epochs: int
    bytes_per_epoch: float


@dataclass(frozen=True)
class Idled:
    """Objects that one epoch adds to the store."""

    objects: int
    objects_with_a_change: int


class Partition:
    """One partition of a job without a leader: its lineage is kept here."""

    def __init__(self, folder: Path) -> None:
        self.store = DirectoryStore(folder / "store")
        self.policy = NEVER
        self.lineage = Lineage((), ())
        self.epoch = Epoch(0)
        self.cuts = 0
        self.folder = _on_host(folder / "host")
        self.restorer = Restorer(self.store, SETTINGS, SystemClock())

    def open(self) -> OpenPartition:
        """The partition at its present version."""
        return self.restorer.open(IDENTITY, self.lineage, self.folder)

    def change(self, numbers: Array) -> None:
        """One epoch that gives these keys new values, with a snapshot when it is due."""
        marker = self._begin()
        changes = dict(zip(_keys(numbers), _values(len(numbers)), strict=True))
        path = self.folder.delta(marker.epoch, marker.attempt)
        self._add(stage_delta(self.store, write_delta(path, marker, changes, b"{}", SETTINGS)))

    def work(self, work: Callable[[Workspace], None]) -> None:
        """One epoch as a task does it: staged is what the workspace ends with, if anything."""
        marker = self._begin()
        opened = self.open()
        space = Workspace(opened.database, "totals", SPECS, range(1 << 8), TIMES)
        space.expire()
        work(space)
        delta = space.finish(self.folder.delta(marker.epoch, marker.attempt), marker, SETTINGS)
        opened.close()
        if delta is not None:
            self._add(stage_delta(self.store, delta))

    def _begin(self) -> Marker:
        self.epoch = Epoch(self.epoch + 1)
        attempt = Attempt(f"a{self.epoch}")
        if self.policy.wants_snapshot(self.epoch, 0):
            self._snapshot(attempt)
        return Marker(
            job="bench",
            operator="totals",
            partition=0,
            generation=Generation(1),
            epoch=self.epoch,
            attempt=attempt,
        )

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
    """Build a state, cut it, change it twenty times, and bring it back on new hosts."""
    watch = Watch()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        partition = Partition(folder)
        _build(partition, keys)
        replayed = min(keys, REPLAYED_MAX)
        deltas = partition.lineage.deltas[: replayed // min(keys, BUILD_CHUNK)]
        changelog = [partition.folder.delta(epoch, delta.attempt) for epoch, delta in deltas]
        for way, opener in {"logged": _logged, "unlogged": _unlogged}.items():
            watch.time(way, 0, partial(_replay, changelog, folder / f"replay-{way}", opener))

        partition.policy = ALWAYS
        rng = np.random.default_rng(1)
        for _ in range(TAIL_DELTAS):
            partition.change(rng.integers(0, keys, max(1, keys // 100)))
            partition.policy = NEVER
        for number in range(ROUNDS):
            partition.folder = _on_host(folder / f"new-{number}")
            opened: OpenPartition = watch.time("restore", 0, partition.open)
            opened.close()
            restore = opened.restore
            assert (restore.way, restore.deltas) == (Way.STORE_FILES, TAIL_DELTAS)
    return Restored(
        keys,
        restore.downloaded_bytes,
        keys / watch.spent_s("restore"),
        replayed / watch.spent_s("logged"),
        replayed / watch.spent_s("unlogged"),
    )


def uploaded(keys: int, changed: int, growth: float = 1.0) -> Uploaded:
    """Change the same number of random keys every epoch, over two whole cycles of cuts."""
    with tempfile.TemporaryDirectory() as folder:
        partition = Partition(Path(folder))
        _build(partition, keys)
        partition.policy = ALWAYS
        rng = np.random.default_rng(2)
        partition.change(rng.integers(0, keys, changed))
        partition.policy = SnapshotPolicy(every_epochs=2, growth=growth)
        before, first, cuts = _size(partition.store), partition.epoch, partition.cuts
        while partition.cuts < cuts + 2:
            partition.change(rng.integers(0, keys, changed))
        epochs = partition.epoch - first
        return Uploaded(keys, epochs, (_size(partition.store) - before) / epochs)


def idled(keys: int) -> Idled:
    """An epoch in which nothing happens, and one with a single change; a snapshot is due in both.

    There are deltas since the files were cut, too few for new files.
    """
    with tempfile.TemporaryDirectory() as folder:
        partition = Partition(Path(folder))
        _build(partition, keys)
        partition.policy = ALWAYS
        partition.change(np.arange(1))
        partition.policy = SnapshotPolicy(every_epochs=1)
        counts = [len(_entries(partition.store))]
        for work in (_nothing, _one_change):
            partition.work(work)
            counts.append(len(_entries(partition.store)))
    return Idled(counts[1] - counts[0], counts[2] - counts[1])


def _nothing(space: Workspace) -> None:
    """No event comes, and no timer is due."""
    assert list(space.due()) == []


def _one_change(space: Workspace) -> None:
    space.bind(0, encode_key(b"one"))
    space.states["total"].set(b"more")


def _build(partition: Partition, keys: int) -> None:
    for start in range(0, keys, BUILD_CHUNK):
        partition.change(np.arange(start, min(keys, start + BUILD_CHUNK)))


def _on_host(folder: Path) -> PartitionFolder:
    return HostFolder(folder, SystemChance()).partition("bench", "totals", 0)


def _replay(changelog: list[Path], scratch: Path, opener: Callable[[Path], Rdict]) -> None:
    """Put records one by one into a database of their own."""
    target = opener(scratch / "target")
    for number, segment in enumerate(changelog):
        for key, value in read_changes(segment, scratch / f"reading{number}", SETTINGS):
            target[key] = value if value is not None else b""
    target.close()


def _logged(path: Path) -> Rdict:
    """As rocksdict comes, with its write-ahead log."""
    return Rdict(str(path), Options(raw_mode=True))


def _unlogged(path: Path) -> Rdict:
    """As a replay is best set up."""
    target = Rdict(str(path), Options(raw_mode=True))
    options = WriteOptions()
    options.disable_wal = True  # type: ignore[method-assign, assignment]  # the stub is wrong
    target.set_write_options(options)
    return target


def _keys(numbers: Array) -> Iterator[bytes]:
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


def _values(count: int) -> list[bytes]:
    """Values that do not compress."""
    return cut(os.urandom(count * VALUE_BYTES), VALUE_BYTES)


def _size(store: ObjectStore) -> int:
    """Bytes of everything on the store. Nothing is ever deleted here, so all were uploaded."""
    return sum(entry.size_bytes for entry in _entries(store))


def _entries(store: ObjectStore) -> list[Entry]:
    """Everything on the store."""
    found: list[Entry] = []
    while page := store.list("", found[-1].key if found else ""):
        found += page
    return found
