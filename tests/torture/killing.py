"""Kill -9 of a process that writes, uploads, ingests, snapshots and commits in a loop.

The victim works on one partition of a job on a folder store, and is killed after a
random moment. What an epoch does follows from its number, so after each death the reference
knows what the state must be: the marker of what is on the host, the contents after an opening,
and every object HEAD reaches.
"""

import random
import signal
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from penstock.checkpoint.directory_store import DirectoryStore
from penstock.checkpoint.restore import Way
from penstock.checkpoint.snapshots import SnapshotPolicy
from penstock.clock import SystemClock
from tests.support.small_job import SmallJob

KEYS = 40
LIFE_S_MAX = 0.15
FSCK_EVERY = 50

BIRTHS = get_context("forkserver")
"""Victims are forked by a process that has never opened a database: RocksDB's threads do not
survive a fork, and a victim without them would hang instead of working."""

BIRTHS.set_forkserver_preload(["tests.torture.killing"])


@dataclass
class Torture:
    """What so many deaths have shown."""

    kills: int = 0
    epochs: int = 0
    torn: list[str] = field(default_factory=list)
    ways: Counter[Way] = field(default_factory=Counter)


def changes_of(epoch: int) -> dict[str, int | None]:
    """What the job does in an epoch: a function of its number."""
    rng = random.Random(epoch)
    changed: dict[str, int | None] = {
        f"user{rng.randrange(KEYS)}": epoch * 1000 + number for number in range(10)
    }
    changed[f"user{rng.randrange(KEYS)}"] = None
    return changed


def reference(epochs: int) -> dict[str, int]:
    """The state after so many epochs."""
    state: dict[str, int] = {}
    for epoch in range(1, epochs + 1):
        for key, value in changes_of(epoch).items():
            state.pop(key, None)
            if value is not None:
                state[key] = value
    return state


def torture(folder: Path, kills: int, seed: int) -> Torture:
    """Kill a working process so many times, and look after each."""
    rng = random.Random(seed)
    found = Torture()
    for number in range(kills):
        _live_and_die(folder, rng.uniform(0, LIFE_S_MAX))
        found.kills += 1
        _look(folder, found, check_all=number % FSCK_EVERY == 0)
    return found


def _job(folder: Path) -> SmallJob:
    return SmallJob(
        DirectoryStore(folder / "store"), folder / "host", SnapshotPolicy(every_epochs=3)
    )


def _live_and_die(folder: Path, life_s: float) -> None:
    """The life counts from the moment the victim leads, so that it dies at work."""
    leads, tells = BIRTHS.Pipe(duplex=False)
    victim = BIRTHS.Process(target=_work_for_ever, args=(folder, tells))
    victim.start()
    tells.close()
    leads.recv()
    SystemClock().sleep(life_s)
    victim.kill()
    victim.join()
    if victim.exitcode != -signal.SIGKILL:
        raise AssertionError(f"the victim ended by itself, with {victim.exitcode}")


def _work_for_ever(folder: Path, tells: Connection) -> None:
    job = _job(folder)
    tells.send("leading")
    while True:
        job.epoch(changes_of(job.session.head.epoch + 1))


def _look(folder: Path, found: Torture, *, check_all: bool) -> None:
    job = _job(folder)
    opened = job.open()
    try:
        marker, version = opened.database.marker, job.lineage().version
    finally:
        opened.close()
    found.ways[opened.restore.way] += 1
    found.epochs = job.session.head.epoch
    if (None if marker is None else (marker.epoch, marker.attempt)) != version:
        found.torn.append(f"after kill {found.kills}: {marker} instead of {version}")
    if job.contents() != reference(job.session.head.epoch):
        found.torn.append(f"after kill {found.kills}: contents of epoch {found.epochs} differ")
    if check_all:
        found.torn += job.root.check().wrong
