"""Opening a partition's state at exactly the committed version, by the cheapest way that works.

    1. a database on this host whose marker is on the lineage: take in the deltas it lacks
    2. files of the snapshot kept on this host, and deltas
    3. files of the snapshot from the store, and deltas
    4. every delta there ever was, if all of them are still kept
    5. a changelog that is kept elsewhere, if the job has one

Each is tried when the one before it is missing or fails its check; what was chosen and what it
cost is reported. A database that is not on the lineage is discarded: it may be ahead by an epoch
that never became real. One that somebody has open is passed over, never waited for.
"""

import logging
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from penstock.checkpoint.formats import Ref, not_longer, verify
from penstock.checkpoint.hashed_file import HashedFile
from penstock.checkpoint.manifest import Delta
from penstock.checkpoint.recovery import Lineage
from penstock.checkpoint.store import ObjectStore
from penstock.clock import Clock
from penstock.errors import Corrupt, PenstockError, Unavailable
from penstock.ids import Attempt, Epoch, Generation
from penstock.state.database import PartitionDatabase
from penstock.state.delta import Marker
from penstock.state.hashing import sha256_of
from penstock.state.host import DatabaseFolder, HostFolder, PartitionFolder
from penstock.state.settings import StateSettings

Elsewhere = Callable[[PartitionDatabase, Path], None]
"""Fills an empty database with the newest version that a changelog outside the root has. The path
is where it may keep a file while it does so. `Unavailable` if that version will be there later."""

__all__ = ["Elsewhere", "Identity", "OpenPartition", "Restore", "Restorer", "Way"]

DOWNLOADS_MAX = 4
EVICT_EVERY = 64
"""After so many openings the disk is looked at, whatever they were."""
log = logging.getLogger("penstock.restore")


class Way(StrEnum):
    """How a partition's state was brought up."""

    NEW = "there was none yet"
    LOCAL_DATABASE = "database on this host"
    LOCAL_FILES = "snapshot files on this host"
    STORE_FILES = "snapshot files from the store"
    CHANGELOG = "the whole changelog"
    ELSEWHERE = "the changelog outside the root"


@dataclass(slots=True)
class Restore:
    """What one opening chose, and what it cost."""

    way: Way = Way.NEW
    deltas: int = 0
    downloads: int = 0
    downloaded_bytes: int = 0
    discarded: int = 0
    """Local databases and files that were not what they should be."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose state it is."""

    job: str
    operator: str
    partition: int
    generation: Generation

    def owns(self, marker: Marker) -> bool:
        """Whether a database with that marker is this partition's.

        One of an earlier generation is as good: a rewind goes on from a version of that time, and
        because attempts are unique its marker is on the lineage or it is not.
        """
        mine = (self.job, self.operator, self.partition)
        is_mine = mine == (marker.job, marker.operator, marker.partition)
        return is_mine and marker.generation <= self.generation


@dataclass(slots=True)
class OpenPartition:
    """A database at a committed version, and the folder it is in."""

    database: PartitionDatabase
    folder: DatabaseFolder
    restore: Restore

    def close(self) -> None:
        """Let go of both."""
        self.database.close()
        self.folder.let_go()

    def discard(self) -> None:
        """Let go of it for good: what was read here was damaged. The next opening restores."""
        self.database.close()
        self.folder.discard()
        self.folder.let_go()


@dataclass(slots=True)
class Restorer:
    """Opens the partitions of one host."""

    store: ObjectStore
    settings: StateSettings
    clock: Clock
    host: HostFolder | None = None
    """Whose disk is kept within its budget, if it is given."""
    ways: Counter[Way] = field(default_factory=Counter)
    """How often each way was taken."""

    def open(
        self,
        identity: Identity,
        lineage: Lineage,
        folder: PartitionFolder,
        whole: Callable[[], Lineage | None] = lambda: None,
        elsewhere: Elsewhere | None = None,
    ) -> OpenPartition:
        """The partition's database at the version `lineage` ends with.

        `whole` finds the lineage without snapshots, from the first epoch on, if it is kept.
        """
        started_s = self.clock.monotonic()
        attempt = _Opening(self.store, self.settings, identity, folder, Restore(), elsewhere)
        opened = attempt.local(lineage) or attempt.rebuilt(lineage, whole)
        try:
            _sweep(folder, lineage)
            opened.restore.seconds = self.clock.monotonic() - started_s
            self.ways[opened.restore.way] += 1
            self._make_room(opened.restore)
        except BaseException:
            opened.close()
            raise
        log.info("%s/%d: %s", identity.operator, identity.partition, opened.restore)
        return opened

    def _make_room(self, restore: Restore) -> None:
        """Evict what is not in use, now and then, and whenever something was downloaded."""
        if self.host is not None and (restore.downloads or self.ways.total() % EVICT_EVERY == 0):
            freed = self.host.evict(self.clock.wall())
            if freed:
                log.info("evicted %d bytes from %s", freed, self.host.folder)


