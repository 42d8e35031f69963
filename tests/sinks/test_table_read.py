from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from penstock.checkpoint import Draft, MemoryStore, Output, Root, ref_to
from penstock.checkpoint.directory_store import DirectoryStore
from penstock.checkpoint.layout import output_key
from penstock.errors import Corrupt, Invalid
from penstock.ids import Attempt, Epoch
from penstock.sinks import PROVENANCE, Table, read_table, table_names, table_reader
from penstock.sinks.table import Format
from tests.support.faulty_store import FaultyStore
from tests.support.tables import TableJob, table_rows

COUNTS: list[dict[int, dict[str, Any]]] = [
    {0: {"user": ["ann", "bob"], "clicks": [1, 1]}, 1: {"user": ["cid"], "clicks": [1]}},
    {},
    {0: {"user": ["ann"], "clicks": [2]}},
    {1: {"user": ["cid", "cid"], "clicks": [2, 3]}},
]


def counting(job: TableJob) -> TableJob:
    for number, files in enumerate(COUNTS):
        job.write(files, index=number == 2)
    return job


def rows_of(epochs: int) -> pa.Table:
    """What the first so many epochs wrote."""
    return pa.concat_tables(
        table_rows(number + 1, partition, columns)
        for number, files in enumerate(COUNTS[:epochs])
        for partition, columns in files.items()
    )


@pytest.mark.parametrize("written", ["arrow", "parquet"])
def test_a_table_is_what_its_epochs_wrote(written: Format) -> None:
    """All rows, in order, each with where it came from."""
    job = counting(TableJob(table=Table("totals", format=written)))

    assert read_table(job.root, "totals").equals(rows_of(4))
    assert table_reader(job.root, "totals").read_all().equals(rows_of(4))


@pytest.mark.parametrize("epoch", [1, 2, 3, 4])
def test_a_table_is_read_as_of_an_old_epoch(epoch: int) -> None:
    """A report that is computed again gives the same figures."""
    job = counting(TableJob())

    assert read_table(job.root, "totals", epoch).equals(rows_of(epoch))
    assert table_reader(job.root, "totals", epoch).read_all().equals(rows_of(epoch))


def test_a_table_is_read_by_the_url_of_its_root(tmp_path: Path) -> None:
    """In another process than the job's, which is where people read."""
    counting(TableJob(DirectoryStore(tmp_path)))

    assert read_table(str(tmp_path), "totals").equals(rows_of(4))
    assert table_reader(str(tmp_path), "totals").read_all().equals(rows_of(4))
    assert table_names(str(tmp_path)) == ["totals"]


def test_a_database_reads_the_table() -> None:
    """Arrow is what others understand; offsets are found inside the provenance."""
    totals = read_table(counting(TableJob()).root, "totals")

    found = duckdb.sql(
        "select user, max(clicks), max(_input[1].last) from totals group by user order by user"
    ).fetchall()

    assert totals.num_rows == 6
    assert found == [("ann", 2, 0), ("bob", 1, 1), ("cid", 3, 1)]


def test_a_database_reads_a_table_as_a_stream() -> None:
    """Larger than memory, batch by batch."""
    totals = table_reader(counting(TableJob()).root, "totals")

    assert duckdb.from_arrow(totals).aggregate("sum(clicks)").fetchall() == [(10,)]


def test_of_each_key_the_last_row_is_kept() -> None:
    """A table of totals holds every total there was; mostly one wants today's."""
    job = counting(TableJob())

    latest = read_table(job.root, "totals", latest_by="user")
    earlier = read_table(job.root, "totals", 3, ["user"])

    assert latest.select(["user", "clicks", "_epoch", "_sequence"]).to_pylist() == [
        {"user": "bob", "clicks": 1, "_epoch": 1, "_sequence": 1},
        {"user": "ann", "clicks": 2, "_epoch": 3, "_sequence": 0},
        {"user": "cid", "clicks": 3, "_epoch": 4, "_sequence": 1},
    ]
    assert earlier["user"].to_pylist() == ["bob", "cid", "ann"]
    assert latest.schema.equals(read_table(job.root, "totals").schema)


