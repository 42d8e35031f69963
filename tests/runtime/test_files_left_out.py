"""Files that hold what cannot be read: nothing of it vanishes without a trace."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from tests.support.in_process import LocalRun
from tests.support.letters import command

LINES = 1001
UNDECODABLE = "in.undecodable"


@ps.stateful(emits="user string, n long", each=True)
def echo(user: str, event: ps.Event) -> Iterator[dict[str, Any]]:
    """Every event as it is."""
    yield {"user": user, "n": event.n}


def job_of(folder: Path, poison: str) -> LocalRun:
    source = ps.Files(
        str(folder / "in"),
        record=str(folder / "record"),
        schema=pa.schema([("user", pa.string()), ("n", pa.int64())]),
        settle_s=0,
        poison=poison,  # type: ignore[arg-type]
    )
    job = ps.Job("lines", partitions=1)
    job.read(source, name="in").key_by("user").process(echo).write(ps.Table("out"))
    return LocalRun(job, folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A file whose first line is bad, one that is no Parquet, and one with a bad line inside."""
    (tmp_path / "in").mkdir()
    good = [f'{{"user": "u", "n": {n}}}' for n in range(LINES)]
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(["oops", *good]) + "\n")
    (tmp_path / "in" / "b.parquet").write_bytes(b"no parquet at all, not even a little")
    (tmp_path / "in" / "c.jsonl").write_text(f'{good[0]}\n{{"user": "u", "n": "x"}}\n{good[1]}\n')
    return tmp_path


def test_all_that_is_left_out_is_in_the_commit(folder: Path) -> None:
    """A bad first line used to drop a thousand rows, and nothing told of it."""
    run = job_of(folder, "quarantine")
    run.run()

    assert len(run.rows("out", "n")) == LINES + 2
    left = run.rows(UNDECODABLE, "_error", "value", "_source", "_source_partition")
    assert [row[1] for row in left] == [b"oops", None, b'{"user": "u", "n": "x"}']
    assert [row[0].partition(":")[0] for row in left] == [
        "file a.jsonl, byte 0",
        "file b.parquet",
        "file c.jsonl, byte 22",
    ]
    assert {row[2:] for row in left} == {("in", "0")}


def test_it_is_shown_among_the_dead_letters(folder: Path) -> None:
    """Where people look for what was not processed."""
    run = job_of(folder, "quarantine")
    run.run()

    told = command("dead-letters", "list", run.url, "--json")

    assert told.exit_code == 0
    assert told.output.count('"state"') == 3
    assert "file b.parquet" in told.output
