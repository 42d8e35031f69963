"""`penstock sinks`: looking at sinks, and deciding what becomes of one after a rewind."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import penstock as ps
from penstock.checkpoint.root import Root
from penstock.ids import Epoch
from penstock.runtime.cli import app
from penstock.runtime.loading import load_job
from tests.support.in_process import SETTINGS, LocalRun, append, click, clicks_log

JOB = """
import penstock as ps

@ps.stateful(emits="user string, n long")
def count(user: str, events: ps.Events, seen: ps.Value[int]):
    seen.set(seen.get(0) + len(events))
    yield {"user": user, "n": seen.get()}

job = ps.Job("counts", partitions=2)
counts = job.read(ps.Log("LOG")).key_by("user").process(count)
counts.write(ps.Memory("SHELF")).write(ps.Table("table"))
"""


class Scene:
    """A job file, its root, and its sink."""

    def __init__(self, folder: Path) -> None:
        self.log = clicks_log(folder)
        self.shelf = ps.Memory(f"shelf-{folder.name}")
        self.file = folder / "job.py"
        self.file.write_text(
            JOB.replace("LOG", str(folder / "clicks")).replace("SHELF", self.shelf.name)
        )
        self.local = LocalRun(load_job(str(self.file)), folder)

    def epochs(self, count: int) -> None:
        """So many epochs, of one click of ada's each."""
        for _ in range(count):
            append(self.log, [click("ada", 1)])
            self.local.run(SETTINGS)

    def say(self, *words: str) -> Result:
        return CliRunner().invoke(app, ["sinks", *words, "--root", self.local.url])

    def listed(self) -> Any:
        return json.loads(self.say("list", str(self.file), "--json").stdout)

    def counts(self) -> list[int]:
        return [row["n"] for row in self.shelf.rows()]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_every_shard_is_asked_how_far_it_is(scene: Scene) -> None:
    """The sink itself is asked: whether the job runs makes no difference."""
    scene.epochs(2)

    assert scene.listed() == {
        scene.shelf.name: {"guarantee": "exactly-once", "shards": [2, 2], "why": None}
    }
    shown = scene.say("list", str(scene.file)).stdout
    assert shown == f"{scene.shelf.name} (exactly-once): epoch 2 in every shard\n"


def test_a_sink_that_is_ahead_after_a_rewind_stops_the_job(scene: Scene) -> None:
    """Its rows were computed by epochs that are no more; only a person knows what to do."""
    scene.epochs(4)
    Root.open(scene.local.url).rewind("counts", Epoch(2))

    with pytest.raises(ps.Invalid, match="has taken epoch 4 of generation 1, and HEAD is at epoch"):
        scene.epochs(1)

    assert scene.counts() == [1, 2, 3, 4]


def test_a_sink_that_is_accepted_goes_on_from_head(scene: Scene) -> None:
    """Rows that were computed twice are there twice: that is what was asked for."""
    scene.epochs(4)
    Root.open(scene.local.url).rewind("counts", Epoch(2))
    done = scene.say("accept", str(scene.file), scene.shelf.name, "--yes")

    assert (done.exit_code, done.stdout) == (
        0,
        f"Sink {scene.shelf.name} goes on after epoch 2 (2 shards).\n",
    )
    scene.local.run()
    assert scene.counts() == [1, 2, 3, 4, 4]  # both clicks since, in one epoch


def test_a_target_of_another_root_can_be_taken_over(scene: Scene, tmp_path: Path) -> None:
    """A job that is begun anew on a new root, into the table it had."""
    scene.epochs(2)
    other = Scene.__new__(Scene)
    other.__dict__.update(scene.__dict__)
    (tmp_path / "anew").mkdir()
    other.local = LocalRun(load_job(str(scene.file)), tmp_path / "anew")
    with other.local.root.lead("counts"):
        pass
    done = other.say("accept", str(scene.file), scene.shelf.name, "--yes")
    assert done.exit_code == 0, done.output

    other.local.run()

    assert scene.counts() == [1, 2, 2]


def test_a_sink_the_job_does_not_have_is_named(scene: Scene) -> None:
    """A typing mistake changes nothing."""
    scene.epochs(1)
    token = scene.local.root.head().token
    done = scene.say("accept", str(scene.file), "shelve", "--yes")

    assert done.exit_code == 2
    assert f"sink 'shelve' is not one of the job's: choose of: {scene.shelf.name}" in done.output
    assert scene.local.root.head().token == token


def test_a_job_that_runs_is_left_alone(scene: Scene) -> None:
    """Accepting takes the root over, and nobody is deposed by mistake."""
    scene.epochs(1)
    with scene.local.root.lead("counts") as session:
        session.beat(0.05)
        done = scene.say("accept", str(scene.file), scene.shelf.name, "--yes")

    assert done.exit_code == 2
    assert "job counts is running" in done.output
