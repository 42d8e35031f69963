import pytest

from penstock.checkpoint import Chain, Draft, Output, perform, ref_to
from penstock.checkpoint.layout import output_key
from penstock.checkpoint.manifest import TableIndex
from penstock.errors import Bug, Corrupt, Gone, Invalid
from penstock.ids import Attempt, Epoch, Key
from penstock.points import Point
from penstock.sinks import TableTail, extend_index, files_at, index_files, sweep_table
from penstock.sinks.table_index import PAGE_FILES, find_files, read_index, table_refs
from tests.support.tables import LAST, TableJob


def places(job: TableJob, epoch: int | None = None) -> list[tuple[int, int]]:
    """Epoch and partition of every file."""
    asked = None if epoch is None else Epoch(epoch)
    return [(f.epoch, f.output.partition) for f in files_at(job.root, "totals", asked)]


def many(job: TableJob, files: int) -> None:
    """One epoch that adds so many files."""
    outputs = tuple(job.stage_body(partition, b"rows") for partition in range(files))
    tables = {} if job.session.manifest is None else dict(job.session.manifest.tables)
    job.session.commit(Draft(sinks={"totals": outputs}, tables=tables))


def test_files_are_in_order_of_epoch_and_partition() -> None:
    """Whatever order tasks finished in, and on both sides of the index."""
    job = TableJob()
    for index in (False, False, True, False):
        job.write({10: {"n": [1]}, 2: {"n": [1]}}, index=index)

    assert places(job) == [(epoch, partition) for epoch in (1, 2, 3, 4) for partition in (2, 10)]


def test_a_table_is_read_as_of_any_committed_epoch() -> None:
    """Before the index, at its epoch, and behind it."""
    job = TableJob()
    for number in range(6):
        job.write_users("ann", index=number == 3)

    found = {epoch: [at for at, _ in places(job, epoch)] for epoch in range(1, 7)}

    assert found == {epoch: list(range(1, epoch + 1)) for epoch in range(1, 7)}


def test_a_table_that_begins_late_is_found_without_its_past() -> None:
    """History before its first epoch may be gone, and does not concern it."""
    job = TableJob()
    for _ in range(3):
        job.session.commit(Draft())
    job.session.collect(LAST)
    job.session.commit(Draft())
    job.session.collect(LAST)
    job.write_users("ann")

    assert places(job) == [(5, 0)]


def test_2500_files_cross_the_borders_of_pages() -> None:
    """A table grows for years; its index is written in pages that are never written again."""
    job = TableJob()
    for _ in range(5):
        many(job, 500)
        job.write(index=True)
    newest = job.session.manifest
    assert newest is not None
    index = perform(
        read_index(Chain(), newest.tables["totals"], newest.epoch, Point.READ_OBJECT),
        job.root.handlers,
    )

    expected = [(epoch, n) for epoch in (1, 3, 5, 7, 9) for n in range(500)]
    assert places(job) == expected
    assert places(job, 4) == expected[:1000]
    assert places(job, 5) == expected[:1500]
    assert [page.key.rpartition("/")[2].split("-")[:2] for page in index.pages] == [
        ["page", "0"],
        ["page", "1"],
    ]
    assert len(index.files) == 2500 - 2 * PAGE_FILES
    listed = perform(index_files(Chain(), newest.tables["totals"]), job.root.handlers)
    assert [(file.epoch, file.output.partition) for file in listed] == expected


def test_what_an_index_leads_to_is_all_below_the_table_that_it_covers() -> None:
    """Whoever copies an epoch elsewhere copies its tables whole."""
    job = TableJob()
    many(job, PAGE_FILES + 1)
    job.write(index=True)
    manifest = job.write(index=True)
    pages = [entry.key for entry in job.store.list("tables/totals/000000000002/page-")]
    files = [file.output.ref.key for file in files_at(job.root, "totals")]

    found = [ref.key for ref in table_refs(job.root, manifest)]

    assert found == [*pages, *files]
    assert (len(pages), len(files)) == (1, PAGE_FILES + 1)


def test_the_newest_file_is_found_from_the_end() -> None:
    """It tells a reader today's columns without a walk through everything."""
    job = TableJob()
    many(job, PAGE_FILES)
    job.write(index=True)
    job.write(index=True)

    newest = find_files(job.root, "totals").newest()

    assert newest is not None
    assert (newest.epoch, newest.output.partition) == (1, PAGE_FILES - 1)


def test_nothing_is_lost_when_history_is() -> None:
    """Retention gives manifests up; a table keeps every file that was ever committed to it."""
    job = TableJob()
    for number in range(1, 41):
        job.write_users("ann", index=number % 5 == 0)
        job.collect()

    kept = [entry.key for entry in job.store.list("manifests/")]
    assert job.root.head().floor > 30
    assert len(kept) < 10
    assert places(job) == [(epoch, 0) for epoch in range(1, 41)]
    assert places(job, 7) == [(epoch, 0) for epoch in range(1, 8)]
    assert job.root.check().clean


def test_an_epoch_that_no_index_covers_is_gone_with_its_manifest() -> None:
    """Half of a table must not pass for a table."""
    job = TableJob()
    for _ in range(4):
        job.write_users("ann")
    job.session.collect(LAST, {"totals": Epoch(5)})
    job.write_users("ann")

    with pytest.raises(Gone) as caught:
        files_at(job.root, "totals", Epoch(2))

    assert str(caught.value) == (
        "table totals cannot be read as of epoch 2: epochs below 4 have been given up: "
        "read epoch 4 or later."
    )


