"""Values as bytes: typed msgpack, checked on the way in and on the way out.

What does not fit its declaration is refused when it is set, where the user's code still is on
the stack, and not by whoever reads it a month later. Nothing is ever pickled.

What is read equals what was set. A value that is not of an exact type is read back at once and
compared: an int that no float holds, a field that only a subclass has, and a record whose
`__post_init__` makes another of it are refused. numpy's numbers are numbers. A datetime has a zone.
"""

import types
import typing
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from penstock.errors import Corrupt, Invalid
from penstock.state.keys import encode_key
from penstock.state.sameness import field_names, is_same
from penstock.state.types import Description, describe, holds, spell

__all__ = ["VALUE_BYTES_MAX", "Codec", "MapKeys"]

VALUE_BYTES_MAX = 64 << 20
_EXACT = (int, float, str, bytes, bool, datetime, date, Decimal)
"""Types whose values need no second look: the class says it all."""
_SPELT = (datetime, date, Decimal, bytes)
"""Types that msgspec would also read from a str or a number."""
_UNFIT = (msgspec.MsgspecError, TypeError, OverflowError, ValueError, RecursionError)

T = TypeVar("T")


class Codec(Generic[T]):
    """How values of one declared type become bytes and come back."""

    def __init__(self, kind: Any, where: str) -> None:
        self.where = where
        self.description: Description = describe(kind, where)
        self._kind = kind
        self._encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder(enc_hook=_plain).encode
        self._decode: Callable[[bytes], T] = _decoder(kind, where)
        self._exact = kind if kind in _EXACT else None
        self._record = isinstance(kind, type) and self._exact is None
        self._spelt = holds(self.description, frozenset({"datetime", "date", "decimal"}))
        self._plain = not holds(self.description, frozenset({"record"}))
        """Whether values are equal if they say so: a record may compare itself in its own way."""
        self._timed = holds(self.description, frozenset({"datetime"}))

    def encode(self, value: T) -> bytes:
        """The bytes of a value, or `Invalid` if it is not of the declared type."""
        try:
            encoded = self._encode(value)
            if type(value) is not self._exact:
                self._check(value, encoded)
            if self._timed:
                _refuse_naive(value)
        except _UNFIT as error:
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

    def _check(self, value: T, encoded: bytes) -> None:
        """A wrong value must not get in, however deep it sits."""
        if self._record and type(value) is not self._kind:
            raise TypeError("not the class itself")
        if self._spelt:
            _fitted(value, self._kind)
        back = self._decode(encoded)
        if self._plain and back == value:
            return
        if not is_same(value, back):
            raise ValueError(f"it would be read as {str(back)[:60]!r}")

    def _refused(self, value: object, why: str) -> Invalid:
        return _refusal(self.where, value, why, self.description)


class MapKeys:
    """How a map's own keys become bytes: of the declared type, so 1 and 1.0 are one key."""

    def __init__(self, kind: Any, where: str) -> None:
        self._kind = kind
        self._where = where
        self._description = describe(kind, where)

    def encode(self, key: Any) -> bytes:
        """The bytes of a key, or `Invalid` if it is not of the declared type."""
        return encode_key(key if type(key) is self._kind else self._fitted(key, self._kind))

    def encode_bound(self, bound: Any) -> bytes:
        """Where a scan begins or ends; for tuples, the first few parts are enough."""
        parts = typing.get_args(self._kind)
        if isinstance(bound, tuple) and Ellipsis not in parts and len(bound) < len(parts):
            shorter = types.GenericAlias(tuple, parts[: len(bound)])
            return encode_key(self._fitted(bound, shorter))
        return self.encode(bound)

    def _fitted(self, key: Any, kind: Any) -> Any:
        try:
            return _fitted(key, kind)
        except _UNFIT as error:
            raise _refusal(f"key of {self._where}", key, str(error), self._description) from error


def _fitted(value: Any, kind: Any) -> Any:
    """The value as exactly that type: an int becomes a float, a str never becomes a date."""
    plain = msgspec.to_builtins(value, builtin_types=_SPELT, enc_hook=_plain)
    return msgspec.convert(plain, kind, builtin_types=_SPELT)


def _plain(value: Any) -> Any:
    """What numpy has for a number or a bool of Python's."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, bool | int | float):
        return plain
    raise TypeError(f"objects of type {type(value).__name__} are not kept")


def _refuse_naive(value: Any) -> None:
    """Raise `ValueError` for a datetime without a zone, however deep it sits."""
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            advice = "give it one, such as .replace(tzinfo=datetime.UTC)"
            raise ValueError(f"a time without a zone: {advice}")
    elif isinstance(value, dict):
        for each in (*value, *value.values()):
            _refuse_naive(each)
    elif isinstance(value, list | tuple):
        for each in value:
            _refuse_naive(each)
    else:
        for name in field_names(type(value)):
            _refuse_naive(getattr(value, name))


def _decoder(kind: Any, where: str) -> Callable[[bytes], Any]:
    try:
        return msgspec.msgpack.Decoder(kind).decode
    except TypeError as error:
        raise Invalid(where, f"cannot be told apart when read ({error})", "use a record") from error


def _refusal(where: str, value: object, why: str, description: Description) -> Invalid:
    return Invalid(
        where,
        f"was given {str(value)[:60]!r} of type {type(value).__name__} ({why})",
        f"give it a {spell(description)}",
    )
