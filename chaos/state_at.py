"""The state of a job after an epoch, entry by entry as it is stored: values, timers, ages."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.perform import perform
from penstock.checkpoint.recovery import PartitionName, recover, whole_changelog
from penstock.checkpoint.restore import Identity, Restorer
from penstock.checkpoint.root import Root
from penstock.errors import PenstockError
from penstock.state.database import PartitionDatabase
from penstock.state.host import HostFolder
from penstock.state.keys import decode_key
from penstock.state.layout import DATA, EVERYTHING, MARKER_KEY, section_prefix
from penstock.state.settings import StateSettings

__all__ = ["all_entries", "entry_name", "state_at"]

SETTINGS = StateSettings(block_cache_bytes=8 << 20)
_HEADER = len(section_prefix(0, DATA))


def state_at(
    root: Root, manifest: Manifest, scratch: Path
) -> Iterator[tuple[PartitionName, dict[bytes, bytes]]]:
    """Every partition of every operator as it was after an epoch, without its marker."""
    restorer, folders = Restorer(root.store, SETTINGS, root.clock), HostFolder(scratch, root.chance)
    lineages = perform(recover(Chain(), manifest), root.handlers)
    for (operator, partition), lineage in sorted(lineages.items()):
        who = Identity(manifest.job, operator, partition, manifest.generation)
        whole = whole_changelog(Chain(), manifest, (operator, partition))
        opened = restorer.open(
            who,
            lineage,
            folders.partition(manifest.job, operator, partition),
            partial(perform, whole, root.handlers),
        )
        try:
            found = all_entries(opened.database)
        finally:
            opened.close()
        found.pop(MARKER_KEY, None)
        yield (operator, partition), found


def all_entries(database: PartitionDatabase) -> dict[bytes, bytes]:
    """Everything that is in a database, its marker too."""
    return dict(database.scan(*EVERYTHING))


def entry_name(entry: bytes) -> str:
    """What a person calls an entry: the key it belongs to, if it is a value."""
    if entry[:1] == b"\x01" and entry[_HEADER - 1 : _HEADER] == DATA:
        try:
            return f"key {decode_key(entry, _HEADER)[0]!r}"
        except (PenstockError, ValueError, IndexError):
            pass  # of a vectorised state, which belongs to no single key
    return f"entry {entry[:24].hex()}"
