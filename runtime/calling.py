"""Calling the user's function: timers first, then key by key; and what becomes of its errors.

Timers whose time has come are older than every event that is not late, so they fire before the
events of the epoch. State ages by the event time of a call: that of its event, of the latest of its
events, or of the timer that set it off.

A call that raises fails the epoch with the key and the place in the user's code; or, in an operator
that quarantines, is undone, and the key's state stays as it was. A call with several events is then
made again with each half of them, until those that raise by themselves stand alone: only these go
to the dead letters, with the error.
"""

import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from penstock.errors import Bug, Corrupt, Invalid, PenstockError, Unavailable
from penstock.runtime.emitting import (
    SETTLED_ROWS,
    Emitted,
    fitted_columns,
    outputs_of,
    sorted_out,
)
from penstock.runtime.events import (
    Columns,
    Event,
    Events,
    Moment,
    event_type,
    events_type,
)
from penstock.runtime.functions import MAIN, Form
from penstock.runtime.grouping import Grouped
from penstock.runtime.inbox import NO_TIME, Gathered
from penstock.runtime.topology import OperatorNode
from penstock.runtime.yielded import STEP_ROWS, drained, taker
from penstock.sources.log_rows import fitted
from penstock.state.workspace import Workspace

__all__ = ["Caller", "DeadLetters", "UserError", "call_vectorised"]

_TRACE_FRAMES = 8
_OURS = (Bug, Corrupt, Unavailable)
_THEIRS = (Exception, SystemExit)
"""What a function may raise. One that calls `sys.exit()` has failed like any other."""


class UserError(Invalid):
    """The user's function raised."""

    def __init__(self, subject: str, found: str, advice: str, trace: str = "") -> None:
        super().__init__(subject, found, advice)
        self.trace = trace


@dataclass(slots=True)
class DeadLetters:
    """Events that could not be processed: which rows of the table, and why."""

    rows: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    def add(self, rows: list[int], key: Any, error: str) -> None:
        """A call that raised, and the events it was given; -1 stands for none."""
        for row in rows or [-1]:
            self.rows.append(row)
            self.errors.append(error)
            self.keys.append(repr(key)[:200])


