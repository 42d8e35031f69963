"""A small root for an exhaustive search: production code on a store in memory, and a plain model.

The job has one operator, one table and one changelog outside the root. Each action is what a
leader, an operator with a terminal or a start of the job does; each does the same to the model,
which is a list of what was committed and shares nothing with the code that it judges.
"""

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.chaos.small_sink import SmallSink
from penstock.checkpoint import (
    Chain,
    Delta,
    Draft,
    Manifest,
    MemoryStore,
    Output,
    PartitionState,
    Retention,
    Root,
    Session,
    Snapshot,
    SnapshotFile,
    perform,
    ref_to,
)
from penstock.checkpoint.fork import fork
from penstock.checkpoint.formats import Ref
from penstock.checkpoint.layout import delta_key, output_key, snapshot_key, table_key
from penstock.checkpoint.leader import Leader, lead
from penstock.checkpoint.manifest import TableIndex
from penstock.checkpoint.rewind import Target
from penstock.ids import Attempt, Epoch, JobName, Key
from penstock.runtime.applying import Applier
from penstock.runtime.loop import position_of
from penstock.runtime.topology import CHANGES, SinkNode, Topology
from penstock.sinks import Table, extend_index
from penstock.sinks.changelog import changelog_name
from penstock.sinks.cursors import Apply, Cursor, ReadCursor
from penstock.sinks.roll_forward import Shard, roll_forward
from penstock.sinks.table_index import table_refs
from penstock.sinks.table_sweep import sweep_table

__all__ = [
    "CHANGELOG",
    "OPERATOR",
    "PIN",
    "TABLE",
    "Line",
    "Model",
    "Names",
    "Past",
    "SmallRoot",
    "StillClock",
]

JOB, OPERATOR, TABLE, PIN = "small", "totals", "rows", "keep"
CHANGELOG = changelog_name(OPERATOR, "changes")
PARTITION = (OPERATOR, 0)
SNAPSHOT_EVERY = 3
RETENTION = Retention(epochs=2, age_s=0.0, grace_s=0.0)
"""So little that history goes at once, and enough that a retained epoch may name an older index."""


@dataclass(frozen=True, slots=True)
class Past:
    """One committed epoch, as the model remembers it."""

    number: int
    """Unique over all lines of history."""
    row: int | None
    """The row that it added to the table."""
    totals: tuple[tuple[int, int], ...]
    """The whole state behind it."""


Line = tuple[Past, ...]
"""A line of history: epoch n is at n - 1."""


@dataclass(slots=True)
class Model:
    """What the root must hold, in plain values."""

    line: Line = ()
    floor: int = 1
    next_floor: int = 1
    """The floor that the next commit of this leader sets."""
    index: dict[int, int] = field(default_factory=dict)
    """Per number of an epoch, up to which epoch its index goes."""
    pins: dict[str, Line] = field(default_factory=dict)
    sunk: tuple[int, ...] = ()
    """Rows that the changelog has taken."""
    is_given_up: bool = False

    def indexed(self) -> int:
        """Up to where the newest index goes; 0: there is none."""
        return self.index.get(self.line[-1].number, 0) if self.line else 0


class StillClock:
    """A clock that stands: nothing here depends on time."""

    def wall(self) -> float:
        """Some moment."""
        return 1_700_000_000.0

    def monotonic(self) -> float:
        """Some moment."""
        return 0.0

    def sleep(self, seconds: float) -> None:
        """Return at once."""


