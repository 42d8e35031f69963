"""Reading a delta as what it is: the changes of one epoch, key by key.

A tombstone cannot be seen in a database, so a delta lists what it removed; the reader puts the
two together again, in key order.
"""

import shutil
from collections.abc import Iterator
from heapq import merge
from pathlib import Path

from penstock.state.database import PartitionDatabase
from penstock.state.delta import Marker, decode_removed
from penstock.state.layout import REMOVED_KEY, after_prefix
from penstock.state.settings import StateSettings

__all__ = ["read_changes", "read_marker"]

_ENTRIES = b"\x01"


def read_changes(
    delta: Path, scratch: Path, settings: StateSettings
) -> Iterator[tuple[bytes, bytes | None]]:
    """Every entry a delta changed, in key order; None for a removed one.

    `scratch` must not exist; it is used while reading and removed afterwards.
    """
    try:
        with _opened(delta, scratch, settings) as database:
            changed = database.scan(_ENTRIES, after_prefix(_ENTRIES))
            removed = ((key, None) for key in decode_removed(database.get(REMOVED_KEY)))
            yield from merge(changed, removed, key=lambda change: change[0])
    finally:  # also when the reader has seen enough
        shutil.rmtree(scratch, ignore_errors=True)


def read_marker(delta: Path, scratch: Path, settings: StateSettings) -> Marker | None:
    """The marker of a delta."""
    with _opened(delta, scratch, settings) as database:
        marker = database.marker
    shutil.rmtree(scratch, ignore_errors=True)
    return marker


def _opened(delta: Path, scratch: Path, settings: StateSettings) -> PartitionDatabase:
    database = PartitionDatabase(scratch, settings)
    database.ingest([delta])
    return database