@dataclass(slots=True)
class _Opening:
    """One opening under way."""

    store: ObjectStore
    settings: StateSettings
    identity: Identity
    folder: PartitionFolder
    restore: Restore
    elsewhere: Elsewhere | None = None
    verified: set[str] = field(default_factory=set)
    """Hashes of what this opening has read and found right."""
    counting: threading.Lock = field(default_factory=threading.Lock)

    def local(self, lineage: Lineage) -> OpenPartition | None:
        """Way 1: the first database here that can be brought to the version."""
        for held in self.folder.databases():
            database = self._open(held)
            if database is not None and self._serves(database, held, lineage):
                self.restore.way = Way.LOCAL_DATABASE if lineage.version else Way.NEW
                return OpenPartition(database, held, self.restore)
            self.restore.discarded += 1
            held.discard()
            held.let_go()
        return None

    def _serves(self, database: PartitionDatabase, held: DatabaseFolder, lineage: Lineage) -> bool:
        """Whether a database is at the version now; if not, it is closed."""
        try:
            if self._bring_up(database, lineage):
                return True
        except BaseException:  # the store is away: nothing is wrong with what is here
            database.close()
            held.let_go()
            raise
        database.close()
        return False

    def rebuilt(self, lineage: Lineage, whole: Callable[[], Lineage | None]) -> OpenPartition:
        """Ways 2 to 5, in a new folder."""
        with _writing(self.folder.path):
            held = self.folder.new_database()
        try:
            try:
                return self._from_store(lineage, whole, held)
            except Corrupt as damage:
                if self.elsewhere is None or lineage.version is None:
                    raise
                log.warning("%s; trying the changelog outside the root", damage)
                held.discard()
                return self._from_elsewhere(lineage, held, self.elsewhere)
        except BaseException:
            held.discard()
            held.let_go()
            raise

    def _from_store(
        self, lineage: Lineage, whole: Callable[[], Lineage | None], held: DatabaseFolder
    ) -> OpenPartition:
        try:
            return self._from(lineage, held)
        except Corrupt as damage:
            everything = whole()
            if everything is None or everything == lineage:
                raise
            log.warning("%s; trying the whole changelog", damage)
            held.discard()
            opened = self._from(everything, held)
            self.restore.way = Way.CHANGELOG
            return opened

    def _from_elsewhere(
        self, lineage: Lineage, held: DatabaseFolder, fill: Elsewhere
    ) -> OpenPartition:
        """What a changelog outside the root says, if that is the very version that is wanted."""
        held.path.mkdir(parents=True, exist_ok=True)
        database = PartitionDatabase(held.path, self.settings)
        try:
            fill(database, self.folder.scratch())
            if not _is_at(database, lineage):
                raise _other_version(database, lineage)
        except BaseException:
            database.close()
            raise
        self.restore.way = Way.ELSEWHERE
        return OpenPartition(database, held, self.restore)

    def _open(self, held: DatabaseFolder) -> PartitionDatabase | None:
        """The database in a folder, or None if it is of no use."""
        try:
            return PartitionDatabase(held.path, self.settings)
        except (Corrupt, Unavailable) as useless:
            log.warning("discarded: %s", useless)
            return None

    def _bring_up(self, database: PartitionDatabase, lineage: Lineage) -> bool:
        """Take in what the database lacks; False if it is not on the lineage."""
        missing = _missing(database.marker, self.identity, lineage)
        if missing is None:
            return False
        try:
            self._ingest(database, missing)
        except Corrupt as damage:
            log.warning("%s", damage)
            return False
        return _is_at(database, lineage)

    def _from(self, lineage: Lineage, held: DatabaseFolder) -> OpenPartition:
        """Fetch everything, several at once; lay the files, open them, take in the deltas."""
        self._fetch_all(lineage)
        self._lay(lineage, held.path)
        database = PartitionDatabase(held.path, self.settings)
        try:
            self._ingest(database, lineage.deltas)
            if not _is_at(database, lineage):
                raise Corrupt(
                    f"database {held.path.name}",
                    f"is at {database.marker} after a restore to {lineage.version}",
                    "restore an older epoch, and report this",
                )
        except BaseException:
            database.close()
            raise
        return OpenPartition(database, held, self.restore)

    def _fetch_all(self, lineage: Lineage) -> None:
        files = [(file.ref, self.folder.file(file.ref.sha256)) for file in lineage.files]
        deltas = [(d.ref, self.folder.delta(epoch, d.attempt)) for epoch, d in lineage.deltas]
        pool = ThreadPoolExecutor(DOWNLOADS_MAX)
        try:
            fetches = [pool.submit(self._fetch, ref, path) for ref, path in (*files, *deltas)]
            fetched = [each.result() for each in fetches]
        finally:  # after a failure the rest is not worth fetching
            pool.shutdown(cancel_futures=True)
        if files:
            self.restore.way = Way.STORE_FILES if any(fetched[: len(files)]) else Way.LOCAL_FILES
        else:
            self.restore.way = Way.CHANGELOG if deltas else Way.NEW

    def _lay(self, lineage: Lineage, folder: Path) -> None:
        """Put the snapshot's files where a database expects them."""
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        for file in lineage.files:
            cached, target = self.folder.file(file.ref.sha256), folder / file.name
            with _writing(target):
                if target.suffix == ".sst":
                    target.hardlink_to(cached)  # the database never changes a file, it adds some
                else:
                    shutil.copyfile(cached, target)

    def _ingest(self, database: PartitionDatabase, deltas: Sequence[tuple[Epoch, Delta]]) -> None:
        paths: list[Path] = []
        for epoch, delta in deltas:
            path = self.folder.delta(epoch, delta.attempt)
            if delta.ref.sha256 not in self.verified:
                self._fetch(delta.ref, path)
            paths.append(path)
        database.ingest(paths)
        self.restore.deltas += len(paths)

    def _fetch(self, ref: Ref, path: Path) -> bool:
        """Have the object `ref` names at `path`, verified; whether it came from the store."""
        if path.exists():
            if self._is_right(path, ref):
                self.verified.add(ref.sha256)
                return False
            with self.counting:
                self.restore.discarded += 1
            path.unlink(missing_ok=True)
        partial = path.with_name(f"{path.name}.{self.folder.chance.unique()}.part")
        with _writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._download(ref, partial)
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)
        self.verified.add(ref.sha256)
        return True

    def _is_right(self, path: Path, ref: Ref) -> bool:
        """Whether a cached file is what it should be. It counts as used now."""
        try:
            os.utime(path)
            return sha256_of(path) == ref.sha256
        except FileNotFoundError:  # evicted since
            return False

    def _download(self, ref: Ref, path: Path) -> None:
        with path.open("w+b") as file:
            target = HashedFile(file, not_longer(ref))
            if not self.store.download(ref.key, target):
                raise Corrupt(ref.key, "is missing", "restore it from a copy or an older epoch")
            found = target.hexdigest()
        verify(ref, found, path.stat().st_size)
        with self.counting:
            self.restore.downloads += 1
            self.restore.downloaded_bytes += ref.size_bytes


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """A disk that is full or fails ends the opening at once, by the name of the file. The store
    explains its own errors, so what arrives here is this host's."""
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"file {path}",
            f"could not be written while state was restored ({error.strerror})",
            f"free space in {path.parent}, or give this user access to it, and try again",
        ) from error