def test_keys_of_several_columns_and_nulls_are_keys() -> None:
    """Null is a value that is not known; there is one row for it all the same."""
    job = TableJob()
    job.write({0: {"a": [1, None, None, 1], "row": ["x", None, None, "y"], "n": [1, 2, 3, 4]}})

    latest = read_table(job.root, "totals", latest_by=("a", "row"))

    assert latest["n"].to_pylist() == [1, 3, 4]


def test_the_last_is_told_by_provenance_and_not_by_place() -> None:
    """Tasks may write their rows in whatever order suits them."""
    job = TableJob()
    rows = table_rows(1, 0, {"user": ["ann", "ann"], "n": [1, 2]})
    body = job.table.encode(rows.take([1, 0]))
    job.session.commit(Draft(sinks={"totals": (job.stage_body(0, body, 2),)}))

    assert read_table(job.root, "totals", latest_by="user")["n"].to_pylist() == [2]


def test_a_column_that_is_not_there_is_named() -> None:
    """With those that are."""
    job = counting(TableJob())

    with pytest.raises(Invalid) as caught:
        read_table(job.root, "totals", latest_by=["user", "usr"])

    assert str(caught.value) == (
        "table totals has no column 'usr': "
        "use one of user, clicks, _epoch, _partition, _sequence, _input."
    )


def test_a_column_that_has_no_equality_is_refused() -> None:
    """In words of the call, not of a library below it."""
    job = counting(TableJob())

    with pytest.raises(Invalid, match=r"^table totals cannot be grouped by _input \("):
        read_table(job.root, "totals", latest_by="_input")


def test_a_table_without_files_has_only_provenance() -> None:
    """A job that has emitted nothing yet is no error."""
    job = TableJob()
    job.write()

    assert read_table(job.root, "totals").equals(PROVENANCE.empty_table())
    assert read_table(job.root, "totals", latest_by="user").equals(PROVENANCE.empty_table())
    assert table_reader(job.root, "totals").read_all().equals(PROVENANCE.empty_table())


def test_a_column_that_was_added_later_is_null_before() -> None:
    """A job is changed while its table lives on. Where rows came from stays last."""
    job = TableJob()
    job.write({0: {"user": ["ann"]}})
    job.write({0: {"user": ["bob"], "clicks": [7]}}, index=True)
    expected = [{"user": "ann", "clicks": None}, {"user": "bob", "clicks": 7}]

    for table in (read_table(job.root, "totals"), table_reader(job.root, "totals").read_all()):
        assert table.column_names == ["user", "clicks", *PROVENANCE.names]
        assert table.select(["user", "clicks"]).to_pylist() == expected


def test_a_column_that_came_and_went_is_never_left_out_in_silence() -> None:
    """The stream cannot know it beforehand, and says where it is; the whole table shows it."""
    job = TableJob()
    job.write({0: {"user": ["ann"]}})
    middle = job.write({0: {"user": ["bob"], "brief": [7]}}).sinks["totals"][0]
    job.write({0: {"user": ["cid"]}})

    assert read_table(job.root, "totals")["brief"].to_pylist() == [None, 7, None]
    with pytest.raises(Invalid) as caught:
        table_reader(job.root, "totals").read_all()
    assert str(caught.value) == (
        f"table totals has a column 'brief' in {middle.ref.key}, but neither in its first file "
        "nor in its newest: use `read_table`, or in Spark name the columns you want with "
        "`.schema(...)`."
    )


def test_a_column_whose_type_was_changed_is_refused() -> None:
    """Text and numbers under one name are two columns; an earlier epoch can still be read."""
    job = TableJob()
    job.write({0: {"user": ["ann"]}})
    job.write({0: {"user": [7]}})

    for read in (read_table, table_reader):
        with pytest.raises(Invalid, match=r"^table totals has files whose columns do not fit"):
            read(job.root, "totals")
        assert read(job.root, "totals", 1) is not None


