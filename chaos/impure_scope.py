"""What the names in a function stand for, as far as that can be known without calling it.

A name is resolved as Python would: an import in the function, a variable of the function around it,
of its module, a builtin. A name that the function sets itself stands for something only if it is
set once, to something that is known. Everything else stands for nothing: better to overlook than
to accuse. No code of the user's is run: attributes are looked up without asking properties.
"""

import ast
import builtins
import inspect
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from types import FunctionType, ModuleType
from typing import Any

from penstock.chaos.impure_names import Names

__all__ = ["NOTHING", "Made", "Scope", "attribute", "kind_of"]

NOTHING: Any = object()
"""What a name stands for that nobody knows."""

LAZY = ("numpy",)
"""Modules that load parts of themselves when they are asked for them."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class Made:
    """Some object of a class, made while the function runs."""

    kind: type


class Scope:
    """The names of one function, and of the functions inside it."""

    def __init__(self, function: FunctionType, node: _Function, owner: type | None) -> None:
        self.outside: set[str] = set()
        """Names of others that it says it sets: `global`, and `nonlocal` of a function around."""
        self._globals = function.__globals__
        self._cells = dict(_cells(function))
        self._set = Counter(_names_set(node))
        self._once: dict[str, ast.expr] = {}
        self._imports: dict[str, Any] = {}
        self._texts: set[str] = set()
        self._resolving: set[str] = set()
        first = next(iter(_arguments(node)), None)
        self.myself = first.arg if owner is not None and first is not None else None
        self._owner = owner
        for inner in ast.walk(node):
            self._learn(inner)

    def _learn(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._imports.update(_imported(node))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            self._once[node.targets[0].id] = node.value
        elif isinstance(node, ast.arg) and isinstance(node.annotation, ast.Name):
            if node.annotation.id in ("str", "bytes"):
                self._texts.add(node.arg)
        elif isinstance(node, ast.Global):
            self.outside.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            self.outside.update(name for name in node.names if name in self._cells)

    def value(self, node: ast.expr) -> Any:
        """What an expression stands for: an object, `Made`, or `NOTHING`."""
        match node:
            case ast.Name(id=name):
                return self._named(name)
            case ast.Attribute(value=inner, attr=name):
                return attribute(self.value(inner), name)
            case ast.Call(func=called):
                kind = self.value(called)
                return Made(kind) if inspect.isclass(kind) else NOTHING
            case ast.BinOp(left=left, op=ast.Div()):  # a folder / "name"
                folder = kind_of(self.value(left))
                return Made(folder) if issubclass(folder, PurePath) else NOTHING
            case _:
                return NOTHING

    def is_text(self, node: ast.expr) -> bool:
        """Whether an expression is a text, or something made of one, for certain."""
        match node:
            case ast.Constant(value=str() | bytes()) | ast.JoinedStr():
                return True
            case ast.Tuple(elts=parts):
                return any(self.is_text(part) for part in parts)
            case ast.Name(id=name):
                return name in self._texts
            case ast.Call(func=called):
                return self.value(called) is str
            case _:
                return False

    def _named(self, name: str) -> Any:
        if name in self._set and name not in self.outside:
            return self._own(name)
        if name in self._cells:
            return self._cells[name]
        if name in self._globals:
            return self._globals[name]
        return getattr(builtins, name, NOTHING)

    def _own(self, name: str) -> Any:
        """What a variable of the function itself stands for."""
        if name == self.myself and self._owner is not None:
            return Made(self._owner)
        if name in self._imports:
            return self._imports[name]
        if self._set[name] > 1 or name not in self._once or name in self._resolving:
            return NOTHING
        self._resolving.add(name)
        try:
            return self.value(self._once[name])
        finally:
            self._resolving.remove(name)


def attribute(value: Any, name: str) -> Any:
    """An attribute of what an expression stands for."""
    if isinstance(value, ModuleType):
        return _member(value, name)
    if value is NOTHING:
        return NOTHING
    holder = value.kind if isinstance(value, Made) else value
    found = inspect.getattr_static(holder, name, NOTHING)
    return found.__func__ if isinstance(found, staticmethod | classmethod) else found


def kind_of(value: Any) -> type:
    """The class of what an expression stands for; a class is its own."""
    if isinstance(value, Made):
        return value.kind
    return value if inspect.isclass(value) else type(value)


def _member(module: ModuleType, name: str) -> Any:
    if name in vars(module):
        return vars(module)[name]
    called = f"{module.__name__}.{name}"
    if called not in sys.modules and module.__name__ in LAZY:
        return getattr(module, name, NOTHING)
    return sys.modules.get(called, NOTHING)


def _cells(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The variables of the functions around it, as they are now."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:  # it has not been set yet
            yield name, NOTHING


def _arguments(node: _Function) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args]


def _names_set(node: ast.AST) -> Iterator[str]:
    """Every name that is set anywhere in a function, once for each time it is."""
    for inner in ast.walk(node):
        match inner:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if inner is not node:
                yield name
            case ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name, asname=other):
                yield other or name.partition(".")[0]
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield name
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield name


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Any]]:
    """What an import in a function binds, and to what."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            module = None if node.level else Names.imported(node.module or "")
            found = NOTHING if module is None else _member(module, alias.name)
            yield alias.asname or alias.name, found
        else:
            whole, root = Names.imported(alias.name), alias.name.partition(".")[0]
            found = whole if alias.asname else sys.modules.get(root)
            yield alias.asname or root, NOTHING if found is None else found
