"""Values as bytes: typed msgpack, checked on the way in and on the way out.

What does not fit its declaration is refused when it is set, where the user's code still is on
the stack, and not by whoever reads it a month later. Nothing is ever pickled.
"""

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Generic, TypeVar

import msgspec

from penstock.errors import Corrupt, Invalid
from penstock.state.types import Description, describe, spell

__all__ = ["VALUE_BYTES_MAX", "Codec"]

VALUE_BYTES_MAX = 64 << 20
_EXACT = (int, float, str, bytes, bool, datetime, date, Decimal)
"""Types whose values need no second look: the class says it all."""

T = TypeVar("T")


class Codec(Generic[T]):
    """How values of one declared type become bytes and come back."""

    def __init__(self, kind: Any, where: str) -> None:
        self.where = where
        self.description: Description = describe(kind, where)
        self._kind = kind
        self._encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
        self._decode: Callable[[bytes], T] = msgspec.msgpack.Decoder(kind).decode
        self._exact = kind if kind in _EXACT else None

    def encode(self, value: T) -> bytes:
        """The bytes of a value, or `Invalid` if it is not of the declared type."""
        try:
            encoded = self._encode(value)
            if type(value) is not self._exact:
                self._decode(encoded)  # a wrong value must not get in, however deep it sits
        except (msgspec.MsgspecError, TypeError, OverflowError, ValueError) as error:
            raise self._refused(value, str(error)) from error
        if len(encoded) > VALUE_BYTES_MAX:
            raise self._refused(value, f"takes {len(encoded)} bytes, of {VALUE_BYTES_MAX} allowed")
        return encoded

    def decode(self, encoded: bytes) -> T:
        """The value of some bytes."""
        try:
            return self._decode(encoded)
        except (msgspec.MsgspecError, ValueError) as error:
            raise Corrupt(
                self.where,
                f"holds bytes that are no {spell(self.description)} ({error})",
                "restore this partition; if it stays so, the schema on the store is wrong",
            ) from error

    def _refused(self, value: object, why: str) -> Invalid:
        return Invalid(
            self.where,
            f"was given {str(value)[:60]!r} of type {type(value).__name__} ({why})",
            f"give it a {spell(self.description)}",
        )
