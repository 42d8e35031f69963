import pickle  # noqa: TID251 - what crosses Spark's processes is pickled by Spark, not by us
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Invalid
from penstock.sources.planning import lag, start_offsets
from penstock.sources.protocol import META, META_NAME, Limits, Range, Source, Span
from penstock.sources.rate import BATCH_ROWS_MAX, Rate

START = datetime(2026, 1, 1, tzinfo=UTC)
START_MS = round(START.timestamp() * 1000)
EVERYTHING = pa.schema(
    [
        pa.field("flag", pa.bool_()),
        *(pa.field(f"i{bits}", getattr(pa, f"int{bits}")()) for bits in (8, 16, 32, 64)),
        *(pa.field(f"u{bits}", getattr(pa, f"uint{bits}")()) for bits in (8, 16, 32, 64)),
        *(pa.field(f"f{bits}", getattr(pa, f"float{bits}")()) for bits in (16, 32, 64)),
        pa.field("price", pa.decimal128(9, 2)),
        pa.field("vast", pa.decimal128(38, 10)),
        pa.field("text", pa.string()),
        pa.field("large_text", pa.large_string()),
        pa.field("raw", pa.binary()),
        pa.field("large_raw", pa.large_binary()),
        pa.field("digest", pa.binary(20)),
        pa.field("day", pa.date32()),
        *(pa.field(f"at_{unit}", pa.timestamp(unit, tz="UTC")) for unit in ("us", "s", "ms")),
        pa.field("naive", pa.timestamp("ns")),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("grid", pa.large_list(pa.list_(pa.int16()))),
        pa.field("place", pa.struct([("x", pa.float64()), ("names", pa.list_(pa.string()))])),
        pa.field("sure", pa.int64(), nullable=False),
    ],
    metadata={"about": "all of it"},
)


@dataclass
class HandSet:
    """A clock that shows what it was set to."""

    now_s: float = START.timestamp()

    def wall(self) -> float:
        return self.now_s

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def table(source: Source, start: int, stop: int, partition: str = "0") -> pa.Table:
    """The rows of a range, with their batches put together."""
    schema = source.schema().append(pa.field(META_NAME, META))
    batches = source.read(partition, Range(start=start, stop=stop))
    return pa.Table.from_batches(batches, schema).combine_chunks()


def column(source: Source, name: str, count: int = 20_000) -> list[Any]:
    return table(source, 0, count)[name].to_pylist()


def delays_s(source: Source, count: int) -> Any:
    """By how much each row is later than it happened."""
    meta = table(source, 0, count)[META_NAME].combine_chunks()
    names = ("broker_time", "event_time")
    came, happened = (meta.field(name).cast(pa.int64()).to_numpy() for name in names)
    return (came - happened) / 1e6


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(50, 350), max_size=5), seed=st.integers(-5, 5))
def test_rows_are_the_same_wherever_a_range_is_cut(cuts: list[int], seed: int) -> None:
    """An epoch that is planned again with other limits must read what was there before."""
    source = Rate(
        columns=EVERYTHING, rows=400, seed=seed, key="text", skew=1.1, null_share=0.2, late=0.1
    )
    whole = table(source, 50, 350)
    whole.validate(full=True)
    parts = [table(source, a, b) for a, b in pairwise(sorted([50, *cuts, 350]))]

    assert pa.concat_tables(parts).combine_chunks().equals(whole, check_metadata=True)


def test_batches_are_bounded_and_seamless() -> None:
    """A task holds one batch at a time, however long the range is."""
    stop = 2 * BATCH_ROWS_MAX + 17
    batches = list(Rate(rows=10**9).read("0", Range(start=5, stop=stop)))
    offsets = np.concatenate([b[META_NAME].field("offset").to_numpy() for b in batches])

    assert [len(batch) for batch in batches] == [BATCH_ROWS_MAX, BATCH_ROWS_MAX, 12]
    assert np.array_equal(offsets, np.arange(5, stop))


