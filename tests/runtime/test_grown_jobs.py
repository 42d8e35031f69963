"""A job that grows: operators added later, and partitions that have no state yet."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.chaos.audit import audit
from penstock.chaos.findings import Verdict
from penstock.checkpoint.collector import Retention
from penstock.checkpoint.fork import fork
from penstock.checkpoint.root import Root
from penstock.checkpoint.snapshots import SnapshotPolicy
from penstock.errors import Invalid
from penstock.runtime import loop as epoch_loop
from penstock.runtime.cli_history import _further
from tests.support.in_process import SETTINGS, LocalRun, append, click, clicks_log

Rows = Iterator[dict[str, Any]]


@ps.stateful(emits="user string, total long")
def count(user: str, events: ps.Events, so_far: ps.Value[int]) -> Rows:
    """Sums per user."""
    so_far.set(so_far.get(0) + sum(events.values("n")))
    yield {"user": user, "total": so_far.get()}


@ps.stateful(emits="user string", each=True)
def echo(user: str, event: ps.Event, unused: ps.Value[int]) -> Rows:
    """Declares a state and never writes it."""
    yield {"user": user}


ONE_ROW = replace(
    SETTINGS,
    limits=ps.Limits(records=1),
    collect_every=1,
    retention=Retention(epochs=4, age_s=0, grace_s=0),
    snapshots=SnapshotPolicy(every_epochs=9),
)


@pytest.fixture(autouse=True)
def _indexed_every_four_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch_loop, "INDEX_EVERY", 4)


def growing(folder: Path, log: ps.Log, *functions: Any, partitions: int = 1) -> LocalRun:
    """A job with so many operators on one stream."""
    job = ps.Job("clicks", partitions=partitions)
    keyed = job.read(log, name="clicks").key_by("user")
    for number, function in enumerate(functions):
        keyed.process(function, name=f"op{number}").write(ps.Table(f"t{number}"))
    return LocalRun(job, folder)


def to(run: LocalRun, epoch: int) -> None:
    """Run up to an epoch; the first table must have a row for each."""
    run.run(replace(ONE_ROW, epochs_max=epoch))
    assert run.rows("t0", "total") == [(n,) for n in range(1, epoch + 1)]


@pytest.mark.parametrize("added", [count, echo], ids=["counts", "keeps nothing"])
def test_an_operator_that_is_added_later_has_no_past(tmp_path: Path, added: Any) -> None:
    """History before it may be gone, and does not concern it: not at a start, not in a fork, not
    when that history is collected."""
    log = clicks_log(tmp_path)
    append(log, [click("ada", 1, n) for n in range(40)])
    to(growing(tmp_path, log, count), 14)
    run = growing(tmp_path, log, count, added)

    for epoch in (15, 16, 30):
        to(run, epoch)
        assert run.root.check().clean
        assert audit(run.root).audited.verdict is Verdict.VALID
    fork(run.root, None, Root.open(str(tmp_path / "fork" / "root")), _further(run.root))
    to(growing(tmp_path / "fork", log, count, added), 33)


def test_a_partition_without_state_does_not_keep_history(tmp_path: Path) -> None:
    """Fewer keys than partitions is ordinary; manifests must not pile up for ever because of it."""
    log = clicks_log(tmp_path)
    append(log, [click("ada", 1, n) for n in range(40)])
    run = growing(tmp_path, log, count, partitions=3)

    to(run, 40)

    assert run.root.head().floor > 30
    assert len(run.root.store.list("manifests/")) < 25


def test_a_quarantine_over_different_keys_is_refused(tmp_path: Path) -> None:
    """A letter of the second stream would be replayed under the key of the first."""
    log = clicks_log(tmp_path)
    job = ps.Job("clicks", partitions=1)
    first = job.read(log, name="a").key_by("user")
    shops = ps.Log.create(str(tmp_path / "shops"), pa.schema([("shop", pa.string())]))
    second = job.read(shops, name="b").key_by("shop")
    ps.merge(first, second).process(echo, on_error="quarantine").write(ps.Table("t"))

    with pytest.raises(Invalid) as caught:
        LocalRun(job, tmp_path).run(ONE_ROW)

    assert str(caught.value) == (
        "operator 'echo' quarantines events that are keyed by different columns (shop and user): a "
        "dead letter could not be replayed under its own key: give the columns one name in a "
        "transform before key_by."
    )
