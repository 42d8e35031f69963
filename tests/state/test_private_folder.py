"""A folder of this user alone, where others may write too."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from penstock.clock import SystemChance
from penstock.errors import Invalid
from penstock.private_folder import own_folder, private_folder, user_folder
from penstock.state.host import HostFolder, default_state_folder


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder for this test alone, and no folder that is named."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("PENSTOCK_STATE_DIR", raising=False)
    return tmp_path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_the_default_folder_is_this_users_alone(temporary: Path) -> None:
    """Another user on the host reads no state, and puts no database there to be trusted."""
    folder = default_state_folder()

    assert folder == temporary / f"penstock-state-{os.geteuid()}"
    assert mode(folder) == 0o700
    assert default_state_folder() == folder


def test_python_started_beside_it_imports_the_real_package(temporary: Path) -> None:
    """A folder called `penstock` would be found first, and be empty."""
    default_state_folder()
    code = "import penstock; print(penstock.__file__ is not None)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=temporary, capture_output=True, text=True, check=True
    )

    assert done.stdout == "True\n"
    assert [path.name.isidentifier() for path in temporary.iterdir()] == [False]


def test_a_link_in_its_place_is_refused(temporary: Path) -> None:
    """Whoever made the link chose where state would go."""
    target = temporary / "elsewhere"
    target.mkdir(mode=0o700)
    link = temporary / f"penstock-state-{os.geteuid()}"
    link.symlink_to(target)

    with pytest.raises(Invalid, match="is a link or a file"):
        default_state_folder()
    assert list(target.iterdir()) == []


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    """Told as what it is."""
    (tmp_path / "taken").write_text("")

    with pytest.raises(Invalid, match="is a link or a file"):
        private_folder(tmp_path / "taken")


@pytest.mark.parametrize("wide", [0o755, 0o770, 0o701, 0o777])
def test_a_folder_that_is_open_to_others_is_refused(tmp_path: Path, wide: int) -> None:
    """What is in it may be read, or have been put there, by others."""
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(wide)

    with pytest.raises(Invalid, match="is open to other users"):
        private_folder(folder)


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner can change whatever is in it."""
    folder = private_folder(tmp_path / "theirs")
    monkeypatch.setattr(os, "geteuid", lambda: folder.lstat().st_uid + 1)

    for check in (private_folder, own_folder):
        with pytest.raises(Invalid, match=f"belongs to user {folder.lstat().st_uid}"):
            check(folder)


def test_a_jobs_folder_below_a_named_one_is_this_users_own(tmp_path: Path) -> None:
    """A folder that was named may be shared, as volumes are; what is trusted lies deeper."""
    shared = tmp_path / "volume"
    shared.mkdir()
    shared.chmod(0o777)
    host = HostFolder(shared, SystemChance())

    host.partition("job", "op", 0)

    assert mode(shared / "job") == 0o700
    (shared / "linked").symlink_to(tmp_path)
    with pytest.raises(Invalid, match="is a link or a file"):
        host.partition("linked", "op", 0)
    (shared / "job").chmod(0o777)
    with pytest.raises(Invalid, match="can be written to by every user"):
        host.partition("job", "op", 0)


def test_a_folder_made_for_a_group_is_closed_to_it(tmp_path: Path) -> None:
    """Systems that make folders writable for a user's group did so before: state is kept."""
    folder = tmp_path / "grouped"
    folder.mkdir()
    folder.chmod(0o775)

    assert mode(own_folder(folder)) == 0o700


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """Opening it would create a file wherever it points."""
    partition = HostFolder(tmp_path / "state", SystemChance()).partition("job", "op", 0)
    (partition.path / "db-x").mkdir(parents=True)
    (partition.path / "db-x.lock").symlink_to(tmp_path / "escaped")

    with pytest.raises(OSError, match="symbolic links"):
        list(partition.databases())
    assert not (tmp_path / "escaped").exists()


def test_each_purpose_has_a_folder_of_its_own(temporary: Path) -> None:
    """Logs are not state."""
    assert user_folder("logs") != user_folder("state")
