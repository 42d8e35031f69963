"""A folder of this user alone, in a place where others may write too.

The temporary folder is shared: another user can put a folder or a link of the expected name there
first, and would own what is kept in it. A database found there is trusted, so the folder has to
belong to this user, be no link, and be closed to others.
"""

import os
import stat
import tempfile
from pathlib import Path

from penstock.errors import Invalid, PenstockError, Unavailable

__all__ = ["own_folder", "private_folder", "user_folder"]

_ADVICE = "remove it, or name another folder with PENSTOCK_STATE_DIR; nothing in it was used"


def user_folder(purpose: str) -> Path:
    """This user's folder for a purpose below the temporary folder. Its name is that of no module:
    Python started in the temporary folder must not find it."""
    return private_folder(Path(tempfile.gettempdir()) / f"penstock-{purpose}-{os.geteuid()}")


def private_folder(path: Path) -> Path:
    """`path`, as a folder that only this user can look into; `Invalid` if it is another's."""
    found = _made(path)
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise Invalid(f"folder {path}", "is open to other users", _ADVICE)
    return path


def own_folder(path: Path) -> Path:
    """`path`, as a folder of this user that no other one writes to. One that was made for a whole
    group, as some systems do by themselves, is closed to it."""
    found = _made(path)
    if found.st_mode & stat.S_IWOTH:
        raise Invalid(f"folder {path}", "can be written to by every user", _ADVICE)
    if found.st_mode & stat.S_IWGRP:
        path.chmod(0o700)
    return path


def _made(path: Path) -> os.stat_result:
    """Make the folder if it is not there, and look at it without following a link."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except FileExistsError:
        found = path.lstat()
    except OSError as error:
        raise _unmade(path, error) from error
    if not stat.S_ISDIR(found.st_mode):
        raise Invalid(f"folder {path}", "is a link or a file, perhaps of another user", _ADVICE)
    if found.st_uid != os.geteuid():
        raise Invalid(f"folder {path}", f"belongs to user {found.st_uid}", _ADVICE)
    return found


def _unmade(path: Path, error: OSError) -> PenstockError:
    kind = Invalid if isinstance(error, PermissionError | NotADirectoryError) else Unavailable
    return kind(
        f"folder {path}",
        f"could not be made ({error.strerror})",
        f"free space in {path.parent}, or give this user access to it, and try again",
    )
