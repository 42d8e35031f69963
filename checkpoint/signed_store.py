"""A root's store that signs what decides history, and shows nothing whose signature is wrong.

It stands between the protocols and the store, so that every reader and writer of a root passes
through it and none can forget to look: leaders, readers, fsck, audit, rewind and fork alike. The
protocols see plain documents, and hashes in manifests are those of plain documents; so a fork is
signed anew with the keys of the process that makes it.

Without a key, signatures are neither made nor verified, but a signed root is not written to: the
next reader with a key would take that for a forgery. Nor is anything deleted that decides its
history. HEAD tells whether a root is signed, and is looked at before the first change if need be;
with a key that has not signed HEAD, nothing is changed either.
"""

from collections.abc import Sequence
from typing import BinaryIO

from penstock.checkpoint.hashed_file import Receiver
from penstock.checkpoint.layout import HEAD_KEY
from penstock.checkpoint.open_store import open_store
from penstock.checkpoint.signature import CHAIN_KEY, ChainKeys, is_signed_place, plain_body
from penstock.checkpoint.store import ObjectStore
from penstock.effects import Entry, Stored
from penstock.errors import Corrupt, Invalid
from penstock.ids import ETag, Key
from penstock.secrets import optional

__all__ = ["SignedStore", "chain_keys", "open_root_store"]

READS_MAX = 4
"""How often a document whose signature is wrong is read again: a wire may flip a bit, once."""


LED_PLACES = (HEAD_KEY, "manifests/")
"""Written by leaders and forks only, which have verified HEAD or are making it."""


def chain_keys() -> ChainKeys:
    """The keys this process is given by reference, in its environment or its file of secrets."""
    text = optional(CHAIN_KEY)
    return ChainKeys() if text is None else ChainKeys.parse(text)


def open_root_store(url: str) -> ObjectStore:
    """The store of the root at `url`, with the keys of this process."""
    return SignedStore(open_store(url), chain_keys())


class SignedStore:
    """A store in front of another; the same promises."""

    def __init__(self, store: ObjectStore, keys: ChainKeys) -> None:
        self.plain = store
        self.keys = keys
        self._is_signed: bool | None = None
        """Whether a signature was met, which forbids changes without a key; None: HEAD was not
        looked at."""
        self._is_ours = False
        """Whether one of the keys is known to have signed HEAD."""

    def get(self, key: Key) -> Stored | None:
        """The object and its version, without its signature."""
        if not is_signed_place(key):
            return self.plain.get(key)
        for remaining in reversed(range(READS_MAX)):
            stored = self.plain.get(key)
            try:
                return None if stored is None else Stored(self._opened(key, stored), stored.etag)
            except Corrupt:
                if not remaining:
                    raise
        raise AssertionError("unreachable: the last read returns or raises")

    def put(self, key: Key, body: bytes) -> None:
        """Write the object, signed."""
        self.plain.put(key, self._closed(key, body))

    def create(self, key: Key, body: bytes) -> ETag | None:
        """Write the object, signed, if there is none."""
        return self.plain.create(key, self._closed(key, body))

    def replace(self, key: Key, body: bytes, etag: ETag) -> ETag | None:
        """Write the object, signed, if its version is `etag`."""
        return self.plain.replace(key, self._closed(key, body), etag)

    def delete(self, key: Key) -> None:
        """Remove the object, unless it decides a signed history and the key is not here."""
        if is_signed_place(key):
            self._refuse_without_key(key, "removed")
            self._refuse_with_another_key()
        self.plain.delete(key)

    def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        """The next page of entries. Sizes are those of the store, signatures included."""
        return self.plain.list(prefix, after)

    def upload(self, key: Key, source: BinaryIO) -> None:
        """Write an object from a file."""
        if is_signed_place(key):
            self.put(key, source.read())
        else:
            self.plain.upload(key, source)

    def download(self, key: Key, target: Receiver) -> bool:
        """Read an object into a file."""
        if not is_signed_place(key):
            return self.plain.download(key, target)
        stored = self.get(key)
        if stored is not None:
            target.write(stored.body)
        return stored is not None

    def _opened(self, key: Key, stored: Stored) -> bytes:
        if self.keys:
            return self.keys.verified(key, stored.body)
        plain = plain_body(stored.body)
        if plain != stored.body or key == HEAD_KEY:
            self._is_signed = bool(self._is_signed) or plain != stored.body
        return plain

    def _closed(self, key: Key, body: bytes) -> bytes:
        if not is_signed_place(key):
            return body
        if self.keys:
            if not key.startswith(LED_PLACES):
                self._refuse_with_another_key()
            return self.keys.signed(key, body)
        self._refuse_without_key(key, "written")
        return body

    def _refuse_with_another_key(self) -> None:
        """Raise `Corrupt` if HEAD is there and none of the keys has signed it: a process that was
        given another root's key must not change this one."""
        if not self.keys or self._is_ours:
            return
        stored = self.plain.get(HEAD_KEY)
        if stored is not None:
            self.keys.verified(HEAD_KEY, stored.body)
            self._is_ours = True

    def _refuse_without_key(self, key: Key, done: str) -> None:
        if self.keys:
            return
        if self._is_signed is None:
            self.get(HEAD_KEY)
            self._is_signed = bool(self._is_signed)
        if self._is_signed:
            raise Invalid(
                key,
                f"is not {done}: this root is signed, and {CHAIN_KEY} is not set here",
                "set it; nothing was changed",
            )
