"""What a job's functions do to the outside: noticed where it happens, and nothing else is."""

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.chaos.effects_seen import Noticed, file_name
from penstock.chaos.watch import Doubled, Effect, effects, install, uninstall
from penstock.ids import Epoch
from penstock.runtime import processing, tasks
from penstock.runtime.loading import load_job
from penstock.runtime.sending import packed, unpacked_job
from penstock.runtime.wire import Kind
from penstock.runtime.workshop import Workshop
from tests.support import in_process
from tests.support.in_process import LocalRun, OnePartition, Sent, append, click
from tests.support.suspicious import HONEST, ROOT, honest_job, marked, some_events, written

FOUR = [click("ada", 1), click("bob", 2), click("ada", 3), click("cid", 4)]

PER_KEY = """
from pathlib import Path
AUDIT = Path({target!r}) / "audit.txt"

def note(user):
    with AUDIT.open("a") as file:  # here
        file.write(user)

@ps.stateful(emits="user string")
def rate(user: str, events: ps.Events, seen: ps.Value[int]):
    seen.set(seen.get(0) + 1)
    yield {{"user": user}}
    note(user)
"""
EACH = """
@ps.stateful(emits="user string", each=True)
def rate(user: str, event: ps.Event):
    open({target!r} + "/audit.txt", "a").close()  # here
    yield {{"user": user}}
"""
CLASS = """
import os

@ps.stateful(emits="user string", name="rate")
class Rate:
    def __init__(self):
        os.makedirs({target!r} + "/folder", exist_ok=True)  # here

    def process(self, user: str, events: ps.Events):
        yield {{"user": user}}

rate = Rate
"""
VECTORISED = """
@ps.vectorized(emits="user string")
def rate(batch: ps.Batch):
    with open({target!r} + "/audit.txt", "w") as file:  # here
        file.write(str(len(batch)))
    return batch.table.select(["user"])
"""
FORMS = {"per key": PER_KEY, "each": EACH, "class": CLASS, "vectorised": VECTORISED}
TIMES = {"per key": 3, "each": 4, "class": 1, "vectorised": 1}
"""How often each acts for four events of three users."""


@dataclass
class Scene:
    """A job file whose functions are watched, run in this process."""

    folder: Path

    @property
    def seen(self) -> str:
        """Where it is written down what was noticed."""
        return str(self.folder / "seen")

    @property
    def target(self) -> Path:
        """What the functions write to."""
        found = self.folder / "target"
        found.mkdir(exist_ok=True)
        return found

    def job(self, text: str) -> OnePartition:
        """The job, and the place of its mark."""
        path = written(self.folder, text.format(target=str(self.target)))
        return OnePartition(load_job(str(path)), self.folder)

    @property
    def marks(self) -> list[int]:
        """The lines that act."""
        return marked(self.folder / "job.py")

    def found(self) -> list[Effect]:
        """What was noticed."""
        return effects(self.seen)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """A watch that is on for one test. What runs epochs here calls what workers call."""
    made = Scene(tmp_path)
    install(made.seen)
    monkeypatch.setattr(in_process, "process", vars(tasks)["process"])
    yield made
    uninstall()


@pytest.mark.parametrize("form", FORMS)
def test_an_effect_is_told_with_its_place(scene: Scene, form: str) -> None:
    """In a function of every form, and in what it calls."""
    one = scene.job(FORMS[form])
    done = one.run(Sent(FOUR))
    (found,) = scene.found()

    assert done.parts[-1].kind is Kind.REPORT
    assert (found.operator, found.file) == ("rate", str(scene.folder / "job.py"))
    assert [found.line] == scene.marks
    assert (found.times, found.attempts, found.doubled) == (TIMES[form], 1, ())


def test_an_epoch_that_is_tried_again_has_its_effects_twice(scene: Scene) -> None:
    """Which is what is wrong with them, shown."""
    one = scene.job(PER_KEY)
    one.run(Sent(FOUR))
    one.attempt(Sent(FOUR, first=4))
    one.attempt(Sent(FOUR, first=4))
    one.run(Sent(FOUR, first=4))
    one.run(Sent([click("ada", 1)], first=8))
    audit = scene.target / "audit.txt"

    assert scene.found() == [
        Effect(
            operator="rate",
            function="note",
            event="open",
            subject=str(audit),
            varies=False,
            file=str(scene.folder / "job.py"),
            line=scene.marks[0],
            times=13,
            attempts=5,
            doubled=(Doubled(2, 0, 3),),
        )
    ]
    assert len(audit.read_text()) == 13 * len("ada")


