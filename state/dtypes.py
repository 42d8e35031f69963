"""Types of fixed width: how a column's keys and values lie in memory, and in a page.

Declared as the types of Python (`int`, `float`, `bool`), of numpy (`np.int32`), by their numpy
name (`Literal["S16"]`), or as a dataclass or Struct of these, which becomes a structured type.
"""

import dataclasses
import typing
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.errors import Invalid

__all__ = [
    "KEY_WIDTH_MAX", "VALUE_WIDTH_MAX", "Array", "Dtype", "Packed", "fits", "item_type",
    "key_dtype", "packed", "spell_dtype", "to_numpy", "value_dtype",
]  # fmt: skip

KEY_WIDTH_MAX, VALUE_WIDTH_MAX = 256, 4096

Dtype = np.dtype[Any]
Array = NDArray[Any]
Packed = NDArray[np.void]  # fixed-width bytes, one item per key

_PLAIN: dict[Any, str] = {int: "<i8", float: "<f8", bool: "?"}


def key_dtype(given: Any, where: str) -> Dtype:
    """The type of a key; `Invalid`, naming `where`, if it cannot be one."""
    found = _fixed_width(where, "key", given, KEY_WIDTH_MAX)
    if found.kind not in "iuSV" or found.subdtype or found.names:
        raise Invalid(where, f"has {spell_dtype(found)} as its key", "use int64 or S16")
    return found


def value_dtype(given: Any, where: str) -> Dtype:
    """The type of a value; `Invalid`, naming `where`, if it cannot be one."""
    return _fixed_width(where, "value", given, VALUE_WIDTH_MAX)


def _fixed_width(where: str, what: str, given: Any, width_max: int) -> Dtype:
    """A declared type, little-endian and without gaps: bytes that nobody set are never stored."""
    try:
        declared = _tight(np.dtype(_spelled(given)))
    except (TypeError, NameError) as error:
        found = f"has {getattr(given, '__name__', given)!r} as its {what}, which has no fixed width"
        raise Invalid(where, found, 'use int, float, np.int32 or Literal["S16"]') from error
    if declared.hasobject or not 0 < declared.itemsize <= width_max:
        found = f"has {spell_dtype(declared)} as its {what}"
        raise Invalid(where, found, f"use a type of fixed width, up to {width_max} bytes")
    return declared


def _spelled(given: Any) -> Any:
    """A declared type in the words of numpy."""
    if typing.get_origin(given) is typing.Literal:
        return typing.get_args(given)[0]
    if dataclasses.is_dataclass(given) or _is_struct(given):
        hints = typing.get_type_hints(given)
        return [(name, np.dtype(_spelled(hint))) for name, hint in hints.items()]
    return _PLAIN.get(given, given) if isinstance(given, type) else given


def _is_struct(given: Any) -> bool:
    return isinstance(given, type) and issubclass(given, msgspec.Struct)


def _tight(dtype: Dtype) -> Dtype:
    if dtype.subdtype is not None:
        return np.dtype((_tight(dtype.base), dtype.shape))
    if dtype.names is not None:
        return np.dtype([(name, _tight(dtype[name])) for name in dtype.names])
    return dtype.newbyteorder("<")


def spell_dtype(dtype: Dtype) -> str:
    """A type in words; it is also what is stored to know it by."""
    if dtype.subdtype is not None:
        return f"{spell_dtype(dtype.base)}[{','.join(map(str, dtype.shape))}]"
    if dtype.names is not None:
        return "{" + ", ".join(f"{name}: {spell_dtype(dtype[name])}" for name in dtype.names) + "}"
    return dtype.str.lstrip("<|") if dtype.kind in "SVU" else dtype.name


def item_type(array: Array) -> Dtype:
    """The type of an item, which is itself an array if there are more dimensions."""
    return np.dtype((array.dtype, array.shape[1:])) if array.ndim > 1 else array.dtype


def fits(found: Dtype, declared: Dtype) -> bool:
    """Whether every value of one type is also one of the other."""
    if declared.names is not None:
        return found.names == declared.names and all(
            fits(found[name], declared[name]) for name in declared.names
        )
    if declared.kind in "SV" and declared.subdtype is None:
        is_bytes = found.names is None and (found.kind in "SV" or found.base == np.uint8)
        return is_bytes and found.itemsize == declared.itemsize
    alike = found.base.kind == declared.base.kind or (found.base.kind + declared.base.kind) == "ui"
    return found.shape == declared.shape and alike and np.can_cast(found.base, declared.base)


def packed(array: Array, declared: Dtype) -> Packed:
    """The bytes of each item."""
    is_bytes = declared.kind in "SV" and not declared.names and not declared.subdtype
    plain = array if is_bytes else array.astype(declared.base)
    flat = np.ascontiguousarray(plain).reshape(-1).view(np.uint8)
    return np.ndarray((len(array),), f"V{declared.itemsize}", flat)


def to_numpy(where: str, what: str, column: Any) -> Array:
    """A column as numpy sees it, without nulls."""
    if isinstance(column, np.ndarray) and not isinstance(column, np.ma.MaskedArray):
        return column
    if type(column).__module__.partition(".")[0] != "pyarrow":
        found = f"was given a {type(column).__name__} as {what}"
        raise Invalid(where, found, "give a numpy array or an Arrow array")
    return _from_arrow(where, what, column)


def _from_arrow(where: str, what: str, column: Any) -> Array:
    import pyarrow as pa  # type: ignore[import-untyped] # whoever has such an array has loaded it

    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if array.null_count:
        raise Invalid(where, f"was given nulls as {what}", "fill them or filter such rows out")
    if pa.types.is_fixed_size_binary(array.type):
        width = array.type.byte_width
        return np.ndarray((len(array),), f"V{width}", array.buffers()[1], array.offset * width)
    if pa.types.is_fixed_size_list(array.type):
        inner = _from_arrow(where, what, array.flatten())
        return inner.reshape(len(array), array.type.list_size, *inner.shape[1:])
    if pa.types.is_struct(array.type):
        fields = [_from_arrow(where, what, field) for field in array.flatten()]
        zipped = np.empty(len(array), [*zip(array.type.names, map(item_type, fields), strict=True)])
        for name, field in zip(array.type.names, fields, strict=True):
            zipped[name] = field
        return zipped
    return np.asarray(array.to_numpy(zero_copy_only=False))