class Caller:
    """Calls one operator's function for one partition in one epoch."""

    def __init__(
        self, operator: OperatorNode, space: Workspace, moment: Moment, gathered: Gathered
    ) -> None:
        wrapped = operator.wrapped
        self.emitted: dict[str, Emitted] = outputs_of(wrapped)
        self.dead = DeadLetters()
        self.fired_ms: list[int] = []
        """The moments of the timers that fired; call -1 is the first of them."""
        self.stops: list[int] | None = None
        """Where the events of each call end, if calls were made with a part of a key's events."""
        self._operator = operator
        self._space = space
        self._moment = moment
        self._gathered = gathered
        self._call, self._rest = _caller(
            wrapped.callable(), wrapped.parameters, space.states, moment
        )
        self._quarantines = operator.on_error == "quarantine"
        self._where = f"operator {operator.name!r}"
        self._take = taker(wrapped.outputs.values())
        self._plain = set(self.emitted) == {MAIN} and not self._quarantines

    def fire_timers(self) -> None:
        """Call for every timer that is due, and for those that these calls set and that are due
        already, so that what is done every minute catches up with an hour."""
        if not any(spec.kind == "timer" for spec in self._operator.wrapped.states):
            return
        columns = Columns(self._gathered.table.slice(0, 0), None, self._gathered.origins)
        nothing = events_type(columns, event_type(columns))(0, 0)
        none = None if self._operator.wrapped.form is Form.PER_EVENT else nothing
        for due in self._space.due():
            self.fired_ms.append(due.at_ms)
            timer = self._space.states[due.state]
            timer.fired = due.at_ms
            self._moment.move_to(self._space.key)
            try:
                self._one(-len(self.fired_ms), due.key, none, [])
            finally:
                timer.fired = None

    def process(self, grouped: Grouped, columns: Columns) -> None:
        """Call for every key that has events, in order."""
        kind = event_type(columns)
        if self._operator.wrapped.form is Form.PER_EVENT:
            self._process_each(grouped, kind)
        elif self._plain:
            self._process_plain(grouped, columns, kind)
        elif self._quarantines:
            self._process_halves(grouped, columns, kind)
        else:
            self._process_keys(grouped, columns, kind)

    def _process_plain(self, grouped: Grouped, columns: Columns, kind: type[Event]) -> None:
        """The common case, without a step too many: one output, and an error fails the epoch."""
        emitted, events = self.emitted[MAIN], events_type(columns, kind)
        emitted.settle()  # what timers made
        places = zip(grouped.keys, grouped.starts, grouped.stops, strict=True)
        spans = zip(places, self._visited(grouped), strict=True)
        for first in range(0, len(grouped.keys), SETTLED_ROWS):
            self._call_each(islice(spans, SETTLED_ROWS), events, emitted)
            emitted.callers.extend(range(first, first + len(emitted.calls)))
            emitted.settle()

    def _call_each(
        self,
        spans: Iterable[tuple[tuple[Any, int, int], None]],
        events: type[Events],
        emitted: Emitted,
    ) -> None:
        call, rest, close = self._call, self._rest, emitted.calls.append
        rows, extend, take = emitted.rows, emitted.rows.extend, self._take
        move = self._moment.move_to if self._operator.wrapped.with_moment else None
        key, before = None, len(rows)
        try:
            for (key, start, stop), _ in spans:
                if move is not None:
                    move(self._space.key)
                made = map(take, call(key, events(start, stop), *rest))
                extend(islice(made, STEP_ROWS))
                if len(rows) - before == STEP_ROWS:
                    extend(drained(made, self._where))
                before = len(rows)
                close(before)
        except _OURS:
            raise
        except _THEIRS as error:
            raise self._failed(key, error) from error

    def _process_keys(self, grouped: Grouped, columns: Columns, kind: type[Event]) -> None:
        events = events_type(columns, kind)
        for number, _ in enumerate(self._visited(grouped)):
            self._moment.move_to(self._space.key)
            start, stop = grouped.starts[number], grouped.stops[number]
            self._one(number, grouped.keys[number], events(start, stop), [])

    def _process_halves(self, grouped: Grouped, columns: Columns, kind: type[Event]) -> None:
        events, stops = events_type(columns, kind), list[int]()
        for number, _ in enumerate(self._space.visit(grouped.groups, grouped.encoded)):
            self._moment.move_to(self._space.key)
            waiting = [(grouped.starts[number], grouped.stops[number])]
            while waiting:
                first, last = waiting.pop()
                rows = grouped.order[first:last]
                if self._space.follows_events:
                    latest = self._gathered.times_us[rows].max(keepdims=True)
                    self._space.call_at(*_own_times(latest))
                is_one = last - first == 1
                letter = rows.tolist() if is_one else None
                if self._one(len(stops), grouped.keys[number], events(first, last), letter):
                    stops.append(last)
                else:
                    middle = (first + last) // 2
                    waiting += [(middle, last), (first, middle)]
        self.stops = stops

    def _process_each(self, grouped: Grouped, kind: type[Event]) -> None:
        follows = self._space.follows_events
        times = _own_times(self._gathered.times_us[grouped.order]) if follows else None
        visits = self._space.visit(grouped.groups, grouped.encoded)
        for number, _ in enumerate(visits):
            self._moment.move_to(self._space.key)
            key = grouped.keys[number]
            for row in range(grouped.starts[number], grouped.stops[number]):
                if times is not None:
                    self._space.call_at(times[row])
                rows = [int(grouped.order[row])] if self._quarantines else []
                self._one(row, key, kind(row), rows)

    def _visited(self, grouped: Grouped) -> Iterator[None]:
        """Bind one key after the other, each call with the time of the latest of its events."""
        visits = self._space.visit(grouped.groups, grouped.encoded)
        if not self._space.follows_events or not grouped.starts:
            return visits
        ordered = self._gathered.times_us[grouped.order]
        return self._timed(visits, _own_times(np.maximum.reduceat(ordered, grouped.starts)))

    def _timed(self, visits: Iterator[None], times: list[int | None]) -> Iterator[None]:
        for _, own_ms in zip(visits, times, strict=True):
            self._space.call_at(own_ms)
            yield

    def _one(self, number: int, key: Any, events: Any, rows: list[int] | None) -> bool:
        """One call: its rows are taken, or it is undone, or it fails the epoch. False if it was
        undone and is to be made again with fewer events, because `rows` does not name the letter
        that would be made of it."""
        if self._quarantines:
            self._space.overlay.begin()
        try:
            yielded = self._yielded(self._call(key, events, *self._rest))
            if self._quarantines:
                self._check(yielded)
            sorted_out(yielded, self.emitted, self._where)
        except _OURS:
            raise
        except _THEIRS as error:
            if not self._quarantines:
                raise self._failed(key, error) from error
            self._space.overlay.undo()
            if rows is None:
                return False
            self.dead.add(rows, key, _said(error))
        for emitted in self.emitted.values():
            emitted.close_call(number)
        return True

    def _yielded(self, made: Iterable[Any] | None) -> list[Any]:
        """The rows of a call, each as it was when it was yielded."""
        taken = map(self._take, () if made is None else made)
        rows = list(islice(taken, STEP_ROWS))
        if len(rows) == STEP_ROWS:
            rows.extend(drained(taken, self._where))
        return rows

    def _check(self, yielded: list[Any]) -> None:
        """Whether rows fit, now, while the call can still be undone."""
        trial = outputs_of(self._operator.wrapped)
        sorted_out(yielded, trial, self._where)
        for emitted in trial.values():
            fitted_columns(emitted.where, emitted.rows, emitted.schema)

    def _failed(self, key: Any, error: BaseException) -> PenstockError:
        if isinstance(error, _OURS):
            return error
        advice = "mend the function, or let such events go to the dead letters with "
        advice += 'process(…, on_error="quarantine")'
        if isinstance(error, Invalid):  # of a state or an event: it says itself what is wrong
            found = f"was refused: {error.subject} {error.found}"
            return UserError(f"{self._where}, key {key!r}", found, error.advice, _place(error))
        return UserError(
            f"{self._where}, key {key!r}", f"raised {_said(error)}", advice, _place(error)
        )