def test_every_type_has_the_schema_that_was_asked_for() -> None:
    """With the names, nullability and metadata, and `_meta` behind them."""
    source = Rate(columns=EVERYTHING, rows=1000)
    made = table(source, 0, 1000)

    assert source.schema().equals(EVERYTHING, check_metadata=True)
    assert made.schema.equals(EVERYTHING.append(pa.field(META_NAME, META)), check_metadata=True)
    for name in set(EVERYTHING.names) - {"flag"}:
        assert len(set(map(str, made[name].to_pylist()))) > 80, f"{name} is always the same"
    assert set(made["flag"].to_pylist()) == {True, False}


def test_numbers_may_be_kept_small() -> None:
    """So that a job can add them up; wherever in a row they are, and where their type is small."""
    made = table(Rate(columns=EVERYTHING, rows=1000, numbers_below=300), 0, 1000)

    made.validate(full=True)
    for name in ("i16", "i64", "u16", "u64", "sure"):
        numbers = made[name].to_pylist()
        assert set(numbers) <= set(range(300))
        assert len(set(numbers)) > 250
    for name in ("i8", "u8"):
        assert set(made[name].to_pylist()) == set(range(128))
    assert max(made["price"].to_pylist()) < Decimal(3)
    grid = [n for row in made["grid"].to_pylist() for line in row for n in line]
    assert 0 <= min(grid) < max(grid) < 300


def test_a_mapping_is_as_good_as_a_schema() -> None:
    """Both say the same names and types."""
    kinds = {"user": pa.string(), "n": pa.int32()}

    assert Rate(columns=kinds, rows=5) == Rate(columns=pa.schema(list(kinds.items())), rows=5)


def test_another_seed_gives_other_rows() -> None:
    """In every column that is made up, and in no other."""
    first = table(Rate(rows=100), 0, 100)
    second = table(Rate(rows=100, seed=-1), 0, 100)

    assert not set(first["user"].to_pylist()) & set(second["user"].to_pylist())
    assert first["amount"].to_pylist() != second["amount"].to_pylist()
    assert first["at"] == second["at"]


def test_partitions_have_other_rows_of_the_same_keys() -> None:
    """A key is met in all of them."""
    kinds = {"user": pa.string(), "n": pa.int64()}
    source = Rate(columns=kinds, partitions=2, rows=500, key="user", keys=20)
    first, second = (table(source, 0, 500, partition) for partition in ("0", "1"))

    assert first["user"].to_pylist() != second["user"].to_pylist()
    assert set(first["user"].to_pylist()) == set(second["user"].to_pylist())
    assert not set(first["n"].to_pylist()) & set(second["n"].to_pylist())


def test_a_column_does_not_depend_on_its_neighbours() -> None:
    """A test that adds a column keeps its figures."""
    wider = Rate(columns={"before": pa.int8(), "n": pa.int64()}, rows=10)

    assert column(wider, "n", 10) == column(Rate(columns={"n": pa.int64()}, rows=10), "n", 10)


KEYS = [
    *(pa.string(), pa.large_binary(), pa.binary(1), pa.binary(16), pa.int8(), pa.uint64()),
    *(pa.float16(), pa.float64(), pa.decimal128(2), pa.decimal128(38, 2), pa.date32()),
    *(pa.timestamp("s"), pa.timestamp("ns", tz="UTC")),
]


@pytest.mark.parametrize("kind", KEYS, ids=str)
def test_there_are_as_many_keys_as_said(kind: pa.DataType) -> None:
    """Of every type; without skew each is about as often as any other."""
    source = Rate(columns={"key": kind}, rows=20_000, key="key", keys=100)
    counts = Counter(column(source, "key"))

    assert len(counts) == 100
    assert 140 < min(counts.values()) < 200 < max(counts.values()) < 270


@pytest.mark.parametrize("skew", [0.5, 1.0, 1.5, 3.0])
def test_skewed_keys_follow_zipf(skew: float) -> None:
    """The shares of the first keys, and of the many rare ones together."""
    keys, count = 5000, 50_000
    source = Rate(columns={"key": pa.int32()}, rows=count, key="key", keys=keys, skew=skew)
    found = np.bincount(column(source, "key", count), minlength=keys) / count
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -skew
    expected = weights / weights.sum()

    assert found[:3] == pytest.approx(expected[:3], rel=0.05, abs=0.003)
    for tail in (10, 100, 2000, 4000):
        assert found[tail:].sum() == pytest.approx(expected[tail:].sum(), rel=0.05, abs=0.003)


