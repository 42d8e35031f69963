"""Declaring state: by the annotated parameters of a function, the way it will be used.

    def count(user: str, events: Events, clicks: Value[int],
              seen: Annotated[Map[str, float], ttl("1 day")], wake: Timer): ...

Everything that can be wrong with a declaration is said when it is read, with the parameter's
name, and not when the first event arrives.
"""

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any

from penstock.errors import Corrupt, Invalid
from penstock.state.columns import Columns
from penstock.state.dtypes import key_dtype, spell_dtype, value_dtype
from penstock.state.keys import KEY_TYPES
from penstock.state.kinds import List, Map, Timer, Value
from penstock.state.types import Description, describe, flaw_between, spell, spell_type
from penstock.state.values import Codec

__all__ = [
    "SchemaFlaw",
    "StateClock",
    "StateSpec",
    "Ttl",
    "by_clock",
    "check_schemas",
    "declared",
    "schema_flaws",
    "ttl",
]

_UNITS_MS = {
    "ms": 1, "millisecond": 1, "s": 1000, "second": 1000, "min": 60_000, "minute": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "d": 86_400_000, "day": 86_400_000, "week": 604_800_000,
}  # fmt: skip
_DURATION = re.compile(r"\s*(\d{1,15}(?:\.\d{1,15})?)\s*([a-z]+)\s*")
TTL_MS_MAX = 100 * 365 * 86_400_000
"""A hundred years. What should live longer needs no time to live."""
_KINDS = {Value: "value", List: "list", Map: "map", Timer: "timer", Columns: "columns"}
_ARGUMENTS = {Value: 1, List: 1, Map: 2, Timer: 0, Columns: 2}


class StateClock(Enum):
    """Which clock a timer or a time to live follows."""

    EVENT = "event"
    PROCESSING = "processing"


@dataclass(frozen=True, slots=True)
class Ttl:
    """How long an entry lives after it was last written: by the event times of the calls that write
    and read it, or by the time at which epochs are planned."""

    length_ms: int
    clock: StateClock = StateClock.EVENT


def ttl(length: str, clock: str = "event") -> Ttl:
    """A time to live: `ttl("1 day")`, `ttl("90 s", clock="processing")`.

    An entry is seen by calls whose event time is before that of the call that last wrote it plus
    this length. The time of a call is that of its event; of the latest one if it has several; of
    the timer that set it off; the watermark if there is none of these.
    """
    found = _DURATION.fullmatch(str(length))
    unit_ms = None if found is None else _unit_ms(found[2])
    if found is None or unit_ms is None:
        raise Invalid(f"ttl {length!r}", "is not a length of time", "write '90 s' or '1 day'")
    length_ms = round(Decimal(found[1]) * unit_ms)
    if length_ms <= 0:
        raise Invalid(f"ttl {length!r}", "is over before it begins", "make it longer")
    if length_ms > TTL_MS_MAX:
        raise Invalid(f"ttl {length!r}", "is longer than a hundred years", "leave it out")
    return Ttl(length_ms, by_clock(clock))


def _unit_ms(word: str) -> int | None:
    """A unit, or several of it. Never `m`, which could be minutes or milliseconds."""
    return _UNITS_MS.get(word) or _UNITS_MS.get(word.removesuffix("s"))


def by_clock(name: str) -> StateClock:
    """The clock of that name: `Annotated[Timer, by_clock("processing")]`."""
    try:
        return StateClock(name)
    except ValueError as error:
        raise Invalid(f"clock {name!r}", "is unknown", "use 'event' or 'processing'") from error


@dataclass(frozen=True, slots=True)
class StateSpec:
    """One declared state."""

    name: str
    kind: str
    key_type: Any = None
    """Of a map's own keys, or of columns."""
    value_type: Any = None
    ttl: Ttl | None = None
    clock: StateClock = StateClock.EVENT

    @property
    def where(self) -> str:
        """How messages call it."""
        return f"state {self.name!r}"

    def description(self) -> Description:
        """What is stored about it, to be compared by whoever reads its entries later."""
        found: Description = {"kind": self.kind, "clock": None}
        if self.kind == "timer":
            found["clock"] = self.clock.value
        elif self.ttl is not None:
            found["clock"] = self.ttl.clock.value
        if self.kind == "columns":
            found["key"] = {"is": spell_dtype(key_dtype(self.key_type, self.where))}
            found["value"] = {"is": spell_dtype(value_dtype(self.value_type, self.where))}
        elif self.kind != "timer":
            found["value"] = describe(self.value_type, self.where)
        if self.kind == "map":
            found["key"] = describe(self.key_type, self.where)
        return found


