"""What is written to every sink, and how one way of writing it is measured."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.checkpoint import MemoryStore
from penstock.errors import Unavailable
from penstock.ids import CommitId, Epoch, Generation, Token
from penstock.points import Point
from penstock.sinks import PROVENANCE, AppliedSink, Apply, Cursor, Target, Writer
from penstock.sinks.cursors import mark_of
from penstock.sinks.table import arrow_file

__all__ = ["COLUMNS", "SHARDS", "Measured", "Peer", "measure", "shares"]

SHARDS = 2
USERS = 1_000_000
TRIES_MAX = 5
"""How often an epoch is offered, as the leader would."""
START_US = 1_700_000_000_000_000
COLUMNS = pa.schema(
    [
        ("user", pa.string()),
        ("clicks", pa.int64()),
        ("spent", pa.float64()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)

Plain = Callable[[Sequence[pa.Table]], None]
"""Writes the rows of an epoch, a table per shard, and returns when the server has them."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A sink, and what anybody would write who needs no promise."""

    name: str
    sink: AppliedSink
    plain: Plain
    how: str
    """What the plain way is, in words."""
    rows: int
    """Of an epoch, over all shards."""
    bar: float | None = None


@dataclass
class Measured:
    """What one peer took, by way, epoch after epoch."""

    peer: Peer
    plain_s: list[float] = field(default_factory=list)
    ours_s: list[float] = field(default_factory=list)

    @property
    def plain_rate(self) -> float:
        """Rows a second of the plain way, over all rounds."""
        return self.peer.rows * len(self.plain_s) / sum(self.plain_s)

    @property
    def our_rate(self) -> float:
        """The same of ours."""
        return self.peer.rows * len(self.ours_s) / sum(self.ours_s)

    @property
    def overhead(self) -> float:
        """How much slower ours is."""
        return 1 - self.our_rate / self.plain_rate

    @property
    def is_met(self) -> bool:
        """Whether it is as fast as was asked for."""
        return self.peer.bar is None or self.overhead <= self.peer.bar


def shares(epoch: int, rows: int) -> list[pa.Table]:
    """The rows of an epoch, a table per shard; no user comes twice in one."""
    random = np.random.default_rng(epoch)
    users = random.choice(USERS, rows, replace=False)
    tables = []
    for mine in np.array_split(users, SHARDS):
        count = len(mine)
        columns = [
            pa.array([f"user-{n:07d}" for n in mine]),
            pa.array(random.integers(0, 1000, count)),
            pa.array(random.random(count) * 100),
            pa.array(START_US + random.integers(0, 10**12, count), COLUMNS.field("at").type),
        ]
        tables.append(pa.Table.from_arrays(columns, schema=COLUMNS))
    return tables


def measure(peer: Peer, rounds: int, epochs: int, tell: Callable[[str], None]) -> Measured:
    """Both ways in turn, so that a machine that is slower for a while slows both; the first epoch
    of each warms it up and does not count."""
    found = Measured(peer)
    target = Target(job="bench", columns=COLUMNS, partitions=SHARDS, store=MemoryStore())
    writer = peer.sink.open(target)
    ours = _Ours(writer, peer.sink.shards(SHARDS))
    number = 0
    for round_ in range(rounds + 1):
        tell(f"{peer.name}, round {round_} of {rounds}")
        for _ in range(epochs if round_ else 1):
            number += 1
            tables = shares(number, peer.rows)
            ours_s = _timed(partial(ours.apply, number, _staged(number, tables)))
            plain_s = _timed(partial(peer.plain, tables))
            if round_:
                found.ours_s.append(ours_s)
                found.plain_s.append(plain_s)
    writer.close()
    return found


def _timed(work: Callable[[], None]) -> float:
    started_s = time.perf_counter()
    work()
    return time.perf_counter() - started_s


def _staged(epoch: int, tables: Sequence[pa.Table]) -> list[bytes]:
    """As tasks have stored it before the decision."""
    bodies = []
    for partition, table in enumerate(tables):
        count = table.num_rows
        places = np.arange(count)
        of = {
            "_epoch": pa.array(np.full(count, epoch)),
            "_partition": pa.array(np.full(count, partition, np.int32)),
            "_sequence": pa.array(places),
            "_input": pa.array(
                [[{"from": "log/0", "first": n, "last": n}] for n in places.tolist()],
                PROVENANCE.field("_input").type,
            ),
        }
        for column in PROVENANCE:
            table = table.append_column(column, of[column.name])  # noqa: PLW2901 - it grows
        bodies.append(arrow_file(table))
    return bodies


@dataclass
class _Ours:
    """What the leader does with an epoch: every shard at once, rows and cursor."""

    writer: Writer
    shards: int

    def apply(self, epoch: int, staged: Sequence[bytes]) -> None:
        with ThreadPoolExecutor(self.shards) as pool:
            list(pool.map(lambda shard: self._shard(epoch, staged, shard), range(self.shards)))

    def _shard(self, epoch: int, staged: Sequence[bytes], shard: int) -> None:
        outputs = tuple(body for n, body in enumerate(staged) if n % self.shards == shard)
        follows = _cursor(epoch - 1) if epoch > 1 else None
        place = (Point.SINK_APPLY, "bench", shard)
        asked = Apply(*place, follows, _cursor(epoch), Token(1), outputs)
        for remaining in reversed(range(TRIES_MAX)):
            try:
                self.writer.apply(asked)
                return
            except Unavailable:  # moto now and then trips over two requests at once
                if not remaining:
                    raise


def _cursor(epoch: int) -> Cursor:
    return Cursor(Generation(1), Epoch(epoch), mark_of(CommitId(str(epoch))))
