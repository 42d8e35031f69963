import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Invalid
from penstock.sinks.plain_values import (
    as_plain,
    as_text,
    bytes_bound,
    check_plain,
    rank_text,
    row_versions,
)

SEOUL = timezone(timedelta(hours=9))
NESTED = pa.struct(
    [
        ("prices", pa.list_(pa.decimal128(10, 2))),
        ("at", pa.timestamp("us", tz="UTC")),
        ("raw", pa.binary()),
        ("share", pa.float64()),
    ]
)


@pytest.mark.parametrize(
    ("kind", "value", "plain", "text"),
    [
        (pa.string(), 'a "b" \\ 한', 'a "b" \\ 한', 'a "b" \\ 한'),
        (pa.large_string(), "", "", ""),
        (pa.int64(), -(2**63), -(2**63), "-9223372036854775808"),
        (pa.uint64(), 2**64 - 1, 2**64 - 1, "18446744073709551615"),
        (pa.bool_(), True, True, "true"),
        (pa.float64(), 0.1, 0.1, "0.1"),
        (pa.float64(), 1e22, 1e22, "1e+22"),
        (pa.float64(), float("nan"), "NaN", "NaN"),
        (pa.float64(), float("inf"), "Infinity", "Infinity"),
        (pa.float64(), float("-inf"), "-Infinity", "-Infinity"),
        (pa.decimal128(20, 10), Decimal("0.0000000001"), "0.0000000001", "0.0000000001"),
        (pa.decimal128(5, -3), Decimal("12E+3"), "12000", "12000"),
        (
            pa.timestamp("us", tz="Asia/Seoul"),
            datetime(2026, 3, 1, 9, 30, 15, 123456, tzinfo=SEOUL),
            "2026-03-01T00:30:15.123456Z",
            "2026-03-01T00:30:15.123456Z",
        ),
        (
            pa.timestamp("us"),
            datetime(2026, 3, 1, 9, 30),
            "2026-03-01T09:30:00",
            "2026-03-01T09:30:00",
        ),
        (pa.date32(), date(2026, 2, 28), "2026-02-28", "2026-02-28"),
        (pa.time64("us"), time(1, 2, 3, 4), "01:02:03.000004", "01:02:03.000004"),
        (pa.duration("us"), timedelta(days=1, microseconds=5), "PT86400.000005S", None),
        (pa.duration("us"), -timedelta(seconds=90), "-PT90S", "-PT90S"),
        (pa.binary(), b"\x00\xff", "AP8=", "AP8="),
        (pa.list_(pa.string()), ["a", None, ""], ["a", None, ""], '["a",null,""]'),
        (pa.map_(pa.string(), pa.int64()), [("a", 1), ("b", None)], {"a": 1, "b": None}, None),
        (pa.map_(pa.int64(), pa.binary()), [(1, b"x")], [[1, "eA=="]], '[[1,"eA=="]]'),
        (
            NESTED,
            {
                "prices": [Decimal("1.50"), None],
                "at": datetime(2026, 1, 1, tzinfo=UTC),
                "raw": b"",
                "share": float("nan"),
            },
            {"prices": ["1.50", None], "at": "2026-01-01T00:00:00Z", "raw": "", "share": "NaN"},
            '{"prices":["1.50",null],"at":"2026-01-01T00:00:00Z","raw":"","share":"NaN"}',
        ),
    ],
    ids=str,
)
def test_every_value_has_one_spelling(
    kind: pa.DataType, value: Any, plain: Any, text: str | None
) -> None:
    """Readers in any language must get back what was written, and the same row the same text."""
    held = pa.array([value, None], kind).to_pylist()

    assert [as_plain(kind)(each) for each in held] == [plain, None]
    if text is not None:
        assert as_text(kind)(held[0]) == text


