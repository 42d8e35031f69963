"""The tail of a table: every epoch behind the index has its place, wherever the floor is."""

import pytest

from penstock.checkpoint import Chain, Draft, MemoryStore, Root, perform
from penstock.checkpoint.fork import fork, nothing_further
from penstock.checkpoint.manifest import Manifest
from penstock.errors import Bug, Corrupt
from penstock.ids import Epoch
from penstock.sinks import table_tail
from penstock.sinks.table_index import files_at, table_refs
from penstock.sinks.table_tail import TableTail
from tests.support.driving import CountingChance, ManualClock
from tests.support.tables import LAST, TableJob


def tail_of(root: Root, newest: Manifest | None) -> TableTail:
    """The tail of the one table."""
    walking = table_tail.table_tails(Chain(), newest, ["totals"])
    return perform(walking, root.handlers)["totals"]


def epochs_of(tail: TableTail) -> list[int]:
    """The epochs of its files."""
    return [file.epoch for file in tail.files()]


def test_an_epoch_without_files_has_its_place() -> None:
    """Where a tail begins and ends follows from how many places it has."""
    job = TableJob()
    job.write_users("ann")
    job.write()
    manifest = job.write({1: {"user": ["bob"]}, 0: {"user": ["cid"]}})

    tail = tail_of(job.root, manifest)

    assert (tail.base, tail.upto, len(tail.added)) == (0, 3, 3)
    assert [(f.epoch, f.output.partition) for f in tail.files()] == [(1, 0), (3, 0), (3, 1)]


def test_a_table_that_was_added_later_begins_with_its_first_epoch() -> None:
    """What came before concerns it as little as what was given up."""
    job = TableJob()
    for _ in range(3):
        job.session.commit(Draft())
    assert tail_of(job.root, job.session.manifest) == TableTail(born=Epoch(3))

    manifest = job.write_users("ann")

    tail = tail_of(job.root, manifest)
    assert (tail.base, tail.upto, epochs_of(tail)) == (3, 4, [4])


def test_a_fork_walks_back_to_its_index() -> None:
    """The floor of a fork is its own epoch; its table began long before."""
    job = TableJob()
    job.write_users("ann")
    job.write_users("ann", index=True)
    for _ in range(3):
        job.write_users("ann")
    copy = Root(MemoryStore(), ManualClock(), CountingChance())
    head = fork(job.root, Epoch(4), copy, lambda manifest: table_refs(job.root, manifest))

    tail = tail_of(copy, copy.newest())

    assert (head.floor, tail.base, epochs_of(tail)) == (4, 1, [2, 3, 4])


def test_the_collector_keeps_what_the_walk_needs() -> None:
    """The manifests between the index of the floor's epoch and the floor."""
    job = TableJob()
    job.write_users("ann")
    job.write_users("ann", index=True)
    for _ in range(4):
        job.write_users("ann")
    job.root.pin("good", Epoch(4))
    job.write_users("ann", index=True)
    for _ in range(3):
        job.collect()
        job.write_users("ann", index=True)
    assert job.root.head().floor > 5
    job.session.release()
    job.root.rewind("clicks", "good")
    job.session = job.root.lead("clicks")
    job.write_users("bob")
    job.session.collect(LAST)
    job.write_users("bob")
    job.session.collect(LAST)

    tail = tail_of(job.root, job.session.manifest)

    assert (tail.base, epochs_of(tail)) == (1, [2, 3, 4, 5, 6])


def test_a_tail_grows_by_what_is_committed_and_is_cut_by_an_index() -> None:
    """The leader keeps it in its head; a successor finds the same in the chain."""
    job = TableJob()
    tail = tail_of(job.root, None)
    for number in range(8):
        manifest = job.write_users("ann", index=number in (1, 4, 7))
        tail = tail.after(manifest.sinks["totals"], manifest.tables.get("totals"))

        assert tail == tail_of(job.root, manifest)


def test_an_index_that_does_not_fit_the_tail_is_a_bug() -> None:
    """A leader that named such an index would lose what lies between."""
    job = TableJob()
    job.write_users("ann")
    index = job.write_users("ann", index=True).tables["totals"]

    with pytest.raises(Bug, match="covers epochs up to 1, and its tail those from 3 to 2"):
        TableTail(born=Epoch(2)).after((), index)


def test_a_restore_whose_table_lost_a_file_is_refused() -> None:
    """What comes after a restore cannot be taken back: so what it needs is looked for first."""
    job = TableJob()
    job.write_users("ann")
    job.write_users("ann", index=True)
    lost = job.write_users("ann").sinks["totals"][0].ref.key
    job.write_users("ann")
    job.write_users("ann")
    job.session.release()
    job.store.delete(lost)

    with pytest.raises(Corrupt, match="is missing, though epoch 4 needs it"):
        job.root.rewind("clicks", Epoch(4))

    assert (job.root.head().epoch, job.root.head().generation) == (5, 1)


def test_a_fork_of_a_fork_has_the_files_of_a_table_that_has_no_index() -> None:
    """Only manifests name them, and a fork promises none below its own epoch."""
    job = TableJob()
    for _ in range(3):
        job.write_users("ann")
    root = job.root
    for _ in range(2):
        copy = Root(MemoryStore(), ManualClock(), CountingChance())
        fork(root, Epoch(3), copy, nothing_further)
        root = copy
    with root.lead("clicks") as session:
        for _ in range(3):
            session.collect(LAST, {"totals": session.head.epoch})
            session.commit(Draft(sinks={"totals": ()}))

    assert root.head().floor > 3
    assert [file.epoch for file in files_at(root, "totals")] == [1, 2, 3]
