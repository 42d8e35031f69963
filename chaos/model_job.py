"""A job small enough to be simulated a million times, built of the production protocols.

Two source partitions, running totals per key in two state partitions, one external sink. What
a task does is modelled; taking over, recovering, staging, committing, rolling forward,
collecting, pinning and reading are the real thing.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.chaos.host import Host
from penstock.checkpoint import (
    HEAD_REGISTER,
    Chain,
    Delta,
    Draft,
    Leader,
    Lineage,
    Manifest,
    Output,
    PartitionState,
    Range,
    Ref,
    Retention,
    Snapshot,
    SnapshotFile,
    SourceProgress,
    View,
    collect,
    lead,
    pin,
    recover,
    stage,
    unpin,
)
from penstock.checkpoint.fsck import check
from penstock.checkpoint.layout import delta_key, output_key, snapshot_key
from penstock.checkpoint.recovery import PartitionName
from penstock.effects import Steps, Wait
from penstock.errors import Fenced, Gone, Invalid, PenstockError
from penstock.fencing import heartbeats, release, stand_by
from penstock.ids import Attempt, Epoch, Holder, JobName
from penstock.points import Point
from penstock.sinks import Shard, roll_forward

__all__ = ["PARTITIONS", "SINK", "Program", "Workload", "rows_of"]

JOB = JobName("model")
SOURCE, OPERATOR, SINK = "events", "totals", "ledger"
PARTITIONS = 2
LEASE_S, POLL_S, BEAT_S = 10.0, 2.0, 3.0
SNAPSHOT_EVERY = 2
RETENTION = Retention(epochs=1, age_s=0.0, grace_s=0.0)
"""As little as can be kept: whatever saves an object here is a rule, not luck."""

Row = tuple[int, int, int, int]
"""Source partition, offset, key, running total."""

State = dict[int, dict[int, int]]
"""Per state partition: key to running total."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What there is to process, and how."""

    events: tuple[tuple[tuple[int, int], ...], ...]
    """Per source partition: keys and amounts, in offset order."""
    epoch_events_max: int
    wobbly: bool
    """Whether the user's function gives another result every time it is called."""

    @staticmethod
    def make(rng: random.Random) -> "Workload":
        """Some events, some limits."""
        events = tuple(
            tuple((rng.randrange(4), rng.randint(1, 9)) for _ in range(rng.randint(2, 5)))
            for _ in range(PARTITIONS)
        )
        return Workload(events, rng.randint(1, 3), wobbly=rng.random() < 0.3)