def test_a_moment_keeps_its_nanoseconds() -> None:
    """What is cut off cannot be told from what was never there."""
    kind = pa.timestamp("ns", tz="UTC")
    (held,) = pa.array([1_772_325_015_123_456_789], pa.int64()).cast(kind).to_pylist()

    assert as_text(kind)(held) == "2026-03-01T00:30:15.123456789Z"


@pytest.mark.parametrize(
    "kind",
    [
        pa.dictionary(pa.int32(), pa.string()),
        pa.duration("ns"),
        pa.time64("ns"),
        pa.list_(pa.month_day_nano_interval()),
        pa.map_(pa.string(), pa.duration("ns")),
        pa.struct([("a", pa.int64()), ("a", pa.int64())]),
    ],
    ids=str,
)
def test_a_type_without_one_spelling_is_refused(kind: pa.DataType) -> None:
    """When the job is loaded, not when its first row comes."""
    with pytest.raises(Invalid) as caught:
        check_plain("sink people", pa.schema([("user", pa.string()), ("odd", kind)]))

    assert str(caught.value) == (
        f"sink people, column 'odd' is {kind}, and there is no one text for its values: "
        "cast it, or leave it out."
    )


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.just("\x00" * 9)
TREES = pa.schema(
    [
        ("word", pa.string()),
        ("raw", pa.binary()),
        ("n", pa.int64()),
        ("price", pa.decimal256(76, 3)),
        ("list", pa.list_(pa.list_(pa.string()))),
        ("map", pa.map_(pa.string(), pa.binary())),
        ("tree", pa.struct([("이름", pa.list_(pa.string())), ("n", pa.int64())])),
    ]
)
ROWS = st.fixed_dictionaries(
    {
        "word": st.none() | WORDS,
        "raw": st.none() | st.binary(max_size=20),
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "price": st.none() | st.just(Decimal("-" + "9" * 73 + ".999")),
        "list": st.none() | st.lists(st.none() | st.lists(st.none() | WORDS, max_size=3)),
        "map": st.none() | st.lists(st.tuples(WORDS, st.none() | st.binary(max_size=9))),
        "tree": st.none()
        | st.fixed_dictionaries(
            {"이름": st.none() | st.lists(WORDS), "n": st.none() | st.integers(0, 9)}
        ),
    }
)


@given(st.lists(ROWS, min_size=1, max_size=5), st.integers(0, 2), st.booleans())
def test_no_row_is_longer_than_its_bound(
    rows: list[dict[str, Any]], skipped: int, chunked: bool
) -> None:
    """A row that is too long and not looked at would be refused after the decision."""
    whole = pa.Table.from_pylist(rows, TREES)
    table = whole.slice(skipped)
    if chunked:
        table = pa.concat_tables([table, whole.slice(1)])

    lengths = [
        sum(
            len(name.encode()) + len(as_text(TREES.field(name).type)(value).encode())
            for name, value in row.items()
            if value is not None
        )
        for row in table.to_pylist()
    ]
    assert [bound >= length for bound, length in zip(bytes_bound(table), lengths, strict=True)] == (
        [True] * len(lengths)
    )


PLACES = st.tuples(
    st.integers(1, 999_999), st.integers(1, 10**9), st.integers(0, 99_999), st.integers(0, 10**9)
)


@given(st.lists(PLACES, min_size=2, max_size=8))
def test_versions_sort_as_what_they_stand_for(places: list[tuple[int, int, int, int]]) -> None:
    """Text is compared by the store: 10 must come after 9."""
    ranks, *columns = (list(values) for values in zip(*places, strict=True))
    table = pa.table(columns, names=["_epoch", "_partition", "_sequence"])
    texts = [
        rank_text(rank) + version for rank, version in zip(ranks, row_versions(table), strict=True)
    ]

    assert [places[texts.index(text)] for text in sorted(texts)] == sorted(places)


def test_json_is_json() -> None:
    """A reader with no more than a JSON parser understands nested values."""
    text = as_text(pa.list_(pa.float64()))([float("inf"), 1.5, None])

    assert json.loads(text) == ["Infinity", 1.5, None]
