"""Planted bugs of timers and of the time to live."""

import tempfile
from collections.abc import Callable, Iterator
from heapq import heappop
from pathlib import Path
from typing import Any

from penstock.runtime.calling import Caller
from penstock.state import firing
from penstock.state.stamps import Life, stamped_ms
from penstock.state.workspace import Workspace
from tests.mutants.mutant import Mutant, by, by_folder
from tests.runtime import test_time_to_live_by_events, test_timer_order
from tests.state import test_stamps
from tests.support.state_engine import Engine

honest_fire_timers = Caller.fire_timers


def by_engine(test: Callable[[Engine], None], *, is_old: bool = False) -> Callable[[], str | None]:
    """Caught by a test of the state engine, on a partition of its own."""

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            engine = Engine(Path(folder), test_stamps.aging)
            for number in (1, 2) if is_old else ():
                name = f"watermark_stamps_{number}.sst"
                engine.database.ingest([test_stamps.FIXTURES / name])
            engine.epoch = 2 if is_old else 0
            try:
                test(engine)
            finally:
                engine.database.close()

    run.__name__ = test.__name__
    return by(run)


def leaves_for_the_next_epoch(self: Any, cell: Any, at_ms: int, set_ms: int) -> None:
    pass


def at_the_end(self: Any, pending: firing.Pending) -> None:
    """Puts a timer that was set meanwhile behind all that were found."""
    self._heap.append(pending)


def in_the_order_found(self: Any) -> Iterator[firing.Pending]:
    while self._heap:
        yield self._heap.pop(0)


def holds_up_the_chain_alone(self: Any) -> Iterator[firing.Pending]:
    """Lets the later timers of a key pass those that have to wait."""
    while self._heap:
        pending = heappop(self._heap)
        count = self._behind[pending.group, pending.key]
        if count < firing.BEHIND_MAX or not pending.is_chained:
            yield pending


def holds_up_every_chain(self: Any) -> Iterator[firing.Pending]:
    """Lets a key wait also if its timers go forward in time."""
    while self._heap:
        pending = heappop(self._heap)
        if self._chained[pending.group, pending.key] < firing.BEHIND_MAX:
            yield pending


def by_the_watermark(self: Any, own_ms: int | None) -> None:
    """Leaves every call without a time of its own."""


def never_over(self: Any, raw: bytes) -> bool:
    return False


def over_by_event_time(self: Any, raw: bytes) -> bool:
    """Judges what was stamped by the watermark by the times of events, too."""
    own_ms = self._call.own_ms
    return own_ms is not None and bool(stamped_ms(raw) + self.length_ms <= own_ms)


def the_last_write_counts(self: Any, before: bytes | None) -> bytes:
    return bytes(self.first_stamp())


def looks_at_nothing(self: Any) -> bool:
    """Takes every call for the newest there was."""
    return True


def kept_by_its_stamp(self: Any, raw: bytes) -> int:
    return int(stamped_ms(raw) + self.length_ms)


def fires_after_removing(self: Any) -> None:
    self._space.expire()
    honest_fire_timers(self)


def timers_have_their_own_time(self: Any) -> None:
    """Forgets when a timer was set to a time that had passed."""


MUTANTS = (
    Mutant(
        "timers later",
        "a timer set by a firing one waits for the next epoch",
        ((Workspace, "timer_was_set", leaves_for_the_next_epoch),),
        by_folder(
            test_timer_order.test_a_timer_that_a_firing_one_sets_takes_its_place, "event", (30,)
        ),
    ),
    Mutant(
        "timers rounds",
        "a timer set by a firing one fires after all that were due",
        (
            (firing.Firing, "add", at_the_end),
            (firing.Firing, "__iter__", in_the_order_found),
        ),
        by_folder(
            test_timer_order.test_a_timer_that_a_firing_one_sets_takes_its_place, "event", (30,)
        ),
    ),
    Mutant(
        "timers pass",
        "later timers pass those of their key that have to wait",
        ((firing.Firing, "__iter__", holds_up_the_chain_alone), (firing, "BEHIND_MAX", 3)),
        by_folder(test_timer_order.test_what_has_to_wait_is_not_passed),
    ),
    Mutant(
        "timers stall",
        "a key that has many timers to catch up with waits, and its events do not",
        ((firing.Firing, "__iter__", holds_up_every_chain),),
        by_folder(test_timer_order.test_an_event_finds_every_timer_before_it_fired, 3000),
    ),
    Mutant(
        "ttl stall",
        "what timers that have to wait would have seen is removed before they fire",
        ((firing.Firing, "__iter__", holds_up_every_chain),),
        by_folder(
            test_time_to_live_by_events.test_timers_that_catch_up_see_what_lived_at_their_time,
            [1600, 3000],
        ),
    ),
    Mutant(
        "ttl watermark",
        "entries are stamped and judged by the watermark",
        ((Workspace, "call_at", by_the_watermark),),
        by_folder(
            test_time_to_live_by_events.test_a_card_is_known_for_two_hours_after_it_was_seen,
            (1, 1, 1),
        ),
    ),
    Mutant(
        "ttl seen",
        "an entry is seen until it is removed",
        ((Life, "is_over", never_over),),
        by_engine(test_stamps.test_an_entry_that_has_ended_is_not_seen_before_it_is_removed),
    ),
    Mutant(
        "ttl shortened",
        "a call that is out of order shortens a life",
        ((Life, "next_stamp", the_last_write_counts),),
        by_engine(test_stamps.test_an_older_call_does_not_shorten_a_life),
    ),
    Mutant(
        "ttl unseen",
        "a call that is out of order does not look at what it writes over",
        ((Life, "is_newest", looks_at_nothing),),
        by_engine(test_stamps.test_an_older_call_does_not_shorten_a_life),
    ),
    Mutant(
        "ttl late",
        "what is written late is removed at once",
        ((Life, "kept_until_ms", kept_by_its_stamp),),
        by_engine(test_stamps.test_what_is_written_late_is_kept_for_those_who_are_as_late),
    ),
    Mutant(
        "ttl old",
        "entries of old state are judged by event times",
        ((Life, "is_over", over_by_event_time),),
        by_engine(test_stamps.test_entries_of_old_state_end_when_they_would_have, is_old=True),
    ),
    Mutant(
        "ttl timers",
        "entries are removed before the timers that may see them fire",
        ((Caller, "fire_timers", fires_after_removing),),
        by_folder(test_time_to_live_by_events.test_a_timer_sees_and_writes_at_its_own_time, [30]),
    ),
    Mutant(
        "ttl past",
        "what a timer set in the past writes has ended already",
        ((Workspace, "call_ms", timers_have_their_own_time),),
        by_folder(
            test_time_to_live_by_events.test_a_timer_set_in_the_past_has_the_time_of_who_set_it, 0
        ),
    ),
)
