"""A delta: one partition's state changes of one epoch, as one sorted SST.

It is the changelog segment, and it is what the next epoch ingests. The marker inside makes the
two one: RocksDB takes a file in whole or not at all, so a database that shows a marker has
exactly the changes up to it. Removed keys are real tombstones; their names are also kept under
a key of the delta's own, because a reader of the changelog cannot see a tombstone otherwise.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rocksdict import SstFileWriter

from penstock.errors import Corrupt, PenstockError, Unavailable
from penstock.fields import Name, PartitionNumber
from penstock.ids import Attempt, Epoch, Generation
from penstock.state.hashing import GrowingHash
from penstock.state.layout import MARKER_KEY, REMOVED_KEY, SCHEMA_KEY
from penstock.state.settings import StateSettings, sst_options

__all__ = ["DeltaFile", "Marker", "decode_marker", "decode_removed", "write_delta", "write_ordered"]


class Marker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which version of which partition's state this is."""

    job: Name
    operator: Name
    partition: PartitionNumber
    generation: Generation
    epoch: Epoch
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class DeltaFile:
    """A delta on this host's disk."""

    path: Path
    marker: Marker
    sha256: str
    size_bytes: int


def write_delta(
    path: Path,
    marker: Marker,
    changes: Mapping[bytes, bytes | None],
    schemas: bytes,
    settings: StateSettings,
) -> DeltaFile:
    """Write the changes, sorted, with their marker. None stands for a removed key."""
    try:
        return write_ordered(path, marker, changes.items(), schemas, settings)
    except _OutOfOrderError:  # most are made in the order of their keys, and looking first costs
        keys = sorted(changes)
        pairs = zip(keys, map(changes.__getitem__, keys), strict=True)
        return write_ordered(path, marker, pairs, schemas, settings)


def write_ordered(
    path: Path,
    marker: Marker,
    changes: Iterable[tuple[bytes, bytes | None]],
    schemas: bytes,
    settings: StateSettings,
) -> DeltaFile:
    """The same of changes that come in the order of their keys; they are not kept in memory."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = SstFileWriter(options=sst_options(settings))
        writer.open(str(path))
        hashing = GrowingHash(path)
    except Exception as error:
        raise _unwritten(path, error) from error
    try:
        writer[MARKER_KEY] = msgspec.json.encode(marker)
        writer[SCHEMA_KEY] = schemas
        _write(writer, changes)
        writer.finish()
        return DeltaFile(path, marker, hashing.finish(), path.stat().st_size)
    except PenstockError:  # of whoever gives the changes
        path.unlink(missing_ok=True)
        raise
    except Exception as error:
        path.unlink(missing_ok=True)
        if "ascending order" in str(error):
            raise _OutOfOrderError from error
        raise _unwritten(path, error) from error
    finally:
        hashing.stop()


def _write(writer: SstFileWriter, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
    """Every change, then the names of those that are removals."""
    removed: list[bytes] = []
    for key, value in changes:
        if value is None:
            del writer[key]
            removed.append(key)
        else:
            writer[key] = value
    writer[REMOVED_KEY] = msgspec.msgpack.encode(removed)


class _OutOfOrderError(Exception):
    """A change came after one with a greater key."""


def decode_marker(name: str, body: bytes | None) -> Marker | None:
    """The marker in `body`, or None if there is none; `Corrupt` if it is no marker."""
    if body is None:
        return None
    try:
        return msgspec.json.decode(body, type=Marker)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(name, "has a marker that cannot be read", "restore it") from error


def decode_removed(body: bytes | None) -> list[bytes]:
    """The keys a delta removed."""
    return [] if body is None else msgspec.msgpack.decode(body, type=list[bytes])


def _unwritten(path: Path, error: Exception) -> Unavailable:
    why = error.strerror if isinstance(error, OSError) else error
    return Unavailable(
        f"delta {path.name}",
        f"could not be written ({why})",
        f"free space in {path.parent}, or give this user access to it, and try again",
    )
