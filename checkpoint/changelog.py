"""The changelog of a partition as a stream: which entry changed to what, epoch by epoch.

The segments are the deltas, which are there anyway; compaction of the stream is the snapshot.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.checkpoint.formats import Ref, not_longer, verify
from penstock.checkpoint.hashed_file import HashedFile
from penstock.checkpoint.recovery import PartitionName
from penstock.checkpoint.root import Root
from penstock.errors import Corrupt, Gone
from penstock.ids import Epoch
from penstock.state.changelog import read_changes
from penstock.state.hashing import sha256_of
from penstock.state.settings import StateSettings

__all__ = ["Change", "read_changelog"]


@dataclass(frozen=True, slots=True)
class Change:
    """One entry, and what it became in an epoch."""

    epoch: Epoch
    entry: bytes
    value: bytes | None
    """None: it was removed."""


def read_changelog(
    root: Root, name: PartitionName, first: Epoch, last: Epoch, scratch: Path
) -> Iterator[Change]:
    """Every change of a partition from epoch `first` to `last`, in order of epoch and entry.

    `Gone` if history does not reach back to `first`. `scratch` is a folder to work in.
    """
    segments = []
    reached: Epoch | None = None
    for manifest in root.history():
        reached = manifest.epoch
        if manifest.epoch < first:
            break
        state = manifest.operators.get(name[0], {}).get(name[1])
        if manifest.epoch <= last and state is not None and state.delta is not None:
            segments.append((manifest.epoch, state.delta.ref))
    if reached is None or reached > first:
        raise Gone(
            f"the changelog of {name[0]}/{name[1]}",
            f"is kept from epoch {reached} on, not from {first}",
            "read from there, or begin with a snapshot",
        )
    for epoch, ref in reversed(segments):
        yield from _read_segment(root, epoch, ref, scratch)


def _read_segment(root: Root, epoch: Epoch, ref: Ref, scratch: Path) -> Iterator[Change]:
    scratch.mkdir(parents=True, exist_ok=True)
    path = scratch / f"{root.chance.unique()}.sst"
    try:
        with path.open("w+b") as target:
            if not root.store.download(ref.key, HashedFile(target, not_longer(ref))):
                raise Corrupt(ref.key, "is missing", "restore it from a copy")
        verify(ref, sha256_of(path), path.stat().st_size)
        changes = read_changes(path, scratch / root.chance.unique(), StateSettings())
        for entry, value in changes:
            yield Change(epoch, entry, value)
    finally:
        path.unlink(missing_ok=True)
