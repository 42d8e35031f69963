"""How documents are written down: JSON with a format number, and a hash where it counts.

Reading says exactly one of three things about bytes it cannot use: they are damaged, they
come from a newer Penstock, or they are something else altogether.
"""

import hashlib
import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from penstock.errors import Corrupt, Invalid
from penstock.fields import FormatNumber, HexHash, Sha256, SizeBytes
from penstock.ids import Key

__all__ = [
    "DOCUMENT_BYTES_MAX",
    "Ref",
    "Sealed",
    "decode",
    "encode",
    "not_longer",
    "ref_to",
    "seal",
    "unseal",
    "verify",
]


DOCUMENT_BYTES_MAX = 256 << 20
"""The largest JSON document that is read: a manifest of 100,000 deltas has a tenth of it."""

_PATTERN = re.compile(r"Expected `str` matching regex .*?(?= - at |$)", re.DOTALL)


class Ref(msgspec.Struct, frozen=True, kw_only=True):
    """The name of an object together with what it must contain."""

    key: Key
    sha256: Sha256
    size_bytes: SizeBytes


class _Numbered(msgspec.Struct):
    """The part of every document that every version of Penstock can read."""

    format: FormatNumber


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """A document that nothing names by hash, and that therefore carries its own."""

    checksum: HexHash = ""


S = TypeVar("S", bound=msgspec.Struct)
Z = TypeVar("Z", bound=Sealed)


def encode(document: msgspec.Struct) -> bytes:
    """The bytes of a document. The same document always gives the same bytes."""
    return msgspec.json.encode(document)


def decode(name: str, body: bytes, kind: type[S], newest: int) -> S:
    """The document in `body`, or `Corrupt`, or `Invalid` if its format is too new for us."""
    if len(body) > DOCUMENT_BYTES_MAX:
        raise Corrupt(
            name,
            f"has {len(body)} bytes, and a {kind.__name__} has at most {DOCUMENT_BYTES_MAX}",
            "it was altered or forged; restore it from a copy",
        )
    try:
        number = msgspec.json.decode(body, type=_Numbered).format
        if number > newest:
            raise _too_new(name, number, newest)
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as why:
        raise Corrupt(
            name,
            f"cannot be read as a {kind.__name__} ({_in_words(why)}; {len(body)} bytes)",
            "it was truncated or altered; run `penstock fsck`, then restore it from a copy",
        ) from why


def _in_words(why: Exception) -> str:
    """What the decoder says; a pattern would tell a person nothing that its place does not."""
    if isinstance(why, RecursionError):
        return "it is nested too deeply"
    return _PATTERN.sub("a text that Penstock never writes there", str(why))


def seal(document: Sealed) -> bytes:
    """The bytes of a document with its own hash inside."""
    return encode(msgspec.structs.replace(document, checksum=_checksum(document)))


def unseal(name: str, body: bytes, kind: type[Z], newest: int) -> Z:
    """The document in `body`, or `Corrupt` if it is not to the letter what was sealed."""
    document = decode(name, body, kind, newest)
    if document.checksum != _checksum(document):
        raise Corrupt(
            name,
            "does not match its own checksum",
            "it was altered after it was written; restore it from a copy",
        )
    return msgspec.structs.replace(document, checksum="")


def _checksum(document: Sealed) -> str:
    return hashlib.sha256(encode(msgspec.structs.replace(document, checksum=""))).hexdigest()


def ref_to(key: Key, body: bytes) -> Ref:
    """What names `body`, once it is stored under `key`."""
    return Ref(key=key, sha256=hashlib.sha256(body).hexdigest(), size_bytes=len(body))


def verify(ref: Ref, sha256: str, size_bytes: int) -> None:
    """Raise `Corrupt` unless an object of that hash and length is the one `ref` names."""
    if sha256 != ref.sha256:
        raise Corrupt(
            ref.key,
            f"hashes to {sha256[:12]}… ({size_bytes} bytes), but its manifest names "
            f"{ref.sha256[:12]}… ({ref.size_bytes} bytes)",
            "it was altered after it was written; restore it from a copy or an older checkpoint",
        )


def not_longer(ref: Ref) -> Callable[[int], None]:
    """Raises `Corrupt` as soon as more bytes have come than `ref` names: nothing fills a disk."""

    def check(size_bytes: int) -> None:
        if size_bytes > ref.size_bytes:
            raise Corrupt(
                ref.key,
                f"is longer than the {ref.size_bytes} bytes that its manifest names",
                "it was altered after it was written; restore it from a copy or an older "
                "checkpoint",
            )

    return check


def _too_new(name: str, number: int, newest: int) -> Invalid:
    return Invalid(
        name,
        f"has format {number}, and this version of Penstock reads up to {newest}",
        "use the version of Penstock that wrote it, or a newer one",
    )