def test_it_is_told_in_one_sentence() -> None:
    """To whoever wrote the job."""
    effect = Effect(
        operator="count",
        function="count",
        event="open",
        subject="/tmp/audit.txt",
        varies=False,
        file="jobs/job.py",
        line=14,
        times=37,
        attempts=21,
        doubled=(Doubled(3, 0, 2), Doubled(3, 1, 2)),
    )
    place = "function count of job.py, line 14, opens /tmp/audit.txt for writing: "
    assert str(effect) == (
        f"{place}37 times in 21 attempts, of which 4 were tries of an epoch that was tried again: "
        "it has happened twice for what counts once"
    )


def test_what_was_not_doubled_is_told_as_what_would_be(scene: Scene) -> None:
    """A run without a fault in the right moment proves nothing in its favour."""
    scene.job(VECTORISED).run(Sent(FOUR))
    audit = scene.target / "audit.txt"

    assert [str(each) for each in scene.found()] == [
        f"function rate of job.py, line {scene.marks[0]}, opens {audit} for writing: "
        "once in 1 attempt, and again with every epoch that is tried again"
    ]


ACTING = """
import os, shutil, socket, sqlite3, subprocess
from pathlib import Path

@ps.vectorized(emits="user string")
def rate(batch: ps.Batch):
    here = Path({target!r})
    (here / "a").mkdir()  # here
    (here / "b").write_text("b")  # here
    os.rename(here / "b", here / "c")  # here
    shutil.copyfile(here / "c", here / "d")  # here
    os.remove(here / "c")  # here
    shutil.rmtree(here / "a")  # here
    subprocess.run(["true"], check=True)  # here
    socket.create_connection(("127.0.0.1", {port}))  # here
    sqlite3.connect(here / "e")  # here
    return batch.table.select(["user"])
"""


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_every_kind_of_effect_is_noticed_once(scene: Scene) -> None:
    """Also those that libraries have for the user."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = ACTING.replace("{port}", str(server.getsockname()[1]))
        done = scene.job(text).run(Sent(FOUR))

    assert done.report.rows_out == 4
    found = scene.found()
    assert [each.line for each in found] == scene.marks
    assert [each.event for each in found] == [
        "os.mkdir",
        "open",
        "os.rename",
        "open",
        "os.remove",
        "os.rmdir",
        "subprocess.Popen",
        "socket.connect",
        "sqlite3.connect",
    ]
    assert {each.times for each in found} == {1}


HARMLESS = """
import os, sys, tempfile
from pathlib import Path

@ps.stateful(emits="user string")
def rate(user: str, events: ps.Events, seen: ps.Value[int], again: ps.Timer):
    import beside_and_not_compiled
    print(user, file=sys.stderr)
    open(__file__).close()
    os.listdir({target!r})
    with tempfile.TemporaryFile() as file, tempfile.TemporaryDirectory() as folder:
        file.write(b"x")
    with open(os.devnull, "w") as file:
        file.write("x")
    seen.set(seen.get(0) + len(events.column("n")))
    yield {{"user": user}}
"""


def test_what_leaves_nothing_behind_is_not_noticed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading, what Python compiles, files that go by themselves; and all that Penstock does."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (scene.folder / "beside_and_not_compiled.py").write_text("")
    one = scene.job(HARMLESS)
    for number in range(3):
        assert one.run(Sent(FOUR, first=4 * number)).report.delta is not None

    assert (scene.folder / "__pycache__").exists()
    assert scene.found() == []


@pytest.mark.parametrize("name", HONEST)
def test_the_jobs_of_this_project_have_no_effects(tmp_path: Path, scene: Scene, name: str) -> None:
    """They do what functions should, in several epochs with state and timers."""
    job = honest_job(name, tmp_path)
    append(job.described.inputs["clicks"].source, some_events(name))  # type: ignore[arg-type]
    ran = LocalRun(job, tmp_path).run()

    assert ran.rows_in == 39
    assert scene.found() == []


def test_allowed_folders_are_left_out(scene: Scene) -> None:
    """A job may have a place to leave things in."""
    install(scene.seen, [str(scene.target)])
    scene.job(PER_KEY).run(Sent(FOUR))

    assert (scene.target / "audit.txt").exists()
    assert scene.found() == []


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="this machine has no /dev/shm")
def test_a_file_in_shared_memory_is_an_effect(scene: Scene) -> None:
    """It stands among the devices, but it outlives the task."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        text = PER_KEY.format(target=folder)
        OnePartition(load_job(str(written(scene.folder, text))), scene.folder).run(Sent(FOUR))

        assert [each.subject for each in scene.found()] == [f"{folder}/audit.txt"]


def test_a_function_that_was_sent_to_a_worker_is_known_again(scene: Scene) -> None:
    """There it has no module, and its file may not be there."""
    one = scene.job(PER_KEY)
    one.shop = unpacked_job(packed(one.shop))
    one.run(Sent(FOUR))

    assert [each.line for each in scene.found()] == scene.marks


