"""The hash of a row: equal rows have it in common, and nothing else does."""

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.chaos.row_hash import hash_rows

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False, None]),
    "int8": (pa.int8(), [1, -1, 0, None]),
    "uint64": (pa.uint64(), [1, 2**64 - 1, 0, None]),
    "float": (pa.float32(), [0.5, 0.0, -0.0, float("inf"), None]),
    "double": (pa.float64(), [0.5, 0.0, -0.0, float("inf"), None]),
    "string": (pa.string(), ["", "a", "b", "a" * 300, None]),
    "large": (pa.large_string(), ["", "a", "b", None]),
    "binary": (pa.binary(), [b"", b"\0", b"\0\0", None]),
    "decimal": (pa.decimal128(20, 2), [Decimal("1.10"), Decimal("-1.10"), None]),
    "wide": (pa.decimal256(50, 2), [Decimal("1.10"), Decimal("-1.10"), None]),
    "date": (pa.date32(), [date(2026, 1, 1), date(1969, 12, 31), None]),
    "time": (pa.time32("s"), [time(1), time(2), None]),
    "nanos": (pa.timestamp("ns"), [np.datetime64(1, "ns"), np.datetime64(2, "ns"), None]),
    "moment": (pa.timestamp("us", "UTC"), [datetime(2026, 1, 1), datetime(2026, 1, 2), None]),
    "length": (pa.duration("ms"), [timedelta(1), timedelta(2), None]),
    "list": (pa.list_(pa.int64()), [[], [1], [1, 1], [None], None]),
    "struct": (pa.struct([("a", pa.int64())]), [{"a": 1}, {"a": None}, None]),
    "map": (pa.map_(pa.string(), pa.int64()), [[], [("a", 1)], None]),
    "coded": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", None]),
    "null": (pa.null(), [None]),
}


def hashes(values: list[Any], kind: pa.DataType) -> list[tuple[int, int]]:
    table = pa.table({"value": pa.array(values, kind)})
    return [tuple(each) for each in hash_rows(table, ["value"]).tolist()]


@pytest.mark.parametrize("name", VALUES)
def test_different_values_of_a_type_have_different_hashes(name: str) -> None:
    """Nulls, zeros and empty ones too, in both words."""
    kind, values = VALUES[name]
    found = hashes(values, kind)

    for word in range(2):
        assert len({each[word] for each in found}) == len(values)


@pytest.mark.parametrize("name", VALUES)
def test_where_rows_lie_in_memory_makes_no_difference(name: str) -> None:
    """Chunked, sliced, alone: a sink gives them back in pieces of its own."""
    kind, values = VALUES[name]
    whole = pa.array(values * 3, kind)
    pieces = pa.chunked_array([whole.slice(0, 2), whole.slice(2)], kind)

    assert (
        hash_rows(pa.table({"value": pieces}), ["value"]).tolist()
        == hash_rows(pa.table({"value": whole}), ["value"]).tolist()
        == [hash_rows(pa.table({"value": whole.slice(at, 1)}), ["value"]).tolist()[0]
            for at in range(len(whole))]
    )  # fmt: skip


def test_text_is_text_however_wide_its_places_are() -> None:
    """A client may choose large strings; their rows are the same rows."""
    assert hashes(["a", ""], pa.string()) == hashes(["a", ""], pa.large_string())
    assert hashes([1, 2], pa.int16()) == hashes([1, 2], pa.int64())


def test_every_nan_is_the_same() -> None:
    """A store may give another one back."""
    odd = np.array([0x7FF8000000000001], np.uint64).view(np.float64)[0]

    assert len(set(hashes([float("nan"), odd], pa.float64()))) == 1


def test_which_column_a_value_is_in_counts() -> None:
    """Also where the other one is null."""
    rows = pa.table({"a": ["x", None, "y"], "b": [None, "x", "y"]})

    assert len({tuple(each) for each in hash_rows(rows, ["a", "b"]).tolist()}) == 3


@given(st.lists(st.tuples(st.text(max_size=40), st.integers(-9, 9)), min_size=1, max_size=40))
def test_rows_are_equal_if_their_hashes_are(rows: list[tuple[str, int]]) -> None:
    """And the other way round."""
    table = pa.table({"a": [a for a, _ in rows], "b": [b for _, b in rows]})
    found = [tuple(each) for each in hash_rows(table, ["a", "b"]).tolist()]

    assert [found.index(each) for each in found] == [rows.index(each) for each in rows]