def test_keys_are_named_after_their_column() -> None:
    """So that a person sees at once what a key is, and which one comes first."""
    users = Counter(column(Rate(rows=20_000, key="user", keys=50, skew=1.0), "user"))

    assert [user for user, _ in users.most_common(3)] == ["user-0", "user-1", "user-2"]


def test_rows_come_in_order_unless_told_otherwise() -> None:
    """Then the event time is that of the position, in the column as in `_meta`."""
    meta = column(Rate(rows=3), META_NAME, 3)
    times = [START + timedelta(milliseconds=n) for n in range(3)]

    assert column(Rate(rows=3), "at", 3) == times
    assert [row["event_time"] for row in meta] == [row["broker_time"] for row in meta] == times


def test_rows_out_of_order_and_late_ones_have_their_shares() -> None:
    """A watermark that waits for `disorder` drops the late ones, and only those."""
    source = Rate(
        rows=50_000, out_of_order=0.3, disorder=timedelta(seconds=5), late=0.02, lateness=60.0
    )
    delays = delays_s(source, 50_000)
    moved = delays[(delays > 0) & (delays <= 5)]
    late = delays[delays > 5]

    assert len(moved) / 50_000 == pytest.approx(0.3, abs=0.01)
    assert len(late) / 50_000 == pytest.approx(0.02, abs=0.003)
    assert (moved.mean(), late.mean()) == (pytest.approx(2.5, abs=0.1), pytest.approx(35, abs=3))
    assert (delays.min(), delays.max() <= 65) == (0, True)


def test_all_rows_may_be_late() -> None:
    """A share of one is all of them."""
    assert delays_s(Rate(rows=1000, late=1.0, disorder=0), 1000).min() > 0


def test_the_event_time_is_in_the_column_that_was_named() -> None:
    """The other one is made up, as any column."""
    kinds = {"seen": pa.timestamp("s"), "at": pa.timestamp("ms", tz="UTC")}
    named = Rate(columns=kinds, rows=100, event_time="at")
    times = [START + timedelta(milliseconds=n) for n in range(100)]

    assert column(named, "at", 100) == times
    assert len(set(column(named, "seen", 100))) == 100
    assert set(column(Rate(columns=kinds, rows=100), "seen", 100)) == {START.replace(tzinfo=None)}


def test_nulls_come_where_they_may_and_nowhere_else() -> None:
    """Never in a key, in the event time, or in a column that must not be null."""
    source = Rate(columns=EVERYTHING, rows=4000, null_share=0.25, key="text", event_time="at_us")
    made = table(source, 0, 4000)
    shares = {name: made[name].null_count / 4000 for name in EVERYTHING.names}
    full = {name for name, share in shares.items() if share == 0}

    assert full == {"text", "at_us", "sure"}
    assert all(share == pytest.approx(0.25, abs=0.03) for share in shares.values() if share)
    assert sum(table(Rate(columns=EVERYTHING, rows=9), 0, 9)[n].null_count for n in shares) == 0


def test_meta_says_when_a_row_was_planned() -> None:
    """The same on every attempt: it is handed in, not looked up."""
    (batch,) = Rate(rows=9).read("0", Range(start=4, stop=6), planned_ms=START_MS + 1)

    assert batch.column_names == ["user", "amount", "at", META_NAME]
    assert batch[META_NAME].to_pylist() == [
        {
            "offset": offset,
            "event_time": START + timedelta(milliseconds=offset),
            "broker_time": START + timedelta(milliseconds=offset),
            "ingest_time": START + timedelta(milliseconds=1),
        }
        for offset in (4, 5)
    ]


def test_spans_grow_with_the_clock() -> None:
    """A row is there when its time has come, and not before."""
    clock = HandSet()
    source = Rate(partitions=2, rows_per_s=2.5, clock=clock)
    seen = []
    for second in (-1, 0, 0.399, 0.4, 4, 3600):
        clock.now_s = START.timestamp() + second
        seen.append(source.spans()["1"])

    assert seen == [Span(0, latest) for latest in (0, 1, 1, 2, 11, 9001)]
    assert list(source.spans()) == ["0", "1"]