class Program:
    """The programs that processes of the model world run."""

    def __init__(self, host: Host, workload: Workload) -> None:
        self._host = host
        self._workload = workload
        self._stopped = False
        self._applied = 0
        self._lineages: dict[int, Lineage] = {}
        """What rebuilds each partition's committed state, for snapshots that name it again."""

    def leader(self, *, patient: bool) -> Steps[None]:
        """Lead until everything is processed. A patient one waits for its turn first."""
        host = self._host
        if patient:
            yield from stand_by(HEAD_REGISTER, host.clock, LEASE_S, POLL_S)
        leader = yield from lead(JOB, Holder(host.name), host.clock, host.chance)
        beats = heartbeats(HEAD_REGISTER, leader.tenure, BEAT_S, lambda: self._stopped)
        host.start_thread("heartbeat", beats)
        chain = Chain(leader.tenure)
        yield from self._roll_forward(chain, leader)
        state = yield from self._load(chain, leader.parent)
        while ranges := self._plan(leader.parent):
            state = yield from self._epoch(chain, leader, state, ranges)
        yield from self._roll_forward(chain, leader)
        self._stopped = True
        yield from release(leader.tenure)
        host.report("finished")

    def closer(self) -> Steps[None]:
        """The last process of a run: finishes the job, then empties the bins."""
        yield from self.leader(patient=False)
        leader = yield from lead(
            JOB, Holder(f"{self._host.name}-last"), self._host.clock, self._host.chance
        )
        chain = Chain(leader.tenure)
        state = yield from self._load(chain, leader.parent)
        for _ in range(4):
            state = yield from self._epoch(chain, leader, state, {})
            yield from self._roll_forward(chain, leader)

    def reader(self) -> Steps[None]:
        """Read the committed outputs again and again."""
        view = View(Chain())
        for _ in range(3):
            yield Wait(self._host.rng.random())
            try:
                head = yield from view.refresh()
                rows: dict[Epoch, list[Row]] = {}
                ref, epoch = head.manifest, head.epoch
                while ref is not None and epoch >= head.floor:
                    manifest = yield from Chain().manifest(ref, epoch, Point.READ_MANIFEST)
                    rows[epoch] = yield from self._read_outputs(manifest)
                    ref, epoch = manifest.parent, Epoch(epoch - 1)
                self._host.report("read", head.rank, rows)
            except Gone:
                self._host.report("reader fell behind")

    def operator(self, name: str) -> Steps[None]:
        """Somebody with a terminal: pins an epoch, looks at it later, lets it go, again."""
        for _ in range(2):
            yield Wait(self._host.rng.random() * 2)
            try:
                kept = yield from pin(Chain(), name, self._host.chance.unique())
            except Invalid as refusal:
                self._host.report("pin refused", str(refusal))
                continue
            self._host.report("pinned", kept.mark, kept.epoch)
            yield from collect(Chain(), RETENTION)
            yield Wait(self._host.rng.random() * 2)
            manifest = yield from Chain().manifest(kept.manifest, kept.epoch, Point.READ_MANIFEST)
            yield from self._load(Chain(), manifest)
            self._host.report("unpinning", kept.mark)
            yield from unpin(name, kept.mark)
        yield from collect(Chain(), RETENTION)

    def inspector(self) -> Steps[None]:
        """Checks the root while the job runs. Nothing is ever wrong with it."""
        for _ in range(2):
            yield Wait(self._host.rng.random() * 2)
            found = yield from check(Chain())
            if found.wrong:
                self._host.report("alarm", "; ".join(found.wrong))
            for pin_ in found.broken_pins:
                self._host.report("broken pin", pin_.mark)

    def _epoch(
        self, chain: Chain, leader: Leader, state: State, ranges: Mapping[str, Range]
    ) -> Steps[State]:
        """One epoch: process, stage, commit, apply, collect."""
        epoch = Epoch(leader.head.epoch + 1)
        draft, after = yield from self._stage(epoch, leader.parent, state, ranges)
        self._host.report("trying", leader.tenure.token, epoch)
        try:
            manifest = yield from leader.commit(draft)
        except Fenced as fenced:
            known = "unknown" if fenced.untold else "not committed"
            self._host.report(known, leader.tenure.token, epoch)
            raise
        except PenstockError:
            self._host.report("unknown", leader.tenure.token, epoch)
            raise
        self._host.report("committed", leader.tenure.token, manifest.epoch)
        self._remember(manifest)
        if self._host.rng.random() < 0.5:  # sinks may be an epoch behind
            yield from self._roll_forward(chain, leader)
        yield from self._collect(chain, leader)
        return after

    def _collect(self, chain: Chain, leader: Leader) -> Steps[None]:
        needed = {SINK: Epoch(self._applied + 1)}
        collected = yield from collect(chain, RETENTION, needed)
        leader.raise_floor(collected.next_floor)

    def _roll_forward(self, chain: Chain, leader: Leader) -> Steps[None]:
        applied = []
        for number in range(PARTITIONS):
            shard = Shard(SINK, number, PARTITIONS)
            done = yield from roll_forward(chain, leader.tenure, leader.head, shard)
            applied.append(0 if done is None else done.epoch)
        self._applied = min(applied)

    def _plan(self, parent: Manifest | None) -> dict[str, Range]:
        """What to read next: something of every partition that has more."""
        resume = parent.sources[SOURCE].resume_at if parent is not None else {}
        ranges: dict[str, Range] = {}
        for number, events in enumerate(self._workload.events):
            start = resume.get(str(number), 0)
            stop = min(len(events), start + self._host.rng.randint(1, self._limit()))
            if stop > start:
                ranges[str(number)] = Range(start=start, stop=stop)
        return ranges

    def _limit(self) -> int:
        return self._workload.epoch_events_max

    def _stage(
        self, epoch: Epoch, parent: Manifest | None, state: State, ranges: Mapping[str, Range]
    ) -> Steps[tuple[Draft, State]]:
        after = {number: dict(totals) for number, totals in state.items()}
        states: dict[int, PartitionState] = {}
        outputs: list[Output] = []
        for number in range(PARTITIONS):
            attempt = Attempt(self._host.chance.unique())
            rows = self._process(number, ranges, after[number])
            snapshot = yield from self._snapshot(epoch, number, attempt, state[number])
            states[number] = PartitionState(
                delta=(yield from self._delta(epoch, number, attempt, rows)), snapshot=snapshot
            )
            key = output_key(SINK, epoch, number, attempt)
            ref = yield from stage(key, json.dumps(rows).encode(), Point.STAGE_OUTPUT)
            outputs.append(Output(partition=number, ref=ref, rows=len(rows)))
        draft = Draft(
            rows_in=sum(r.stop - r.start for r in ranges.values()),
            sources={SOURCE: self._progress(parent, ranges)},
            operators={OPERATOR: states},
            sinks={SINK: tuple(outputs)},
        )
        return draft, after

    def _process(
        self, partition: int, ranges: Mapping[str, Range], totals: dict[int, int]
    ) -> list[Row]:
        """The user's function, event by event, in a fixed order."""
        rows: list[Row] = []
        for source, read in sorted(ranges.items()):
            for offset in range(read.start, read.stop):
                key, amount = self._workload.events[int(source)][offset]
                if key % PARTITIONS == partition:
                    wobble = self._host.rng.randrange(1000) if self._workload.wobbly else 0
                    totals[key] = totals.get(key, 0) + amount + wobble
                    rows.append((int(source), offset, key, totals[key]))
        return rows

    def _delta(
        self, epoch: Epoch, partition: int, attempt: Attempt, rows: list[Row]
    ) -> Steps[Delta | None]:
        if not rows:
            return None
        changes = {key: total for _, _, key, total in rows}
        key = delta_key(OPERATOR, partition, epoch, attempt)
        ref = yield from stage(key, json.dumps(changes).encode(), Point.STAGE_DELTA)
        return Delta(attempt=attempt, ref=ref)

    def _snapshot(
        self, epoch: Epoch, partition: int, attempt: Attempt, totals: Mapping[int, int]
    ) -> Steps[Snapshot | None]:
        """The state before this epoch, now and then: by turns cut anew, and named again."""
        turn = epoch + partition
        before = self._lineages.get(partition)
        if before is None or turn % SNAPSHOT_EVERY:
            return None
        if turn % (2 * SNAPSHOT_EVERY) == 0:
            return Snapshot(epoch=Epoch(epoch - 1), files=before.files, tail=before.deltas)
        key = snapshot_key(OPERATOR, partition, epoch, attempt, "whole")
        ref = yield from stage(key, json.dumps(totals).encode(), Point.STAGE_SNAPSHOT)
        return Snapshot(epoch=Epoch(epoch - 1), files=(SnapshotFile(name="whole", ref=ref),))

    def _remember(self, manifest: Manifest) -> None:
        """Keep the lineages up to date with what was committed."""
        for partition, state in manifest.operators[OPERATOR].items():
            before = self._lineages.get(partition, Lineage((), ()))
            if state.snapshot is not None:
                before = Lineage(state.snapshot.files, state.snapshot.tail)
            if state.delta is not None:
                before = Lineage(before.files, (*before.deltas, (manifest.epoch, state.delta)))
            self._lineages[partition] = before

    def _progress(self, parent: Manifest | None, ranges: Mapping[str, Range]) -> SourceProgress:
        before = parent.sources[SOURCE].resume_at if parent is not None else {}
        after = {source: read.stop for source, read in ranges.items()}
        return SourceProgress(ranges=dict(ranges), resume_at={**before, **after})

    def _load(self, chain: Chain, newest: Manifest | None) -> Steps[State]:
        """Rebuild every partition's state, as a task on a new host would."""
        state: State = {number: {} for number in range(PARTITIONS)}
        lineages: Mapping[PartitionName, Lineage] = yield from recover(chain, newest)
        for (_, number), lineage in lineages.items():
            self._lineages[number] = lineage
            for ref in lineage.refs():
                assert newest is not None
                body = yield from chain.payload(ref, newest.epoch, Point.READ_OBJECT)
                state[number].update(_totals(body))
        return state

    def _read_outputs(self, manifest: Manifest) -> Steps[list[Row]]:
        rows: list[Row] = []
        for output in manifest.sinks[SINK]:
            rows += rows_of((yield from _payload(output.ref, manifest.epoch)))
        return rows


def rows_of(body: bytes) -> list[Row]:
    """The rows in one staged output."""
    return [(source, offset, key, total) for source, offset, key, total in json.loads(body)]


def _totals(body: bytes) -> dict[int, int]:
    return {int(key): total for key, total in json.loads(body).items()}


def _payload(ref: Ref, epoch: Epoch) -> Steps[bytes]:
    return (yield from Chain().payload(ref, epoch, Point.READ_OBJECT))
