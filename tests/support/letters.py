"""A job whose function cannot stand some numbers, until it is mended; and its dead letters."""

import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

import penstock as ps
from penstock.checkpoint.root import Root
from penstock.ids import Epoch
from penstock.runtime.cli import app
from tests.support.in_process import LocalRun, append, click, clicks_log

Rows = Iterator[dict[str, Any]]
POISON = 100
"""Numbers from here on cannot be processed before the function is mended."""


@ps.stateful(emits="user string, total long", each=True)
def picky(user: str, event: ps.Event, so_far: ps.Value[int]) -> Rows:
    """Sums, and raises at a large number."""
    if event.n >= POISON:
        raise ValueError("too large")
    so_far.set(so_far.get(0) + event.n)
    yield {"user": user, "total": so_far.get()}


@ps.stateful(emits="user string, total long", each=True)
def mended(user: str, event: ps.Event, so_far: ps.Value[int]) -> Rows:
    """Sums."""
    so_far.set(so_far.get(0) + event.n)
    yield {"user": user, "total": so_far.get()}


def summing_job(
    log: ps.Log, function: Any = picky, operators: tuple[str, ...] = ("sum",)
) -> ps.Job:
    """Sums of clicks by user, by one operator or by several alike."""
    job = ps.Job("sums", partitions=1)
    clicks = job.read(log, name="clicks").key_by("user")
    for name in operators:
        summed = clicks.process(function, name=name, on_error="quarantine")
        summed.write(ps.Table(f"{name}.out"))
    return job


@dataclass
class Letters:
    """The job on a root below a folder, as a person at a terminal handles it."""

    folder: Path
    log: ps.Log
    operators: tuple[str, ...] = ("sum",)

    @classmethod
    def begun(cls, folder: Path, *numbers: int, operators: tuple[str, ...] = ("sum",)) -> "Letters":
        """A new root; each number was read in an epoch of its own."""
        folder.mkdir(exist_ok=True)
        made = cls(folder, clicks_log(folder), operators)
        for n in numbers:
            made.send(n)
            made.run()
        return made

    @property
    def url(self) -> str:
        """The root."""
        return str(self.folder / "root")

    @property
    def root(self) -> Root:
        """The root, to look at."""
        return Root.open(self.url)

    def send(self, *numbers: int) -> None:
        """More events of one user."""
        append(self.log, [click("ada", n) for n in numbers])

    def local(self, function: Any = picky) -> LocalRun:
        """The job with this function."""
        return LocalRun(summing_job(self.log, function, self.operators), self.folder)

    def run(self, function: Any = picky, **settings: Any) -> None:
        """One life of the job, until it has caught up."""
        self.local(function).run(**settings)

    def total(self, operator: str = "sum") -> int:
        """The last sum."""
        rows = ps.read_table(self.url, f"{operator}.out", latest_by="user")
        found: int = rows.column("total").to_pylist()[-1]
        return found

    def restore(self, epoch: int) -> None:
        """Go back."""
        self.root.rewind("sums", Epoch(epoch))

    def forked(self, folder: Path, epoch: int | None = None) -> "Letters":
        """The same job on a copy of its root."""
        folder.mkdir()
        there = Letters(folder, self.log, self.operators)
        at = str(self.root.head().epoch if epoch is None else epoch)
        done = command("restore", self.url, "--at", at, "--fork", there.url)
        assert done.exit_code == 0, done.output
        return there

    def replay(self, *options: str) -> Result:
        """Ask for letters to be processed again."""
        return command("dead-letters", "replay", self.url, *options)

    def listed(self) -> list[dict[str, Any]]:
        """The letters, as `penstock dead-letters list` shows them."""
        done = command("dead-letters", "list", self.url, "--json")
        assert done.exit_code == 0, done.output
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    def replayed(self) -> list[bool]:
        """Of each letter, whether it was processed again."""
        return [letter["replayed"] for letter in self.listed()]

    def names(self) -> list[str]:
        """Of each letter, its name."""
        return [letter["letter"] for letter in self.listed()]

    def requests(self) -> list[str]:
        """The requests that are open."""
        return [entry.key for entry in self.root.store.list("requests/", "")]


def old_root(folder: Path, name: str) -> Letters:
    """A root that the version before this one has written, which replayed letters from a topic.

    applied    letters of 100, 200, 300, 400: the first two replayed, the third asked for
    twice      3 and 100; the letter of 100 was replayed, and history rewound to before it: 203
    forked     1 and 100, whose letter was replayed; forked; 1000, whose replay was lost
    """
    roots = Path(__file__).parents[1] / "chaos" / "roots"
    with tarfile.open(roots / "letters.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return Letters(folder / name, ps.Log(str(folder / name / "clicks")))


def command(*words: str) -> Result:
    """What `penstock` answers."""
    return CliRunner().invoke(app, list(words))
