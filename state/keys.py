"""Keys as bytes that sort as the keys do.

RocksDB knows only bytes and their order. Encoded here, keys compare byte by byte as they
compare in Python, within each type; a key ends where it says it ends, so no key is the prefix
of another, and what follows it (a state's number, a map's own key) never runs into it. Each
encoding names its type by a first byte and can be decoded without being told the type.

    none 01 | false 08, true 09 | int 10 | float 18 | str 20 | bytes 21
    datetime with zone 28, without 29 | date 2a | decimal 30 | tuple 40 … 00
"""

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import Invalid

__all__ = ["KEY_BYTES_MAX", "KEY_TYPES", "decode_key", "encode_ints", "encode_key", "encode_keys"]

KEY_BYTES_MAX = 4096
"""Encoded. A key longer than this is a value that lost its way."""

KEY_TYPES = (bool, int, float, str, bytes, datetime, date, Decimal, tuple)

_NONE, _FALSE, _TRUE, _INT, _FLOAT = b"\x01", b"\x08", b"\x09", b"\x10", b"\x18"
_STR, _BYTES, _AWARE, _NAIVE, _DATE, _DECIMAL, _TUPLE = (
    b"\x20",
    b"\x21",
    b"\x28",
    b"\x29",
    b"\x2a",
    b"\x30",
    b"\x40",
)
_END = b"\x00"
_SIGN = 1 << 63
_U64 = struct.Struct(">Q")
_DOUBLE = struct.Struct(">d")
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_EXPONENT_BIAS = 1 << 31


def encode_key(key: Any) -> bytes:
    """The bytes of a key. `Invalid` for a type or a size that cannot be one."""
    encoder = _ENCODERS.get(type(key)) or _by_base(key)
    encoded = encoder(key)
    if len(encoded) > KEY_BYTES_MAX:
        raise Invalid(
            f"key {str(key)[:40]!r}…",
            f"takes {len(encoded)} bytes, and a key may take {KEY_BYTES_MAX}",
            "use a shorter key, for instance a hash of this one",
        )
    return encoded


def encode_keys(keys: list[Any]) -> list[bytes]:
    """The bytes of many keys; of one type, and that int or str, they are made quickly."""
    kinds = set(map(type, keys))
    if kinds == {int} and min(keys) >= -_SIGN and max(keys) < _SIGN:
        return encode_ints(np.array(keys, np.int64))
    if kinds == {str}:
        plain = "\0".join(keys)
        if plain.isascii() and plain.count("\0") == len(keys) - 1 and "\1" not in plain:
            encoded = [_STR + key.encode() + _END for key in keys]
            if max(map(len, encoded)) <= KEY_BYTES_MAX:
                return encoded
    return [encode_key(key) for key in keys]


def encode_ints(keys: NDArray[np.int64]) -> list[bytes]:
    """The bytes of many whole numbers."""
    packed = np.empty(len(keys), [("tag", "S1"), ("body", ">u8")])
    packed["tag"] = _INT
    packed["body"] = keys.view(np.uint64) + np.uint64(_SIGN)
    encoded: list[bytes] = packed.view("V9").tolist()
    return encoded


def decode_key(encoded: bytes, start: int = 0) -> tuple[Any, int]:
    """The key that begins at `start`, and where it ends."""
    decoder = _DECODERS[encoded[start]]
    return decoder(encoded, start + 1)


def _by_base(key: Any) -> Callable[[Any], bytes]:
    """Enums, named tuples and the like are keys as what they are made of."""
    for kind, encoder in _ENCODERS.items():
        if isinstance(key, kind):
            return encoder
    raise Invalid(
        f"key {str(key)[:40]!r}",
        f"is a {type(key).__name__}, which has no order that could be kept",
        f"use {', '.join(kind.__name__ for kind in KEY_TYPES)}",
    )


def _encode_int(key: int) -> bytes:
    if not -_SIGN <= key < _SIGN:
        raise Invalid(f"key {key}", "does not fit in 64 bits", "use a str or a Decimal as the key")
    return _INT + _U64.pack(key + _SIGN)


def _encode_float(key: float) -> bytes:
    if key != key:  # noqa: PLR0124 - only a NaN differs from itself
        raise Invalid("key nan", "is not equal to itself", "filter such rows out before keying")
    (bits,) = _U64.unpack(_DOUBLE.pack(key + 0.0))  # the same bytes for both zeros
    return _FLOAT + _U64.pack(bits ^ (0xFFFFFFFFFFFFFFFF if bits & _SIGN else _SIGN))


def _encode_str(key: str) -> bytes:
    try:
        return _STR + _escaped(key.encode()) + _END
    except UnicodeEncodeError as error:
        raise Invalid(f"key {key[:40]!a}", "is not Unicode", "repair such rows first") from error


def _encode_bytes(key: bytes) -> bytes:
    return _BYTES + _escaped(key) + _END


def _escaped(raw: bytes) -> bytes:
    """Without a zero inside: only so is the zero at the end the end, whatever follows it."""
    return raw.replace(b"\1", b"\1\2").replace(b"\0", b"\1\1")


