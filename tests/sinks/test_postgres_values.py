"""Values on their way into Postgres: as they were, or refused before an epoch depends on them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from psycopg import sql

from penstock.errors import Invalid
from penstock.sinks import postgres_check
from penstock.sinks.postgres import Postgres
from penstock.sinks.postgres_check import KEY_BYTES_MAX, ROW_BYTES_MAX
from tests.support import databases
from tests.support.postgres_case import Client, new_table, plain_client, rows_in, target
from tests.support.sink_cases import PEOPLE, Row, apply, cursor, in_order, people

pytestmark = pytest.mark.usefixtures("passwords")


@pytest.fixture
def client(postgres_server: databases.Postgres) -> Iterator[Client]:
    with plain_client(postgres_server) as opened:
        yield opened


@pytest.fixture
def table(client: Client) -> Iterator[str]:
    """A name for a table that is gone after the test."""
    name = new_table()
    yield name
    client.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(name)))


SINK = Postgres("people", "postgresql://db/shop")
KEYED = Postgres("people", "postgresql://db/shop", key="user")


def refused(rows: pa.Table, sink: Postgres = SINK) -> str:
    """What a task is told that emits such rows."""
    with pytest.raises(Invalid) as caught:
        sink.check(rows)
    return str(caught.value)


TWO_TO_53 = float(2**53)
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [-128, 127]),
    "uint8": (pa.uint8(), [0, 255]),
    "int16": (pa.int16(), [-(2**15), 2**15 - 1]),
    "uint32": (pa.uint32(), [2**32 - 1]),
    "int64": (pa.int64(), [-(2**63), 2**63 - 1]),
    "float64": (pa.float64(), [0.1, -0.0, 5e-324, 1.7976931348623157e308, TWO_TO_53, math.inf]),
    "minus": (pa.float64(), [-math.inf]),
    "bool": (pa.bool_(), [True, False]),
    "text": (pa.string(), ["", "\\N", "NULL", "\\.", "a\n\\.\nb", "\r\n", ' "," ', "\x7f\x01é"]),
    "large": (pa.large_string(), ["x" * 100_000]),
    "day": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
    "time": (pa.time64("us"), [time(0), time(23, 59, 59, 999999)]),
    "naive": (pa.timestamp("us"), [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)]),
    "second": (pa.timestamp("s"), [datetime(1969, 12, 31, 23, 59, 59)]),
    "bytes": (pa.binary(), [b"", b"\\x", bytes(range(256))]),
    "large bytes": (pa.large_binary(), [b"\0"]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", None)]]),
}


def test_values_come_back_as_they_were(
    postgres_server: databases.Postgres, table: str, client: Client
) -> None:
    """Also those that look like a null, an end of data or an escape to somebody on the way."""
    columns = pa.schema([(name, kind) for name, (kind, _) in VALUES.items()])
    count = max(len(values) for _, values in VALUES.values())
    rows: list[Row] = [
        {name: values[n] if n < len(values) else None for name, (_, values) in VALUES.items()}
        for n in range(count)
    ]
    sink = Postgres("people", postgres_server.dsn(), table=table, create=True)
    sink.check(pa.Table.from_pylist(rows, columns))
    writer = sink.open(target(columns))
    writer.apply(apply(1, rows, columns=columns))
    writer.close()

    expected = [{**row, "map": row["map"] and dict(row["map"])} for row in rows]
    assert in_order(rows_in(client, table, columns.names)) == in_order(expected)


def test_numbers_that_are_none_and_short_floats(
    postgres_server: databases.Postgres, table: str, client: Client
) -> None:
    """NaN stays NaN; a float of 32 bits is the same number in a column of 64."""
    client.execute(sql.SQL("CREATE TABLE {} (x real, y float8, z float8)").format(name_of(table)))
    columns = pa.schema([("x", pa.float32()), ("y", pa.float32()), ("z", pa.float64())])
    short = pa.scalar(0.1, pa.float32()).as_py()
    sink = Postgres("people", postgres_server.dsn(), table=table)
    writer = sink.open(target(columns))
    writer.apply(apply(1, [{"x": short, "y": short, "z": math.nan}], columns=columns))
    writer.close()

    found = client.execute(
        sql.SQL("SELECT x = 0.1::real, y, z = 'nan' FROM {}").format(name_of(table))
    ).fetchall()
    assert found == [(True, short, True)]


def name_of(table: str) -> sql.Identifier:
    return sql.Identifier(table)


def test_types_that_mean_the_same_are_written_alike(
    postgres_server: databases.Postgres, table: str, client: Client
) -> None:
    """Dictionaries, views, fixed widths and nanoseconds are how rows travel, not what they say."""
    rows = pa.table(
        {
            "city": pa.array(["Busan", None, "Busan"]).dictionary_encode(),
            "view": pa.array(["a", "b", None], pa.string_view()),
            "bytes": pa.array([b"ab", None, b"cd"], pa.binary(2)),
            "at": pa.array([1_000, None, 2_000]).cast(pa.timestamp("ns", "Asia/Seoul")),
            "day": pa.array([0, 86_400_000, None]).cast(pa.date64()),
        }
    )
    sink = Postgres("people", postgres_server.dsn(), table=table, key=("city", "view"), create=True)
    keys = rows.slice(0, 1)
    sink.check(keys)
    writer = sink.open(target(rows.schema))
    writer.apply(apply(1, keys.to_pylist(), columns=rows.schema))
    writer.close()

    assert rows_in(client, table, rows.column_names) == [
        {
            "city": "Busan",
            "view": "a",
            "bytes": b"ab",
            "at": datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
            "day": date(1970, 1, 1),
        }
    ]


@dataclass
class Misfit:
    """A value that a column does not take."""

    column: str
    kind: pa.DataType
    value: Any
    wider: str
    said: str


MISFITS = (
    Misfit(
        "varchar(3)",
        pa.string(),
        "four",
        "text",
        "value too long for type character varying(3)",
    ),
    Misfit(
        "numeric(4, 2)",
        pa.decimal128(10, 2),
        Decimal("1234.56"),
        "numeric",
        "numeric field overflow",
    ),
    Misfit("uuid", pa.string(), "not one", "text", 'invalid input syntax for type uuid: "not one"'),
)


@pytest.mark.parametrize("key", [(), "user"], ids=["append", "upsert"])
@pytest.mark.parametrize("bad", MISFITS, ids=lambda bad: bad.column)
def test_a_value_that_does_not_fit_is_named_and_nothing_of_it_is_left(
    bad: Misfit, key: Any, postgres_server: databases.Postgres, table: str, client: Client
) -> None:
    """The epoch is committed and stays so; once the column is wider the same writer goes on."""
    client.execute(f'CREATE TABLE {table} ("user" text PRIMARY KEY, "x; y" {bad.column})')
    schema = pa.schema([("user", pa.string()), ("x; y", bad.kind)])
    sink = Postgres("people", postgres_server.dsn(), table=table, key=key)
    writer = sink.open(target(schema))
    rows = [{"user": "ada", "x; y": None}, {"user": "bob", "x; y": bad.value}]
    with pytest.raises(Invalid) as caught:
        writer.apply(apply(1, rows, columns=schema))
    assert str(caught.value) == (
        f"sink people, table public.{table}, column 'x; y' does not take a value ({bad.said}): "
        "change the column so that it does, and start the job again: the row is committed."
    )
    assert (writer.read_cursor(0), rows_in(client, table, ["user"])) == (None, [])

    wider = f'ALTER "x; y" TYPE {bad.wider} USING "x; y"::text::{bad.wider}'
    client.execute(f"ALTER TABLE {table} {wider}")
    writer.apply(apply(1, rows, columns=schema))
    assert writer.read_cursor(0) == cursor(1)
    writer.close()
    assert in_order(rows_in(client, table, ["user", "x; y"])) == rows


@pytest.mark.parametrize("key", [False, True], ids=["append", "upsert"])
def test_a_rule_of_the_table_is_named(
    key: bool, postgres_server: databases.Postgres, table: str, client: Client
) -> None:
    """A rule is somebody's will: the sink does not write around it, and does not lose the row."""
    client.execute(f'CREATE TABLE {table} ("user" text PRIMARY KEY, n bigint NOT NULL)')
    client.execute(f"ALTER TABLE {table} ADD CONSTRAINT small CHECK (n < 2)")
    sink = Postgres("people", postgres_server.dsn(), table=table, key="user" if key else ())
    writer = sink.open(target())
    with pytest.raises(Invalid) as caught:
        writer.apply(apply(1, people(1)))
    assert str(caught.value) == (
        f"sink people, table public.{table} has a rule against a row (new row for relation "
        f'"{table}" violates check constraint "small"; Failing row contains (1-0-2, 2).): '
        "change the rule or what is in its way, and start the job again: the row is committed."
    )
    with pytest.raises(Invalid) as caught:
        writer.apply(apply(1, [{"user": "ada", "n": None}]))
    assert str(caught.value).startswith(
        f"sink people, table public.{table}, column 'n' has a rule against a row (null value in "
    )
    assert (writer.read_cursor(0), rows_in(client, table, ["user"])) == (None, [])

    client.execute(f"ALTER TABLE {table} DROP CONSTRAINT small")
    writer.apply(apply(1, people(1)))
    writer.close()
    assert in_order(rows_in(client, table, ["user", "n"])) == people(1)


