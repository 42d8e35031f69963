"""`penstock audit`: its answers, its exits, its files, and what it says to what it cannot use."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock.__main__ import app
from penstock.checkpoint.collector import Retention
from penstock.checkpoint.root import Root
from penstock.ids import Epoch
from penstock.runtime.loading import load_job
from tests.support import databases
from tests.support.audits import JOB_FILE, Scene
from tests.support.in_process import SETTINGS, LocalRun
from tests.support.postgres_case import new_table, plain_client

JOB = f"""{JOB_FILE}counts.write(ps.Table("totals"))
SINKS
"""


class Audited(Scene):
    """A job in a file, its root, and the command."""

    def __init__(self, folder: Path, *sinks: str) -> None:
        self.file = folder / "job.py"
        written = "\n".join(f"counts.write({sink})" for sink in sinks)
        self.file.write_text(JOB.replace("LOG", str(folder / "clicks")).replace("SINKS", written))
        super().__init__(folder, lambda log: load_job(str(self.file)))
        self.local = LocalRun(load_job(str(self.file)), folder)

    def say(self, *words: str | Path) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        return penstock("audit", self.local.url, *words)

    def told(self, *words: str | Path) -> Any:
        """The same, in JSON."""
        code, out, err = self.say(*words, "--json")
        assert err == ""
        return {"exit": code, **json.loads(out)}


def penstock(*words: str | Path) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def job(tmp_path: Path) -> Audited:
    made = Audited(tmp_path, f"ps.Memory('shelf-{tmp_path.name}')")
    made.epochs(3)
    return made


def test_a_sound_job_exits_with_nought(job: Audited) -> None:
    """With its file, all of it can be looked at."""
    code, out, err = job.say("--job", job.file)

    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "valid   chain: 3 manifests"
    assert lines[-1].startswith("valid job counts, epochs 1 to 3, HEAD ")
    found = job.told("--job", job.file)
    assert (found["exit"], found["verdict"], found["epochs"]) == (0, "valid", [1, 3])
    head = job.root.head().manifest
    assert head is not None
    assert found["head"]["sha256"] == head.sha256


def test_what_is_wrong_exits_with_one(job: Audited) -> None:
    """And says what, on a line of its own."""
    lost = job.outputs("totals", 2)[0]
    job.store.delete(lost)
    code, out, _ = job.say("--job", job.file)

    assert code == 1
    (line,) = [line for line in out.splitlines() if line.startswith("        wrong")]
    assert line.startswith(f"        wrong {lost} is missing, though epoch 3 is retained")
    assert out.splitlines()[-1].startswith("invalid job counts")
    assert job.told("--job", job.file)["verdict"] == "invalid"


def test_what_could_not_be_looked_at_exits_with_two(job: Audited) -> None:
    """Without its file nobody knows where its sinks are."""
    code, out, _ = job.say()

    assert code == 2
    assert "only the job's file says where it is: name it with --job" in out
    assert out.splitlines()[-1].startswith("unknown job counts")
    assert (job.told()["exit"], job.told()["verdict"]) == (2, "unknown")


def test_a_report_is_a_folder_of_three_files(job: Audited, tmp_path: Path) -> None:
    """For people, for programs, and for later."""
    folder = tmp_path / "reports" / "one"
    code, out, _ = job.say("--job", job.file, "--report", folder)

    assert code == 0
    assert f"The report is {folder / 'audit.html'}." in out
    assert sorted(path.name for path in folder.iterdir()) == [
        "audit.html", "audit.json", "certificate.json",
    ]  # fmt: skip
    assert json.loads((folder / "audit.json").read_text())["verdict"] == "valid"
    assert penstock("audit", "--verify", folder / "certificate.json")[0] == 0


def test_a_report_is_never_written_over(job: Audited, tmp_path: Path) -> None:
    """What was found once is evidence."""
    folder, file = tmp_path / "report", tmp_path / "certificate.json"
    folder.mkdir()
    assert job.say("--job", job.file, "--report", folder)[0] == 0
    before = {path: path.read_bytes() for path in folder.iterdir()}
    code, out, err = job.say("--job", job.file, "--report", folder)

    assert (code, out) == (2, "")
    assert f"folder {folder} is there and not empty: name another, or remove it." in err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    file.write_text("mine")
    assert "is there already" in job.say("--certificate", file)[2]
    assert file.read_text() == "mine"
    assert "is there and not empty" in job.say("--report", file)[2]


def test_a_report_that_cannot_be_written_is_said(job: Audited) -> None:
    """In one sentence."""
    code, _, err = job.say("--job", job.file, "--certificate", "/proc/nowhere/certificate.json")

    assert code == 2
    assert "cannot be written (No such file or directory)" in err


@pytest.fixture
def certificate(job: Audited, tmp_path: Path) -> Path:
    file = tmp_path / "kept.json"
    assert job.say("--job", job.file, "--certificate", file)[0] == 0
    return file


def test_a_certificate_holds_while_the_job_goes_on(job: Audited, certificate: Path) -> None:
    """The certified head stays on the chain, and the table up to there stays what it was."""
    assert penstock("audit", "--verify", certificate)[0] == 0
    job.epochs(2)
    code, out, err = penstock("audit", "--verify", certificate)

    assert (code, err) == (0, "")
    last = out.splitlines()[-1]
    assert last == f"valid {certificate}: it certifies valid, and HEAD is at epoch 5 now."
    told = json.loads(penstock("audit", "--verify", certificate, "--json")[1])
    assert (told["verdict"], told["head_epoch"]) == ("valid", 5)


@pytest.mark.parametrize(
    ("before", "after"),
    [('"verdict": "valid"', '"verdict": "invalid"'), ('"rows": 15', '"rows": 14'), ("0", "1")],
)
def test_a_certificate_that_was_altered_is_refused(
    certificate: Path, before: str, after: str
) -> None:
    """Before anything of it is believed."""
    text = certificate.read_text()
    assert before in text
    certificate.write_text(text.replace(before, after, 1))
    code, out, err = penstock("audit", "--verify", certificate)

    assert (code, out) == (2, "")
    assert "does not match its own checksum" in err or "cannot be read as" in err


def test_a_certificate_that_is_none_is_refused(tmp_path: Path, job: Audited) -> None:
    """Another file, an empty one, none at all, one of a newer version."""
    file = tmp_path / "other.json"
    for body, words in (
        (b"", "cannot be read as a Certificate"),
        (b"{}", "cannot be read as a Certificate"),
        (b'{"format": 99}', "has format 99"),
    ):
        file.write_bytes(body)
        code, _, err = penstock("audit", "--verify", file)
        assert (code, words in err) == (2, True), err
    assert "cannot be read (No such file" in penstock("audit", "--verify", tmp_path / "no")[2]


def test_a_table_that_was_damaged_since_is_named(job: Audited, certificate: Path) -> None:
    """Also one whose epoch nobody else looks at any more."""
    hurt = job.outputs("totals", 1)[0]
    job.flip(hurt)
    code, out, _ = penstock("audit", "--verify", certificate)

    assert code == 1
    assert f"{hurt} hashes to" in out


def test_a_history_that_was_gone_back_on_is_not_the_certified_one(
    job: Audited, certificate: Path
) -> None:
    """Whether HEAD has passed the certified epoch again or not."""
    Root.open(job.local.url).rewind("counts", Epoch(2))
    code, out, _ = penstock("audit", "--verify", certificate)
    assert code == 1
    assert "is not on the chain any more: HEAD is at epoch 2" in out
    ps.Memory(f"shelf-{job.folder.name}").clear()  # a new target
    job.epochs(2)

    code, out, _ = penstock("audit", "--verify", certificate)
    assert code == 1
    assert "is in its place" in out


def test_a_certified_head_that_is_not_kept_is_unknown(job: Audited, certificate: Path) -> None:
    """Nobody can tell any more, and nobody claims to."""
    keeps = Retention(epochs=2, age_s=0.0, grace_s=0.0)
    limits = ps.Limits(records=2)
    job.epochs(1, 120, replace(SETTINGS, retention=keeps, collect_every=1, limits=limits))
    code, out, _ = penstock("audit", "--verify", certificate)

    assert code == 2
    assert "have been given up: whether it is on the chain is lost" in out


def test_a_certificate_of_another_job_is_refused(certificate: Path, tmp_path: Path) -> None:
    """A root that is named must be the one it was issued for."""
    with Root.open(str(tmp_path / "elsewhere")).lead("other"):
        pass
    code, _, err = penstock("audit", tmp_path / "elsewhere", "--verify", certificate)

    assert code == 2
    assert "is of job 'counts', and the root belongs to 'other'" in err


def test_no_secret_is_in_any_answer(
    tmp_path: Path, postgres_server: databases.Postgres, passwords: None
) -> None:
    """Not on the page, not in the certificate, not in what is said of a server that is away."""
    del passwords
    table = new_table()
    sink = f"ps.Postgres('history', '{postgres_server.dsn()}', table='{table}', create=True)"
    job = Audited(tmp_path, sink)
    job.epochs(2)
    with plain_client(postgres_server) as client:
        client.execute(f"DELETE FROM {table} WHERE n = 1")
    code, out, err = job.say("--job", job.file, "--report", tmp_path / "report")
    files = [path.read_text() for path in (tmp_path / "report").iterdir()]

    assert code == 1
    for text in (out, err, *files):
        assert databases.PASSWORD not in text
        assert str(postgres_server.port) not in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--sample", "much"], "--sample much is no share"),
        (["--sample", "0%"], "the sample is 0.00% of what sinks hold"),
        (["--sample", "101"], "the sample is 101.00% of what sinks hold"),
        (["--since", "9"], "epoch 9 cannot be audited from: the last committed epoch is 3"),
        (["--since", "0"], "--since"),
        (["--job", "nowhere.py"], "file nowhere.py is not there"),
    ],
)
def test_a_mistake_is_said_in_one_sentence(job: Audited, words: list[str], said: str) -> None:
    """And nothing is looked at, or written."""
    code, out, err = job.say(*words)

    assert (code, out) == (2, "")
    assert said in err


def test_a_root_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """So is none at all, and a store that does not answer."""
    code, _, err = penstock("audit", tmp_path / "nothing")
    assert (code, "HEAD is not there" in err) == (2, True)
    assert "was given no root" in penstock("audit")[2]


def test_a_store_that_is_away_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without HEAD there is no verdict."""
    for name, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "very secret",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    code, out, err = penstock("audit", "s3://bucket/jobs/clicks")

    assert (code, out) == (2, "")
    assert "very secret" not in err
    assert "s3://bucket/jobs/clicks" in err or "HEAD" in err


