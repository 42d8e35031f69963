"""The types that state may hold, described as plain data.

A description is stored beside the entries it describes. Reading with a newer program compares
the two: what is added with a default, widened, or made optional still reads; anything else is
refused by name, before a single entry is touched.
"""

import dataclasses
import types
import typing
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import msgspec

from penstock.errors import Invalid

__all__ = ["Description", "describe", "flaw_between", "holds", "spell", "spell_type"]

Description = dict[str, Any]
"""What a type is, in JSON: {"is": "int"}, {"is": "list", "of": {...}}, and so on."""

_PLAIN: dict[Any, str] = {
    int: "int",
    float: "float",
    str: "str",
    bytes: "bytes",
    bool: "bool",
    datetime: "datetime",
    date: "date",
    Decimal: "decimal",
    type(None): "none",
}


def describe(kind: Any, where: str, inside: tuple[Any, ...] = ()) -> Description:
    """The description of a type; `Invalid`, naming `where`, if state cannot hold it.

    `inside` are the records it is a part of.
    """
    if kind in _PLAIN:
        return {"is": _PLAIN[kind]}
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _describe_union(arguments, where, inside)
    if origin is list and arguments:
        return {"is": "list", "of": describe(arguments[0], where, inside)}
    if origin is dict and arguments:
        return {"is": "dict", "of": [describe(each, where, inside) for each in arguments]}
    if origin is tuple and arguments:
        return _describe_tuple(arguments, where, inside)
    if isinstance(kind, type) and (
        dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct)
    ):
        return _describe_record(kind, where, inside)
    raise Invalid(
        where,
        f"is declared with {spell_type(kind)}, which state cannot hold",
        "use int, float, str, bytes, bool, datetime, date, Decimal, dataclasses, msgspec Structs, "
        "and list[...], dict[..., ...] and tuple[...] of these",
    )


def _describe_union(arguments: tuple[Any, ...], where: str, inside: tuple[Any, ...]) -> Description:
    some = [describe(each, where, inside) for each in arguments if each is not type(None)]
    one = some[0] if len(some) == 1 else {"is": "union", "of": some}
    return one if len(some) == len(arguments) else {"is": "optional", "of": one}


def _describe_tuple(arguments: tuple[Any, ...], where: str, inside: tuple[Any, ...]) -> Description:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return {"is": "list", "of": describe(arguments[0], where, inside)}
    return {"is": "tuple", "of": [describe(each, where, inside) for each in arguments]}


def _describe_record(kind: type, where: str, inside: tuple[Any, ...]) -> Description:
    if kind in inside:
        raise Invalid(where, f"holds {kind.__name__} inside itself", "store a list of them")
    fields = [
        {
            "name": field.encode_name,
            "type": describe(field.type, f"{where}, field {field.name}", (*inside, kind)),
            "required": field.required,
        }
        for field in _fields(kind, where)
    ]
    tag = kind.__struct_config__.tag if issubclass(kind, msgspec.Struct) else None
    tagged = {} if tag is None else {"tag": tag}
    return {"is": "record", "name": kind.__name__, "fields": fields, **tagged}


def _fields(kind: type, where: str) -> tuple[Any, ...]:
    try:
        hints = typing.get_type_hints(kind)
        found = msgspec.inspect.type_info(kind)
    except (NameError, TypeError) as error:
        raise Invalid(
            where, f"holds {kind.__name__}, which cannot be read ({error})", "repair its fields"
        ) from error
    if getattr(found, "array_like", False):
        raise Invalid(where, f"holds {kind.__name__}, an array_like Struct", "store it by name")
    return tuple(_Field(f.name, f.encode_name, hints[f.name], f.required) for f in found.fields)  # type: ignore[attr-defined]


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    name: str
    encode_name: str
    type: Any
    required: bool


def holds(description: Description, kinds: frozenset[str]) -> bool:
    """Whether one of those kinds is somewhere in a type."""
    of = description.get("of", [])
    parts = [*(of if isinstance(of, list) else [of])]
    parts += [field["type"] for field in description.get("fields", [])]
    return description["is"] in kinds or any(holds(part, kinds) for part in parts)


def spell_type(kind: Any) -> str:
    """A type as a person would write it."""
    return kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")


def spell(description: Description) -> str:
    """A description as a person would write the type."""
    kind, of = description["is"], description.get("of")
    if kind == "record":
        inner = ", ".join(f"{f['name']}: {spell(f['type'])}" for f in description["fields"])
        return f"{description['name']}({inner})"
    if kind == "optional":
        return f"{spell(of)} | None"  # type: ignore[arg-type]
    if of is None:
        return str(kind)
    parts = of if isinstance(of, list) else [of]
    return f"{kind}[{', '.join(spell(part) for part in parts)}]"


def flaw_between(old: Description, new: Description) -> str | None:
    """Why entries written as `old` cannot be read as `new`; None if they can."""
    if old == new or (old["is"], new["is"]) == ("int", "float"):
        return None
    if new["is"] == "optional":
        return flaw_between(old["of"] if old["is"] == "optional" else old, new["of"])
    if old["is"] != new["is"] or ("of" not in new and new["is"] != "record"):
        return f"{spell(old)} cannot be read as {spell(new)}"
    if new["is"] == "record":
        return _flaw_between_records(old, new)
    return _flaw_between_parts(old, new)


def _flaw_between_parts(old: Description, new: Description) -> str | None:
    before = old["of"] if isinstance(old["of"], list) else [old["of"]]
    after = new["of"] if isinstance(new["of"], list) else [new["of"]]
    if len(before) != len(after):
        return f"{spell(old)} cannot be read as {spell(new)}"
    flaws = (flaw_between(one, two) for one, two in zip(before, after, strict=True))
    return next((flaw for flaw in flaws if flaw is not None), None)


def _flaw_between_records(old: Description, new: Description) -> str | None:
    if old.get("tag") != new.get("tag"):
        return f"{old['name']} was stored with another tag"
    before = {field["name"]: field for field in old["fields"]}
    after = {field["name"]: field for field in new["fields"]}
    for name, field in before.items():
        if name not in after:
            return f"field {name} is gone, and what it holds would be lost"
        flaw = flaw_between(field["type"], after[name]["type"])
        if flaw is not None:
            return f"field {name}: {flaw}"
    added = [name for name, field in after.items() if name not in before and field["required"]]
    return f"field {added[0]} is new and has no default" if added else None
