"""`penstock chaos`: what it says to what it cannot use, before anything is started."""

import builtins
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from penstock import chaos
from penstock.__main__ import app
from penstock.chaos.asked import Asked
from penstock.chaos.findings import Verdict
from penstock.chaos.history import Family
from penstock.chaos.inputs import START_MS, generated_for
from penstock.chaos.invariants import Observed, check_invariants, invariants_of
from penstock.chaos.stage import staged_at
from penstock.checkpoint.root import Root
from penstock.clock import SystemClock
from penstock.errors import Invalid
from penstock.runtime.loading import load_job
from tests.support.in_process import LocalRun

JOB = """
import pyarrow as pa
import penstock as ps

COLUMNS = pa.schema([("user", pa.string()), ("n", pa.int64())])

@ps.stateful(emits="user string, n long")
def count(user: str, events: ps.Events, seen: ps.Value[int]):
    seen.set(seen.get(0) + len(events))
    yield {"user": user, "n": seen.get()}

job = ps.Job("counts", partitions=2)
source = ps.Rate(columns=COLUMNS, rows=60, key="user", keys=9)
job.read(source, name="clicks").key_by("user").process(count).write(ps.Table("totals"))

@ps.invariant
def adds_up(found):
    counted = sum(each["seen"] for each in found.state("count").values())
    return counted == found.events("clicks").num_rows

@ps.invariant
def is_wrong(found):
    return f"{found.table('totals').num_rows} rows"

@ps.invariant
def falls_over(found):
    raise KeyError("nothing")

@ps.invariant
def asserts(found):
    assert found.table("totals").num_rows < 0, "there are rows"
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job's file, of which we know nothing but that it is one."""
    file = tmp_path / "counts.py"
    file.write_text(JOB)
    return file