def test_a_paced_stream_ends_with_its_rows() -> None:
    """Both may be given: so fast, and no further."""
    clock = HandSet(START.timestamp() + 60)
    source = Rate(rows_per_s=10, rows=100, clock=clock)

    assert (source.spans(), lag(source, {"0": 99})) == ({"0": Span(0, 100)}, {"0": 1})


@settings(deadline=None)
@given(
    rows_per_s=st.one_of(st.integers(1, 10**8), st.floats(0.01, 1e8)),
    elapsed_us=st.integers(0, 10**13),
)
def test_every_row_there_is_has_happened(rows_per_s: float, elapsed_us: int) -> None:
    """The last one that is there is not from the future; the next one is."""
    clock = HandSet(START.timestamp() + elapsed_us / 1e6)
    now = int(clock.wall() * 1e6)
    source = Rate(rows_per_s=rows_per_s, clock=clock)
    latest = source.spans()["0"].latest
    meta = table(source, latest - 1, latest + 1)[META_NAME].combine_chunks()
    last, following = meta.field("broker_time").cast(pa.int64()).to_pylist()

    assert last <= now < following


def test_a_clock_that_is_behind_takes_no_row_away() -> None:
    """Neither from a task on another host, nor from a leader whose clock was set back."""
    ahead = Rate(rows_per_s=10, clock=HandSet(START.timestamp() + 100))
    behind = replace(ahead, clock=HandSet(START.timestamp() - 100))

    assert behind.spans() == {"0": Span(0, 0)}
    assert table(behind, 900, 1000) == table(ahead, 900, 1000)
    assert behind.plan({"0": 1000}, Limits()) == {}


def test_offsets_at_a_moment_are_those_of_the_position() -> None:
    """Before the start the first, after the end the end."""
    clock = HandSet(START.timestamp() + 60)
    source = Rate(partitions=2, rows_per_s=3, clock=clock)
    asked = [source.offsets_at(START_MS + ms) for ms in (-5000, 0, 1, 333, 334, 1000, 10**6)]

    assert [found["0"] for found in asked] == [0, 0, 1, 1, 2, 3, 181]
    assert all(found["0"] == found["1"] for found in asked)
    assert start_offsets(source, START + timedelta(seconds=20)) == {"0": 60, "1": 60}


def test_a_plan_shares_the_limits() -> None:
    """In rows, and in bytes by what a row takes."""
    source = Rate(partitions=2, rows=1000)
    everything = source.plan({"0": 400}, Limits())
    by_bytes = source.plan({}, Limits(size_bytes=20_000))
    (batch,) = source.read("0", by_bytes["0"])

    assert everything == {"0": Range(start=400, stop=1000), "1": Range(start=0, stop=1000)}
    assert source.plan({"0": 990}, Limits(records=100)) == {
        "0": Range(start=990, stop=1000),
        "1": Range(start=0, stop=90),
    }
    assert 9_000 < batch.nbytes < 11_000
    assert source.plan({"0": 1000, "1": 1000}, Limits(size_bytes=1)) == {}
    assert Rate(rows=0).plan({}, Limits(size_bytes=1)) == {}


def test_a_source_survives_the_trip_to_a_task() -> None:
    """The leader plans, and a worker that got a copy reads the same rows."""
    source = Rate(columns=EVERYTHING, rows=50, partitions=3, key="i64", skew=1.2, null_share=0.1)
    copy = pickle.loads(pickle.dumps(source))

    assert copy == source
    assert table(copy, 0, 50, "2").equals(table(source, 0, 50, "2"), check_metadata=True)


def test_rows_stay_what_they_were() -> None:
    """Figures in examples and tests rest on them: a change of the mixing is seen here."""
    source = Rate(rows=4, key="user", keys=10, skew=1.0)

    assert column(source, "user", 4) == ["user-4", "user-1", "user-0", "user-0"]
    assert column(source, "amount", 4) == [92.296875, 65.328125, 75.140625, 33.3828125]
    assert column(Rate(rows=2), "user", 2) == ["plblloakm", "akdjh"]


