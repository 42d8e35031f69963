from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import Invalid
from penstock.ids import Attempt, Epoch, Key
from penstock.sinks import PROVENANCE, Guarantee, Sink, Table, parse_guarantee
from penstock.sinks.staged import staged
from penstock.sinks.table import Format, open_file

ROWS = pa.table(
    {
        "user": ["ann", None, "cid"],
        "clicks": pa.array([3, 4, 5], pa.int32()),
        "at": pa.array([datetime(2026, 1, 2, tzinfo=UTC)] * 3, pa.timestamp("us", tz="UTC")),
        "_input": pa.array(
            [[{"from": "clicks/0", "first": 7, "last": 9}], [], None],
            PROVENANCE.field("_input").type,
        ),
    }
)


@pytest.mark.parametrize("written", ["arrow", "parquet"])
def test_a_file_reads_as_it_was_written(written: Format) -> None:
    """Zones, nulls and nested offsets are what people check a table against."""
    table = Table("totals", format=written)
    key = table.key(Epoch(3), 1, Attempt("a1"))

    schema, batches = open_file(key, table.encode(ROWS))

    assert pa.Table.from_batches(batches, schema).equals(ROWS)
    assert schema.equals(ROWS.schema)


@pytest.mark.parametrize("written", ["arrow", "parquet"])
def test_the_same_rows_are_the_same_bytes(written: Format) -> None:
    """A hash names the rows, not the way they came in."""
    table = Table("totals", format=written)
    chunked = pa.concat_tables([ROWS.slice(0, 1), ROWS.slice(1)])
    tagged = chunked.replace_schema_metadata({"made": "elsewhere"})

    assert table.encode(tagged) == table.encode(ROWS)


@pytest.mark.parametrize("written", ["arrow", "parquet"])
def test_a_file_without_rows_still_has_columns(written: Format) -> None:
    """A task that was given nothing writes what a reader can open."""
    table = Table("totals", format=written)

    schema, batches = open_file(Key(f"x.{written}"), table.encode(ROWS.slice(0, 0)))

    assert schema.equals(ROWS.schema)
    assert pa.Table.from_batches(batches, schema).num_rows == 0


def test_a_table_is_a_sink_that_is_exact() -> None:
    """The runtime stages for it by what every sink has."""
    sink: Sink = Table("totals", format="parquet")

    assert (sink.name, sink.guarantee) == ("totals", Guarantee.EXACTLY_ONCE)
    assert sink.key(Epoch(7), 2, Attempt("a1")) == "tables/totals/000000000007/2-a1.parquet"


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("no/slash", {}, "table 'no/slash' is not a name that every store can hold"),
        ("totals", {"format": "csv"}, "table totals cannot be written as 'csv': use one of arrow"),
    ],
)
def test_a_table_that_cannot_be_is_refused(name: str, options: dict[str, Any], told: str) -> None:
    """At the line that makes it, not in a task an hour later."""
    with pytest.raises(Invalid) as caught:
        Table(name, **options)

    assert str(caught.value).startswith(told)


def test_a_file_of_an_unknown_kind_is_not_guessed_at() -> None:
    """A newer version may have written it."""
    with pytest.raises(Invalid, match=r"^0-a1\.orc is written in a way"):
        open_file(Key("0-a1.orc"), b"")


def test_guarantees_are_ordered() -> None:
    """A job that asks for one may be given a stronger one, never a weaker."""
    exact, converging, repeating = Guarantee
    order = [[one.at_least(other) for other in Guarantee] for one in Guarantee]

    assert (exact, converging, repeating) == ("exactly-once", "converges", "at-least-once")
    assert order == [[True, True, True], [False, True, True], [False, False, True]]


def test_a_guarantee_is_read_as_it_is_written() -> None:
    """People write it in the call that starts a job."""
    assert [parse_guarantee(str(one)) for one in Guarantee] == list(Guarantee)
    with pytest.raises(Invalid) as caught:
        parse_guarantee("at-most-once")
    assert str(caught.value) == (
        "guarantee 'at-most-once' is not one there is: "
        "use one of exactly-once, converges, at-least-once."
    )


def hostile(kind: pa.DataType, value: int) -> pa.Array:
    width = pa.int64() if kind.bit_width == 64 else pa.int32()
    return pa.array([0, value], width).view(kind)


def broken_text() -> pa.Array:
    kept = pa.array([b"a", b"\xff"], pa.binary())
    return pa.Array.from_buffers(pa.string(), 2, kept.buffers())


UNREADABLE = {
    "text that is none": broken_text(),
    "a time of no calendar": hostile(pa.timestamp("s"), 1 << 62),
    "a day of no calendar": hostile(pa.date32(), 1 << 30),
    "half a day": hostile(pa.date64(), 43_200_000),
    "a second after midnight": hostile(pa.time32("s"), 86_401),
    "longer than time": hostile(pa.duration("s"), 1 << 62),
}


@pytest.mark.parametrize("written", ["arrow", "parquet"])
@pytest.mark.parametrize("values", UNREADABLE.values(), ids=UNREADABLE)
def test_what_readers_do_not_have_is_refused_before_it_is_staged(
    written: Format, values: pa.Array
) -> None:
    """Committed, it stays in the table for good, and whoever reads it fails or sees another."""
    with pytest.raises(Invalid, match="sink totals, column 'x', row 1 "):
        staged(Table("totals", format=written), Epoch(1), 0, Attempt("a"), pa.table({"x": values}))


def test_a_table_of_what_was_set_aside_takes_everything() -> None:
    """A dead letter is likely to hold such a value, and must be kept all the same."""
    rows = pa.table({"x": UNREADABLE["a time of no calendar"]})
    table = Table("sum.dead-letters", takes_any=True)
    key, body = staged(table, Epoch(1), 0, Attempt("a"), rows)

    schema, batches = open_file(key, body)

    assert pa.Table.from_batches(batches, schema).equals(rows)


def test_a_type_that_parquet_lacks_is_refused_by_name() -> None:
    """Not with an error of the library, which Spark would try again and again."""
    rows = pa.table({"x": pa.array([100], pa.decimal128(5, -2))})

    with pytest.raises(Invalid, match="sink totals cannot be written as Parquet"):
        staged(Table("totals", format="parquet"), Epoch(1), 0, Attempt("a"), rows)
