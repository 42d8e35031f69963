"""The signature of a history: an HMAC behind each document that decides what history is.

    <document>\\npenstock-hmac-sha256 <key id> <HMAC>

The HMAC covers the key of the object and the bytes of the document, which say job, generation and
epoch: a signed document cannot stand under another name. Several keys may be known. The first one
signs, all verify, so that a key can be replaced while a job runs. Nothing here does I/O, and
no error, log or repr shows a key; the key id is eight digits of an HMAC and tells keys apart.
"""

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from penstock.errors import Corrupt, Invalid

__all__ = [
    "CHAIN_KEY",
    "KEY_LENGTH_MIN",
    "SIGNED_PREFIXES",
    "ChainKeys",
    "is_signed_place",
    "plain_body",
]

CHAIN_KEY = "PENSTOCK_CHAIN_KEY"
"""The name of the key, in the environment or in the file of secrets."""

KEY_LENGTH_MIN = 32
"""Characters. A shorter one could be guessed from a single signed document."""

KEYS_MAX = 8
SIGNED_PREFIXES = ("manifests/", "pins/", "cursors/", "requests/")
"""Besides HEAD. All else is named by hash in one of these, or decides nothing."""

_SEPARATOR = re.compile(r"[\s,]+")
_TRAILER = re.compile(rb"\npenstock-hmac-sha256 ([0-9a-f]{8}) ([0-9a-f]{64})\Z")
_DOMAIN = b"penstock chain 1\n"


def is_signed_place(key: str) -> bool:
    """Whether objects of this key are signed, if there is a key to sign with."""
    return key == "HEAD" or key.startswith(SIGNED_PREFIXES)


def plain_body(body: bytes) -> bytes:
    """The document without its signature, which is not verified."""
    return _TRAILER.sub(b"", body)


@dataclass(frozen=True, slots=True)
class ChainKeys:
    """The keys that a process knows, the one that signs first. There may be none."""

    secrets: tuple[bytes, ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Keys separated by commas or spaces; `Invalid` if one can be guessed."""
        found = [part for part in _SEPARATOR.split(text) if part]
        if not found or len(found) > KEYS_MAX or min(map(len, found)) < KEY_LENGTH_MIN:
            raise Invalid(
                CHAIN_KEY,
                f"holds {_described(found)}",
                f"give 1 to {KEYS_MAX} keys of at least {KEY_LENGTH_MIN} characters, such as "
                "`openssl rand -hex 32` prints, separated by commas",
            )
        try:
            return cls(tuple(part.encode() for part in found))
        except UnicodeEncodeError:  # which would show the key
            advice = "give keys of ASCII characters, such as `openssl rand -hex 32` prints"
            raise Invalid(CHAIN_KEY, "is not UTF-8", advice) from None

    def __bool__(self) -> bool:
        return bool(self.secrets)

    @property
    def ids(self) -> tuple[str, ...]:
        """What tells the keys apart, without telling them."""
        return tuple(map(_id_of, self.secrets))

    def signed(self, key: str, body: bytes) -> bytes:
        """The document with a signature of the first key behind it."""
        secret = self.secrets[0]
        made = (_id_of(secret).encode(), _mac(secret, key, body).encode())
        return body + b"\npenstock-hmac-sha256 " + b" ".join(made)

    def is_current(self, key: str, body: bytes) -> bool:
        """Whether the first key has signed this very body."""
        return self.signed(key, plain_body(body)) == body

    def verified(self, key: str, body: bytes) -> bytes:
        """The document without its signature; `Corrupt` unless one of the keys made it."""
        found = _TRAILER.search(body)
        if found is None:
            raise Corrupt(
                key,
                f"carries no HMAC, and {CHAIN_KEY} is set",
                "if this root was never signed, look at it and run `penstock sign`; else it is "
                "forged: restore it from a copy; nothing was changed",
            )
        plain = body[: found.start()]
        macs = [_mac(secret, key, plain).encode() for secret in self.secrets]
        if not any([hmac.compare_digest(mac, found[2]) for mac in macs]):
            raise Corrupt(
                key,
                f"carries an HMAC of key {found[1].decode()} that is not right for "
                f"{CHAIN_KEY} ({' and '.join(self.ids)})",
                "set the key that this root is signed with; with the right key, it is forged or "
                "altered: restore it from a copy; nothing was changed",
            )
        return plain


def _id_of(secret: bytes) -> str:
    return hmac.new(secret, b"penstock key id", hashlib.sha256).hexdigest()[:8]


def _mac(secret: bytes, key: str, body: bytes) -> str:
    return hmac.new(secret, _DOMAIN + key.encode() + b"\n" + body, hashlib.sha256).hexdigest()


def _described(found: Sequence[str]) -> str:
    if not found:
        return "no key"
    return f"{len(found)} keys, the shortest of {min(map(len, found))} characters"