BAD = [
    ({"rows_per_s": -1.0}, "has -1.0 rows_per_s"),
    ({"rows_per_s": 0}, "has 0 rows_per_s"),
    ({"rows_per_s": float("nan")}, "has nan rows_per_s"),
    ({"rows_per_s": 1e9}, "has 1000000000.0 rows_per_s"),
    ({"rows": None}, "has neither rows nor rows_per_s"),
    ({"rows": -1}, "has -1 rows"),
    ({"rows": 1 << 60}, f"has {1 << 60} rows"),
    ({"partitions": 0}, "has 0 partitions"),
    ({"out_of_order": 1.5}, "has 1.5 as out_of_order"),
    ({"late": -0.1}, "has -0.1 as late"),
    ({"null_share": float("nan")}, "has nan as null_share"),
    ({"late": 0.75, "out_of_order": 0.5}, "has 1.25 as out_of_order and late"),
    ({"disorder": -1.0}, "has a disorder of -1.0"),
    ({"lateness": timedelta(days=10_000)}, "has a lateness of 10000 days, 0:00:00"),
    ({"out_of_order": 0.1, "disorder": 0}, "has rows out of order by nothing"),
    ({"late": 0.1, "lateness": 0}, "has rows that are late by nothing"),
    ({"keys": 0}, "has 0 keys"),
    ({"numbers_below": 0}, "has numbers below 0"),
    ({"skew": -1.0}, "has a skew of -1.0"),
    ({"key": "nobody"}, "has no column nobody for its key"),
    ({"event_time": "never"}, "has no column never for its event_time"),
    ({"event_time": "amount"}, "has an event_time of type double"),
    ({"event_time": "at", "key": "at"}, "has at as its key and its event_time"),
    ({"start": datetime(2026, 1, 1)}, "starts at 2026-01-01 00:00:00, in no zone"),
    ({"start": datetime(1, 1, 1, tzinfo=UTC)}, "starts at 0001-01-01 00:00:00+00:00"),
    ({"columns": {}}, "has the columns []"),
    ({"columns": {"_meta": pa.int8()}}, "has the columns ['_meta']"),
    ({"columns": pa.schema([("a", pa.int8())] * 2)}, "has the columns ['a', 'a']"),
]


@pytest.mark.parametrize(("wrong", "found"), BAD, ids=lambda part: str(part)[:40])
def test_bad_settings_are_refused_in_words(wrong: dict[str, Any], found: str) -> None:
    """At once, where they are given, and not in a task an hour later."""
    with pytest.raises(Invalid) as caught:
        Rate(**{"rows": 10, **wrong})

    assert (caught.value.subject, caught.value.found) == ("rate source", found)


STRANGE = [
    ({"t": pa.time64("us")}, "t"),
    ({"m": pa.map_(pa.string(), pa.int8())}, "m"),
    ({"l": pa.list_(pa.duration("s"))}, "l[]"),
    ({"s": pa.struct([("x", pa.list_(pa.struct([("y", pa.null())])))])}, "s.x[].y"),
    ({"e": pa.struct([])}, "e"),
]


@pytest.mark.parametrize(("kinds", "where"), STRANGE, ids=str)
def test_a_type_that_cannot_be_made_up_is_named(kinds: Any, where: str) -> None:
    """With the way to it, if it is inside another one."""
    with pytest.raises(Invalid) as caught:
        Rate(columns=kinds, rows=10)

    assert caught.value.subject == f"rate source, column {where}"


FULL = [
    (pa.int8(), 128),
    (pa.float32(), 1 << 24),
    (pa.decimal128(3, 1), 1000),
    (pa.binary(2), 1 << 16),
    (pa.bool_(), 2),
]


@pytest.mark.parametrize(("kind", "room"), FULL, ids=str)
def test_keys_must_fit_their_column(kind: pa.DataType, room: int) -> None:
    """Wrapped around or rounded, two of them would be one."""
    assert Rate(columns={"k": kind}, rows=10, key="k", keys=room).keys == room
    with pytest.raises(Invalid, match=f"column k is a .* tells {room} keys apart"):
        Rate(columns={"k": kind}, rows=10, key="k", keys=room + 1)