def declared(function: Callable[..., Any]) -> list[StateSpec]:
    """The states that a function declares by its parameters, in their order."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise Invalid(
            f"function {getattr(function, '__name__', function)!r}",
            f"has an annotation that cannot be read ({error})",
            "import what it names, at the top of the module",
        ) from error
    parameters = inspect.signature(function).parameters
    specs = [_spec(name, hints[name]) for name in parameters if name in hints]
    return [spec for spec in specs if spec is not None]


def _spec(name: str, hint: Any) -> StateSpec | None:
    extras: tuple[Any, ...] = ()
    if typing.get_origin(hint) is Annotated:
        hint, *rest = typing.get_args(hint)
        extras = tuple(rest)
    origin = typing.get_origin(hint) or hint
    if not isinstance(origin, type) or origin not in _KINDS:
        return None
    arguments = typing.get_args(hint)
    wanted = _ARGUMENTS[origin]
    if len(arguments) != wanted:
        raise Invalid(f"state {name!r}", f"is a bare {origin.__name__}", _how(origin))
    spec = StateSpec(
        name,
        _KINDS[origin],
        arguments[0] if wanted == 2 else None,
        arguments[-1] if wanted else None,
        next((extra for extra in extras if isinstance(extra, Ttl)), None),
        next((extra for extra in extras if isinstance(extra, StateClock)), StateClock.EVENT),
    )
    if spec.kind != "timer" and any(isinstance(extra, StateClock) for extra in extras):
        raise Invalid(spec.where, "is no Timer but has a clock", "give the clock to its ttl(...)")
    return _checked(spec)


def _checked(spec: StateSpec) -> StateSpec:
    spec.description()
    if spec.kind not in ("timer", "columns"):
        Codec[Any](spec.value_type, spec.where)
    if spec.kind == "map" and not _has_order(spec.key_type):
        raise Invalid(
            spec.where,
            f"is a Map with {spell_type(spec.key_type)} as its key, which has no order",
            f"use {', '.join(kind.__name__ for kind in KEY_TYPES)} as the key",
        )
    if spec.kind == "columns" and spec.ttl is not None:
        raise Invalid(
            spec.where,
            "is Columns with a time to live",
            "keep a time in its value, and remove_many",
        )
    if spec.kind == "timer" and spec.ttl is not None:
        raise Invalid(spec.where, "is a Timer with a time to live", "cancel the timer instead")
    return spec


def _has_order(kind: Any) -> bool:
    parts = [part for part in typing.get_args(kind) if part is not Ellipsis]
    if typing.get_origin(kind) is tuple:
        return all(_has_order(part) for part in parts)
    return kind in KEY_TYPES


def _how(kind: type) -> str:
    if kind is Map:
        return "say what it maps: Map[str, float]"
    if kind is Columns:
        return "say what it maps: Columns[int, float]"
    return f"say what it holds: {kind.__name__}[int]"


def check_schemas(stored: Mapping[str, Description], specs: list[StateSpec], operator: str) -> None:
    """Raise `Invalid` if some stored state cannot be read as it is declared now."""
    for flaw in schema_flaws(stored, {spec.name: spec.description() for spec in specs}):
        raise Invalid(
            f"state {flaw.state!r} of operator {operator!r}",
            f"was {flaw.was} and is declared as {flaw.now} now: {flaw.why}",
            flaw.way_out,
        )


@dataclass(frozen=True, slots=True)
class SchemaFlaw:
    """A stored state that cannot be read as it is declared now; all of it in words."""

    state: str
    was: str
    now: str
    why: str
    way_out = "declare it as it was, or give the new one another name and fill it from the old"


def schema_flaws(
    stored: Mapping[str, Description], declared: Mapping[str, Description]
) -> list[SchemaFlaw]:
    """Every state that is stored and declared, and cannot be read as it is declared; `Corrupt` if
    what is stored describes no state."""
    pairs = [(name, stored[name], new) for name, new in declared.items() if name in stored]
    found = [_compared(name, old, new) for name, old, new in pairs]
    return [flaw for flaw in found if flaw is not None]


def _compared(name: str, old: Description, new: Description) -> SchemaFlaw | None:
    try:
        why = _flaw(old, new)
        return None if why is None else SchemaFlaw(name, _spell(old), _spell(new), why)
    except (KeyError, TypeError, AttributeError, RecursionError) as strange:
        raise Corrupt(
            f"state {name!r}",
            "is described in words that Penstock does not write",
            "restore the description from a copy: it was altered or forged",
        ) from strange


def _flaw(old: Description, new: Description) -> str | None:
    if old["kind"] != new["kind"]:
        return "another kind of state"
    if old["clock"] != new["clock"]:
        return "what is stored goes by the clock it was written with"
    if "key" in new and old["key"] != new["key"]:
        return "its keys are found by the very bytes they were written as"
    return flaw_between(old["value"], new["value"]) if "value" in new else None


def _spell(description: Description) -> str:
    inside = [spell(description[part]) for part in ("key", "value") if part in description]
    name, clock = description["kind"].capitalize(), description["clock"]
    if not inside:
        return f"{name} by {clock} time"
    ending = "" if clock is None else f" with a time to live by {clock} time"
    return f"{name}[{', '.join(inside)}]{ending}"
