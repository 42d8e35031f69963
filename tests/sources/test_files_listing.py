import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.errors import Corrupt, Invalid
from penstock.sources import files_discovery
from penstock.sources.files_listing import Folder, Found, RangedFile
from penstock.sources.files_names import Names
from penstock.sources.files_settings import World
from tests.sources.test_files import Scene, column, jsonl, numbers


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene.below(tmp_path)


def paths(folder: Path, names: Names | None = None) -> list[str]:
    return sorted(found.path for found in Folder(folder).files((names or Names()).wanted(), None))


def test_unfinished_and_hidden_names_are_left_alone(scene: Scene) -> None:
    """Whoever writes a file says by its name that it is not ready."""
    for folder in (".git", "_spark", "x.tmp", "x.part", "x.crdownload", "x~"):
        scene.write(f"{folder}/x.jsonl", b"{}")
    for name in (".x.jsonl", "_x.jsonl", "x.tmp", "x.jsonl.part", "x.crdownload", "x.jsonl~"):
        scene.write(f"sub/{name}", b"{}")
    scene.write("sub/good_one.tmp.jsonl", b"{}")

    assert paths(scene.folder, Names("jsonl", "*")) == ["sub/good_one.tmp.jsonl"]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (Names(), ["a.csv", "b.CSV.gz", "c.jsonl", "d/e.ndjson.gz", "d/f.parquet"]),
        (Names("csv"), ["a.csv", "b.CSV.gz"]),
        (Names("jsonl"), ["c.jsonl", "d/e.ndjson.gz"]),
        (Names("parquet"), ["d/f.parquet"]),
        (Names(None, "d/*"), ["d/e.ndjson.gz", "d/f.parquet", "d/g.txt"]),
        (Names("jsonl", "*.txt"), ["d/g.txt"]),
        (Names(None, "[ac].*"), ["a.csv", "c.jsonl"]),
    ],
)
def test_the_pattern_sees_the_path_below_the_folder(
    scene: Scene, names: Names, found: list[str]
) -> None:
    """What does not fit is foreign, and none of our business."""
    for name in ("a.csv", "b.CSV.gz", "c.jsonl", "d/e.ndjson.gz", "d/f.parquet", "d/g.txt", "h"):
        scene.write(name, b"")

    assert paths(scene.folder, names) == found


def test_a_file_must_settle_first(scene: Scene) -> None:
    """A writer that is slow must not be cut off; one that is done long ago need not wait."""
    scene.write("a.jsonl", numbers(1), modified_s=990)
    scene.write("b.jsonl", numbers(2), modified_s=997)
    source = scene.source(settle_s=5.0)
    assert scene.clock.wall() == 1000.0
    assert column(source) == [1]

    scene.write("b.jsonl", numbers(2, 3), modified_s=1001)
    scene.clock.sleep(5.0)
    assert column(source) == [1]
    scene.clock.sleep(1.0)

    assert column(source) == [1, 2, 3]


def test_nothing_needs_to_settle_if_told_so(scene: Scene) -> None:
    """Files that are renamed into place are finished, whatever time they carry."""
    scene.write("a.jsonl", numbers(1), modified_s=5000)

    assert column(scene.source(settle_s=0)) == [1]


def test_links_to_files_are_followed_and_to_folders_not(scene: Scene, tmp_path: Path) -> None:
    """A link to a folder may lead back to where it is."""
    scene.write("a.jsonl", numbers(1))
    (tmp_path / "elsewhere.jsonl").write_bytes(numbers(2))
    (scene.folder / "b.jsonl").symlink_to(tmp_path / "elsewhere.jsonl")
    (scene.folder / "nowhere.jsonl").symlink_to(tmp_path / "nothing")
    (scene.folder / "round").symlink_to(scene.folder)
    os.mkfifo(scene.folder / "pipe.jsonl")

    assert paths(scene.folder) == ["a.jsonl", "b.jsonl"]


def test_a_folder_that_is_not_there_is_said_to_be(scene: Scene) -> None:
    """A slip in a path must not look like a folder in which nothing happens."""
    scene.folder.rmdir()

    with pytest.raises(Invalid) as caught:
        scene.source().spans()

    assert str(caught.value) == (
        f"folder {scene.folder} does not exist, or is no folder: create it or correct the path."
    )


