"""Whether a value that was read is the one that was set, part by part.

`==` says so of most values. It does not of records that compare themselves in their own way, and of
what is not a number, which differs from itself.
"""

import dataclasses
from functools import lru_cache
from typing import Any

import msgspec

__all__ = ["field_names", "is_same"]

CLASSES_KEPT = 1024


def is_same(given: Any, back: Any) -> bool:
    """Whether `back`, which was read, is in every part what was `given`."""
    if isinstance(given, list | tuple):
        alike = isinstance(back, list | tuple) and len(given) == len(back)
        return alike and all(map(is_same, given, back))
    if isinstance(given, dict):
        if not isinstance(back, dict) or len(given) != len(back):
            return False
        return all(key in back and is_same(value, back[key]) for key, value in given.items())
    names = field_names(type(given))
    if names:
        of_one = type(given) is type(back)
        return of_one and all(is_same(getattr(given, n), getattr(back, n)) for n in names)
    return bool(given == back) or (given != given and back != back)  # noqa: PLR0124


def field_names(kind: type) -> tuple[str, ...]:
    """The fields of a record; none for any other type."""
    return _field_names(kind)


@lru_cache(maxsize=CLASSES_KEPT)
def _field_names(kind: Any) -> tuple[str, ...]:
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return kind.__struct_fields__ if issubclass(kind, msgspec.Struct) else ()
