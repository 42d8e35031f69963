"""What the operating system's refusals mean to somebody who keeps objects in a folder.

One table: which error number is the caller's to fix (`Invalid`), which may pass by itself
(`Unavailable`), and what to do about each. What is not in the table may pass.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import Invalid, PenstockError, Unavailable

__all__ = ["explained"]

_FULL = "could not be written because the disk is full"
_DENIED = "cannot be reached because this process has no permission"
_CONFLICT = "cannot be a file because a folder stands there, or a file where a folder is needed"
_UNLOCKABLE = "cannot be locked because the file system has no file locks"
_NO_FILE = "is a link, a socket or a device, and no file"
_TOO_LONG = "has a name that is too long for the file system"

_MEANINGS: dict[int, tuple[type[PenstockError], str, str]] = {
    errno.ENOSPC: (Unavailable, _FULL, "free space in {folder} and try again"),
    errno.EDQUOT: (Unavailable, _FULL, "free space or raise the quota of {folder} and try again"),
    errno.EACCES: (Invalid, _DENIED, "give this user access to {folder}"),
    errno.EPERM: (Invalid, _DENIED, "give this user access to {folder}"),
    errno.EROFS: (Invalid, _DENIED, "mount {folder} for writing, or use another folder"),
    errno.ENOTDIR: (Invalid, _CONFLICT, "move what is in the way in {folder}"),
    errno.EISDIR: (Invalid, _CONFLICT, "move what is in the way in {folder}"),
    errno.EEXIST: (Invalid, _CONFLICT, "move what is in the way in {folder}"),
    errno.ELOOP: (Invalid, _NO_FILE, "put a file in its place in {folder}"),
    errno.ENXIO: (Invalid, _NO_FILE, "put a file in its place in {folder}"),
    errno.ENAMETOOLONG: (Invalid, _TOO_LONG, "use shorter names"),
    errno.ENOLCK: (Invalid, _UNLOCKABLE, "keep {folder} on a file system with flock"),
    errno.EOPNOTSUPP: (Invalid, _UNLOCKABLE, "keep {folder} on a file system with flock"),
}


@contextmanager
def explained(folder: Path, key: str) -> Iterator[None]:
    """Raise what the operating system refuses inside as a Penstock error about `key`."""
    try:
        yield
    except OSError as error:
        raise _explain(error, folder, key) from error


def _explain(error: OSError, folder: Path, key: str) -> PenstockError:
    kind, found, advice = _MEANINGS.get(error.errno or 0, _unlisted(error))
    return kind(f"object {key!r}", found, advice.format(folder=folder))


def _unlisted(error: OSError) -> tuple[type[PenstockError], str, str]:
    found = f"could not be read or written ({error.strerror or type(error).__name__})"
    return Unavailable, found, "check the disk or share below {folder} and try again"
