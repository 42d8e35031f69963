"""The manifest: everything one epoch added, written before the decision and never again.

Tasks upload files first, in any order; the leader names them here, once; HEAD names the
manifest. Each names its parent by hash, so the chain cannot be altered anywhere without HEAD
saying so. A crash before the swap leaves garbage, never half an epoch.
"""

from collections.abc import Iterator, Mapping

import msgspec

from penstock.checkpoint.formats import Ref, decode
from penstock.checkpoint.layout import epoch_of, is_table_key
from penstock.checkpoint.places import refuse_misplaced
from penstock.checkpoint.tally import Output, Tally, tally_after
from penstock.fields import (
    Count,
    DatabaseFile,
    FormatNumber,
    Int64,
    Name,
    PartitionNumber,
    Text,
    TimeMs,
)
from penstock.ids import Attempt, CommitId, Epoch, Generation, Holder, JobName, Token

__all__ = [
    "MANIFEST_FORMAT",
    "Delta",
    "Draft",
    "Manifest",
    "Output",
    "PartitionState",
    "Range",
    "Snapshot",
    "SnapshotFile",
    "SourceProgress",
    "TableIndex",
    "decode_manifest",
]

MANIFEST_FORMAT = 2
"""2: the tally of tables, and the description of the job. Manifests of format 1 have neither."""


