"""The history of a small job, made by the production code: for tests that need some epochs."""

import hashlib
from collections.abc import Mapping

from penstock.checkpoint import (
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
    lead,
    perform,
    stage,
)
from penstock.checkpoint.layout import delta_key, output_key, snapshot_key
from penstock.checkpoint.root import Root, Session
from penstock.checkpoint.store import ObjectStore
from penstock.clock import Chance
from penstock.effects import Steps
from penstock.ids import Attempt, Epoch, Holder, JobName
from penstock.points import Point
from tests.support.driving import CountingChance, Stage

JOB = JobName("clicks")
SOURCE, OPERATOR, SINK = "events", "totals", "ledger"
ROWS = 10
"""What every epoch reads, and writes to its sink."""


def staged(
    parent: Manifest | None,
    chance: Chance,
    *,
    snapshot: bool = False,
    again: Lineage | None = None,
) -> Steps[Draft]:
    """Stage what the epoch after `parent` consists of: a delta, an output, perhaps a snapshot.

    With `again`, the snapshot names these files and deltas once more instead of new files.
    """
    epoch = Epoch(1 if parent is None else parent.epoch + 1)
    attempt = Attempt(chance.unique())
    delta = yield from stage(
        delta_key(OPERATOR, 0, epoch, attempt), f"delta {epoch}".encode(), Point.STAGE_DELTA
    )
    cut: Snapshot | None = None
    if snapshot and epoch > 1:
        key = snapshot_key(OPERATOR, 0, epoch, attempt, "whole")
        file = yield from stage(key, f"before {epoch}".encode(), Point.STAGE_SNAPSHOT)
        cut = Snapshot(epoch=Epoch(epoch - 1), files=(SnapshotFile(name="000009.sst", ref=file),))
    if again is not None:
        cut = Snapshot(epoch=Epoch(epoch - 1), files=again.files, tail=again.deltas)
    output = yield from stage(
        output_key(SINK, epoch, 0, attempt), f"output {epoch}".encode(), Point.STAGE_OUTPUT
    )
    start = (epoch - 1) * ROWS
    return Draft(
        rows_in=ROWS,
        sources={
            SOURCE: SourceProgress(
                ranges={"0": Range(start=start, stop=start + ROWS)}, resume_at={"0": start + ROWS}
            )
        },
        operators={
            OPERATOR: {0: PartitionState(delta=Delta(attempt=attempt, ref=delta), snapshot=cut)}
        },
        sinks={SINK: (Output(partition=0, ref=output, rows=ROWS),)},
    )


def work(leader: Leader, chance: Chance, *, snapshot: bool = False) -> Steps[Manifest]:
    """One epoch from its staging to its commit."""
    draft = yield from staged(leader.parent, chance, snapshot=snapshot)
    return (yield from leader.commit(draft))


def led(stage: Stage, holder: str = "one") -> tuple[Leader, CountingChance]:
    """A leader of that name, and a chance whose names no other leader's has."""
    chance = CountingChance(holder)
    leader: Leader = stage.run(lead(JOB, Holder(holder), stage.clock, chance))
    return leader, chance


def commit_epochs(root: Root, session: Session, count: int, snapshot_every: int = 0) -> None:
    """So many epochs through a session, every so often with a snapshot."""
    for _ in range(count):
        epoch = session.head.epoch + 1
        cut = bool(snapshot_every) and epoch % snapshot_every == 0
        draft = perform(staged(session.manifest, root.chance, snapshot=cut), root.handlers)
        session.commit(draft)


def contents(store: ObjectStore) -> Mapping[str, str]:
    """Every object of a store, with the hash of what is in it."""
    found: dict[str, str] = {}
    after = ""
    while page := store.list("", after):
        for entry in page:
            stored = store.get(entry.key)
            assert stored is not None
            found[entry.key] = hashlib.sha256(stored.body).hexdigest()
        after = page[-1].key
    return found
