"""A whole chaos run on a job's file, from the first driver to the verdict.

    from penstock import chaos

    def test_my_job_survives() -> None:
        chaos.run("jobs/clicks.py", seed=7, records=20_000).assert_valid()

The file is not changed. Its sources are read as they are, or replaced by generated or recorded
events; its sinks are the ones it names, so give it ones that may be written to: by the environment,
if the file takes them from there.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock.chaos.asked import ANSWER, PAGE, Asked
from penstock.chaos.chaos_report import chaos_page
from penstock.chaos.findings import Check, Verdict
from penstock.chaos.history import ChaosRun, Happening
from penstock.chaos.line_faults import Lines
from penstock.chaos.play import Play
from penstock.chaos.stage import staged_at
from penstock.clock import SystemChance, SystemClock
from penstock.errors import Invalid

__all__ = ["Result", "conducted"]

DRIVERS = "drivers"
TOLD_MAX = 5


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a run."""

    run: ChaosRun

    @property
    def verdict(self) -> Verdict:
        """valid, invalid, or unknown."""
        return self.run.verdict

    def assert_valid(self) -> None:
        """Raise an AssertionError that says what is wrong, or unknown, and how to repeat it."""
        if self.verdict is not Verdict.VALID:
            told = "\n".join(f"  {line}" for line in _told(self.run.checks))
            raise AssertionError(f"{self.verdict}:\n{told}\nAgain: {self.run.command}")


def _told(checks: Iterable[Check]) -> list[str]:
    lines = []
    for check in checks:
        lines += [f"{check.name}: {each}" for each in check.violations[:TOLD_MAX]]
        lines += [f"{check.name}, unknown: {each}" for each in check.unknown[:TOLD_MAX]]
    return lines


def conducted(
    asked: Asked,
    tell: Callable[[str], None] = lambda what: None,
    watch: Callable[[Happening], None] = lambda happening: None,
) -> Result:
    """Run a job under a seeded schedule of faults, and judge what it leaves. `tell` is told what
    is looked at, `watch` everything that happens."""
    clock, chance = SystemClock(), SystemChance()
    with ExitStack() as stack:
        scratch = tempfile.TemporaryDirectory(prefix="penstock-chaos-", ignore_cleanup_errors=True)
        folder = Path(stack.enter_context(scratch))
        stage = stack.enter_context(staged_at(asked.root, folder, clock))
        play = Play.of(asked, folder, stage, clock, chance)
        lines = stack.enter_context(Lines(play.addresses()))
        found = play.run(lines, tell, watch)
        if asked.report is not None:
            _write(asked.report, found, folder / "drivers")
    return Result(found)


def _write(folder: Path, found: ChaosRun, drivers: Path) -> None:
    """The page, everything it was made of, and what the drivers said."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / PAGE).write_text(chaos_page(found), encoding="utf-8")
        answer = msgspec.json.format(msgspec.json.encode(found), indent=1)
        (folder / ANSWER).write_bytes(answer + b"\n")
        (folder / DRIVERS).mkdir()
        for said in drivers.glob("*.err"):
            shutil.copyfile(said, folder / DRIVERS / said.name)
    except OSError as error:
        subject = f"folder {folder}"
        raise Invalid(subject, f"cannot be written ({error.strerror})", "name another") from error
