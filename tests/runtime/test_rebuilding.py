"""A database filled from a changelog outside the root: all of a version, or nothing that counts."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from penstock.errors import Corrupt
from penstock.ids import Attempt, Epoch, Generation
from penstock.runtime.rebuilding import UNFINISHED, fill
from penstock.state import Marker, PartitionDatabase, StateSettings
from penstock.state.layout import EVERYTHING, MARKER_KEY, SCHEMA_KEY

MARKER = Marker(
    job="shop",
    operator="count",
    partition=2,
    generation=Generation(1),
    epoch=Epoch(7),
    attempt=Attempt("x"),
)
SCHEMAS = b'{"clicks":{"number":0,"description":"value int"}}'
VERSION = {MARKER_KEY: msgspec.json.encode(MARKER), SCHEMA_KEY: SCHEMAS}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[PartitionDatabase]:
    with PartitionDatabase(tmp_path / "database", StateSettings()) as found:
        yield found


def entries(database: PartitionDatabase) -> dict[bytes, bytes]:
    return dict(database.scan(*EVERYTHING))


def test_later_pieces_replace_earlier_ones(database: PartitionDatabase, tmp_path: Path) -> None:
    """They come as they were written, and an entry may be in any of them, or be taken back."""
    pieces: list[Mapping[bytes, bytes | None]] = [
        {b"\x01a": b"1", b"\x01b": b"1", b"\x01c": b"1", **VERSION},
        {b"\x01c": b"2", b"\x01a": None, b"\x01d": b"1"},
        {b"\x01d": None, b"\x01nobody": None},
    ]
    fill(database, pieces, tmp_path / "scratch")

    assert database.marker == MARKER
    assert entries(database) == {b"\x01b": b"1", b"\x01c": b"2", **VERSION}
    assert list(tmp_path.iterdir()) == [database.folder]


def test_one_that_is_not_finished_is_no_version(
    database: PartitionDatabase, tmp_path: Path
) -> None:
    """Its process may die at any moment, and the next one finds what it left."""

    def broken() -> Iterator[Mapping[bytes, bytes | None]]:
        yield {b"\x01a": b"1", **VERSION}
        raise RuntimeError("the broker is gone")

    with pytest.raises(RuntimeError):
        fill(database, broken(), tmp_path / "scratch")

    assert database.marker == UNFINISHED


def test_nothing_at_all_is_no_version(database: PartitionDatabase, tmp_path: Path) -> None:
    """An empty topic is not an empty state."""
    fill(database, [], tmp_path / "scratch")

    assert database.marker is None


def test_a_version_without_schemas_is_damage(database: PartitionDatabase, tmp_path: Path) -> None:
    """Nobody could read its entries."""
    with pytest.raises(Corrupt, match="has a version and no schemas"):
        fill(database, [{MARKER_KEY: msgspec.json.encode(MARKER)}], tmp_path / "scratch")
