"""Harm to what a host keeps of state: deleted, altered, swapped, and a disk that takes no more.

None of it may matter: everything on a host's disk can be fetched again.
"""

import random
import shutil
from contextlib import suppress
from pathlib import Path

import psutil

from penstock.chaos.history import Family
from penstock.chaos.nemesis import Nemesis
from penstock.chaos.scene import NothingThere, Scene

__all__ = ["DISK_NEMESES"]

FULL_BYTES = 512
"""How long a file may still become while the disk is full: no delta fits."""
_FULL_SIGNS = ("ran out of disk", "File too large")


def _partitions(scene: Scene) -> list[Path]:
    """The folders of partitions on this host: below a job, below an operator."""
    return sorted(path for path in scene.state_folder.glob("*/*/*") if path.is_dir())


def _chosen(scene: Scene, chance: random.Random, pattern: str, what: str) -> Path:
    found = scene.patiently(lambda: sorted(scene.state_folder.glob(pattern)))
    if not found:
        raise NothingThere(f"there was no {what} on the disk")
    return chance.choice(found)


def _short(scene: Scene, path: Path) -> str:
    return "/".join(path.relative_to(scene.state_folder).parts[1:])


def _delete(scene: Scene, chance: random.Random) -> str:
    path = _chosen(scene, chance, "*/*/*/db-*/", "database")
    shutil.rmtree(path, ignore_errors=True)
    return f"database {_short(scene, path)} deleted"


def _corrupt(scene: Scene, chance: random.Random) -> str:
    path = _chosen(scene, chance, "*/*/*/db-*/*.sst", "file of state")
    try:
        with path.open("r+b") as file:
            length = file.seek(0, 2)
            for _ in range(8):
                at = chance.randrange(max(1, length))
                file.seek(at)
                byte = file.read(1)
                file.seek(at)
                file.write(bytes([(byte or b"\0")[0] ^ (1 << chance.randrange(8))]))
    except OSError:
        raise NothingThere("the file of state was gone before it was altered") from None
    return f"eight bits of {_short(scene, path)} flipped"


def _swap(scene: Scene, chance: random.Random) -> str:
    folders = scene.patiently(lambda: f if len(f := _partitions(scene)) > 1 else [])
    if not folders:
        raise NothingThere("there were no two partitions on the disk")
    one, other = chance.sample(folders, 2)
    between = one.with_name(f"swapped-{scene.chance.unique()}")
    try:
        one.rename(between)
        other.rename(one)
        between.rename(other)
    except OSError as error:
        raise NothingThere(f"the folders could not be swapped ({error.strerror})") from None
    return f"folders {_short(scene, one)} and {_short(scene, other)} swapped"


def _fill(scene: Scene, chance: random.Random) -> str:
    """No file of any worker may grow, also of those that come meanwhile, until an epoch has failed
    of it: what the system says to a write is what a full disk says, but for one word."""
    before = len(scene.cast.retried())
    limited: set[int] = set()

    def is_felt() -> bool:
        driver = scene.cast.leader()
        for process in (*driver.daemons(), *driver.workers()):
            if process.pid not in limited and _limit(process, FULL_BYTES):
                limited.add(process.pid)
        return any(map(_is_full, scene.cast.retried()[before:]))

    try:
        if not scene.patiently(is_felt):
            raise NothingThere("no epoch failed of a full disk")
    finally:
        _make_room(scene)
    return f"the disk full for {len(limited)} processes, until an epoch failed of it"


def _is_full(why: str) -> bool:
    """Whether an epoch failed because nothing could be written."""
    return any(sign in why for sign in _FULL_SIGNS)


def _make_room(scene: Scene) -> None:
    """Those who start workers first: a worker has the limits of whoever has started it."""
    driver = scene.cast.leader()
    for process in driver.daemons():
        _limit(process, psutil.RLIM_INFINITY)
    for process in driver.workers():
        _limit(process, psutil.RLIM_INFINITY)


def _limit(process: psutil.Process, size_bytes: int) -> bool:
    with suppress(psutil.Error, OSError):
        process.rlimit(psutil.RLIMIT_FSIZE, (size_bytes, psutil.RLIM_INFINITY))
        return True
    return False


DISK_NEMESES = (
    Nemesis("disk.delete", Family.DISK, _delete, 2.0),
    Nemesis("disk.corrupt", Family.DISK, _corrupt, 2.0),
    Nemesis("disk.swap", Family.DISK, _swap, 2.0),
    Nemesis("disk.full", Family.DISK, _fill, 3.0),
)
