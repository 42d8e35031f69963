from collections.abc import Callable

import msgspec
import pytest

from penstock.checkpoint import Chain, Draft, MemoryStore, perform
from penstock.checkpoint.formats import seal
from penstock.checkpoint.layout import HEAD_KEY, pin_key
from penstock.checkpoint.perform import armed
from penstock.checkpoint.pins import Pin
from penstock.errors import Corrupt
from penstock.ids import Epoch, Generation, Key
from penstock.points import Point
from penstock.sinks import TableSwept, read_table, sweep_table
from penstock.sinks.table_index import PAGE_FILES
from tests.support.tables import TableJob


def listed(job: TableJob) -> set[Key]:
    """Everything below the table."""
    found: list[Key] = []
    while page := job.store.list("tables/totals/", found[-1] if found else ""):
        found += [entry.key for entry in page]
    return set(found)


def sweep(job: TableJob) -> TableSwept:
    return perform(sweep_table(Chain(job.session.tenure), "totals"), job.root.handlers)


def with_orphans(job: TableJob, epochs: int = 4) -> set[Key]:
    """Epochs of which each leaves the file of a lost attempt behind; the orphans."""
    orphans = set()
    for _ in range(epochs):
        orphans.add(job.stage(0, {"user": ["lost"]}).ref.key)
        job.write_users("ann")
    return orphans


def rewound(job: TableJob) -> None:
    """HEAD as a new generation leaves it."""
    head = msgspec.structs.replace(job.root.head(), generation=Generation(2))
    job.store.put(HEAD_KEY, seal(head))


def test_a_sweep_removes_orphans_and_nothing_else() -> None:
    """Attempts that were lost must not be paid for until the end of days."""
    job = TableJob()
    orphans = with_orphans(job)
    job.write_users("ann", index=True)
    before, rows = listed(job), read_table(job.root, "totals")

    done = sweep(job)

    assert before - listed(job) == orphans
    assert (done.kept, done.removed) == (4, 4)
    assert done.removed_bytes > 0
    assert read_table(job.root, "totals").equals(rows)
    assert sweep(job) == TableSwept(kept=4)


def test_what_the_index_does_not_cover_is_left_alone() -> None:
    """It is somebody's work in progress, or soon to be judged."""
    job = TableJob()
    job.write_users("ann")
    job.write_users("ann", index=True)
    job.stage(0, {"user": ["lost"]})
    job.write_users("ann")
    job.stage(0, {"user": ["at work"]})
    job.store.put(Key("tables/totals/000000000001x"), b"a name that is not ours")
    before = listed(job)

    assert sweep(job) == TableSwept(kept=1)
    assert listed(job) == before


def test_without_an_index_nothing_is_swept() -> None:
    """Nobody has said yet what the table is made of."""
    job = TableJob()
    with_orphans(job)
    before = listed(job)

    assert sweep(job) == TableSwept()
    assert listed(job) == before


def test_an_index_goes_when_no_retained_epoch_names_it() -> None:
    """Each index is replaced by a longer one; all of them together would be quadratic."""
    job = TableJob()
    for number in range(20):
        job.write_users("ann", index=number > 0)
        job.collect()
    job.collect()

    sweep(job)

    indexes = [key for key in sorted(listed(job)) if "/index-" in key]
    retained = {manifest.tables["totals"].ref.key for manifest in job.root.history()}
    assert set(indexes) == retained
    assert len(indexes) < 5
    assert job.root.check().clean
    assert read_table(job.root, "totals").num_rows == 20


def test_pages_stay_with_every_index_that_names_them() -> None:
    """An index without its pages is a table without its past."""
    job = TableJob()
    for _ in range(3):
        outputs = tuple(job.stage_body(n, b"rows") for n in range(PAGE_FILES + 1))
        index = {} if job.session.manifest is None else {"totals": job.publish()}
        job.session.commit(Draft(sinks={"totals": outputs}, tables=index))
    job.write(index=True)
    orphan = Key("tables/totals/000000000002/500-lost.arrow")
    job.store.put(orphan, b"")
    before = listed(job)

    done = sweep(job)

    assert before - listed(job) == {orphan}
    # Beside the files: two pages and two indexes, of epochs that the newest index covers.
    assert done == TableSwept(kept=3 * (PAGE_FILES + 1) + 4, removed=1)


def test_the_index_of_a_pinned_epoch_stays() -> None:
    """Whoever goes back to a pin finds the table as it was."""
    job = TableJob()
    job.write_users("ann")
    pinned = job.write_users("bob", index=True).tables["totals"]
    job.root.pin("keep")
    for _ in range(6):
        job.write_users("cid", index=True)
        job.collect()
    sweep(job)

    assert job.root.head().floor > 4
    assert pinned.ref.key in listed(job)
    assert job.root.check().clean
    job.root.unpin("keep")
    sweep(job)
    assert pinned.ref.key not in listed(job)


