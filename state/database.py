"""A partition's database on this host: RocksDB that is only ever ingested into.

What it shows is exactly one committed version, named by the marker of the last delta it took
in. Processing reads it and never writes it. Whoever finds it locked takes another folder: a
process that still holds it may be dead, stopped, or a slower attempt of the same epoch, and in
none of these cases is there anything to wait for.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rocksdict import Checkpoint, DbClosedError, Rdict, ReadOptions

from penstock.errors import Bug, Corrupt, Invalid, PenstockError, Unavailable
from penstock.state.delta import decode_marker
from penstock.state.layout import MARKER_KEY, SCHEMA_KEY
from penstock.state.settings import StateSettings, database_options, ingest_options

__all__ = ["Locked", "PartitionDatabase"]

log = logging.getLogger("penstock.state")


class Locked(Unavailable):
    """Somebody has this database open. Take another folder."""


class PartitionDatabase:
    """One open database. Close it, or use it as a context."""

    def __init__(self, folder: Path, settings: StateSettings) -> None:
        self.folder = folder
        self.settings = settings
        self._db = _open(folder, settings)
        try:
            self.marker = decode_marker(str(folder), self._get(MARKER_KEY))
            """Which version this is; None for an empty one."""
        except PenstockError:
            self.close()
            raise

    @property
    def name(self) -> str:
        """What errors call it."""
        return _name(self.folder)

    @property
    def schemas(self) -> bytes | None:
        """The schemas its entries were written with."""
        return self._get(SCHEMA_KEY)

    def ingest(self, paths: Sequence[Path]) -> None:
        """Take in deltas, oldest first. All of them or none."""
        if not paths:
            return
        try:
            self._db.ingest_external_file([str(path) for path in paths], ingest_options())
        except Exception as error:
            raise _explained(self.folder, error) from error
        self.marker = decode_marker(str(self.folder), self._get(MARKER_KEY))

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """The values of many keys; fastest when the keys are sorted."""
        try:
            values: list[bytes | None] = self._db.get(keys)
        except Exception as error:
            raise _explained(self.folder, error) from error
        return values

    def get(self, key: bytes) -> bytes | None:
        """The value of one key."""
        return self._get(key)

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries from `start` up to, not including, `stop`, in order."""
        options = ReadOptions()
        options.set_iterate_upper_bound(stop)
        try:
            found = self._db.iter(options)
            found.seek(start)
            while found.valid():
                yield found.key(), found.value()
                found.next()
            # An unreadable block ends the scan as the last entry does; `items()` would not say.
            found.status()
        except Exception as error:
            raise _explained(self.folder, error) from error

    def compact(self) -> None:
        """Bring everything into the fewest files."""
        try:
            self._db.compact_range(None, None)
        except Exception as error:
            raise _explained(self.folder, error) from error

    def checkpoint(self, folder: Path) -> None:
        """A second folder with the same contents, made of links."""
        try:
            Checkpoint(self._db).create_checkpoint(str(folder))
        except Exception as error:
            raise _explained(self.folder, error) from error

    def files(self) -> list[str]:
        """The names of the SST files that make up the contents."""
        return sorted(file["name"].lstrip("/") for file in self._db.live_files())

    def close(self) -> None:
        """Let go of the folder. Closing twice is closing once. A database that is damaged says so
        also when it is closed, which helps nobody: whoever reads it is told."""
        try:
            self._db.close()
        except DbClosedError:
            pass
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing more telling
            log.info("%s did not close cleanly: %s", self.name, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._db.get(key)
        except Exception as error:
            raise _explained(self.folder, error) from error
        return value


def _open(folder: Path, settings: StateSettings) -> Any:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        options = database_options(settings)
        # Named for the column family as well, or else a reopened one keeps those it was made with.
        return Rdict(str(folder), options, column_families={"default": options})
    except Exception as error:
        raise _explained(folder, error) from error


def _name(folder: Path) -> str:
    return f"database {folder.name}"


def _explained(folder: Path, error: Exception) -> PenstockError:
    """rocksdict raises plain exceptions: what they say is all there is to go by."""
    said = str(error)
    name = _name(folder)
    if isinstance(error, DbClosedError):
        return Bug(name, "was used after it was closed", "report this")
    if "lock hold by current process" in said or "LOCK: Resource temporarily" in said:
        return Locked(name, "is open elsewhere", "take another folder")
    if "Permission denied" in said or "Read-only file system" in said:
        return Invalid(name, "cannot be opened", f"give this user access to {folder.parent}")
    if isinstance(error, FileExistsError | NotADirectoryError):
        return Invalid(name, "has a file in its place", f"look at {folder}, or use another folder")
    if "No space left" in said or "File too large" in said:
        return Unavailable(name, "ran out of disk", f"free space in {folder.parent}")
    return Corrupt(name, f"cannot be used ({said[:200]})", "it is discarded and restored")