def test_a_list_is_no_key() -> None:
    """Nor is anything else that cannot be hashed as one."""
    with pytest.raises(Invalid, match="column k is a list<item: int8>, which is no key"):
        Rate(columns={"k": pa.list_(pa.int8())}, rows=10, key="k")


@pytest.mark.parametrize("partition", ["2", "-1", "00", ""])
def test_an_unknown_partition_is_refused(partition: str) -> None:
    """Before the first batch is asked for."""
    with pytest.raises(Invalid, match="has no partition"):
        Rate(rows=10, partitions=2).read(partition, Range(start=0, stop=1))


@pytest.mark.parametrize(("start", "stop"), [(0, 11), (-1, 5), (6, 5)])
def test_offsets_out_of_range_are_refused(start: int, stop: int) -> None:
    """A range that is cut short would lose rows without a word."""
    with pytest.raises(Invalid, match="rate source, partition 0"):
        Rate(rows=10).read("0", Range(start=start, stop=stop))


def test_a_resume_offset_beyond_the_end_is_refused() -> None:
    """A shorter stream is another one: what was read of the old one is not in it."""
    with pytest.raises(Invalid, match="ends at offset 10"):
        Rate(rows=10).plan({"0": 11}, Limits())


BURSTS = Rate(rows=100, burst_rows=10, key="user", keys=5)
PAUSE_S = (60, 600, 3_600, 86_400)


def happened_s(source: Rate) -> list[float]:
    """When each row of the first partition happened, after the first."""
    [batch] = source.read("0", Range(start=0, stop=100))
    return [(at - START).total_seconds() for at in batch.column("at").to_pylist()]


def test_rows_come_in_bursts_with_pauses_of_all_lengths_between_them() -> None:
    """What waits for silence, or for a state to expire, has something to wait for."""
    found = happened_s(BURSTS)
    gaps = [round(after - before, 6) for before, after in pairwise(found)]

    assert [gap for gap in gaps if gap > 1] == [PAUSE_S[number % 4] + 0.001 for number in range(9)]
    assert gaps.count(0.001) == 90
    assert sorted(found) == found


def test_a_moment_is_found_among_bursts() -> None:
    """Also one in a pause: the first row after it."""
    offsets = [
        BURSTS.offsets_at(START_MS + at_ms)["0"]
        for at_ms in (-1, 0, 5, 9, 10, 60_009, 60_010, 60_011, 660_019, 10**12)
    ]

    assert offsets == [0, 0, 5, 9, 10, 10, 10, 11, 20, 100]


@given(st.integers(0, 100), st.integers(1, 40))
def test_a_row_of_a_burst_is_the_same_in_every_range(start: int, burst_rows: int) -> None:
    """As everything about a generated row, its time follows from its offset alone."""
    source = replace(BURSTS, burst_rows=burst_rows)
    whole = happened_s(source)
    batches = source.read("0", Range(start=start, stop=100))

    found = [at for batch in batches for at in batch.column("at").to_pylist()]
    assert [(at - START).total_seconds() for at in found] == whole[start:]


@pytest.mark.parametrize(
    "settings",
    [
        {"burst_rows": 0},
        {"burst_rows": 5, "pauses": ()},
        {"burst_rows": 5, "pauses": (timedelta(days=-1),)},
        {"burst_rows": 5, "rows_per_s": 10.0},
        {"burst_rows": 1, "rows": 10_000_000},
        {"key": "user", "key_with": ("nothing",)},
        {"key": "user", "key_with": ("at",), "event_time": "at"},
    ],
    ids=str,
)
def test_bursts_and_keys_that_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    """When the source is made."""
    with pytest.raises(Invalid, match="rate source"):
        Rate(**{"rows": 100, **settings})


def test_further_columns_go_with_the_key() -> None:
    """A key of two columns comes again only if both do."""
    columns = {"user": pa.string(), "shop": pa.int32(), "free": pa.string()}
    source = Rate(
        columns=columns, rows=300, key="user", keys=7, key_with=("shop",), key_prefix="key"
    )
    [batch] = source.read("0", Range(start=0, stop=300))
    rows = [(row["user"], row["shop"]) for row in batch.to_pylist()]

    assert set(rows) == {(f"key-{rank}", rank) for rank in range(7)}
    assert len(set(batch.column("free").to_pylist())) == 300
