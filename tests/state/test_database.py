"""What a partition's database promises: whole versions, one owner, and damage that is noticed."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from rocksdict import SstFileWriter

from penstock.errors import Bug, Corrupt, Invalid
from penstock.ids import Attempt, Epoch, Generation
from penstock.state.database import Locked, PartitionDatabase
from penstock.state.delta import Marker, write_delta
from penstock.state.layout import MARKER_KEY
from penstock.state.settings import StateSettings, sst_options
from tests.support.scripts import run_script
from tests.support.versity import out_of_reach

SETTINGS = StateSettings(block_cache_bytes=1 << 20)
ENTRIES = 2000
FIRST, LAST = b"\x01", b"\x02"


def marker(epoch: int) -> Marker:
    return Marker(
        job="job",
        operator="count",
        partition=0,
        generation=Generation(1),
        epoch=Epoch(epoch),
        attempt=Attempt(f"a{epoch}"),
    )


def entry(number: int) -> bytes:
    return FIRST + number.to_bytes(4, "big")


def delta(folder: Path, epoch: int, changes: dict[bytes, bytes | None]) -> Path:
    return write_delta(folder / f"{epoch}.sst", marker(epoch), changes, b"{}", SETTINGS).path


def contents(database: PartitionDatabase) -> dict[bytes, bytes]:
    return dict(database.scan(FIRST, LAST))


@pytest.fixture
def deltas(tmp_path: Path) -> list[Path]:
    """Two epochs: many entries, then some changed and some removed."""
    many: dict[bytes, bytes | None] = {
        entry(n): n.to_bytes(4, "big") + os.urandom(60) for n in range(ENTRIES)
    }
    few: dict[bytes, bytes | None] = {entry(1): b"changed", entry(2): None}
    return [delta(tmp_path, 1, many), delta(tmp_path, 2, few)]


def test_a_new_database_is_empty(tmp_path: Path) -> None:
    """It has no marker, so nobody takes it for some version."""
    with PartitionDatabase(tmp_path / "new" / "db", SETTINGS) as database:
        assert (database.marker, database.schemas, contents(database)) == (None, None, {})


def test_the_marker_is_that_of_the_last_delta(tmp_path: Path, deltas: list[Path]) -> None:
    """Whether they came one by one or together, in this process or an earlier one."""
    one_by_one, together = tmp_path / "one", tmp_path / "two"
    with PartitionDatabase(one_by_one, SETTINGS) as database:
        for epoch, path in enumerate(deltas, 1):
            database.ingest([path])
            assert database.marker == marker(epoch)
    with PartitionDatabase(together, SETTINGS) as database:
        database.ingest(deltas)
        database.ingest([])
        whole = contents(database)

    for folder in (one_by_one, together):
        with PartitionDatabase(folder, SETTINGS) as database:
            assert database.marker == marker(2)
            assert contents(database) == whole
    assert (len(whole), whole[entry(1)], entry(2) in whole) == (ENTRIES - 1, b"changed", False)


def test_a_delta_is_the_same_after_it_was_taken_in(tmp_path: Path, deltas: list[Path]) -> None:
    """The changelog keeps it; its hash is in the manifest."""
    before = [path.read_bytes() for path in deltas]
    with PartitionDatabase(tmp_path / "db", SETTINGS) as database:
        database.ingest(deltas)
        database.compact()

    assert [path.read_bytes() for path in deltas] == before


def test_many_keys_are_read_in_the_order_asked(tmp_path: Path, deltas: list[Path]) -> None:
    """Also those that are not there, or not any more."""
    with PartitionDatabase(tmp_path / "db", SETTINGS) as database:
        database.ingest(deltas)
        found = database.get_many([entry(2), entry(1), entry(ENTRIES), MARKER_KEY])
        assert found[:3] == [None, b"changed", None]
        assert found[3] is not None


@pytest.mark.parametrize("damage", ["cut short", "overwritten", "empty", "missing"])
def test_deltas_are_taken_in_all_or_none(tmp_path: Path, deltas: list[Path], damage: str) -> None:
    """A bad second file leaves the first outside: the marker never runs ahead of its contents."""
    harm(deltas[1], damage)
    with PartitionDatabase(tmp_path / "db", SETTINGS) as database:
        with pytest.raises(Corrupt, match="database db cannot be used"):
            database.ingest(deltas)
        assert (database.marker, contents(database)) == (None, {})

    with PartitionDatabase(tmp_path / "db", SETTINGS) as database:
        assert (database.marker, contents(database)) == (None, {})


def test_a_database_open_in_this_process_is_locked(tmp_path: Path) -> None:
    """A second attempt takes another folder; it never waits."""
    with PartitionDatabase(tmp_path / "db", SETTINGS), pytest.raises(Locked) as caught:
        PartitionDatabase(tmp_path / "db", SETTINGS)

    assert str(caught.value) == "database db is open elsewhere: take another folder."
    PartitionDatabase(tmp_path / "db", SETTINGS).close()


REPORT = """
import os, subprocess, sys
from pathlib import Path
from rocksdict import SstFileWriter
from penstock.errors import PenstockError
from penstock.state.database import PartitionDatabase
from penstock.state.delta import Marker, write_delta
from penstock.state.settings import StateSettings

