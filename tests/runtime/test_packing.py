"""Rows on their way: what is packed comes out as it was."""

from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.runtime.packing import NARROWED_ROWS_MIN, Packer, unpacked
from penstock.runtime.wire import RowsHead, batches_of, decode, parts_of
from tests.support.in_process import no_spark
from tests.support.logs import new_log

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("key", pa.int64()),
        ("n", pa.int64()),
        ("small", pa.int32()),
        ("day", pa.date32()),
        ("at", TIME),
        ("word", pa.string()),
    ]
)
ROWS = NARROWED_ROWS_MIN + 10
SPANS = [0, 1, 255, 256, 65_535, 65_536, (1 << 32) - 1, 1 << 32, 1 << 62]


@ps.stateful(emits="key long")
def seen(key: int, events: ps.Events) -> object:
    """Nothing to see here."""
    yield {"key": key}


def packer(*, travels: bool = True) -> Packer:
    """Of a job of three partitions."""
    job = ps.Job("packed", partitions=3)
    job.read(new_log(SCHEMA), name="log").key_by("key").process(seen).write(ps.Table("out"))
    topology = job.topology("memory://packed", no_spark)
    return Packer.to(topology, 1, 0, topology.operator(1).feeds[0], "run", travels=travels)


def rows(seed: int, least: int, span: int, nulls: bool, count: int) -> pa.Table:
    """Columns whose numbers lie in a span."""
    random = np.random.default_rng(seed)

    def column(kind: pa.DataType, low: int, width: int) -> pa.Array:
        numbers = low + (random.integers(0, 1 << 62, count) % (width + 1))
        numbers[:2] = low, low + width
        missing = random.random(count) < 0.1 if nulls else None
        physical = pa.int32() if kind.bit_width == 32 else pa.int64()
        return pa.array(numbers, pa.int64(), mask=missing).cast(physical).cast(kind)

    small = min(span, (1 << 31) - 1)
    columns = [
        column(pa.int64(), 0, 1000).fill_null(0),
        column(pa.int64(), least, span),
        column(pa.int32(), max(-(1 << 31), min(least, (1 << 31) - 1 - small)), small),
        column(pa.date32(), 0, min(small, 40_000)),
        column(TIME, 0, min(span, 1 << 50)),
        pa.array([f"w{n}" for n in range(count)]),
    ]
    table = pa.table(columns, schema=SCHEMA)
    table = table.append_column("_offset", pa.array(np.arange(count) + 7))
    table = table.append_column("_event_time", pa.nulls(count, TIME))
    return table.append_column("_broker_time", pa.array([datetime(2026, 1, 2, tzinfo=UTC)] * count))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    least=st.sampled_from([0, -1, -(1 << 62), 1 << 61]),
    span=st.sampled_from(SPANS),
    nulls=st.booleans(),
    count=st.sampled_from([10, ROWS]),
)
def test_what_is_packed_comes_out_as_it_was(
    seed: int, least: int, span: int, nulls: bool, count: int
) -> None:
    """Every value, every null, the order within a partition, whatever the numbers are."""
    table = rows(seed, least, span, nulls, count)
    parts = list(parts_of(batches_of(packer().pack(table, "log", "0", (7, 0)))))
    found = [unpacked(decode(part.head, RowsHead), part) for part in parts]

    assert sum(part.rows for part in parts) == count
    whole = pa.concat_tables(found, promote_options="default").sort_by("_offset")
    for name in table.column_names:
        if name != "_event_time" or name in whole.column_names:
            assert whole.column(name).to_pylist() == table.column(name).to_pylist()
    for piece in found:
        offsets = piece.column("_offset").to_pylist()
        assert offsets == sorted(offsets)


def test_numbers_close_together_travel_in_fewer_bytes() -> None:
    """What nobody knows does not travel at all."""
    table = rows(1, 1 << 61, 200, False, ROWS)
    part = next(iter(packer().pack(table, "log", "0", (7, 0))))
    head = decode(part.head, RowsHead)
    sent = pa.ipc.open_stream(part.body).read_all()

    assert sent.schema.field("n").type == pa.uint8()
    assert sent.schema.field("_offset").type == pa.uint16()
    assert "_event_time" not in sent.column_names
    assert unpacked(head, part).schema.field("n").type == pa.int64()


def test_rows_that_stay_in_their_process_are_not_packed() -> None:
    """The very same table, with its key groups."""
    table = rows(1, 0, 200, False, ROWS)
    for part in packer(travels=False).pack(table, "log", "0", (7, 0)):
        assert isinstance(part.body, pa.Table)
        assert unpacked(decode(part.head, RowsHead), part) is part.body


@pytest.mark.parametrize("day", [date(1, 1, 1), date(9999, 12, 31)])
def test_the_ends_of_the_calendar_travel(day: date) -> None:
    """Moments before 1970 are numbers below zero."""
    table = rows(1, 0, 9, False, ROWS)
    days = pa.array([day] * ROWS)
    moments = pa.array([datetime(day.year, 1, 1, tzinfo=UTC)] * ROWS, TIME)
    table = table.set_column(3, "day", days).set_column(4, "at", moments)
    for part in packer().pack(table, "log", "0", (7, 0)):
        found = unpacked(decode(part.head, RowsHead), part)
        assert set(found.column("day").to_pylist()) == {day}
        assert set(found.column("at").to_pylist()) == {moments[0].as_py()}
