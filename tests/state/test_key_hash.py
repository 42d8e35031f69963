"""The oracle is the `xxhash` package, row by row; the literals are what Spark 4.0.0 gives."""

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Invalid
from penstock.state import key_hash
from penstock.state.key_hash import VECTOR_BYTES_MAX, hash_keys, key_groups

FEWER = settings(max_examples=50, deadline=None)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOMENT = datetime(2026, 1, 1, 12, 34, 56, 789012, tzinfo=UTC)
NINES = Decimal("9" * 38)

SPARK = [
    (True, pa.bool_(), -6698625589789238999),
    (False, pa.bool_(), 3614696996920510707),
    (1, pa.int8(), -6698625589789238999),
    (-1, pa.int8(), 2017008487422258757),
    (-32768, pa.int16(), -904511417458573795),
    (0, pa.int32(), 3614696996920510707),
    (-(2**31), pa.int32(), 2073849959933241805),
    (0, pa.int64(), -5252525462095825812),
    (1, pa.int64(), -7001672635703045582),
    (-(2**63), pa.int64(), -8619748838626508300),
    (1.5, pa.float32(), 6163473420726370430),
    (-0.0, pa.float32(), 3614696996920510707),
    (float("nan"), pa.float32(), 2692338816207849720),
    (float("-inf"), pa.float32(), -7580553461823983095),
    (1.5, pa.float64(), 7738255526519901366),
    (-2.25, pa.float64(), -8344676507314498009),
    (-0.0, pa.float64(), -5252525462095825812),
    (float("nan"), pa.float64(), -3127944061524951246),
    (float("inf"), pa.float64(), 5810986238603807492),
    ("", pa.string(), -7444071767201028348),
    ("a", pa.string(), -8582455328737087284),
    ("Spark", pa.string(), -4294468057691064905),
    ("abcdefgh", pa.large_string(), 2470326616177429180),
    ("ünïcödé ☃", pa.string(), -2525746243611666452),
    ("0123456789" * 3, pa.string(), 1470524853266396111),
    ("0123456789" * 4, pa.string(), 5508798028064852934),
    ("0123456789" * 25, pa.string(), 7730686629957588239),
    ("0123456789" * 30, pa.string(), 5171422011213638531),
    (b"", pa.binary(), -7444071767201028348),
    (b"\x00\xff\x10", pa.large_binary(), 5415089035989094387),
    (b"\x00\x01\x02\x03\x04\x05\x06\x07", pa.binary(8), -7143238906056518746),
    (date(2026, 1, 1), pa.date32(), -7748453683161933313),
    (date(1969, 12, 31), pa.date32(), 2017008487422258757),
    (MOMENT, pa.timestamp("us", tz="UTC"), -350502928003009230),
    (MOMENT, pa.timestamp("ns", tz="Asia/Tokyo"), -350502928003009230),
    (MOMENT.replace(tzinfo=None), pa.timestamp("us"), -350502928003009230),
    (EPOCH - timedelta(microseconds=1), pa.timestamp("us", tz="UTC"), 3858142552250413010),
    (Decimal("123.45"), pa.decimal128(10, 2), 8791244235932249694),
    (Decimal("-123.45"), pa.decimal128(18, 2), -4814648695243699264),
    (Decimal("123.45"), pa.decimal128(19, 2), -3765588051240043440),
    (Decimal("-123.45"), pa.decimal128(38, 2), 5441050064733452455),
    (Decimal(0), pa.decimal128(38), -8959994473701255385),
    (Decimal(-1), pa.decimal128(38), -4006032525457443936),
    (Decimal(128), pa.decimal128(38), 6715097930120473301),
    (Decimal(-128), pa.decimal128(38), -7898411661632158123),
    (Decimal(255), pa.decimal128(20), 879945414100663330),
    (NINES, pa.decimal128(38), -47190729175993179),
    (NINES.copy_negate(), pa.decimal128(38), -2254039905620870768),
    (None, pa.string(), 42),
    (None, pa.int64(), 42),
]


@pytest.mark.parametrize(("value", "kind", "expected"), SPARK, ids=str)
def test_spark_gives_the_same(value: Any, kind: pa.DataType, expected: int) -> None:
    """Values of `xxhash64` in Spark 4.0.0: a key that hashes otherwise is in another group."""
    assert hash_keys([pa.array([value], kind)]).tolist() == [expected]


def test_spark_gives_the_same_for_several_columns() -> None:
    """Values of Spark 4.0.0: each column's hash is the seed of the next, a null changes nothing."""
    text, number = pa.array(["a", None, "a", None]), pa.array([1, 1, None, None], pa.int64())
    small = pa.array([None, None, 2, None], pa.int32())
    expected = [-1010403264180844141, -7001672635703045582, -8209314916407280043, 42]

    assert hash_keys([text, number, small]).tolist() == expected
    assert key_groups([text, number, small]).tolist() == [147, 50, 85, 42]


