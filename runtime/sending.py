"""Sending a job to the workers: whole, with the classes its file defines.

What a job file defines is sent by value, because workers do not have the file. Two kinds of classes
that state is made of cannot go as they are: a dataclass that msgspec has seen carries a cache that
cannot be sent, and a `msgspec.Struct` gets its fields only when it is made. The one is sent without
the cache, the other is made again on the other side.
"""

import io
from collections.abc import Mapping
from typing import Any

import msgspec
from pyspark import cloudpickle
from pyspark.cloudpickle import cloudpickle as by_value

from penstock.errors import Invalid

__all__ = ["packed", "unpacked_job"]

_CACHE = "__msgspec_cache__"
_OPTIONS = (
    "frozen",
    "order",
    "eq",
    "kw_only",
    "omit_defaults",
    "forbid_unknown_fields",
    "tag",
    "tag_field",
    "array_like",
    "gc",
    "weakref",
    "dict",
    "cache_hash",
)


def packed(job: Any) -> bytes:
    """A job as bytes that a worker of the same version can read."""
    target = io.BytesIO()
    try:
        _Pickler(target).dump(job)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise Invalid(
            "the job",
            f"cannot be sent to the workers ({type(error).__name__}: {error})",
            "let its functions open files, connections and locks themselves, when they are called",
        ) from error
    return target.getvalue()


def unpacked_job(body: bytes) -> Any:
    """What was packed."""
    return cloudpickle.loads(body)


class _Pickler(cloudpickle.CloudPickler):
    """Sends classes of state as described above, and everything else as usual."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) and not by_value._should_pickle_by_reference(obj):  # type: ignore[no-untyped-call]
            if issubclass(obj, msgspec.Struct) and obj is not msgspec.Struct:
                return _made_again, _described(obj)
            if _CACHE in vars(obj):
                delattr(obj, _CACHE)  # made anew when somebody needs it
        return super().reducer_override(obj)  # type: ignore[no-untyped-call]


def _described(kind: type[msgspec.Struct]) -> tuple[Any, ...]:
    """What it takes to make a struct class again."""
    config = kind.__struct_config__
    fields = [_field(each) for each in msgspec.structs.fields(kind)]
    given = {name: getattr(config, name) for name in _OPTIONS if hasattr(config, name)}
    hidden = {*kind.__struct_fields__, "__slots__", "__annotations__", "__doc__", "__module__"}
    own = {name: value for name, value in vars(kind).items() if name not in hidden}
    return kind.__name__, fields, kind.__module__, given, own


def _field(each: msgspec.structs.FieldInfo) -> tuple[Any, ...]:
    if each.default is not msgspec.NODEFAULT:
        return each.name, each.type, each.default
    if each.default_factory is not msgspec.NODEFAULT:
        return each.name, each.type, msgspec.field(default_factory=each.default_factory)
    return each.name, each.type


def _made_again(
    name: str,
    fields: list[Any],
    module: str,
    options: Mapping[str, Any],
    own: dict[str, Any],
) -> type[msgspec.Struct]:
    return msgspec.defstruct(name, fields, module=module, namespace=own, **options)
