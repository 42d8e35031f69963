"""How a delta is written: in order or not, hashed as it grows, and within bounds."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import Corrupt, Unavailable
from penstock.ids import Attempt, Epoch, Generation
from penstock.state.changelog import read_changes
from penstock.state.delta import Marker, write_delta, write_ordered
from penstock.state.hashing import GrowingHash, sha256_of
from penstock.state.overlay import Overlay
from penstock.state.settings import StateSettings

SETTINGS = StateSettings(block_cache_bytes=1 << 20)
MARKER = Marker(
    job="j",
    operator="o",
    partition=0,
    generation=Generation(1),
    epoch=Epoch(1),
    attempt=Attempt("a"),
)


def changes(count: int) -> dict[bytes, bytes | None]:
    """In the order of their keys; every seventh is a removal."""
    return {
        b"\x01" + number.to_bytes(4, "big"): None if number % 7 == 0 else os.urandom(40)
        for number in range(count)
    }


@pytest.mark.parametrize("count", [0, 1, 50_000])
@pytest.mark.parametrize("order", ["sorted", "reversed", "last first"])
def test_a_delta_is_the_same_in_whatever_order_changes_were_made(
    tmp_path: Path, count: int, order: str
) -> None:
    """And its hash, taken while it was written, is that of the file."""
    made = changes(count)
    keys = list(made)
    given = {
        "sorted": keys,
        "reversed": keys[::-1],
        "last first": keys[-1:] + keys[:-1],
    }[order]
    delta = write_delta(tmp_path / "d.sst", MARKER, {k: made[k] for k in given}, b"{}", SETTINGS)
    assert delta.sha256 == sha256_of(delta.path)
    assert delta.size_bytes == delta.path.stat().st_size
    assert dict(read_changes(delta.path, tmp_path / "reading", SETTINGS)) == made


def test_a_hash_keeps_up_with_a_file_that_grows(tmp_path: Path) -> None:
    """However the pieces fall."""
    path = tmp_path / "growing"
    with path.open("wb", buffering=0) as file:
        hashing = GrowingHash(path)
        for size in (1, 1 << 20, 3, 5 << 20, 0, 12345):
            file.write(os.urandom(size))
    assert hashing.finish() == sha256_of(path)


def test_a_failure_while_changes_are_given_leaves_no_file(tmp_path: Path) -> None:
    """What the giver says is passed on as it is."""

    def damaged() -> Iterator[tuple[bytes, bytes | None]]:
        yield b"\x01a", b"1"
        raise Corrupt("database db", "cannot be read", "restore it")

    with pytest.raises(Corrupt, match="database db"):
        write_ordered(tmp_path / "d.sst", MARKER, damaged(), b"{}", SETTINGS)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    """A file is in its place."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Unavailable, match="could not be written"):
        write_delta(tmp_path / "file" / "d.sst", MARKER, changes(3), b"{}", SETTINGS)


class Counting:
    """A committed version that counts what is asked of it."""

    def __init__(self) -> None:
        self.asked = 0

    def get(self, key: bytes) -> bytes | None:
        return self.get_many([key])[0]

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        self.asked += len(keys)
        return [key * 10 for key in keys]

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(())


def test_an_overlay_forgets_what_it_fetched_and_never_what_it_changed() -> None:
    """Beyond its bound it asks again, and gives the same answers."""
    committed = Counting()
    overlay = Overlay(committed, fetched_bytes_max=100 * 220)
    keys = [b"%04d" % number for number in range(400)]
    overlay.put(keys[5], b"changed")
    for start in range(0, 400, 50):
        overlay.prefetch(keys[start : start + 50])
    asked = committed.asked
    assert overlay.get(keys[399]) == keys[399] * 10
    assert committed.asked == asked, "the last batch is still known"
    assert overlay.get(keys[0]) == keys[0] * 10
    assert committed.asked == asked + 1, "the first one was forgotten"
    assert overlay.get_many(keys) == [b"changed" if k == keys[5] else k * 10 for k in keys]
    assert overlay.changes == {keys[5]: b"changed"}
