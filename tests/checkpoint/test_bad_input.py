"""What a person meets when a root, a store or a setting is wrong.

One line that names the thing and the next step, a non-zero exit, no traceback, and not a byte
changed: after a damage, every byte is evidence.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from penstock.checkpoint import Head, Manifest, Ref, ref_to
from penstock.checkpoint.directory_store import DirectoryStore
from penstock.checkpoint.formats import encode, seal
from penstock.checkpoint.layout import HEAD_KEY
from penstock.checkpoint.root import Root
from penstock.checkpoint.s3_store import S3Store
from penstock.clock import SystemChance
from penstock.errors import Corrupt, Invalid, PenstockError, Unavailable
from penstock.ids import Epoch
from penstock.runtime.cli import app
from tests.support.clocks import SteppingClock
from tests.support.driving import CountingChance
from tests.support.history import JOB, commit_epochs, contents
from tests.support.s3_stub import SECRET, Reply, s3_stub
from tests.support.scripts import ROOT
from tests.support.servers import BUCKET, Endpoint, free_port
from tests.support.versity import out_of_reach

EPOCHS = 3
Use = Callable[[Endpoint], None]


class Case:
    """A root in a folder, its manifests, and ways to look at it and to hurt it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = DirectoryStore(folder)
        self.root = Root(self.store, SteppingClock(), CountingChance())
        commit_epochs(self.root, self.root.lead(JOB, "one"), EPOCHS)
        self.manifests: list[Manifest] = list(self.root.history())
        head = self.root.head()
        assert head.manifest is not None
        self.head: Head = head
        self.newest: Ref = head.manifest

    def manifest_ref(self, epoch: int) -> Ref:
        """The name of an epoch's manifest."""
        refs = [self.newest, *(manifest.parent for manifest in self.manifests)]
        found = refs[EPOCHS - epoch]
        assert found is not None
        return found

    def change(self, key: str, how: Callable[[bytes], bytes]) -> None:
        path = self.folder / key
        path.write_bytes(how(path.read_bytes()))


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path / "root")


