"""What only a store in a folder can get wrong."""

import fcntl
import io
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.checkpoint.directory_store import DirectoryStore
from penstock.checkpoint.folder_locks import LOCK_WAIT_S_MAX, FolderLocks
from penstock.clock import SystemClock
from penstock.errors import Corrupt, Invalid, Unavailable
from penstock.ids import Key
from tests.support.clocks import SteppingClock
from tests.support.scripts import ROOT, run_script
from tests.support.versity import out_of_reach

KEY = Key("folder/object")
GONE_PID = 2**22 + 1
"""Larger than any process id Linux gives out."""

REPORT = """
import os, sys
from penstock.checkpoint.directory_store import DirectoryStore
from penstock.errors import PenstockError

def report(attempt):
    try:
        attempt()
    except PenstockError as error:
        print(type(error).__name__, error)
    else:
        print("fine")
"""


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_opening_changes_nothing(tmp_path: Path) -> None:
    """Looking at a mistyped path must not leave an empty job there."""
    store = DirectoryStore(tmp_path / "mistyped")
    store.get(KEY)
    store.list("")
    store.delete(KEY)
    store.replace(KEY, b"", "0" * 64)  # type: ignore[arg-type]
    store.download(KEY, io.BytesIO())

    assert names_in(tmp_path) == []


def test_the_first_write_makes_the_folder_and_those_above(tmp_path: Path) -> None:
    """A job can be started on a path that does not exist yet."""
    store = DirectoryStore(tmp_path / "a" / "b")
    store.create(KEY, b"body")

    assert (tmp_path / "a" / "b" / KEY).read_bytes() == b"body"


def test_nothing_stays_staged(tmp_path: Path) -> None:
    """Neither a write that won nor one that lost leaves bytes behind."""
    store = DirectoryStore(tmp_path)
    store.create(KEY, b"first")
    store.create(KEY, b"second")
    store.put(KEY, b"third")
    store.upload(KEY, io.BytesIO(b"fourth"))

    assert names_in(tmp_path / ".staging") == []


def test_a_failed_upload_leaves_the_object_and_no_staging(tmp_path: Path) -> None:
    """A file that cannot be read to its end must not become an object."""
    store = DirectoryStore(tmp_path)
    store.put(KEY, b"before")

    with pytest.raises(Unavailable, match="Input/output error"):
        store.upload(KEY, Broken())  # type: ignore[arg-type]

    assert (tmp_path / KEY).read_bytes() == b"before"
    assert names_in(tmp_path / ".staging") == []


class Broken(io.RawIOBase):
    """Gives one piece, then an error of the disk."""

    def __init__(self) -> None:
        self._pieces = [b"piece"]

    def read(self, size: int = -1) -> bytes:
        if self._pieces:
            return self._pieces.pop()
        raise OSError(5, os.strerror(5))


def test_deleting_the_last_object_removes_its_folders(tmp_path: Path) -> None:
    """An epoch has folders of its own; a year of them must not stay behind empty."""
    store = DirectoryStore(tmp_path)
    store.put(Key("a/b/c/one"), b"")
    store.put(Key("a/two"), b"")
    store.delete(Key("a/b/c/one"))

    assert names_in(tmp_path / "a") == ["two"]


def test_writing_beside_deleting_never_loses_the_folder(tmp_path: Path) -> None:
    """The folder a writer has made may be pruned before it has renamed its file into it."""
    store = DirectoryStore(tmp_path)
    done = threading.Event()

    def churn() -> None:
        while not done.is_set():
            store.put(Key("a/b/churn"), b"")
            store.delete(Key("a/b/churn"))

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for number in range(100):
            store.put(Key(f"a/b/{number}"), b"")
            store.delete(Key(f"a/b/{number}"))
    finally:
        done.set()
        thread.join()

    assert list(store.list("")) == []


def test_other_peoples_files_are_not_listed(tmp_path: Path) -> None:
    """A folder may hold an editor's leftovers; they are not objects."""
    store = DirectoryStore(tmp_path)
    store.put(KEY, b"")
    for name in (".DS_Store", "read me.txt", "object~"):
        (tmp_path / "folder" / name).write_text("not ours")

    assert [entry.key for entry in store.list("")] == [KEY]


def test_a_listing_reads_only_the_folders_it_needs(tmp_path: Path) -> None:
    """A collector that asks for one epoch must not scan a year of them."""
    store = DirectoryStore(tmp_path)
    for name in ("outputs/1/x", "outputs/2/x", "manifests/1"):
        store.put(Key(name), b"")
    script = (
        "import os, sys\n"
        "from penstock.checkpoint.directory_store import DirectoryStore\n"
        "store = DirectoryStore(sys.argv[1])\n"
        "def note(event, found):\n"
        "    if event == 'os.scandir': print(os.path.relpath(found[0], sys.argv[1]))\n"
        "sys.addaudithook(note)\n"
        "store.list('outputs/2/')"
    )

    assert run_script(script, tmp_path) == "outputs/2"


