"""Names, hashes and sizes that a writer of the bucket made up, met by the real readers."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from penstock.checkpoint import Manifest, MemoryStore, Ref, ref_to
from penstock.checkpoint.fork import fork
from penstock.checkpoint.formats import encode, seal
from penstock.checkpoint.hashed_file import HashedFile
from penstock.checkpoint.head import HEAD_REGISTER
from penstock.checkpoint.layout import HEAD_KEY
from penstock.checkpoint.manifest import Delta, Snapshot, SnapshotFile
from penstock.checkpoint.open_store import open_store
from penstock.checkpoint.root import Root
from penstock.checkpoint.store import OBJECT_BYTES_MAX, check_size
from penstock.errors import Corrupt
from penstock.ids import Attempt, Key
from penstock.runtime.cli import app
from tests.support.driving import ManualClock
from tests.support.small_job import OPERATOR, SmallJob

HOSTILE = {
    "absolute": "{folder}/escaped",
    "above": "../../../escaped",
    "above, inside": "x/../../../../escaped",
    "a dot": ".",
    "hidden": ".bashrc",
    "empty": "",
    "NUL": "000009.sst\0",
    "newline": "000009.sst\n",
    "very long": "9" * 100_000,
    "full-width digits": "\uff10" * 6 + ".sst",
    "Arabic digits": "\u0660" * 6 + ".sst",
    "Cyrillic": "СURRENT",
    "slash look-alike": "..\u2215escaped",
    "backslash": "..\\escaped",
}
each_name = pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE.keys())


class Forger:
    """Rewrites the newest manifest of a root, hashes and HEAD included."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"memory://{folder}"
        self.job = SmallJob(open_store(self.url), folder / "host")
        for number in range(1, 5):
            self.job.epoch({"ann": number})
        self.job.session.release()
        self.root = Root(self.job.store, ManualClock())

    def forge(self, change: Callable[[Manifest], Manifest]) -> None:
        """Have HEAD name a changed manifest: everything hashes."""
        head = self.root.head()
        manifest = self.root.newest()
        assert manifest is not None and head.manifest is not None
        body = encode(change(manifest))
        self.job.store.put(head.manifest.key, body)
        forged = msgspec.structs.replace(head, manifest=ref_to(head.manifest.key, body))
        self.job.store.put(HEAD_KEY, seal(forged))

    def with_files(self, change: Callable[[SnapshotFile], SnapshotFile]) -> None:
        """Forge the files of a snapshot of the partition."""
        cut = next(
            state.snapshot
            for manifest in self.root.history()
            for state in manifest.operators[OPERATOR].values()
            if state.snapshot is not None
        )
        files = (change(cut.files[0]), *cut.files[1:])

        def forged(manifest: Manifest) -> Manifest:
            snapshot = msgspec.structs.replace(cut, epoch=manifest.epoch - 1, files=files)
            return with_snapshot(manifest, snapshot)

        self.forge(forged)

    def outside(self) -> set[Path]:
        """Every file beside the host's folder."""
        host = self.folder / "host"
        return {path for path in self.folder.rglob("*") if not path.is_relative_to(host)}

    def readers(self) -> Iterator[Callable[[], Any]]:
        """Everything that reads a manifest."""
        yield self.root.newest
        yield lambda: list(self.root.history())
        yield self.root.lineages
        yield lambda: self.root.lead("clicks")
        yield lambda: fork(self.root, None, Root(MemoryStore()))


def with_snapshot(manifest: Manifest, snapshot: Snapshot) -> Manifest:
    state = msgspec.structs.replace(manifest.operators[OPERATOR][0], snapshot=snapshot)
    return msgspec.structs.replace(manifest, operators={OPERATOR: {0: state}})


def with_delta(manifest: Manifest, change: Callable[[Delta], Delta]) -> Manifest:
    before = manifest.operators[OPERATOR][0]
    assert before.delta is not None
    state = msgspec.structs.replace(before, delta=change(before.delta))
    return msgspec.structs.replace(manifest, operators={OPERATOR: {0: state}})


@pytest.fixture
def forger(tmp_path: Path) -> Forger:
    return Forger(tmp_path)


def refused(forger: Forger, work: Callable[[], Any]) -> None:
    """The work ends in a clear error, and no file appears or changes beside the folders."""
    before = forger.outside()
    with pytest.raises(Corrupt) as caught:
        work()
    assert "cannot be read as a Manifest" in str(caught.value) or "not below" in str(caught.value)
    assert forger.outside() == before


@each_name
def test_a_reader_lays_no_file_of_a_forged_name(forger: Forger, name: str) -> None:
    """`penstock state get`, which only reads, wrote wherever a manifest said."""
    hostile = name.format(folder=forger.folder)
    forger.with_files(lambda file: SnapshotFile(name=hostile, ref=file.ref))
    before = forger.outside()

    arguments = ["state", "get", forger.url, OPERATOR, "ann"]
    done = CliRunner().invoke(app, arguments)

    assert (done.exit_code, done.stdout) == (2, "")
    assert "cannot be read as a Manifest (a text that Penstock never writes" in done.stderr or (
        len(hostile) > 40 and "length <= 40" in done.stderr
    )
    assert forger.outside() == before


