"""A fork is a root like any other, made of one epoch of another."""

from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import pytest

from penstock.checkpoint import (
    Draft,
    Head,
    Lease,
    Manifest,
    MemoryStore,
    Output,
    Ref,
    Retention,
    perform,
    ref_to,
    stage,
)
from penstock.checkpoint.directory_store import DirectoryStore
from penstock.checkpoint.fork import fork
from penstock.checkpoint.layout import HEAD_KEY, table_key
from penstock.checkpoint.manifest import TableIndex
from penstock.checkpoint.rewind import Target
from penstock.checkpoint.root import Root, Session
from penstock.errors import Corrupt, Invalid, Unavailable
from penstock.ids import Epoch, Generation, JobName, Key, Token
from penstock.points import Point
from tests.support.driving import CountingChance, ManualClock
from tests.support.history import JOB, SINK, commit_epochs, contents
from tests.support.small_job import SmallJob

LITTLE = Retention(epochs=1, age_s=0.0, grace_s=0.0)


def new_root(name: str) -> Root:
    return Root(MemoryStore(), ManualClock(), CountingChance(name))


def with_epochs(epochs: int, snapshot_every: int = 3) -> tuple[Root, Session]:
    root = new_root("source")
    session = root.lead(JOB, "one")
    commit_epochs(root, session, epochs, snapshot_every)
    return root, session


def copied(root: Root) -> set[str]:
    """Everything below a root, but HEAD and signs of life."""
    names = contents(root.store).keys()
    return {name for name in names if not name.startswith(("HEAD", "heartbeats/"))}


def manifest_of(root: Root, epoch: int) -> Manifest:
    return next(manifest for manifest in root.history() if manifest.epoch == epoch)


def test_a_fork_has_what_its_epoch_needs_and_nothing_else() -> None:
    """Of the history before it, only what its state is made of."""
    source, _ = with_epochs(8)
    target = new_root("target")
    before = contents(source.store)

    head = fork(source, Epoch(7), target)

    seventh = manifest_of(source, 7)
    assert head == Head(
        job=JOB,
        generation=Generation(2),
        token=Token(2),
        holder=head.holder,
        epoch=Epoch(7),
        manifest=head.manifest,
        recent=((Epoch(7), seventh.commit),),
        floor=Epoch(7),
    )
    assert target.head() == head
    assert target.newest() == seventh
    # The snapshot in epoch 6 is of epoch 5: its file, the deltas of 6 and 7, one output.
    assert sorted(name.split("/")[0] for name in copied(target)) == [
        *("changelog", "changelog", "manifests", "manifests", "outputs", "snapshots")
    ]
    assert {key: contents(source.store)[key] for key in copied(target)} == {
        key: contents(target.store)[key] for key in copied(target)
    }
    assert contents(source.store) == before
    assert target.check().clean


@pytest.mark.parametrize("epoch", [None, Epoch(5)])
def test_both_go_on_by_themselves(epoch: Target | None) -> None:
    """The last epoch unless told otherwise; neither hears of the other again."""
    source, session = with_epochs(5)
    target = new_root("target")
    head = fork(source, epoch, target)
    before = target.head()

    commit_epochs(source, session, 2)
    second = target.lead(JOB, "two")
    commit_epochs(target, second, 4, snapshot_every=3)
    second.collect(LITTLE, {SINK: Epoch(9)})
    commit_epochs(target, second, 1)
    second.collect(LITTLE)

    assert (before.epoch, second.head.epoch, source.head().epoch) == (5, 10, 7)
    assert (second.head.token, second.head.generation) == (head.token + 1, 2)
    assert target.check().clean
    assert source.check().clean


def test_the_state_of_a_fork_is_the_state_of_its_epoch(tmp_path: Path) -> None:
    """Restored on a host that has never seen the source, into folders of its own."""
    job = SmallJob(DirectoryStore(tmp_path / "source"), tmp_path / "host")
    for number in range(5):
        job.epoch({f"user{number}": number, "last": number})
    target = DirectoryStore(tmp_path / "target")
    fork(job.root, Epoch(4), Root(target))

    other = SmallJob(target, tmp_path / "other")

    assert other.contents() == {"user0": 0, "user1": 1, "user2": 2, "user3": 3, "last": 3}
    assert job.contents() == job.expected


def test_a_pinned_epoch_can_be_forked_by_name() -> None:
    """Long after it was given up; its pin stays, and ours goes."""
    source, session = with_epochs(3, snapshot_every=1)
    source.pin("good", Epoch(2))
    for _ in range(3):
        session.collect(LITTLE, {SINK: Epoch(session.head.epoch + 1)})
        commit_epochs(source, session, 1, snapshot_every=1)
    session.collect(LITTLE)
    assert session.head.floor > 2
    target = new_root("target")

    assert fork(source, "good", target).epoch == 2

    assert [pin.name for pin in source.pins()] == ["good"]
    assert target.check().clean


