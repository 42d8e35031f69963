"""Python values as Arrow's: the very same value, or a refusal that says what to give instead."""

import math
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from penstock.sources.exact_casts import exact_cast
from penstock.sources.exact_values import NotExact, exact_array
from penstock.sources.log_rows import UNFIT

UTC_US = pa.timestamp("us", "UTC")
SEOUL = ZoneInfo("Asia/Seoul")
WIDE = Decimal("1000000000000000000000000000000000001")
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)

TAKEN: list[tuple[Any, pa.DataType, Any]] = [
    (np.int64(3), pa.int64(), 3),
    (np.uint8(3), pa.int32(), 3),
    (np.float64(2.0), pa.int64(), 2),
    (Decimal(2), pa.int64(), 2),
    (np.int64(3), pa.float64(), 3.0),
    (np.float32(0.1), pa.float32(), float(np.float32(0.1))),
    (np.float32(0.1), pa.float64(), float(np.float32(0.1))),
    (2**53, pa.float64(), float(2**53)),
    (math.inf, pa.float32(), math.inf),
    (-0.0, pa.float64(), -0.0),
    (np.True_, pa.bool_(), True),
    (np.str_("x"), pa.string(), "x"),
    (bytearray(b"x"), pa.binary(), b"x"),
    (WIDE, pa.decimal128(38, 0), WIDE),
    (np.int64(3), pa.decimal128(5, 2), Decimal("3.00")),
    ("1.25", pa.decimal128(5, 2), Decimal("1.25")),
    (datetime(2026, 1, 2, 21, tzinfo=SEOUL), UTC_US, NOON),
    ("2026-01-02T21:00:00+09:00", UTC_US, NOON),
    (datetime(2026, 1, 2), pa.timestamp("s"), datetime(2026, 1, 2)),
    (np.datetime64("2026-01-02T03"), pa.timestamp("us"), datetime(2026, 1, 2, 3)),
    (np.datetime64("2026-01-02"), pa.date32(), date(2026, 1, 2)),
    (date(2026, 1, 2), pa.date32(), date(2026, 1, 2)),
    (time(1, 2, 3), pa.time32("s"), time(1, 2, 3)),
    (np.timedelta64(5, "s"), pa.duration("ms"), timedelta(seconds=5)),
    (pd.Timestamp(1000, unit="ns", tz="UTC"), UTC_US, datetime(1970, 1, 1, 0, 0, 0, 1, UTC)),
    ((1, None), pa.list_(pa.int64()), [1, None]),
    (np.array([1, 2]), pa.list_(pa.int8()), [1, 2]),
    ({"x": np.int64(1)}, pa.struct([("x", pa.int64()), ("y", pa.string())]), {"x": 1, "y": None}),
    ({"a": 1}, pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    ([["a", 1]], pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    ("x", pa.dictionary(pa.int8(), pa.string()), "x"),
]

REFUSED: list[tuple[Any, pa.DataType]] = [
    (True, pa.int64()),
    (1, pa.bool_()),
    (2.5, pa.int64()),
    (math.nan, pa.int64()),
    (Decimal("2.5"), pa.int64()),
    (Decimal("sNaN"), pa.int64()),
    (Decimal("NaN"), pa.decimal128(5, 2)),
    (Decimal("1000000000000000000000000000000000001.5"), pa.decimal128(38, 0)),
    ("7", pa.int64()),
    (np.timedelta64(5, "s"), pa.int64()),
    (2**53 + 1, pa.float64()),
    (np.uint64(2**53 + 1), pa.float64()),
    (10**400, pa.float64()),
    (0.1, pa.float32()),
    (1e300, pa.float32()),
    (1e-8, pa.float16()),
    (Decimal("0.5"), pa.float64()),
    (0.5, pa.decimal128(5, 2)),
    (Decimal("1.239"), pa.decimal128(5, 2)),
    ("1.239", pa.decimal128(5, 2)),
    (b"x", pa.string()),
    ("\ud800", pa.string()),
    ("x", pa.binary()),
    (datetime(2026, 1, 2), UTC_US),
    (np.datetime64("2026-01-02"), UTC_US),
    (datetime(2026, 1, 2, tzinfo=UTC), pa.timestamp("us")),
    (datetime(2026, 1, 2, 0, 0, 0, 1), pa.timestamp("s")),
    (pd.Timestamp(1, unit="ns", tz="UTC"), UTC_US),
    (pd.NaT, UTC_US),
    (np.datetime64("NaT"), pa.timestamp("us")),
    (np.datetime64(1, "ns"), pa.timestamp("us")),
    (datetime(2300, 1, 1), pa.timestamp("ns")),
    ("2026-01-02T00:00:00", UTC_US),
    ("2026-01-02T00:00:00.1234567Z", UTC_US),
    (datetime(2026, 1, 2, 3), pa.date32()),
    (datetime(2026, 1, 2), pa.date32()),
    (np.datetime64("2026-01-02T03"), pa.date32()),
    (pd.NaT, pa.date32()),
    (np.timedelta64(5, "ns"), pa.date32()),
    (time(1, 2, 3, 4), pa.time32("s")),
    (time(1, 2, 3, 4), pa.time32("ms")),
    (time(1, 2, 3, tzinfo=UTC), pa.time64("us")),
    (timedelta(microseconds=5), pa.duration("ms")),
    (pd.Timedelta(5, "ns"), pa.duration("us")),
    (timedelta(days=300_000), pa.duration("ns")),
    ("abc", pa.list_(pa.string())),
    (b"ab", pa.list_(pa.int64())),
    ({1, 2}, pa.list_(pa.int64())),
    ([1.5], pa.list_(pa.int64())),
    ([1, 2, 3], pa.list_(pa.int64(), 2)),
    ({"x": 1, "y": 2}, pa.struct([("x", pa.int64())])),
    ({1: 2}, pa.struct([("x", pa.int64())])),
    ([("x", 1)], pa.struct([("x", pa.int64())])),
    ({"x": datetime(2026, 1, 2)}, pa.struct([("x", UTC_US)])),
    ("ab", pa.map_(pa.string(), pa.int64())),
]


@pytest.mark.parametrize(("given", "kind", "held"), TAKEN, ids=str)
def test_a_value_that_fits_is_the_same_value(given: Any, kind: pa.DataType, held: Any) -> None:
    """Whatever library it comes from."""
    assert exact_array([given, None], kind).to_pylist() == [held, None]


@pytest.mark.parametrize(("given", "kind"), REFUSED, ids=str)
def test_a_value_that_would_be_another_is_refused(given: Any, kind: pa.DataType) -> None:
    """Arrow takes most of these in part and says nothing."""
    with pytest.raises(UNFIT):
        exact_array([given], kind)


def test_a_zone_is_asked_for_with_the_way_to_give_one() -> None:
    """A time without one was taken for UTC, nine hours off for a clock on a wall in Seoul."""
    with pytest.raises(NotExact, match=r"give it one, such as \.replace\(tzinfo=datetime\.UTC\)"):
        exact_array([datetime(2026, 1, 2)], UTC_US)


def test_a_zone_that_tells_no_offset_is_none() -> None:
    """Python allows such a time and calls it naive."""

    class Vague(tzinfo):
        def utcoffset(self, moment: datetime | None) -> Any:
            return None

    with pytest.raises(NotExact, match="it has no zone"):
        exact_array([NOON.replace(tzinfo=Vague())], UTC_US)


CAST: list[tuple[pa.Array, pa.DataType, list[Any]]] = [
    (pa.array([1, None], pa.int8()), pa.int64(), [1, None]),
    (pa.array([2.0]), pa.int64(), [2]),
    (pa.array([1], pa.int64()), pa.float64(), [1.0]),
    (pa.array([0.5, None]), pa.float32(), [0.5, None]),
    (pa.array(["1.25"]), pa.decimal128(5, 2), [Decimal("1.25")]),
    (pa.array(["2026-01-02T12:00:00Z"]), UTC_US, [NOON]),
    (pa.array([b"x"]), pa.string(), ["x"]),
    (pa.array(["a"]).dictionary_encode(), pa.string(), ["a"]),
    (pa.array([None], pa.null()), pa.int64(), [None]),
    (pa.array([[0.5], None, []]), pa.list_(pa.float32()), [[0.5], None, []]),
    (
        pa.array([{"x": 1}]),
        pa.struct([("x", pa.int8()), ("y", pa.string())]),
        [{"x": 1, "y": None}],
    ),
]
NOT_CAST: list[tuple[pa.Array, pa.DataType]] = [
    (pa.array([datetime(2026, 1, 2, 3)]), pa.date32()),
    (pa.array([datetime(2026, 1, 2)]), UTC_US),
    (pa.array([NOON]), pa.timestamp("us")),
    (pa.array([1, 2]), pa.bool_()),
    (pa.array([True]), pa.int64()),
    (pa.array(["007"]), pa.int64()),
    (pa.array([7]), pa.string()),
    (pa.array([0.1]), pa.float32()),
    (pa.array([[0.1]]), pa.list_(pa.float32())),
    (pa.array([{"x": 0.1}]), pa.struct([("x", pa.float32())])),
    (
        pa.array([[("a", 0.1)]], pa.map_(pa.string(), pa.float64())),
        pa.map_(pa.string(), pa.float32()),
    ),
    (pa.array([Decimal("0.1")]), pa.float64()),
    (pa.array([2**53 + 1]), pa.float64()),
    (pa.array([{"x": 1, "y": 2}]), pa.struct([("x", pa.int64())])),
    (pa.array([86_400_001], pa.date64()), pa.date32()),
    (pa.array([b"\xff"]), pa.string()),
]


@pytest.mark.parametrize(("column", "kind", "held"), CAST, ids=lambda x: str(x)[:40])
def test_a_column_is_cast_if_its_values_stay(
    column: pa.Array, kind: pa.DataType, held: list[Any]
) -> None:
    """In one piece or in several."""
    assert exact_cast(column, kind).to_pylist() == held
    assert exact_cast(pa.chunked_array([column, column]), kind).to_pylist() == held * 2


@pytest.mark.parametrize(("column", "kind"), NOT_CAST, ids=lambda x: str(x)[:40])
def test_a_column_is_not_cast_if_a_value_would_change(column: pa.Array, kind: pa.DataType) -> None:
    """Arrow's own cast takes each of these but the last."""
    with pytest.raises((ValueError, pa.ArrowException)):
        exact_cast(column, kind)


def test_what_is_not_a_number_stays_that() -> None:
    """It differs from itself, and is no reason to refuse."""
    (held,) = exact_cast(pa.array([math.nan]), pa.float32()).to_pylist()

    assert math.isnan(held)
