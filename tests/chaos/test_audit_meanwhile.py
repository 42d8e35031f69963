"""Auditing a job that goes on: it commits, gives epochs up, goes back, and nobody cries wolf."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.chaos.audit import audit
from penstock.chaos.findings import Verdict
from penstock.checkpoint.collector import Retention
from penstock.checkpoint.root import Root
from penstock.ids import Epoch
from tests.support.audits import Scene, counting_job, unknown, wrong
from tests.support.in_process import SETTINGS

SHORT_LIVED = replace(
    SETTINGS,
    retention=Retention(epochs=2, age_s=0.0, grace_s=0.0),
    collect_every=1,
    limits=ps.Limits(records=2),
)


def interrupted(root: Root, at: int, work: Callable[[], Any]) -> Root:
    """The same root, in which something happens right before the effect of that number."""
    seen = 0

    def wrap(handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def handle(effect: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen == at:
                work()
            return handler(effect)

        return handle

    root.handlers = {kind: wrap(handler) for kind, handler in root.handlers.items()}
    return root


def made(folder: Path) -> Scene:
    """A job with a table and two sinks, some epochs old."""
    sinks = (
        ps.Table("totals"),
        ps.Memory(f"shelf-{folder.name}"),
        ps.Delta("lake", str(folder / "lake"), provenance=True),
    )
    scene = Scene(folder, lambda log: counting_job(log, *sinks))
    scene.epochs(1, rows=8, settings=replace(SHORT_LIVED, collect_every=1000))
    return scene


POINTS = [1, 2, 4, 7, 11, 16, 22, 30, 40, 52, 66]


@pytest.mark.parametrize("at", POINTS)
def test_a_job_that_commits_and_collects_meanwhile(tmp_path: Path, at: int) -> None:
    """What it gives up is no loss; what it adds is looked at the next time."""
    scene = made(tmp_path)
    going_on = interrupted(scene.root, at, lambda: scene.epochs(1, rows=8, settings=SHORT_LIVED))
    found = audit(going_on, scene.topology).audited

    assert wrong(found) == []
    assert all("cannot be told" in said for said in unknown(found)), unknown(found)


@pytest.mark.parametrize("at", POINTS)
def test_a_job_that_is_gone_back_on_meanwhile(tmp_path: Path, at: int) -> None:
    """It is another history from then on, and is audited as that."""
    scene = Scene(tmp_path, lambda log: counting_job(log, ps.Table("totals")))
    scene.epochs(4, rows=2)

    def work() -> None:
        scene.root.rewind("counts", Epoch(2))
        scene.epochs(2, rows=2)

    found = audit(interrupted(scene.root, at, work), scene.topology).audited

    assert wrong(found) == []
    assert found.verdict is Verdict.VALID
    assert found.generation in (1, 2)


def test_a_job_that_gives_up_everything_meanwhile(tmp_path: Path) -> None:
    """Whoever looks slower than a job forgets is told so, and told nothing else."""
    scene = Scene(tmp_path, lambda log: counting_job(log, ps.Memory(f"shelf-{tmp_path.name}")))
    scene.epochs(1, rows=8, settings=SHORT_LIVED)
    going_on = interrupted(scene.root, 9, lambda: scene.epochs(1, rows=30, settings=SHORT_LIVED))
    found = audit(going_on, scene.topology).audited

    assert wrong(found) == []
