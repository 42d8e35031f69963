"""Wrapping a user's function: what it is given, what it keeps, what it gives back.

    @ps.stateful(emits="user string, clicks long")
    def count_clicks(user: str, events: ps.Events, clicks: ps.Value[int]):
        clicks.set(clicks.get(0) + len(events))
        yield {"user": user, "clicks": clicks.get()}

What a parameter is follows from its annotation: a kind of state, `Events` (or `Event`, with
`each=True`), `Moment`, or `Batch` for a vectorised function; the one that is left is the key.
Everything that can be wrong with a function is said here, when the module is loaded.
"""

import dis
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, overload

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.errors import Invalid
from penstock.ids import check_name
from penstock.runtime.events import Batch, Event, Events, Moment
from penstock.sources.ddl import parse_columns
from penstock.state import StateSpec, declared
from penstock.state.kinds import List, Map, Timer, Value

__all__ = ["MAIN", "Form", "Side", "Wrapped", "stateful", "to", "vectorized"]

MAIN = ""
"""The name of the output that `yield {…}` goes to."""


_ROLES = ("key", "events", "moment")
"""What the parameters that are no state are called among `Wrapped.parameters`."""


class Form(StrEnum):
    """How a function is called."""

    PER_KEY = "once per key and epoch"
    PER_EVENT = "once per event"
    PER_PARTITION = "once per partition and epoch"


@dataclass(frozen=True, slots=True)
class Side:
    """A row for a side output."""

    output: str
    row: Mapping[str, Any]


