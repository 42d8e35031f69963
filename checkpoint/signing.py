"""Signing a root that is there: its first signature, and the one of a new key.

The first time, a person has looked at the root and vouches for what HEAD, the pins, the cursors and
the requests say now. All manifests that these reach are verified by their hashes on the way; what
nothing reaches stays unsigned, and so is refused for ever.

A signed HEAD is the end of a first signing. So from then on everything must carry a signature of a
known key to be given a new one: a document that a forger has left without is not made genuine by a
change of keys. An unsigned HEAD beside signed documents is a signing that was cut short, or a
HEAD that was replaced; which of them, a person has to say.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from penstock.checkpoint.formats import Ref, ref_to, unseal
from penstock.checkpoint.head import HEAD_FORMAT, Head
from penstock.checkpoint.layout import HEAD_KEY, PIN_PREFIX
from penstock.checkpoint.manifest import decode_manifest
from penstock.checkpoint.pins import PIN_FORMAT, Pin
from penstock.checkpoint.signature import CHAIN_KEY, SIGNED_PREFIXES, ChainKeys, plain_body
from penstock.checkpoint.store import ObjectStore
from penstock.effects import Stored
from penstock.errors import Corrupt, Invalid, Unavailable
from penstock.ids import Epoch, JobName, Key

__all__ = ["SignedRoot", "Signing"]

CURSOR_PREFIX = "cursors/"
REQUEST_PREFIX = "requests/"


@dataclass(frozen=True, slots=True)
class SignedRoot:
    """What was signed."""

    job: JobName
    epoch: Epoch
    signed: int
    """Objects that had no signature of the first key."""
    pins: tuple[str, ...]


class Signing:
    """One root being signed. `store` is the plain one, which shows signatures."""

    def __init__(self, store: ObjectStore, keys: ChainKeys) -> None:
        if not keys:
            raise Invalid(CHAIN_KEY, "is not set", "set it to the key that shall sign this root")
        self._store = store
        self._keys = keys
        self._signed = 0
        self._is_first = False
        """Whether documents without a signature are given their first."""
        self._done: set[Key] = set()

    def sign(self, *, vouched: bool = False) -> SignedRoot:
        """Sign what decides history with the first key. The job must not be running.

        1. Read HEAD. A signature that it has already must be of one of the keys. Without one, no
           other document may have one, unless HEAD is `vouched` for.
        2. Sign the manifests that HEAD and the pins reach, the pins, the cursors and the requests.
           A crash leaves some of them signed, which the next call finds as they should be.
        3. Replace HEAD by itself, signed, if it has not changed since.
        """
        stored = self._stored(HEAD_KEY)  # 1
        if stored is None:
            raise Invalid(HEAD_KEY, "is not there", "check the root's URL")
        self._is_first = not _has_signature(stored)
        if self._is_first and not vouched:
            self._refuse_signed_beside()
        head = unseal(HEAD_KEY, self._opened(HEAD_KEY, stored), Head, HEAD_FORMAT)
        self._line(head.manifest)  # 2
        pins = tuple(self._pins())
        for key in self._listed(CURSOR_PREFIX):
            self._one(key)
        for key in self._listed(REQUEST_PREFIX):
            with suppress(Corrupt):  # it was refused before, and goes on being refused
                self._one(key)
        self._head(stored)  # 3
        return SignedRoot(head.job, head.epoch, self._signed, pins)

    def _refuse_signed_beside(self) -> None:
        for prefix in SIGNED_PREFIXES:
            for key in self._listed(prefix):
                stored = self._stored(key)
                if stored is not None and _has_signature(stored):
                    raise Invalid(
                        HEAD_KEY,
                        f"carries no HMAC, and {key} does: a first signing was cut short, or HEAD "
                        "was replaced by a forger",
                        "look at what HEAD says; if it is genuine, sign again with --vouch; else "
                        "restore it from a copy; nothing was changed",
                    )

    def _line(self, ref: Ref | None) -> None:
        """A manifest and all before it, as far back as they are kept."""
        while ref is not None and ref.key not in self._done:
            stored = self._stored(ref.key)
            if stored is None:
                return
            body = self._opened(ref.key, stored)
            if ref_to(ref.key, body) != ref:
                raise Corrupt(
                    ref.key,
                    "is not what its successor, HEAD or a pin names",
                    "restore it from a copy; nothing that leads to it was signed",
                )
            parent = decode_manifest(ref.key, body).parent
            self._sign(ref.key, stored)
            self._done.add(ref.key)
            ref = parent

    def _pins(self) -> Iterator[str]:
        for key in self._listed(PIN_PREFIX):
            stored = self._stored(key)
            if stored is not None:
                pin = unseal(key, self._opened(key, stored), Pin, PIN_FORMAT)
                self._line(pin.manifest)
                self._sign(key, stored)
                yield pin.name

    def _one(self, key: Key) -> None:
        stored = self._stored(key)
        if stored is not None:
            self._opened(key, stored)
            self._sign(key, stored)

    def _head(self, stored: Stored) -> None:
        if self._keys.is_current(HEAD_KEY, stored.body):
            return
        signed = self._keys.signed(HEAD_KEY, plain_body(stored.body))
        if self._store.replace(HEAD_KEY, signed, stored.etag) is None:
            raise Unavailable(
                HEAD_KEY, "changed meanwhile", "see that the job is stopped, and sign again"
            )
        self._signed += 1

    def _stored(self, key: Key) -> Stored | None:
        return self._store.get(key)

    def _opened(self, key: Key, stored: Stored) -> bytes:
        """The document, verified; as it is, if it has no signature and is to get its first."""
        if self._is_first and not _has_signature(stored):
            return stored.body
        return self._keys.verified(key, stored.body)

    def _sign(self, key: Key, stored: Stored) -> None:
        if not self._keys.is_current(key, stored.body):
            self._store.put(key, self._keys.signed(key, plain_body(stored.body)))
            self._signed += 1

    def _listed(self, prefix: str) -> Iterator[Key]:
        after = ""
        while page := self._store.list(prefix, after):
            yield from (entry.key for entry in page)
            after = page[-1].key


def _has_signature(stored: Stored) -> bool:
    return plain_body(stored.body) != stored.body
