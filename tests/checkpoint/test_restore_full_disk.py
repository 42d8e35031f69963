"""A disk that is full while a partition is restored: said at once, with the file and a way out."""

import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.checkpoint import MemoryStore
from penstock.errors import Unavailable
from tests.support.small_job import SmallJob


@contextmanager
def full_disk(size_bytes: int) -> Iterator[None]:
    """No file of this process may grow beyond so many bytes: the kernel itself refuses."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def job(tmp_path: Path) -> SmallJob:
    """A job whose third epoch has cut a snapshot."""
    made = SmallJob(MemoryStore(), tmp_path / "host")
    for number in range(1, 5):
        made.epoch({"ann": number})
    return made


def refusal(job: SmallJob) -> Unavailable:
    with full_disk(4), pytest.raises(Unavailable) as caught:
        job.open()
    return caught.value


def test_a_full_disk_while_files_are_fetched_is_named(job: SmallJob, tmp_path: Path) -> None:
    """The same opening succeeds once there is room: nothing half-written is in its way."""
    job.host = tmp_path / "new-host"

    error = refusal(job)

    assert error.subject.startswith(f"file {tmp_path / 'new-host'}")
    assert error.found == "could not be written while state was restored (File too large)"
    assert "free space in" in error.advice
    assert [path.name for path in job.host.rglob("*.part")] == []
    assert job.contents() == job.expected


def test_a_full_disk_while_files_are_laid_is_named(job: SmallJob) -> None:
    """The files are here, and the database is not: laying it writes small files anew."""
    for database in job.folder.path.glob("db-*"):
        if database.is_dir():
            shutil.rmtree(database)

    error = refusal(job)

    assert error.subject.startswith(f"file {job.folder.path}")
    assert error.found == "could not be written while state was restored (File too large)"
    assert job.contents() == job.expected