def test_a_key_below_another_object_is_refused(tmp_path: Path) -> None:
    """A bucket could hold both; a folder cannot, and says so."""
    store = DirectoryStore(tmp_path)
    store.put(Key("a"), b"object")

    with pytest.raises(Invalid, match="a folder stands there, or a file where a folder is needed"):
        store.put(Key("a/b"), b"")
    assert store.get(Key("a/b")) is None


def test_a_key_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    """The same the other way round."""
    store = DirectoryStore(tmp_path)
    store.put(Key("a/b"), b"object")

    for attempt in (store.put, store.create):
        with pytest.raises(Invalid, match="a folder stands there"):
            attempt(Key("a"), b"")
    store.delete(Key("a"))
    assert store.get(Key("a")) is None
    assert store.get(Key("a/b")) is not None


def test_a_root_below_a_file_is_refused(tmp_path: Path) -> None:
    """A mistyped root."""
    (tmp_path / "file").write_text("")

    with pytest.raises(Invalid, match=r"object 'folder/object' cannot be a file"):
        DirectoryStore(tmp_path / "file" / "root").put(KEY, b"")


def test_a_segment_too_long_for_the_disk_is_refused(tmp_path: Path) -> None:
    """Buckets have longer names than files."""
    with pytest.raises(Invalid, match="at most 240 characters each"):
        DirectoryStore(tmp_path).put(Key("x" * 300), b"")


def test_a_folder_without_permission_is_the_users_to_fix(tmp_path: Path) -> None:
    """The message names the object, the reason and the folder."""
    (tmp_path / "closed").mkdir(mode=0o500)
    script = REPORT + (
        "store = DirectoryStore(sys.argv[1])\n"
        "if os.getuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        "report(lambda: store.put('object', b''))"
    )

    printed = run_script(script, tmp_path / "closed")

    assert printed == (
        "Invalid object 'object' cannot be reached because this process has no permission: "
        f"give this user access to {tmp_path / 'closed'}."
    )


MOUNTED = (
    REPORT
    + """
import subprocess
root, options = sys.argv[1:]
store = DirectoryStore(root)
subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", root], check=True)
report(lambda: store.put("object", bytes(1 << 20)))
report(lambda: store.put("object", b"small"))
print(sorted(os.listdir(root + "/.staging")) if os.path.isdir(root + "/.staging") else None)
"""
)


def run_mounted(folder: Path, options: str) -> list[str]:
    """Run on a file system of its own, which only the script sees."""
    for namespace in (("unshare", "--mount"), ("unshare", "-r", "--mount")):
        probe = [*namespace, "mount", "-t", "tmpfs", "none", str(folder)]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return run_script(MOUNTED, folder, options, before=namespace).splitlines()
    return out_of_reach("mounting a small file system needs unshare and the right to mount")


def test_a_full_disk_may_pass(tmp_path: Path) -> None:
    """Nothing is left of the attempt, and a smaller write fits."""
    assert run_mounted(tmp_path, "size=64k") == [
        "Unavailable object 'object' could not be written because the disk is full: "
        f"free space in {tmp_path} and try again.",
        "fine",
        "[]",
    ]


def test_a_read_only_disk_is_the_users_to_fix(tmp_path: Path) -> None:
    """Trying again would not help."""
    refusal = (
        "Invalid object 'object' cannot be reached because this process has no permission: "
        f"mount {tmp_path} for writing, or use another folder."
    )

    assert run_mounted(tmp_path, "ro") == [refusal, refusal, "None"]


def test_a_process_killed_before_the_rename_leaves_the_object_as_it_was(tmp_path: Path) -> None:
    """Its staged bytes are seen by nobody, and swept by the next one to come."""
    store = DirectoryStore(tmp_path)
    store.put(KEY, b"before")
    script = (
        "import os, signal, sys\n"
        "from penstock.clock import SystemClock\n"
        "from penstock.checkpoint.directory_store import DirectoryStore\n"
        "class Last(SystemClock):\n"
        "    def sleep(self, seconds): os.kill(os.getpid(), signal.SIGKILL)\n"
        "DirectoryStore(sys.argv[1], Last()).put('folder/object', b'after')"
    )

    # Waiting for the lock is the moment between staging and renaming.
    with FolderLocks(tmp_path / ".locks", SystemClock()).held(KEY):
        assert run_script(script, tmp_path) == f"signal {signal.SIGKILL:d}"

    assert (tmp_path / KEY).read_bytes() == b"before"
    assert len(names_in(tmp_path / ".staging")) == 1
    DirectoryStore(tmp_path).put(Key("other"), b"")
    assert names_in(tmp_path / ".staging") == []


