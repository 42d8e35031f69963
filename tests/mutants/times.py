"""Planted bugs of time and keys: one event, or one reading of a clock, that stops a whole job."""

import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.runtime import events, packing, processing, reading, undecodable, watermarks
from penstock.runtime.inbox import Gathered
from penstock.steady_time import SteadyTime
from tests.mutants.mutant import Mutant, by
from tests.runtime.test_nonsense_times import (
    NONSENSE_US,
    test_a_nonsense_time_is_set_aside_in_the_same_commit,
    test_a_nonsense_time_stops_the_job_with_its_place,
    test_a_root_with_a_nonsense_watermark_runs_on,
    test_a_time_that_a_transform_made_is_a_letter,
)
from tests.runtime.test_steady_time import (
    test_a_job_that_was_stopped_for_a_week_takes_the_time_at_once,
    test_a_timer_fires_though_the_clock_went_back,
    test_commits_go_on_in_a_root_that_is_a_year_ahead,
    test_one_bad_reading_moves_nothing,
)
from tests.runtime.test_unfit_keys import (
    test_a_bad_key_is_a_letter_in_the_same_commit,
    test_a_bad_key_stops_the_job_with_its_place,
    total,
)

honest_without_untimely = undecodable.without_untimely


def below(test: Callable[..., None], *given: Any) -> Callable[[], str | None]:
    """Caught by a test that wants a folder, and perhaps more."""

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            test(Path(folder), *given)

    run.__name__ = test.__name__
    return by(run)


def lets_all_through(node: Any, partition: str, rows: pa.Table) -> tuple[pa.Table, list[Any]]:
    return rows, []


def forgets_them(node: Any, partition: str, rows: pa.Table) -> tuple[pa.Table, list[Any]]:
    return honest_without_untimely(node, partition, rows)[0], []


def raises(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, tz=UTC)


def gives_all(operator: Any, gathered: Gathered, base: Any) -> tuple[Gathered, Any, None]:
    return gathered, base, None


def takes_the_larger(self: SteadyTime, last_ms: int) -> int:
    return max(last_ms, round(self._clock.wall() * 1000))


def follows_at_once(self: SteadyTime, at_s: float, wall_ms: float, ahead_ms: float) -> bool:
    return True


def waits_for_the_clock(
    self: SteadyTime, at_s: float, before_ms: float, elapsed_ms: float
) -> float:
    return max(before_ms, self._clock.wall() * 1000)


MUTANTS = (
    Mutant(
        "time let through",
        "an event of the year 55840 moves the watermark",
        ((reading, "without_untimely", lets_all_through),),
        below(test_a_nonsense_time_stops_the_job_with_its_place, NONSENSE_US),
    ),
    Mutant(
        "time forgotten",
        "an event that is set aside is kept nowhere",
        ((reading, "without_untimely", forgets_them),),
        below(test_a_nonsense_time_is_set_aside_in_the_same_commit),
    ),
    Mutant(
        "time of a moment",
        "a watermark beyond the year 9999 fails every task",
        ((events, "datetime_of", raises), (watermarks, "within", lambda time_ms: time_ms)),
        below(test_a_root_with_a_nonsense_watermark_runs_on, 1 << 50),
    ),
    Mutant(
        "time of a transform",
        "event times are looked at where they are read, and nowhere else",
        ((processing, "without_unfit", gives_all),),
        below(test_a_time_that_a_transform_made_is_a_letter),
    ),
    Mutant(
        "key given",
        "a key that cannot be stored fails the epoch, whatever the policy",
        ((processing, "without_unfit", gives_all),),
        below(test_a_bad_key_is_a_letter_in_the_same_commit, "a long text", total),
    ),
    Mutant(
        "key hashed",
        "a key that cannot be hashed fails the epoch before its operator sees it",
        ((packing, "_hashable", lambda column: column),),
        below(
            test_a_bad_key_stops_the_job_with_its_place,
            "one that microseconds cannot tell",
            total,
        ),
    ),
    Mutant(
        "clock larger",
        "the larger of the wall clock and what was written last",
        ((SteadyTime, "now_ms", takes_the_larger),),
        by(test_commits_go_on_in_a_root_that_is_a_year_ahead),
    ),
    Mutant(
        "clock followed",
        "a leap of the wall clock is followed at once",
        ((SteadyTime, "_has_stayed", follows_at_once),),
        by(test_one_bad_reading_moves_nothing),
    ),
    Mutant(
        "clock behind",
        "time stands still while the wall clock is behind",
        ((SteadyTime, "_moved_on", waits_for_the_clock),),
        below(test_a_timer_fires_though_the_clock_went_back),
    ),
    Mutant(
        "clock stopped",
        "the wall clock is not believed at the start of a process",
        ((SteadyTime, "_first_reading", lambda self: 0.0),),
        by(test_a_job_that_was_stopped_for_a_week_takes_the_time_at_once),
    ),
)