def test_two_keys_that_the_table_takes_for_one_are_named(
    postgres_server: databases.Postgres, table: str, client: Client
) -> None:
    """A UUID has several spellings, and the table has one row for all of them."""
    client.execute(f'CREATE TABLE {table} ("user" uuid PRIMARY KEY, n bigint)')
    sink = Postgres("people", postgres_server.dsn(), table=table, key="user")
    writer = sink.open(target())
    one = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    with pytest.raises(Invalid, match="cannot affect row a second time"):
        writer.apply(apply(1, [{"user": one, "n": 1}, {"user": one.upper(), "n": 2}]))
    writer.close()

    assert rows_in(client, table, ["user"]) == []


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (pa.array(["a", "b\0c"]), "row 1 holds a text with the character NUL, 'b\\x00c'"),
        (
            pa.array([["a"], ["b\0"]]),
            "row 1 holds a text with the character NUL, 'b\\x00'",
        ),
        (
            pa.array(
                [[("k\0", {"x": "y"})]], pa.map_(pa.string(), pa.struct([("x", pa.string())]))
            ),
            "row 0 holds a text with the character NUL, 'k\\x00'",
        ),
        (
            pa.array(["x\0", "x"]).dictionary_encode(),
            "row 0 holds a text with the character NUL, 'x\\x00'",
        ),
    ],
)
def test_a_text_with_nul_is_refused_by_the_task(values: pa.Array, said: str) -> None:
    """Postgres can never store one; after the commit it would be too late to say so."""
    assert refused(pa.table({"x": values})) == (
        f"sink people, column 'x', {said}: take it out: Postgres can never store it."
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (pa.array([-719_163], pa.int32()).cast(pa.date32()), "row 0 is 0000-12-31"),
        (pa.array([2_932_897], pa.int32()).cast(pa.date32()), "row 0 is 10000-01-01"),
        (pa.array([None, -62_135_596_801]).cast(pa.timestamp("s")), "row 1 is 0000-12-31 23:59:59"),
        (
            pa.array([253_402_300_800_000_000]).cast(pa.timestamp("us", "UTC")),
            "row 0 is 10000-01-01 00:00:00.000000Z",
        ),
        (
            pa.array([[253_402_300_800]]).cast(pa.list_(pa.timestamp("s"))),
            "row 0 is 10000-01-01 00:00:00",
        ),
    ],
)
def test_a_moment_out_of_every_calendar_is_refused_by_the_task(values: pa.Array, said: str) -> None:
    """Its text would be another moment, or none."""
    assert refused(pa.table({"x": values})) == (
        f"sink people, column 'x', {said}, which is outside the years 1 to 9999: emit a time that "
        "every reader can spell, or none."
    )


