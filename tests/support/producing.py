"""One producer of a log in a process of its own, and the files in which it tells what it knows.

In life 0 the producer has no name for the log, and the key says where rows go. From life 1 on it
has one: it takes over from the life before, and goes on behind what was acknowledged to all of
them, with its own numbers for its batches. What is acknowledged is on disk before anything else is
appended. A life that is not the last keeps some rows back until the next has its name.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.clock import SystemClock
from penstock.errors import Fenced
from penstock.sources.log import Log
from penstock.sources.log_lane import Batching, Placed
from penstock.sources.log_producer import Producer
from tests.support.leash import PR_SET_PDEATHSIG

SCHEMA = pa.schema([("producer", pa.string()), ("number", pa.int64()), ("payload", pa.string())])
KEY = "number"
PARTITIONS = 4
CALL_ROWS = 5_000
WINDOW = 2 * PARTITIONS
"""How many numbered batches are on their way at once: two of a partition may share a swap."""
FENCED = 33
"""The exit code of a process whose name another one has taken."""
POLL_S = 0.01

BIRTHS = get_context("forkserver")
PRELOADED = ["tests.support.producing", "tests.torture.killing"]
"""There is one fork server in a process, so it is made ready for all who use it."""


class Told(msgspec.Struct, frozen=True):
    """Rows that were acknowledged."""

    partition: int
    offsets: tuple[int, int] | None
    """Where they are said to be; None if the log had them from a life before."""
    batch: int | None = None
    """Which ones, if they were numbered."""


@dataclass(frozen=True)
class Work:
    """What one producer has to append, and where it tells how far it got."""

    url: str
    folder: Path
    name: str
    rows: int
    batch_rows: int
    lives: int

    @property
    def batches(self) -> int:
        return self.rows // self.batch_rows

    def log_file(self, life: int) -> Path:
        """What the process prints."""
        return self.folder / f"{self.name}-{life}.log"

    def told_file(self, life: int) -> Path:
        """What was acknowledged to a life."""
        return self.folder / f"{self.name}-{life}.told"

    def claim_file(self, life: int) -> Path:
        """Says that the name is that life's, and how long each partition was then."""
        return self.folder / f"{self.name}-{life}.claimed"

    def told(self) -> list[Told]:
        """What was acknowledged in all lives."""
        return [msgspec.json.decode(line, type=Told) for line in self.told_lines()]

    def told_lines(self) -> list[bytes]:
        """The same as it was written. A line without an end was not told."""
        bodies = [path.read_bytes() for path in sorted(self.folder.glob(f"{self.name}-*.told"))]
        lines = [line for body in bodies for line in body.splitlines(keepends=True)]
        return [line for line in lines if line.endswith(b"\n")]


def start(work: Work, life: int) -> ForkServerProcess:
    """Begin a life. It does not outlive this process, nor the one that forks it."""
    BIRTHS.set_forkserver_preload(PRELOADED)
    process = BIRTHS.Process(target=_live, args=(work, life, dict(os.environ)), daemon=True)
    process.start()
    return process


def rows_of(name: str, life: int, first: int, count: int) -> pa.Table:
    """Some rows of a producer. What they carry says who wrote them, and in which life."""
    numbers = pa.array(np.arange(first, first + count, dtype=np.int64))
    carried = payloads(pa.scalar(str(life)), numbers)
    return pa.table([pa.repeat(name, count), numbers, carried], schema=SCHEMA)


def payloads(lives: pa.Scalar | pa.ChunkedArray, numbers: pa.Array | pa.ChunkedArray) -> pa.Array:
    """What rows carry."""
    return pc.binary_join_element_wise(lives, numbers.cast(pa.string()), " ")


def _live(work: Work, life: int, environment: Mapping[str, str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.environ.update(environment)
    with work.log_file(life).open("wb") as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())
    try:
        _append_numbered(work, life) if life else _append_by_key(work)
    except Fenced:
        sys.exit(FENCED)


def _append_by_key(work: Work) -> None:
    """Append everything, in small segments, and tell at the end where it went."""
    with Log(work.url).producer(batching=Batching(rows=CALL_ROWS // PARTITIONS)) as producer:
        acks = [
            producer.append(rows_of(work.name, 0, first, min(CALL_ROWS, work.rows - first)))
            for first in range(0, work.rows, CALL_ROWS)
        ]
    placed = [each for ack in acks for each in ack.wait()]
    _tell(work.told_file(0), [Told(each.partition, _offsets([each])) for each in placed])


def _append_numbered(work: Work, life: int) -> None:
    """Take over, and append every batch that was not acknowledged to a life before."""
    done = {each.batch for each in work.told()}
    left = [batch for batch in range(work.batches) if batch not in done]
    log = Log(work.url)
    with log.producer(work.name) as producer:
        _tell_claim(log, work.claim_file(life))
        for at in range(0, len(left), WINDOW):
            if at + WINDOW >= len(left) and life < work.lives:
                _wait_for(work.claim_file(life + 1))
            _tell(work.told_file(life), _append(work, life, producer, left[at : at + WINDOW]))


def _append(work: Work, life: int, producer: Producer, batches: list[int]) -> list[Told]:
    acks = [
        producer.append(
            rows_of(work.name, life, batch * work.batch_rows, work.batch_rows),
            partition=batch % PARTITIONS,
            sequence=batch // PARTITIONS + 1,
        )
        for batch in batches
    ]
    return [
        Told(batch % PARTITIONS, _offsets(ack.wait()), batch)
        for batch, ack in zip(batches, acks, strict=True)
    ]


def _tell(path: Path, lines: Iterable[Told]) -> None:
    """Add to a file, and return when that would survive a loss of power."""
    with path.open("ab") as file:
        file.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())


def _tell_claim(log: Log, path: Path) -> None:
    latest = {partition: span.latest for partition, span in log.spans().items()}
    unnamed = path.with_suffix(".unnamed")
    unnamed.write_bytes(msgspec.json.encode(latest))
    unnamed.replace(path)


def _wait_for(path: Path) -> None:
    while not path.exists():
        SystemClock().sleep(POLL_S)


def _offsets(placed: list[Placed]) -> tuple[int, int] | None:
    return (placed[0].offsets.start, placed[0].offsets.stop) if placed else None
