"""Replayed dead letters as a source: what an operator that quarantines reads besides its own.

Its one partition counts the letters that were replayed in this line of history. Before an epoch
replays some, the leader stages them as the epoch's file of the table `<operator>.replayed`; tasks
read that file, and the manifest names it. So reading them again gives the same rows, and nothing
but the chain says what was replayed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.formats import Ref
from penstock.checkpoint.manifest import Output
from penstock.checkpoint.perform import perform
from penstock.checkpoint.root import Root
from penstock.checkpoint.staging import stage
from penstock.effects import Steps
from penstock.errors import Bug
from penstock.ids import Attempt, Epoch
from penstock.points import Point
from penstock.runtime.letters import LETTERS, replayed_name, replays_name
from penstock.runtime.position import Position
from penstock.runtime.replay_choice import Memory, Standing, offer
from penstock.runtime.replay_topics import replayed_from_topic
from penstock.sinks.protocol import PROVENANCE
from penstock.sinks.staged import staged
from penstock.sinks.table import Table, open_file
from penstock.sinks.table_index import body_of
from penstock.sources.protocol import META, META_NAME, TIME, Limits, Range, Span

__all__ = ["LETTERS_MAX", "Replayer", "Replays", "stage_letters"]

LETTERS_MAX = 10_000
"""How many letters one epoch replays at most: they pass through the leader."""


@dataclass(frozen=True, slots=True)
class Replays:
    """The replayed letters of one operator. Which ones an epoch reads is decided by `Replayer`."""

    root: str
    operator: str
    columns: pa.Schema

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"the replayed letters of operator {self.operator!r}"

    def schema(self) -> pa.Schema:
        """The columns of the operator's events."""
        return self.columns

    def spans(self) -> Mapping[str, Span]:
        """Nothing waits here: letters are offered to an epoch when it is planned."""
        return {}

    def offsets_at(self, at_ms: int) -> Mapping[str, int]:
        """Nothing can be looked for here by its time."""
        return {}

    def plan(self, resume: Mapping[str, int], limits: Limits) -> Mapping[str, Range]:
        """Nothing by itself."""
        return {}

    def read(self, partition: str, wanted: Range, planned_ms: int = 0) -> Iterator[pa.RecordBatch]:
        """Nothing without the file that holds the range: `read_file`."""
        raise Bug(self.name, "were read without the file that holds them", "report this")

    def read_file(self, ref: Ref, wanted: Range) -> Iterator[pa.RecordBatch]:
        """The letters that were staged for an epoch, which read exactly this range."""
        # The epoch that staged them is not committed yet: no line of history names them so far.
        body = perform(body_of(Chain(), ref, Point.READ_OBJECT), Root.open(self.root).handlers)
        first = wanted.start
        for batch in open_file(ref.key, body)[1]:
            yield _with_meta(batch, first, self.columns)
            first += batch.num_rows


def _with_meta(batch: pa.RecordBatch, first: int, columns: pa.Schema) -> pa.RecordBatch:
    unknown = pa.nulls(batch.num_rows, TIME)
    offsets = pa.array(np.arange(first, first + batch.num_rows))
    times = batch.column("_event_time")
    meta = pa.StructArray.from_arrays([offsets, times, unknown, unknown], fields=list(META))
    arrays = [*(batch.column(name) for name in columns.names), meta]
    return pa.RecordBatch.from_arrays(arrays, [*columns.names, META_NAME])


@dataclass(slots=True)
class Replayer:
    """Offers letters of one operator to the epochs of one leader."""

    source: Replays
    root: Root
    _memory: Memory | None = field(default=None, init=False)

    @classmethod
    def of(cls, source: Replays) -> "Replayer":
        """For the operator of a source."""
        return cls(source, Root.open(source.root))

    def offer(self, position: Position, limits: Limits) -> pa.Table | None:
        """What the epoch after this position replays; None if nothing was asked for."""
        if self._memory is None:
            earlier = replayed_from_topic(self.root, self.source.operator)
            self._memory = Memory(self.source.operator, self.source.columns, earlier.places)
        standing = Standing(
            epoch=position.epoch,
            generation=position.generation,
            tables=position.tables,
            unlisted={name: tuple(tail.files()) for name, tail in position.tails.items()},
        )
        limit = min(LETTERS_MAX, limits.records or LETTERS_MAX)
        return perform(offer(self._memory, standing, limit), self.root.handlers)

    def stage(self, letters: pa.Table, epoch: Epoch, first: int) -> Output:
        """Store the letters of an epoch, whose offsets begin with `first`."""
        attempt = Attempt(self.root.chance.unique())
        staging = stage_letters(self.source.operator, letters, epoch, first, attempt)
        return perform(staging, self.root.handlers)


def stage_letters(
    operator: str, letters: pa.Table, epoch: Epoch, first: int, attempt: Attempt
) -> Steps[Output]:
    """Store letters as the file of an epoch; what its manifest names. A crash afterwards leaves an
    orphan for the sweep of the table."""
    count = letters.num_rows
    offsets = range(first, first + count)
    origin = f"{replays_name(operator)}/{LETTERS}"
    places = {
        "_epoch": [epoch] * count,
        "_partition": [0] * count,
        "_sequence": list(range(count)),
        "_input": [[{"from": origin, "first": at, "last": at}] for at in offsets],
    }
    rows = letters.select([n for n in letters.column_names if n not in PROVENANCE.names])
    for column in PROVENANCE:
        rows = rows.append_column(column, pa.array(places[column.name], column.type))
    key, body = staged(Table(replayed_name(operator), takes_any=True), epoch, 0, attempt, rows)
    ref = yield from stage(key, body, Point.STAGE_OUTPUT)
    return Output(partition=0, ref=ref, rows=count)
