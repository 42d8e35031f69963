"""What `penstock run` says of a job or a call that is wrong, before Spark is started."""

from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock.checkpoint import Draft, PartitionState, Root
from penstock.runtime.cli import app

GOOD = """
import penstock as ps

@ps.stateful(emits="user string, n long")
def count(user: str, events: ps.Events, n: ps.Value[int]):
    n.set(n.get(0) + len(events))
    yield {{"user": user, "n": n.get()}}

job = ps.Job("clicks", partitions=2)
job.read(ps.Log({log!r})).key_by({key!r}).process(count).write(ps.Table("totals"))
"""


@pytest.fixture
def log(tmp_path: Path) -> str:
    schema = pa.schema([("user", pa.string()), ("n", pa.int64())])
    return ps.Log.create(str(tmp_path / "log"), schema).url


def said(tmp_path: Path, code: str, *options: str) -> str:
    """What is said of a job file; every one here is refused."""
    file = tmp_path / "job.py"
    file.write_text(code)
    root = () if "--root" in options else ("--root", str(tmp_path / "root"))
    done = CliRunner(env={"COLUMNS": "500"}).invoke(app, ["run", str(file), *root, *options])
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output
    return " ".join(done.output.replace(str(file), "job.py").split())


def test_a_file_that_is_not_python_is_refused_with_its_line(tmp_path: Path) -> None:
    """The first thing that goes wrong is a typing mistake."""
    told = said(tmp_path, "import penstock as ps\njob = = 3\n")
    assert told == "penstock: file job.py, line 2 is not Python (invalid syntax): correct it."


def test_a_file_that_does_not_import_is_refused_with_its_line(tmp_path: Path) -> None:
    """A missing module is named, without a traceback."""
    told = said(tmp_path, "\nimport no_such_module_anywhere\n")
    assert told.startswith("penstock: file job.py, line 2 does not import (ModuleNotFoundError: ")


def test_a_file_without_a_job_is_refused(tmp_path: Path) -> None:
    """The name of the variable does not matter; that there is a job does."""
    assert "describes no job" in said(tmp_path, "x = 1\n")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A wrong path is no traceback."""
    done = CliRunner().invoke(app, ["run", str(tmp_path / "no.py"), "--root", str(tmp_path)])
    assert (done.exit_code, "is not there" in done.output) == (2, True)


def test_a_function_that_is_no_generator_is_refused(tmp_path: Path) -> None:
    """Returning rows instead of yielding them is the most common slip."""
    code = (
        'import penstock as ps\n\n@ps.stateful(emits="n long")\n'
        "def count(user: str, events: ps.Events):\n    return [{'n': 1}]\n"
    )
    told = said(tmp_path, code)
    assert "function 'count' says what it emits and is no generator" in told


def test_an_unknown_key_column_is_named(tmp_path: Path, log: str) -> None:
    """A job is checked before anything is started."""
    told = said(tmp_path, GOOD.format(log=log, key="usr"))
    assert "operator 'count' is keyed by 'usr', which 'log' does not have" in told
    assert "use one of user, n" in told


def test_a_log_that_is_not_there_is_named(tmp_path: Path) -> None:
    """Nothing is created by looking for it."""
    told = said(tmp_path, GOOD.format(log=str(tmp_path / "nowhere"), key="user"))
    assert "nowhere" in told
    assert not (tmp_path / "nowhere").exists()


def test_a_root_of_another_job_is_refused(tmp_path: Path, log: str) -> None:
    """Two jobs on one root would overwrite each other's history."""
    with Root.open(str(tmp_path / "root")).lead("other") as session:
        session.commit(Draft())
    told = said(tmp_path, GOOD.format(log=log, key="user"))
    assert "belongs to job 'other', not to 'clicks'" in told
    assert Root.open(str(tmp_path / "root")).head().token == 1


def test_another_number_of_partitions_is_refused_with_what_to_do(tmp_path: Path, log: str) -> None:
    """State is where its key group was; moving it is not done in passing."""
    states = {number: PartitionState() for number in range(4)}
    with Root.open(str(tmp_path / "root")).lead("clicks") as session:
        session.commit(Draft(operators={"count": states}))
    told = said(tmp_path, GOOD.format(log=log, key="user"))
    assert "the number of partitions was 4 and is 2 now" in told
    assert "run it with partitions=4" in told


def test_an_operator_that_is_gone_is_refused(tmp_path: Path, log: str) -> None:
    """Its state would be forgotten silently."""
    with Root.open(str(tmp_path / "root")).lead("clicks") as session:
        session.commit(Draft(operators={"old": {0: PartitionState(), 1: PartitionState()}}))
    told = said(tmp_path, GOOD.format(log=log, key="user"))
    assert "the state of operator 'old' was kept and is gone now" in told


def test_an_unreachable_master_is_said_at_once(tmp_path: Path, log: str) -> None:
    """Spark itself would try for a minute."""
    told = said(tmp_path, GOOD.format(log=log, key="user"), "--master", "spark://127.0.0.1:1")
    assert "Spark master spark://127.0.0.1:1 does not answer" in told


def test_a_missing_java_is_said_at_once(
    tmp_path: Path, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new machine often has none."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    told = said(tmp_path, GOOD.format(log=log, key="user"), "--master", "local[1]")
    assert "Java was not found: install Java 17 or newer" in told


def test_settings_that_results_depend_on_cannot_be_changed(tmp_path: Path, log: str) -> None:
    """A lost shuffle must fail the epoch whole."""
    options = ("--conf", "spark.stage.maxConsecutiveAttempts=4", "--master", "local[1]")
    told = said(tmp_path, GOOD.format(log=log, key="user"), *options)
    assert "setting spark.stage.maxConsecutiveAttempts is given as '4'" in told


def test_an_unknown_guarantee_is_refused(tmp_path: Path, log: str) -> None:
    """A misspelt promise must not pass for none."""
    told = said(tmp_path, GOOD.format(log=log, key="user"), "--require", "exactly-twice")
    assert "exactly-twice" in told


def test_a_root_in_memory_is_refused(tmp_path: Path, log: str) -> None:
    """A job runs in several processes."""
    told = said(tmp_path, GOOD.format(log=log, key="user"), "--root", "memory://x")
    assert "is in the memory of one process, and a job runs in several" in told
