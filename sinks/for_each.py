"""`ForEachEpoch`: a function of the user's own, for targets that Penstock does not know.

    def post(epoch: ps.Committed, batches: Iterator[pa.RecordBatch]) -> None: ...

    totals.write(ps.ForEachEpoch(post))

The leader calls it with every committed epoch, in order, with the rows of all partitions. After a
failure, or if the leader dies before the cursor is moved, it is called again with the same epoch
and the same rows: so it should be idempotent, by `epoch.id` for example, which no other epoch of
any job has. What is promised to others is what the function makes of that: `guarantee` says it.
"""

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.errors import Invalid, PenstockError, Unavailable
from penstock.ids import Token, check_name
from penstock.sinks.cursors import Apply, Cursor, Held, is_applied
from penstock.sinks.guarantee import Guarantee, parse_guarantee
from penstock.sinks.protocol import Target
from penstock.sinks.root_cursor import RootCursor
from penstock.sinks.staged import rows_of

__all__ = ["Committed", "ForEachEpoch", "ForEachWriter", "OwnFunction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The epoch that a function is given."""

    job: str
    sink: str
    generation: int
    number: int
    """Comes again after a rewind."""
    id: str
    """Never comes again: it names the commit."""


OwnFunction = Callable[[Committed, Iterator[pa.RecordBatch]], Any]
"""Is given an epoch, and its rows in batches, with the columns of `PROVENANCE` behind the job's
own."""


@dataclass(frozen=True, slots=True)
class ForEachEpoch:
    """Calls a function with the rows of every epoch."""

    function: OwnFunction
    _: KW_ONLY
    name: str = ""
    """How manifests and messages call it; the function's own name unless told."""
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    """What the function gives, being called again with an epoch now and then."""

    def __post_init__(self) -> None:
        given: object = self.function
        if not callable(given):
            found = f"was given {type(given).__name__}, which cannot be called"
            raise Invalid("sink ForEachEpoch", found, "give it a function of an epoch and batches")
        named = self.name or getattr(given, "__name__", "")
        object.__setattr__(self, "name", check_name("sink", named))
        object.__setattr__(self, "guarantee", parse_guarantee(self.guarantee))

    def shards(self, partitions: int) -> int:
        """One: an epoch is handed over whole."""
        return 1

    def check(self, rows: pa.Table) -> None:
        """Only the function knows what it can take."""

    def open(self, target: Target) -> "ForEachWriter":
        """Nothing is called yet."""
        return ForEachWriter(self, target)


class ForEachWriter:
    """The function, and how far it has come."""

    def __init__(self, sink: ForEachEpoch, target: Target) -> None:
        self._sink = sink
        self._target = target
        self._cursor = RootCursor(target.store, target.job, sink.name)

    def read_cursor(self, shard: int) -> Cursor | None:
        """How far it has come."""
        held = self._cursor.read(shard).held
        return None if held is None else held.cursor

    def apply(self, asked: Apply) -> None:
        """Call the function, then move the cursor. A crash in between calls it again."""
        before = self._cursor.read(asked.shard)
        if is_applied(asked, before.held):
            return
        rows = rows_of(asked.outputs, self._target.columns)
        try:
            self._sink.function(self._epoch(asked.cursor), iter(rows.to_batches()))
        except Unavailable:
            raise
        except Exception as error:
            what = str(error) if isinstance(error, PenstockError) else repr(error)
            found = f"failed on epoch {asked.cursor.epoch} ({what})"
            advice = "mend it and start the job again: the epoch is given to it once more"
            raise Invalid(f"sink {self._sink.name}", found, advice) from error
        self._cursor.move(asked.shard, before, Held(asked.cursor, asked.token))

    def accept(self, shard: int, cursor: Cursor, token: Token) -> None:
        """Put the cursor here."""
        self._cursor.put(shard, Held(cursor, token))

    def close(self) -> None:
        """Nothing is held."""

    def _epoch(self, cursor: Cursor) -> Committed:
        job, sink = self._target.job, self._sink.name
        return Committed(
            job=job,
            sink=sink,
            generation=cursor.generation,
            number=cursor.epoch,
            id=f"{job}/{sink}/{cursor.generation}-{cursor.epoch}-{cursor.mark:x}",
        )
