"""`make soak HOURS=n`: chaos runs with one new seed after the other, a line of results for each.

It can be stopped at any time and started again: it goes on with the seed after the last one in its
file. A run that is not valid leaves its page beside the file, and the command that repeats it.
"""

import argparse
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.chaos.chaos_report import chaos_page
from penstock.chaos.findings import Verdict
from penstock.chaos.history import commits
from penstock.clock import SystemClock
from penstock.errors import PenstockError
from tests.support.ordeal import ordeal

FIRST_SEED = 1_000
RECORDS, EPOCHS, COUNT = 60_000, 80, 48


def next_seed(path: Path) -> int:
    """The seed after the last that was run."""
    seeds = [FIRST_SEED - 1]
    for line in _lines(path):
        with suppress(ValueError, KeyError):  # a line that was being written when it was stopped
            seeds.append(json.loads(line)["seed"])
    return max(seeds) + 1


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def one(seed: int, path: Path) -> Verdict:
    """Run one seed and write down what came of it."""
    try:
        run = ordeal(seed=seed, records=RECORDS, epochs=EPOCHS, count=COUNT).run
    except PenstockError as error:
        _write(path, {"seed": seed, "verdict": Verdict.UNKNOWN, "wrong": [str(error)]})
        return Verdict.UNKNOWN
    line: dict[str, Any] = {
        "seed": seed,
        "verdict": run.verdict,
        "seconds": run.seconds,
        "epochs": len(commits(run.happenings)),
        "faults": sum(run.faults.values()),
        "wrong": [str(v) for check in run.checks for v in check.violations[:3]],
        "command": run.command,
    }
    _write(path, line)
    if run.verdict is not Verdict.VALID:
        (path.parent / f"soak-{seed}.html").write_text(chaos_page(run))
    return run.verdict


def _write(path: Path, line: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write("\n" * (path.stat().st_size > 0 and not _ends_whole(path)) + json.dumps(line))
        file.write("\n")
    print(json.dumps(line), flush=True)


def _ends_whole(path: Path) -> bool:
    return path.read_bytes()[-1:] == b"\n"


def main() -> int:
    """Run until the time is up; 1 if anything was invalid."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--file", type=Path, default=Path("scratch/soak.jsonl"))
    given = parser.parse_args()
    given.file.parent.mkdir(parents=True, exist_ok=True)
    clock = SystemClock()
    until_s = clock.monotonic() + given.hours * 3600
    verdicts = set()
    while clock.monotonic() < until_s:
        verdicts.add(one(next_seed(given.file), given.file))
    return 1 if Verdict.INVALID in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