def _own_times(times_us: NDArray[np.int64]) -> list[int | None]:
    """Event times as state knows them; None where there is none."""
    return [None if at == NO_TIME else at // 1000 for at in times_us.tolist()]


def call_vectorised(
    operator: OperatorNode, states: dict[str, Any], moment: Moment, batch: Any
) -> pa.Table:
    """Call a vectorised function once; its rows as columns of the declared types."""
    wrapped = operator.wrapped
    where = f"operator {operator.name!r}"
    call, rest = _caller(wrapped.callable(), wrapped.parameters, states, moment)
    try:
        made = call(None, batch, *rest)
    except _OURS:
        raise
    except _THEIRS as error:
        advice = "mend the function; a vectorised one cannot be called without some of its events"
        raise UserError(where, f"raised {_said(error)}", advice, _place(error)) from error
    if MAIN not in wrapped.outputs:
        return None
    return _as_table(where, made, wrapped.outputs[MAIN])


def _as_table(where: str, made: Any, schema: pa.Schema) -> pa.Table:
    try:
        table = pa.table(made) if isinstance(made, dict) else made
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise Invalid(where, f"returned columns that do not fit ({error})", "cast them") from error
    if made is None:
        return schema.empty_table()
    if not isinstance(table, pa.Table):
        found = f"returned a {type(made).__name__}"
        raise Invalid(where, found, "return an Arrow table, or a dict of columns")
    for name in schema.names:
        count = table.column_names.count(name)
        if count != 1:
            found = f"returned {'no column' if not count else f'{count} columns'} {name!r}"
            raise Invalid(where, found, f"return {', '.join(schema.names)}, each once")
    return fitted(where, table.select(schema.names), schema)


def _caller(
    function: Callable[..., Any],
    parameters: tuple[str, ...],
    states: dict[str, Any],
    moment: Moment,
) -> tuple[Callable[..., Any], list[Any]]:
    """What is called with a key and its events, and with what else, which stays the same for a
    partition."""
    rest = [moment if role == "moment" else states.get(role) for role in parameters[2:]]
    if parameters[:2] == ("key", "events"):
        return function, rest

    def call(key: Any, events: Any) -> Any:
        given = {"key": key, "events": events, "moment": moment}
        return function(*(given[r] if r in given else states[r] for r in parameters))

    return call, []


def _said(error: BaseException) -> str:
    if isinstance(error, PenstockError):
        return str(error)
    return f"{type(error).__name__}: {error}"[:500]


def _place(error: BaseException) -> str:
    """The last steps in the user's code, without ours."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if frame.filename != __file__]
    chosen = (theirs or frames)[-_TRACE_FRAMES:]
    return "".join(traceback.format_list(chosen)).rstrip()
