"""A host's state folder: databases, cached deltas and snapshot files of the partitions it works on.

    <folder>/<job>/<operator>/<partition>/
        db-<name>/  db-<name>.lock      a database, and who has it open
        deltas/<epoch>-<attempt>.sst    deltas made or fetched here
        files/<sha256>                  files of snapshots cut or fetched here

Nothing in it is needed: everything can be fetched again, so everything may be removed that is
not open right now. A database is opened under a lock of our own; whoever finds it taken takes
another folder and never waits, because the holder may be a stopped process.
"""

import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.clock import Chance
from penstock.errors import Invalid
from penstock.ids import Attempt, Epoch, check_name
from penstock.private_folder import own_folder, user_folder

__all__ = ["DatabaseFolder", "HostFolder", "PartitionFolder", "default_state_folder"]

FRESH_S = 3600.0
"""Files beside the databases that were used less than this ago are somebody's work."""


def default_state_folder() -> Path:
    """Where state goes unless told otherwise: PENSTOCK_STATE_DIR, or a folder of this user alone
    below the temporary folder."""
    named = os.environ.get("PENSTOCK_STATE_DIR")
    return Path(named) if named else user_folder("state")


class DatabaseFolder:
    """A folder for one database, held by this process until it is let go."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    def discard(self) -> None:
        """Remove what is in it; the folder stays held."""
        shutil.rmtree(self.path, ignore_errors=True)

    def let_go(self) -> None:
        """Let others have it. Of one that was discarded nothing stays."""
        with suppress(OSError):
            os.utime(self.path)
        if not self.path.exists():
            _lock_of(self.path).unlink(missing_ok=True)
        os.close(self._lock)


@dataclass(frozen=True, slots=True)
class PartitionFolder:
    """What one host keeps of one partition."""

    path: Path
    chance: Chance

    def databases(self) -> Iterator[DatabaseFolder]:
        """The databases nobody has open, the most recently used first; each is held."""
        for path in sorted(self._database_paths(), key=_used_s, reverse=True):
            lock = _try_lock(_lock_of(path))
            if lock is not None:
                yield DatabaseFolder(path, lock)

    def new_database(self) -> DatabaseFolder:
        """A new, empty folder, held."""
        path = self.path / f"db-{self.chance.unique()}"
        self.path.mkdir(parents=True, exist_ok=True)
        lock = _try_lock(_lock_of(path))  # first: nobody may evict what nobody seems to hold
        assert lock is not None, "a new name is locked by nobody"
        path.mkdir()
        return DatabaseFolder(path, lock)

    def delta(self, epoch: Epoch, attempt: Attempt) -> Path:
        """Where that delta is, or would be."""
        return self.path / "deltas" / f"{epoch:012d}-{attempt}.sst"

    def file(self, sha256: str) -> Path:
        """Where the snapshot file of that hash is, or would be."""
        return self.path / "files" / sha256

    def scratch(self) -> Path:
        """A path that nobody uses."""
        return self.path / f"scratch-{self.chance.unique()}"

    def keep_only(self, deltas: set[Path], files: set[Path], up_to: Epoch) -> None:
        """Remove cached deltas up to an epoch, and files, that the lineage there does not need.

        Deltas of later epochs are somebody's work in progress.
        """
        for path in _children(self.path / "deltas"):
            if path not in deltas and path.name < f"{up_to + 1:012d}" and not _is_partial(path):
                path.unlink(missing_ok=True)
        for path in _children(self.path / "files"):
            if path not in files and not _is_partial(path):
                path.unlink(missing_ok=True)

    def _database_paths(self) -> list[Path]:
        return [p for p in _children(self.path) if p.name.startswith("db-") and p.is_dir()]


class HostFolder:
    """The state folder of this host."""

    def __init__(
        self,
        folder: Path,
        chance: Chance,
        budget_bytes: int = 50 << 30,
        idle_s: float = 7 * 86_400.0,
    ) -> None:
        if budget_bytes <= 0:
            raise Invalid("the disk budget", f"is {budget_bytes} bytes", "allow some")
        if idle_s <= 0:
            raise Invalid("the idle time", f"is {idle_s} s", "allow some")
        self.folder = folder
        self._chance = chance
        self._budget_bytes = budget_bytes
        self._idle_s = idle_s

    def partition(self, job: str, operator: str, partition: int) -> PartitionFolder:
        """What is kept here of one partition. A database found there is trusted by its marker, so
        the job's folder must be this user's own."""
        job_folder = self.folder / check_name("job", job)
        path = job_folder / check_name("operator", operator) / str(partition)
        own_folder(job_folder)
        return PartitionFolder(path, self._chance)

    def evict(self, now_s: float) -> int:
        """Remove what nobody has used for the idle time, of whatever job or generation; then what
        was used longest ago, until the rest fits the budget. How many bytes.

        Whatever some process has open stays, and so does what lies beside the databases for a
        while, because nothing tells who is at work with it: the budget may be exceeded by these.
        """
        found = sorted((_used_s(path), path) for path in self._evictable())
        sizes = {path: _size_bytes(path, set()) for _, path in found}
        excess = _size_bytes(self.folder, set()) - self._budget_bytes
        freed = 0
        for used_s, path in found:
            if freed >= excess and used_s > now_s - self._idle_s:
                break
            is_fresh = not path.name.startswith("db-") and used_s > now_s - FRESH_S
            if not is_fresh and _remove(path):
                freed += sizes[path]
        return freed

    def _evictable(self) -> list[Path]:
        found: list[Path] = []
        for partition in self.folder.glob("*/*/*"):
            for path in _children(partition):
                if path.name in ("deltas", "files"):
                    found += _children(path)
                elif path.is_dir():
                    found.append(path)
        return found


def _is_partial(path: Path) -> bool:
    """Whether a file is being fetched."""
    return path.suffix == ".part"


def _remove(path: Path) -> bool:
    """Remove a file, or a database nobody has open."""
    if path.is_file():
        path.unlink(missing_ok=True)
        return True
    lock = _try_lock(_lock_of(path))
    if lock is None:
        return False
    shutil.rmtree(path, ignore_errors=True)
    _lock_of(path).unlink(missing_ok=True)
    os.close(lock)
    return True


def _lock_of(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _try_lock(path: Path) -> int | None:
    """The lock, or None if somebody has it. One that was removed meanwhile is nobody's."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_ino == path.stat().st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _used_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _size_bytes(path: Path, counted: set[int]) -> int:
    """What it takes on the disk. A file with two names, as database and cache have, counts once;
    what somebody removes meanwhile counts nothing."""
    try:
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode):
            is_new = found.st_ino not in counted
            counted.add(found.st_ino)
            return found.st_size if is_new else 0
        return sum(_size_bytes(each, counted) for each in path.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return 0
