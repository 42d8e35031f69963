"""Rows as messages: what is sent for each, and what is refused before it is staged."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import Invalid
from penstock.ids import Attempt, Epoch
from penstock.sinks.kafka import KafkaSink
from penstock.sinks.kafka_messages import Chunk
from penstock.sinks.staged import staged
from tests.support.sink_cases import PEOPLE, Row, apply, people

ADA = {"user": "ada", "n": 1}
FLAGGED = pa.schema([*PEOPLE, ("gone", pa.bool_())])
HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))


def sink(**given: Any) -> KafkaSink:
    return KafkaSink("people", "127.0.0.1:1", "people", **given)


def messages(rows: list[Row], columns: pa.Schema = PEOPLE, **given: Any) -> Chunk:
    """The only chunk of some rows, as the leader makes it of what was staged."""
    made = sink(**given)
    made.check(pa.Table.from_pylist(rows, columns))
    [chunk] = made.messages.of(apply(Epoch(7), rows, columns=columns), columns)
    return chunk


def refused(rows: list[Row], columns: pa.Schema = PEOPLE, **given: Any) -> str:
    with pytest.raises(Invalid) as caught:
        sink(**given).check(pa.Table.from_pylist(rows, columns))
    return str(caught.value)


def test_a_row_is_an_object_of_json() -> None:
    """Without a word more, every column is in the value, and there is no key."""
    assert messages([ADA, {"user": None, "n": None}]) == Chunk(
        [b'{"user":"ada","n":1}', b'{"user":null,"n":null}'], None, None, None
    )


def test_a_key_is_a_text_and_stays_in_the_value_unless_told() -> None:
    """Most readers of a topic look at the value alone."""
    kept = messages([ADA], key_column="user")
    bare = messages([ADA], key_column="user", key_in_value=False)

    assert (kept.keys, kept.values) == ([b"ada"], [b'{"user":"ada","n":1}'])
    assert (bare.keys, bare.values) == ([b"ada"], [b'{"n":1}'])


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"key_column": "n"}, b"1"),
        ({"key_column": "n", "key": "json"}, b"1"),
        ({"key_column": "user", "key": "json"}, b'"ada"'),
        ({"key_column": ["user", "n"]}, b'{"user":"ada","n":1}'),
        ({"key_column": ["n", "user"], "key": "json"}, b'{"n":1,"user":"ada"}'),
    ],
    ids=str,
)
def test_a_key_of_other_types_or_of_several_columns(given: dict[str, Any], key: bytes) -> None:
    """The same key is always the same bytes, in the order in which it was named."""
    assert messages([ADA], **given).keys == [key]


def test_a_value_can_be_text_or_bytes() -> None:
    """One column besides the key, or the one that is named for it."""
    text = pa.schema([("user", pa.string()), ("said", pa.string())])
    raw = pa.schema([("user", pa.binary()), ("note", pa.int64()), ("value", pa.binary())])

    assert messages([{"user": "ada", "said": "안녕"}], text, key_column="user", value="string") == (
        Chunk(["안녕".encode()], [b"ada"], None, None)
    )
    row = {"user": b"\x00\xff", "note": 1, "value": b"\xff\x00"}
    made = messages([row], raw, key_column="user", key="bytes", value="bytes")
    assert made == Chunk([b"\xff\x00"], [b"\x00\xff"], None, None)
    assert messages([ADA], key_column="user", value="string").values == [b"1"]


def test_a_row_that_deletes_is_a_tombstone() -> None:
    """Of it only the key counts, and the column itself is in no message."""
    rows = [{**ADA, "gone": True}, {**ADA, "gone": False}, {**ADA, "gone": None}]
    made = messages(rows, FLAGGED, key_column="user", deletes="gone")
    empty = messages(
        [{"user": "ada", "n": None, "gone": True}], FLAGGED, key_column="user", deletes="gone",
        value="string",
    )  # fmt: skip

    assert made.keys == [b"ada"] * 3
    assert made.values == [None, b'{"user":"ada","n":1}', b'{"user":"ada","n":1}']
    assert empty.values == [None]


def test_headers_and_times_are_those_of_their_columns() -> None:
    """Headers are not in the value, the event time is; a row without one gets its sending time."""
    columns = pa.schema([*PEOPLE, ("at", pa.timestamp("us", tz="UTC")), ("heads", HEADERS)])
    at = datetime(2026, 3, 1, 12, 0, 0, 123_456, tzinfo=UTC)
    heads = [{"name": "a", "value": b"\x00"}, {"name": "a", "value": None}]
    rows = [{**ADA, "at": at, "heads": heads}, {**ADA, "at": None, "heads": None}]
    made = messages(rows, columns, headers="heads", event_time="at")

    assert made.times_ms == [1_772_366_400_123, 0]
    assert made.headers == [[("a", b"\x00"), ("a", None)], []]
    assert json.loads(made.values[0] or b"") == {**ADA, "at": "2026-03-01T12:00:00.123456Z"}


def test_provenance_is_in_headers_beside_those_of_a_column() -> None:
    """Anybody can tell which epoch a message is of."""
    columns = pa.schema([*PEOPLE, ("heads", HEADERS)])
    row = {**ADA, "heads": [{"name": "a", "value": b"b"}]}
    origin = [("penstock.epoch", "7"), ("penstock.partition", "0"), ("penstock.sequence", "0")]

    assert messages([ADA], provenance=True).headers == [origin]
    made = messages([row], columns, provenance=True, headers="heads")
    assert made.headers == [[("a", b"b"), *origin]]


def test_values_are_spelt_as_everywhere() -> None:
    """What JSON has no word for is text, and the same in every store without types."""
    columns = pa.schema(
        [
            ("price", pa.decimal128(20, 4)),
            ("share", pa.float64()),
            ("raw", pa.binary()),
            ("tags", pa.list_(pa.string())),
            ('a "quoted"\nname', pa.bool_()),
        ]
    )
    row = {
        "price": Decimal("-1.5"), "share": float("nan"), "raw": b"\xff", "tags": ["a", None],
        'a "quoted"\nname': True,
    }  # fmt: skip
    [value] = messages([row], columns).values

    assert json.loads(value or b"") == {
        "price": "-1.5000", "share": "NaN", "raw": "/w==", "tags": ["a", None],
        'a "quoted"\nname': True,
    }  # fmt: skip


def test_many_rows_are_several_chunks_in_their_order() -> None:
    """While one is on its way the next is made; none is empty, and large rows come in fewer."""
    made = sink(key_column="user")
    few = list(made.messages.of(apply(Epoch(1), people(1, 25_000)), PEOPLE))
    large = [{"user": "x" * 100_000, "n": n} for n in range(100)]
    wide = list(made.messages.of(apply(Epoch(1), large), PEOPLE))

    assert [len(chunk) for chunk in few] == [10_000, 10_000, 5_000]
    assert [json.loads(v or b"")["n"] for c in few for v in c.values] == list(range(25_000))
    assert max(len(chunk) for chunk in wide) <= 41
    assert list(made.messages.of(apply(Epoch(1), []), PEOPLE)) == []


LISTED = pa.schema([*PEOPLE, ("heads", pa.list_(pa.string()))])
TIMED = pa.schema([*PEOPLE, ("at", pa.timestamp("s"))])
NAMED = pa.schema([*PEOPLE, ("heads", HEADERS)])
TEXT = pa.schema([("user", pa.string()), ("said", pa.string())])
ROWS: dict[str, tuple[list[Row], pa.Schema, dict[str, Any], str]] = {
    "no such key": ([], PEOPLE, {"key_column": "id"}, "column 'id' is its key"),
    "a key that is null": ([{"user": None, "n": 1}], PEOPLE, {"key_column": "user"}, "no value"),
    "a key that is no bytes": (
        [], PEOPLE, {"key_column": "user", "key": "bytes"}, "is string, which is not bytes",
    ),
    "deletes without a key": ([], FLAGGED, {"deletes": "gone"}, "the sink has no key"),
    "deletes that are no truth": (
        [], PEOPLE, {"key_column": "user", "deletes": "n"}, "deletes rows, and is int64",
    ),
    "text of two columns": ([], PEOPLE, {"value": "string"}, "has value='string', and rows of"),
    "text of no column": (
        [], PEOPLE.remove(1), {"value": "string", "key_column": "user"}, "and rows of",
    ),
    "bytes that are none": (
        [], PEOPLE, {"value": "bytes", "key_column": "user"}, "is int64, which is not bytes",
    ),
    "a tombstone by mistake": (
        [{"user": "ada", "said": None}], TEXT, {"value": "string", "key_column": "user"},
        "Kafka would take that for a tombstone",
    ),
    "no such headers": ([], PEOPLE, {"headers": "heads"}, "column 'heads' is its headers"),
    "headers that are none": ([], LISTED, {"headers": "heads"}, "is list<"),
    "headers without a name": (
        [{**ADA, "heads": [{"name": None, "value": b""}]}], NAMED, {"headers": "heads"},
        "one of them has no name",
    ),
    "a time that is none": ([], PEOPLE, {"event_time": "n"}, "is its time, and is int64"),
    "a time before Kafka's": (
        [{**ADA, "at": datetime(1969, 12, 31)}], TIMED, {"event_time": "at"}, "is before 1970",
    ),
    "a type without a spelling": (
        [], pa.schema([("x", pa.duration("ns"))]), {}, "there is no one text for its values",
    ),
    "a column twice": (
        [], pa.schema([("x", pa.int64()), ("x", pa.int64())]), {}, "column 'x' is there twice",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ROWS)
def test_rows_that_make_no_message_are_refused(case: str) -> None:
    """Before they are staged: a broker would refuse them for ever."""
    rows, columns, given, found = ROWS[case]

    assert found in refused(rows, columns, **given)


def test_a_time_that_cannot_be_counted_is_refused() -> None:
    """Seconds far away do not become milliseconds that are near."""
    table = pa.table({"at": pa.array([2**62], pa.timestamp("s"))})

    with pytest.raises(Invalid, match="row 0 is 4611686018427387904 s since 1970, which"):
        sink(event_time="at").check(table)


def test_text_that_is_none_is_refused() -> None:
    """Spark calls any bytes a string; after the decision nobody could spell them."""
    broken = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"], pa.binary()).buffers())

    with pytest.raises(Invalid, match="column 'user', row 0 holds text that is not UTF-8"):
        staged(sink(), Epoch(1), 0, Attempt("a"), pa.table({"user": broken}))


@pytest.mark.parametrize("given", [{}, {"key_column": "user"}, {"headers": "heads"}], ids=str)
def test_a_message_that_is_too_large_is_refused_before_it_is_staged(given: dict[str, Any]) -> None:
    """The limit is librdkafka's, or the one in the settings; frame, key and headers count."""
    heads = [{"name": "x", "value": b"x" * 500_000}] if "headers" in given else None
    large = {"user": "x" * (600_000 if given else 1_000_000), "n": 1, "heads": heads}
    said = refused([large], NAMED, **given)

    assert "and at most 1,000,000 are sent" in said
    assert "emit less in one row, or raise message.max.bytes in its settings" in said
    sink(settings={"message.max.bytes": 3_000_000}, **given).check(
        pa.Table.from_pylist([large], NAMED)
    )
    small = {**large, "user": "x" * 100_000}
    sink(**given).check(pa.Table.from_pylist([small], NAMED))


def test_the_largest_message_that_passes_is_one_that_a_producer_takes() -> None:
    """Escapes take room: it is the bytes that are sent that count, not those that were emitted."""
    for size in range(166_400, 166_700, 20):
        table = pa.table({"user": ["\x01" * size]})
        try:
            sink().check(table)
        except Invalid:
            assert size > 166_579
        else:
            [chunk] = sink().messages.chunks(table)
            assert len(chunk.values[0] or b"") <= 1_000_000