def test_a_pin_of_an_older_generation_stops_the_sweep() -> None:
    """What it needs, the present index may not name."""
    job = TableJob()
    with_orphans(job)
    job.write_users("ann", index=True)
    pin = job.root.pin("keep")
    rewound(job)
    before = listed(job)

    assert sweep(job) == TableSwept()
    assert listed(job) == before
    job.store.delete(pin_key(pin.name, pin.mark))
    assert sweep(job).removed == 4


def test_a_sweep_that_slept_through_a_rewind_removes_nothing() -> None:
    """Epochs that it takes for past are being written anew, under names it does not know."""
    job = TableJob()
    with_orphans(job)
    job.write_users("ann", index=True)
    before = listed(job)
    steps = sweep_table(Chain(), "totals")
    handlers = armed(job.root.handlers, at(Point.COLLECT_LIST, lambda: rewound(job)), nothing)

    assert perform(steps, handlers) == TableSwept()
    assert listed(job) == before


def at(point: Point, work: Callable[[], None]) -> Callable[[Point], None]:
    def before(reached: Point) -> None:
        if reached is point:
            work()

    return before


def nothing(point: Point) -> None:
    """After an effect."""


def test_head_is_looked_at_between_listing_and_each_removal() -> None:
    """The look that makes removing safe comes after the names were seen, page by page."""
    job = TableJob()
    with_orphans(job)
    job.write_users("ann", index=True)
    assert isinstance(job.store, MemoryStore)
    job.store.page_entries_max = 2
    seen: list[Point] = []
    handlers = armed(job.root.handlers, seen.append, nothing)

    perform(sweep_table(Chain(), "totals"), handlers)

    one_page = [Point.COLLECT_LIST, Point.COLLECT_RECHECK, Point.COLLECT_DELETE]
    assert seen[seen.index(Point.COLLECT_LIST) :] == [*(one_page * 4), Point.COLLECT_LIST]


def test_a_sweep_in_small_pages_judges_the_same() -> None:
    """An epoch's files may lie on both sides of a page's border."""
    job = TableJob()
    orphans = set()
    for _ in range(5):
        orphans |= {job.stage(n, {"user": ["lost"]}).ref.key for n in (1, 11)}
        job.write({n: {"user": ["ann"]} for n in range(12)})
    job.write(index=True)
    assert isinstance(job.store, MemoryStore)
    job.store.page_entries_max = 5
    before = listed(job)

    assert (sweep(job).kept, before - listed(job)) == (60, orphans)


def test_a_damaged_index_stops_the_sweep() -> None:
    """Better to keep all than to judge by what cannot be read."""
    job = TableJob()
    with_orphans(job)
    index = job.write_users("ann", index=True).tables["totals"]
    job.store.put(index.ref.key, b"{}")
    before = listed(job)

    with pytest.raises(Corrupt):
        sweep(job)

    assert listed(job) == before


def test_an_unpublished_index_of_a_lost_attempt_is_swept() -> None:
    """A leader that died between staging an index and its commit leaves it to the next."""
    job = TableJob()
    job.write_users("ann")
    lost = job.publish()
    job.write_users("bob", index=True)
    job.write_users("cid", index=True)

    done = sweep(job)

    assert lost.ref.key not in listed(job)
    assert done.removed == 1
    assert read_table(job.root, "totals")["user"].to_pylist() == ["ann", "bob", "cid"]


def test_a_pin_that_does_not_hold_ends_no_collection() -> None:
    """Its request arrived after its writer gave up and history was rewound: all is kept from then
    on, and a person is told; the job goes on."""
    job = TableJob()
    for number in range(6):
        job.write_users("ann", index=number > 0)
    old = job.root.head()
    assert old.manifest is not None
    late = Pin(
        name="late", mark="m", generation=old.generation, epoch=old.epoch, manifest=old.manifest
    )
    job.session.release()
    job.root.rewind("clicks", Epoch(4))
    job.session = job.root.lead("clicks")
    for _ in range(4):
        job.write_users("bob", index=True)
    assert job.collect().removed > 0
    job.store.put(pin_key("late", "m"), seal(late))
    before = [entry.key for entry in job.store.list("")]

    done = job.collect()

    assert (done.removed, done.next_floor) == (0, done.floor)
    assert [why.partition(" (")[0] for why in done.unreadable] == [
        "pin late of epoch 6 does not hold"
    ]
    assert [entry.key for entry in job.store.list("")] == before
