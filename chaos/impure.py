"""A look into a job's functions: what would make an epoch that is tried again come out different.

Penstock tries an epoch as often as it must, and counts it once. That is right only for functions
that give the same with every try, keep what they remember in their state, and do nothing else. The
code of every function is read, that of the functions it calls, and of the methods of a class. What
is found is a suspicion, with the line: nothing is run, so nobody knows whether it ever happens; and
what is not found may still be there.
"""

import functools
import inspect
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePath
from types import FunctionType, MethodType
from typing import Any

from penstock.chaos.impure_names import Names, What
from penstock.chaos.impure_reading import Finding, read_function
from penstock.runtime.functions import Wrapped
from penstock.runtime.topology import OperatorNode, Topology

__all__ = ["Suspect", "What", "suspects"]

DEPTH_MAX = 6
"""How many calls deep a function is followed."""
FUNCTIONS_MAX = 500
"""How many functions of one operator are read."""
LISTED_MAX = 100
"""How many functions of a list or a dict of them are read."""

_MADE_BY = ("__init__", "__new__", "__post_init__")
"""What of a class runs when an object of it is made."""
_COMPOSED = "penstock.runtime.describing"
"""Where functions are from that call several transforms, one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A line of a job that may make its results depend on how often an epoch was tried."""

    operator: str
    function: str
    """Whose line it is: the operator's own, or one that it calls."""
    what: What
    name: str
    """What it uses, by the name that everybody knows it by: `time.time`."""
    file: str
    line: int
    said: str
    """The rest of the sentence."""

    def __str__(self) -> str:
        place = f"function {self.function} of {PurePath(self.file).name}, line {self.line},"
        is_own = self.function.split(".")[0] == self.operator
        by = "" if is_own else f" called in operator {self.operator},"
        return f"{place}{by} {self.said}"


@dataclass(frozen=True, slots=True)
class _Way:
    """A function to be read, and how it was come to."""

    function: FunctionType
    owner: type | None
    depth: int


def suspects(topology: Topology) -> list[Suspect]:
    """Every line under suspicion, by operator, file and line. It never raises."""
    names = Names()
    found = [each for node in topology.operators for each in _of_operator(node, names)]
    return list(dict.fromkeys(found))


def _of_operator(operator: OperatorNode, names: Names) -> list[Suspect]:
    begins = [operator.wrapped, *(feed.transform for feed in operator.feeds)]
    left = [way for value in begins for way in _ways(value, None, 0)]
    home = {PurePath(way.function.__code__.co_filename).parent for way in left}
    found: list[Suspect] = []
    read: set[tuple[int, int]] = set()
    while left and len(read) < FUNCTIONS_MAX:
        way = left.pop()
        mark = (id(way.function.__code__), id(way.owner))
        if mark in read or not _is_users(way.function, home):
            continue
        read.add(mark)
        with suppress(Exception):  # a user's code may be anything, and is only looked at
            found += _of_function(way, operator, names, left)
    return sorted(found, key=lambda each: (each.file, each.line, each.name))


def _of_function(
    way: _Way, operator: OperatorNode, names: Names, left: list[_Way]
) -> list[Suspect]:
    is_operator = way.owner is operator.wrapped.function
    looked = read_function(way.function, way.owner, names, is_operator=is_operator)
    if looked is None:
        return []
    for value, owner in looked.called if way.depth < DEPTH_MAX else ():
        left += _ways(value, owner, way.depth + 1)
    return [_suspect(operator.name, way.function, each) for each in looked.findings]


def _suspect(operator: str, function: FunctionType, finding: Finding) -> Suspect:
    code = function.__code__
    return Suspect(
        operator=operator,
        function=code.co_qualname.rpartition("<locals>.")[2],
        what=finding.what,
        name=finding.name,
        file=code.co_filename,
        line=finding.line,
        said=finding.said,
    )


def _ways(value: Any, owner: type | None, depth: int) -> list[_Way]:
    """The functions that run when this is called; none, if nobody can tell."""
    found: list[_Way] = []
    with suppress(Exception):
        found += _functions(value, owner, depth)
    return found


def _functions(value: Any, owner: type | None, depth: int) -> Iterator[_Way]:
    if isinstance(value, FunctionType) and value.__module__ != _COMPOSED:
        yield _Way(value, owner if _is_method(value, owner) else None, depth)
    elif isinstance(value, type):
        for name in (*_MADE_BY, *(() if depth else ("process",))):
            found = inspect.getattr_static(value, name, None)
            if isinstance(found, FunctionType):
                yield _Way(found, value, depth)
    else:
        for inner, kind in _inside(value, owner):
            yield from _functions(inner, kind, depth)


def _inside(value: Any, owner: type | None) -> list[tuple[Any, type | None]]:
    """What is called when something is called that is no function itself, and of which class."""
    match value:
        case FunctionType():  # transforms, one after the other
            return [(cell.cell_contents, None) for cell in value.__closure__ or ()]
        case tuple() | list():
            return [(each, None) for each in value[:LISTED_MAX] if callable(each)]
        case dict():
            return [(list(islice(value.values(), LISTED_MAX)), None)]
        case MethodType() | Wrapped() | functools.partial() | functools._lru_cache_wrapper():
            return [_unwrapped(value, owner)]
        case property():
            return [(value.fget, owner)]
        case _:
            call = inspect.getattr_static(type(value), "__call__", None)
            return [(call, type(value))] if isinstance(call, FunctionType) else []


def _unwrapped(value: Any, owner: type | None) -> tuple[Any, type | None]:
    match value:
        case MethodType():
            return value.__func__, type(value.__self__)
        case Wrapped():
            return value.function, None
        case functools.partial():
            return value.func, None
        case _:
            return value.__wrapped__, owner


def _is_method(function: FunctionType, owner: type | None) -> bool:
    if owner is None:
        return False
    return any(function is each for kind in owner.__mro__ for each in vars(kind).values())


def _is_users(function: FunctionType, home: set[PurePath]) -> bool:
    """Whether it is the job's own, and not of a library."""
    root = (function.__module__ or "").partition(".")[0]
    if root == "penstock" or root in sys.stdlib_module_names:
        return False
    path = PurePath(function.__code__.co_filename)
    is_near = any(path.is_relative_to(folder) for folder in home)
    return is_near and "site-packages" not in path.parts
