"""Wrapping functions: what is given to each parameter, and every mistake by name."""

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.runtime.functions import MAIN, Form, Wrapped

Rows = Iterator[dict[str, Any]]
EMITS = "user string, total long"


def wrong(wrap: Callable[[Any], Wrapped], function: Any) -> str:
    """What is said of a function that cannot be wrapped."""
    with pytest.raises(ps.Invalid) as caught:
        wrap(function)
    return str(caught.value)


def test_a_parameter_is_what_its_annotation_says() -> None:
    """So the order and the names are the author's own."""

    @ps.stateful(emits=EMITS, sides={"late": "user string"})
    def count(
        moment: ps.Moment, total: ps.Value[int], clicks: ps.Events, user: str, wake: ps.Timer
    ) -> Rows:
        yield {}

    assert count.parameters == ("moment", "total", "events", "key", "wake")
    assert [spec.name for spec in count.states] == ["total", "wake"]
    assert (count.name, count.form, count.with_moment) == ("count", Form.PER_KEY, True)
    assert count.outputs == {
        MAIN: pa.schema([("user", pa.string()), ("total", pa.int64())]),
        "late": pa.schema([("user", pa.string())]),
    }
    assert count.has_timers("event")
    assert not count.has_timers("processing")
    assert not count.has_ageing()


def test_events_need_no_annotation_if_they_are_called_so() -> None:
    """What everybody writes first works."""

    @ps.stateful()
    def count(user, events, total: Annotated[ps.Value[int], ps.ttl("1 day")]):  # noqa: ANN001, ANN202
        total.set(len(events))

    assert count.parameters == ("key", "events", "total")
    assert count.has_ageing()
    assert count.outputs == {}


def test_a_function_that_emits_nothing_needs_no_brackets() -> None:
    """Whoever writes columns there, without their name, is told."""

    @ps.stateful
    def count(user: str, events: ps.Events, total: ps.Value[int]) -> None:
        total.set(len(events))

    assert (count.name, count.form, count.outputs) == ("count", Form.PER_KEY, {})
    columns: Any = EMITS
    assert wrong(ps.stateful, columns) == (
        "@stateful was given str, which cannot be called: name what it is: @stateful(emits=...)."
    )


def test_a_class_is_called_by_its_method() -> None:
    """Each partition has an instance of its own, and `self` is nobody's parameter."""

    @ps.stateful(emits=EMITS, each=True)
    class Count:
        def process(self, user: str, event: ps.Event | None, total: ps.Value[int]) -> Rows:
            yield {"user": user}

    assert (Count.name, Count.form) == ("Count", Form.PER_EVENT)
    assert Count.parameters == ("key", "events", "total")
    assert list(Count.callable()("ada", None, None)) == [{"user": "ada"}]


def test_a_wrapped_function_can_still_be_called() -> None:
    """A unit test of a function needs nothing of the runtime."""

    @ps.stateful(emits=EMITS)
    def count(user: str, events: ps.Events) -> Rows:
        yield {"user": user, "total": len(events)}

    assert list(count("ada", [1, 2])) == [{"user": "ada", "total": 2}]


def test_rows_that_are_returned_and_not_yielded_are_refused() -> None:
    """A list that is returned from a plain function would never be seen."""

    def count(user: str, events: ps.Events) -> list[Any]:
        return []

    assert wrong(ps.stateful(emits=EMITS), count) == (
        "function 'count' says what it emits and is no generator: `yield` its rows, one dict each, "
        "instead of returning them; or leave `emits` out."
    )


def test_rows_of_unknown_columns_are_refused() -> None:
    """A generator nobody takes rows from would not even run."""

    def count(user: str, events: ps.Events) -> Rows:
        yield {}

    assert wrong(ps.stateful(), count) == (
        "function 'count' yields rows, and does not say of which columns: "
        'wrap it with `emits="user string, clicks long"`.'
    )


