"""A job that was restored or forked keeps every row of its tables, however far it goes on."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.chaos.audit import audit
from penstock.chaos.findings import Verdict
from penstock.checkpoint.collector import Retention
from penstock.checkpoint.fork import fork
from penstock.checkpoint.root import Root
from penstock.checkpoint.snapshots import SnapshotPolicy
from penstock.ids import Epoch
from penstock.runtime import loop as epoch_loop
from penstock.runtime.cli_history import _further
from tests.support.in_process import SETTINGS, LocalRun, append, click, clicks_log
from tests.support.letters import command


@ps.stateful(emits="user string, total long")
def count(user: str, events: ps.Events, so_far: ps.Value[int]) -> Iterator[dict[str, Any]]:
    """Sums per user."""
    so_far.set(so_far.get(0) + sum(events.values("n")))
    yield {"user": user, "total": so_far.get()}


ONE_ROW = replace(
    SETTINGS,
    limits=ps.Limits(records=1),
    collect_every=2,
    retention=Retention(epochs=8, age_s=0, grace_s=0),
    snapshots=SnapshotPolicy(every_epochs=3),
)
"""An epoch for each row, so that the table has one row for each epoch."""


@pytest.fixture(autouse=True)
def _indexed_every_four_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch_loop, "INDEX_EVERY", 4)


def counting(folder: Path) -> LocalRun:
    """A job that counts up, one row for each epoch."""
    log = clicks_log(folder)
    append(log, [click("ada", 1, n) for n in range(40)])
    job = ps.Job("clicks", partitions=1)
    job.read(log, event_time="at").key_by("user").process(count).write(ps.Table("totals"))
    return LocalRun(job, folder)


def go_on(run: LocalRun, epoch: int) -> None:
    """Run up to an epoch; the table must have a row for each."""
    run.run(replace(ONE_ROW, epochs_max=epoch))
    assert run.rows("totals", "total") == [(n,) for n in range(1, epoch + 1)]


def forked(run: LocalRun, target: Epoch | str, folder: Path) -> LocalRun:
    """The same job on a fork of its root."""
    fork(run.root, target, Root.open(str(folder / "root")), _further(run.root))
    return LocalRun(run.job, folder)


@pytest.mark.parametrize("epoch", [1, 2, 5, 6, 8])
def test_a_fork_keeps_every_row_behind_the_next_index(tmp_path: Path, epoch: int) -> None:
    """Nothing below its epoch is promised to readers of a fork; its table needs it all the same."""
    run = counting(tmp_path)
    go_on(run, 8)

    copy = forked(run, Epoch(epoch), tmp_path / "fork")

    for further in (epoch + 1, epoch + 5, epoch + 14):
        go_on(copy, further)
    assert audit(copy.root).audited.verdict is Verdict.VALID
    go_on(run, 10)


@pytest.mark.parametrize("epoch", [17, 18, 20, 23])
def test_a_restored_job_keeps_every_row_behind_the_next_index(tmp_path: Path, epoch: int) -> None:
    """The epochs between the floor and an older index are not lost with the floor."""
    run = counting(tmp_path)
    go_on(run, 24)
    assert 13 < run.root.head().floor <= 17

    run.root.rewind("clicks", Epoch(epoch))

    for further in (epoch + 1, epoch + 5, epoch + 12):
        go_on(run, further)
    assert audit(run.root).audited.verdict is Verdict.VALID


@pytest.mark.parametrize("epoch", [3, 5, 8])
def test_a_job_that_returned_to_a_savepoint_keeps_every_row(tmp_path: Path, epoch: int) -> None:
    """A savepoint is kept for years; its table is whole whenever one returns to it, twice too."""
    run = counting(tmp_path)
    go_on(run, epoch)
    run.root.pin("good")
    go_on(run, 20)

    for _ in range(2):
        run.root.rewind("clicks", "good")
        for further in (epoch + 1, epoch + 5, epoch + 14):
            go_on(run, further)
    run.root.unpin("good")
    go_on(run, 30)
    assert audit(run.root).audited.verdict is Verdict.VALID


def test_a_fork_of_a_fork_of_a_savepoint_keeps_every_row(tmp_path: Path) -> None:
    """However often history is cut, the walk goes back to the index."""
    run = counting(tmp_path)
    go_on(run, 6)
    run.root.pin("good")
    go_on(run, 18)

    first = forked(run, "good", tmp_path / "first")
    go_on(first, 8)
    second = forked(first, Epoch(7), tmp_path / "second")

    go_on(second, 20)
    go_on(first, 20)
    assert audit(second.root).audited.verdict is Verdict.VALID


@pytest.mark.parametrize("epoch", [5, 7], ids=["listed by its index", "behind its index"])
def test_a_file_that_only_a_savepoint_needs_is_missed(tmp_path: Path, epoch: int) -> None:
    """Audit and fsck looked at what HEAD needs; going back to the savepoint would have made the
    loss history."""
    run = counting(tmp_path)
    go_on(run, 8)
    run.root.pin("good")
    mine = list((tmp_path / "root" / "tables").rglob(f"{epoch:012d}/*.arrow"))
    run.root.rewind("clicks", Epoch(3))
    go_on(run, 16)
    assert audit(run.root).audited.verdict is Verdict.VALID
    for file in mine:
        file.unlink()

    checks = {check.name: check for check in audit(run.root).audited.checks}
    fsck, restore = command("fsck", run.url), command("restore", run.url, "--at", "good", "--yes")

    assert checks["objects"].verdict is Verdict.INVALID
    assert fsck.exit_code == 1
    assert f"{epoch:012d}" in fsck.output
    assert restore.exit_code == 2
    assert "is missing, though epoch 8 needs it" in " ".join(restore.output.split())
    assert run.root.head().epoch == 16
