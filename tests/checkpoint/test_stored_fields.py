"""Every field of every stored document has a rule, and decoding keeps it."""

import importlib
import re
from collections.abc import Iterator

import msgspec
import pytest
from msgspec import inspect

from tests.test_tidy import name_of, production

BETWEEN_PROCESSES = ("penstock.runtime.wire", "penstock.chaos.")
"""Documents of our own processes among themselves, and reports: none comes from a store."""

ANYTHING = {
    ("Beat", "notes"),
    ("KnownOperator", "states"),
    ("_State", "description"),
    ("_StoredState", "description"),
}
"""Fields that hold plain values of any kind: shown or compared, and never a name or a size."""


def stored_documents() -> list[type[msgspec.Struct]]:
    """Every Struct of the rooms that read stores. One that is new is among them by itself."""
    for path in production():
        if path.name != "__main__.py":
            importlib.import_module(name_of(path))
    found: list[type[msgspec.Struct]] = []
    left = list(msgspec.Struct.__subclasses__())
    while left:
        kind = left.pop()
        left += kind.__subclasses__()
        module = kind.__module__
        if module.startswith("penstock.") and not module.startswith(BETWEEN_PROCESSES):
            found.append(kind)
    return sorted(set(found), key=lambda kind: (kind.__module__, kind.__name__))


def flaws(kind: inspect.Type) -> Iterator[str]:
    """What a type lets pass that no rule names. A nested document answers for itself."""
    match kind:
        case inspect.StrType(max_length=None):
            yield "a text of any length"
        case inspect.StrType(pattern=str(pattern)) if not re.fullmatch(r"\\A.*\\Z", pattern):
            yield "a pattern that is not anchored"
        case inspect.IntType(ge=None) | inspect.IntType(le=None):
            yield "a number of any size"
        case inspect.DictType():
            yield from flaws(kind.key_type)
            yield from flaws(kind.value_type)
        case inspect.VarTupleType() | inspect.ListType() | inspect.SetType():
            yield from flaws(kind.item_type)
        case inspect.TupleType(item_types=several) | inspect.UnionType(types=several):
            for each in several:
                yield from flaws(each)
        case inspect.AnyType():
            yield "anything"
        case _:
            assert isinstance(kind, PLAIN), f"{kind} is judged by nobody"


PLAIN = (
    inspect.StrType,
    inspect.IntType,
    inspect.BoolType,
    inspect.NoneType,
    inspect.LiteralType,
    inspect.EnumType,
    inspect.StructType,
)


@pytest.mark.parametrize("document", stored_documents(), ids=lambda kind: kind.__qualname__)
def test_every_field_of_a_stored_document_has_a_rule(document: type[msgspec.Struct]) -> None:
    """A name becomes a path and a number becomes memory: none may come in unchecked."""
    info = inspect.type_info(document)
    assert isinstance(info, inspect.StructType)
    wrong = {field.name: sorted(flaws(field.type)) for field in info.fields}
    excused = {name for owner, name in ANYTHING if owner == document.__name__}

    assert {name: found for name, found in wrong.items() if found and name not in excused} == {}


def test_the_walk_finds_the_documents_there_are() -> None:
    """A walk that finds nothing would pass."""
    names = {kind.__name__ for kind in stored_documents()}

    assert names >= {
        "Beat", "Head", "Index", "IndexPage", "Manifest", "Marker", "Note", "Order", "Piece", "Pin",
        "Ref", "SnapshotFile", "TableFile", "Tail", "Topic", "_Chunk", "_Document",
    }  # fmt: skip


def test_the_walk_sees_a_field_without_a_rule() -> None:
    """The check itself can fail."""

    class Careless(msgspec.Struct):
        name: str
        sizes: dict[str, list[int]]

    found = inspect.type_info(Careless)
    assert isinstance(found, inspect.StructType)

    assert [sorted(flaws(field.type)) for field in found.fields] == [
        ["a text of any length"],
        ["a number of any size", "a text of any length"],
    ]