def test_nanoseconds_are_refused_unless_they_are_whole_microseconds() -> None:
    """Postgres would round them without a word."""
    fine = pa.array([1_000]).cast(pa.timestamp("ns"))
    SINK.check(pa.table({"x": fine}))

    assert refused(pa.table({"x": pa.array([1_001]).cast(pa.timestamp("ns"))})) == (
        "sink people, column 'x', row 0 is timestamp[ns], and holds more digits than Postgres "
        "keeps of a second: cast it to microseconds."
    )


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (
            pa.duration("s"),
            "is duration[s], and this sink has no type of Postgres for that: "
            "cast it, or leave it out.",
        ),
        (
            pa.list_(pa.month_day_nano_interval()),
            "is list<item: month_day_nano_interval>, and there is no one text for its values: "
            "cast it, or leave it out.",
        ),
    ],
    ids=str,
)
def test_a_type_that_postgres_does_not_have_is_refused_when_a_job_is_loaded(
    kind: pa.DataType, said: str
) -> None:
    """No row is needed to see it."""
    empty = pa.schema([("x", kind)]).empty_table()

    assert refused(empty) == f"sink people, column 'x' {said}"


@pytest.mark.parametrize("name", ["x" * 64, "", "a\0b"])
def test_a_column_whose_name_postgres_cannot_hold_is_refused(name: str) -> None:
    """It would be cut, and might then be another column's."""
    assert refused(pa.schema([(name, pa.int64())]).empty_table()) == (
        f"sink people, column {name!r} has a name that Postgres cannot hold: "
        "use 1 to 63 bytes of UTF-8 without NUL."
    )


def test_a_column_that_every_table_has_is_refused() -> None:
    """`ctid` is where a row is."""
    assert refused(pa.schema([("ctid", pa.int64())]).empty_table()) == (
        "sink people, column 'ctid' is a column that Postgres itself has in every table: rename it."
    )


