"""Eight real processes append to one topic, and some of them die, or wake up when it is too late.

`PENSTOCK_LOG_ROWS` says how many rows they append to a folder in all; to a bucket it is a fifth.
"""

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest

from penstock.clock import SystemChance, SystemClock
from penstock.sources.log import Log
from penstock.sources.protocol import META_NAME, Range
from tests.support.producing import (
    FENCED,
    KEY,
    PARTITIONS,
    POLL_S,
    SCHEMA,
    Told,
    Work,
    payloads,
    start,
)
from tests.support.servers import BUCKET, Endpoint

pytestmark = pytest.mark.slow

NAMES = [f"p{number}" for number in range(8)]
FOLDER_ROWS = int(os.environ.get("PENSTOCK_LOG_ROWS", "1000000"))
BUCKET_ROWS = FOLDER_ROWS // 5
FOLDER_BATCH_ROWS, BUCKET_BATCH_ROWS = 1_250, 625
"""What a producer that dies appends at once."""
SHARES = (0.15, 0.4, 0.65)
"""How much of its rows is acknowledged, more or less, when it does."""
CLAIM_S_MAX = 1.0
PATIENCE_S = 300.0
CLOCK = SystemClock()
ONE_BY_ONE = threading.Lock()
"""Whoever starts a process also asks for the ends of all others, and only one may ask."""

Column = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Death:
    """When a life ends, and how: killed, or stopped until another has its name."""

    batches: int
    """After so many were acknowledged."""
    delay: float
    """And so much of the time that the last ones took."""
    by: signal.Signals


@dataclass(frozen=True)
class Rows:
    """What a partition holds, in order of its offsets."""

    offsets: Column
    producers: Column
    numbers: Column
    lives: Column

    def of(self, name: str) -> Column:
        return self.numbers[self.producers == name]


def appended_at_once(url: str, folder: Path, total: int) -> None:
    """Nobody has a name, and nobody dies."""
    log, works = prepared(url, folder, total, batch_rows=1)
    processes = [start(work, 0) for work in works]
    codes = [ended(process) for process in processes]
    assert (codes, said(folder)) == ([0] * len(works), "")
    found = read(log)
    judge(found, works)
    judge_told(found, works)


def killed_and_replaced(url: str, folder: Path, total: int, batch_rows: int) -> None:
    """Everybody has a name, dies several times, and is started again."""
    log, works = prepared(url, folder, total, batch_rows)
    with ThreadPoolExecutor(len(works)) as pool:
        codes = list(pool.map(live_and_die, works))
    ends = {signal.SIGKILL: -signal.SIGKILL, signal.SIGSTOP: FENCED}
    expected = [[*(ends[death.by] for death in deaths_of(work)), 0] for work in works]
    assert (codes, said(folder)) == (expected, "")
    assert any(told.offsets is None for work in works for told in work.told())
    found = read(log)
    judge(found, works)
    judge_lives(found, works)
    log.sweep()
    log.sweep()
    judge(read(log), works)


def prepared(url: str, folder: Path, total: int, batch_rows: int) -> tuple[Log, list[Work]]:
    """An empty topic, and what each producer has to append to it."""
    log = Log.create(url, SCHEMA, partitions=PARTITIONS, key=KEY)
    rows, lives = total // len(NAMES) // batch_rows * batch_rows, len(SHARES) + 1
    return log, [Work(url, folder, name, rows, batch_rows, lives) for name in NAMES]


def deaths_of(work: Work) -> list[Death]:
    """The same for a name on every run. One of them is to be stopped instead of killed."""
    chance = random.Random(work.name)
    signals = [signal.SIGSTOP, signal.SIGKILL, signal.SIGKILL]
    chance.shuffle(signals)
    return [
        Death(
            round((share + chance.uniform(-0.1, 0.1)) * work.batches),
            chance.random(),
            by,
        )
        for share, by in zip(SHARES, signals, strict=True)
    ]


def live_and_die(work: Work) -> list[int]:
    """One life after the other; how each ended."""
    codes: list[int] = []
    zombie: ForkServerProcess | None = None
    for life, death in enumerate(deaths_of(work), 1):
        process = begun(work, life, zombie, codes)
        wait_for_batches(work, life, death)
        send(process, death.by)
        zombie = process if death.by is signal.SIGSTOP else None
        if zombie is None:
            codes.append(ended(process))
    last = begun(work, work.lives, zombie, codes)
    return [*codes, ended(last)]


def begun(
    work: Work, life: int, zombie: ForkServerProcess | None, codes: list[int]
) -> ForkServerProcess:
    """A new life. Once it has its name, the one before wakes up, if it sleeps, and ends."""
    with ONE_BY_ONE:
        process = start(work, life)
    if zombie is not None:
        wait_for_claim(work.claim_file(life), zombie)
        send(zombie, signal.SIGCONT)
        codes.append(ended(zombie))
    return process


def wait_for_batches(work: Work, life: int, death: Death) -> None:
    """Return some time after so many were acknowledged, before as many again could be: so that
    some are staged, and some are in the log and nobody was told."""
    seen, at_s, pace_s = 0, CLOCK.monotonic(), 0.0
    for _ in while_waiting():
        lines = len(work.told_lines()) if work.claim_file(life).exists() else 0
        if lines > seen:
            seen, at_s, pace_s = lines, CLOCK.monotonic(), CLOCK.monotonic() - at_s
        if seen >= death.batches:
            break
    CLOCK.sleep(death.delay * pace_s)