def test_the_file_of_another_job_is_refused(job: Audited, tmp_path: Path) -> None:
    """Its sinks are not this root's."""
    (tmp_path / "other").mkdir()
    other = Audited(tmp_path / "other")
    other.file.write_text(other.file.read_text().replace('"counts"', '"others"'))
    code, _, err = job.say("--job", other.file)
    assert (code, "is job 'others', and the root belongs to 'counts'" in err) == (2, True)
    fewer = tmp_path / "fewer.py"
    fewer.write_text("\n".join(job.file.read_text().splitlines()[:-1]))
    assert "was Memory and is gone now" in job.say("--job", fewer)[2]


def test_a_sample_is_said_wherever_the_verdict_is(job: Audited, tmp_path: Path) -> None:
    """Nobody takes a sample for the whole."""
    folder = tmp_path / "report"
    code, out, _ = job.say("--job", job.file, "--sample", "50%", "--report", folder)

    assert code == 0
    assert "50.00% of what sinks hold" in out.splitlines()[-2]
    assert "50.00% was compared" in (folder / "audit.html").read_text()


def test_it_is_one_of_the_commands() -> None:
    """Beside those of the runtime."""
    _, out, _ = penstock("--help")

    assert [name for name in ("doctor", "fsck", "audit") if name not in out] == []
