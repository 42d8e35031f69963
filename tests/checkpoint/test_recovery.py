from typing import Any

import pytest

from penstock.checkpoint import (
    Chain,
    Delta,
    Lineage,
    Manifest,
    PartitionState,
    Snapshot,
    SnapshotFile,
    recover,
    ref_to,
)
from penstock.checkpoint.layout import HEAD_KEY, snapshot_key
from penstock.checkpoint.recovery import LineageWalk
from penstock.effects import Get
from penstock.errors import Corrupt, Fenced
from penstock.ids import Attempt, CommitId, Epoch, Generation, Holder, Key, Token
from tests.support.driving import Stage
from tests.support.history import JOB, OPERATOR, led, work

NAME = (OPERATOR, 0)


def delta(epoch: int) -> Delta:
    return Delta(
        attempt=Attempt("a"), ref=ref_to(Key(f"changelog/{OPERATOR}/0/{epoch:012d}-a.sst"), b"")
    )


def snapshot(epoch: int) -> Snapshot:
    key = snapshot_key(OPERATOR, 0, Epoch(epoch), Attempt("a"), "whole")
    file = SnapshotFile(name="000009.sst", ref=ref_to(key, b""))
    return Snapshot(epoch=Epoch(epoch), files=(file,))


def manifest(epoch: int, **states: PartitionState) -> Manifest:
    """One epoch of an operator whose partitions are called `p0`, `p1` and so on."""
    return Manifest(
        job=JOB,
        generation=Generation(1),
        epoch=Epoch(epoch),
        token=Token(1),
        holder=Holder("one"),
        commit=CommitId(f"c{epoch}"),
        parent=None,
        at_ms=0,
        rows_in=0,
        sources={},
        operators={OPERATOR: {int(name[1:]): state for name, state in states.items()}},
        sinks={},
    )


def history(stage: Stage, epochs: int, snapshot_every: int) -> Manifest:
    leader, chance = led(stage)
    for epoch in range(1, epochs + 1):
        stage.run(work(leader, chance, snapshot=epoch % snapshot_every == 0))
    assert leader.parent is not None
    return leader.parent


def manifests_read(epochs: int) -> int:
    stage = Stage()
    newest = history(stage, epochs, snapshot_every=5)
    before = len(stage.seen)
    stage.run(recover(Chain(), newest))
    return len(stage.seen) - before


def test_a_root_without_epochs_has_no_state() -> None:
    """The first start recovers nothing, and asks nothing."""
    stage = Stage()

    assert stage.run(recover(Chain(), None)) == {}
    assert stage.seen == []


def test_state_is_the_last_snapshot_and_every_delta_since() -> None:
    """Oldest first, because the last change of a key is the one that counts."""
    stage = Stage()
    newest = history(stage, epochs=12, snapshot_every=5)

    lineage = stage.run(recover(Chain(), newest))[NAME]

    assert [epoch for epoch, _ in lineage.deltas] == [10, 11, 12]
    bodies = [stage.store.get(ref.key).body for ref in lineage.refs()]  # type: ignore[union-attr]
    assert bodies == [b"before 10", b"delta 10", b"delta 11", b"delta 12"]


def test_without_a_snapshot_state_is_every_delta() -> None:
    """A young job has nothing else."""
    stage = Stage()
    newest = history(stage, epochs=3, snapshot_every=100)

    lineage = stage.run(recover(Chain(), newest))[NAME]

    assert (lineage.files, [epoch for epoch, _ in lineage.deltas]) == ((), [1, 2, 3])


def test_recovery_reads_as_much_after_a_long_life_as_after_a_short_one() -> None:
    """How long a restart takes must not depend on how old the job is."""
    assert {epochs: manifests_read(epochs) for epochs in (12, 52, 102)} == {12: 2, 52: 2, 102: 2}


def test_each_partition_is_followed_to_its_own_snapshot() -> None:
    """Snapshots are staggered, so the walk goes on until the last one is met."""
    walk = LineageWalk()
    walk.add(manifest(4, p0=PartitionState(delta=delta(4)), p1=PartitionState(delta=delta(4))))
    walk.add(
        manifest(
            3,
            p0=PartitionState(delta=delta(3), snapshot=snapshot(2)),
            p1=PartitionState(delta=delta(3)),
        )
    )
    assert walk.needs(Epoch(2))
    walk.add(
        manifest(
            2,
            p0=PartitionState(delta=delta(2)),
            p1=PartitionState(delta=delta(2), snapshot=snapshot(1)),
        )
    )

    assert not walk.needs(Epoch(1))
    assert walk.lineages() == {
        (OPERATOR, 0): Lineage(snapshot(2).files, ((Epoch(3), delta(3)), (Epoch(4), delta(4)))),
        (OPERATOR, 1): Lineage(
            snapshot(1).files, ((Epoch(2), delta(2)), (Epoch(3), delta(3)), (Epoch(4), delta(4)))
        ),
    }