def test_spark_gives_the_same_for_a_mixed_key() -> None:
    """Four types in one key, as in Spark 4.0.0."""
    key = [pa.array(["user-17"]), pa.array([2.5]), pa.array([True]), pa.array([date(2026, 1, 1)])]

    assert hash_keys(key).tolist() == [-7251854982405383581]
    assert key_groups(key).tolist() == [99]


def as_int(value: int) -> bytes:
    return struct.pack("<i", value)


def as_long(value: int) -> bytes:
    return struct.pack("<q", value)


def as_unscaled(value: Decimal) -> bytes:
    """The fewest big-endian bytes, as `BigInteger.toByteArray` gives them."""
    unscaled = int(f"{value:f}".replace(".", ""))
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return unscaled.to_bytes(size, "big", signed=True)


def one_by_one(*columns: tuple[list[Any], Callable[[Any], bytes]]) -> list[int]:
    """What the `xxhash` package gives, with Spark's rules for seeds and nulls."""
    hashes = [42] * len(columns[0][0])
    for values, as_bytes in columns:
        for row, value in enumerate(values):
            if value is not None:
                hashes[row] = xxhash.xxh64_intdigest(as_bytes(value), hashes[row])
    return [value - (1 << 64) if value >> 63 else value for value in hashes]


LENGTHS = st.one_of(st.integers(0, 40), st.integers(0, VECTOR_BYTES_MAX + 40))
BYTES = LENGTHS.flatmap(lambda size: st.binary(min_size=size, max_size=size))
LONGS = st.integers(-(2**63), 2**63 - 1)
DECIMALS = st.one_of(
    st.integers(-(10**38) + 1, 10**38 - 1), st.integers(-(2**20), 2**20), LONGS
).map(lambda unscaled: Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -2)))


def rows(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | values, max_size=30)


@FEWER
@given(rows(BYTES))
def test_bytes_of_any_length_are_hashed_as_by_the_reference(values: list[bytes | None]) -> None:
    """Every path through XXH64: stripes, words, halves, single bytes, and the long ones."""
    for kind in (pa.binary(), pa.large_binary()):
        assert hash_keys([pa.array(values, kind)]).tolist() == one_by_one((values, bytes))


@FEWER
@given(rows(st.text(st.characters(codec="utf-8"), max_size=50)))
def test_strings_are_hashed_as_their_utf8(values: list[str | None]) -> None:
    """Also when encoded as a dictionary, where the hash is of the string, not of its number."""
    expected = one_by_one((values, str.encode))
    for array in (
        pa.array(values, pa.string()),
        pa.array(values, pa.large_string()),
        pa.array(values, pa.string()).dictionary_encode(),
    ):
        assert hash_keys([array]).tolist() == expected


@FEWER
@given(rows(LONGS))
def test_longs_are_hashed_as_by_the_reference(values: list[int | None]) -> None:
    """And a moment is the long that counts its microseconds."""
    for kind in (pa.int64(), pa.timestamp("us"), pa.timestamp("us", tz="Europe/Paris")):
        array = pa.array(values, pa.int64()).view(kind)
        assert hash_keys([array]).tolist() == one_by_one((values, as_long))


@FEWER
@given(rows(st.integers(-(2**7), 2**7 - 1)))
def test_small_whole_numbers_are_one_key_whatever_their_width(values: list[int | None]) -> None:
    """Spark widens them to an int first."""
    expected = one_by_one((values, as_int))
    for kind in (pa.int8(), pa.int16(), pa.int32()):
        assert hash_keys([pa.array(values, kind)]).tolist() == expected
    assert hash_keys([pa.array(values, pa.int32()).view(pa.date32())]).tolist() == expected


@FEWER
@given(rows(DECIMALS))
def test_large_decimals_are_hashed_as_the_fewest_bytes(values: list[Decimal | None]) -> None:
    """Where a sign byte is needed, and where it is not."""
    array = pa.array(values, pa.decimal128(38, 2))

    assert hash_keys([array]).tolist() == one_by_one((values, as_unscaled))


@FEWER
@given(rows(st.binary(min_size=11, max_size=11)))
def test_binaries_of_one_width_are_hashed_as_their_bytes(values: list[bytes | None]) -> None:
    """They have no offsets of their own."""
    array = pa.array(values, pa.binary(11))

    assert hash_keys([array]).tolist() == one_by_one((values, bytes))


@FEWER
@given(st.lists(st.tuples(st.none() | BYTES, st.none() | LONGS, st.none() | BYTES), max_size=20))
def test_columns_are_folded_row_by_row(keys: list[tuple[Any, Any, Any]]) -> None:
    """Every row has its own seed from the second column on, also one that is hashed alone."""
    first, second, third = ([key[number] for key in keys] for number in range(3))
    columns = [pa.array(first, pa.binary()), pa.array(second, pa.int64())]
    columns.append(pa.array(third, pa.large_binary()))

    expected = one_by_one((first, bytes), (second, as_long), (third, bytes))
    assert hash_keys(columns).tolist() == expected


