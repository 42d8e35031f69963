"""`penstock checkpoints`, `savepoint`, `restore` and `status` on a small root."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.checkpoint import Draft, Output, SourceProgress, perform, stage
from penstock.checkpoint.chain import Chain
from penstock.checkpoint.directory_store import DirectoryStore
from penstock.checkpoint.layout import table_key
from penstock.checkpoint.root import Lease, Root
from penstock.ids import Attempt, Epoch
from penstock.points import Point
from penstock.runtime import cli_history
from penstock.runtime.cli import app
from penstock.sinks.table_index import extend_index
from penstock.sinks.table_tail import table_tails
from tests.support.driving import CountingChance, ManualClock
from tests.support.history import JOB, OPERATOR, ROWS, SINK, SOURCE, commit_epochs

WARNING = "Sinks outside the root (ledger) are not taken back"


def penstock(*arguments: str | Path, given: str = "") -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one command."""
    done = CliRunner().invoke(app, [*map(str, arguments)], input=given)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def told(*arguments: str | Path) -> Any:
    """The answer of a command in JSON."""
    code, out, err = penstock(*arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def opened(folder: Path) -> Root:
    return Root(DirectoryStore(folder), ManualClock(), CountingChance("later"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five epochs a minute apart from 1970-01-01 00:16:40, released; the second is pinned."""
    clock = ManualClock()
    root = Root(DirectoryStore(tmp_path / "root"), clock, CountingChance())
    with root.lead(JOB, "one") as session:
        for _ in range(5):
            commit_epochs(root, session, 1, snapshot_every=3)
            clock.now_s += 60.0
    root.pin("good", Epoch(2))
    return tmp_path / "root"


def test_the_epochs_one_can_go_back_to_are_listed(folder: Path) -> None:
    """When, how much, from whom, and what keeps them."""
    found = told("checkpoints", folder)

    assert [each["epoch"] for each in found] == [5, 4, 3, 2, 1]
    assert found[2:4] == [
        {
            "epoch": 3,
            "generation": 1,
            "time": "1970-01-01T00:18:40+00:00",
            "token": 1,
            "rows_in": ROWS,
            "rows_out": ROWS,
            "bytes": len("delta 3output 3before 3"),
            "snapshots": 1,
            "pins": [],
        },
        {
            "epoch": 2,
            "generation": 1,
            "time": "1970-01-01T00:17:40+00:00",
            "token": 1,
            "rows_in": ROWS,
            "rows_out": ROWS,
            "bytes": len("delta 2output 2"),
            "snapshots": 0,
            "pins": ["good"],
        },
    ]
    assert [each["epoch"] for each in told("checkpoints", folder, "-n", "2")] == [5, 4]


def test_the_list_for_people_says_the_same(folder: Path) -> None:
    """One line per epoch."""
    code, out, err = penstock("checkpoints", folder)
    lines = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]

    assert (code, err, len(lines)) == (0, "", 6)
    assert lines[0] == [
        *("epoch", "generation", "time", "token", "rows in", "rows out", "bytes", "snapshots"),
        "pins",
    ]
    assert lines[4] == [
        *("2", "1", "1970-01-01T00:17:40+00:00", "1", "10", "10", "15", "0", "good")
    ]


def test_what_only_a_pin_keeps_is_listed_too(folder: Path) -> None:
    """One can go back to it as well."""
    opened(folder).pin("left", Epoch(5))
    assert penstock("restore", folder, "--at", "3", "--yes")[0] == 0

    found = [(e["epoch"], e["generation"], e["pins"]) for e in told("checkpoints", folder)]

    assert found == [(3, 1, []), (2, 1, ["good"]), (1, 1, []), (5, 1, ["left"])]


def test_a_savepoint_is_made_and_removed(folder: Path) -> None:
    """The last epoch, or the one that is named."""
    assert penstock("savepoint", folder, "now") == (0, "Epoch 5 is kept as now.\n", "")
    assert penstock("savepoint", folder, "then", "--epoch", "3") == (
        *(0, "Epoch 3 is kept as then.\n", ""),
    )
    assert penstock("savepoint", folder, "good", "--remove") == (
        *(0, "Removed good. Its epoch goes when retention says so.\n", ""),
    )
    assert [(pin.name, pin.epoch) for pin in opened(folder).pins()] == [("now", 5), ("then", 3)]
    code, _, err = penstock("savepoint", folder, "good", "--remove")
    assert (code, "savepoint good does not exist: there are now, then" in err) == (2, True)


@pytest.mark.parametrize(
    ("at", "epoch"),
    [
        ("4", 4),
        ("good", 2),
        ("1970-01-01T00:18:40", 3),
        ("1970-01-01T01:18:59+01:00", 3),
        ("2026-01-01", 5),
    ],
)
def test_a_job_goes_back_by_epoch_by_name_and_by_time(folder: Path, at: str, epoch: int) -> None:
    """A time means the last epoch committed by then, in UTC unless it says otherwise."""
    code, out, err = penstock("restore", folder, "--at", at, "--yes")

    assert (code, err) == (0, "")
    assert out.splitlines()[0] == (
        f"HEAD is at epoch {epoch} again, in generation 2. The next start of the job goes on with "
        f"epoch {epoch + 1} and reads its sources from there."
    )
    assert WARNING in out
    head = opened(folder).head()
    assert (head.epoch, head.generation, head.token) == (epoch, 2, 2)


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("9", "epoch 9 is not kept: epochs 1 to 5 are"),
        ("nonsense", "'nonsense' is no epoch, no time and not the name of a pin"),
        (
            "1969-12-31",
            "time 1969-12-31 is before all that is kept: history is kept since "
            "1970-01-01T00:16:40+00:00",
        ),
    ],
)
def test_what_is_not_kept_is_said_to_be_so(folder: Path, at: str, words: str) -> None:
    """And HEAD stays where it is."""
    code, out, err = penstock("restore", folder, "--at", at, "--yes")

    assert (code, out, words in err) == (2, "", True)
    assert opened(folder).head().epoch == 5


def test_a_person_is_asked_first(folder: Path) -> None:
    """What is undone is said, and no means no."""
    code, out, _ = penstock("restore", folder, "--at", "3", given="n\n")
    assert code == 1
    assert (
        "Take job clicks from epoch 5 to epoch 3? What 2 epochs did since is undone. [y/N]" in out
    )
    assert opened(folder).head().generation == 1

    assert penstock("restore", folder, "--at", "3", given="y\n")[0] == 0
    assert opened(folder).head().epoch == 3


def test_a_running_job_is_not_taken_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its leader would be deposed in the middle of its work; a fork does not disturb it."""
    monkeypatch.setattr(cli_history, "LEASE", Lease(60.0, 0.01, 0.05))
    root = Root(DirectoryStore(folder))
    with root.lead(JOB, "busy") as session:
        session.beat(0.01)
        code, out, err = penstock("restore", folder, "--at", "3", "--yes")
        forked, _, _ = penstock("restore", folder, "--at", "3", "--fork", folder.parent / "new")

    assert (code, out, forked) == (2, "", 0)
    assert f"job clicks is running: {session.tenure.holder} leads it" in err
    assert (opened(folder).head().epoch, opened(folder.parent / "new").head().epoch) == (5, 3)


def test_a_leader_whose_process_is_dead_is_not_waited_for(folder: Path) -> None:
    """After a crash on this host one can go back at once."""
    done = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        capture_output=True,
        text=True,
        check=True,
    )
    root = opened(folder)
    root.lead(JOB, f"{socket.gethostname()}-{done.stdout.strip()}")

    assert root.is_led(Lease()) is None
    assert root.clock.monotonic() == ManualClock().now_s


def test_a_leader_whose_process_may_live_is_waited_for(folder: Path) -> None:
    """One of another host, one with a name of its own, and we ourselves."""
    for holder in (f"{socket.gethostname()}-{os.getpid()}", "elsewhere-1", "a-name", "name"):
        root = opened(folder)
        root.lead(JOB, holder)
        before_s = root.clock.monotonic()

        assert root.is_led(Lease(length_s=10.0)) is None
        assert root.clock.monotonic() == before_s + 10.0


def test_a_fork_goes_on_elsewhere(folder: Path, tmp_path: Path) -> None:
    """The source stays as it is, down to its pins."""
    code, out, err = penstock("restore", folder, "--at", "good", "--fork", tmp_path / "new")

    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"Epoch 2 is at {tmp_path / 'new'}; start the job with that root."
    assert WARNING in out
    assert opened(tmp_path / "new").check().clean
    assert [pin.name for pin in opened(folder).pins()] == ["good"]
    code, _, err = penstock("restore", folder, "--at", "2", "--fork", tmp_path / "new")
    assert (code, "the new root has a HEAD already" in err) == (2, True)


def test_a_fork_has_all_files_of_its_tables(tmp_path: Path) -> None:
    """Those that the index lists, and those that came since; tables need no new target."""
    root = opened(tmp_path / "root")
    files: list[str] = []
    index = None
    with root.lead(JOB, "one") as session:
        for number in range(1, 5):
            epoch = Epoch(number)
            key = table_key("totals", epoch, f"0-a{number}.arrow")
            ref = perform(stage(key, b"rows", Point.STAGE_OUTPUT), root.handlers)
            output = Output(partition=0, ref=ref, rows=1)
            if number == 3:
                tails = table_tails(Chain(), session.manifest, ["totals"])
                tail = perform(tails, root.handlers)["totals"]
                made = extend_index(Chain(), "totals", tail, epoch, Attempt("x"), None)
                index = perform(made, root.handlers)
            tables = {} if index is None else {"totals": index}
            session.commit(Draft(sinks={"totals": (output,)}, tables=tables))
            files.append(key)

    code, out, err = penstock("restore", tmp_path / "root", "--at", "4", "--fork", tmp_path / "new")

    assert (code, err, "Sinks outside" in out) == (0, "", False)
    found = {entry.key for entry in DirectoryStore(tmp_path / "new").list("tables/")}
    assert index is not None
    assert found == {*files, index.ref.key}


def test_the_status_tells_where_a_job_is(folder: Path) -> None:
    """Its leader, its sources, its state, and what is kept."""
    assert told("status", folder) == {
        "job": JOB,
        "epoch": 5,
        "time": "1970-01-01T00:20:40+00:00",
        "generation": 1,
        "token": 1,
        "holder": "one-id1",
        "leader": "released",
        "sources": {SOURCE: {"resume_at": {"0": 50}, "watermark": None}},
        "operators": {OPERATOR: {"partitions": 1, "bytes": len("before 3delta 3delta 4delta 5")}},
        "sinks": {SINK: {"epoch": None, "held": None}},
        "pins": [{"name": "good", "epoch": 2, "generation": 1}],
        "unreadable_pins": [],
        "retained": [1, 5],
    }
    code, out, err = penstock("status", folder)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "clicks: epoch 5, committed 1970-01-01T00:20:40+00:00",
        "generation 1, token 1, held by one-id1 (released)",
        "source events: 0 at 50",
        "operator totals: 1 partitions, 29 bytes of state",
        "sink ledger: its leader has not said",
        "pin good: epoch 2",
        "epochs 1 to 5 are kept",
    ]


def test_the_status_of_a_job_that_has_only_begun(tmp_path: Path) -> None:
    """Nothing is committed, and whether its leader lives is not known."""
    root = opened(tmp_path / "root")
    session = root.lead(JOB, "one")
    found = told("status", tmp_path / "root")

    assert (found["epoch"], found["leader"], found["retained"]) == (0, "unknown", [])
    assert penstock("checkpoints", tmp_path / "root")[1] == "Nothing has been committed yet.\n"
    progress = SourceProgress(resume_at={"a": 7}, watermark_ms=1_000_500)
    session.commit(Draft(sources={"clicks": progress}, sinks={SINK: ()}))
    assert told("status", tmp_path / "root")["sources"] == {
        "clicks": {"resume_at": {"a": 7}, "watermark": "1970-01-01T00:16:40.500000+00:00"}
    }


def test_every_command_is_in_the_help() -> None:
    """So that it is found."""
    _, out, _ = penstock("--help")
    names = ("state", "checkpoints", "savepoint", "restore", "status")
    assert [name for name in names if name not in out] == []


SAID = (
    "pins/good/notes.txt is no pin (9 bytes), and nothing is collected beside it: move it "
    "elsewhere if it is yours."
)


def test_every_command_goes_on_beside_a_foreign_file_among_pins(folder: Path) -> None:
    """It is named where somebody looks, and stops nobody: neither going back nor letting go."""
    foreign = folder / "pins" / "good" / "notes.txt"
    foreign.write_bytes(b"until May")

    assert told("status", folder)["unreadable_pins"] == [SAID]
    assert f"wrong {SAID}" in penstock("status", folder)[1]
    code, out, _ = penstock("doctor", folder, "--json")
    assert (code, json.loads(out)["safe"], json.loads(out)["unreadable_pins"]) == (1, True, [SAID])
    assert f"wrong {SAID}" in penstock("doctor", folder)[1]
    code, out, _ = penstock("fsck", folder, "--json")
    assert (code, json.loads(out)["wrong"]) == (1, [SAID])
    code, out, err = penstock("checkpoints", folder, "--json")
    assert (code, len(json.loads(out)), err) == (0, 5, f"wrong {SAID}\n")
    assert penstock("savepoint", folder, "other")[0] == 0
    assert penstock("restore", folder, "--at", "good", "--fork", folder.parent / "fork")[0] == 0
    assert penstock("restore", folder, "--at", "good", "--yes")[0] == 0
    assert penstock("savepoint", folder, "good", "--remove")[0] == 0
    assert foreign.read_bytes() == b"until May"
    assert [path.name for path in (folder / "pins").glob("*/*.json")] != []


def test_a_damaged_pin_can_be_let_go_of_and_not_be_gone_back_to(folder: Path) -> None:
    """By its name, as the message about it says."""
    (pin,) = (folder / "pins" / "good").iterdir()
    pin.write_bytes(pin.read_bytes()[:-9])

    code, _, err = penstock("restore", folder, "--at", "good", "--yes")
    assert code == 2
    assert "pins/good/" in err
    assert "or let go of it with `penstock savepoint ROOT good --remove`" in err
    assert penstock("savepoint", folder, "good", "--remove")[0] == 0
    assert told("status", folder)["unreadable_pins"] == []
