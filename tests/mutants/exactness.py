"""Planted bugs of rows on their way out: values that change, and rows that change places."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.runtime import calling, processing
from penstock.sinks.table import Table
from penstock.sources import exact_casts, exact_values
from tests.mutants.mutant import Mutant, by
from tests.runtime import test_timer_order, test_yielded
from tests.sinks import test_table
from tests.sources import test_exact_values


def in_a_folder(test: Callable[..., None], *given: Any) -> Callable[[], str | None]:
    """Caught by a test that needs a folder."""

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            test(Path(folder), *given)

    run.__name__ = test.__name__
    return by(run)


def refuses(given: Any, kind: pa.DataType) -> Callable[[], str | None]:
    """Caught because a value is taken that would be another."""
    test = test_exact_values.test_a_value_that_would_be_another_is_refused
    return by(partial(test, given, kind))


NAIVE = next(
    (given, kind) for given, kind in test_exact_values.REFUSED if kind == test_exact_values.UTC_US
)

MUTANTS = (
    Mutant(
        "rows by reference",
        "a row is kept as the dict that its function goes on filling in",
        ((calling, "taker", lambda schemas: lambda row: row),),
        in_a_folder(
            test_yielded.test_a_dict_that_is_filled_in_again_is_several_rows,
            test_yielded.one_dict,
            "fail",
        ),
    ),
    Mutant(
        "rows by halves",
        "of a row only the dict is copied, and not the lists inside it",
        ((calling, "taker", lambda schemas: dict),),
        in_a_folder(test_yielded.test_what_is_inside_a_row_is_kept_as_well),
    ),
    Mutant(
        "values zone guessed",
        "a time without a zone is taken for UTC",
        ((exact_values, "_check_zone", lambda value, kind: None),),
        refuses(*NAIVE),
    ),
    Mutant(
        "values unit cut",
        "what is finer than a column's unit is cut off",
        ((exact_values, "_check_unit", lambda fraction, unit, kind: None),),
        refuses(pa.scalar(1, pa.timestamp("ns", "UTC")).as_py(), test_exact_values.UTC_US),
    ),
    Mutant(
        "values cast anyhow",
        "a column is cast without looking whether its values stay",
        ((exact_casts, "_is_same", lambda one, other: True),),
        by(
            partial(
                test_exact_values.test_a_column_is_not_cast_if_a_value_would_change,
                pa.array([0.1]),
                pa.float32(),
            )
        ),
    ),
    Mutant(
        "values unread",
        "a table takes values that none of its readers has",
        ((Table, "check", lambda self, rows: None),),
        by(
            partial(
                test_table.test_what_readers_do_not_have_is_refused_before_it_is_staged,
                "arrow",
                test_table.UNREADABLE["a time of no calendar"],
            )
        ),
    ),
    Mutant(
        "timers downstream",
        "the next operator is given rows of timers by the times they were set to",
        ((processing, "_in_firing_order", lambda fired_ms: fired_ms),),
        in_a_folder(
            test_timer_order.test_the_next_operator_sees_timers_in_the_order_they_fired, 1000
        ),
    ),
)
