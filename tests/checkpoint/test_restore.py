import os
import shutil
from pathlib import Path

import pytest

from penstock.checkpoint import Draft, MemoryStore, Retention
from penstock.checkpoint.restore import Way
from penstock.checkpoint.snapshots import SnapshotPolicy
from penstock.errors import Corrupt, Unavailable
from penstock.ids import Key
from penstock.state.host import HostFolder
from tests.support.faulty_store import ALWAYS, FaultyStore
from tests.support.small_job import OPERATOR, SmallJob


@pytest.fixture
def job(tmp_path: Path) -> SmallJob:
    return SmallJob(MemoryStore(), tmp_path / "host")


def run_epochs(job: SmallJob, count: int) -> None:
    for number in range(count):
        epoch = job.session.head.epoch + 1
        job.epoch({f"user{epoch % 5}": epoch, f"once{number}": 1, f"once{number - 2}": None})


def test_a_database_on_the_lineage_is_brought_up_to_date(job: SmallJob) -> None:
    """The usual case: one new delta, taken in from this host's own copy."""
    run_epochs(job, 2)
    opened = job.open()
    opened.close()
    assert (opened.restore.way, opened.restore.deltas, opened.restore.downloads) == (
        Way.LOCAL_DATABASE,
        1,
        0,
    )
    assert job.contents() == job.expected


def test_a_new_host_restores_from_the_store(job: SmallJob, tmp_path: Path) -> None:
    """A partition that moves needs nothing of where it was."""
    run_epochs(job, 8)
    job.host = tmp_path / "other"
    opened = job.open()
    opened.close()
    assert opened.restore.way is Way.STORE_FILES
    assert job.contents() == job.expected


def test_a_partition_that_comes_back_catches_up(job: SmallJob, tmp_path: Path) -> None:
    """What was left behind is still on the lineage, only older."""
    job.policy = SnapshotPolicy(every_epochs=100)
    run_epochs(job, 2)
    job.host = tmp_path / "other"
    run_epochs(job, 2)
    job.host = tmp_path / "host"
    opened = job.open()
    opened.close()
    assert opened.restore.way is Way.LOCAL_DATABASE
    assert job.contents() == job.expected


