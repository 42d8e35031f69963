"""The exhaustive search over short sequences of actions: what it tries, and that it can fail."""

import pytest

from penstock.chaos.small_search import ACTIONS, BEGINNINGS, play, search
from penstock.runtime import loop
from penstock.sinks import table_index, table_sweep
from tests.mutants.mutant import planted
from tests.mutants.tables import counts_nothing, walks_to_the_floor


def test_every_sequence_is_tried_and_counted_once() -> None:
    """What changes nothing ends a branch; what would follow it counts all the same."""
    *_, total = search(2)
    assert total.sequences == len(BEGINNINGS) * len(ACTIONS) ** 2
    assert set(total.taken) == set(ACTIONS)
    assert sum(total.taken.values()) == total.steps


def test_a_search_by_several_processes_sees_the_same() -> None:
    """The parts of a search share nothing."""
    *_, alone = search(2)
    *_, together = search(2, workers=2)
    assert together == alone


@pytest.mark.parametrize("way", ["fork", "rewind"])
def test_rows_lost_after_going_back_are_found(way: str) -> None:
    """The very loss that this search was made for, in two steps from a root with some history."""
    silently = ((table_index, "refuse_miscount"), (table_sweep, "refuse_miscount"))
    changes = [(owner, name, counts_nothing) for owner, name in silently]
    with planted(((loop, "table_tails", walks_to_the_floor), *changes)):
        lost = play("grown", (way, "index"))
    assert lost is not None
    assert lost.startswith("the table as of epoch")
    assert play("grown", (way, "index")) is None


def test_the_shortest_bad_sequence_is_named_first() -> None:
    """A person reads the first line."""
    changes = [(owner, "refuse_miscount", counts_nothing) for owner in (table_index, table_sweep)]
    with planted(((loop, "table_tails", walks_to_the_floor), *changes)):
        *_, total = search(2)
    assert [(begun, sequence) for begun, sequence, _ in total.bad] == [
        ("grown", ("fork", "index")),
        ("grown", ("rewind", "index")),
    ]


def test_after_every_short_sequence_every_table_and_state_is_what_the_model_says() -> None:
    """All sequences of three actions here; `make search` tries those of five."""
    *_, total = search(3)
    assert total.bad == []
