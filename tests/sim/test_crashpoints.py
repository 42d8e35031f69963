from penstock.chaos import every_pair, every_single, every_zombie


def test_every_single_failure_is_survived_and_every_point_is_reached() -> None:
    """Each request killed before, unheard, killed after; and no point that was never tried."""
    verdict = every_single(workers=1)
    assert (verdict.bad, verdict.never_reached) == ([], [])


def test_a_zombie_changes_nothing_wherever_it_wakes() -> None:
    """Paused anywhere, for as long as others need to finish everything, then resumed. Of those
    whose last answer was lost a fixed sample is tried here, and all by `make crashpoints`."""
    verdict = every_zombie(workers=1, sample=0.2)
    assert verdict.bad == []
    assert verdict.runs > 500


def test_pairs_of_failures_are_survived() -> None:
    """A fixed sample here; `make crashpoints` tries every pair."""
    verdict = every_pair(workers=1, sample=0.015)
    assert verdict.bad == []
    assert verdict.runs > 1000
