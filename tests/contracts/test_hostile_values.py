"""Values at and beyond the end of what a type can say, into every sink: each is applied and read
back equal, or refused before the commit. There is no third outcome."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.clock import SystemChance
from penstock.errors import Invalid
from penstock.ids import Attempt, Epoch
from penstock.points import Point
from penstock.sinks import (
    AppliedSink,
    Apply,
    Committed,
    DynamoDB,
    ForEachEpoch,
    Http,
    KafkaSink,
    Memory,
    Postgres,
    ReadableSink,
    Redis,
    Target,
    Writer,
)
from penstock.sinks.protocol import PROVENANCE
from penstock.sinks.staged import own_columns, staged
from tests.support.delta_case import delta_append_case, delta_merge_case
from tests.support.dynamodb_case import dynamodb_case
from tests.support.http_case import http_case
from tests.support.log_sink_case import log_sink_case
from tests.support.postgres_case import postgres_append_case, postgres_upsert_case
from tests.support.redis_case import redis_case
from tests.support.sink_cases import JOB, SinkCase, apply, cursor

LAST_S = 253_402_300_799
"""The last second of the year 9999."""
FIRST_S = -62_135_596_800
"""The first second of the year 1."""
LARGEST, SMALLEST = 2**63 - 1, -(2**63)


@dataclass(frozen=True)
class Hostile:
    """A value that few programs expect."""

    values: pa.Array
    text: str | None = None
    """How stores without types spell it; None: there is no way, and they refuse it."""


def number(kind: pa.DataType, value: int, text: str | None = None) -> Hostile:
    """A value of a type that is a number inside."""
    width = pa.int64() if kind.bit_width == 64 else pa.int32()
    return Hostile(pa.array([value], width).view(kind), text)


def no_text() -> Hostile:
    """Bytes that are called a text, as Spark lets them be."""
    bytes_ = pa.array([b"\xed\xa0\x80"], pa.binary())
    return Hostile(pa.Array.from_buffers(pa.string(), 1, bytes_.buffers()))


SEOUL, NEW_YORK, NOWHERE = "Asia/Seoul", "America/New_York", "Mars/Olympus"
VALUES: dict[str, Hostile] = {
    "the last second": number(pa.timestamp("s"), LAST_S, "9999-12-31T23:59:59"),
    "the first second": number(pa.timestamp("s", "UTC"), FIRST_S, "0001-01-01T00:00:00Z"),
    "the year 10000": number(pa.timestamp("s"), LAST_S + 1),
    "the year 10000, UTC": number(pa.timestamp("us", "UTC"), (LAST_S + 1) * 1_000_000),
    "the year 0": number(pa.timestamp("ms", "UTC"), FIRST_S * 1000 - 1),
    "the largest seconds": number(pa.timestamp("s", "UTC"), LARGEST),
    "the smallest microseconds": number(pa.timestamp("us"), SMALLEST),
    "10000 only in Seoul": number(pa.timestamp("s", SEOUL), LAST_S, "9999-12-31T23:59:59Z"),
    "0 only in New York": number(pa.timestamp("s", NEW_YORK), FIRST_S, "0001-01-01T00:00:00Z"),
    "an unknown zone": number(pa.timestamp("us", NOWHERE), 1, "1970-01-01T00:00:00.000001Z"),
    "an unknown zone, 10000": number(pa.timestamp("s", NOWHERE), LAST_S + 1),
    "no nanoseconds": number(pa.timestamp("ns"), SMALLEST),
    "the largest nanoseconds": number(
        pa.timestamp("ns", "UTC"), LARGEST, "2262-04-11T23:47:16.854775807Z"
    ),
    "the last day": number(pa.date32(), 2_932_896, "9999-12-31"),
    "a day of 10000": number(pa.date32(), 2_932_897),
    "a day of the year 0": number(pa.date32(), -719_163),
    "the largest day": number(pa.date32(), 2**31 - 1),
    "the largest date64": number(pa.date64(), LARGEST - LARGEST % 86_400_000),
    "half a day": number(pa.date64(), 43_200_000),
    "the largest seconds that pass": number(pa.duration("s"), LARGEST),
    "the smallest milliseconds that pass": number(pa.duration("ms"), SMALLEST),
    "the largest microseconds that pass": number(
        pa.duration("us"), LARGEST, "PT9223372036854.775807S"
    ),
    "a second after midnight": number(pa.time32("s"), 86_401),
    "a time before midnight": number(pa.time64("us"), -1),
    "no text": no_text(),
}


def in_a_list(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), values)


def in_a_struct(values: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([values], ["x"])


def in_a_map(values: pa.Array) -> pa.Array:
    offsets = pa.array(range(len(values) + 1), pa.int32())
    return pa.MapArray.from_arrays(offsets, pa.array(["x"] * len(values)), values)


SHAPES: dict[str, tuple[Callable[[pa.Array], pa.Array], Callable[[Any], Any]]] = {
    "plain": (lambda values: values, lambda text: text),
    "list": (in_a_list, lambda text: [text]),
    "struct": (in_a_struct, lambda text: {"x": text}),
    "map": (in_a_map, lambda text: {"x": text}),
    "lists of structs": (lambda v: in_a_list(in_a_struct(v)), lambda text: [{"x": text}]),
}
"""What is made of a value, and of its spelling."""

TWO = ("plain", "lists of structs")
"""Shapes that are tried to the end where a target takes seconds to make."""

Making = Callable[[pytest.FixtureRequest, Path], AbstractContextManager[SinkCase]]


@contextmanager
def memory_case(request: pytest.FixtureRequest, folder: Path) -> Iterator[SinkCase]:
    sink = Memory(f"people-{SystemChance().unique()}")
    yield SinkCase(lambda columns, deletes, proxy: sink, lambda columns: sink.rows())


KEPT: dict[str, pa.Table] = {}


@contextmanager
def for_each_case(request: pytest.FixtureRequest, folder: Path) -> Iterator[SinkCase]:
    """A function that takes columns as they are."""

    def keep(epoch: Committed, batches: Iterator[pa.RecordBatch]) -> None:
        KEPT["rows"] = pa.Table.from_batches(batches)

    sink = ForEachEpoch(keep, name=f"people-{SystemChance().unique()[:8]}")
    yield SinkCase(lambda columns, deletes, proxy: sink, lambda columns: [])


SINKS: dict[str, Making] = {
    "memory": memory_case,
    "for-each": for_each_case,
    "log": log_sink_case,
    "http": http_case,
    "delta-append": delta_append_case,
    "delta-merge": delta_merge_case,
    "redis": redis_case,
    "postgres-append": postgres_append_case,
    "postgres-upsert": postgres_upsert_case,
    "dynamodb": dynamodb_case,
}
SPELLING = ("http", "redis", "dynamodb")
"""Those that have nothing but texts: they refuse what has none, and take all that has one."""


def rows_with(values: pa.Array) -> pa.Table:
    """Three rows as a task makes them; the second has the value."""
    none = pa.nulls(1, values.type)
    table = pa.table({"user": ["ada", "bob", "eve"], "v": pa.chunked_array([none, values, none])})
    of = {
        "_epoch": [1, 1, 1],
        "_partition": [0, 0, 0],
        "_sequence": [0, 1, 2],
        "_input": [[{"from": "clicks/0", "first": n, "last": n}] for n in (7, 8, 9)],
    }
    for field in PROVENANCE:
        table = table.append_column(field, pa.array(of[field.name], field.type))
    return table


def staged_for(sink: AppliedSink, rows: pa.Table) -> bytes | None:
    """What a task stages; None if the sink refuses it, by name, when the job is loaded or then."""
    at_load = True
    try:
        sink.check(own_columns(rows).schema.empty_table())
        at_load = False
        return staged(sink, Epoch(1), 0, Attempt("a"), rows)[1]
    except Invalid as refusal:
        place = "column 'v'" if at_load else "column 'v', row 1"
        assert refusal.subject.startswith(f"sink {sink.name}")
        assert refusal.subject.endswith(place), refusal
        assert at_load or "clicks/0, offset 8" in refusal.found, refusal
        return None


def opened(sink: AppliedSink, target: Target) -> Writer | None:
    """The sink; None if its target takes no such columns. A job opens its sinks before it runs."""
    try:
        return sink.open(target)
    except Invalid as refusal:
        assert refusal.subject.startswith(f"sink {sink.name}")
        return None


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("name", SINKS)
def test_a_hostile_value_is_applied_or_refused_before_the_commit(
    name: str, value: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Once committed it must be applied, and no version of the job could take it back."""
    hostile = VALUES[value]
    for shape, (wrap, spell) in SHAPES.items():
        with SINKS[name](request, tmp_path / shape) as case:
            rows = rows_with(wrap(hostile.values))
            columns = own_columns(rows).schema
            sink = case.make(columns, None, None)
            body = staged_for(sink, rows)
            if name in SPELLING:
                assert (body is None) == (hostile.text is None), shape
            target = Target(job=JOB, columns=columns, partitions=case.shards, store=case.store)
            wanted = body is not None and (name != "dynamodb" or shape in TWO)
            writer = opened(sink, target) if wanted else None
            if body is None or writer is None:
                continue
            with closing(writer):
                writer.apply(as_committed(sink.name, body))
                assert writer.read_cursor(0) == cursor(1)
            assert_reads_back(sink, target, rows)
            if name == "http":
                assert case.rows(columns)[1] == {"user": "bob", "v": spell(hostile.text)}, shape


