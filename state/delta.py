"""A delta: one partition's state changes of one epoch, as one sorted SST.

It is the changelog segment, and it is what the next epoch ingests. The marker inside makes the
two one: RocksDB takes a file in whole or not at all, so a database that shows a marker has
exactly the changes up to it. Removed keys are real tombstones; their names are also kept under
a key of the delta's own, because a reader of the changelog cannot see a tombstone otherwise.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rocksdict import SstFileWriter

from penstock.errors import Corrupt, Unavailable
from penstock.ids import Attempt, Epoch, Generation
from penstock.state.layout import MARKER_KEY, REMOVED_KEY, SCHEMA_KEY
from penstock.state.settings import StateSettings, sst_options

__all__ = ["DeltaFile", "Marker", "decode_marker", "decode_removed", "sha256_of", "write_delta"]

CHUNK_BYTES = 1 << 20


class Marker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which version of which partition's state this is."""

    job: str
    operator: str
    partition: int
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
    entries: int


def write_delta(
    path: Path,
    marker: Marker,
    changes: Mapping[bytes, bytes | None],
    schemas: bytes,
    settings: StateSettings,
) -> DeltaFile:
    """Write the changes, sorted, with their marker. None stands for a removed key."""
    try:
        _write(path, marker, changes, schemas, settings)
        return DeltaFile(path, marker, sha256_of(path), path.stat().st_size, len(changes))
    except OSError as error:
        raise _unwritten(path, str(error.strerror)) from error


def _write(
    path: Path,
    marker: Marker,
    changes: Mapping[bytes, bytes | None],
    schemas: bytes,
    settings: StateSettings,
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = SstFileWriter(options=sst_options(settings))
    keys, values = _sorted(changes)
    pairs = () if all(values) else zip(keys, values, strict=True)  # none is empty, none is None
    removed = [key for key, value in pairs if value is None]
    try:
        writer.open(str(path))
        writer[MARKER_KEY] = msgspec.json.encode(marker)
        writer[SCHEMA_KEY] = schemas
        writer[REMOVED_KEY] = msgspec.msgpack.encode(removed)
        for key, value in zip(keys, values, strict=True):
            if value is None:
                del writer[key]
            else:
                writer[key] = value
        writer.finish()
    except Exception as error:
        path.unlink(missing_ok=True)
        raise _unwritten(path, str(error)) from error


def _sorted(changes: Mapping[bytes, bytes | None]) -> tuple[list[bytes], list[bytes | None]]:
    """Keys in order, and their values. Changes made in order, as most are, are not looked up."""
    keys = sorted(changes)
    if keys == list(changes):
        return keys, list(changes.values())
    return keys, [changes[key] for key in keys]


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


def sha256_of(path: Path) -> str:
    """The hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unwritten(path: Path, why: str) -> Unavailable:
    return Unavailable(
        f"delta {path.name}",
        f"could not be written ({why})",
        f"free space in {path.parent}, or give this user access to it, and try again",
    )
