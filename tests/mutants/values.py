"""Planted bugs of values: those that two ways of reading them do not tell alike."""

from functools import partial

import pyarrow as pa

from penstock.runtime import events, inbox, row_values
from tests.mutants.mutant import Mutant, by, by_folder
from tests.runtime import test_dictionary_keys, test_nanoseconds, test_unknown_zones


def cast_by_arrow(nanos: pa.ChunkedArray) -> pa.ChunkedArray:
    """Cuts off what is finer, towards 1970."""
    return nanos.cast(pa.timestamp("us", nanos.type.tz), safe=False)


MUTANTS = (
    Mutant(
        "values nanoseconds",
        "nanoseconds before 1970 are rounded up, and hashed as if they were not",
        ((events, "_in_micros", cast_by_arrow),),
        by(
            partial(
                test_nanoseconds.test_moments_that_are_one_key_are_of_one_key_group, "Asia/Seoul"
            )
        ),
    ),
    Mutant(
        "values zone",
        "a zone that this host does not know stops whatever shows or replays a letter",
        ((row_values, "_UNTOLD", (OverflowError, ValueError, pa.ArrowException)),),
        by(test_unknown_zones.test_times_of_an_unknown_zone_are_told_in_utc),
    ),
    Mutant(
        "values dictionary",
        "every value of a dictionary is taken for a key of the partition",
        ((inbox, "decoded", lambda column: column),),
        by_folder(
            test_dictionary_keys.test_a_function_is_called_for_the_keys_of_events_alone, "shared", 3
        ),
    ),
    Mutant(
        "values unused",
        "a vectorised function is told keys that no event has",
        ((events, "decoded", lambda column: column),),
        by(test_dictionary_keys.test_a_vectorised_function_is_told_the_keys_of_events_alone),
    ),
    Mutant(
        "values null inside",
        "a null inside a dictionary stops an operator that quarantines",
        ((inbox, "with_plain_nulls", lambda table: table),),
        by_folder(
            test_dictionary_keys.test_a_null_inside_a_dictionary_is_no_key,
            test_dictionary_keys.total,
        ),
    ),
)