def test_a_name_that_is_no_text_cannot_be_recorded(scene: Scene) -> None:
    """It is not lost silently either: it is unreadable, and listed as such."""
    Path(os.fsdecode(os.fsencode(scene.folder) + b"/bad\xff.jsonl")).write_bytes(numbers(1))

    with pytest.raises(Invalid) as caught:
        scene.source(settle_s=0).spans()
    assert "file bad\\udcff.jsonl" in str(caught.value)
    assert "its name is not UTF-8" in str(caught.value)

    source = scene.source(settle_s=0, poison="quarantine")
    assert (source.discover(), source.discover()) == (1, 0)
    assert [file.path for file in source.quarantined()] == ["bad\\udcff.jsonl"]


def test_files_that_vanish_or_change_while_looking_wait_for_the_next_look(
    scene: Scene,
) -> None:
    """What is recorded is what was looked into."""
    scene.write("gone.jsonl", numbers(1)).unlink()
    scene.write("stays.jsonl", numbers(2))

    class Stale(Folder):
        def files(self, wanted: Callable[[str], bool], settled_us: int | None) -> Iterator[Found]:
            yield Found("gone.jsonl", 9, 1, "1")
            yield Found("stays.jsonl", 99, 2, "2")

    stale = World(clock=scene.clock, open_listing=lambda *_: Stale(scene.folder))

    assert scene.source(world=stale).discover() == 0
    assert scene.source().discover() == 1


def test_twenty_thousand_foreign_files_are_passed_by(scene: Scene) -> None:
    """Others use folders too. Links to one file, because a disk is slow at making new ones."""
    one = scene.write("foreign", b"")
    for number in range(20_000):
        folder = scene.folder / f"{number // 1000:02}"
        folder.mkdir(exist_ok=True)
        os.link(one, folder / f"{number}.log")
    scene.write("07/ours.jsonl", numbers(7))

    assert column(scene.source()) == [7]


class Million:
    """A folder of a million names, of which two are ours, and what memory they take."""

    def __init__(self, folder: Path) -> None:
        self.folder = Folder(folder)
        self.blocks: list[int] = []

    def files(self, wanted: Callable[[str], bool], settled_us: int | None) -> Iterator[Found]:
        for number in range(1_000_000):
            name = (f"{number}.log", f"_spark/{number}.jsonl", f"{number}.jsonl.tmp")[number % 3]
            if wanted(name):
                yield Found(name, 1, 1, "1")
            if number % 100_000 == 50_000:
                self.blocks.append(sys.getallocatedblocks())
        yield from self.folder.files(wanted, settled_us)

    def open(self, path: str, size_bytes: int, version: str) -> RangedFile:
        return self.folder.open(path, size_bytes, version)


def test_a_million_foreign_files_take_no_memory(scene: Scene) -> None:
    """A listing is walked, never held."""
    scene.write("a.jsonl", numbers(1))
    scene.write("b.jsonl", numbers(2))
    million = Million(scene.folder)
    world = World(clock=scene.clock, open_listing=lambda *_: million)

    assert scene.source(world=world).discover() == 2
    assert max(million.blocks) - min(million.blocks) < 10_000


def test_more_new_files_than_a_look_takes_are_recorded_in_order(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded by the look, and the order is as if there had been one."""
    monkeypatch.setattr(files_discovery, "LOOK_FILES_MAX", 3)
    for number in range(10):
        scene.write(f"{9 - number}.jsonl", jsonl({"n": number}))
    source = scene.source()

    assert source.discover() == 10
    assert column(source) == list(range(10))


@pytest.mark.parametrize(
    "path", ["/etc/hostname", "../outside.jsonl", "a/../../outside.jsonl", "\0"]
)
def test_a_recorded_path_outside_the_folder_is_refused(scene: Scene, path: str) -> None:
    """The record lies on a store: whoever writes to it must not have files read from this host."""
    (scene.folder.parent / "outside.jsonl").write_text("{}")

    with pytest.raises(Corrupt, match="is not below"):
        Folder(scene.folder).open(path, 2, "1")
