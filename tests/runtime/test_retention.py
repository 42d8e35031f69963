"""Retention goes on, whatever sinks a job had once; what comes back too late is told so."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.checkpoint.collector import Retention
from penstock.errors import Invalid
from penstock.sinks.changelog import changelog_name
from tests.support.in_process import SETTINGS, LocalRun, append, click, clicks_log
from tests.support.letters import command

SHORT = Retention(epochs=2, age_s=0, grace_s=0)
KEEPING_LITTLE = replace(SETTINGS, limits=ps.Limits(records=1), retention=SHORT, collect_every=1)
KEPT = 3
"""How many epochs are there at the end: two, and the one that was committed since the collector
looked for the last time."""


@dataclass(frozen=True)
class ToMemory:
    """A changelog in this process."""

    topic: str

    def sink(self, job: str, operator: str) -> ps.Memory:
        return ps.Memory(changelog_name(operator, f"{job}.{self.topic}"))


@ps.stateful()
def count(user: str, events: ps.Events, seen: ps.Value[int]) -> None:
    """Counts clicks, and tells nobody."""
    seen.set(seen.get(0) + len(events))


def counting(folder: Path, changelog: ToMemory | None) -> LocalRun:
    job = ps.Job("clicks", partitions=1, changelog=changelog)
    job.read(ps.Log(str(folder / "clicks"))).key_by("user").process(count)
    return LocalRun(job, folder)


def run_epochs(folder: Path, log: ps.Log, changelog: ToMemory | None, epochs: int) -> LocalRun:
    """So many epochs of a job that has this changelog, or none."""
    append(log, [click("ada", n) for n in range(epochs)])
    run = counting(folder, changelog)
    run.run(KEEPING_LITTLE)
    return run


def kept(run: LocalRun) -> int:
    """How many epochs one can go back to, the last one included."""
    head = run.root.head()
    return head.epoch - head.floor + 1


def test_retention_goes_on_after_a_changelog_is_given_up(tmp_path: Path) -> None:
    """Every manifest names it for ever; if it counted, no epoch would ever be given up again."""
    log = clicks_log(tmp_path)
    run_epochs(tmp_path, log, ToMemory("first"), 4)

    run = run_epochs(tmp_path, log, None, 8)

    newest = run.root.newest()
    assert newest is not None and newest.sinks == {"count.changelog=clicks.first": ()}
    assert (newest.epoch, kept(run)) == (12, KEPT)


def test_a_changelog_that_comes_back_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """It has missed changes, and the epochs that had them are gone."""
    log = clicks_log(tmp_path)
    for changelog in (ToMemory("first"), None):
        run_epochs(tmp_path, log, changelog, 4)

    with pytest.raises(Invalid) as caught:
        run_epochs(tmp_path, log, ToMemory("first"), 1)

    assert str(caught.value) == (
        f"{tmp_path / 'root'} remembers another job: changelog 'count.changelog=clicks.first' was "
        "given up and is to go on now: give the changelog another prefix: it begins anew."
    )


CHANGELOGS = [None, ToMemory("first"), ToMemory("second"), ToMemory("third")]


@pytest.fixture(autouse=True)
def forgetting() -> None:
    """Every test begins with topics that hold nothing."""
    forget_all()


def forget_all() -> None:
    for changelog in CHANGELOGS:
        if changelog is not None:
            changelog.sink("clicks", "count").clear()


@settings(max_examples=8, deadline=None)
@given(st.lists(st.sampled_from(CHANGELOGS), unique=True, min_size=1))
def test_retention_goes_on_whatever_changelogs_there_were(lives: list[ToMemory | None]) -> None:
    """Begun, given up, begun anew elsewhere: in the end as much is kept as was asked for."""
    forget_all()
    with TemporaryDirectory() as folder:
        log = clicks_log(Path(folder))
        for changelog in lives:
            run = run_epochs(Path(folder), log, changelog, 4)

        assert kept(run) == KEPT


def test_every_sink_of_a_manifest_has_a_place_in_what_is_needed(tmp_path: Path) -> None:
    """The collector takes a sink that it is told nothing of for one that needs everything."""
    log = clicks_log(tmp_path)
    run = run_epochs(tmp_path, log, ToMemory("first"), 3)
    newest = run.root.newest()
    assert newest is not None
    needed = run.loops[-1]._applier.needed

    assert needed(newest) == {"count.changelog=clicks.first": 4}
    given_up = msgspec.structs.replace(
        newest, sinks={**newest.sinks, "removed": (), "older.changelog=x": ()}
    )
    assert needed(given_up) == {
        "count.changelog=clicks.first": 4,
        "removed": 4,
        "older.changelog=x": 4,
    }


def test_a_foreign_file_among_pins_is_warned_of_and_the_job_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Everything is kept while it is there, and retention catches up when it is not."""
    log = clicks_log(tmp_path)
    run = run_epochs(tmp_path, log, None, 2)
    foreign = tmp_path / "root" / "pins" / "README.md"
    foreign.parent.mkdir()
    foreign.write_text("what these are")

    run = run_epochs(tmp_path, log, None, 6)

    assert (run.root.head().epoch, kept(run)) == (8, 8)
    assert caplog.messages[-1] == (
        "nothing is collected, and all is kept: pins/README.md is no pin (14 bytes), and nothing "
        "is collected beside it: move it elsewhere if it is yours."
    )
    assert foreign.read_text() == "what these are"
    foreign.unlink()
    assert kept(run_epochs(tmp_path, log, None, 3)) == KEPT


def _link_to_a_file(pins: Path) -> None:
    (pins / "x").mkdir(parents=True)
    (pins / "x" / "m.json").symlink_to("/etc/hostname")


def _link_to_nothing(pins: Path) -> None:
    pins.mkdir()
    (pins / "x.json").symlink_to("/nowhere")


def _link_to_a_folder(pins: Path) -> None:
    pins.mkdir()
    (pins / "x").symlink_to("/tmp")


def _link_to_itself(pins: Path) -> None:
    pins.mkdir()
    (pins / "x").symlink_to("x")


def _pipe(pins: Path) -> None:
    (pins / "x").mkdir(parents=True)
    os.mkfifo(pins / "x" / "m.json")


@pytest.mark.parametrize(
    "place", [_link_to_a_file, _link_to_nothing, _link_to_a_folder, _link_to_itself, _pipe]
)
def test_what_is_no_file_among_pins_ends_no_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, place: Callable[[Path], None]
) -> None:
    """The second start would end where the first one did."""
    log = clicks_log(tmp_path)
    run_epochs(tmp_path, log, None, 2)
    place(tmp_path / "root" / "pins")

    run = run_epochs(tmp_path, log, None, 6)

    assert (run.root.head().epoch, kept(run)) == (8, 8)
    assert caplog.messages[-1].startswith("nothing is collected, and all is kept: ")
    status = command("status", run.url)
    assert status.exit_code == 0
    assert "pins/" in status.output
