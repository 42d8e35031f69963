"""Reading a table of Postgres back: a value is the same in whatever type the table keeps it."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import Invalid
from penstock.sinks.protocol import PLACE
from penstock.sinks.staged import rows_of
from tests.support import databases
from tests.support.postgres_case import Client, new_table, plain_client, target
from tests.support.sink_cases import apply, staged

COLUMNS = pa.schema(
    [
        ("whole", pa.int32()),
        ("large", pa.uint64()),
        ("small", pa.float32()),
        ("code", pa.string()),
        ("id", pa.string()),
        ("doc", pa.string()),
        ("plain", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "Asia/Seoul")),
        ("local", pa.timestamp("ms")),
        ("clock", pa.time64("us")),
        ("raw", pa.binary()),
        ("price", pa.decimal128(10, 4)),
        ("tags", pa.list_(pa.float64())),
    ]
)
TYPES = """whole numeric(20, 3), large numeric, small real, code char(5), id uuid, doc jsonb,
    plain json, day date, at timestamptz, local timestamp, clock time, raw bytea, price numeric,
    tags jsonb"""
FULL: dict[str, Any] = {
    "whole": 5,
    "large": 2**64 - 1,
    "small": 0.1,
    "code": "ab",
    "id": "{A0EEBC999C0B4EF8BB6D6BB9BD380A11}",
    "doc": '{"b": 1.50, "a": [1e2, "\\u00e9"]}',
    "plain": '{"b":  1}',
    "day": date(1066, 10, 14),
    "at": datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
    "local": datetime(2026, 1, 1, 12),
    "clock": time(23, 59, 59, 999999),
    "raw": b"\x00\xff",
    "price": Decimal("0.0001"),
    "tags": [0.5, 1e300, None],
}
ROWS = [FULL, dict.fromkeys(COLUMNS.names)]


class Kept:
    """Rows in a table whose columns have types of their own."""

    def __init__(self, server: databases.Postgres, client: Client) -> None:
        self.table, self.client = new_table(), client
        client.execute(f"CREATE TABLE {self.table} ({TYPES})")
        self.sink = ps.Postgres("kinds", server.dsn(), table=self.table)
        self.sink.open(target(COLUMNS)).apply(apply(1, ROWS, columns=COLUMNS))
        client.execute(f"CREATE TABLE {self.table}_copy AS SELECT * FROM {self.table}")

    def change(self, how: str) -> None:
        """The rows as they were written, with one change."""
        self.client.execute(f"TRUNCATE {self.table}")
        self.client.execute(f"INSERT INTO {self.table} SELECT * FROM {self.table}_copy")
        self.client.execute(f"UPDATE {self.table} SET {how} WHERE whole IS NOT NULL")

    def compared(self) -> tuple[list[Any], list[Any]]:
        """The rows as they must look, and as they do."""
        with closing(self.sink.read_back(target(COLUMNS))) as holding:
            assert holding.traits.left_out == ()
            mine = holding.expected(rows_of(staged(1, ROWS, COLUMNS), COLUMNS)).puts
            theirs = [row for batch in holding.batches() for row in batch.to_pylist()]
        own = mine.drop_columns(list(PLACE)).to_pylist()
        return sorted(own, key=repr), sorted(theirs, key=repr)


@pytest.fixture(scope="module")
def kept(postgres_server: databases.Postgres) -> Iterator[Kept]:
    with pytest.MonkeyPatch.context() as patch, plain_client(postgres_server) as client:
        patch.setenv("PG_PASSWORD", databases.PASSWORD)
        yield Kept(postgres_server, client)


def test_values_in_types_of_the_tables_own_are_the_same_values(kept: Kept) -> None:
    """Padded, reordered, with more digits or other braces: nobody is told of a difference."""
    kept.change("whole = whole")
    mine, theirs = kept.compared()

    assert mine == theirs


@pytest.mark.parametrize(
    "how",
    [
        "whole = 5.5",
        "large = large - 1",
        "small = 0.2",
        "code = 'ac'",
        "id = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12'",
        "doc = doc || '{\"a\": 1}'",
        "plain = '{\"b\": 1}'",
        "day = day + 1",
        "day = 'infinity'",
        "at = at + interval '1 microsecond'",
        "at = '-infinity'",
        "local = NULL",
        "clock = '00:00'",
        "raw = raw || raw",
        "price = price + 0.00001",
        "tags = '[0.5, 1e300]'",
    ],
)
def test_another_value_is_another_value(kept: Kept, how: str) -> None:
    """By whatever little it differs."""
    kept.change(how)
    mine, theirs = kept.compared()

    assert mine != theirs


def test_what_cannot_be_compared_is_left_out_by_name(
    postgres_server: databases.Postgres, passwords: None
) -> None:
    """A table that was altered since: nobody claims to have looked at the column."""
    del passwords
    table, columns = new_table(), pa.schema([("a", pa.int64()), ("b", pa.string())])
    sink = ps.Postgres("altered", postgres_server.dsn(), table=table, create=True)
    sink.open(target(columns)).apply(apply(1, [{"a": 1, "b": "x"}], columns=columns))
    with plain_client(postgres_server) as client:
        client.execute(f"ALTER TABLE {table} ALTER b TYPE inet USING '10.0.0.1'::inet")
        with closing(sink.read_back(target(columns))) as holding:
            assert holding.traits.left_out == ("b",)
            assert [row for batch in holding.batches() for row in batch.to_pylist()] == [{"a": 1}]
        client.execute(f"DROP TABLE {table}")
    with pytest.raises(Invalid, match="is not there"):
        sink.read_back(target(columns))


def test_rows_and_cursor_are_of_one_moment(
    postgres_server: databases.Postgres, passwords: None
) -> None:
    """Whatever is committed while somebody looks."""
    del passwords
    columns = pa.schema([("a", pa.int64())])
    sink = ps.Postgres("moment", postgres_server.dsn(), table=new_table(), create=True)
    writer = sink.open(target(columns))
    writer.apply(apply(1, [{"a": 1}], columns=columns))
    with closing(sink.read_back(target(columns))) as holding:
        writer.apply(apply(2, [{"a": 2}], columns=columns))
        cursor = holding.read_cursor(0)
        rows = [row for batch in holding.batches() for row in batch.to_pylist()]

        assert (cursor is not None and cursor.epoch, rows) == (1, [{"a": 1}])