SLICED = [
    pa.array([True, None, False] * 7),
    pa.array([*range(20), None], pa.int16()),
    pa.array([*range(20), None], pa.int64()),
    pa.array([-0.0, 1.5, None] * 7, pa.float32()),
    pa.array(["", "a" * 9, None, "b" * 300, "c" * 33] * 4),
    pa.array([bytes([n]) * 5 for n in range(20)] + [None], pa.binary(5)),
    pa.array([Decimal(n) ** 7 for n in range(20)] + [None], pa.decimal128(30)),
    pa.array([Decimal(n) for n in range(20)] + [None], pa.decimal128(9)),
    pa.array([date(2026, 1, n) for n in range(1, 21)], pa.date32()),
    pa.array([MOMENT, None] * 10, pa.timestamp("us", tz="UTC")),
    pa.array(["x", "y", None] * 7).dictionary_encode(),
]


@pytest.mark.parametrize("array", SLICED, ids=lambda array: str(array.type))
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_slices_and_chunks_change_nothing(array: pa.Array, data: st.DataObject) -> None:
    """Arrow arrays begin in the middle of their buffers, and tables come in chunks."""
    begin, end = sorted(data.draw(st.tuples(*[st.integers(0, len(array))] * 2)))
    whole = hash_keys([array]).tolist()
    chunked = pa.chunked_array([array[:begin], array[begin:end], array[end:]])

    assert hash_keys([array.slice(begin, end - begin)]).tolist() == whole[begin:end]
    assert hash_keys([chunked]).tolist() == whole
    assert hash_keys([chunked, array]).tolist() == hash_keys([array, chunked]).tolist()


def test_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large column is hashed piece by piece, which nobody may notice."""
    values = [None if n % 7 == 0 else "k" * (n % 50) for n in range(200)]
    whole = hash_keys([pa.array(values)]).tolist()
    monkeypatch.setattr(key_hash, "PIECE_ROWS", 9)

    assert hash_keys([pa.array(values)]).tolist() == whole


def test_moments_of_every_unit_are_counted_in_microseconds() -> None:
    """A finer one is cut off towards the past, as everywhere in Spark."""
    second = pa.array([-5], pa.int64())
    expected = hash_keys([pa.array([-5_000_000], pa.int64())]).tolist()
    finer = pa.array([-5_000_000_000 + 999], pa.int64()).view(pa.timestamp("ns"))

    assert hash_keys([second.view(pa.timestamp("s"))]).tolist() == expected
    assert hash_keys([pa.array([-5_000]).view(pa.timestamp("ms"))]).tolist() == expected
    assert hash_keys([finer]).tolist() == expected


def test_every_nan_is_one_key() -> None:
    """Two NaNs with different bits are the same key in Java."""
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000123], np.uint64)

    assert len(set(hash_keys([pa.array(bits.view(np.float64))]).tolist())) == 1


def test_no_rows_have_no_hashes() -> None:
    """An empty batch is as good as any."""
    for column in (pa.array([], pa.string()), pa.chunked_array([], pa.timestamp("s"))):
        assert hash_keys([column]).tolist() == []
        assert key_groups([column]).dtype == np.uint16


@FEWER
@given(st.lists(LONGS, max_size=30), st.integers(1, 1 << 15))
def test_a_key_group_is_the_hash_modulo_and_never_negative(values: list[int], groups: int) -> None:
    """Spark says `pmod`; a remainder that keeps the sign would be half wrong."""
    column = [pa.array(values, pa.int64())]

    assert key_groups(column, groups).tolist() == [h % groups for h in hash_keys(column).tolist()]


NO_KEYS = [
    pa.array([[1]]),
    pa.array([{"a": 1}]),
    pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    pa.array([1], pa.uint32()),
    pa.array([None]),
    pa.array([1], pa.duration("s")),
    pa.array([np.float16(1)], pa.float16()),
]


@pytest.mark.parametrize("array", NO_KEYS, ids=lambda array: str(array.type))
def test_a_type_that_is_no_key_is_named(array: pa.Array) -> None:
    """Whoever keys by it learns which column it is, before any row is hashed."""
    with pytest.raises(Invalid) as caught:
        hash_keys([pa.array(["a"]), array])

    assert caught.value.subject == "key column 2 of 2"
    assert caught.value.found == f"is a {array.type}, which is no key"


@pytest.mark.parametrize("columns", [[], [pa.array(["a"]), pa.array(["a", "b"])]])
def test_columns_must_be_there_and_equally_long(columns: Sequence[pa.Array]) -> None:
    """A hash over rows that do not belong together would be one of nothing."""
    with pytest.raises(Invalid, match="equally long"):
        hash_keys(columns)


@pytest.mark.parametrize("groups", [0, -1, (1 << 15) + 1])
def test_an_impossible_number_of_groups_is_refused(groups: int) -> None:
    """A group must fit where it is stored."""
    with pytest.raises(Invalid, match="key groups"):
        key_groups([pa.array(["a"])], groups)


def test_a_moment_beyond_the_calendar_is_refused() -> None:
    """Wrapped around, it would be another key without a word."""
    far = pa.array([2**62], pa.int64()).view(pa.timestamp("s"))
    with pytest.raises(Invalid, match="outside the years"):
        hash_keys([far])
