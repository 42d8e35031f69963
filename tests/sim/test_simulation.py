import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.chaos import Fault, simulate
from penstock.chaos.actions import Action
from penstock.chaos.campaign import Campaign, run_campaign
from penstock.checkpoint import head

CORPUS = Path(__file__).parent / "corpus.txt"
SEEDS = 1000


def campaign(first: int, count: int) -> Campaign:
    *_, total = run_campaign(first, count, workers=1)
    return total


@pytest.mark.parametrize("first", range(0, SEEDS, 250))
def test_every_promise_is_kept(first: int) -> None:
    """Random schedules of faults against the production protocols: nothing lost, nothing twice."""
    total = campaign(first, 250)
    assert (total.bad, total.unlike) == ([], []), f"make sim SEED={(total.bad or [[0]])[0][0]}"


def test_a_campaign_meets_every_kind_of_fault_and_takes_every_action() -> None:
    """A fault that never happens, or a rewind never made, proves nothing about surviving it."""
    total = campaign(0, 250)
    assert total.never_happened(Action) == []


def test_a_fault_or_an_action_that_never_happened_is_named() -> None:
    """Else a campaign that never forks would pass for a proof about forks."""
    total = Campaign()
    total.faults.update(set(Fault))
    total.actions.update(set(Action) - {Action.FORK})
    assert total.never_happened(Action) == [Action.FORK]
    del total.faults[Fault.STALE]
    assert total.never_happened(()) == [Fault.STALE]


@pytest.mark.parametrize("seed", [int(line.split()[0]) for line in CORPUS.read_text().splitlines()])
def test_a_seed_that_once_failed_stays_mended(seed: int) -> None:
    """Every seed that ever found something is kept for ever."""
    assert simulate(seed).broken == ()


def test_the_same_seed_tells_the_same_story() -> None:
    """A failure that cannot be repeated cannot be mended: hash randomisation must not matter."""
    code = "from penstock.chaos import simulate; print([simulate(s).trace_hash for s in range(20)])"
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "2")
    }
    assert len(told) == 1


def test_what_head_has_forgotten_is_reported_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a short memory leaders often cannot tell what became of a commit. They must say so."""
    monkeypatch.setattr(head, "RECENT_MAX", 1)
    assert [seed for seed in range(400) if simulate(seed).broken] == []


def test_a_story_names_its_faults_and_its_verdict() -> None:
    """What a person reads to understand a failing seed."""
    seed = next(seed for seed in range(100) if simulate(seed).faults[Fault.CRASH_AFTER])
    story = simulate(seed, tell=True).story
    assert any(line.endswith(f"<-- {Fault.CRASH_AFTER}") for line in story)
    assert story[-1].endswith("verdict: every promise kept")