def penstock(*words: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["chaos", *map(str, words)], env={"COLUMNS": "400"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, " ".join(done.output.split())


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    """In a sentence, and nothing is started."""
    code, said = penstock(tmp_path / "none.py", "--root", "folder")

    assert code == 2
    assert "none.py is not there: check its name" in said


def test_an_unknown_kind_of_fault_is_refused(job: Path) -> None:
    """Nobody wants to find out after a quarter of an hour that a word was misspelt."""
    code, said = penstock(job, "--faults", "executor,gremlin")

    assert code == 2
    assert "--faults gremlin is unknown: use some of executor,worker,driver" in said


def test_a_report_is_not_written_over(job: Path, tmp_path: Path) -> None:
    """What was found once stays."""
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "chaos.html").write_text("kept")

    code, said = penstock(job, "--report", tmp_path / "report")

    assert code == 2
    assert "report is there and not empty: name another, or remove it" in said
    assert (tmp_path / "report" / "chaos.html").read_text() == "kept"


def test_a_root_with_a_job_on_it_is_left_alone(job: Path, tmp_path: Path) -> None:
    """A typing mistake must not put a job in production through chaos."""
    with Root.open(str(tmp_path / "root")).lead("precious"):
        pass
    before = Root.open(str(tmp_path / "root")).head()

    code, said = penstock(job, "--root", tmp_path / "root")

    assert code == 2
    assert "is where job precious lives already: name a place where nothing is" in said
    assert Root.open(str(tmp_path / "root")).head() == before


def test_a_store_that_is_away_is_said_at_once(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Spark is started six times in vain."""
    for name, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "a-secret-nobody-may-see",
        "AWS_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
    }.items():
        monkeypatch.setenv(name, value)

    code, said = penstock(job, "--root", "s3://bucket/chaos")

    assert code == 2
    assert "nothing answers at http://127.0.0.1:9" in said
    assert "a-secret-nobody-may-see" not in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--input", "clicks"], "--input clicks names no topic: write source=topic's URL"),
        (["--root", "gs://bucket"], "root gs://bucket is no place for a chaos run"),
        (["--input", "orders=somewhere", "--root", "folder"], "orders"),
        (["--faults", "", "--root", "folder"], "is asked for no fault"),
        (["--faults", "store", "--root", "folder"], "asks for no fault that can happen to it"),
        (["--faults", "sink", "--root", "folder"], "the job has no sink outside its root"),
        (["--rate", "10", "--duration", "30"], "lasts 30 s, and events at a rate come after 20 s"),
        (["--master", "spark://host:7077"], "do not reach a store of this host's own (--root s3)"),
        (["--rate", "10", "--root", "folder"], "--rate is given without --records and --duration"),
    ],
)
def test_what_cannot_be_done_is_named(job: Path, words: list[str], says: str) -> None:
    """Each with what to do instead."""
    code, said = penstock(job, *words)

    assert code == 2
    assert says in said


def test_the_command_repeats_what_was_asked(job: Path) -> None:
    """It stands in the report, for whoever wants to see it again."""
    asked = Asked(
        file="jobs/my job.py", seed=7, faults=frozenset({Family.DISK, Family.STORE}), epochs=30,
        records=1_000, inputs={"clicks": "data/clicks"},
    )  # fmt: skip

    assert asked.command() == (
        "penstock chaos 'jobs/my job.py' --seed 7 --faults disk,store --epochs 30 --records 1000 "
        "--input clicks=data/clicks"
    )
    assert asked.rows_per_epoch == 34


def test_made_up_events_have_the_jobs_keys(job: Path) -> None:
    """Keys that never come again would test no state."""
    asked = Asked(file=str(job), seed=5, records=900)
    found = generated_for(load_job(str(job)), asked, 0, ())

    assert list(found) == ["clicks"]
    made = found["clicks"]
    assert (made.key, made.keys, made.records, made.seed) == ("user", 9, 900, 5)
    assert (made.burst_rows, made.start_ms) == (11, START_MS)
    assert generated_for(load_job(str(job)), asked, 0, {"clicks"}) == {}


def test_events_at_a_rate_come_while_there_are_faults(job: Path) -> None:
    """To the end of a run that has one, and else the run lasts as long as they come; not before a
    driver can have started."""
    for_a_minute = Asked(file=str(job), rate=10.0, duration_s=60.0)
    so_many = Asked(file=str(job), rate=10.0, records=400)

    assert (for_a_minute.made_up, for_a_minute.seconds) == (600, 60.0)
    assert (so_many.made_up, so_many.seconds) == (400, 69.0)
    assert for_a_minute.command().endswith("--epochs 60 --rate 10.0 --duration 60.0")
    made = generated_for(load_job(str(job)), so_many, 5_000, ())["clicks"]
    assert (made.records, made.rows_per_s, made.start_ms) == (400, 5.0, 25_000)
    assert made.burst_rows is None


@pytest.mark.parametrize("answer", [False, np.False_, pa.scalar(False), "no", 0, []], ids=repr)
def test_whatever_is_false_is_an_objection(answer: object) -> None:
    """The most natural comparison over Arrow gives no False of Python's."""
    nothing: Any = None

    assert check_invariants([lambda found: answer], nothing).verdict is Verdict.INVALID


@pytest.mark.parametrize("answer", [None, True, np.True_, pa.scalar(True), "", 3], ids=repr)
def test_whatever_is_true_is_none(answer: object) -> None:
    """An invariant that asserts answers nothing."""
    nothing: Any = None

    assert check_invariants([lambda found: answer], nothing).verdict is Verdict.VALID


def test_invariants_of_ones_own_are_asked(job: Path, tmp_path: Path) -> None:
    """False, a sentence and an assertion are wrong; whatever else is raised is unknown."""
    loaded = load_job(str(job))
    run = LocalRun(loaded, tmp_path)
    run.run()
    functions = invariants_of(sys.modules["penstock_job_counts"])
    topology = loaded.topology(run.url, lambda transform, schema: schema)

    check = check_invariants(functions, Observed(run.root, topology, tmp_path / "scratch"))

    assert check.verdict is Verdict.INVALID
    assert check.counted == {"invariants": 4}
    assert [str(each) for each in check.violations] == [
        f"invariant is_wrong does not hold: {run.root.newest().rows_out} rows",  # type: ignore[union-attr]
        "invariant asserts does not hold: there are rows",
    ]
    assert [str(each) for each in check.unknown] == [
        "invariant falls_over: raised KeyError: 'nothing'"
    ]


def test_chaos_needs_a_package_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """And says which, instead of a traceback."""
    honest = builtins.__import__

    def without(name: str, *rest: object, **more: object) -> object:
        if name == "penstock.chaos.chaos_run":
            raise ImportError("No module named 'psutil'", name="psutil")
        return honest(name, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(Invalid, match=r"pip install 'penstock\[chaos\]'"):
        chaos.run("job.py")


def test_a_folder_has_no_way_to_be_harmed_on(tmp_path: Path) -> None:
    """So no fault of a store is asked of it, and none is said to have been survived."""
    with staged_at("folder", tmp_path, SystemClock()) as stage:
        assert (stage.root, stage.store, dict(stage.environment)) == (
            str(tmp_path / "root"), None, {},
        )  # fmt: skip