def test_a_snapshot_published_late_still_needs_the_deltas_between() -> None:
    """It says how old it is; what came after it and before its publication is not inside."""
    walk = LineageWalk()
    walk.add(manifest(5, p0=PartitionState(delta=delta(5), snapshot=snapshot(2))))
    for epoch in (4, 3):
        assert walk.needs(Epoch(epoch))
        walk.add(manifest(epoch, p0=PartitionState(delta=delta(epoch))))

    assert not walk.needs(Epoch(2))
    assert walk.lineages()[NAME].deltas == (
        (Epoch(3), delta(3)),
        (Epoch(4), delta(4)),
        (Epoch(5), delta(5)),
    )


def test_the_newest_of_two_snapshots_counts() -> None:
    """A snapshot met while looking for deltas is older than the one already found."""
    walk = LineageWalk()
    walk.add(manifest(5, p0=PartitionState(delta=delta(5), snapshot=snapshot(3))))
    walk.add(manifest(4, p0=PartitionState(delta=delta(4), snapshot=snapshot(1))))

    assert not walk.needs(Epoch(3))
    assert walk.lineages()[NAME].files == snapshot(3).files


def test_a_snapshot_may_name_old_files_and_the_deltas_since() -> None:
    """A longer tail shortens the walk as much as new files do, and costs nothing to write."""
    tail = ((Epoch(2), delta(2)), (Epoch(3), delta(3)))
    again = Snapshot(epoch=Epoch(3), files=snapshot(1).files, tail=tail)
    walk = LineageWalk()
    walk.add(manifest(5, p0=PartitionState(delta=delta(5))))
    walk.add(manifest(4, p0=PartitionState(delta=delta(4), snapshot=again)))

    assert not walk.needs(Epoch(3))
    assert walk.lineages() == {
        NAME: Lineage(snapshot(1).files, (*tail, (Epoch(4), delta(4)), (Epoch(5), delta(5))))
    }


def test_an_epoch_that_changed_nothing_is_passed_over() -> None:
    """An idle partition has no delta, and is not finished for that."""
    walk = LineageWalk()
    walk.add(manifest(3, p0=PartitionState()))
    walk.add(manifest(2, p0=PartitionState(delta=delta(2), snapshot=snapshot(1))))

    assert walk.lineages() == {NAME: Lineage(snapshot(1).files, ((Epoch(2), delta(2)),))}


def test_a_manifest_that_is_read_wrong_once_is_read_again() -> None:
    """A bit flipped on the wire is not a bit flipped on the disk."""
    stage = Stage()
    newest = history(stage, epochs=2, snapshot_every=100)
    flips = [True]

    def flip_once(effect: Any, perform_it: Any) -> Any:
        stored = perform_it()
        if isinstance(effect, Get) and flips:
            flips.pop()
            return type(stored)(b"x" + stored.body[1:], stored.etag)
        return stored

    stage.interfere = flip_once

    assert list(stage.run(recover(Chain(), newest))) == [NAME]


def test_a_deposed_leader_that_misses_a_manifest_learns_that_it_is_deposed() -> None:
    """What a new leader has collected is no damage (B6)."""
    stage = Stage()
    leader, chance = led(stage, "old")
    for _ in range(2):
        stage.run(work(leader, chance))
    newest = leader.parent
    assert newest is not None and newest.parent is not None
    led(stage, "new")
    stage.store.delete(newest.parent.key)

    with pytest.raises(Fenced):
        stage.run(recover(Chain(leader.tenure), newest))


def test_a_manifest_that_nobody_gave_up_is_missing() -> None:
    """Then it is damage, and the message says which epoch needs it."""
    stage = Stage()
    newest = history(stage, epochs=2, snapshot_every=100)
    assert newest.parent is not None
    stage.store.delete(newest.parent.key)

    with pytest.raises(Corrupt) as caught:
        stage.run(recover(Chain(), newest))

    assert caught.value.subject == newest.parent.key
    assert caught.value.found == "is missing, though epoch 2 is retained and needs it"
    assert stage.store.get(HEAD_KEY) is not None


def test_a_partition_that_was_added_later_has_no_past() -> None:
    """A walk that looked for its snapshot would go back to the first epoch, which is gone."""
    walk = LineageWalk()
    walk.add(manifest(9, p0=PartitionState(delta=delta(9)), p1=PartitionState(delta=delta(9))))
    walk.add(manifest(8, p0=PartitionState(snapshot=snapshot(7))))

    assert not walk.needs(Epoch(7))
    assert walk.lineages()[(OPERATOR, 1)] == Lineage((), ((Epoch(9), delta(9)),))
