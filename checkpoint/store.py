"""The object store: the one thing outside this process that Penstock trusts.

Eight operations, the least a commit needs. Two of them are conditional, and everything
Penstock promises rests on those two being atomic: `penstock doctor` tries to prove that
they are not, before a job is started on a store nobody has tried.

What an implementation raises: `Unavailable` when the same call may succeed later,
`Invalid` when it cannot (no permission, no such bucket, a key that no store can hold).
Each names the object and the next step, and neither ever shows a secret.
"""

import re
from collections.abc import Sequence
from typing import BinaryIO, Protocol

from penstock.checkpoint.hashed_file import Chunks, HashedFile, Receiver
from penstock.effects import Digested, Entry, Stored
from penstock.errors import Corrupt, Invalid
from penstock.fields import KEY_LENGTH_MAX, SEGMENT_LENGTH_MAX
from penstock.ids import ETag, Key

__all__ = [
    "KEY_LENGTH_MAX",
    "OBJECT_BYTES_MAX",
    "PAGE_ENTRIES_MAX",
    "ObjectStore",
    "check_key",
    "check_size",
    "digest",
    "fetch",
    "is_key",
]

PAGE_ENTRIES_MAX = 1000
OBJECT_BYTES_MAX = 2 << 30
"""The largest object that is read into memory whole; larger ones go through files."""

_SEGMENT = rf"[A-Za-z0-9_][A-Za-z0-9_.=-]{{0,{SEGMENT_LENGTH_MAX - 1}}}"
_KEY = re.compile(rf"{_SEGMENT}(/{_SEGMENT})*")


class ObjectStore(Protocol):
    """Promise: a write that returned is durable and is seen by every later read and listing,
    in every process; an object is seen whole or not at all; of several conditional writes that
    expect the same version of one object, at most one happens."""

    def get(self, key: Key) -> Stored | None:
        """The object and its version, or None if there is none."""

    def put(self, key: Key, body: bytes) -> None:
        """Write the object, whatever was there. May be sent more than once."""

    def create(self, key: Key, body: bytes) -> ETag | None:
        """Write the object if there is none, sending the request once. None: not confirmed."""

    def replace(self, key: Key, body: bytes, etag: ETag) -> ETag | None:
        """Write the object if its version is `etag`, sending the request once.

        None: not confirmed. An absent object has no version, so it is never replaced.
        """

    def delete(self, key: Key) -> None:
        """Remove the object; no error if there is none."""

    def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        """At most `PAGE_ENTRIES_MAX` entries whose key starts with `prefix` and is greater
        than `after`, in key order. An empty page is the end."""

    def upload(self, key: Key, source: BinaryIO) -> None:
        """Write an object of any size from where a seekable file stands to its end, in bounded
        memory."""

    def download(self, key: Key, target: Receiver) -> bool:
        """Read an object of any size into an empty, seekable, writable file, in bounded memory.

        False, and nothing written, if there is none. What was written before an error stays
        in `target`; the caller throws it away.
        """


def check_key(key: str) -> Key:
    """`key`, if every store can hold it; else `Invalid`. Dots may not start a segment, so no
    key leaves its root or meets a folder store's own files."""
    if not is_key(key):
        raise Invalid(
            f"key {key[:KEY_LENGTH_MAX]!r}",
            "cannot be stored",
            "use segments of letters, digits, '_', '.', '=' and '-' joined by '/', "
            f"at most {SEGMENT_LENGTH_MAX} characters each and {KEY_LENGTH_MAX} in all",
        )
    return Key(key)


def check_size(key: str, size_bytes: int) -> None:
    """Raise `Corrupt` for an object that is too large to be read into memory whole."""
    if size_bytes > OBJECT_BYTES_MAX:
        raise Corrupt(
            f"object {key!r}",
            f"has {size_bytes} bytes, and at most {OBJECT_BYTES_MAX} are read into memory",
            "Penstock wrote no such object; restore it from a copy",
        )


def is_key(name: str) -> bool:
    """Whether Penstock could have written an object of this name. Others may keep files of
    their own beside ours; they are neither listed nor touched."""
    return len(name) <= KEY_LENGTH_MAX and _KEY.fullmatch(name) is not None


def fetch(store: ObjectStore, key: Key) -> bytes | None:
    """The bytes of an object, without asking for its version; None if there is none."""
    target = Chunks(lambda size_bytes: check_size(key, size_bytes))
    return target.joined() if store.download(key, target) else None


def digest(store: ObjectStore, key: Key) -> Digested | None:
    """The hash and length of an object of any size, or None if there is none."""
    target = HashedFile()
    if not store.download(key, target):
        return None
    return Digested(target.hexdigest(), target.size_bytes)
