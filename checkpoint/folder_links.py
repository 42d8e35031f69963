"""Below its root, a folder store follows no link and reads no device.

A link below the root would lead a job into another root, to write there and to collect there; a
pipe would hold a reader for ever, and an endless device would fill its memory. Each is refused as
`Corrupt`: Penstock makes none of them. The root itself may be reached through links.

The folders above an object are looked at before it is used. A user who may exchange them in between
is the owner of the root: this protects from what lies there, not from a race.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from penstock.errors import Corrupt

__all__ = ["open_regular", "refuse_link", "refuse_links_above"]

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Opening a pipe waits for a writer, unless it is opened this way. Files are read as ever."""


def refuse_links_above(root: Path, key: str) -> None:
    """Raise `Corrupt` if one of the folders between the root and `key` is a link."""
    end = key.find("/")
    while end >= 0:
        if not refuse_link(f"{root}/{key[:end]}", key):
            return
        end = key.find("/", end + 1)


def refuse_link(path: str, key: str) -> bool:
    """Raise `Corrupt` if there is a link at `path`; False if there is nothing."""
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    if stat.S_ISLNK(mode):
        raise Corrupt(
            f"object {key!r}",
            f"is behind a link, {path}, and below a root no link is followed",
            "put the folder or file itself in its place",
        )
    return True


def open_regular(root: Path, key: str) -> BinaryIO | None:
    """The file of an object; None if there is none, `Corrupt` if it is anything but a file."""
    path = f"{root}/{key}"
    refuse_links_above(root, key)
    try:
        descriptor = os.open(path, _FLAGS)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        refuse_link(path, key)
        if error.errno == errno.ENXIO:  # a socket
            raise _no_file(path, key) from error
        raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        return None
    raise _no_file(path, key)


def _no_file(path: str, key: str) -> Corrupt:
    return Corrupt(
        f"object {key!r}",
        f"is a pipe, a socket or a device and no file: {path}",
        "remove it, or restore the object from a copy",
    )
