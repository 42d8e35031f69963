import pyarrow as pa
import pytest

from penstock.errors import Invalid
from penstock.sources.ddl import parse_columns


def test_every_type_can_be_written() -> None:
    """Nested ones, too, and names that are no words."""
    parsed = parse_columns(
        "a string not null, `b c` BIGINT, d decimal(10, 2), e array<struct<x: int, y: double>>, "
        "f map<string, array<long>>, g timestamp, h timestamp_ntz, i decimal"
    )
    assert parsed == pa.schema(
        [
            pa.field("a", pa.string(), nullable=False),
            ("b c", pa.int64()),
            ("d", pa.decimal128(10, 2)),
            ("e", pa.list_(pa.struct([("x", pa.int32()), ("y", pa.float64())]))),
            ("f", pa.map_(pa.string(), pa.list_(pa.int64()))),
            ("g", pa.timestamp("us", tz="UTC")),
            ("h", pa.timestamp("us")),
            ("i", pa.decimal128(10, 0)),
        ]
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "'the end' where there should be a column's name"),
        ("a", "'the end' where there should be a type"),
        ("a strin", "'strin' where there should be a type"),
        ("a string b long", "'b long' where there should be a comma or the end"),
        ("a array<string", "'the end' where there should be '>'"),
        ("a decimal(50)", "up to 38 digits"),
        ("a decimal(x)", "where there should be a number"),
        ("a string not", "where there should be 'null'"),
        ("a string; drop", "cannot be read from"),
    ],
)
def test_what_cannot_be_read_is_shown(text: str, says: str) -> None:
    """With the place, and how it should be."""
    with pytest.raises(Invalid, match="write them like") as caught:
        parse_columns(text)
    assert says in str(caught.value)
