"""Cutting snapshots: a partition's files, named by content, and only the new ones uploaded.

Files are cut from a committed version, before the epoch that publishes them changes anything. A
file that the lineage already names by the same hash is named again, never uploaded and never
looked for on the store: what is there without being named may be collected at any moment.

How often: cutting costs as much as the state is large, so files are cut when the deltas since
the last cut weigh as much as the state (times `growth`), or are too many to name. What is uploaded
per changed byte is then the same for small and for large states, unless the epochs are tiny. In
between, every `every_epochs`, a snapshot names the old files and all deltas since: it uploads
nothing and keeps recovery's walk short. So it does for a partition that has no state yet.
"""

import hashlib
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from penstock.checkpoint.formats import Ref
from penstock.checkpoint.layout import snapshot_key
from penstock.checkpoint.manifest import Snapshot, SnapshotFile
from penstock.checkpoint.recovery import Lineage
from penstock.checkpoint.store import ObjectStore
from penstock.ids import Attempt, Epoch
from penstock.state.database import PartitionDatabase
from penstock.state.host import PartitionFolder

__all__ = ["Place", "SnapshotPolicy", "cut_files", "cut_snapshot"]

UPLOADS_MAX = 4
_NEEDED = ("CURRENT", "MANIFEST-", "rocksdict-config.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPolicy:
    """When to cut."""

    every_epochs: int = 50
    growth: float = 1.0
    """Cut new files when the deltas since weigh this much of the files."""
    tail_max: int = 200
    """Cut new files also when there are so many deltas since: each of them is named in the orders
    of every epoch."""

    def wants_snapshot(self, epoch: Epoch, partition: int) -> bool:
        """Whether this epoch publishes a snapshot of the partition; staggered over them."""
        return epoch > 1 and (epoch + partition) % self.every_epochs == 0

    def wants_files(self, lineage: Lineage) -> bool:
        """Whether the snapshot is worth new files."""
        tail = sum(delta.ref.size_bytes for _, delta in lineage.deltas)
        files = sum(file.ref.size_bytes for file in lineage.files)
        is_long = len(lineage.deltas) >= self.tail_max
        return bool(lineage.deltas) and (is_long or tail >= self.growth * files)


@dataclass(frozen=True, slots=True)
class Place:
    """Whose state it is, and which attempt of which epoch publishes the snapshot."""

    operator: str
    partition: int
    epoch: Epoch
    attempt: Attempt


def cut_snapshot(
    store: ObjectStore,
    database: PartitionDatabase,
    lineage: Lineage,
    folder: PartitionFolder,
    place: Place,
    policy: SnapshotPolicy,
) -> Snapshot:
    """A snapshot of the committed version that `database` is at and `lineage` describes."""
    if policy.wants_files(lineage):
        return cut_files(store, database, lineage, folder, place)
    return Snapshot(
        epoch=Epoch(place.epoch - 1),
        files=lineage.files,
        files_at=lineage.files_at,
        tail=lineage.deltas,
    )


def cut_files(
    store: ObjectStore,
    database: PartitionDatabase,
    lineage: Lineage,
    folder: PartitionFolder,
    place: Place,
) -> Snapshot:
    """The same with files of its own, however little has changed."""
    scratch = folder.scratch()
    try:
        database.compact()
        scratch.parent.mkdir(parents=True, exist_ok=True)
        database.checkpoint(scratch)
        files = _upload(store, scratch, lineage, folder, place)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Snapshot(epoch=Epoch(place.epoch - 1), files=files, files_at=lineage.version)


def _upload(
    store: ObjectStore, scratch: Path, lineage: Lineage, folder: PartitionFolder, place: Place
) -> tuple[SnapshotFile, ...]:
    """Upload what the lineage does not name yet, several at once, and keep a copy here."""
    known = {file.ref.sha256: file.ref for file in lineage.files}
    paths = [path for path in sorted(scratch.iterdir()) if _is_needed(path)]
    with ThreadPoolExecutor(UPLOADS_MAX) as pool:
        refs = list(pool.map(lambda path: _upload_one(store, path, known, folder, place), paths))
    return tuple(
        SnapshotFile(name=path.name, ref=ref) for path, ref in zip(paths, refs, strict=True)
    )


def _upload_one(
    store: ObjectStore,
    path: Path,
    known: Mapping[str, Ref],
    folder: PartitionFolder,
    place: Place,
) -> Ref:
    with path.open("rb") as source:
        sha256 = hashlib.file_digest(source, "sha256").hexdigest()
        _keep(path, folder.file(sha256))
        if sha256 in known:
            return known[sha256]
        key = snapshot_key(place.operator, place.partition, place.epoch, place.attempt, sha256)
        source.seek(0)
        store.upload(key, source)
    return Ref(key=key, sha256=sha256, size_bytes=path.stat().st_size)


def _keep(path: Path, cached: Path) -> None:
    """A second name for the file, so that restoring it here needs no download."""
    cached.parent.mkdir(parents=True, exist_ok=True)
    if not cached.exists():
        try:
            cached.hardlink_to(path)
        except OSError:  # another file system, or somebody was faster
            return


def _is_needed(path: Path) -> bool:
    return path.suffix == ".sst" or path.name.startswith(_NEEDED)