SETTINGS = StateSettings(block_cache_bytes=1 << 20)
MARKER = Marker(job="j", operator="o", partition=0, generation=1, epoch=1, attempt="a")
folder = Path(sys.argv[1])

def report(attempt):
    try:
        attempt()
    except PenstockError as error:
        print(type(error).__name__, error)
    else:
        print("fine")

def be_nobody():
    SstFileWriter()  # imports what nobody may not be allowed to read
    if os.getuid() == 0: os.setgid(65534); os.setuid(65534)
"""


def test_a_database_open_in_another_process_is_locked(tmp_path: Path) -> None:
    """That process may be stopped or dead slow: nothing to wait for either."""
    opening = REPORT + "report(lambda: PartitionDatabase(folder, SETTINGS))"
    with PartitionDatabase(tmp_path / "db", SETTINGS):
        printed = run_script(opening, tmp_path / "db")

    assert printed == "Locked database db is open elsewhere: take another folder."
    assert run_script(opening, tmp_path / "db") == "fine"


def test_a_closed_database_is_not_a_damaged_one(tmp_path: Path, deltas: list[Path]) -> None:
    """Whoever uses it has made a mistake; nobody should throw its folder away for that."""
    database = PartitionDatabase(tmp_path / "db", SETTINGS)
    database.ingest(deltas[:1])
    database.close()
    database.close()

    for use in (
        lambda: database.get(entry(1)),
        lambda: database.get_many([entry(1)]),
        lambda: contents(database),
        lambda: database.ingest(deltas[1:]),
        database.compact,
        lambda: database.checkpoint(tmp_path / "copy"),
    ):
        with pytest.raises(Bug, match="database db was used after it was closed"):
            use()


def harm(path: Path, damage: str) -> None:
    body = path.read_bytes()
    match damage:
        case "cut short":
            path.write_bytes(body[: len(body) // 2])
        case "overwritten":
            path.write_bytes(b"\xa5" * len(body))
        case "one bit":
            middle = len(body) // 2
            path.write_bytes(body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :])
        case "empty":
            path.write_bytes(b"")
        case "missing":
            path.unlink()


@pytest.fixture
def closed(tmp_path: Path, deltas: list[Path]) -> Path:
    """A database nobody has open."""
    with PartitionDatabase(tmp_path / "db", SETTINGS) as database:
        database.ingest(deltas[:1])
    return tmp_path / "db"


@pytest.mark.parametrize("damage", ["cut short", "overwritten", "empty", "missing"])
@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST-*", "*.sst"])
def test_a_damaged_file_is_corrupt(closed: Path, name: str, damage: str) -> None:
    """Said on opening or on reading, never by wrong contents."""
    harm(next(closed.glob(name)), damage)

    with pytest.raises(Corrupt, match="database db"), PartitionDatabase(closed, SETTINGS) as broken:
        if broken.marker is None:
            # RocksDB makes a new database where CURRENT is gone; without a marker it is discarded.
            raise Corrupt("database db", "is empty", "restore it")
        contents(broken)


@pytest.mark.parametrize("read", ["scan", "get", "get_many"])
def test_one_flipped_bit_is_corrupt(closed: Path, read: str) -> None:
    """A scan that ended at the damaged block as if nothing came after it would lose state."""
    harm(next(closed.glob("*.sst")), "one bit")
    every = [entry(number) for number in range(ENTRIES)]

    with (
        pytest.raises(Corrupt, match=r"database db cannot be used .*checksum mismatch"),
        PartitionDatabase(closed, SETTINGS) as broken,
    ):
        {
            "scan": lambda: contents(broken),
            "get": lambda: [broken.get(key) for key in every],
            "get_many": lambda: broken.get_many(every),
        }[read]()


def test_a_marker_that_is_none_is_corrupt_and_lets_go(tmp_path: Path) -> None:
    """The folder can be discarded at once: nobody holds it."""
    writer = SstFileWriter(options=sst_options(SETTINGS))
    writer.open(str(tmp_path / "odd.sst"))
    writer[MARKER_KEY] = b'{"epoch": "one"}'
    writer.finish()
    with (
        pytest.raises(Corrupt, match="has a marker that cannot be read"),
        PartitionDatabase(tmp_path / "db", SETTINGS) as database,
    ):
        database.ingest([tmp_path / "odd.sst"])

    for _ in range(2):
        with pytest.raises(Corrupt, match="has a marker that cannot be read"):
            PartitionDatabase(tmp_path / "db", SETTINGS)


def test_a_file_where_the_folder_should_be_is_the_users_to_fix(tmp_path: Path) -> None:
    """It is not ours to discard."""
    (tmp_path / "db").write_text("somebody's notes")

    with pytest.raises(Invalid, match=f"has a file in its place: look at {tmp_path / 'db'}"):
        PartitionDatabase(tmp_path / "db", SETTINGS)


def test_a_folder_without_permission_is_the_users_to_fix(tmp_path: Path) -> None:
    """For a new database, for one that is there, and for a delta."""
    (tmp_path / "closed").mkdir()
    PartitionDatabase(tmp_path / "closed" / "old", SETTINGS).close()
    for path in (tmp_path / "closed" / "old", tmp_path / "closed"):
        path.chmod(0o500)
    script = REPORT + (
        "be_nobody()\n"
        "report(lambda: PartitionDatabase(folder / 'new', SETTINGS))\n"
        "report(lambda: PartitionDatabase(folder / 'old', SETTINGS))\n"
        "report(lambda: write_delta(folder / 'new.sst', MARKER, {}, b'{}', SETTINGS))"
    )
    # pytest's folder is closed to others, and the script may be somebody else.
    for parent in [*tmp_path.parents][:2]:
        parent.chmod(0o711)
    tmp_path.chmod(0o755)

    new, old, unwritten = run_script(script, tmp_path / "closed").splitlines()

    assert new == (
        f"Invalid database new cannot be opened: give this user access to {tmp_path / 'closed'}."
    )
    assert old == new.replace("new", "old")
    assert re.fullmatch(
        r"Unavailable delta new.sst could not be written \(.*Permission denied.*\): "
        rf"free space in {tmp_path / 'closed'}, or give this user access to it, and try again\.",
        unwritten,
    )


MOUNTED = (
    REPORT
    + """
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)], check=True)