def wait_for_claim(claimed: Path, zombie: ForkServerProcess) -> None:
    """Return when the next life has the name. A zombie that was stopped while it held the lock of
    a file keeps everybody waiting, so it is let go on for a moment, and stopped again."""
    began_s = CLOCK.monotonic()
    for _ in while_waiting():
        if claimed.exists():
            return
        if CLOCK.monotonic() - began_s > CLAIM_S_MAX:
            send(zombie, signal.SIGCONT)
            CLOCK.sleep(POLL_S)
            send(zombie, signal.SIGSTOP)
            began_s = CLOCK.monotonic()


def while_waiting() -> Iterator[None]:
    """Come round until the caller is content, or has waited too long."""
    deadline_s = CLOCK.monotonic() + PATIENCE_S
    while CLOCK.monotonic() < deadline_s:
        yield
        CLOCK.sleep(POLL_S)
    raise AssertionError(f"nothing has happened for {PATIENCE_S} s")


def send(process: ForkServerProcess, which: signal.Signals) -> None:
    assert process.pid is not None
    os.kill(process.pid, which)


def ended(process: ForkServerProcess) -> int:
    for _ in while_waiting():
        with ONE_BY_ONE:
            if process.exitcode is not None:
                return process.exitcode
    raise AssertionError("unreachable: the loop ends by returning or raising")


def said(folder: Path) -> str:
    """What all processes printed: nothing, unless something is wrong."""
    return "".join(path.read_text() for path in sorted(folder.glob("*.log")))


def read(log: Log) -> dict[int, Rows]:
    """Everything that is in the log."""
    found = {}
    for partition, span in log.spans().items():
        batches = log.read(partition, Range(start=span.earliest, stop=span.latest))
        found[int(partition)] = parsed(pa.Table.from_batches(list(batches)))
    return found


def parsed(table: pa.Table) -> Rows:
    """Columns as they can be compared, of rows that carry what they were given."""
    numbers, carried = table.column("number"), table.column("payload")
    lives = pc.list_element(pc.split_pattern(carried, " "), 0)
    assert payloads(lives, numbers).equals(carried)
    return Rows(
        offsets=pc.struct_field(table.column(META_NAME), "offset").to_numpy(),
        producers=table.column("producer").to_numpy(),
        numbers=numbers.to_numpy(),
        lives=lives.cast(pa.int64()).to_numpy(),
    )


def judge(found: dict[int, Rows], works: list[Work]) -> None:
    """Every row is there once, without a gap, in order, and where it was said to be."""
    assert sorted(found) == list(range(PARTITIONS))
    for partition, held in found.items():
        assert np.array_equal(held.offsets, np.arange(len(held.offsets))), partition
        for work in works:
            assert np.all(np.diff(held.of(work.name)) > 0), f"{work.name} in {partition}"
    for work in works:
        numbers = np.sort(np.concatenate([held.of(work.name) for held in found.values()]))
        assert np.array_equal(numbers, np.arange(work.rows)), work.name
        for told in work.told():
            judge_place(found[told.partition], work, told)


def judge_place(held: Rows, work: Work, told: Told) -> None:
    """Where a producer was told that its rows are, there they are."""
    if told.offsets is not None:
        at = slice(*told.offsets)
        assert set(held.producers[at]) == {work.name}, told
        if told.batch is not None:
            first = told.batch * work.batch_rows
            assert np.array_equal(held.numbers[at], np.arange(first, first + work.batch_rows)), told


def judge_told(found: dict[int, Rows], works: list[Work]) -> None:
    """What all were told, put together, is the whole log, and nothing of it was told twice."""
    for partition, held in found.items():
        times = np.zeros(len(held.offsets), dtype=np.int64)
        for told in (told for work in works for told in work.told()):
            if told.partition == partition and told.offsets is not None:
                times[slice(*told.offsets)] += 1
        assert np.all(times == 1), partition


def judge_lives(found: dict[int, Rows], works: list[Work]) -> None:
    """From the moment a life has its name, no life before it adds anything."""
    for partition, held in found.items():
        for work in works:
            mine = held.producers == work.name
            assert np.all(np.diff(held.lives[mine]) >= 0), f"{work.name} in {partition}"
            for life in range(1, work.lives + 1):
                claimed = msgspec.json.decode(work.claim_file(life).read_bytes())
                after = mine & (held.offsets >= claimed[str(partition)])
                assert np.all(held.lives[after] >= life), f"{work.name} in {partition}"


def test_eight_producers_on_a_folder_lose_nothing(tmp_path: Path) -> None:
    """File locks and renames are all that stands between them."""
    appended_at_once(str(tmp_path / "topic"), tmp_path, FOLDER_ROWS)


def test_eight_producers_on_a_bucket_lose_nothing(
    atomic_moto: Endpoint, use: Callable[[Endpoint], None], tmp_path: Path
) -> None:
    """Conditional writes are all that stands between them."""
    use(atomic_moto)
    appended_at_once(f"s3://{BUCKET}/{SystemChance().unique()}", tmp_path, BUCKET_ROWS)


def test_producers_on_a_folder_die_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    """A mark per producer tells a new life what got in, and an old one that it is over."""
    killed_and_replaced(str(tmp_path / "topic"), tmp_path, FOLDER_ROWS, FOLDER_BATCH_ROWS)


def test_producers_on_a_bucket_die_and_nothing_is_lost_or_doubled(
    atomic_moto: Endpoint, use: Callable[[Endpoint], None], tmp_path: Path
) -> None:
    """A request of a dead process may still be on its way when the next life begins."""
    use(atomic_moto)
    url = f"s3://{BUCKET}/{SystemChance().unique()}"
    killed_and_replaced(url, tmp_path, BUCKET_ROWS, BUCKET_BATCH_ROWS)