def to(output: str, row: Mapping[str, Any]) -> Side:
    """A row for the side output of that name: `yield ps.to("late", {…})`."""
    return Side(output, row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapped:
    """A function as the runtime sees it. Calling it calls the function, for unit tests."""

    function: Callable[..., Any]
    """A function, or a class with a `process` method."""
    name: str
    form: Form
    outputs: Mapping[str, pa.Schema]
    """The columns of each output; `MAIN` is the one without a name, if it emits anything."""
    states: tuple[StateSpec, ...]
    parameters: tuple[str, ...]
    """In order; `key`, `events` and `moment` stand for themselves, the rest are states."""
    with_moment: bool

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the function itself."""
        return self.function(*args, **named)

    def callable(self) -> Callable[..., Any]:
        """What is called: the function, or the method of a new instance."""
        if inspect.isclass(self.function):
            made: Any = self.function()
            return made.process  # type: ignore[no-any-return]
        return self.function

    def has_timers(self, clock: str) -> bool:
        """Whether it can be called by that clock, without an event."""
        return any(spec.kind == "timer" and spec.clock.value == clock for spec in self.states)

    def has_ageing(self) -> bool:
        """Whether some of its state ends by itself."""
        return any(spec.ttl is not None for spec in self.states)


@overload
def stateful(function: Callable[..., Any], /) -> Wrapped: ...


@overload
def stateful(
    *,
    emits: "str | pa.Schema | None" = None,
    sides: "Mapping[str, str | pa.Schema] | None" = None,
    each: bool = False,
    name: str | None = None,
) -> Callable[[Callable[..., Any]], Wrapped]: ...


def stateful(
    function: Callable[..., Any] | None = None,
    /,
    *,
    emits: "str | pa.Schema | None" = None,
    sides: "Mapping[str, str | pa.Schema] | None" = None,
    each: bool = False,
    name: str | None = None,
) -> Wrapped | Callable[[Callable[..., Any]], Wrapped]:
    """Wrap a generator function, or a class with a generator method `process`.

    `emits` are the columns of the rows it yields, `sides` those of its side outputs (see `to`).
    With `each` it is called for every event, else once for all events a key has in an epoch.
    Without any of these, `@stateful` alone will do.
    """
    form = Form.PER_EVENT if each else Form.PER_KEY
    if function is not None:
        return _wrapped(_checked(function), form, _outputs(emits, sides), name)
    return lambda function: _wrapped(function, form, _outputs(emits, sides), name)


def vectorized(
    *, emits: "str | pa.Schema | None" = None, name: str | None = None
) -> Callable[[Callable[..., Any]], Wrapped]:
    """Wrap a function of a whole partition: `Batch` in, an Arrow table (or columns) out.

    Its states are `Columns`.
    """
    return lambda function: _wrapped(function, Form.PER_PARTITION, _outputs(emits, None), name)


def _wrapped(
    function: Callable[..., Any], form: Form, outputs: dict[str, pa.Schema], name: str | None
) -> Wrapped:
    found = check_name("operator", str(name or getattr(function, "__name__", "?")))
    where = f"function {found!r}"
    body = _body(function, where)
    states = declared(body)
    _check_states(where, states, form)
    if form is not Form.PER_PARTITION:
        _check_generator(where, body, outputs)
        _check_returns(where, body)
    parameters = _parameters(where, body, form, {spec.name for spec in states})
    return Wrapped(
        function=function,
        name=found,
        form=form,
        outputs=outputs,
        states=tuple(states),
        parameters=parameters,
        with_moment="moment" in parameters,
    )


def _outputs(emits: Any, sides: Any) -> dict[str, pa.Schema]:
    outputs = {} if emits is None else {MAIN: _schema(emits)}
    for side, columns in (sides or {}).items():
        outputs[check_name("side output", side)] = _schema(columns)
    return outputs


def _schema(columns: Any) -> pa.Schema:
    schema = parse_columns(columns) if isinstance(columns, str) else columns
    if not isinstance(schema, pa.Schema):
        found = f"are a {type(columns).__name__}"
        raise Invalid("the emitted columns", found, "write 'user string, clicks long'")
    hidden = [name for name in schema.names if name.startswith("_")]
    if hidden:
        found = "begins with '_', as the columns of Penstock's own do"
        raise Invalid(f"emitted column {hidden[0]!r}", found, "choose another name")
    return schema


def _checked(function: object) -> Callable[..., Any]:
    if not callable(function):
        found = f"was given {type(function).__name__}, which cannot be called"
        raise Invalid("@stateful", found, "name what it is: @stateful(emits=...)")
    return function


def _body(function: Callable[..., Any], where: str) -> Callable[..., Any]:
    """What is called in the end, for reading its parameters."""
    if not inspect.isclass(function):
        return function
    process = getattr(function, "process", None)
    if process is None:
        raise Invalid(where, "is a class without a method `process`", "add one, or wrap a function")
    for name, asked in inspect.signature(function).parameters.items():
        if asked.default is asked.empty and asked.kind not in (
            asked.VAR_KEYWORD,
            asked.VAR_POSITIONAL,
        ):
            found = f"is a class that cannot be made without {name!r}"
            raise Invalid(where, found, "give it a default")
    return process  # type: ignore[no-any-return]


def _check_generator(where: str, body: Callable[..., Any], outputs: Mapping[str, Any]) -> None:
    if outputs and not inspect.isgeneratorfunction(body):
        raise Invalid(
            where,
            "says what it emits and is no generator",
            "`yield` its rows, one dict each, instead of returning them; or leave `emits` out",
        )
    if not outputs and inspect.isgeneratorfunction(body):
        found = "yields rows, and does not say of which columns"
        raise Invalid(where, found, 'wrap it with `emits="user string, clicks long"`')


def _check_returns(where: str, body: Callable[..., Any]) -> None:
    """Raise if a generator returns a value: nothing ever sees it."""
    if not inspect.isgeneratorfunction(body):
        return
    for before, step in pairwise(dis.get_instructions(inspect.unwrap(body))):
        given = before if step.opname == "RETURN_VALUE" else step
        is_none = given.opname in ("LOAD_CONST", "RETURN_CONST") and given.argval is None
        if step.opname in ("RETURN_VALUE", "RETURN_CONST") and not is_none:
            line = step.positions.lineno if step.positions else "?"
            found = f"yields rows, and returns a value in line {line}, which nothing sees"
            raise Invalid(where, found, "`yield` it, or `yield from` it if it is several rows")


def _check_states(where: str, states: list[StateSpec], form: Form) -> None:
    for spec in states:
        if spec.name in _ROLES:
            found = "has a name that stands for something else"
            raise Invalid(f"{where}, state {spec.name!r}", found, "call it something else")
        fits = (spec.kind == "columns") == (form is Form.PER_PARTITION)
        if not fits:
            wanted = "Columns" if form is Form.PER_PARTITION else "Value, List, Map or Timer"
            found = f"is {spec.kind.capitalize()}, in a function called {form.value}"
            raise Invalid(f"{where}, state {spec.name!r}", found, f"use {wanted} there")


def _parameters(
    where: str, body: Callable[..., Any], form: Form, states: set[str]
) -> tuple[str, ...]:
    """The parameters in order, each as what it stands for."""
    hints = typing.get_type_hints(body)
    names = [name for name in inspect.signature(body).parameters if name != "self"]
    roles = tuple(_role(where, name, hints.get(name), states) for name in names)
    wanted = {"events"} if form is Form.PER_PARTITION else {"key", "events"}
    _check_events(where, {name: hints.get(name) for name in names}, form)
    keys = [role for role in roles if role == "key"]
    if len(keys) > 1 or ("key" in keys and "key" not in wanted):
        extra = [n for n, role in zip(names, roles, strict=True) if role == "key"][-1]
        raise Invalid(
            f"{where}, parameter {extra!r}", "has no annotation that says what it is", _how()
        )
    for role in sorted(wanted - set(roles)):
        raise Invalid(where, f"has no parameter for its {role}", _how(form))
    return roles


def _check_events(where: str, hints: Mapping[str, Any], form: Form) -> None:
    """Raise if a function takes all events where it is given one, or the other way round."""
    for name, hint in hints.items():
        is_one = hint is Event or Event in typing.get_args(hint)
        if is_one and form is not Form.PER_EVENT:
            found = f"is one event, and the function is called {form.value}"
            raise Invalid(f"{where}, parameter {name!r}", found, "wrap it with each=True")
        if hint is Events and form is not Form.PER_KEY:
            found = f"is all events of a key, and the function is called {form.value}"
            raise Invalid(f"{where}, parameter {name!r}", found, "take one ps.Event, or a ps.Batch")


def _role(where: str, name: str, hint: Any, states: set[str]) -> str:
    if name in states:
        return name
    is_event = hint in (Events, Event, Batch) or Event in typing.get_args(hint)
    if is_event or (hint is None and name in ("events", "event", "batch")):
        return "events"
    if hint is Moment:
        return "moment"
    if typing.get_origin(hint) in (Value, List, Map) or hint is Timer:
        raise Invalid(f"{where}, parameter {name!r}", "is a state that cannot be read", _how())
    return "key"


def _how(form: Form = Form.PER_KEY) -> str:
    if form is Form.PER_PARTITION:
        return "write def function(batch: ps.Batch, total: ps.Columns[int, float])"
    if form is Form.PER_EVENT:
        return "write def function(key, event: ps.Event, total: ps.Value[int])"
    return "write def function(key, events: ps.Events, total: ps.Value[int])"
