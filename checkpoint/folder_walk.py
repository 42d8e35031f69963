"""Listing a folder tree in the order an object store would.

Keys are compared byte by byte, and '/' comes after '-' and '.': the key `a-b` comes before
`a/b`, and `a.b` too. Sorting names folder by folder gets that wrong, unless a folder's name
is sorted with its slash. Then everything below it lies between its neighbours, and the walk
can skip whole folders that end before the page begins.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from penstock.checkpoint.folder_links import refuse_link, refuse_links_above
from penstock.checkpoint.store import is_key
from penstock.effects import Entry
from penstock.ids import Key

__all__ = ["walk"]


def walk(root: Path, prefix: str, after: str) -> Iterator[Entry]:
    """Entries of `root` whose key starts with `prefix` and is above `after`, in key order."""
    folder, slash, _ = prefix.rpartition("/")
    if not slash or is_key(folder):
        refuse_links_above(root, folder + slash)
        yield from _walk(root, folder + slash, prefix, after)


def _walk(root: Path, base: str, prefix: str, after: str) -> Iterator[Entry]:
    for name in _names(root / base):
        key = base + name
        if not key.startswith(prefix) or _is_over(key, after):
            continue
        if key.endswith("/"):
            yield from _walk(root, key, prefix, after)
        else:
            yield from _entry(root, key)


def _names(folder: Path) -> list[str]:
    """The names in a folder in key order, each subfolder with its slash."""
    try:
        with os.scandir(folder) as found:
            ours = [item for item in found if is_key(item.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(item.name + "/" * item.is_dir(follow_symlinks=False) for item in ours)


def _is_over(key: str, after: str) -> bool:
    """Whether the object, or everything in the folder, is at or below `after`."""
    return key <= after and not (key.endswith("/") and after.startswith(key))


def _entry(root: Path, key: str) -> Iterator[Entry]:
    refuse_link(f"{root}/{key}", key)  # left out, it would look as if nothing were there
    try:
        status = (root / key).lstat()
    except FileNotFoundError:  # deleted since its folder was read
        return
    yield Entry(Key(key), status.st_size, status.st_mtime)
