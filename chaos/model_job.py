"""A job small enough to be simulated a million times, built of the production protocols.

Two source partitions, running totals per key in two state partitions, a sink and perhaps a
changelog outside the root, perhaps a table below it, perhaps events that its function cannot
process. What a task does is modelled; taking over, recovering, choosing letters to replay, staging,
indexing, committing, rolling forward, collecting and sweeping are the real thing.
"""

import json
from collections.abc import Mapping

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.chaos.actions import Action
from penstock.chaos.host import Host
from penstock.chaos.model_letters import (
    Event,
    ModelLetters,
    Planned,
    letters_progress,
    next_letter,
    stage_dead,
)
from penstock.chaos.model_table import TABLE, ModelTables, table_file
from penstock.chaos.model_workload import (
    CHANGELOG,
    CLOSING,
    DEAD,
    JOB,
    OPERATOR,
    PARTITIONS,
    REPLAYED,
    REPLAYS,
    SINK,
    SOURCE,
    TABLES,
    Row,
    Workload,
    needed_by,
    rows_of,
)
from penstock.chaos.world import Accept
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
    Snapshot,
    SnapshotFile,
    SourceProgress,
    collect,
    lead,
    recover,
    stage,
)
from penstock.checkpoint.layout import delta_key, output_key, snapshot_key
from penstock.checkpoint.recovery import PartitionName
from penstock.effects import Steps
from penstock.errors import Fenced, Invalid, PenstockError
from penstock.fencing import heartbeats, release, stand_by
from penstock.ids import Attempt, Epoch, Holder
from penstock.points import Point
from penstock.runtime.replays import stage_letters
from penstock.sinks import Shard, roll_forward, sweep_table
from penstock.sinks.cursors import Cursor
from penstock.sinks.roll_forward import CHOICES

__all__ = ["Program"]

LEASE_S, POLL_S, BEAT_S = 10.0, 2.0, 3.0
SNAPSHOT_EVERY = 2

State = dict[int, dict[int, int]]
"""Per state partition: key to running total."""