def as_committed(sink: str, body: bytes) -> Apply:
    asked = apply(1, [])
    return Apply(
        Point.SINK_APPLY, sink, 0, asked.follows, asked.cursor, asked.token, outputs=(body,)
    )


def assert_reads_back(sink: AppliedSink, target: Target, rows: pa.Table) -> None:
    """The target holds what was staged, value by value."""
    if isinstance(sink, ForEachEpoch):
        assert KEPT.pop("rows").equals(rows)
    if not isinstance(sink, ReadableSink):
        return
    with closing(sink.read_back(target)) as holding:
        expected = holding.expected(rows).puts
        names = [name for name in expected.column_names if name not in PROVENANCE.names]
        assert not set(names) & set(holding.traits.left_out) or "v" not in names
        shown = pa.Table.from_batches(holding.batches()).select(names)
        assert in_one_order(shown).equals(in_one_order(expected.select(names)))


def in_one_order(rows: pa.Table) -> pa.Table:
    """By the key, whatever it is called, with no trace of how the rows came."""
    key = next(name for name in rows.column_names if name != "v")
    order = rows.sort_by(key).combine_chunks()
    return order.replace_schema_metadata(None)


@pytest.mark.parametrize("value", VALUES)
def test_a_hostile_value_is_a_message_or_refused_before_the_commit(value: str) -> None:
    """Kafka takes bytes: whatever is made of a row must be made before the broker is asked."""
    sink, hostile = KafkaSink("people", "127.0.0.1:1", "people"), VALUES[value]
    for wrap, spell in SHAPES.values():
        rows = rows_with(wrap(hostile.values))
        body = staged_for(sink, rows)
        assert (body is None) == (hostile.text is None)
        if body is not None:
            (chunk,) = sink.messages.of(as_committed("people", body), own_columns(rows).schema)
            sent = [json.loads(each or b"") for each in chunk.values]
            assert sent[1] == {"user": "bob", "v": spell(hostile.text)}


