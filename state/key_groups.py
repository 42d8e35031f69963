"""Key groups: the fixed shares of the key space that partitions are made of.

A key belongs to a group for ever; which partition a group belongs to follows from how many
partitions there are. So changing that number moves whole groups, and a group is one range of a
database: it is cut out as a sorted file and taken in elsewhere, entry by entry the same.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from penstock.errors import Invalid
from penstock.state.database import PartitionDatabase
from penstock.state.delta import DeltaFile, Marker, write_ordered
from penstock.state.layout import GROUPS_MAX, group_of_entry, group_prefix
from penstock.state.settings import StateSettings

__all__ = ["GROUPS", "extract", "fingerprints", "groups_of", "merge", "partition_of"]

GROUPS = 256
"""How many key groups a job has, unless it says otherwise at its first start."""


def partition_of(group: int, partitions: int, groups: int = GROUPS) -> int:
    """The partition that a key group belongs to."""
    return group * partitions // groups


def groups_of(partition: int, partitions: int, groups: int = GROUPS) -> range:
    """The key groups of a partition."""
    if not 1 <= partitions <= groups <= GROUPS_MAX or not 0 <= partition < partitions:
        raise Invalid(
            f"partition {partition} of {partitions}",
            f"cannot be made of {groups} key groups",
            f"use 1 to {groups} partitions",
        )
    start = -(-partition * groups // partitions)
    stop = -(-(partition + 1) * groups // partitions)
    return range(start, stop)


def extract(
    database: PartitionDatabase, groups: range, path: Path, marker: Marker, settings: StateSettings
) -> DeltaFile:
    """Write everything of some key groups as one sorted file."""
    schemas = database.schemas or b"{}"
    return write_ordered(path, marker, _entries(database, groups), schemas, settings)


def merge(parts: Iterable[Path], into: PartitionDatabase) -> None:
    """Take in files cut from several databases. Their groups do not overlap, so order is free."""
    into.ingest(list(parts))


def fingerprints(database: PartitionDatabase, groups: range) -> Mapping[int, str]:
    """A hash of everything in each key group that has something: equal means equal."""
    hashes: dict[int, hashlib._Hash] = {}
    for key, value in _entries(database, groups):
        tally = hashes.setdefault(group_of_entry(key), hashlib.sha256())
        tally.update(len(key).to_bytes(4, "big") + key)
        tally.update(len(value).to_bytes(8, "big") + value)
    return {group: tally.hexdigest() for group, tally in hashes.items()}


def _entries(database: PartitionDatabase, groups: range) -> Iterator[tuple[bytes, bytes]]:
    return database.scan(group_prefix(groups.start), group_prefix(groups.stop))