def some(count):
    return {b"\\x01" + number.to_bytes(4, "big"): os.urandom(1000) for number in range(count)}

def write(name, changes):
    report(lambda: write_delta(folder / name, MARKER, changes, b"{}", SETTINGS))

database = PartitionDatabase(folder / "db", SETTINGS)
write("large.sst", some(1200))
report(lambda: database.ingest([folder / "large.sst"]))
print(database.marker, len(list(database.scan(b"\\x01", b"\\x02"))))
write("too-large.sst", some(1200))
database.close()  # what was copied in part goes when the database is opened next
database = PartitionDatabase(folder / "db", SETTINGS)
write("small.sst", some(10))
report(lambda: database.ingest([folder / "small.sst"]))
print(len(list(database.scan(b"\\x01", b"\\x02"))), sorted(p.name for p in folder.glob("*.sst")))
with open(folder / "filler", "wb", buffering=0) as filler:
    try:
        while filler.write(bytes(4096)): pass
    except OSError: pass
report(lambda: PartitionDatabase(folder / "other", SETTINGS))
"""
)


def run_mounted(folder: Path) -> list[str]:
    """Run on a small file system of its own, which only the script sees."""
    for namespace in (("unshare", "--mount"), ("unshare", "-r", "--mount")):
        probe = [*namespace, "mount", "-t", "tmpfs", "none", str(folder)]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return run_script(MOUNTED, folder, before=namespace).splitlines()
    return out_of_reach("mounting a small file system needs unshare and the right to mount")


def test_a_full_disk_may_pass(tmp_path: Path) -> None:
    """The version stays, nothing is left of what did not fit, and smaller things still fit."""
    unwritten = (
        r"Unavailable delta too-large.sst could not be written \(.*No space left on device.*\): "
        rf"free space in {tmp_path}, or give this user access to it, and try again\."
    )
    full = rf"Unavailable database (db|other) ran out of disk: free space in {tmp_path}\."
    lines = run_mounted(tmp_path)

    assert (lines[0], lines[2]) == ("fine", "None 0")
    assert re.fullmatch(full, lines[1])
    assert re.fullmatch(unwritten, lines[3])
    assert lines[4:7] == ["fine", "fine", "10 ['large.sst', 'small.sst']"]
    assert re.fullmatch(full, lines[7])


OTHERS = StateSettings(block_cache_bytes=2 << 20, max_open_files=99, sst_bytes=3 << 20)


def options_in(folder: Path) -> dict[str, str]:
    """What the database itself says it is run with."""
    newest = max(folder.glob("OPTIONS-*"))
    return dict(re.findall(r"^\s+(\w+)=(.*)$", newest.read_text(), re.M))


def test_options_are_in_force_on_every_open(closed: Path) -> None:
    """rocksdict would take back those the database was made with, or none at all (B24)."""
    with PartitionDatabase(closed, OTHERS):
        found = options_in(closed)
    assert found["max_open_files"] == "99"
    assert found["target_file_size_base"] == str(3 << 20)
    assert found["max_bytes_for_level_base"] == str(12 << 20)

    with PartitionDatabase(closed, SETTINGS):
        found = options_in(closed)
    assert found["max_open_files"] == str(SETTINGS.max_open_files)
    assert found["target_file_size_base"] == str(SETTINGS.sst_bytes)
    assert found["filter_policy"] == "bloomfilter"
    assert found["cache_index_and_filter_blocks"] == "true"
    assert found["compression"] == "kLZ4Compression"


def test_keys_are_plain_bytes_on_every_open(closed: Path) -> None:
    """A database opened without raw mode would show every key with a tag of rocksdict's own."""
    (closed / "rocksdict-config.json").unlink()

    with PartitionDatabase(closed, SETTINGS) as database:
        assert database.marker == marker(1)
        assert len(contents(database)) == ENTRIES