def test_files_kept_here_are_used_when_the_database_is_lost(job: SmallJob) -> None:
    """Second choice: no download."""
    run_epochs(job, 8)
    for path in job.folder.path.glob("db-*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    opened = job.open()
    opened.close()
    assert (opened.restore.way, opened.restore.downloads) == (Way.LOCAL_FILES, 0)
    assert job.contents() == job.expected


def test_a_lost_snapshot_is_replaced_by_the_whole_changelog(job: SmallJob, tmp_path: Path) -> None:
    """Last choice of this room: every delta there ever was."""
    run_epochs(job, 8)
    for file in job.lineage().files:
        job.store.delete(file.ref.key)
    job.host = tmp_path / "other"
    opened = job.open()
    opened.close()
    assert opened.restore.way is Way.CHANGELOG
    assert job.contents() == job.expected


def test_a_lost_delta_is_named(job: SmallJob, tmp_path: Path) -> None:
    """When nothing is left to restore from, a person must know what to look for."""
    run_epochs(job, 2)
    lost = job.lineage().deltas[0][1].ref.key
    job.store.delete(lost)
    job.host = tmp_path / "other"
    with pytest.raises(Corrupt, match=lost):
        job.open()


def test_an_altered_snapshot_file_is_not_believed(job: SmallJob, tmp_path: Path) -> None:
    """What does not hash is not opened, whatever it looks like."""
    run_epochs(job, 8)
    victim = next(file for file in job.lineage().files if file.name.endswith(".sst"))
    stored = job.store.get(victim.ref.key)
    assert stored is not None
    job.store.put(victim.ref.key, stored.body[:-1] + b"\0")
    job.host = tmp_path / "other"
    opened = job.open()
    opened.close()
    assert opened.restore.way is Way.CHANGELOG
    assert job.contents() == job.expected


def test_an_altered_local_delta_is_fetched_again(job: SmallJob) -> None:
    """A name and a size prove nothing: the hash does."""
    run_epochs(job, 1)
    path = next((job.folder.path / "deltas").iterdir())
    path.write_bytes(b"\0" * path.stat().st_size)
    opened = job.open()
    opened.close()
    assert (opened.restore.discarded, opened.restore.downloads) == (1, 1)
    assert job.contents() == job.expected


def test_an_epoch_that_never_became_real_is_thrown_away(job: SmallJob) -> None:
    """A database that took in a delta nobody committed is ahead of the truth."""
    run_epochs(job, 1)
    opened = job.open()
    state = job.attempt(opened, {"ghost": 1})
    assert state.delta is not None
    path = job.folder.delta(job.session.head.epoch + 1, state.delta.attempt)
    opened.database.ingest([path])
    opened.close()

    again = job.open()
    again.close()

    assert again.restore.discarded == 1
    assert "ghost" not in job.contents()


def test_a_second_attempt_does_not_wait_for_the_first(job: SmallJob) -> None:
    """The first may be dead, stopped or slow; the second takes another folder."""
    run_epochs(job, 2)
    first = job.open()
    second = job.open()
    assert first.folder.path != second.folder.path
    one, two = job.attempt(first, {"x": 1}), job.attempt(second, {"x": 1})
    assert one.delta is not None and two.delta is not None
    assert one.delta.ref.key != two.delta.ref.key
    second.close()
    first.close()
    assert job.contents() == job.expected


def test_two_attempts_keep_their_own_deltas(job: SmallJob) -> None:
    """The one that commits must not find the other's changes under its own name."""
    first, second = job.open(), job.open()
    one, two = job.attempt(first, {"x": 1}), job.attempt(second, {"x": 2})
    job.session.commit(Draft(operators={OPERATOR: {0: one}}))
    second.close()
    first.close()
    assert two.delta is not None
    opened = job.open()
    opened.close()
    assert (job.contents(), opened.restore.discarded) == ({"x": 1}, 0)


def test_files_of_the_same_size_are_not_mixed_up(job: SmallJob, tmp_path: Path) -> None:
    """Two states that differ in one value make files of one size."""
    job.policy = SnapshotPolicy(every_epochs=1, growth=0.0)
    for value in range(1, 7):
        job.epoch({"a": value})
    job.host = tmp_path / "other"
    opened = job.open()
    opened.close()
    assert (opened.restore.way, job.contents()) == (Way.STORE_FILES, {"a": 6})


def test_a_store_that_is_away_costs_nothing_of_what_is_here(job: SmallJob, tmp_path: Path) -> None:
    """The database that only lacks a delta is let go, and serves when the store is back."""
    run_epochs(job, 1)
    home, job.host = job.host, tmp_path / "elsewhere"
    run_epochs(job, 1)
    job.host = home
    store, job.restorer.store = job.restorer.store, FaultyStore(job.store, {"download": ALWAYS})
    with pytest.raises(Unavailable):
        job.open()
    job.restorer.store = store

    opened = job.open()

    assert opened.restore.way is Way.LOCAL_DATABASE
    opened.close()


def test_an_opening_that_downloads_keeps_the_disk_within_its_budget(
    job: SmallJob, tmp_path: Path
) -> None:
    """Leftovers of a job that is no more make room; what is open stays."""
    run_epochs(job, 3)
    job.host = tmp_path / "elsewhere"
    left = job.host / "gone" / "op" / "0" / "db-left"
    left.mkdir(parents=True)
    (left / "000001.sst").write_bytes(bytes(1 << 20))
    os.utime(left, (1, 1))
    job.restorer.host = HostFolder(job.host, job.chance, budget_bytes=1 << 20)

    opened = job.open()

    assert opened.restore.downloads > 0
    assert not left.exists()
    assert opened.folder.path.exists()
    opened.close()


def test_a_database_of_another_job_is_not_touched_by_this_one(job: SmallJob) -> None:
    """Folders swapped between partitions are noticed by the marker inside."""
    run_epochs(job, 2)
    stranger = job.folder.path.parent / "1"
    shutil.copytree(job.folder.path, stranger)
    other = SmallJob(MemoryStore(), job.host)
    shutil.rmtree(other.folder.path)
    job.folder.path.mkdir(exist_ok=True)
    assert other.contents() == {}


def test_an_unused_snapshot_uploads_nothing(tmp_path: Path) -> None:
    """Between two cuts a snapshot only names what is there already."""
    store = MemoryStore()
    job = SmallJob(store, tmp_path / "host", SnapshotPolicy(every_epochs=2, growth=100.0))
    job.epoch({f"user{number}": number for number in range(500)})
    run_epochs(job, 1)
    files = len(store.list("snapshots/"))
    run_epochs(job, 6)
    assert len(store.list("snapshots/")) == files > 0
    assert job.lineage().deltas != ()
    assert job.contents() == job.expected


def test_collection_keeps_what_a_restore_needs(job: SmallJob, tmp_path: Path) -> None:
    """Snapshots name older files and deltas again; the collector must see that."""
    for _ in range(12):
        run_epochs(job, 1)
        job.session.collect(Retention(epochs=1, age_s=0, grace_s=0), {})
        job.host = tmp_path / f"host{job.session.head.epoch}"
        assert job.contents() == job.expected
    assert job.root.check().wrong == []


def test_an_idle_partition_writes_nothing(job: SmallJob) -> None:
    """An empty epoch of an idle partition costs no object but the manifest."""
    run_epochs(job, 1)
    before = {entry.key for entry in job.store.list("")}
    job.epoch({})
    after = {entry.key for entry in job.store.list("")}
    assert [Key(key).split("/")[0] for key in after - before] == ["manifests"]
