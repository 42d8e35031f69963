"""Proof: the protocols of this project run against a world that goes wrong on purpose, a user's job
run on processes that are killed (`run`), and jobs in production looked at from outside (`audit`).

Promise: a verdict is one of valid, invalid and unknown; the same seed gives the same schedule; a
fault that was asked for and never happened is reported, not counted as survived; an audit changes
nothing.

May import everything.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.chaos.crashpoints import Verdict, every_pair, every_single, every_zombie
from penstock.chaos.faults import Fault, Script, SeededFaults
from penstock.chaos.log_simulation import simulate_log
from penstock.chaos.outcome import Outcome
from penstock.chaos.simulation import simulate
from penstock.errors import Invalid

if TYPE_CHECKING:
    from penstock.chaos.chaos_run import Result

__all__ = [
    "Fault",
    "Outcome",
    "Script",
    "SeededFaults",
    "Verdict",
    "conducting",
    "every_pair",
    "every_single",
    "every_zombie",
    "run",
    "simulate",
    "simulate_log",
]


def run(file: str | Path, **options: Any) -> "Result":
    """Run a job's file under a seeded schedule of faults, and judge what it leaves:
    `chaos.run("jobs/clicks.py", seed=7, records=20_000).assert_valid()`. The options are those of
    `penstock.chaos.asked.Asked`."""
    from penstock.chaos.asked import Asked

    return conducting()(Asked(file=str(Path(file).absolute()), **options))


def conducting() -> "Callable[..., Result]":
    """What conducts a run. Looking at processes needs a package that jobs themselves do not."""
    try:
        from penstock.chaos.chaos_run import conducted
    except ImportError as missing:
        if (missing.name or "").partition(".")[0] != "psutil":
            raise
        found = "needs the package psutil, which is not installed"
        raise Invalid("a chaos run", found, "pip install 'penstock[chaos]'") from None
    return conducted
