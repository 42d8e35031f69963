"""Values as DynamoDB holds them, and those it never can.

Numbers are numbers, text is text, lists and structs are what they are; moments are text as in
`plain_values`. A column without a value is an attribute that is not there. What DynamoDB refuses
for good is found here, before an epoch is decided: long keys, long rows, floats beyond its range.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.errors import Invalid
from penstock.sinks.plain_values import (
    as_plain,
    bytes_bound,
    check_plain,
    is_bytes,
    is_text,
    python_values,
    trimmed_number,
)

__all__ = [
    "Item", "as_attribute", "canonical", "check_values", "item_bytes", "items_of", "key_kind"
]  # fmt: skip

Item = dict[str, Any]
"""A row as DynamoDB's own notation: `{"user": {"S": "ada"}, "n": {"N": "1"}}`."""

ITEM_BYTES_MAX = 400 << 10
OWN_BYTES = 512
"""What is left free for the attributes that are the sink's own."""
KEY_BYTES_MAX = (2048, 1024)
"""Of the partition key, and of the sort key."""
NAME_BYTES_MAX = 65_535
DIGITS_MAX = 38
SCALE_MIN, SCALE_MAX = -87, 130
"""Within these, 38 digits stay between 1E-130 and 1E+126."""
FLOAT_MIN, FLOAT_MAX = 1e-130, 9.99e125
DEPTH_MAX = 32

_NULL = {"NULL": True}


def as_attribute(kind: pa.DataType) -> Callable[[Any], Item]:
    """How values of a type are written. There is a way to write None only inside of others."""
    types = pa.types
    if types.is_list(kind) or types.is_large_list(kind):
        inner = as_attribute(kind.value_type)
        return lambda values: {"L": [_or_null(inner, value) for value in values]}
    if types.is_struct(kind):
        fields = {kind.field(n).name: kind.field(n).type for n in range(kind.num_fields)}
        each = {name: as_attribute(type_) for name, type_ in fields.items()}
        return lambda found: {"M": {name: _or_null(to, found[name]) for name, to in each.items()}}
    if types.is_map(kind):
        return _map_attribute(kind)
    if types.is_floating(kind):
        return lambda value: {"N": repr(value)}
    plain, letter = as_plain(kind), _letter(kind)
    if letter == "N":
        return lambda value: {"N": str(plain(value))}
    return (lambda value: {"B": value}) if letter == "B" else (lambda v: {letter: plain(v)})


def _map_attribute(kind: pa.DataType) -> Callable[[Any], Item]:
    key, inner = as_attribute(kind.key_type), as_attribute(kind.item_type)
    if is_text(kind.key_type):
        return lambda pairs: {"M": {name: _or_null(inner, value) for name, value in pairs}}
    return lambda pairs: {
        "L": [{"L": [key(name), _or_null(inner, value)]} for name, value in pairs]
    }


def _or_null(to: Callable[[Any], Item], value: Any) -> Item:
    return _NULL if value is None else to(value)