@each_name
def test_an_attempt_of_a_forged_name_is_refused(forger: Forger, name: str) -> None:
    """An attempt becomes the name of a file in the cache of deltas."""
    forger.forge(
        lambda manifest: with_delta(
            manifest, lambda delta: Delta(attempt=Attempt(name), ref=delta.ref)
        )
    )

    for read in forger.readers():
        refused(forger, read)


@each_name
def test_a_hash_that_is_a_path_is_refused(forger: Forger, name: str) -> None:
    """A hash becomes the name of a file in the cache of snapshot files."""
    forger.with_files(
        lambda file: SnapshotFile(
            name=file.name, ref=Ref(key=file.ref.key, sha256=name, size_bytes=1)
        )
    )

    for read in forger.readers():
        refused(forger, read)


@pytest.mark.parametrize(
    "key", [*HOSTILE.values(), "HEAD", "changelog/other/0/000000000004-a.sst", "snapshots/x"]
)
def test_a_key_outside_its_place_is_refused(forger: Forger, key: str) -> None:
    """A delta is below the changelog of its own operator, whatever a manifest says."""
    forger.forge(
        lambda manifest: with_delta(
            manifest,
            lambda delta: Delta(
                attempt=delta.attempt, ref=msgspec.structs.replace(delta.ref, key=Key(key))
            ),
        )
    )

    for read in forger.readers():
        refused(forger, read)


@pytest.mark.parametrize("number", [-1, 1 << 62, 1 << 70])
@pytest.mark.parametrize("field", ["epoch", "token", "generation", "rows_in"])
def test_a_number_beyond_its_limits_is_refused(forger: Forger, field: str, number: int) -> None:
    """Numbers become names, memory and loops."""
    if field == "rows_in" and number == 1 << 62:
        number = -2
    forger.forge(lambda manifest: msgspec.structs.replace(manifest, **{field: number}))

    refused(forger, forger.root.newest)


@each_name
def test_a_head_of_a_forged_name_is_refused(forger: Forger, name: str) -> None:
    """The job's name becomes a folder of this host."""
    head = msgspec.structs.replace(forger.root.head(), job=name)
    forger.job.store.put(HEAD_KEY, seal(head))

    with pytest.raises(Corrupt, match="cannot be read as a Head"):
        forger.root.head()


def test_a_document_nested_too_deeply_is_refused() -> None:
    """The parser's own limit, told in a sentence."""
    body = b'{"format":1,"job":' + b"[" * 200_000 + b"]" * 200_000 + b"}"

    with pytest.raises(Corrupt, match="cannot be read as a Head"):
        HEAD_REGISTER.decode(body)


def test_an_object_longer_than_its_name_says_fills_no_disk(forger: Forger) -> None:
    """The download stops at the first byte too many."""
    written: list[int] = []

    class Endless(MemoryStore):
        def download(self, key: Key, target: Any) -> bool:
            for _ in range(10_000):
                target.write(bytes(1 << 10))
                written.append(1 << 10)
            return True

    forger.job.restorer.store = Endless()
    forger.job.host = forger.folder / "other-host"
    with pytest.raises(Corrupt, match="is longer than the"):
        forger.job.open()

    assert sum(written) < 1 << 20


def test_an_object_too_large_for_memory_is_refused_before_it_is_read() -> None:
    """Its length is known before its bytes are."""
    check_size("HEAD", OBJECT_BYTES_MAX)
    with pytest.raises(Corrupt, match="are read into memory"):
        check_size("HEAD", OBJECT_BYTES_MAX + 1)


def test_a_hash_is_kept_of_what_may_be_as_long_as_it_is() -> None:
    """The limit changes nothing for an object of the right length."""
    hashed = HashedFile(None, lambda size_bytes: None)
    hashed.write(b"right")

    assert (hashed.hexdigest(), hashed.size_bytes) == (hashlib.sha256(b"right").hexdigest(), 5)


def test_fsck_lists_a_forged_manifest_and_changes_nothing(forger: Forger) -> None:
    """A person who looks is told, by name."""
    forger.with_files(lambda file: SnapshotFile(name="../escaped", ref=file.ref))

    found = forger.root.check()

    assert [line.split(" cannot")[0] for line in found.wrong] == [newest_key(forger)]


def newest_key(forger: Forger) -> str:
    head = forger.root.head()
    assert head.manifest is not None
    return head.manifest.key


def test_honest_snapshots_hold_no_other_names(forger: Forger) -> None:
    """The rule lets pass what RocksDB really makes; `penstock state get` still answers."""
    done = CliRunner().invoke(app, ["state", "get", forger.url, OPERATOR, "ann"])

    assert (done.exit_code, done.stdout) == (0, "total: 4\n")
