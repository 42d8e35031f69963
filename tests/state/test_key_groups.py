from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Invalid
from penstock.ids import Attempt, Epoch, Generation
from penstock.state.changelog import read_changes, read_marker
from penstock.state.database import PartitionDatabase
from penstock.state.delta import DeltaFile, Marker, write_delta
from penstock.state.key_groups import extract, fingerprints, groups_of, merge, partition_of
from penstock.state.layout import DATA, section_prefix
from penstock.state.settings import StateSettings

SETTINGS = StateSettings(block_cache_bytes=4 << 20)


def marker(epoch: int = 1) -> Marker:
    return Marker(
        job="j",
        operator="o",
        partition=0,
        generation=Generation(1),
        epoch=Epoch(epoch),
        attempt=Attempt("a"),
    )


def entry(group: int, name: str) -> bytes:
    return section_prefix(group, DATA) + name.encode()


def delta(path: Path, changes: dict[bytes, bytes | None], epoch: int = 1) -> DeltaFile:
    return write_delta(path, marker(epoch), changes, b"{}", SETTINGS)


@given(groups=st.integers(1, 300), data=st.data())
def test_every_group_belongs_to_one_partition(groups: int, data: st.DataObject) -> None:
    """Also when the number of partitions does not divide the number of groups."""
    partitions = data.draw(st.integers(1, groups))
    owned = [group for p in range(partitions) for group in groups_of(p, partitions, groups)]
    assert owned == list(range(groups))
    for partition in range(partitions):
        for group in groups_of(partition, partitions, groups):
            assert partition_of(group, partitions, groups) == partition


@pytest.mark.parametrize(("partition", "partitions"), [(0, 0), (0, 257), (2, 2), (-1, 2)])
def test_an_impossible_partition_is_refused(partition: int, partitions: int) -> None:
    """More partitions than groups would leave some without any key."""
    with pytest.raises(Invalid, match="key groups"):
        groups_of(partition, partitions)


def test_groups_cut_out_and_merged_are_the_same(tmp_path: Path) -> None:
    """From three partitions to two, entry by entry the same."""
    everything = {entry(g, f"k{n}"): f"{g}/{n}".encode() for g in range(12) for n in range(20)}
    old = []
    for partition in range(3):
        mine = groups_of(partition, 3, 12)
        kept = {
            k: v
            for k, v in everything.items()
            if any(k.startswith(section_prefix(g, DATA)) for g in mine)
        }
        database = PartitionDatabase(tmp_path / f"old{partition}", SETTINGS)
        database.ingest([delta(tmp_path / f"d{partition}.sst", {**kept}).path])
        old.append(database)
    before = {g: h for db in old for g, h in fingerprints(db, range(12)).items()}

    after: dict[int, str] = {}
    for partition in range(2):
        mine = groups_of(partition, 2, 12)
        parts = [
            extract(db, mine, tmp_path / f"cut{partition}-{number}.sst", marker(), SETTINGS).path
            for number, db in enumerate(old)
        ]
        with PartitionDatabase(tmp_path / f"new{partition}", SETTINGS) as new:
            merge(parts, new)
            after |= fingerprints(new, mine)
    for database in old:
        database.close()

    assert after == before
    assert len(after) == 12


def test_a_fingerprint_notices_one_changed_byte(tmp_path: Path) -> None:
    """Verified equal must mean equal."""
    found = []
    for number, value in enumerate((b"a", b"b")):
        with PartitionDatabase(tmp_path / str(number), SETTINGS) as database:
            database.ingest([delta(tmp_path / f"{number}.sst", {entry(1, "k"): value}).path])
            found.append(fingerprints(database, range(4)))
    assert found[0] != found[1]


def test_a_delta_reads_as_changes_and_removals_in_key_order(tmp_path: Path) -> None:
    """The changelog as a stream: what was set, and what was removed."""
    changes: dict[bytes, bytes | None] = {
        entry(1, "b"): b"2",
        entry(1, "a"): None,
        entry(0, "z"): b"1",
        entry(2, "c"): None,
    }
    written = delta(tmp_path / "x.sst", changes, epoch=7)

    read = list(read_changes(written.path, tmp_path / "scratch", SETTINGS))

    assert read == sorted(changes.items())
    assert read_marker(written.path, tmp_path / "scratch", SETTINGS) == marker(7)
    assert not (tmp_path / "scratch").exists()
