"""Eight real processes on one root, each of which believes that it should lead.

    python -m tests.stories.test_eight_processes URL NAME SECONDS

is one of them. The tests start eight, wait for their end, and look at what is there.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint import Manifest, perform
from penstock.checkpoint.root import Root
from penstock.clock import SystemChance
from penstock.errors import Fenced, Unavailable
from tests.support.history import JOB, staged
from tests.support.scripts import ROOT
from tests.support.servers import BUCKET, LEASH, Endpoint

pytestmark = pytest.mark.slow

PROCESSES = 8
STORM_S = float(os.environ.get("PENSTOCK_STORM_S", "3"))
CALM_S = 0.3
"""How long a deposed process waits at most before it tries again: so that some get to commit."""
CALMS_MAX = 10
PATIENCE_S = 60.0


def storm(url: str, name: str, seconds: float) -> None:
    """Lead, commit until deposed, and again; say each commit that was confirmed."""
    root = Root.open(url)
    begun_s = root.clock.monotonic()
    tenures = 0
    while goes_on(root, begun_s, seconds):
        tenures += 1
        until = max(begun_s + seconds, root.clock.monotonic() + CALM_S)
        try:
            for manifest in reign(root, f"{name}-{tenures}", until):
                told = {"epoch": manifest.epoch, "token": manifest.token, "commit": manifest.commit}
                print(json.dumps(told), flush=True)
        except (Fenced, Unavailable):
            # Longer and longer: where a commit is slow, nobody would ever come as far.
            root.clock.sleep(CALM_S * root.chance.fraction() * min(tenures, CALMS_MAX))


def goes_on(root: Root, begun_s: float, seconds: float) -> bool:
    """Until the time is up, and on a busy machine until somebody has committed something."""
    passed_s = root.clock.monotonic() - begun_s
    return passed_s < seconds or (passed_s < PATIENCE_S and root.head().epoch == 0)


def reign(root: Root, holder: str, until: float) -> Iterator[Manifest]:
    """One tenure: an epoch after the other, until it is over or time is up."""
    session = root.lead(JOB, holder)
    while root.clock.monotonic() < until:
        draft = perform(staged(session.manifest, root.chance), root.handlers)
        yield session.commit(draft)


def run_storm(url: str, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """What each process was told it had committed. Each writes to a file: a pipe would fill up."""
    names = [f"p{number}" for number in range(PROCESSES)]
    started = {name: start(url, name, folder) for name in names}
    codes = {name: process.wait() for name, process in started.items()}
    errors = {name: (folder / f"{name}.err").read_text() for name in names}
    assert (codes, errors) == (dict.fromkeys(names, 0), dict.fromkeys(names, ""))
    lines = {name: (folder / f"{name}.out").read_text().splitlines() for name in names}
    return {name: [json.loads(line) for line in each] for name, each in lines.items()}


def start(url: str, name: str, folder: Path) -> subprocess.Popen[bytes]:
    module = [sys.executable, "-m", "tests.stories.test_eight_processes"]
    command = [sys.executable, str(LEASH), *module, url, name, str(STORM_S)]
    with (folder / f"{name}.out").open("wb") as out, (folder / f"{name}.err").open("wb") as err:
        return subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=err)


def judge(url: str, told: dict[str, list[dict[str, Any]]]) -> None:
    """One line of history, in which everything that was told happened exactly once."""
    root = Root.open(url)
    head, chain = root.head(), list(root.history())
    tokens = [manifest.token for manifest in chain]
    holders = {(manifest.token, manifest.holder) for manifest in chain}
    happened = Counter((m.holder.partition("-")[0], m.epoch, m.token, m.commit) for m in chain)
    reported = Counter(
        (name, commit["epoch"], commit["token"], commit["commit"])
        for name, commits in told.items()
        for commit in commits
    )

    assert [manifest.epoch for manifest in chain] == list(range(head.epoch, 0, -1))
    assert tokens == sorted(tokens, reverse=True)
    assert len({token for token, _ in holders}) == len(holders)
    assert root.check().wrong == []
    assert reported.total() > 0
    assert set(reported.values()) == {1}
    assert set(reported) - set(happened) == set()


def test_eight_processes_on_a_folder_make_one_history(tmp_path: Path) -> None:
    """File locks and renames are all that stands between them."""
    url = str(tmp_path / "root")
    judge(url, run_storm(url, tmp_path))


def test_eight_processes_on_a_bucket_make_one_history(
    atomic_moto: Endpoint, use: Callable[[Endpoint], None], tmp_path: Path
) -> None:
    """Conditional writes are all that stands between them."""
    use(atomic_moto)
    url = f"s3://{BUCKET}/{SystemChance().unique()}"
    judge(url, run_storm(url, tmp_path))


if __name__ == "__main__":
    storm(sys.argv[1], sys.argv[2], float(sys.argv[3]))
