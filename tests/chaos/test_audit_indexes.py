"""An audit proves the indexes of tables: it does not read a table by the list that it judges."""

import tarfile
from pathlib import Path

import pytest

from penstock.chaos.audit import Audit, audit
from penstock.chaos.findings import Check, Verdict
from penstock.checkpoint import Chain, Draft, Root, perform
from penstock.checkpoint.manifest import Manifest, TableIndex
from penstock.ids import Attempt, Epoch
from penstock.sinks import TableTail, extend_index
from tests.support.tables import TableJob

ROOTS = Path(__file__).parent / "roots"


def of_table(found: Audit) -> Check:
    """What an audit says of the table."""
    return next(check for check in found.audited.checks if check.name == "table totals")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("fork-at-20", "up to epoch 51 does not list epochs 2 to 19 (18 files with 18 rows)"),
        ("restore-at-90", "up to epoch 101 does not list epochs 52 to 80 (29 files with 29 rows)"),
    ],
)
def test_rows_that_an_older_version_lost_are_named(tmp_path: Path, name: str, told: str) -> None:
    """Roots whose tables lost rows to a fork and a restore, written by the version that did it."""
    with tarfile.open(ROOTS / f"{name}.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")

    found = audit(Root.open(str(tmp_path / "root")))

    assert found.audited.verdict is Verdict.INVALID
    assert [str(each) for each in of_table(found).violations] == [
        f"the index of table totals {told}, which their manifests have added"
    ]


def job_with_an_index(index_of: tuple[int, ...], later: int = 0) -> TableJob:
    """Three epochs of one file each, then an index of some of them, stored by whatever mistake."""
    job = TableJob()
    manifests = [job.write_users("ann") for _ in range(3)]
    commit_index(job, manifests, index_of)
    for _ in range(later):
        job.write_users("bob", index=True)
    return job


def commit_index(job: TableJob, manifests: list[Manifest], index_of: tuple[int, ...]) -> None:
    outputs = tuple(
        manifest.sinks["totals"] if manifest.epoch in index_of else () for manifest in manifests
    )
    tail = TableTail(None, Epoch(0), outputs)
    made = extend_index(Chain(), "totals", tail, Epoch(len(manifests) + 1), Attempt("made"), None)
    index: TableIndex = perform(made, job.root.handlers)
    job.session.commit(Draft(sinks={"totals": ()}, tables={"totals": index}))


def test_an_index_that_lists_all_is_proved() -> None:
    """Otherwise the tests below would show nothing."""
    found = of_table(audit(job_with_an_index((1, 2, 3)).root))

    assert (found.verdict, found.counted["indexes proved"]) == (Verdict.VALID, 1)


@pytest.mark.parametrize(
    ("index_of", "told"),
    [
        ((1, 3), "epoch 2 (1 files with 1 rows)"),
        ((3,), "epochs 1 to 2 (2 files with 2 rows)"),
        ((), "epochs 1 to 3 (3 files with 3 rows)"),
    ],
)
def test_epochs_that_an_index_leaves_out_are_named(index_of: tuple[int, ...], told: str) -> None:
    """From the manifests that are still kept."""
    found = of_table(audit(job_with_an_index(index_of).root))

    assert str(found.violations[0]) == (
        f"the index of table totals up to epoch 3 does not list {told}, "
        "which their manifests have added"
    )


def test_a_file_that_an_index_lost_is_missed_when_its_manifest_is_gone() -> None:
    """The tally goes on when history does not."""
    job = TableJob()
    manifests = [job.write_users("ann") for _ in range(3)]
    commit_index(job, manifests, (1, 3))
    job.collect()
    job.session.commit(Draft(sinks={"totals": ()}, tables=job.session.manifest.tables))
    job.collect()
    assert job.root.head().floor == 4

    found = of_table(audit(job.root))

    assert found.verdict is Verdict.INVALID
    assert str(found.violations[0]) == (
        "the index of table totals up to epoch 3 lists 2 files with 2 rows up to epoch 3, and the "
        "chain has counted 3 with 3, or others"
    )


def test_what_was_begun_without_a_tally_is_unknown_once_its_manifests_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What nothing proves is not called valid."""
    monkeypatch.setattr("penstock.checkpoint.leader.tally_after", lambda *facts: None)
    job = TableJob()
    for _ in range(3):
        job.write_users("ann")
    job.write_users("ann", index=True)
    job.collect()
    monkeypatch.undo()
    for _ in range(3):
        job.write_users("bob", index=True)
        job.collect()

    found = of_table(audit(job.root))

    assert (found.verdict, found.violations) == (Verdict.UNKNOWN, ())
    assert [str(each) for each in found.unknown] == [
        "table totals, epochs 1 to 4: their manifests were given up before the root counted files "
        "along its chain"
    ]