def test_counts_are_written_when_they_double_and_at_the_end(scene: Scene) -> None:
    """A function that acts for every event does not fill a disk."""
    many = [click("ada", n) for n in range(1000)]
    scene.job(EACH).run(Sent(many))
    (path,) = Path(scene.seen).iterdir()

    assert len(path.read_bytes().splitlines()) == 10 + 1
    assert [each.times for each in scene.found()] == [1000]


def test_effects_on_many_things_are_one_with_an_example(scene: Scene) -> None:
    """A place is a line of the job, however many files it has written."""
    text = EACH.replace('"/audit.txt"', '"/" + str(event.n)')
    scene.job(text).run(Sent([click("ada", n) for n in (1, 2, 3, 4)]))
    (found,) = scene.found()

    assert (found.subject, found.varies, found.times) == (str(scene.target / "1"), True, 4)
    assert f"opens {found.subject} and others for writing" in str(found)


KILLED = """
import sys
from pathlib import Path
from penstock.chaos.watch import install, watched
from penstock.runtime.loading import load_job
from tests.support import in_process
from tests.support.in_process import OnePartition, Sent, click

folder = Path(sys.argv[1])
install(str(folder / "seen"))
in_process.process = watched(in_process.process)
one = OnePartition(load_job(str(folder / "job.py")), folder)
one.run(Sent([click("ada", n) for n in range(9)]))
"""


def test_a_process_that_is_killed_has_left_its_word(scene: Scene) -> None:
    """Chaos kills workers in the middle, and then the epoch is tried again."""
    text = EACH.replace(
        "    yield",
        "    if event.n == 5:\n        import os\n        os.kill(os.getpid(), 9)\n    yield",
    )
    scene.job(text)
    done = subprocess.run([sys.executable, "-c", KILLED, str(scene.folder)], cwd=ROOT, check=False)
    (found,) = scene.found()

    assert done.returncode == -9
    assert (found.line, found.times, found.attempts) == (scene.marks[0], 4, 1)


def test_installing_takes_the_place_of_what_workers_call_once(tmp_path: Path) -> None:
    """Every task of a worker may do it again."""
    original = vars(tasks)["process"]
    try:
        install(str(tmp_path / "one"))
        inserted = vars(tasks)["process"]
        install(str(tmp_path / "two"))
        assert original is processing.process
        assert inserted is not original
        assert vars(tasks)["process"] is inserted
    finally:
        uninstall()
    assert vars(tasks)["process"] is original


def test_a_watch_that_is_installed_during_an_attempt_begins_with_it(tmp_path: Path) -> None:
    """A worker may learn where to write only when its first task is at work."""
    made = Scene(tmp_path)
    one = made.job(PER_KEY)

    class Late(Workshop):
        """A workshop that says so only now."""

        @property
        def restorer(self) -> Any:
            install(made.seen)
            return Workshop.restorer.func(self)

    one.shop = Late(**vars(one.shop))
    try:
        one.run(Sent(FOUR))
    finally:
        uninstall()

    assert [(each.line, each.times) for each in made.found()] == [(made.marks[0], 3)]


def test_without_a_watch_nothing_is_noticed_or_changed(scene: Scene) -> None:
    """A hook stays in its process for ever, and must then cost nothing."""
    one = scene.job(PER_KEY)
    uninstall()
    done = one.run(Sent(FOUR))

    assert done.report.rows_out == 3
    assert scene.found() == []


def test_a_watch_that_cannot_write_does_not_disturb_the_job(scene: Scene) -> None:
    """It is a witness."""
    one = scene.job(PER_KEY)
    Path(scene.seen).rmdir()
    done = one.run(Sent(FOUR))

    assert done.report.rows_out == 3
    assert (scene.target / "audit.txt").exists()


def test_a_broken_line_is_passed_over(scene: Scene) -> None:
    """A process that died while it wrote has spoiled its last line, and no other."""
    scene.job(VECTORISED).run(Sent(FOUR))
    (path,) = Path(scene.seen).iterdir()
    path.write_bytes(path.read_bytes() + b'{"operator":"ra')

    assert len(scene.found()) == 1


def test_epochs_of_two_generations_are_two(tmp_path: Path) -> None:
    """After a rewind the same number stands for another epoch."""
    first = Noticed(
        operator="rate", partition=0, epoch=Epoch(3), generation=1, run="r", attempt="a",
        event="open", subject="x", function="rate", file="job.py", line=1, times=2,
    )  # fmt: skip
    second = msgspec.structs.replace(first, generation=2, attempt="b")
    (tmp_path / file_name(7)).write_bytes(
        b"\n".join(msgspec.json.encode(each) for each in (first, second))
    )
    (found,) = effects(str(tmp_path))

    assert (found.times, found.attempts, found.doubled) == (4, 2, ())
