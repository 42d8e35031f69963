"""Readers of a table and its leader, whose line of history is rewound while they read: what they
look for is removed rightly, and called gone. Only what HEAD's own line lacks is damage."""

import pytest

from penstock.checkpoint import Chain, Draft, perform
from penstock.errors import Corrupt, Fenced, Gone
from penstock.ids import Attempt, Epoch
from penstock.points import Point
from penstock.sinks import extend_index, sweep_table, table_tails
from penstock.sinks.table_index import PAGE_FILES, TableFiles, find_files, index_files, read_index
from penstock.sinks.table_read import fetch_file
from tests.support.tables import TableJob


def paged_job() -> TableJob:
    """A table whose index, of the fourth epoch, has a page."""
    job = TableJob()
    job.write_users("ann")
    job.session.commit(
        Draft(
            sinks={"totals": tuple(job.stage_body(n, b"rows") for n in range(PAGE_FILES))},
        )
    )
    job.write_users("bob")
    job.write(index=True)
    return job


def rewound(job: TableJob) -> None:
    """Go back to the first epoch, commit as many anew, and sweep what the old line had."""
    job.root.rewind("clicks", Epoch(1))
    job.session = job.root.lead("clicks")
    for _ in range(5):
        job.write_users("cyd", index=True)
    job.collect()
    perform(sweep_table(Chain(), "totals"), job.root.handlers)


def test_files_found_before_a_rewind_are_gone_after_it() -> None:
    """A long query is told to look again, not to call for help."""
    job = paged_job()
    files: TableFiles = find_files(job.root, "totals")
    last = files.newest()
    assert last is not None
    rewound(job)

    with pytest.raises(Gone, match="history was rewound"):
        list(files)
    with pytest.raises(Gone, match="history was rewound"):
        fetch_file(files, last.output.ref)


def test_an_index_named_before_a_rewind_is_gone_after_it() -> None:
    """Listings of the index follow the same rule as its pages and files."""
    job = paged_job()
    newest, chain = job.session.manifest, Chain(generation=job.session.head.generation)
    assert newest is not None
    index = newest.tables["totals"]
    rewound(job)

    with pytest.raises(Gone, match="history was rewound"):
        perform(read_index(chain, index, newest.epoch, Point.READ_OBJECT), job.root.handlers)
    with pytest.raises(Gone, match="history was rewound"):
        perform(index_files(chain, index), job.root.handlers)


def test_a_leader_that_was_deposed_learns_it_from_its_own_index() -> None:
    """It must stop as fenced: called damage, a person would restore what was never lost."""
    job = paged_job()
    newest = job.session.manifest
    assert newest is not None
    tail = perform(table_tails(Chain(), newest, ["totals"]), job.root.handlers)["totals"]
    chain = Chain(job.session.tenure)
    rewound(job)
    extending = extend_index(chain, "totals", tail, Epoch(5), Attempt("late"), newest.tally)

    with pytest.raises(Fenced):
        perform(extending, job.root.handlers)


def test_what_heads_own_line_lacks_is_still_damage() -> None:
    """The excuse of a rewind covers nothing else."""
    job = paged_job()
    files = find_files(job.root, "totals")
    for entry in job.store.list("tables/totals/000000000004/page-"):
        job.store.delete(entry.key)

    with pytest.raises(Corrupt, match="is missing, though epoch 4 is retained"):
        list(files)
