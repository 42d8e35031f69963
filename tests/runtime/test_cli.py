"""The command line on roots that are fine, and what the doctor says of stores that are not."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.checkpoint.directory_store import DirectoryStore
from penstock.checkpoint.root import Root
from penstock.clock import SystemChance
from penstock.runtime.cli import app
from tests.support.driving import CountingChance, ManualClock
from tests.support.history import JOB, ROWS, commit_epochs
from tests.support.servers import BUCKET, Endpoint

Use = Callable[[Endpoint], None]
CHECKS = [
    "a write is read back",
    "an overwrite is seen",
    "an object is created once",
    "the current version can be replaced",
    "a stale version cannot be replaced",
    "an absent object cannot be replaced",
    "a deleted object is gone",
    "a listing is whole and in order",
    "a large object comes back the same",
    "one of many creators wins",
    "one of many replacers wins",
]


def penstock(*arguments: str | Path) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one command."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A root of three epochs by two leaders, written a minute apart from 1970-01-01 00:16:40."""
    clock = ManualClock()
    root = Root(DirectoryStore(tmp_path / "root"), clock, CountingChance())
    first = root.lead(JOB, "one")
    for _ in range(2):
        commit_epochs(root, first, 1)
        clock.now_s += 60.0
    commit_epochs(root, root.lead(JOB, "two"), 1)
    return tmp_path / "root"


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A root whose job has started and committed nothing."""
    Root(DirectoryStore(tmp_path / "empty"), chance=CountingChance()).lead(JOB, "one")
    return tmp_path / "empty"


def summary(epoch: int, minute: int, token: int, holder: str) -> dict[str, object]:
    return {
        "epoch": epoch,
        "generation": 1,
        "time": f"1970-01-01T00:{minute}:40+00:00",
        "token": token,
        "holder": holder,
        "rows_in": ROWS,
        "rows_out": ROWS,
        "bytes": len(f"delta {epoch}output {epoch}"),
    }


def test_the_log_shows_the_newest_epoch_first(folder: Path) -> None:
    """When, by whom, and how much."""
    code, out, err = penstock("log", folder)
    lines = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]

    assert (code, err) == (0, "")
    assert lines == [
        ["epoch", "time (UTC)", "token", "rows in", "rows out", "bytes", "holder"],
        ["3", "1970-01-01 00:18:40", "2", "10", "10", "15", "two-id6"],
        ["2", "1970-01-01 00:17:40", "1", "10", "10", "15", "one-id1"],
        ["1", "1970-01-01 00:16:40", "1", "10", "10", "15", "one-id1"],
    ]


def test_the_log_in_json_says_the_same(folder: Path) -> None:
    """For scripts, with the name of every commit as well."""
    code, out, err = penstock("log", folder, "--json")
    told = json.loads(out)
    commits = [epoch.pop("commit") for epoch in told]

    assert (code, err) == (0, "")
    assert told == [
        summary(3, 18, 2, "two-id6"),
        summary(2, 17, 1, "one-id1"),
        summary(1, 16, 1, "one-id1"),
    ]
    assert len(set(commits)) == 3


@pytest.mark.parametrize("option", ["-n", "--number"])
def test_the_log_can_be_cut_short(folder: Path, option: str) -> None:
    """A year of epochs does not fit on a screen."""
    _, out, _ = penstock("log", folder, option, "2", "--json")

    assert [epoch["epoch"] for epoch in json.loads(out)] == [3, 2]


def test_a_number_below_one_is_refused(folder: Path) -> None:
    """Asking for nothing is a mistake, and is said to be one."""
    code, out, err = penstock("log", folder, "-n", "0")

    assert (code, out) == (2, "")
    assert "-n" in err


def test_the_log_of_an_empty_root_says_so(empty: Path) -> None:
    """No table of nothing; in JSON, a list of nothing."""
    assert penstock("log", empty) == (0, "Nothing has been committed yet.\n", "")
    assert penstock("log", empty, "--json") == (0, "[]\n", "")


def test_fsck_of_a_sound_root_counts_what_it_saw(folder: Path) -> None:
    """So that "sound" cannot mean that nothing was looked at."""
    assert penstock("fsck", folder) == (
        0,
        "Epochs 1 to 3: 3 manifests, 6 objects, 45 bytes, 0 pins; all sound.\n",
        "",
    )


def test_fsck_in_json_says_the_same(folder: Path) -> None:
    """For a nightly check."""
    code, out, err = penstock("fsck", folder, "--json")

    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "head_epoch": 3,
        "floor": 1,
        "manifests": 3,
        "objects": 6,
        "size_bytes": 45,
        "pins": 0,
        "wrong": [],
        "broken_pins": [],
        "clean": True,
    }


def test_fsck_of_an_empty_root_is_clean(empty: Path) -> None:
    """A job that has just started is no damage."""
    code, out, _ = penstock("fsck", empty, "--json")

    assert (code, json.loads(out)["clean"], json.loads(out)["manifests"]) == (0, True, 0)


def test_the_doctor_accepts_a_folder_and_leaves_it_as_it_was(tmp_path: Path) -> None:
    """The embedded default; what is tried is removed again."""
    code, out, err = penstock("doctor", tmp_path)
    names = [line[5:].partition(":")[0] for line in out.splitlines() if line.startswith("ok")]

    assert (code, err) == (0, "")
    assert names == CHECKS
    assert out.splitlines()[-1] == f"{tmp_path} kept every promise that was tried."
    assert list(DirectoryStore(tmp_path).list("")) == []


def test_the_doctor_in_json_says_the_same() -> None:
    """Every check by name, and the verdict."""
    code, out, err = penstock("doctor", "memory://doctored", "--json")
    told = json.loads(out)

    assert (code, err) == (0, "")
    assert (told["url"], told["safe"]) == ("memory://doctored", True)
    assert [(check["name"], check["passed"]) for check in told["checks"]] == [
        (name, True) for name in CHECKS
    ]


def test_the_doctor_accepts_an_atomic_bucket(atomic_moto: Endpoint, use: Use) -> None:
    """A store that keeps the promise is not turned away."""
    use(atomic_moto)
    code, out, err = penstock("doctor", f"s3://{BUCKET}/{SystemChance().unique()}")

    assert (code, err, out.count("FAIL")) == (0, "", 0)


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("racy", "writers were both told they|writers were all told they"),
        ("ignore-if-match", "a writer was told it created an object that was there already"),
        ("always-200", "a writer was told it created an object that was there already"),
    ],
)
def test_the_doctor_refuses_an_unsafe_bucket_in_words(
    mode: str, words: str, s3_proxy: Callable[..., Endpoint], use: Use
) -> None:
    """Each has been shipped by somebody; a job on it could lose or double results."""
    use(s3_proxy(mode))
    url = f"s3://{BUCKET}/{SystemChance().unique()}"
    code, out, err = penstock("doctor", url)
    failures = [line for line in out.splitlines() if line.startswith("FAIL")]

    assert (code, err) == (1, "")
    assert re.search(words, failures[0])
    assert f"{url} is not safe. A job on it could lose or double results." in out


def test_help_names_every_command() -> None:
    """And nothing is done without one."""
    _, out, _ = penstock("--help")

    assert [name for name in ("doctor", "log", "fsck") if name not in out] == []


def test_memory_is_a_root_like_any_other() -> None:
    """A demo needs no disk."""
    root = Root.open("memory://shown")
    commit_epochs(root, root.lead(JOB, "one"), 2)

    _, out, _ = penstock("log", "memory://shown", "--json")

    assert [epoch["epoch"] for epoch in json.loads(out)] == [2, 1]
