"""Python values as Arrow's, exactly or not at all.

Arrow takes a part of many values without a word: the seconds of a time, the day of a datetime, the
letters of a text as a list. A rule for each type of column refuses those before Arrow sees them,
and says what to give instead. It applies to what functions emit and what is appended to a topic.

- Numbers, numpy's too, are taken if the column holds that very number.
- A time of a column with a zone has a zone, and one of a column without has none.
- Times and decimals may be written out, as in JSON; a whole number is a time in the column's unit.
- A list is a list, a tuple or an array; a struct is a dict with no field too many.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["NotExact", "exact_array", "exact_value"]

Rule: TypeAlias = Callable[[Any], Any]
"""Gives what Arrow is given for a value, or raises `NotExact`."""

RULES_MAX = 512
"""How many types' rules are kept at hand."""

_UNIT_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}
_EPOCH_DAY = date(1970, 1, 1)
_FLOAT = "give a float"


class NotExact(ValueError):
    """A value that a column cannot hold as it is."""

    def __init__(self, advice: str) -> None:
        super().__init__(advice)
        self.advice = advice
        """What to give instead."""


def exact_array(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    """The values as a column of that type; raises `NotExact`, or what Arrow raises."""
    rule = _rule(kind)
    return pa.array([None if value is None else rule(value) for value in values], kind)


def exact_value(value: Any, kind: pa.DataType) -> Any:
    """What Arrow is given for one value; raises `NotExact`."""
    return None if value is None else _rule(kind)(value)


@lru_cache(maxsize=RULES_MAX)
def _rule(kind: pa.DataType) -> Rule:
    for is_it, make in _MAKERS:
        if is_it(kind):
            return make(kind)
    return _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


def _refuse(advice: str) -> Any:
    raise NotExact(advice)


def _boolean(kind: pa.DataType) -> Rule:
    def rule(value: Any) -> Any:
        if isinstance(value, bool | np.bool_):
            return bool(value)
        return _refuse("give True or False")

    return rule


def _integer(kind: pa.DataType) -> Rule:
    def rule(value: Any) -> Any:
        return int(value) if _is_whole(value) else _refuse("give a whole number")

    return rule


def _is_integer(value: Any) -> bool:
    """Whether it is of a type of whole numbers; numpy's durations and Python's bools seem to be."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)


def _is_whole(value: Any) -> bool:
    """Whether it is a whole number, of any type of numbers."""
    if isinstance(value, Decimal):
        return value.is_finite() and value == value.to_integral_value()
    if isinstance(value, float | np.floating):
        return bool(np.isfinite(value)) and float(value).is_integer()
    return _is_integer(value)


def _floating(kind: pa.DataType) -> Rule:
    width = np.dtype(f"f{kind.bit_width // 8}").type

    def rule(value: Any) -> Any:
        if _is_integer(value):
            return _held(int(value), width)
        return _held(value, width) if isinstance(value, float | np.floating) else _refuse(_FLOAT)

    return rule


def _held(value: Any, width: type[Any]) -> Any:
    """The number, if so many bits hold it."""
    with np.errstate(over="ignore"):
        try:
            made = width(value)
        except OverflowError:
            return _refuse("give a smaller number, or declare a decimal")
    # As Python's numbers: numpy would compare in the bits of the smaller type.
    if float(made) == value or np.isnan(made):
        return made if width is np.float16 else float(made)
    if isinstance(value, int):
        return _refuse("give float(…) of it, which rounds, or declare a whole number")
    return _refuse(f"round it yourself with numpy.{width.__name__}(…), or declare a double")


def _decimal(kind: pa.DataType) -> Rule:
    def rule(value: Any) -> Any:
        if _is_integer(value):
            return int(value)
        if isinstance(value, str):
            return _written(value, kind)
        return value if isinstance(value, Decimal) else _refuse("give a Decimal")

    return rule


def _text(kind: pa.DataType) -> Rule:
    def rule(value: Any) -> Any:
        return value if isinstance(value, str) else _refuse("give a str")

    return rule


def _binary(kind: pa.DataType) -> Rule:
    def rule(value: Any) -> Any:
        if isinstance(value, bytes):
            return value
        return bytes(value) if isinstance(value, bytearray | memoryview) else _refuse("give bytes")

    return rule


def _date(kind: pa.DataType) -> Rule:
    def rule(value: Any) -> Any:
        if isinstance(value, datetime):
            return _refuse("give its .date(), or declare a timestamp")
        if isinstance(value, date):
            return value
        if isinstance(value, str):
            return _written(value, kind)
        if isinstance(value, np.datetime64):
            return _numpy_day(value)
        is_day = _is_whole(value) and pa.types.is_date32(kind)
        return int(value) if is_day else _refuse("give a date")

    return rule


def _numpy_day(value: np.datetime64) -> Any:
    day = value.astype("datetime64[D]")
    if np.isnat(value) or day != value:
        return _refuse("give a date")
    return _EPOCH_DAY + timedelta(days=int(day.astype(np.int64)))


def _timestamp(kind: pa.DataType) -> Rule:
    unit_ns = _UNIT_NS[kind.unit]

    def rule(value: Any) -> Any:
        if isinstance(value, datetime):
            _check_zone(value, kind)
            _check_unit(value.microsecond * 1000 + getattr(value, "nanosecond", 0), unit_ns, kind)
            return value
        if isinstance(value, np.datetime64):
            if kind.tz is not None:
                return _refuse("give a datetime with a zone, such as datetime.now(UTC)")
            return _numpy_ticks(value, kind)
        if isinstance(value, str):
            return _written(value, kind)
        return int(value) if _is_whole(value) else _refuse("give a datetime")

    return rule


def _check_zone(value: datetime, kind: pa.DataType) -> None:
    if type(value).__name__ == "NaTType":  # what pandas has for no time
        raise NotExact("give None")
    has_zone = value.tzinfo is not None and value.utcoffset() is not None
    if has_zone and kind.tz is None:
        raise NotExact("its column has no zone: declare one that has, or give a time without")
    if not has_zone and kind.tz is not None:
        raise NotExact("it has no zone: give it one, such as .replace(tzinfo=datetime.UTC)")


def _check_unit(fraction_ns: int, unit_ns: int, kind: pa.DataType) -> None:
    if fraction_ns % unit_ns:
        raise NotExact(f"cut it to {kind.unit} yourself, or declare a finer type")


def _time(kind: pa.DataType) -> Rule:
    unit_ns = _UNIT_NS[kind.unit]

    def rule(value: Any) -> Any:
        if isinstance(value, time):
            if value.tzinfo is not None:
                return _refuse("a time of day has no zone here: give it without")
            _check_unit(value.microsecond * 1000, unit_ns, kind)
            return value
        if isinstance(value, str):
            return _written(value, kind)
        return int(value) if _is_whole(value) else _refuse("give a time")

    return rule


def _duration(kind: pa.DataType) -> Rule:
    unit_ns = _UNIT_NS[kind.unit]

    def rule(value: Any) -> Any:
        if isinstance(value, timedelta):
            _check_unit(value.microseconds * 1000 + getattr(value, "nanoseconds", 0), unit_ns, kind)
            return value
        if isinstance(value, np.timedelta64):
            return _numpy_ticks(value, kind)
        return int(value) if _is_whole(value) else _refuse("give a timedelta")

    return rule


def _numpy_ticks(value: np.datetime64 | np.timedelta64, kind: pa.DataType) -> Any:
    """A time of numpy as Arrow's, if that has the same unit or a finer one."""
    ticks = value.astype(f"{value.dtype.kind}8[{kind.unit}]")
    if np.isnat(value) or ticks != value:
        return _refuse(f"cut it to {kind.unit} yourself; None stands for no time")
    return int(ticks.astype(np.int64))


def _written(value: str, kind: pa.DataType) -> Any:
    return pa.array([value], pa.string()).cast(kind)[0]


def _listed(kind: pa.DataType) -> Rule:
    inside = partial(exact_value, kind=kind.value_type)

    def rule(value: Any) -> Any:
        if not isinstance(value, list | tuple | np.ndarray):
            return _refuse("give a list")
        return [inside(each) for each in value]

    return rule


def _struct(kind: pa.DataType) -> Rule:
    rules = {each.name: partial(exact_value, kind=each.type) for each in kind}

    def rule(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return _refuse("give a dict")
        for name in value:
            if name not in rules:
                return _refuse(f"there is no field {name!r}")
        return {name: rules[name](each) for name, each in value.items()}

    return rule


def _mapping(kind: pa.DataType) -> Rule:
    key_of, item_of = (partial(exact_value, kind=each) for each in (kind.key_type, kind.item_type))

    def rule(value: Any) -> Any:
        if isinstance(value, Mapping):
            pairs = list(value.items())
        elif isinstance(value, list | tuple) and all(_is_pair(each) for each in value):
            pairs = list(value)
        else:
            return _refuse("give a dict")
        return [(key_of(key), item_of(item)) for key, item in pairs]

    return rule


def _is_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2


def _dictionary(kind: pa.DataType) -> Rule:
    return _rule(kind.value_type)


def _fixed_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_binary(kind)) and not pa.types.is_decimal(kind)


def _any(*kinds: Callable[[pa.DataType], Any]) -> Callable[[pa.DataType], bool]:
    return lambda kind: any(is_it(kind) for is_it in kinds)


_MAKERS: list[tuple[Callable[[pa.DataType], Any], Callable[[pa.DataType], Rule]]] = [
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _floating),
    (pa.types.is_decimal, _decimal),
    (_any(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view), _text),
    (
        _any(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, _fixed_binary),
        _binary,
    ),
    (pa.types.is_date, _date),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_time, _time),
    (pa.types.is_duration, _duration),
    (
        _any(
            pa.types.is_list,
            pa.types.is_large_list,
            pa.types.is_fixed_size_list,
            pa.types.is_list_view,
            pa.types.is_large_list_view,
        ),
        _listed,
    ),
    (pa.types.is_struct, _struct),
    (pa.types.is_map, _mapping),
    (pa.types.is_dictionary, _dictionary),
]
"""The rule of each type; any other, such as an interval, is left to Arrow."""