def test_only_this_hosts_dead_are_swept(tmp_path: Path) -> None:
    """On a share, another host's process id says nothing here."""
    staging = tmp_path / ".staging"
    staging.mkdir()
    here = socket.gethostname()
    keep = {f"{os.getpid()}@{here}@alive", f"{GONE_PID}@elsewhere@x", "something else"}
    for name in (*keep, f"{GONE_PID}@{here}@dead"):
        (staging / name).write_bytes(b"")

    DirectoryStore(tmp_path)
    assert len(names_in(staging)) == len(keep) + 1, "opening changes nothing"
    DirectoryStore(tmp_path).put(Key("first-write"), b"")

    assert set(names_in(staging)) == keep


def test_a_stopped_holder_does_not_hang_the_others(tmp_path: Path) -> None:
    """After a bound they are told; the holder is still right when it wakes."""
    clock = SteppingClock()
    store = DirectoryStore(tmp_path, clock)
    store.put(KEY, b"before")
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from penstock.clock import SystemClock\n"
        "from penstock.checkpoint.folder_locks import FolderLocks\n"
        "with FolderLocks(Path(sys.argv[1]), SystemClock()).held('folder/object'):\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / ".locks")]
    with subprocess.Popen(command, cwd=ROOT) as holder:
        os.waitid(os.P_PID, holder.pid, os.WSTOPPED)
        with pytest.raises(Unavailable, match="by a process that has stopped: find it with"):
            store.put(KEY, b"after")
        assert store.get(KEY) is not None
        holder.send_signal(signal.SIGCONT)
        holder.wait()

    store.put(KEY, b"after")
    assert sum(clock.slept) == pytest.approx(LOCK_WAIT_S_MAX, abs=0.1)
    assert (tmp_path / KEY).read_bytes() == b"after"


def test_a_child_forked_while_the_lock_is_held_does_not_keep_it(tmp_path: Path) -> None:
    """Workers are forked at any moment, and have every open file of their parent."""
    locks = FolderLocks(tmp_path, SystemClock())
    with locks.held(KEY):
        inherited = os.dup(_descriptor_of(locks.path(KEY)))
    with locks.path(KEY).open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(inherited)


def _descriptor_of(path: Path) -> int:
    for link in Path("/proc/self/fd").iterdir():
        if link.is_symlink() and link.readlink() == path:
            return int(link.name)
    raise AssertionError(f"{path} is not open")


def test_a_link_below_the_root_leads_nowhere(tmp_path: Path) -> None:
    """Else a job writes into another root, and collects what that root needs."""
    mine, other = DirectoryStore(tmp_path / "mine"), DirectoryStore(tmp_path / "other")
    other.put(KEY, b"of the other")
    mine.put(Key("beside"), b"")
    (tmp_path / "mine" / "folder").symlink_to(tmp_path / "other" / "folder")
    uses: list[Callable[[], object]] = [
        lambda: mine.get(KEY),
        lambda: mine.put(KEY, b"mine"),
        lambda: mine.put(Key("folder/deeper/object"), b"mine"),
        lambda: mine.create(Key("folder/new"), b"mine"),
        lambda: mine.delete(KEY),
        lambda: mine.download(KEY, io.BytesIO()),
        lambda: mine.upload(KEY, io.BytesIO(b"mine")),
        lambda: mine.list(""),
        lambda: mine.list("fold"),
        lambda: mine.list("folder/"),
    ]

    for use in uses:
        with pytest.raises(Corrupt, match="is behind a link"):
            use()
    assert [entry.key for entry in other.list("")] == [KEY]
    stored = other.get(KEY)
    assert stored is not None
    assert stored.body == b"of the other"


@pytest.mark.parametrize("name", [".staging", ".locks"])
def test_a_folder_of_the_stores_own_is_no_link(tmp_path: Path, name: str) -> None:
    """A sweep behind it would remove what other processes are writing."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / name).symlink_to(tmp_path)

    with pytest.raises(Corrupt, match="is behind a link"):
        DirectoryStore(tmp_path / "root").put(KEY, b"")


def test_an_object_that_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    """An endless device would fill the memory, and a pipe would keep the reader for ever."""
    store = DirectoryStore(tmp_path)
    (tmp_path / "link").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
        for name in ("link", "pipe", "socket"):
            with pytest.raises(Corrupt):
                store.get(Key(name))
            with pytest.raises(Corrupt):
                store.download(Key(name), io.BytesIO())


def test_a_root_may_be_reached_through_a_link(tmp_path: Path) -> None:
    """Folders of temporary files are links on some systems, and so are mounts."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = DirectoryStore(tmp_path / "link")
    store.put(KEY, b"body")

    assert [entry.key for entry in store.list("folder/")] == [KEY]
    store.delete(KEY)
    assert store.get(KEY) is None
