"""Whatever a sink raises names the sink, the epoch, the row where it is known, and the way out."""

import pyarrow as pa
import pytest

from penstock.errors import Fenced, Invalid, Unavailable
from penstock.runtime.sink_errors import applying_explained, explained
from penstock.sinks import Apply
from penstock.sinks.table import arrow_file
from tests.support.sink_cases import PEOPLE, apply, people

LATE = pa.array([0, 253_402_300_800], pa.int64()).view(pa.timestamp("s", "UTC"))


def committed_before_the_check() -> Apply:
    """An epoch that was staged by a version which did not look at values."""
    asked = apply(4, people(4))
    body = arrow_file(pa.table({"at": LATE}))
    return Apply(asked.at, asked.sink, 0, asked.follows, asked.cursor, asked.token, outputs=(body,))


def test_the_row_that_may_be_the_reason_is_named() -> None:
    """Roots of older versions have such rows, and somebody has to find them."""
    with pytest.raises(Invalid) as caught, applying_explained(committed_before_the_check()):
        raise OverflowError("date value out of range")

    assert caught.value.subject == "sink people, column 'at', row 1"
    assert caught.value.found == (
        "failed on epoch 4 (its value is 10000-01-01 00:00:00Z, which is outside the years 1 to "
        "9999; OverflowError: date value out of range)"
    )
    assert caught.value.advice == (
        "its rows are kept: mend the sink and start the job again, go back with `penstock restore "
        "--at 3` and emit other rows, or leave epoch 4 and all up to HEAD out of this sink with "
        "`penstock sinks accept`"
    )
    assert isinstance(caught.value.__cause__, OverflowError)


def test_the_first_epoch_has_no_epoch_to_go_back_to() -> None:
    """Advice that cannot be followed is worse than none."""
    with pytest.raises(Invalid) as caught, applying_explained(apply(1, people(1), columns=PEOPLE)):
        raise KeyError("n")

    assert str(caught.value) == (
        "sink people failed on epoch 1 (KeyError: 'n'): its rows are kept: mend the sink and start "
        "the job again, or leave epoch 1 and all up to HEAD out of this sink with `penstock sinks "
        "accept`."
    )


def test_errors_of_penstock_stay_what_they_are() -> None:
    """They decide whether a job waits, stops or is over."""
    for error in (
        Unavailable("sink people", "is away", "wait"),
        Fenced("sink people", held=1, newest=2, by="another"),
    ):
        with pytest.raises(type(error)) as caught, applying_explained(apply(1, [])):
            raise error
        assert caught.value is error


def test_a_sink_that_cannot_be_opened_is_named() -> None:
    """Before an epoch is known there is still a sink."""
    with pytest.raises(Invalid) as caught, explained("people", "when it was opened"):
        raise AttributeError("'NoneType' object has no attribute 'connect'")

    assert str(caught.value) == (
        "sink people failed when it was opened (AttributeError: 'NoneType' object has no attribute "
        "'connect'): mend the sink or its settings, and start the job again."
    )
