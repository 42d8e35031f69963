"""Reading one function, line by line: what it uses that it should not, and whom it calls.

What is said of a function is said of the line that stands there, in the file as it is. Decorators,
defaults and annotations belong to whoever defines the function, and run once, when it is defined.
"""

import array
import ast
import builtins
import inspect
import linecache
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from penstock.chaos.impure_names import Known, Names, What
from penstock.chaos.impure_scope import NOTHING, Made, Scope, kind_of

__all__ = ["Finding", "Looker", "node_of", "read_function"]

_CONTAINERS = (list, dict, set, bytearray, deque, array.array)
_CHANGES = (
    "add append appendleft clear difference_update discard extend extendleft insert "
    "intersection_update move_to_end pop popitem popleft remove reverse rotate setdefault sort "
    "subtract symmetric_difference_update update"
)
"""Methods that change a list, a dict, a set and the like."""

_KEEPS = "keeps something outside its state, in {name}: take a ps.Value, ps.List or ps.Map"
_KEEPS_SELF = (
    "counts on {name}, which lasts for one partition of one epoch: take a ps.Value, ps.List or "
    "ps.Map"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A line under suspicion."""

    what: What
    name: str
    line: int
    said: str


@dataclass(slots=True)
class Looker(ast.NodeVisitor):
    """Goes through a function's body."""

    scope: Scope
    names: Names
    findings: list[Finding] = field(default_factory=list)
    called: list[tuple[Any, type | None]] = field(default_factory=list)
    """Whatever it names that may be a function, and the class it was found in."""
    anew: frozenset[str] | None = None
    """Attributes that it sets anew with every call; None: its object is not the operator."""

    def visit_Call(self, node: ast.Call) -> None:
        """A function is called."""
        self._use(node.func, node)
        if isinstance(node.func, ast.Attribute):
            self._change(node.func.value, node.lineno, node.func.attr in _CHANGES.split())
            self.visit(node.func.value)
        elif not isinstance(node.func, ast.Name):
            self.visit(node.func)
        if self.scope.value(node.func) is builtins.next and node.args:
            given = self.scope.value(node.args[0])
            if given is not NOTHING and not isinstance(given, Made):
                self._keeps(node.args[0], node.lineno)
        for part in (*node.args, *node.keywords):
            self.visit(part)

    def visit_Name(self, node: ast.Name) -> None:
        """A name is used, or set."""
        if isinstance(node.ctx, ast.Load):
            self._use(node, None)
        elif node.id in self.scope.outside:
            self._keeps(node, node.lineno)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """An attribute is used, or set."""
        if isinstance(node.ctx, ast.Load):
            self._use(node, None)
        else:
            held = self.scope.value(node.value)
            if held is not NOTHING and not isinstance(held, Made):
                self._keeps(node, node.lineno)
        self.visit(node.value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """An entry is used, or set."""
        self._change(node.value, node.lineno, not isinstance(node.ctx, ast.Load))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Something is counted up, or added to."""
        target = node.target
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            is_mine = target.value.id == self.scope.myself
            if is_mine and self.anew is not None and target.attr not in self.anew:
                self._keeps(target, node.lineno, _KEEPS_SELF)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """A function inside this one: its body is read as well."""
        for part in (*node.decorator_list, *_defaults(node.args), *node.body):
            self.visit(part)

    def visit_arg(self, node: ast.arg) -> None:
        """A parameter: what it is said to be is not used."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """A variable with a type: the type is not used."""
        for part in (node.target, node.value):
            if part is not None:
                self.visit(part)

    def _use(self, node: ast.expr, call: ast.Call | None) -> None:
        value = self.scope.value(node)
        found, owner = self.names.function(value), None
        if isinstance(node, ast.Attribute):
            held = self.scope.value(node.value)
            owner = kind_of(held)
            found = found or self._method(held, node.attr)
        if found is not None:
            self._say(found, node.lineno, call)
        elif value is not NOTHING:
            self.called.append((value, owner))

    def _method(self, held: Any, name: str) -> tuple[str, Known] | None:
        if held is NOTHING:
            return self.names.unmistakable(name)
        is_kept = not isinstance(held, Made) and not inspect.isclass(held)
        return self.names.method(kind_of(held), name, is_kept=is_kept)

    def _say(self, found: tuple[str, Known], line: int, call: ast.Call | None) -> None:
        name, known = found
        if known.when(call, self.scope.is_text):
            self.findings.append(Finding(known.what, name, line, known.said.format(name=name)))

    def _change(self, node: ast.expr, line: int, is_change: bool) -> None:
        if is_change and isinstance(self.scope.value(node), _CONTAINERS):
            self._keeps(node, line)

    def _keeps(self, node: ast.expr, line: int, said: str = _KEEPS) -> None:
        name = ast.unparse(node)
        self.findings.append(Finding(What.KEEPS, name, line, said.format(name=name)))


def read_function(
    function: FunctionType, owner: type | None, names: Names, *, is_operator: bool
) -> Looker | None:
    """A function that has been gone through; None if its source is not there. `is_operator`: its
    object is the operator, which lasts from call to call."""
    node = node_of(function.__code__)
    if node is None:
        return None
    anew = frozenset(_set_anew(node)) if is_operator else None
    looker = Looker(Scope(function, node, owner), names, anew=anew)
    for part in [node.body] if isinstance(node, ast.Lambda) else node.body:
        looker.visit(part)
    return looker


def node_of(code: CodeType) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | None:
    """Where a function stands in its file, if the file is there and is still the same."""
    linecache.checkcache(code.co_filename)
    source = "".join(linecache.getlines(code.co_filename))
    nodes = [node for node in ast.walk(_parsed(source)) if _is_of(node, code)]
    if len(nodes) > 1:  # several lambdas in one line
        starts = {(line, column) for line, _, column, _ in code.co_positions()}
        nodes = [node for node in nodes if _start(node) in starts]
    found = nodes[0] if nodes else None
    assert found is None or isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    return found


@lru_cache(maxsize=8)
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _is_of(node: ast.AST, code: CodeType) -> bool:
    if isinstance(node, ast.Lambda):
        return code.co_name == "<lambda>" and node.lineno == code.co_firstlineno
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name != code.co_name:
        return False
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    return first == code.co_firstlineno


def _start(node: ast.AST) -> tuple[int, int] | None:
    body = node.body if isinstance(node, ast.Lambda) else None
    return None if body is None else (body.lineno, body.col_offset)


def _defaults(arguments: ast.arguments) -> Iterator[ast.expr]:
    yield from arguments.defaults
    yield from (each for each in arguments.kw_defaults if each is not None)


def _set_anew(node: ast.AST) -> Iterator[str]:
    """Attributes that a function sets without looking at what they were."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assign):
            yield from (each.attr for each in inner.targets if isinstance(each, ast.Attribute))
