"""What the contract of sinks needs to know of each of them: how to open it, and what is in it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.chaos.tcp_proxy import TcpProxy
from penstock.checkpoint import MemoryStore
from penstock.checkpoint.store import ObjectStore
from penstock.ids import CommitId, Epoch, Generation, Token
from penstock.points import Point
from penstock.sinks import PROVENANCE, AppliedSink, Apply, Cursor, Target, Writer
from penstock.sinks.cursors import mark_of
from penstock.sinks.table import arrow_file

JOB = "contract"
PEOPLE = pa.schema([("user", pa.string()), ("n", pa.int64())])
"""The columns of most rows here; `user` is the key of sinks that have one."""

Row = dict[str, Any]


@dataclass
class SinkCase:
    """One sink with a real server behind it, and a way to look into it that is not its own."""

    make: Callable[[pa.Schema, str | None, TcpProxy | None], AppliedSink]
    """The sink for rows of such columns; the name of a column that deletes, if any; through a
    proxy, if one is given. Each case has one target: made again, the sink finds its rows."""
    rows: Callable[[pa.Schema], list[Row]]
    """What is in the target now, in any order, as rows of such columns."""
    server_port: int | None = None
    """Where a proxy has to be put between; None: there is no line that could be cut."""
    keeps_all: bool = True
    """Whether every row stays; else the last one of each key (`user`) does."""
    empty_keys: bool = True
    """Whether a key may be an empty text."""
    many: int = 100_000
    """How many rows are a burst."""
    cut_every: int = 1
    """Of the points at which a line can be cut, every so many is tried, unless PENSTOCK_CUTS is
    `all`: where an epoch takes hundreds of requests, all of them take minutes."""
    shards: int = 2
    """How many partitions the sink is opened for."""
    store: ObjectStore = field(default_factory=MemoryStore)
    shown: Callable[[Row], Row] = lambda row: row
    """A row as `rows` gives it back, where that is less than what was written."""

    def open(
        self,
        columns: pa.Schema = PEOPLE,
        *,
        job: str = JOB,
        deletes: str | None = None,
        proxy: TcpProxy | None = None,
    ) -> Writer:
        """The sink, open."""
        sink = self.make(columns, deletes, proxy)
        target = Target(job=job, columns=columns, partitions=self.shards, store=self.store)
        return sink.open(target)


def people(epoch: int, count: int = 3, shard: int = 0) -> list[Row]:
    """Rows whose keys come in no other epoch."""
    return [{"user": f"{epoch}-{shard}-{n}", "n": n} for n in range(count)]


def cursor(epoch: int, generation: int = 1, commit: str = "") -> Cursor:
    """Where a shard is after an epoch; another commit is another history."""
    named = CommitId(commit or f"commit {epoch}")
    return Cursor(Generation(generation), Epoch(epoch), mark_of(named))


def apply(
    epoch: int,
    rows: Sequence[Row],
    *,
    columns: pa.Schema = PEOPLE,
    shard: int = 0,
    token: int = 1,
    follows: Cursor | str | None = "the epoch before",
    at: Cursor | None = None,
) -> Apply:
    """What the leader asks of a shard."""
    before = cursor(epoch - 1) if epoch > 1 else None
    return Apply(
        Point.SINK_APPLY,
        "people",
        shard,
        before if isinstance(follows, str) else follows,
        at or cursor(epoch),
        Token(token),
        staged(epoch, rows, columns, shard),
    )


def staged(
    epoch: int, rows: Sequence[Row], columns: pa.Schema, partition: int = 0
) -> tuple[bytes, ...]:
    """Rows as a task has stored them; none at all if there are none."""
    if not rows:
        return ()
    table = pa.Table.from_pylist(list(rows), columns)
    count = table.num_rows
    of: Mapping[str, Any] = {
        "_epoch": [epoch] * count,
        "_partition": [partition] * count,
        "_sequence": list(range(count)),
        "_input": [[{"from": "log/0", "first": n, "last": n}] for n in range(count)],
    }
    for field_ in PROVENANCE:
        table = table.append_column(field_, pa.array(of[field_.name], field_.type))
    return (arrow_file(table),)


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Rows that may come in any order, in one that does not depend on it."""
    return sorted(rows, key=repr)