def _letter(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_boolean(kind):
        return "BOOL"
    if types.is_integer(kind) or types.is_decimal(kind):
        return "N"
    return "B" if is_bytes(kind) else "S"


def key_kind(kind: pa.DataType) -> str | None:
    """The type a key of such values has in a table; None: it cannot be a key."""
    types = pa.types
    timely = types.is_timestamp(kind) or types.is_date(kind)
    whole = types.is_integer(kind) or types.is_decimal(kind)
    return _letter(kind) if timely or whole or is_text(kind) or is_bytes(kind) else None


def items_of(rows: pa.Table) -> Iterator[Item]:
    """Each row, with the columns that have a value."""
    names = rows.column_names
    columns = []
    for column in rows.columns:
        to = as_attribute(column.type)
        columns.append([None if value is None else to(value) for value in python_values(column)])
    for values in zip(*columns, strict=True):
        yield {name: value for name, value in zip(names, values, strict=True) if value is not None}


def canonical(value: Mapping[str, Any]) -> str:
    """One text for each value, however DynamoDB spells its numbers when it gives them back."""
    return json.dumps(_in_order(value), ensure_ascii=False, separators=(",", ":"))


def _in_order(value: Mapping[str, Any]) -> Any:
    ((letter, found),) = value.items()
    if letter == "N":
        return [letter, trimmed_number(found)]
    if letter == "B":
        return [letter, bytes(found).hex()]
    if letter == "L":
        return [letter, [_in_order(each) for each in found]]
    if letter == "M":
        return [letter, [[name, _in_order(found[name])] for name in sorted(found)]]
    return [letter, sorted(map(str, found)) if isinstance(found, list) else found]


def item_bytes(item: Mapping[str, Any]) -> int:
    """How DynamoDB counts the size of an item, numbers rounded up."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _value_bytes(value: Mapping[str, Any]) -> int:
    ((letter, found),) = value.items()
    if letter == "S":
        return len(found.encode())
    if letter == "B":
        return len(found)
    if letter == "N":
        return len(found) // 2 + 3
    if letter == "L":
        return 3 + sum(1 + _value_bytes(each) for each in found)
    if letter == "M":
        return 3 + item_bytes(found) + len(found)
    return 1


def check_values(where: str, key: tuple[str, ...], rows: pa.Table) -> None:
    """Raise `Invalid` if there is a type, a value or a row that DynamoDB can never hold."""
    check_plain(where, rows.schema)
    for column in rows.schema:
        told = _unfit(column.type, 1)
        if told:
            raise Invalid(f"{where}, column {column.name!r}", *told)
    for place, name in enumerate(key):
        _check_key(f"{where}, column {name!r}", KEY_BYTES_MAX[place], rows.column(name))
    for name in rows.column_names:
        for chunk in rows.column(name).chunks:
            _check_inside(f"{where}, column {name!r}", chunk)
    for at in np.flatnonzero(bytes_bound(rows) > ITEM_BYTES_MAX - OWN_BYTES):
        _check_size(where, key, rows.slice(int(at), 1))


def _unfit(kind: pa.DataType, depth: int) -> tuple[str, str] | None:
    """What is wrong with a type, and what to do about it."""
    types = pa.types
    if depth > DEPTH_MAX:
        return f"is nested more than {DEPTH_MAX} levels deep", "flatten it"
    if types.is_decimal(kind) and not (
        kind.precision <= DIGITS_MAX and SCALE_MIN <= kind.scale <= SCALE_MAX
    ):
        return f"is {kind}, and DynamoDB holds {DIGITS_MAX} digits", "cast it, or make it text"
    fields = [kind.field(n) for n in range(kind.num_fields)]
    if types.is_struct(kind) and any(not field.name for field in fields):
        return f"is {kind}, and has a field without a name", "name it"
    return next((told for field in fields if (told := _unfit(field.type, depth + 1))), None)


def _check_key(where: str, bytes_max: int, values: pa.ChunkedArray) -> None:
    kind = values.type
    if key_kind(kind) is None:
        found = f"is its key, and is {kind}, which is neither text nor a whole number nor bytes"
        raise Invalid(where, found, "cast it to one of these")
    if not (is_text(kind) or is_bytes(kind)) or not len(values):
        return
    range_ = pc.min_max(pc.binary_length(values)).as_py()
    if range_["min"] == 0:
        found = "is its key, and has an empty value, which DynamoDB does not take for a key"
        raise Invalid(where, found, "emit no row with an empty key")
    if range_["max"] > bytes_max:
        found = f"is its key, and has a value of {range_['max']:,} bytes, of {bytes_max:,} at most"
        raise Invalid(where, found, "use a shorter key, such as a hash of it")


def _check_inside(where: str, values: pa.Array) -> None:
    """Look at the floats and at the names of map entries, however deep they are."""
    kind = values.type
    if pa.types.is_floating(kind):
        _check_floats(where, values)
    elif pa.types.is_struct(kind):
        for field in values.flatten():
            _check_inside(where, field)
    elif pa.types.is_map(kind) and len(values):
        first, end = values.offsets[0].as_py(), values.offsets[-1].as_py()
        keys = values.keys.slice(first, end - first)
        if is_text(kind.key_type):
            _check_names(where, keys)
        _check_inside(where, keys)
        _check_inside(where, values.items.slice(first, end - first))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        _check_inside(where, values.flatten())


def _check_floats(where: str, values: pa.Array) -> None:
    sizes = np.abs(values.drop_null().to_numpy(zero_copy_only=False).astype(np.float64))
    unfit = ~((sizes == 0) | ((sizes >= FLOAT_MIN) & (sizes <= FLOAT_MAX)))
    if unfit.any():
        found = f"has a value of size {sizes[unfit][0]}, and DynamoDB holds no such number"
        raise Invalid(where, found, f"emit text, or none, beyond {FLOAT_MIN} and {FLOAT_MAX}")


def _check_names(where: str, names: pa.Array) -> None:
    range_ = pc.min_max(pc.binary_length(names)).as_py()
    if range_["min"] == 0 or (range_["max"] or 0) > NAME_BYTES_MAX:
        found = f"has an entry whose name is empty or longer than {NAME_BYTES_MAX:,} bytes"
        raise Invalid(where, found, "emit no such entry")


def _check_size(where: str, key: tuple[str, ...], row: pa.Table) -> None:
    (item,) = items_of(row)
    size_bytes = item_bytes(item) + OWN_BYTES
    if size_bytes > ITEM_BYTES_MAX:
        shown = str({name: python_values(row.column(name))[0] for name in key})[:120]
        raise Invalid(
            f"{where}, row {shown}",
            f"has {size_bytes:,} bytes, and DynamoDB takes {ITEM_BYTES_MAX:,}",
            "emit less in one row",
        )
