"""Messages become rows, each by itself alone."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
)
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Invalid
from penstock.sources import META, META_NAME
from penstock.sources.files_pieces import DAMAGE
from penstock.sources.files_shape import Shape
from penstock.sources.files_text import JsonLines
from penstock.sources.kafka import DroppedMessage, Kafka
from penstock.sources.kafka_bodies import Bytes, Json, Text
from penstock.sources.kafka_rows import Rows
from penstock.sources.protocol import TIME

COLUMNS = pa.schema([pa.field("n", pa.int64(), nullable=False), ("s", pa.string())])
AT_MS = 1_700_000_000_000
AT = datetime.fromtimestamp(AT_MS / 1000, UTC)


def rows_of(**given: Any) -> Rows:
    settings = {"key": None, "value": Bytes(), "key_column": "key", "headers": None}
    return Rows(**{**settings, "deletes": None, **given})


def message(offset: int, value: bytes | None, **given: Any) -> Message:
    stamp = (TIMESTAMP_CREATE_TIME, AT_MS)
    return Message(**{"offset": offset, "value": value, "timestamp": stamp, **given})


def made(rows: Rows, messages: list[Message]) -> list[Any]:
    """Rows as dicts, and what was left out, in order."""
    found: list[Any] = []
    for piece in rows.made(messages, 5):
        found += [piece] if isinstance(piece, DroppedMessage) else piece.to_pylist()
    return found


TIMES = {
    "unknown": ((TIMESTAMP_NOT_AVAILABLE, AT_MS), None, None),
    "the producer's": ((TIMESTAMP_CREATE_TIME, AT_MS), AT, AT),
    "the broker's": ((TIMESTAMP_LOG_APPEND_TIME, AT_MS), None, AT),
    "before the first": ((TIMESTAMP_CREATE_TIME, -1), None, None),
    "after the last": ((TIMESTAMP_LOG_APPEND_TIME, 253_402_300_800_000), None, None),
}


@pytest.mark.parametrize("case", TIMES)
def test_a_time_is_what_its_kind_says(case: str) -> None:
    """Old messages have none at all; no moment is made up for them."""
    stamp, event, broker = TIMES[case]

    [row] = made(rows_of(), [message(3, b"x", timestamp=stamp)])

    planned = datetime.fromtimestamp(0.005, UTC)
    assert row[META_NAME] == {
        "offset": 3,
        "event_time": event,
        "broker_time": broker,
        "ingest_time": planned,
    }


def test_headers_may_be_there_for_some() -> None:
    """None and an empty list are not the same, and both are in the middle of others."""
    given = [[("a", b"1"), ("b", None)], None, [], [("a", b"\xff")]]
    messages = [message(number, b"x", headers=each) for number, each in enumerate(given)]

    found = made(rows_of(headers="headers"), messages)

    assert [row["headers"] for row in found] == [
        [{"name": "a", "value": b"1"}, {"name": "b", "value": None}],
        None,
        [],
        [{"name": "a", "value": b"\xff"}],
    ]


def test_a_batch_has_the_schema_and_then_meta() -> None:
    """Also where keys, values and deletes are missing in between."""
    rows = rows_of(key=Json(COLUMNS), value=Text(), headers="headers", deletes="gone")
    messages = [
        message(1, b"a", key=b'{"n": 1}'),
        message(2, None, key=None),
        message(3, b"c", key=b'{"n": 2, "s": "x"}'),
    ]

    [batch] = rows.made(messages, 0)

    assert isinstance(batch, pa.RecordBatch)
    batch.validate(full=True)
    assert batch.schema == rows.schema().append(pa.field(META_NAME, META))
    assert batch.schema.field("_meta").type.field("event_time").type == TIME
    assert batch.column("key").to_pylist() == [{"n": 1, "s": None}, None, {"n": 2, "s": "x"}]
    assert batch.column("value").to_pylist() == ["a", None, "c"]
    assert batch.column("gone").to_pylist() == [False, True, False]


BODIES = st.one_of(
    st.sampled_from(
        [
            b'{"n": 1}',
            b'{"n": 2, "s": "x"}',
            b' {"n": 3}\n',
            b'{\n"n": 4\n}',
            b'{"n": 5}\n{"n": 6}',
            b'{"n": 7}{"n": 8}',
            b'{"n": 9}\n{"n":',
            b"10}",
            b'{"n": "x"}',
            b'{"n": 1, "s": "a\nb"}',
            b'{"n": 1, "s": "}\\n{"}',
            b'{"n": 1, "s": "\xff"}',
            b'{"s": null}',
            b"{}",
            b"}{",
            b"",
            b" ",
            b"null",
            b"[]",
        ]
    ),
    st.none(),
    st.binary(max_size=5),
)


@given(st.lists(BODIES, min_size=1, max_size=12))
def test_what_becomes_of_a_message_never_depends_on_its_neighbours(
    bodies: list[bytes | None],
) -> None:
    """However a range is cut, its rows are the same: else a retry would give others."""
    rows = rows_of(value=Json(COLUMNS))
    messages = [message(number, body, key=b"k") for number, body in enumerate(bodies)]

    together = made(rows, messages)

    assert together == [row for each in messages for row in made(rows, [each])]


@given(st.lists(BODIES.filter(bool), min_size=1, max_size=6))
def test_objects_that_go_to_arrow_as_they_are_come_out_as_if_looked_at_one_by_one(
    bodies: list[bytes],
) -> None:
    """The short way is for speed alone."""
    patient = JsonLines().parser(b"", Shape(COLUMNS))

    assert outcome(lambda: Json(COLUMNS).decode(bodies)) == outcome(
        lambda: patient(bodies).columns[:-1]
    )


def outcome(attempt: Callable[[], list[pa.Array]]) -> Any:
    """What comes of it: columns, or the reason why not."""
    try:
        return [column.to_pylist() for column in attempt()]
    except DAMAGE as error:
        return str(error)


def test_columns_that_json_is_never_read_as_are_refused_at_once() -> None:
    """Else every message would be undecodable, and quietly left out."""
    with pytest.raises(Invalid) as caught:
        Kafka("127.0.0.1:1", "clicks", value="json", columns="n long, tags map<string,long>")

    assert caught.value.found == (
        "has columns with 'tags' of type map<string, int64>, which JSON is not read as"
    )
