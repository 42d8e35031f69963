import pytest

from penstock.chaos import Fault, simulate_log
from penstock.chaos.campaign import Campaign, run_campaign
from penstock.points import LOG_POINTS, Point

SEEDS = 800


def campaign(first: int, count: int) -> Campaign:
    *_, total = run_campaign(first, count, 1, simulate_log)
    return total


@pytest.mark.parametrize("first", range(0, SEEDS, 200))
def test_no_row_is_lost_doubled_or_reordered(first: int) -> None:
    """Producers, their zombies, retention, compaction and sweeps under faults; `make sim-log`
    runs many more."""
    total = campaign(first, 200)
    assert (total.bad, total.unlike) == ([], []), f"make sim-log SEED={(total.bad or [[0]])[0][0]}"


def test_a_campaign_meets_every_fault_and_every_point_of_the_log() -> None:
    """What never happens proves nothing about surviving it."""
    total = campaign(0, 400)
    possible = set(Fault) - {Fault.NONE, Fault.ZOMBIE}
    assert {fault for fault, times in total.faults.items() if times} == possible
    topic = {Point.LOG_TOPIC, Point.LOG_TOPIC_SWAP, Point.LOG_TOPIC_SETTLE}
    assert {point for point in LOG_POINTS if not total.points[point]} == topic


def test_the_same_seed_tells_the_same_story() -> None:
    """Or else a bad one could not be looked at twice."""
    one, other = simulate_log(7, tell=True), simulate_log(7, tell=True)
    assert one.story == other.story
    assert one.story[-1].endswith("every promise kept")