@pytest.mark.parametrize("epoch", [-1, 0, 3])
def test_an_epoch_that_is_not_committed_is_refused(epoch: int) -> None:
    """Staged files are nobody's business before the decision."""
    job = TableJob()
    job.write_users("ann")
    job.write_users("bob")
    job.stage(0, {"user": ["cid"]})

    with pytest.raises(Invalid) as caught:
        files_at(job.root, "totals", Epoch(epoch))

    assert str(caught.value) == (
        f"table totals cannot be read as of epoch {epoch}: the last committed epoch is 2: "
        "choose a committed epoch."
    )


def test_a_table_that_is_not_there_is_told_from_those_that_are() -> None:
    """Most often it is a slip of the pen."""
    job = TableJob()
    job.write_users("ann")

    with pytest.raises(Invalid) as caught:
        files_at(job.root, "total", None)

    assert str(caught.value) == "table total is not a table of this job: read one of totals."


def test_before_the_first_epoch_there_is_no_table() -> None:
    """A job that has just been started has shown nothing."""
    with pytest.raises(Invalid, match=r"is not a table of this job: no epoch has written"):
        files_at(TableJob().root, "totals", None)


def test_another_kind_of_sink_is_no_table() -> None:
    """Its outputs go once they are applied: they must not be read as if they stayed."""
    job = TableJob()
    key = output_key("ledger", Epoch(1), 0, Attempt("a"))
    job.store.put(key, b"rows")
    output = Output(partition=0, ref=ref_to(key, b"rows"), rows=1)
    job.session.commit(Draft(sinks={"ledger": (output,), "totals": ()}))

    with pytest.raises(Invalid) as caught:
        files_at(job.root, "ledger", None)

    assert str(caught.value) == "table ledger is not a table of this job: read one of totals."


def test_a_reader_stays_with_the_manifest_it_took() -> None:
    """The job commits, indexes, gives up and collects while somebody reads."""
    job = TableJob()
    many(job, PAGE_FILES)
    job.write_users("ann", index=True)
    files = files_at(job.root, "totals", None)
    seen = [next(files)]
    for _ in range(4):
        job.write_users("bob", index=True)
        job.collect()

    seen += files

    assert [file.epoch for file in seen] == [1] * PAGE_FILES + [2]


def test_a_damaged_index_is_named() -> None:
    """Whoever restores it from a copy must know which object it is."""
    job = TableJob()
    job.write_users("ann")
    index = job.write_users("bob", index=True).tables["totals"]
    job.store.put(index.ref.key, b"{}")

    with pytest.raises(Corrupt) as caught:
        files_at(job.root, "totals", None)

    assert caught.value.subject == index.ref.key


@pytest.mark.parametrize(
    ("base", "epochs", "publishing"),
    [(1, (2,), 3), (2, (), 4), (2, (4,), 5), (3, (4,), 5), (2, (3,), 3), (2, (3, 4), 4)],
)
def test_an_index_with_gaps_or_repetitions_is_never_stored(
    base: int, epochs: tuple[int, ...], publishing: int
) -> None:
    """A file listed twice is rows counted twice; an epoch left out is rows lost."""
    job = TableJob()
    job.write_users("ann")
    job.write_users("bob")
    previous = job.write_users("cid", index=True).tables["totals"]
    before = job.store.list("tables/")
    index = TableIndex(epoch=Epoch(base), ref=previous.ref)
    tail = TableTail(index, index.epoch, tuple((job_output(epoch),) for epoch in epochs))

    with pytest.raises(Bug, match="was not extended from epoch 2"):
        steps = extend_index(Chain(), "totals", tail, Epoch(publishing), Attempt("again"), None)
        perform(steps, job.root.handlers)

    assert job.store.list("tables/") == before


def test_an_index_that_the_chain_counts_otherwise_is_never_stored() -> None:
    """The tally is made of no index, so it notices a file that any mistake left out."""
    job = TableJob()
    job.write_users("ann")
    newest = job.write_users("bob")
    before = job.store.list("tables/")
    tail = TableTail(None, Epoch(0), ((), newest.sinks["totals"]))

    with pytest.raises(Corrupt, match="lists 1 files as of epoch 2, and the chain has counted 2"):
        steps = extend_index(Chain(), "totals", tail, Epoch(3), Attempt("again"), newest.tally)
        perform(steps, job.root.handlers)

    assert job.store.list("tables/") == before


def test_a_table_whose_index_lost_a_file_is_neither_read_nor_swept() -> None:
    """A list that is short must not pass for the table, nor decide what garbage is."""
    job = TableJob()
    job.write_users("ann")
    newest = job.write_users("bob")
    short = TableTail(None, Epoch(0), ((), newest.sinks["totals"]))
    made = extend_index(Chain(), "totals", short, Epoch(3), Attempt("short"), None)
    index = perform(made, job.root.handlers)
    job.session.commit(Draft(sinks={"totals": ()}, tables={"totals": index}))
    before = [entry.key for entry in job.store.list("tables/")]

    with pytest.raises(Corrupt, match="lists 1 files as of epoch 3, and the chain has counted 2"):
        files_at(job.root, "totals")
    with pytest.raises(Corrupt, match="lists 1 files as of epoch 3, and the chain has counted 2"):
        perform(sweep_table(Chain(), "totals"), job.root.handlers)

    assert [entry.key for entry in job.store.list("tables/")] == before


def job_output(epoch: int) -> Output:
    return Output(
        partition=0, ref=ref_to(Key(f"tables/totals/{epoch:012d}/0-x.arrow"), b""), rows=0
    )


def test_a_table_without_files_may_have_an_index() -> None:
    """A leader that names one from the first epoch on tells everybody that this is a table."""
    job = TableJob()
    job.write()
    manifest = job.write(index=True)

    assert isinstance(manifest.tables["totals"], TableIndex)
    assert places(job) == []
    assert find_files(job.root, "totals").newest() is None
