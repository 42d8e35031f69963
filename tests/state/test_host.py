import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.clock import SystemChance
from penstock.errors import Invalid
from penstock.ids import Attempt, Epoch
from penstock.state.host import HostFolder, default_state_folder

NOW_S = 1000.0


def host(folder: Path, budget_bytes: int = 1 << 30) -> HostFolder:
    return HostFolder(folder, SystemChance(), budget_bytes)


def fill(path: Path, size_bytes: int, used_s: float) -> None:
    path.mkdir(parents=True, exist_ok=True)
    (path / "000001.sst").write_bytes(bytes(size_bytes))
    os.utime(path, (used_s, used_s))


def test_a_database_that_is_held_is_not_offered(tmp_path: Path) -> None:
    """Whoever holds it may be stopped for ever: there is nothing to wait for."""
    partition = host(tmp_path).partition("job", "op", 0)
    held = partition.new_database()
    assert list(partition.databases()) == []
    held.let_go()
    (again,) = partition.databases()
    assert again.path == held.path
    again.let_go()


def test_a_dead_process_holds_nothing(tmp_path: Path) -> None:
    """The kernel gives a lock back with its process."""
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom penstock.clock import SystemChance\n"
        "from penstock.state.host import HostFolder\n"
        "HostFolder(Path(sys.argv[1]), SystemChance()).partition('job', 'op', 0).new_database()\n"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert len(list(host(tmp_path).partition("job", "op", 0).databases())) == 1


def test_the_most_recently_used_comes_first(tmp_path: Path) -> None:
    """It has the least to catch up with."""
    partition = host(tmp_path).partition("job", "op", 0)
    for name, used_s in (("db-old", 100.0), ("db-new", 200.0)):
        fill(partition.path / name, 1, used_s)
    assert [held.path.name for held in partition.databases()] == ["db-new", "db-old"]


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    """Other jobs' leftovers are old; what is in use stays, whatever the budget says."""
    folder = host(tmp_path, budget_bytes=2500)
    partition = folder.partition("mine", "op", 0)
    in_use = partition.new_database()
    fill(in_use.path, 1000, used_s=1.0)
    fill(folder.partition("gone", "op", 3).path / "db-left", 1000, used_s=2.0)
    fill(partition.path / "db-spare", 1000, used_s=3.0)

    freed = folder.evict(NOW_S)

    assert freed == 1000
    assert in_use.path.exists()
    assert not (folder.partition("gone", "op", 3).path / "db-left").exists()
    assert (partition.path / "db-spare").exists()
    in_use.let_go()


def test_within_the_budget_nothing_goes(tmp_path: Path) -> None:
    """Evicting costs a restore."""
    folder = host(tmp_path)
    fill(folder.partition("job", "op", 0).path / "db-x", 1000, used_s=1.0)
    assert folder.evict(NOW_S) == 0


def test_what_nobody_has_used_for_long_goes_whatever_the_budget(tmp_path: Path) -> None:
    """Jobs and generations that are no more leave nothing behind for ever."""
    folder = HostFolder(tmp_path, SystemChance(), idle_s=500.0)
    fill(folder.partition("gone", "op", 0).path / "db-x", 1000, used_s=NOW_S - 501)
    fill(folder.partition("mine", "op", 0).path / "db-y", 1000, used_s=NOW_S - 499)
    assert folder.evict(NOW_S) == 1000
    assert (folder.partition("mine", "op", 0).path / "db-y").exists()


def test_what_lies_beside_the_databases_is_left_alone_for_a_while(tmp_path: Path) -> None:
    """A delta on its way to the store, a snapshot being cut: nothing tells who needs them."""
    folder = host(tmp_path, budget_bytes=1)
    now_s = 10_000.0
    partition = folder.partition("job", "op", 0).path
    for name, used_s in (("scratch-new", now_s - 10), ("scratch-old", now_s - 4000)):
        fill(partition / name, 1000, used_s)

    assert folder.evict(now_s) == 1000
    assert [path.name for path in partition.glob("scratch-*")] == ["scratch-new"]


def test_a_file_with_two_names_takes_its_place_once(tmp_path: Path) -> None:
    """A database and the cache share files by links."""
    folder = host(tmp_path, budget_bytes=1500)
    database = folder.partition("job", "op", 0).path / "db-x"
    fill(database, 1000, used_s=1.0)
    cache = folder.partition("job", "op", 0).path / "files"
    cache.mkdir()
    (cache / "abc").hardlink_to(database / "000001.sst")

    assert folder.evict(NOW_S) == 0


def test_nothing_stays_of_a_database_that_was_discarded(tmp_path: Path) -> None:
    """Or else lock files would pile up."""
    partition = host(tmp_path).partition("job", "op", 0)
    held = partition.new_database()
    held.discard()
    held.let_go()
    assert list(partition.path.iterdir()) == []


def test_cached_files_that_nobody_needs_are_swept(tmp_path: Path) -> None:
    """Deltas of epochs long past would fill the disk."""
    partition = host(tmp_path).partition("job", "op", 0)
    old, kept, coming = (partition.delta(Epoch(epoch), Attempt("a")) for epoch in (1, 2, 3))
    for path in (old, kept, coming, partition.file("keep"), partition.file("drop")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")

    partition.keep_only({kept}, {partition.file("keep")}, Epoch(2))

    left = sorted(path for path in partition.path.rglob("*") if path.is_file())
    assert left == [kept, coming, partition.file("keep")]


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden"])
def test_a_name_cannot_leave_the_folder(tmp_path: Path, name: str) -> None:
    """Job and operator names come from users."""
    with pytest.raises(Invalid):
        host(tmp_path).partition(name, "op", 0)


def test_the_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """State wants a fast disk with room, and only the host knows which that is."""
    monkeypatch.setenv("PENSTOCK_STATE_DIR", "/mnt/fast")
    assert default_state_folder() == Path("/mnt/fast")