def test_two_columns_of_one_name_are_refused() -> None:
    """Arrow lets rows have them, and no table does."""
    rows = pa.schema([("x", pa.int64()), ("x", pa.int64())]).empty_table()

    assert refused(rows) == "sink people has two columns of one name: rename one."


def test_too_many_columns_are_refused() -> None:
    """The server has a limit, and so have we."""
    many = pa.schema([(f"c{n}", pa.int64()) for n in range(1601)]).empty_table()

    assert refused(many) == (
        "sink people has 1601 columns, and a table has at most 1600: emit fewer, or nest them."
    )


def test_a_key_without_a_value_is_refused_by_the_task() -> None:
    """No row of a table has such a key, and none could be replaced by it."""
    rows = pa.Table.from_pylist([{"user": "ada", "n": 1}, {"user": None, "n": 2}], PEOPLE)

    assert refused(rows, KEYED) == (
        "sink people, column 'user' is its key, and has no value in the row "
        "{'user': None, 'n': 2}: emit no row without it."
    )


@pytest.mark.parametrize("kind", [pa.float64(), pa.list_(pa.string())], ids=str)
def test_a_key_that_is_not_plainly_equal_is_refused(kind: pa.DataType) -> None:
    """0.0 and -0.0 are one key to Postgres, and two to whoever emitted them."""
    assert refused(pa.schema([("user", kind)]).empty_table(), KEYED) == (
        f"sink people, column 'user' is its key, and is {kind}, of which values are not plainly "
        "equal or not: make it a number, a text or a moment."
    )


def test_a_key_that_is_too_long_for_an_index_is_refused_by_the_task(
    postgres_server: databases.Postgres, table: str, client: Client
) -> None:
    """The longest that is let through does get in, however little it can be compressed."""
    alphabet = "".join(chr(0x3400 + n * 7 % 6000) for n in range(KEY_BYTES_MAX // 3))
    longest = alphabet + "x" * (KEY_BYTES_MAX - len(alphabet.encode()))
    rows = [{"user": longest, "n": 1}]
    sink = Postgres("people", postgres_server.dsn(), table=table, key="user", create=True)
    sink.check(pa.Table.from_pylist(rows, PEOPLE))
    writer = sink.open(target())
    writer.apply(apply(1, rows))
    writer.close()
    assert rows_in(client, table, ["user", "n"]) == rows

    assert refused(pa.Table.from_pylist([{"user": f"{longest}x", "n": 1}], PEOPLE), KEYED) == (
        "sink people has a key of 2601 bytes, and an index takes at most 2600: "
        "make the key shorter: a hash of it will do."
    )


def test_a_row_that_is_too_large_is_refused_by_the_task() -> None:
    """COPY takes less than a GiB of text for a row, however many columns it comes in."""
    part = pa.array(["ada", "x" * (1 << 27)], pa.large_string())

    assert refused(pa.table({f"c{n}": part for n in range(8)})) == (
        f"sink people has a row of {8 * ((1 << 27) + 3)} bytes of text, and Postgres takes "
        f"{ROW_BYTES_MAX}: split it, or keep large values elsewhere."
    )


def test_rows_are_measured_as_the_text_they_become(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte is two digits there, a quote is two quotes: to the byte, with a limit that is small
    enough to try."""
    rows = pa.table(
        {
            "text": pa.array(["", '"' * 100, "é"]),
            "bytes": pa.array([None, b"\0" * 100, b""]),
            "number": pa.array([1, 1234, None]),
            "nested": pa.array([[], ["a"], None]),
        }
    )
    size = (200 + 3) + (200 + 5) + (4 + 3) + (len('[""a""]') + 3)
    monkeypatch.setattr(postgres_check, "ROW_BYTES_MAX", size)
    SINK.check(rows)

    monkeypatch.setattr(postgres_check, "ROW_BYTES_MAX", size - 1)
    assert refused(rows) == (
        f"sink people has a row of {size} bytes of text, and Postgres takes {size - 1}: "
        "split it, or keep large values elsewhere."
    )


def test_nested_values_are_measured_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """`jsonb` takes less of it than a row takes of text."""
    rows = pa.table({"x": pa.array([["a"], ["x" * 100] * 2])})
    size = 2 * 102 + 3
    monkeypatch.setattr(postgres_check, "JSON_BYTES_MAX", size)
    SINK.check(rows)

    monkeypatch.setattr(postgres_check, "JSON_BYTES_MAX", size - 1)
    assert refused(rows) == (
        f"sink people, column 'x' holds a value of {size} bytes of JSON, and the limit is "
        f"{size - 1}: split it into several rows."
    )
