"""Planted bugs of rows on their way out: values that change, and rows that change places."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.runtime import calling, checking, processing
from penstock.runtime.events import events_type
from penstock.sinks.table import Table
from penstock.sources import exact_casts, exact_values
from penstock.sources.files_discovery import Discovery
from penstock.state import values
from tests.mutants.mutant import Mutant, by, by_folder
from tests.runtime import test_quarantine, test_timer_order, test_yielded
from tests.sinks import test_table
from tests.sources import test_exact_values, test_files_poison
from tests.sources.test_files import Scene
from tests.state import test_values


def refuses(given: Any, kind: pa.DataType) -> Callable[[], str | None]:
    """Caught because a value is taken that would be another."""
    test = test_exact_values.test_a_value_that_would_be_another_is_refused
    return by(partial(test, given, kind))


def by_whole_calls(self: Any, grouped: Any, columns: Any, kind: Any) -> None:
    """Sets aside all events of a call that raises."""
    events = events_type(columns, kind)
    for number, _ in enumerate(self._visited(grouped)):
        start, stop = grouped.starts[number], grouped.stops[number]
        rows = grouped.order[start:stop].tolist()
        self._one(number, grouped.keys[number], events(start, stop), rows)


honest_measured = Discovery._measured


def refusing_by_the_first_row(self: Discovery, found: Any, columns: Any) -> Any:
    """Looks at the first row whatever the policy is."""
    strict = replace(self, settings=replace(self.settings, poison="fail"))
    return honest_measured(strict, found, columns)


def lost_for_its_first_row(folder: Path) -> None:
    """A file with a bad first row and two good ones."""
    schema = pa.schema([("n", pa.int64())])
    body = b'oops\n{"n": 1}\n{"n": 2}\n'
    test_files_poison.test_a_bad_first_row_leaves_the_others(
        Scene.below(folder), "a.jsonl", body, schema
    )


NAIVE = next(
    (given, kind) for given, kind in test_exact_values.REFUSED if kind == test_exact_values.UTC_US
)

MUTANTS = (
    Mutant(
        "rows by reference",
        "a row is kept as the dict that its function goes on filling in",
        ((calling, "taker", lambda schemas: lambda row: row),),
        by_folder(
            test_yielded.test_a_dict_that_is_filled_in_again_is_several_rows,
            test_yielded.one_dict,
            "fail",
        ),
    ),
    Mutant(
        "rows by halves",
        "of a row only the dict is copied, and not the lists inside it",
        ((calling, "taker", lambda schemas: dict),),
        by_folder(test_yielded.test_what_is_inside_a_row_is_kept_as_well),
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
        "quarantine the innocent",
        "one bad event takes all events of its call to the dead letters",
        ((calling.Caller, "_process_halves", by_whole_calls),),
        by_folder(test_quarantine.test_the_innocent_are_not_set_aside, (5, 6, 100)),
    ),
    Mutant(
        "quarantine everything",
        "a limit for dead letters is not kept to",
        ((checking, "_check_letters", lambda topology, plan, by_place: None),),
        by_folder(test_quarantine.test_too_many_letters_stop_the_job, 2, "1 %", True),
    ),
    Mutant(
        "a file for a row",
        "a file whose first row is bad is left out whole",
        ((Discovery, "_measured", refusing_by_the_first_row),),
        by_folder(lost_for_its_first_row),
    ),
    Mutant(
        "state by halves",
        "state keeps of a record what its declared class has, and drops the rest",
        ((values, "is_same", lambda given, back: True),),
        by(
            partial(
                test_values.test_what_would_be_read_as_another_value_is_refused,
                list[test_values.Point],
                [test_values.Point3(1, 2.0, 3)],
            )
        ),
    ),
    Mutant(
        "timers downstream",
        "the next operator is given rows of timers by the times they were set to",
        ((processing, "_in_firing_order", lambda fired_ms: fired_ms),),
        by_folder(
            test_timer_order.test_the_next_operator_sees_timers_in_the_order_they_fired, 1000
        ),
    ),
)
