from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Invalid
from penstock.state.keys import KEY_BYTES_MAX, decode_key, encode_key

ZONES = st.sampled_from([UTC, timezone(timedelta(hours=9)), timezone(-timedelta(hours=3))])
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(allow_nan=False).map(lambda number: number + 0.0),
    "str": st.text(max_size=20),
    "bytes": st.binary(max_size=20),
    "bool": st.booleans(),
    "aware": st.datetimes(timezones=ZONES),
    "naive": st.datetimes(),
    "date": st.dates(),
    "decimal": st.decimals(allow_nan=False, allow_infinity=False, places=3),
    "tuple": st.tuples(st.text(max_size=5), st.integers(-9, 9), st.binary(max_size=5)),
}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_keys_sort_as_their_bytes_do(kind: str, data: st.DataObject) -> None:
    """Range scans of maps and timers are only as right as this."""
    one, two = data.draw(KINDS[kind]), data.draw(KINDS[kind])
    assert (encode_key(one) < encode_key(two)) == (one < two)
    assert (encode_key(one) == encode_key(two)) == (one == two)


@given(key=st.one_of(*KINDS.values()), rest=st.binary(max_size=8))
def test_a_key_comes_back_and_ends_where_it_ends(key: Any, rest: bytes) -> None:
    """What follows a key in the database never runs into it."""
    encoded = encode_key(key)
    assert decode_key(encoded + rest) == (key, len(encoded))


@given(one=st.one_of(*KINDS.values()), two=st.one_of(*KINDS.values()))
def test_no_key_is_the_prefix_of_another(one: Any, two: Any) -> None:
    """Or else one key's state would be found in a scan of another's."""
    first, second = encode_key(one), encode_key(two)
    assert first == second or not second.startswith(first)


@pytest.mark.parametrize(
    ("one", "two"), [("", "\0"), ("a", "a\0"), (b"\0", b"\0\xff"), ("\0", "\1")]
)
def test_a_zero_inside_a_key_is_not_its_end(one: Any, two: Any) -> None:
    """Found by chance only now and then, so it is said here."""
    first, second = encode_key(one), encode_key(two)
    assert first < second
    assert not second.startswith(first)
    assert decode_key(second + b"\xff") == (two, len(second))


@pytest.mark.parametrize("places", [5, 27, 28, 29, 60])
def test_no_digit_of_a_decimal_is_lost(places: int) -> None:
    """Decimal rounds to 28 digits in many of its own operations."""
    one, two = (Decimal("1." + "1" * places + last) for last in "12")
    assert encode_key(one) < encode_key(two)
    assert encode_key(one.copy_negate()) > encode_key(two.copy_negate())
    assert decode_key(encode_key(one))[0] == one
    assert encode_key(Decimal("1.50")) == encode_key(Decimal("1.5"))


def test_an_enum_is_a_key_as_its_value() -> None:
    """Users key by what they have."""

    class Colour(IntEnum):
        RED = 1

    assert encode_key(Colour.RED) == encode_key(1)


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        ({"a": 1}, "is a dict"),
        ([1], "is a list"),
        (2**63, "does not fit in 64 bits"),
        (float("nan"), "is not equal to itself"),
        (Decimal("nan"), "is not a number"),
        ("x" * KEY_BYTES_MAX, f"a key may take {KEY_BYTES_MAX}"),
        (("a", object()), "is a object"),
        ("\ud800", "is not Unicode"),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=9))), "is out of range in UTC"),
        (Decimal("1e10000000000"), "is out of range"),
    ],
)
def test_what_cannot_be_a_key_is_refused(key: Any, complaint: str) -> None:
    """A clear sentence rather than an order that is wrong."""
    with pytest.raises(Invalid, match=complaint):
        encode_key(key)


def test_the_same_moment_is_the_same_key_in_every_zone() -> None:
    """A datetime is a moment, not its spelling."""
    seoul = datetime(2026, 1, 1, 9, tzinfo=timezone(timedelta(hours=9)))
    assert encode_key(seoul) == encode_key(datetime(2026, 1, 1, tzinfo=UTC))
    assert encode_key(date(2026, 1, 1)) != encode_key(datetime(2026, 1, 1))