def test_a_second_parameter_without_a_meaning_is_refused() -> None:
    """Most likely a state whose annotation was forgotten."""

    def count(user: str, events: ps.Events, total) -> None: ...  # noqa: ANN001

    assert wrong(ps.stateful(), count) == (
        "function 'count', parameter 'total' has no annotation that says what it is: "
        "write def function(key, events: ps.Events, total: ps.Value[int])."
    )


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda events: None, "has no parameter for its key"),
        (lambda user: None, "has no parameter for its events"),
    ],
)
def test_a_missing_parameter_is_named(function: Any, said: str) -> None:
    """The function would be called with too much."""
    assert said in wrong(ps.stateful(name="count"), function)


def test_a_state_with_the_name_of_something_else_is_refused() -> None:
    """It would be given the moment in place of its state."""

    def count(user: str, events: ps.Events, moment: ps.Value[int]) -> None: ...

    assert wrong(ps.stateful(), count) == (
        "function 'count', state 'moment' has a name that stands for something else: "
        "call it something else."
    )


def test_events_where_one_event_comes_are_refused() -> None:
    """And the other way round: the first loop over it would fail, in production."""

    def all_of_them(user: str, events: ps.Events) -> None: ...

    def one(user: str, event: ps.Event) -> None: ...

    assert wrong(ps.stateful(each=True), all_of_them) == (
        "function 'all_of_them', parameter 'events' is all events of a key, and the function is "
        "called once per event: take one ps.Event, or a ps.Batch."
    )
    assert wrong(ps.stateful(), one) == (
        "function 'one', parameter 'event' is one event, and the function is called once per key "
        "and epoch: wrap it with each=True."
    )


def test_state_of_a_kind_that_does_not_fit_is_refused() -> None:
    """A vectorised function has columns of keys, and no current one."""

    def whole(batch: ps.Batch, total: ps.Value[int]) -> None: ...

    def by_key(user: str, events: ps.Events, total: ps.Columns[int, float]) -> None: ...

    assert wrong(ps.vectorized(), whole) == (
        "function 'whole', state 'total' is Value, in a function called once per partition and "
        "epoch: use Columns there."
    )
    assert wrong(ps.stateful(), by_key) == (
        "function 'by_key', state 'total' is Columns, in a function called once per key and "
        "epoch: use Value, List, Map or Timer there."
    )


def test_a_vectorised_function_has_no_key() -> None:
    """It is given those of a whole partition."""

    def whole(user: str, batch: ps.Batch) -> None: ...

    assert "parameter 'user' has no annotation that says what it is" in wrong(
        ps.vectorized(), whole
    )


def test_an_annotation_that_cannot_be_read_is_named() -> None:
    """A name that is imported for type checkers only, most likely."""

    def count(user: str, events: ps.Events, total: "ps.Value[Nowhere]") -> None: ...  # noqa: F821

    assert "has an annotation that cannot be read" in wrong(ps.stateful(), count)


@pytest.mark.parametrize(
    ("emits", "said"),
    [
        (7, "the emitted columns are a int: write 'user string, clicks long'."),
        (
            "_epoch long",
            "emitted column '_epoch' begins with '_', as the columns of Penstock's own do: "
            "choose another name.",
        ),
    ],
)
def test_columns_that_cannot_be_emitted_are_refused(emits: Any, said: str) -> None:
    """Provenance stands beside them in every table."""
    with pytest.raises(ps.Invalid) as caught:
        ps.stateful(emits=emits)

        @ps.stateful(emits=emits)
        def count(user: str, events: ps.Events) -> Rows:
            yield {}

    assert str(caught.value) == said


def test_a_class_that_cannot_be_made_or_called_is_refused() -> None:
    """Workers make it without arguments, far from whoever could give some."""

    class Idle: ...

    class Picky:
        def __init__(self, limit: int) -> None: ...

        def process(self, user: str, events: ps.Events) -> None: ...

    assert wrong(ps.stateful(), Idle) == (
        "function 'Idle' is a class without a method `process`: add one, or wrap a function."
    )
    assert wrong(ps.stateful(), Picky) == (
        "function 'Picky' is a class that cannot be made without 'limit': give it a default."
    )