class Program:
    """The programs that processes of the model world run."""

    def __init__(self, host: Host, workload: Workload) -> None:
        self._host = host
        self._workload = workload
        self._stopped = False
        self._applied: dict[str, int] = {}
        """How far each sink outside the root is."""
        self._sinks: tuple[str, ...] = ()
        self._tables = ModelTables()
        self._letters = ModelLetters()
        self._is_mended = False
        self._is_last = False
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
        state = yield from self._begin(chain, leader)
        while plan := (yield from self._plan(leader)):
            if host.rng.random() < self._workload.rests:  # it replays nothing: the plan stands
                state = yield from self._epoch(chain, leader, state, Planned())
            state = yield from self._epoch(chain, leader, state, plan)
        yield from self._roll_forward(chain, leader)
        self._stopped = True
        yield from release(leader.tenure)
        host.report("finished")

    def closer(self) -> Steps[None]:
        """Finish the job, then empty the bins."""
        yield from self.leader(patient=False)
        leader = yield from lead(
            JOB, Holder(f"{self._host.name}-last"), self._host.clock, self._host.chance
        )
        chain = Chain(leader.tenure)
        state = yield from self._begin(chain, leader)
        for number in range(CLOSING):
            self._is_last = number == CLOSING - 1
            letters = yield from self._offered(leader)
            state = yield from self._epoch(chain, leader, state, Planned(letters=letters))
            yield from self._roll_forward(chain, leader)

    def _begin(self, chain: Chain, leader: Leader) -> Steps[State]:
        """What a start of the job does before its first epoch; the state that it finds."""
        job = self._workload.job
        self._sinks, self._is_mended, self._letters = job.sinks, job.is_mended, ModelLetters()
        named = leader.parent.sinks if leader.parent is not None else {}
        if CHANGELOG in self._sinks and named.get(CHANGELOG) == ():
            raise Invalid(CHANGELOG, "was given up and has missed changes", "choose another name")
        yield from self._roll_forward(chain, leader)
        self._tables = yield from ModelTables.found(chain, leader.parent, job.tables)
        return (yield from self.load(chain, leader.parent))

    def _epoch(self, chain: Chain, leader: Leader, state: State, plan: Planned) -> Steps[State]:
        """One epoch: process, stage, commit, apply, collect."""
        leader.tenure.check()
        epoch, before = Epoch(leader.head.epoch + 1), leader.parent
        draft, after = yield from self._stage(leader, epoch, state, plan)
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
        self._count(leader, draft, before)
        self._remember(manifest)
        self._tables.committed(manifest)
        if self._host.rng.random() < 0.5:  # sinks may be an epoch behind
            yield from self._roll_forward(chain, leader)
        yield from self._collect(chain, leader)
        return after

    def _count(self, leader: Leader, draft: Draft, before: Manifest | None) -> None:
        """Say what an epoch was."""
        did, named = self._host.did, {} if before is None else before.sinks
        did(Action.COMMIT if draft.rows_in else Action.EMPTY_COMMIT)
        if before is not None and draft.tables != before.tables:
            did(Action.INDEX)
        if CHANGELOG in self._sinks and CHANGELOG not in named:
            did(Action.ADD_SINK)
        if draft.sinks.get(CHANGELOG) == () and named.get(CHANGELOG):
            did(Action.GIVE_UP_SINK)

    def _collect(self, chain: Chain, leader: Leader) -> Steps[None]:
        leader.tenure.check()
        assert leader.parent is not None, "only called behind a commit"
        needed = needed_by(leader.parent, self._sinks, self._applied)
        collected = yield from collect(chain, self._workload.retention, needed)
        leader.raise_floor(collected.next_floor)
        self._count_young(leader.parent, needed, collected.next_floor)
        if collected.removed:
            self._host.did(Action.COLLECT)
        for table in self._due_for_sweep(leader.parent):
            swept = yield from sweep_table(chain, table)
            if swept.removed:
                self._host.did(Action.SWEEP)

    def _due_for_sweep(self, newest: Manifest) -> list[str]:
        """Tables of letters are swept by every other epoch, and by the last one of a run: a sweep
        costs as much as a commit."""
        is_due = self._is_last or newest.epoch % 2 == 0
        return [table for table in newest.tables if table == TABLE or is_due]

    def _count_young(self, newest: Manifest, needed: Mapping[str, Epoch], floor: Epoch) -> None:
        retention = self._workload.retention
        if retention.age_s and floor < min(newest.epoch - retention.epochs + 1, *needed.values()):
            self._host.did(Action.KEPT_BY_AGE)

    def _roll_forward(self, chain: Chain, leader: Leader) -> Steps[None]:
        for sink in self._sinks:
            if sink not in TABLES:
                self._applied[sink] = yield from self._apply_all(chain, leader, sink)

    def _apply_all(self, chain: Chain, leader: Leader, sink: str) -> Steps[int]:
        """Bring a sink up to HEAD; how far all its shards are."""
        applied = []
        for number in range(PARTITIONS):
            shard = Shard(sink, number, PARTITIONS)
            try:
                done = yield from roll_forward(chain, leader.tenure, leader.head, shard)
            except Invalid as refusal:
                if refusal.advice != CHOICES:
                    raise
                done = yield from self._accept(leader, shard)
            applied.append(0 if done is None else done.epoch)
        return min(applied)

    def _accept(self, leader: Leader, shard: Shard) -> Steps[Cursor]:
        """Somebody has read the refusal, puts the sink right, and lets it go on from HEAD."""
        assert leader.parent is not None, "without an epoch nothing is refused"
        cursor = Cursor.at(leader.parent)
        yield Accept(Point.SINK_CURSOR, shard.sink, shard.number, cursor, leader.tenure.token)
        self._host.did(Action.ACCEPT)
        return cursor

    def _plan(self, leader: Leader) -> Steps[Planned]:
        """What to read next: something of every partition that has more, and letters that were
        asked for."""
        ranges = self._ranges(leader.parent)
        return Planned(ranges, (yield from self._offered(leader)))

    def _offered(self, leader: Leader) -> Steps[pa.Table | None]:
        if DEAD not in self._sinks:
            return None
        return (yield from self._letters.offer(leader.head, self._tables, self._limit()))

    def _ranges(self, parent: Manifest | None) -> dict[str, Range]:
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
        self, leader: Leader, epoch: Epoch, state: State, plan: Planned
    ) -> Steps[tuple[Draft, State]]:
        parent = leader.parent
        after = {number: dict(totals) for number, totals in state.items()}
        states: dict[int, PartitionState] = {}
        outputs: dict[str, list[Output]] = {sink: [] for sink in self._sinks}
        first = yield from self._stage_letters(epoch, parent, plan, outputs)
        events = plan.events(self._workload, first)
        for number in range(PARTITIONS):
            attempt = Attempt(self._host.chance.unique())
            rows, dead = self._process(number, events, after[number])
            snapshot = yield from self._snapshot(epoch, number, attempt, state[number])
            states[number] = PartitionState(
                delta=(yield from self._delta(epoch, number, attempt, rows)), snapshot=snapshot
            )
            yield from self._stage_rows(epoch, number, attempt, rows, outputs)
            if dead:
                outputs[DEAD].append((yield from stage_dead(dead, epoch, number, attempt)))
        named = {} if parent is None else parent.sinks
        draft = Draft(
            rows_in=plan.rows,
            sources=self._progress(parent, plan, first),
            operators={OPERATOR: states},
            sinks={
                **dict.fromkeys(named, ()),  # also those that were given up
                **{sink: tuple(staged) for sink, staged in outputs.items()},
            },
            tables=(yield from self._tables.extended(Chain(leader.tenure), epoch, self._host)),
        )
        return draft, after

    def _stage_letters(
        self,
        epoch: Epoch,
        parent: Manifest | None,
        plan: Planned,
        outputs: dict[str, list[Output]],
    ) -> Steps[int]:
        """Stage the letters that an epoch replays; the offset of the first."""
        first = next_letter(parent) if DEAD in self._sinks else 0
        if plan.letters is not None:
            attempt = Attempt(self._host.chance.unique())
            staging = stage_letters(OPERATOR, plan.letters, epoch, first, attempt)
            outputs[REPLAYED].append((yield from staging))
        return first

    def _stage_rows(
        self,
        epoch: Epoch,
        partition: int,
        attempt: Attempt,
        rows: list[Row],
        outputs: dict[str, list[Output]],
    ) -> Steps[None]:
        body = json.dumps(rows).encode()
        for sink in self._sinks:
            if sink in (DEAD, REPLAYED) or (sink == TABLE and not rows):
                continue  # a table is given no empty files
            key = table_file(epoch, partition, attempt)
            key = key if sink == TABLE else output_key(sink, epoch, partition, attempt)
            ref = yield from stage(key, body, Point.STAGE_OUTPUT)
            outputs[sink].append(Output(partition=partition, ref=ref, rows=len(rows)))

    def _process(
        self, partition: int, events: list[Event], totals: dict[int, int]
    ) -> tuple[list[Row], list[Event]]:
        """The user's function, event by event; the rows, and the events it cannot process."""
        rows: list[Row] = []
        dead: list[Event] = []
        for event in events:
            key = event.key
            if key % PARTITIONS != partition:
                continue
            if event.place in self._workload.poison and not self._is_mended:
                dead.append(event)
                continue
            wobble = self._host.rng.randrange(1000) if self._workload.wobbly else 0
            totals[key] = totals.get(key, 0) + event.amount + wobble
            rows.append((*event.place, key, totals[key]))
        return rows, dead

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
        return Snapshot(epoch=Epoch(epoch - 1), files=(SnapshotFile(name="000009.sst", ref=ref),))

    def _remember(self, manifest: Manifest) -> None:
        """Keep the lineages up to date with what was committed."""
        for partition, state in manifest.operators[OPERATOR].items():
            before = self._lineages.get(partition, Lineage((), ()))
            if state.snapshot is not None:
                before = Lineage(state.snapshot.files, state.snapshot.tail)
            if state.delta is not None:
                before = Lineage(before.files, (*before.deltas, (manifest.epoch, state.delta)))
            self._lineages[partition] = before

    def _progress(
        self, parent: Manifest | None, plan: Planned, first: int
    ) -> dict[str, SourceProgress]:
        before = parent.sources[SOURCE].resume_at if parent is not None else {}
        after = {source: read.stop for source, read in plan.ranges.items()}
        read = SourceProgress(ranges=dict(plan.ranges), resume_at={**before, **after})
        if DEAD not in self._sinks:
            return {SOURCE: read}
        return {SOURCE: read, REPLAYS: letters_progress(first, plan.replays)}

    def load(self, chain: Chain, newest: Manifest | None) -> Steps[State]:
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

    def read_outputs(self, chain: Chain, manifest: Manifest) -> Steps[list[Row]]:
        """The rows that an epoch staged for the sink."""
        rows: list[Row] = []
        for output in manifest.sinks[SINK]:
            body = yield from chain.payload(output.ref, manifest.epoch, Point.READ_OBJECT)
            rows += rows_of(body)
        return rows


def _totals(body: bytes) -> dict[int, int]:
    return {int(key): total for key, total in json.loads(body).items()}