def penstock(*arguments: str | Path) -> tuple[int, list[str], list[str]]:
    """Exit code, lines of standard output and lines of standard error of one command."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout.splitlines(), done.stderr.splitlines()


def refusal(url: str | Path, error: str) -> tuple[int, list[str], list[str]]:
    """What a command that could not do its work says."""
    return 2, [], [f"penstock: {url}: {error}"]


def leading(root: Root, job: str = JOB) -> PenstockError:
    """Why this root cannot be led."""
    with pytest.raises(PenstockError) as caught:
        root.lead(job, "two")
    return caught.value


def test_a_root_of_another_job_is_not_led(case: Case) -> None:
    """A mistyped root: the job it belongs to is neither deposed nor mixed with another."""
    before = contents(case.store)

    error = leading(case.root, "views")

    assert type(error) is Invalid
    assert str(error) == (
        "HEAD belongs to job 'clicks', not to 'views': give this job a root of its own."
    )
    assert contents(case.store) == before


@dataclass(frozen=True)
class Hurt:
    """One way to damage HEAD, and what is said about it."""

    how: Callable[[bytes], bytes]
    kind: type[PenstockError]
    says: str


def of_format(body: bytes, number: int) -> bytes:
    head = msgspec.json.decode(body, type=Head)
    return seal(msgspec.structs.replace(head, format=number))


HEADS = {
    "truncated": Hurt(
        lambda body: body[:100],
        Corrupt,
        "HEAD cannot be read as a Head (Input data was truncated; 100 bytes): it was truncated or "
        "altered; run `penstock fsck`, then restore it from a copy.",
    ),
    "empty": Hurt(
        lambda body: b"",
        Corrupt,
        "HEAD cannot be read as a Head (Input data was truncated; 0 bytes): it was truncated or "
        "altered; run `penstock fsck`, then restore it from a copy.",
    ),
    "one digit changed": Hurt(
        lambda body: body.replace(b'"token":1', b'"token":7'),
        Corrupt,
        "HEAD does not match its own checksum: it was altered after it was written; restore it "
        "from a copy.",
    ),
    "of a future format": Hurt(
        lambda body: of_format(body, 2),
        Invalid,
        "HEAD has format 2, and this version of Penstock reads up to 1: use the version of "
        "Penstock that wrote it, or a newer one.",
    ),
}


@pytest.mark.parametrize("hurt", HEADS.values(), ids=HEADS)
def test_a_damaged_head_is_named_and_left_as_it_is(case: Case, hurt: Hurt) -> None:
    """It is the only truth: nobody goes on from a guess at it."""
    case.change(HEAD_KEY, hurt.how)
    before = contents(case.store)

    assert penstock("log", case.folder) == refusal(case.folder, hurt.says)
    assert penstock("fsck", case.folder, "--json") == refusal(case.folder, hurt.says)
    error = leading(case.root)

    assert (type(error), str(error)) == (hurt.kind, hurt.says)
    assert contents(case.store) == before


def test_a_missing_head_with_history_is_not_started_over(case: Case) -> None:
    """Starting at epoch 1 would process everything again."""
    (case.folder / HEAD_KEY).unlink()
    before = contents(case.store)
    damage = (
        f"HEAD is missing, though there are manifests such as {case.manifest_ref(1).key}: "
        "restore HEAD from a copy, or use another root; nothing was changed."
    )

    for command in ("log", "fsck"):
        assert penstock(command, case.folder) == refusal(case.folder, damage)
    error = leading(case.root)

    assert type(error) is Corrupt
    assert str(error) == damage
    assert contents(case.store) == before


def test_a_folder_that_is_no_root_is_not_made_one(tmp_path: Path) -> None:
    """Looking at a mistyped path leaves nothing there."""
    absent = (
        "HEAD is not there: check the root's URL; a root has a HEAD from its job's first start on."
    )

    for command in ("log", "fsck"):
        assert penstock(command, tmp_path / "typo") == refusal(tmp_path / "typo", absent)
    assert list(tmp_path.iterdir()) == []


MANIFESTS: Mapping[str, Callable[[bytes], bytes]] = {
    "truncated": lambda body: body[:-20],
    "altered": lambda body: body.replace(b'"rows_in":10', b'"rows_in":11'),
}


@pytest.mark.parametrize("how", MANIFESTS.values(), ids=MANIFESTS)
def test_a_damaged_manifest_is_named(case: Case, how: Callable[[bytes], bytes]) -> None:
    """Whoever names it knows its hash, so it cannot pass for what was committed."""
    ref = case.manifest_ref(EPOCHS)
    case.change(ref.key, how)
    body = (case.folder / ref.key).read_bytes()
    found = ref_to(ref.key, body)
    says = (
        f"{ref.key} hashes to {found.sha256[:12]}… ({found.size_bytes} bytes), but its manifest "
        f"names {ref.sha256[:12]}… ({ref.size_bytes} bytes): it was altered after it was written; "
        "restore it from a copy or an older checkpoint."
    )
    before = contents(case.store)

    assert penstock("log", case.folder) == refusal(case.folder, says)
    code, out, err = penstock("fsck", case.folder)

    assert (code, out[0], err) == (1, f"wrong {says}", [])
    assert str(leading(case.root)) == says
    assert contents(case.store) == before


def test_a_missing_manifest_is_named(case: Case) -> None:
    """With the epoch that needs it, and what can be done about it."""
    ref = case.manifest_ref(EPOCHS)
    (case.folder / ref.key).unlink()
    before = contents(case.store)
    says = (
        f"{ref.key} is missing, though epoch 3 is retained and needs it: restore it from a copy, "
        "or rewind to an epoch that does not need it."
    )

    assert penstock("log", case.folder) == refusal(case.folder, says)
    code, out, err = penstock("fsck", case.folder)

    assert (code, out[0], err) == (1, f"wrong {says}", [])
    assert str(leading(case.root)) == says
    assert contents(case.store) == before


def test_a_manifest_of_a_future_format_is_not_called_damage(case: Case) -> None:
    """It needs another program, not a copy: every hash on the way to it fits."""
    body = encode(msgspec.structs.replace(case.manifests[0], format=3))
    ref = ref_to(case.newest.key, body)
    (case.folder / ref.key).write_bytes(body)
    (case.folder / HEAD_KEY).write_bytes(seal(msgspec.structs.replace(case.head, manifest=ref)))
    before = contents(case.store)
    says = (
        f"{ref.key} has format 3, and this version of Penstock reads up to 2: use the version of "
        "Penstock that wrote it, or a newer one."
    )

    for command in ("log", "fsck"):
        assert penstock(command, case.folder) == refusal(case.folder, says)

    assert str(leading(case.root)) == says
    assert contents(case.store) == before


def payloads(case: Case) -> list[Ref]:
    """What epoch 2 names: a delta and an output."""
    return list(case.manifests[EPOCHS - 2].refs())


@pytest.mark.parametrize("index", [0, 1], ids=["delta", "output"])
def test_a_missing_object_is_found_by_fsck(case: Case, index: int) -> None:
    """And it is the only finding: the rest was checked all the same."""
    ref = payloads(case)[index]
    (case.folder / ref.key).unlink()
    before = contents(case.store)

    code, out, err = penstock("fsck", case.folder)
    told = json.loads("\n".join(penstock("fsck", case.folder, "--json")[1]))

    assert (code, err) == (1, [])
    assert out == [
        f"wrong {ref.key} is missing, though epoch 2 needs it.",
        "Epochs 1 to 3: 3 manifests, 5 objects, "
        f"{sum(m.size_bytes for m in case.manifests) - ref.size_bytes} bytes, 0 pins; 1 wrong.",
    ]
    assert (told["clean"], told["wrong"]) == (False, [out[0].removeprefix("wrong ")])
    assert contents(case.store) == before


@pytest.mark.parametrize("index", [0, 1], ids=["delta", "output"])
def test_an_altered_object_is_found_by_fsck(case: Case, index: int) -> None:
    """One byte of the same length is enough."""
    ref = payloads(case)[index]
    case.change(ref.key, lambda body: b"X" + body[1:])
    before = contents(case.store)

    code, out, err = penstock("fsck", case.folder)

    assert (code, err, len(out)) == (1, [], 2)
    assert out[0].startswith(f"wrong {ref.key} hashes to ")
    assert out[0].endswith("restore it from a copy or an older checkpoint.")
    assert contents(case.store) == before


def run(script: str, *arguments: object, before: tuple[str, ...] = ()) -> Any:
    command = [*before, sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


AS_NOBODY = """
import os, sys
from typer.testing import CliRunner
from penstock.runtime.cli import app, main
CliRunner().invoke(app, [sys.argv[1], "memory://warm"])  # loads what nobody may read later
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
main()
"""


@pytest.mark.parametrize("command", ["log", "fsck"])
def test_a_root_without_permission_is_said_to_be_one(case: Case, command: str) -> None:
    """In a process of its own, because rights are given up for good."""
    before = contents(case.store)
    case.folder.chmod(0o000)
    try:
        done = run(AS_NOBODY, command, case.folder)
    finally:
        case.folder.chmod(0o700)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"penstock: {case.folder}: object 'HEAD' cannot be reached because this process has no "
        f"permission: give this user access to {case.folder}.\n"
    )
    assert contents(case.store) == before


ON_A_FULL_DISK = """
import subprocess, sys
from pathlib import Path
from penstock.checkpoint import perform
from penstock.checkpoint.directory_store import DirectoryStore
from penstock.checkpoint.root import Root
from penstock.errors import PenstockError
from tests.support.clocks import SteppingClock
from tests.support.driving import CountingChance
from tests.support.history import JOB, commit_epochs, contents, staged
folder = sys.argv[1]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", folder], check=True)
root = Root(DirectoryStore(folder), SteppingClock(), CountingChance())
session = root.lead(JOB, "one")
commit_epochs(root, session, 1)
draft = perform(staged(session.manifest, root.chance), root.handlers)
before = contents(root.store)
with open(Path(folder, ".filler"), "wb", buffering=0) as filler:
    try:
        while filler.write(bytes(4096)):
            pass
    except OSError:
        pass