def _encode_datetime(key: datetime) -> bytes:
    tag = _NAIVE if key.tzinfo is None else _AWARE
    try:
        plain = key if key.tzinfo is None else key.astimezone(UTC).replace(tzinfo=None)
    except OverflowError as error:
        raise Invalid(f"key {key}", "is out of range in UTC", "repair such rows first") from error
    return tag + _U64.pack((plain - _EPOCH) // _MICROSECOND + _SIGN)


def _encode_date(key: date) -> bytes:
    return _DATE + _U64.pack(key.toordinal() + _SIGN)


def _encode_decimal(key: Decimal) -> bytes:
    """Sign, then magnitude, then digits; all of it inverted for negative numbers."""
    if not key.is_finite():
        raise Invalid(f"key {key}", "is not a number", "filter such rows out before keying")
    sign, digits, _ = key.as_tuple()
    if not any(digits):
        return _DECIMAL + b"\x01"
    magnitude = key.adjusted() + 1 + _EXPONENT_BIAS
    if not 0 <= magnitude < 2 * _EXPONENT_BIAS:
        raise Invalid(f"key {key}", "is out of range", "use a str as the key")
    # Not normalize(), which would round to the precision of the context.
    figures = bytes(digit + 1 for digit in digits).rstrip(b"\1")
    body = magnitude.to_bytes(4, "big") + figures + _END
    return _DECIMAL + (b"\x00" + _inverted(body) if sign else b"\x02" + body)


def _encode_tuple(key: tuple[Any, ...]) -> bytes:
    return _TUPLE + b"".join(encode_key(part) for part in key) + _END


def _inverted(body: bytes) -> bytes:
    return bytes(255 - byte for byte in body)


_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    str: _encode_str,
    bool: lambda key: _TRUE if key else _FALSE,
    int: _encode_int,
    float: _encode_float,
    bytes: _encode_bytes,
    datetime: _encode_datetime,
    date: _encode_date,
    Decimal: _encode_decimal,
    tuple: _encode_tuple,
    type(None): lambda _: _NONE,
}


def _decode_escaped(encoded: bytes, start: int) -> tuple[bytes, int]:
    end = encoded.index(_END, start)
    return encoded[start:end].replace(b"\1\1", b"\0").replace(b"\1\2", b"\1"), end + 1


def _decode_u64(encoded: bytes, start: int) -> tuple[int, int]:
    return _U64.unpack_from(encoded, start)[0] - _SIGN, start + 8


def _decode_str(encoded: bytes, start: int) -> tuple[str, int]:
    raw, end = _decode_escaped(encoded, start)
    return raw.decode(), end


def _decode_float(encoded: bytes, start: int) -> tuple[float, int]:
    (bits,) = _U64.unpack_from(encoded, start)
    bits ^= _SIGN if bits & _SIGN else 0xFFFFFFFFFFFFFFFF
    return _DOUBLE.unpack(_U64.pack(bits))[0], start + 8


def _decode_aware(encoded: bytes, start: int) -> tuple[datetime, int]:
    plain, end = _decode_naive(encoded, start)
    return plain.replace(tzinfo=UTC), end


def _decode_naive(encoded: bytes, start: int) -> tuple[datetime, int]:
    micros, end = _decode_u64(encoded, start)
    return _EPOCH + micros * _MICROSECOND, end


def _decode_date(encoded: bytes, start: int) -> tuple[date, int]:
    ordinal, end = _decode_u64(encoded, start)
    return date.fromordinal(ordinal), end


def _decode_decimal(encoded: bytes, start: int) -> tuple[Decimal, int]:
    sign = encoded[start]
    if sign == 1:
        return Decimal(0), start + 1
    end = encoded.index(b"\xff" if sign == 0 else _END, start + 5)
    body = encoded[start + 1 : end]
    body = _inverted(body) if sign == 0 else body
    digits = tuple(byte - 1 for byte in body[4:])
    exponent = int.from_bytes(body[:4], "big") - _EXPONENT_BIAS - len(digits)
    return Decimal((1 if sign == 0 else 0, digits, exponent)), end + 1


def _decode_tuple(encoded: bytes, start: int) -> tuple[tuple[Any, ...], int]:
    parts = []
    while encoded[start : start + 1] != _END:
        part, start = decode_key(encoded, start)
        parts.append(part)
    return tuple(parts), start + 1


_DECODERS: dict[int, Callable[[bytes, int], tuple[Any, int]]] = {
    _NONE[0]: lambda _, start: (None, start),
    _FALSE[0]: lambda _, start: (False, start),
    _TRUE[0]: lambda _, start: (True, start),
    _INT[0]: _decode_u64,
    _FLOAT[0]: _decode_float,
    _STR[0]: _decode_str,
    _BYTES[0]: _decode_escaped,
    _AWARE[0]: _decode_aware,
    _NAIVE[0]: _decode_naive,
    _DATE[0]: _decode_date,
    _DECIMAL[0]: _decode_decimal,
    _TUPLE[0]: _decode_tuple,
}