class Range(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Offsets read: from `start` up to, not including, `stop`."""

    start: Int64
    stop: Int64


class SourceProgress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far one source has been read."""

    ranges: dict[Text, Range] = {}
    """What this epoch read, per source partition."""
    resume_at: dict[Text, Int64] = {}
    """Next offset to read, per source partition. Never the last one read."""
    watermark_ms: Int64 | None = None
    """How far event time has come in this source. Never falls."""
    seen_ms: dict[Text, Int64] = {}
    """The latest event time seen, per source partition."""
    active_ms: dict[Text, TimeMs] = {}
    """When the last epoch was planned that read something, per source partition."""
    identities: dict[Text, Text] = {}
    """What tells a source's logs from others of the same name, such as the ids of its topics."""


class Delta(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One partition's state changes of one epoch: the changelog segment."""

    attempt: Attempt
    ref: Ref


class SnapshotFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of a snapshot, and the name it has in a database folder."""

    name: DatabaseFile
    ref: Ref


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A partition's whole state as it was after `epoch`: files, and the deltas since they were cut.

    Cutting files costs as much as the state is large; naming the deltas since costs nothing and
    shortens recovery's walk all the same. So files are cut when enough has changed, and in
    between a snapshot names the old ones again with a longer tail.
    """

    epoch: Epoch
    files: tuple[SnapshotFile, ...]
    files_at: tuple[Epoch, Attempt] | None = None
    """The last delta that is in the files; None if there was none."""
    tail: tuple[tuple[Epoch, Delta], ...] = ()

    def refs(self) -> Iterator[Ref]:
        """Every object it is made of."""
        yield from (file.ref for file in self.files)
        yield from (delta.ref for _, delta in self.tail)


class PartitionState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What this epoch added for one partition of one operator."""

    delta: Delta | None = None
    snapshot: Snapshot | None = None


class TableIndex(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the files of a table are listed that epochs up to `epoch` have added.

    Every manifest of a job names the newest index of each table: history may be given up, and
    the table stays whole.
    """

    epoch: Epoch
    ref: Ref


class Draft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an epoch wants to make real. Everything it names is already stored."""

    rows_in: Count = 0
    sources: dict[Name, SourceProgress] = {}
    operators: dict[Name, dict[PartitionNumber, PartitionState]] = {}
    sinks: dict[Name, tuple[Output, ...]] = {}
    tables: dict[Name, TableIndex] = {}
    planned_ms: TimeMs = 0
    description: Ref | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything recovery needs to know about one epoch."""

    format: FormatNumber = MANIFEST_FORMAT
    job: JobName
    generation: Generation
    epoch: Epoch
    token: Token
    holder: Holder
    commit: CommitId
    parent: Ref | None
    at_ms: TimeMs
    """When it was written, by its leader's clock; never earlier than its parent, and steady: see
    `penstock.steady_time`."""
    rows_in: Count
    sources: dict[Name, SourceProgress]
    operators: dict[Name, dict[PartitionNumber, PartitionState]]
    sinks: dict[Name, tuple[Output, ...]]
    tables: dict[Name, TableIndex] = {}
    """The newest index of each table that has one."""
    planned_ms: TimeMs = 0
    """The time of the epoch, as its functions saw it: the same on every attempt."""
    tally: Tally | None = None
    """What every table was given up to this epoch; None in a root that an older version wrote."""
    description: Ref | None = None
    """What the root remembers of the job as of this epoch; None in roots of earlier versions."""

    @property
    def rows_out(self) -> int:
        """Rows staged for all sinks."""
        return sum(output.rows for outputs in self.sinks.values() for output in outputs)

    @property
    def size_bytes(self) -> int:
        """Bytes of everything this epoch added; what it only names again does not count."""
        return sum(ref.size_bytes for ref in self.refs() if epoch_of(ref.key) == self.epoch)

    def follows_unlisted_files(self) -> bool:
        """Whether earlier epochs added to a table that has no index yet, by what the tally says:
        only their manifests name those files."""
        totals = {} if self.tally is None else self.tally.tables
        return any(
            total.files > sum(is_table_key(output.ref.key) for output in self.sinks.get(table, ()))
            for table, total in totals.items()
            if table not in self.tables
        )

    def refs(self) -> Iterator[Ref]:
        """Every object this epoch names, its parent aside."""
        yield from self.state_refs()
        for outputs in self.sinks.values():
            yield from (output.ref for output in outputs)
        yield from (index.ref for index in self.tables.values())
        if self.description is not None:
            yield self.description

    def new_refs(self) -> Iterator[Ref]:
        """The deltas and outputs: what only this epoch can name first."""
        for partitions in self.operators.values():
            yield from (state.delta.ref for state in partitions.values() if state.delta)
        for outputs in self.sinks.values():
            yield from (output.ref for output in outputs)

    def state_refs(self) -> Iterator[Ref]:
        """Every object of state this epoch names."""
        for partitions in self.operators.values():
            for state in partitions.values():
                if state.delta is not None:
                    yield state.delta.ref
                if state.snapshot is not None:
                    yield from state.snapshot.refs()

    def flaw_after(self, previous: "Manifest | None") -> str | None:
        """Why the chain would be broken with this one behind `previous`, or None."""
        if previous is None:
            if self.epoch != 1:
                return f"epoch {self.epoch} has no parent"
            return self._flaw_in_names() or self._flaw_in_tally(None)
        if self.epoch != previous.epoch + 1:
            return f"epoch {self.epoch} does not follow epoch {previous.epoch}"
        if self.token < previous.token:
            return f"token {self.token} is older than its parent's {previous.token}"
        if self.generation < previous.generation:
            return f"generation {self.generation} is older than its parent's"
        return (
            self._flaw_in_names()
            or self._flaw_in_parts(previous)
            or self._flaw_in_offsets(previous)
            or self._flaw_in_tally(previous.tally)
        )

    def _flaw_in_names(self) -> str | None:
        """Why some object could not be judged by the collector from its name alone."""
        for partitions in self.operators.values():
            for state in partitions.values():
                if state.snapshot is not None and state.snapshot.epoch != self.epoch - 1:
                    return f"a snapshot is of epoch {state.snapshot.epoch}, not of the one before"
        new = (ref.key for ref in self.new_refs() if epoch_of(ref.key) != self.epoch)
        old = (
            ref.key for ref in self.refs() if not (epoch_of(ref.key) or self.epoch) <= self.epoch
        )
        stranger = next(new, None) or next(old, None)
        return f"{stranger} does not belong to epoch {self.epoch}" if stranger else None

    def _flaw_in_parts(self, previous: "Manifest") -> str | None:
        """Which operator, partition or sink is gone. One that rests is named with nothing new;
        one that is left out would be forgotten. A new generation may divide anew."""
        if self.description is None and previous.description is not None:
            return "the description of the job is left out"
        if self.generation > previous.generation:
            return None
        for sink in previous.sinks:
            if sink not in self.sinks:
                return f"sink {sink} is left out"
        for table in previous.tables:
            if table not in self.tables:
                return f"the index of table {table} is left out"
        for operator, partitions in previous.operators.items():
            gone = partitions.keys() - self.operators.get(operator, {}).keys()
            if gone:
                return f"partition {min(gone)} of operator {operator} is left out"
        return None

    def _flaw_in_tally(self, before: Tally | None) -> str | None:
        """Which table's tally is not its parent's and what this epoch added."""
        if self.tally is None:
            return None if before is None else "the tally of its tables is left out"
        expected = tally_after(before, self.epoch, self.sinks)
        if self.tally.since != expected.since:
            return f"its tally counts from epoch {self.tally.since}, not from {expected.since}"
        for table in sorted({*expected.tables, *self.tally.tables}):
            if self.tally.total(table) != expected.total(table):
                return f"the tally of table {table} is not its parent's and what it added"
        return None

    def _flaw_in_offsets(self, previous: "Manifest") -> str | None:
        for source, progress in self.sources.items():
            flaw = _offset_flaw(progress, previous.sources.get(source, SourceProgress()))
            if flaw is not None:
                return f"source {source}: {flaw}"
        gone = previous.sources.keys() - self.sources.keys()
        return f"source {min(gone)} is gone" if gone else None


def _offset_flaw(now: SourceProgress, before: SourceProgress) -> str | None:
    """Why these offsets do not go on where the parent's ended, or None."""
    for partition, resume_at in _all_offsets(now, before).items():
        old, new = before.resume_at.get(partition), now.resume_at.get(partition)
        read = now.ranges.get(partition)
        if new is None:
            return f"partition {partition} lost its resume offset {resume_at}"
        if read is None and old is not None and new != old:
            return f"partition {partition} moved from {old} to {new} without reading"
        if read is not None and old is not None and read.start != old:
            return f"partition {partition} was read from {read.start}, not from {old}"
        if read is not None and not read.start <= read.stop == new:
            return f"partition {partition} was read to {read.stop}, but resumes at {new}"
    return None


def _all_offsets(now: SourceProgress, before: SourceProgress) -> Mapping[str, int | Range]:
    return {**now.ranges, **before.resume_at, **now.resume_at}


def decode_manifest(name: str, body: bytes) -> Manifest:
    """The manifest in `body`; see `penstock.checkpoint.formats.decode` for what it raises."""
    found = decode(name, body, Manifest, MANIFEST_FORMAT)
    refuse_misplaced(name, found)
    return found