for attempt in (lambda: session.commit(draft), lambda: root.lead(JOB, "two")):
    try:
        attempt()
    except PenstockError as error:
        print(type(error).__name__, error)
print(contents(root.store) == before)
subprocess.run([str(Path(sys.executable).with_name("penstock")), "doctor", folder])
print(contents(root.store) == before)
"""


def on_a_disk_of_its_own(folder: Path) -> list[str]:
    """Run on a small file system that only the script sees."""
    for namespace in (("unshare", "--mount"), ("unshare", "-r", "--mount")):
        probe = [*namespace, "mount", "-t", "tmpfs", "none", str(folder)]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            done = run(ON_A_FULL_DISK, folder, before=namespace)
            assert (done.returncode, done.stderr) == (0, "")
            lines: list[str] = done.stdout.splitlines()
            return lines
    return out_of_reach("mounting a small file system needs unshare and the right to mount")


def test_a_full_disk_commits_nothing_and_breaks_nothing(tmp_path: Path) -> None:
    """Space comes back; half an epoch would not."""
    lines = on_a_disk_of_its_own(tmp_path)
    text = "\n".join(lines)

    assert lines[0].startswith("Unavailable object 'manifests/000000000002-")
    assert lines[0].endswith(
        f"could not be written because the disk is full: free space in {tmp_path} and try again."
    )
    assert lines[1].startswith("Unavailable HEAD was sent a change whose outcome")
    assert "FAIL a write is read back: object 'probe/" in text
    assert "is not safe." in text
    assert "Traceback" not in text
    assert [line for line in lines if line in ("True", "False")] == ["True", "True"]


def test_expired_credentials_are_said_to_be_expired(use: Use) -> None:
    """And nothing the endpoint sent back is repeated: it may quote a signature."""
    url = f"s3://{BUCKET}/expired"
    says = (
        f"object {url}/HEAD was refused because the credentials have expired: "
        "renew the credentials."
    )
    with s3_stub(Reply(400, "ExpiredToken")) as stub:
        use(stub.endpoint)
        told = [penstock(command, url) for command in ("log", "fsck")]
        error = leading(Root.open(url))

    assert told == [(2, [], [f"penstock: {says}"])] * 2
    assert (type(error), str(error)) == (Invalid, says)
    assert SECRET not in says
    assert set(stub.seen) == {"GET"}


def test_an_endpoint_where_nobody_listens_is_named(use: Use) -> None:
    """A mistyped port, or a store that is not started."""
    nowhere = f"http://127.0.0.1:{free_port()}"
    use(Endpoint(nowhere, Path("/dev/null")))
    code, out, err = penstock("log", f"s3://{BUCKET}/nowhere")
    error = leading(Root(S3Store(BUCKET, "nowhere", SteppingClock()), SteppingClock()))

    assert (code, out, len(err)) == (2, [], 1)
    assert f"could not be reached because nothing answers at {nowhere}" in err[0]
    assert err[0].endswith("start the store or correct AWS_ENDPOINT_URL, and try again.")
    assert type(error) is Unavailable
    assert nowhere in error.found


@pytest.mark.parametrize("command", ["log", "fsck", "doctor"])
@pytest.mark.parametrize("url", ["ftp://host/root", "s3://", "hdfs://name:8020/root"])
def test_a_url_nobody_can_open_is_refused(command: str, url: str) -> None:
    """With the kinds there are."""
    code, out, err = penstock(command, url)

    assert (code, out) == (2, [])
    assert err == [
        f"penstock: store '{url}' is not something that can be opened: give a folder, "
        "file:///folder, s3://bucket/prefix or memory://name."
    ]


def test_a_password_in_a_url_is_not_shown() -> None:
    """What is wrong with a URL is said without what must not be in a log."""
    code, out, err = penstock("log", "ftp://me:hunter2@host/root")

    assert (code, out, len(err)) == (2, [], 1)
    assert "hunter2" not in err[0]


def test_a_bucket_that_does_not_exist_is_said_to_be_missing(
    atomic_moto: Endpoint, use: Use
) -> None:
    """It is not created: whose it would be is not ours to decide."""
    use(atomic_moto)
    before = contents(S3Store(BUCKET, ""))
    missing = f"no-such-bucket-{SystemChance().unique()}"
    told = [penstock(command, f"s3://{missing}/root") for command in ("log", "fsck")]
    error = leading(Root.open(f"s3://{missing}/root"))

    for code, out, err in told:
        assert (code, out, len(err)) == (2, [], 1)
        assert "cannot be reached because its bucket does not exist" in err[0]
        assert err[0].endswith("create the bucket or correct its name.")
    assert (type(error), error.advice) == (Invalid, "create the bucket or correct its name")
    assert contents(S3Store(BUCKET, "")) == before


def test_the_script_itself_says_one_line(case: Case) -> None:
    """Through the installed program, as a person runs it."""
    case.change(HEAD_KEY, lambda body: body[:100])
    script = Path(sys.executable).with_name("penstock")
    done = subprocess.run(
        [str(script), "log", str(case.folder)], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"penstock: {case.folder}: {HEADS['truncated'].says}\n"


def test_an_epoch_that_was_never_committed_cannot_be_pinned(case: Case) -> None:
    """A mistyped number keeps nothing, and says what there is."""
    before = contents(case.store)

    with pytest.raises(Invalid, match="epoch 9 cannot be pinned: the last committed epoch is 3"):
        case.root.pin("typo", Epoch(9))

    assert contents(case.store) == before
