"""Columns of one Arrow type made columns of another, exactly or not at all.

The rules are those of single values (`exact_values`): numbers become numbers that are equal, times
keep having a zone or none, text stays text but for times and decimals, which may be written out.
Bytes and text are each other's if they are UTF-8. Beyond that a cast is believed if casting back
gives the same column again.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

__all__ = ["check_castable", "exact_cast"]

_Is = Callable[[pa.DataType], Any]
_TEXT: tuple[_Is, ...] = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
)
_BYTES: tuple[_Is, ...] = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    lambda kind: pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind),
)
_LISTS: tuple[_Is, ...] = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
)
_NUMBERS: tuple[_Is, ...] = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
_FAMILIES: list[tuple[tuple[_Is, ...], tuple[_Is, ...]]] = [
    ((pa.types.is_boolean,), (pa.types.is_boolean,)),
    ((pa.types.is_integer,), _NUMBERS),
    ((pa.types.is_floating,), (pa.types.is_integer, pa.types.is_floating)),
    ((pa.types.is_decimal,), (pa.types.is_integer, pa.types.is_decimal, *_TEXT)),
    (_TEXT, (*_TEXT, *_BYTES)),
    (_BYTES, (*_BYTES, *_TEXT)),
    ((pa.types.is_date,), (pa.types.is_date, *_TEXT)),
    ((pa.types.is_timestamp,), (pa.types.is_timestamp, pa.types.is_integer, *_TEXT)),
    ((pa.types.is_time,), (pa.types.is_time,)),
    ((pa.types.is_duration,), (pa.types.is_duration, pa.types.is_integer)),
]
"""What may be cast to what: a column of the first from one of the second."""


def exact_cast(column: Any, kind: pa.DataType) -> Any:
    """An array or a chunked array as one of that type; raises `ValueError`, or what Arrow does, if
    a value would be another."""
    if column.type.equals(kind):
        return column
    check_castable(column.type, kind)
    made = column.cast(kind)
    if _is_written(column.type, kind) or _is_same(made.cast(column.type), column):
        return made
    raise ValueError(f"a value of type {column.type} would come out as another of type {kind}")


def check_castable(found: pa.DataType, kind: pa.DataType) -> None:
    """Raise `ValueError` if no column of the one type is cast to the other."""
    if not _is_castable(found, kind):
        zones = pa.types.is_timestamp(found) and pa.types.is_timestamp(kind)
        why = " without saying in which zone" if zones else ""
        raise ValueError(f"{found} is not made {kind}{why}")


def _is_castable(found: pa.DataType, kind: pa.DataType) -> bool:
    if found.equals(kind) or pa.types.is_null(found):
        return True
    if pa.types.is_dictionary(found) or pa.types.is_dictionary(kind):
        return _is_castable(_plain(found), _plain(kind))
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(kind):
        return (found.tz is None) == (kind.tz is None)
    if pa.types.is_nested(found) and pa.types.is_nested(kind):
        return _is_castable_inside(found, kind)
    return any(_is_any(kind, to) and _is_any(found, sources) for to, sources in _FAMILIES)


def _is_castable_inside(found: pa.DataType, kind: pa.DataType) -> bool:
    if _is_any(found, _LISTS) and _is_any(kind, _LISTS):
        return _is_castable(found.value_type, kind.value_type)
    if pa.types.is_map(found) and pa.types.is_map(kind):
        keys = _is_castable(found.key_type, kind.key_type)
        return keys and _is_castable(found.item_type, kind.item_type)
    both = pa.types.is_struct(found) and pa.types.is_struct(kind)
    return both and _are_castable(found, kind)


def _are_castable(found: pa.DataType, kind: pa.DataType) -> bool:
    """Whether a struct may become another: no field may be lost, and each must be castable."""
    names = {each.name for each in kind}
    inside = {each.name: each.type for each in found}
    known = len(inside) == found.num_fields and set(inside) <= names
    return known and all(
        each.name not in inside or _is_castable(inside[each.name], each.type) for each in kind
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_any(kind: pa.DataType, kinds: tuple[_Is, ...]) -> bool:
    return any(is_it(kind) for is_it in kinds)


def _is_written(found: pa.DataType, kind: pa.DataType) -> bool:
    """Whether something in it is text that becomes a time or a decimal, or null: Arrow reads the
    value that it spells, and seldom spells it that way again."""
    if pa.types.is_null(found):
        return True
    if _is_any(_plain(found), _TEXT):
        return not _is_any(_plain(kind), (*_TEXT, *_BYTES))
    if pa.types.is_struct(found) and pa.types.is_struct(kind):
        inside = {each.name: each.type for each in found}
        return any(_is_written(inside[e.name], e.type) for e in kind if e.name in inside)
    if _is_any(found, _LISTS) and _is_any(kind, _LISTS):
        return _is_written(found.value_type, kind.value_type)
    return False


def _is_same(one: Any, other: Any) -> bool:
    """Whether two columns hold the same values; what is not a number equals itself here."""
    if one.equals(other):
        return True
    if isinstance(one, pa.ChunkedArray):
        return _is_same(one.combine_chunks(), other.combine_chunks())
    if not one.is_valid().equals(other.is_valid()):
        return False
    if pa.types.is_floating(one.type):
        both_nan = pc.and_(pc.is_nan(one), pc.is_nan(other))
        return pc.all(pc.or_(pc.equal(one, other), both_nan)).as_py() is not False
    return pa.types.is_nested(one.type) and _are_same(_parts(one), _parts(other))


def _are_same(some: list[Any], others: list[Any]) -> bool:
    return all(map(_is_same, some, others))


def _parts(array: Any) -> list[Any]:
    """What a nested column is made of."""
    if pa.types.is_struct(array.type):
        return list(array.flatten())
    if pa.types.is_map(array.type):
        return [array.offsets, array.keys, array.items]
    return [pc.list_value_length(array), array.flatten()]