def _sweep(folder: PartitionFolder, lineage: Lineage) -> None:
    """Forget cached deltas and files that this lineage has left behind."""
    if lineage.version is not None:
        deltas = {folder.delta(epoch, delta.attempt) for epoch, delta in lineage.deltas}
        files = {folder.file(file.ref.sha256) for file in lineage.files}
        folder.keep_only(deltas, files, lineage.version[0])


def _missing(
    marker: Marker | None, identity: Identity, lineage: Lineage
) -> Sequence[tuple[Epoch, Delta]] | None:
    """The deltas a database with that marker lacks; None if it is not on the lineage."""
    if marker is None:
        return lineage.deltas if not lineage.files else None
    if not identity.owns(marker):
        return None
    at = (marker.epoch, marker.attempt)
    if at == lineage.files_at:
        return lineage.deltas
    for number, (epoch, delta) in enumerate(lineage.deltas):
        if (epoch, delta.attempt) == at:
            return lineage.deltas[number + 1 :]
    return None


def _other_version(database: PartitionDatabase, lineage: Lineage) -> PenstockError:
    """Why a changelog outside the root does not serve. It is given an epoch once that is committed,
    so it may be behind for a moment."""
    marker, version = database.marker, lineage.version
    assert version is not None
    where = "the changelog outside the root"
    if marker is None or marker.epoch < version[0]:
        found = f"has come to {f'epoch {marker.epoch}' if marker else 'no epoch'}, not {version[0]}"
        return Unavailable(where, found, "it is tried again; see that the job can write to it")
    found = f"is at epoch {marker.epoch} of another history, and epoch {version[0]} is wanted"
    return Corrupt(where, found, "restore what is missing in the root from a copy")


def _is_at(database: PartitionDatabase, lineage: Lineage) -> bool:
    marker = database.marker
    at: tuple[Epoch, Attempt] | None = None if marker is None else (marker.epoch, marker.attempt)
    return at == lineage.version