TEXTS = pa.map_(pa.string(), pa.int64())


@pytest.mark.parametrize(
    "values",
    [
        pa.array([[("a", 1), ("b", 2)], [("b", 3), ("a", 4), ("b", 5)]], TEXTS),
        pa.array([[], [[("a", 1)], [("b", 2), ("b", 2)]]], pa.list_(TEXTS)),
        pa.array([None, {"x": [("b", 2), ("b", None)]}], pa.struct([("x", TEXTS)])),
        pa.array([[("a", [("b", 1)])], [("a", [("b", 1), ("b", 2)])]], pa.map_(pa.string(), TEXTS)),
        pa.array([[([("b", 1)], 1)], [([("b", 1), ("b", 2)], 1)]], pa.map_(TEXTS, pa.int64())),
    ],
    ids=lambda values: str(values.type),
)
def test_a_map_with_one_key_twice_is_refused_by_what_spells_it(values: pa.Array) -> None:
    """An object of JSON would keep one of the two, and nobody would miss the other."""
    sinks = (
        Http("people", "http://127.0.0.1:1/in"),
        KafkaSink("people", "127.0.0.1:1", "people"),
        Redis("people", "redis://127.0.0.1:1", key="user"),
        Postgres("people", "host=127.0.0.1"),
        DynamoDB("people", key="user"),
    )
    rows = pa.table({"user": ["ada", "bob"], "v": values})
    for sink in sinks:
        sink.check(rows.slice(0, 1))
        with pytest.raises(Invalid) as caught:
            sink.check(rows)
        assert str(caught.value) == (
            "sink people, column 'v', row 1 is a map that has the key 'b' twice: emit each key "
            "once: an object of JSON keeps one of them."
        )


def test_every_row_of_a_large_batch_is_looked_at() -> None:
    """The one bad value of a hundred thousand is found, and named by its row."""
    good = pa.array(range(99_999), pa.int64()).view(pa.timestamp("us", "UTC"))
    bad = VALUES["the year 10000, UTC"].values
    rows = pa.table({"at": pa.chunked_array([good, bad])})

    with pytest.raises(Invalid) as caught:
        Memory("people").check(rows)

    assert str(caught.value) == (
        "sink people, column 'at', row 99999 is 10000-01-01 00:00:00.000000Z, which is outside "
        "the years 1 to 9999: emit a time that every reader can spell, or none."
    )
