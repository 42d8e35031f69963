from pathlib import Path

import pytest

from penstock.checkpoint import MemoryStore, Retention
from penstock.checkpoint.changelog import read_changelog
from penstock.errors import Gone
from penstock.ids import Epoch
from penstock.state.keys import decode_key
from penstock.state.values import Codec
from tests.support.small_job import OPERATOR, SmallJob

CODEC: Codec[int] = Codec(int, "total")


def changes(job: SmallJob, first: int, last: int, scratch: Path) -> list[tuple[int, str, object]]:
    read = read_changelog(job.root, (OPERATOR, 0), Epoch(first), Epoch(last), scratch)
    return [
        (c.epoch, decode_key(c.entry, 4)[0], None if c.value is None else CODEC.decode(c.value))
        for c in read
    ]


def test_changes_come_epoch_by_epoch_with_removals(tmp_path: Path) -> None:
    """State changes as a stream, for those who want them as one."""
    job = SmallJob(MemoryStore(), tmp_path / "host")
    job.epoch({"a": 1})
    job.epoch({})
    job.epoch({"a": None, "b": 2})

    assert changes(job, 1, 3, tmp_path / "s") == [(1, "a", 1), (3, "a", None), (3, "b", 2)]
    assert changes(job, 2, 2, tmp_path / "s") == []
    assert list((tmp_path / "s").iterdir()) == []


def test_a_stream_that_was_given_up_is_not_begun_in_the_middle(tmp_path: Path) -> None:
    """A reader that fell behind must know."""
    job = SmallJob(MemoryStore(), tmp_path / "host")
    for number in range(6):
        job.epoch({"a": number})
        job.session.collect(Retention(epochs=2, age_s=0, grace_s=0), {})

    with pytest.raises(Gone, match="not from 1"):
        changes(job, 1, 6, tmp_path / "s")