@pytest.mark.parametrize("written", ["arrow", "parquet"])
@pytest.mark.parametrize("at", [0, 0.5, 1])
def test_a_flipped_bit_is_found_and_named(written: Format, at: float) -> None:
    """A table that is silently wrong is worse than none."""
    job = counting(TableJob(table=Table("totals", format=written)))
    ref = next(iter(job.root.history())).sinks["totals"][0].ref
    stored = job.store.get(ref.key)
    assert stored is not None
    body = bytearray(stored.body)
    body[int(at * (len(body) - 1))] ^= 1
    job.store.put(ref.key, bytes(body))

    for read in (read_table, lambda *asked: table_reader(*asked).read_all()):
        with pytest.raises(Corrupt) as caught:
            read(job.root, "totals")
        assert caught.value.subject == ref.key
        assert read(job.root, "totals", 3).equals(rows_of(3))


def test_a_damaged_file_in_the_middle_stops_a_stream() -> None:
    """The error that leaves a stream is ours, through all of Arrow's layers."""
    job = counting(TableJob())
    damaged = job.store.list("tables/totals/000000000003/0-")[0].key
    job.store.put(damaged, b"")
    stream = table_reader(job.root, "totals")

    with pytest.raises(Corrupt) as caught:
        stream.read_all()

    assert caught.value.subject == damaged


def test_a_lost_file_is_damage_however_old_its_epoch() -> None:
    """Its manifest was given up; the table was not."""
    job = TableJob()
    for number in range(8):
        job.write_users("ann", index=number > 0)
        job.collect()
    lost = job.store.list("tables/totals/000000000001/0-")[0].key
    job.store.delete(lost)

    with pytest.raises(Corrupt) as caught:
        read_table(job.root, "totals")

    assert job.root.head().floor > 2
    assert str(caught.value).startswith(f"{lost} is missing, though epoch 8 is retained")


def test_after_years_of_history_given_up_every_row_is_there() -> None:
    """Indexes, a raised floor, collection: a table loses nothing by them."""
    job = TableJob()
    for number in range(1, 61):
        job.write({number % 3: {"n": [number]}}, index=number % 7 == 0)
        job.collect()

    assert job.root.head().floor > 50
    assert read_table(job.root, "totals")["n"].to_pylist() == list(range(1, 61))
    assert read_table(job.root, "totals", 10)["n"].to_pylist() == list(range(1, 11))
    stream = table_reader(job.root, "totals")
    assert [n for batch in stream for n in batch["n"].to_pylist()] == list(range(1, 61))


def test_tables_are_told_from_other_sinks() -> None:
    """Also while they rest: what they were given before tells."""
    job = TableJob()
    key = output_key("ledger", Epoch(1), 0, Attempt("a"))
    job.store.put(key, b"rows")
    ledger = Output(partition=0, ref=ref_to(key, b"rows"), rows=1)
    file = job.stage(0, {"n": [1]})
    job.session.commit(Draft(sinks={"ledger": (ledger,), "totals": (file,), "errors": ()}))
    job.session.commit(Draft(sinks={"ledger": (), "totals": (), "errors": ()}))

    assert table_names(job.root) == ["errors", "totals"]


def test_before_the_first_epoch_there_are_no_tables() -> None:
    """A root that was just made has a HEAD and no manifest."""
    root = Root(MemoryStore())
    root.lead("clicks")

    assert table_names(root) == []


def test_a_stream_reads_each_file_once_and_two_of_them_for_their_columns() -> None:
    """The wire carries the table, not the table and its schemas."""
    store = FaultyStore(counting(TableJob()).store)

    table_reader(Root(store), "totals").read_all()

    assert store.counted["download"] == 4 + 2