class Names:
    """Names by counting. Branches of a search share them, so that none is used twice."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def number(self) -> int:
        """The next number."""
        return next(self._numbers)

    def unique(self) -> str:
        """The next name. It differs from others in its first letters, as random ones do."""
        return f"{next(self._numbers):08d}"[::-1]

    def fraction(self) -> float:
        """In the middle."""
        return 0.5


class _Quiet:
    """A listener that is told that sinks hold the job, and does nothing."""

    def held(self, sinks: Mapping[str, str]) -> None:
        """They never do here."""


class SmallRoot:
    """A root, the leader of its job, and the model. A method per action says whether it did
    anything: what cannot be done now leaves everything as it is."""

    def __init__(self, names: Names, store: MemoryStore | None = None) -> None:
        self.names = names
        self.clock = StillClock()
        self.store = store or MemoryStore(self.clock)
        self.root = Root(self.store, self.clock, names)
        self.model = Model()
        self.sink = SmallSink(CHANGELOG)
        self.source: SmallRoot | None = None
        """What this root was forked from in the last step."""
        if store is None:
            self._start()

    def copied(self) -> "SmallRoot":
        """The same once more, which goes its own way."""
        twin = SmallRoot(self.names, self.store.copied())
        twin.model = replace(self.model, pins=dict(self.model.pins), index=dict(self.model.index))
        twin.sink = self.sink.copied()
        twin._lead(copy.copy(self._leader))
        twin._leader.tenure = copy.copy(self._leader.tenure)
        twin._position = self._position
        return twin

    # What a leader does.

    def commit(self) -> bool:
        """One epoch that adds a row and changes the state."""
        return self._commit(self.names.number())

    def empty_commit(self) -> bool:
        """One epoch that adds nothing."""
        return self._commit(None)

    def index(self) -> bool:
        """One epoch that adds a row, and names an index of all before it."""
        if not self._position.epoch:
            return False
        return self._commit(self.names.number(), self._extended())

    def collect(self) -> bool:
        """Give history up, and remove what is out of reach."""
        model, newest = self.model, self._session.manifest
        if newest is None:
            return False
        done = self._session.collect(RETENTION, self._applier().needed(newest))
        wanted = min(len(model.line) - RETENTION.epochs + 1, model.indexed() + 1)
        allowed = max(model.floor, wanted) if model.indexed() else model.floor
        is_new = allowed > model.next_floor
        model.next_floor = max(model.next_floor, allowed)
        return is_new or done.removed > 0

    def sweep(self) -> bool:
        """Remove what is left below the table."""
        swept = perform(sweep_table(Chain(self._session.tenure), TABLE), self.root.handlers)
        return swept.removed > 0

    # What somebody with a terminal does.

    def pin(self) -> bool:
        """Make a savepoint of the last epoch."""
        if not self.model.line or self.model.pins:
            return False
        self.root.pin(PIN)
        self.model.pins[PIN] = self.model.line
        return True

    def unpin(self) -> bool:
        """Remove the savepoint."""
        if not self.model.pins:
            return False
        self.root.unpin(PIN)
        self.model.pins.clear()
        return True

    def rewind(self) -> bool:
        """Go back as far as history is retained; to a savepoint that is out of this reach, if there
        is one: so a savepoint may be left behind on another line, and returned to."""
        if not self.model.line:
            return False
        pinned, floor = self.model.pins.get(PIN), self.model.floor
        line: Line = self.model.line[:floor]
        target: Target = Epoch(floor)
        if pinned is not None and not self._is_retained(pinned):
            line, target = pinned, PIN
        self.root.rewind(JOB, target)
        self._go_on_from(line)
        self._start(accept=True)
        return True

    def fork(self) -> bool:
        """Copy the savepoint, without one the last epoch, and go on in the copy."""
        if not self.model.line:
            return False
        pinned = self.model.pins.get(PIN)
        line = self.model.line if pinned is None else pinned
        target = None if pinned is None else PIN
        left, store = self.copied(), MemoryStore(self.clock)
        other = Root(store, self.clock, self.names)
        fork(self.root, target, other, lambda manifest: table_refs(self.root, manifest))
        left.store, left.root = self.store, self.root
        self.store, self.root, self.source = store, other, left
        self._go_on_from(line)
        self.model.floor = len(line)
        self.model.pins, self.model.sunk, self.sink = {}, (), SmallSink(CHANGELOG)
        self._start(accept=True)
        return True

    def give_up(self) -> bool:
        """Start the job again without its changelog."""
        if self.model.is_given_up:
            return False
        self.model.is_given_up = True
        self._start()
        return True

    def restart(self) -> bool:
        """Start the job again."""
        self._start()
        return True

    # How that is done.

    def _is_retained(self, line: Line) -> bool:
        """Whether a line ends at a retained epoch of HEAD's own."""
        return self.model.line[: len(line)] == line and self.model.floor <= len(line)

    def _go_on_from(self, line: Line) -> None:
        self.model.floor = self.model.floor if self._is_retained(line) else len(line)
        self.model.line = line

    def _start(self, *, accept: bool = False) -> None:
        leading = lead(JobName(JOB), self.root.new_holder(JOB), self.clock, self.names)
        self._lead(perform(leading, self.root.handlers))
        self._position = position_of(
            self.root, self._session.manifest, self._session.head.generation, self._topology()
        )
        self.model.next_floor = self.model.floor
        if accept and self._session.manifest is not None:
            cursor = Cursor.at(self._session.manifest)
            self.sink.accept(0, cursor, self._session.tenure.token)
        self._roll_forward()

    def _lead(self, leader: Leader) -> None:
        self._leader = leader
        self._session = Session(self.root, leader)

    def _roll_forward(self) -> None:
        """Give the changelog what it lacks."""
        if not self.model.is_given_up:
            tenure, shard = self._session.tenure, Shard(CHANGELOG, 0, 1)
            rolling = roll_forward(Chain(tenure), tenure, self._session.head, shard)
            asking = {ReadCursor: lambda asked: self.sink.read_cursor(0), Apply: self.sink.apply}
            perform(rolling, {**self.root.handlers, **asking})

    def _applier(self) -> Applier:
        """What knows how far the sinks of the job are."""
        applier = Applier(self.root, self._session, self._topology(), self.clock, _Quiet())
        applier.roll_forward(lambda: True)
        return applier

    def _topology(self) -> Topology:
        """The job, as far as anything here asks."""
        table = SinkNode(sink=Table(TABLE), operator=OPERATOR, output="")
        changes = SinkNode(sink=self.sink, operator=OPERATOR, output=CHANGES, columns=pa.schema([]))
        return Topology(
            job=JOB,
            partitions=1,
            order="log",
            sources={},
            operators=(),
            sinks=(table,) if self.model.is_given_up else (table, changes),
        )

    def _extended(self) -> TableIndex:
        """An index of everything so far, for the next epoch to name."""
        publishing, attempt = Epoch(self._position.epoch + 1), Attempt(self.names.unique())
        tail, tally = self._position.tails[TABLE], self._position.tally
        chain = Chain(self._session.tenure)
        extending = extend_index(chain, TABLE, tail, publishing, attempt, tally)
        return perform(extending, self.root.handlers)

    def _commit(self, row: int | None, index: TableIndex | None = None) -> bool:
        if index is None and self._position.epoch and not self._position.tables:
            index = self._extended()  # the loop makes the first one at once
        epoch, attempt = Epoch(self._position.epoch + 1), Attempt(self.names.unique())
        totals = dict(self.model.line[-1].totals) if self.model.line else {}
        if row is not None:
            totals[row % 2] = totals.get(row % 2, 0) + row
        tables = dict(self._position.tables) | ({TABLE: index} if index is not None else {})
        draft = Draft(
            operators={OPERATOR: {0: self._state(epoch, attempt, row, totals)}},
            sinks={TABLE: self._file(epoch, attempt, row), CHANGELOG: self._changes(epoch, row)},
            tables=tables,
        )
        self._leave_orphans(epoch)
        self._session.commit(draft)
        self._position = self._position.after(draft)
        self._roll_forward()
        self._note(row, totals, index)
        return True

    def _note(self, row: int | None, totals: Mapping[int, int], index: TableIndex | None) -> None:
        model = self.model
        upto = model.indexed() if index is None else len(model.line)
        done = Past(self.names.number(), row, tuple(sorted(totals.items())))
        model.line = (*model.line, done)
        model.index[done.number] = upto
        model.floor = model.next_floor
        if row is not None and not model.is_given_up:
            model.sunk = (*model.sunk, row)

    def _state(
        self, epoch: Epoch, attempt: Attempt, row: int | None, totals: Mapping[int, int]
    ) -> PartitionState:
        lineage = self._position.lineage(PARTITION)
        snapshot: Snapshot | None = None
        if epoch % SNAPSHOT_EVERY == 0:
            snapshot = Snapshot(epoch=Epoch(epoch - 1), files=lineage.files, tail=lineage.deltas)
        elif epoch % SNAPSHOT_EVERY == 1 and self.model.line:
            key = snapshot_key(OPERATOR, 0, epoch, attempt, "whole")
            ref = self._stage(key, dict(self.model.line[-1].totals))
            files = (SnapshotFile(name="000009.sst", ref=ref),)
            snapshot = Snapshot(epoch=Epoch(epoch - 1), files=files)
        if row is None:
            return PartitionState(snapshot=snapshot)
        ref = self._stage(delta_key(OPERATOR, 0, epoch, attempt), {row % 2: totals[row % 2]})
        return PartitionState(delta=Delta(attempt=attempt, ref=ref), snapshot=snapshot)

    def _file(self, epoch: Epoch, attempt: Attempt, row: int | None) -> tuple[Output, ...]:
        if row is None:
            return ()
        ref = self._stage(table_key(TABLE, epoch, f"0-{attempt}.arrow"), row)
        return (Output(partition=0, ref=ref, rows=1),)

    def _changes(self, epoch: Epoch, row: int | None) -> tuple[Output, ...]:
        """Something is staged for a changelog in every epoch, until it is given up."""
        if self.model.is_given_up:
            return ()
        key = output_key(CHANGELOG, epoch, 0, Attempt(self.names.unique()))
        ref = self._stage(key, [] if row is None else [row])
        return (Output(partition=0, ref=ref, rows=0 if row is None else 1),)

    def _leave_orphans(self, epoch: Epoch) -> None:
        """What an attempt has left behind that failed."""
        attempt = Attempt(self.names.unique())
        self._stage(table_key(TABLE, epoch, f"0-{attempt}.arrow"), 0)
        self._stage(delta_key(OPERATOR, 0, epoch, attempt), {})

    def _stage(self, key: Key, body: object) -> Ref:
        encoded = json.dumps(body).encode()
        self.store.put(key, encoded)
        return ref_to(key, encoded)

    def manifests(self) -> Iterator[Manifest]:
        """The retained epochs, newest first."""
        return self.root.history()