def test_a_root_that_is_taken_is_left_alone() -> None:
    """Two jobs in one root would be the end of both."""
    source, _ = with_epochs(2)
    target = new_root("target")
    target.lead(JobName("other"), "somebody")
    before = contents(target.store)

    with pytest.raises(Invalid) as caught:
        fork(source, None, target)

    assert str(caught.value) == (
        "the new root has a HEAD already: give an empty one; nothing was changed."
    )
    assert contents(target.store) == before


def test_manifests_without_a_head_are_not_built_upon() -> None:
    """They are somebody's damage, or a copy that was not finished."""
    source, _ = with_epochs(2)
    target = new_root("target")
    target.store.put(Key("manifests/000000000001-lost.json"), b"{}")

    with pytest.raises(Invalid, match=r"has a manifests/000000000001-lost\.json already"):
        fork(source, None, target)


class StoppingStore(MemoryStore):
    """Takes some uploads, and no more."""

    def __init__(self, uploads: int) -> None:
        super().__init__()
        self.left = uploads

    def upload(self, key: Key, source: BinaryIO) -> None:
        if self.left == 0:
            raise Unavailable(key, "could not be written", "free some space")
        self.left -= 1
        super().upload(key, source)


@pytest.mark.parametrize("left", range(1, 8))
def test_a_copy_that_was_cut_short_can_be_made_again(left: int) -> None:
    """Until HEAD is there, nothing of it counts, also not the manifests that come last."""
    source, _ = with_epochs(5)
    whole = StoppingStore(100)
    fork(source, None, Root(whole, ManualClock(), CountingChance("whole")))
    store = StoppingStore(max(0, 100 - whole.left - left))
    target = Root(store, ManualClock(), CountingChance("target"))

    with pytest.raises(Unavailable, match="free some space"):
        fork(source, None, target)
    assert (store.get(HEAD_KEY), source.pins()) == (None, [])
    store.left = 100

    assert fork(source, None, target).epoch == 5
    assert target.check().clean


def test_what_does_not_hash_is_not_copied() -> None:
    """A fork must not carry damage to where nobody would look for its cause."""
    source, _ = with_epochs(3)
    victim = next(manifest_of(source, 3).new_refs())
    source.store.put(victim.key, b"something else")
    target = new_root("target")

    with pytest.raises(Corrupt, match=victim.key):
        fork(source, None, target)

    assert target.store.get(HEAD_KEY) is None
    assert victim.key not in contents(target.store)


def test_what_is_missing_is_named() -> None:
    """And the fork does not become real."""
    source, _ = with_epochs(3)
    victim = next(manifest_of(source, 3).new_refs())
    source.store.delete(victim.key)
    target = new_root("target")

    with pytest.raises(Corrupt) as caught:
        fork(source, None, target)

    assert str(caught.value) == (
        f"{victim.key} is missing, though the epoch needs it: fork another epoch."
    )
    assert target.store.get(HEAD_KEY) is None


def table_epoch(root: Root, session: Session, index: TableIndex | None) -> Ref:
    """An epoch that adds one file to a table; its file."""
    epoch = Epoch(session.head.epoch + 1)
    key = table_key("totals", epoch, f"0-{root.chance.unique()}.arrow")
    file = perform(stage(key, f"rows {epoch}".encode(), Point.STAGE_OUTPUT), root.handlers)
    output = Output(partition=0, ref=file, rows=1)
    tables = {} if index is None else {"totals": index}
    session.commit(Draft(sinks={"totals": (output,)}, tables=tables))
    return file


def test_a_table_is_copied_with_its_index_and_what_came_after_it() -> None:
    """What an index leads to is told by who can read it; the rest stands in the manifests."""
    source = new_root("source")
    session = source.lead(JOB, "one")
    old = table_epoch(source, session, None)
    key, body = table_key("totals", Epoch(2), "index-a.json"), b"an index of epoch 1"
    source.store.put(key, body)
    index = TableIndex(epoch=Epoch(1), ref=ref_to(key, body))
    files = [table_epoch(source, session, index) for _ in range(3)]
    later = table_epoch(source, session, index)
    target = new_root("target")

    def also(manifest: Manifest) -> Iterable[Ref]:
        assert manifest.epoch == 4
        return [old]

    fork(source, Epoch(4), target, also)

    tables = {name for name in copied(target) if name.startswith("tables/")}
    assert tables == {old.key, key, *(file.key for file in files)}
    assert later.key not in tables
    assert len([name for name in copied(target) if name.startswith("manifests/")]) == 3


def test_a_root_is_not_forked_onto_itself() -> None:
    """It is not empty."""
    source, _ = with_epochs(1)
    with pytest.raises(Invalid, match="the new root has a HEAD already"):
        fork(source, None, source)


def test_the_next_leader_of_a_fork_does_not_wait() -> None:
    """Whoever forked is done."""
    source, _ = with_epochs(1)
    clock = ManualClock()
    target = Root(MemoryStore(), clock, CountingChance("target"))
    fork(source, None, target)
    before_s = clock.now_s

    target.wait_for_turn(Lease())

    assert clock.now_s == before_s
    assert target.is_led(Lease()) is None
