"""Kill -9 of a process that applies epochs to a Delta table, at moments nobody has chosen."""

import os
import random
import signal
from collections.abc import Sequence
from itertools import count
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from penstock.clock import SystemClock
from penstock.sinks.delta import Delta
from penstock.sinks.delta_writer import DeltaWriter
from tests.support.delta_case import rows_at, target
from tests.support.sink_cases import PEOPLE, Row, apply, cursor, in_order, people

KILLS = int(os.environ.get("PENSTOCK_KILLS", "12"))
SEED = 20260301
LIFE_S_MAX = 0.25
ROWS = 500

BIRTHS = get_context("forkserver")
"""Victims are forked by a process that has imported the client and never used it: the threads it
starts do not survive a fork."""

BIRTHS.set_forkserver_preload(["tests.sinks.test_delta_kills"])


def opened(folder: Path, key: Sequence[str]) -> DeltaWriter:
    return Delta("lake", str(folder), key=key).open(target())


def work(folder: Path, key: Sequence[str], started: Connection) -> None:
    """What a leader does: look where the sink is, and go on from there."""
    started.send(True)
    writer = opened(folder, key)
    at = writer.read_cursor(0)
    for epoch in count(1 if at is None else at.epoch + 1):
        writer.apply(apply(epoch, rows_in(epoch)))


def rows_in(epoch: int) -> list[Row]:
    """Keys of its own, and one that every epoch has."""
    return [*people(epoch, ROWS), {"user": "every", "n": epoch}]


def left_of(epochs: int, *, merged: bool) -> list[Row]:
    """What must be there after so many epochs."""
    own = [row for epoch in range(1, epochs + 1) for row in people(epoch, ROWS)]
    shared: list[Row] = [{"user": "every", "n": epoch} for epoch in range(1, epochs + 1)]
    return own + (shared[-1:] if merged else shared)


def live_and_die(folder: Path, key: Sequence[str], life_s: float) -> None:
    ours, theirs = BIRTHS.Pipe()
    victim = BIRTHS.Process(target=work, args=(folder, key, theirs))
    victim.start()
    ours.recv()
    SystemClock().sleep(life_s)
    victim.kill()
    victim.join()
    assert victim.exitcode == -signal.SIGKILL, "it has died before it was killed"


@pytest.mark.slow
@pytest.mark.parametrize("key", [(), ("user",)], ids=["append", "merge"])
def test_whenever_it_is_killed_each_epoch_is_there_once(
    tmp_path: Path, key: tuple[str, ...]
) -> None:
    """From the first moment of making the table on; the next leader finds all or nothing."""
    rng = random.Random(SEED)
    folder = tmp_path / "lake"
    reached: list[int] = []
    for _ in range(KILLS):
        live_and_die(folder, key, rng.uniform(0, LIFE_S_MAX))
        at = opened(folder, key).read_cursor(0)
        assert at is None or at == cursor(at.epoch)
        reached.append(0 if at is None else at.epoch)
        found = rows_at(str(folder), PEOPLE)
        assert in_order(found) == in_order(left_of(reached[-1], merged=bool(key))), reached

    assert len(set(reached)) > KILLS // 4, "hardly any of them lived long enough to commit"
