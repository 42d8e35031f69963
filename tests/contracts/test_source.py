"""The promises of `Source`, kept by every implementation."""

import pickle  # noqa: TID251 - what crosses Spark's processes is pickled by Spark, not by us
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.clock import SystemChance
from penstock.errors import Gone, Invalid
from penstock.sources import META, META_NAME, Limits, Range, Source, Span, lag, start_offsets
from tests.support.kafka_supply import kafka_supply
from tests.support.logs import new_url
from tests.support.servers import BUCKET, Endpoint
from tests.support.supplies import (
    PARTITIONS,
    Supply,
    files_supply,
    log_supply,
    plain,
    rate_supply,
)

PLANNED_MS = 1_234_567
UNKNOWN = ["2", "x", "-1", "", "00", "0 ", "٠"]
EXPIRING = ["log-memory", "log-directory", "log-s3", "log-by-broker-time", "kafka"]
RECORDS = [Limits(records=records) for records in (0, 1, 2, 5, 24, 1000)]
BYTES = [Limits(size_bytes=size_bytes) for size_bytes in (0, 1, 300, 1 << 30)]
BOTH = [Limits(records=3, size_bytes=1 << 30), Limits(records=1000, size_bytes=1)]
LIMITS = [*RECORDS, *BYTES, *BOTH]
WRONG_STARTS = [
    "newest",
    "",
    None,
    5,
    datetime(2026, 1, 1),
    {"7": 0},
    {"0": -1},
    {"0": 1 << 40},
    {"0": None},
    {"0": "1"},
    ["earliest"],
]


@pytest.fixture(params=[*EXPIRING, "rate", "files-parquet", "files-jsonl"])
def supply(
    request: pytest.FixtureRequest, tmp_path: Path, use: Callable[[Endpoint], None]
) -> Supply:
    """Every source there is, with rows in two partitions."""
    kind, _, which = str(request.param).partition("-")
    if kind == "rate":
        return rate_supply()
    if kind == "kafka":
        return kafka_supply(request.getfixturevalue("kafka_broker"))
    if kind == "files":
        return files_supply(tmp_path / "in", which)
    if which == "s3":
        use(request.getfixturevalue("atomic_moto"))
        return log_supply(f"s3://{BUCKET}/{SystemChance().unique()}")
    if which == "by-broker-time":
        return log_supply(new_url(), event_time=None)
    return log_supply(new_url() if which == "memory" else str(tmp_path / "log"))


@pytest.fixture
def source(supply: Supply) -> Source:
    return supply.source


def whole(source: Source) -> dict[str, Range]:
    return {
        partition: Range(start=span.earliest, stop=span.latest)
        for partition, span in source.spans().items()
    }


def read(source: Source, partition: str, start: int, stop: int) -> list[dict[str, Any]]:
    """The rows of a range, with all that is known of them."""
    batches = source.read(partition, Range(start=start, stop=stop), PLANNED_MS)
    return [row for batch in batches for row in batch.to_pylist()]


def read_all(source: Source, ranges: Mapping[str, Range] | None = None) -> dict[str, list[Any]]:
    wanted = whole(source) if ranges is None else ranges
    return {name: read(source, name, each.start, each.stop) for name, each in wanted.items()}


def count(source: Source, ranges: Mapping[str, Range]) -> int:
    return sum(len(found) for found in read_all(source, ranges).values())


def offsets(found: list[dict[str, Any]]) -> list[int]:
    return [row[META_NAME]["offset"] for row in found]


def cuts_of(span: Range) -> list[list[int]]:
    """Some ways to cut a range into smaller ones: at all offsets, if they are few."""
    rng = random.Random(7)
    inside = range(span.start + 1, span.stop)
    several = [sorted(rng.sample(inside, min(len(inside), 7))) for _ in range(2)]
    return [[], list(inside)[:: max(1, len(inside) // 12)], *several]


def test_its_columns_are_told_without_meta(source: Source) -> None:
    """What is known of a row is no column of it."""
    assert META_NAME not in source.schema().names
    assert source.schema() == source.schema()


def test_spans_are_offsets_from_earliest_to_latest(source: Source) -> None:
    """Asking changes nothing."""
    spans = source.spans()

    assert list(spans) == list(PARTITIONS)
    assert all(0 <= span.earliest < span.latest for span in spans.values())
    assert source.spans() == spans


def test_its_rows_are_those_that_were_put_in(supply: Supply) -> None:
    """Nothing is lost, added, changed or moved."""
    found = read_all(supply.source)

    assert {name: [plain(row) for row in rows] for name, rows in found.items()} == supply.rows


def test_batches_have_the_columns_and_then_meta(source: Source) -> None:
    """Every batch can be put together with every other, from any source with those columns."""
    schema = source.schema().append(pa.field(META_NAME, META))
    batches = [
        batch
        for partition, wanted in whole(source).items()
        for batch in source.read(partition, wanted, PLANNED_MS)
    ]

    assert {batch.schema.equals(schema) for batch in batches} == {True}
    assert min(batch.num_rows for batch in batches) > 0
    for batch in batches:
        batch.validate(full=True)


def test_every_row_knows_when_its_epoch_was_planned(source: Source) -> None:
    """A second attempt sees the very rows of the first."""
    planned = datetime.fromtimestamp(PLANNED_MS / 1000, UTC)
    times = {row[META_NAME]["ingest_time"] for rows in read_all(source).values() for row in rows}

    assert times == {planned}


def test_offsets_ascend_inside_the_range(source: Source) -> None:
    """The next offset to read follows from the last row read."""
    for partition, wanted in whole(source).items():
        found = offsets(read(source, partition, wanted.start, wanted.stop))

        assert all(before < after for before, after in pairwise(found))
        assert wanted.start <= found[0] <= found[-1] < wanted.stop


def test_any_cut_of_a_range_gives_its_rows_once(source: Source) -> None:
    """However an epoch is shared out among tasks, and however often they try."""
    for partition, wanted in whole(source).items():
        once = read(source, partition, wanted.start, wanted.stop)
        for cuts in cuts_of(wanted):
            bounds = [wanted.start, *cuts, wanted.stop]
            parts = [read(source, partition, *bound) for bound in pairwise(bounds)]

            assert [row for part in parts for row in part] == once
            for found, (start, stop) in zip(parts, pairwise(bounds), strict=True):
                assert all(start <= offset < stop for offset in offsets(found))


def test_an_empty_range_has_no_rows(source: Source) -> None:
    """A task may be left without work."""
    for partition, wanted in whole(source).items():
        for at in (wanted.start, wanted.start + 1, wanted.stop):
            assert list(source.read(partition, Range(start=at, stop=at))) == []


def test_a_partition_that_there_is_not_cannot_be_read(source: Source) -> None:
    """One partition has one name; a slip must not read another one."""
    wanted = Range(start=0, stop=1)
    kinds = {name: refusal(lambda name=name: list(source.read(name, wanted))) for name in UNKNOWN}

    assert kinds == dict.fromkeys(UNKNOWN, Invalid)


def test_a_range_that_is_none_is_refused(source: Source) -> None:
    """A wrong range is a wrong job, not an empty one."""
    wrong = [Range(start=start, stop=stop) for start, stop in [(2, 1), (-1, 1), (-2, -1), (-1, -1)]]
    kinds = [refusal(lambda wanted=wanted: list(source.read("0", wanted))) for wanted in wrong]

    assert kinds == [Invalid] * len(wrong)


def refusal(attempt: Callable[[], Any]) -> type[Exception] | None:
    """The kind of error that something ends in."""
    try:
        attempt()
    except Exception as error:  # noqa: BLE001 - a wrong kind is as bad as none
        return type(error)
    return None


def test_offsets_that_are_still_to_come_cannot_be_read(supply: Supply) -> None:
    """Who reads short and goes on has lost rows."""
    for partition in PARTITIONS:
        end = supply.end(partition)
        for start in (0, end, end + 1):
            with pytest.raises(Invalid) as caught:
                list(supply.source.read(partition, Range(start=start, stop=end + 1)))
            assert type(caught.value) is Invalid


@pytest.mark.parametrize("supply", EXPIRING, indirect=True)
def test_what_retention_has_removed_is_gone(supply: Supply) -> None:
    """Never cut short: a reader that fell behind must be told."""
    assert supply.expire is not None
    before = supply.source.spans()
    supply.expire()

    spans = supply.source.spans()
    assert all(spans[p].earliest > before[p].earliest == 0 for p in PARTITIONS)
    assert {p: spans[p].latest for p in PARTITIONS} == {p: before[p].latest for p in PARTITIONS}
    for attempt in (
        lambda: list(supply.source.read("0", Range(start=0, stop=spans["0"].latest))),
        lambda: list(supply.source.read("0", Range(start=0, stop=1))),
        lambda: supply.source.plan({"0": 0}, Limits()),
        lambda: start_offsets(supply.source, {"0": 0}),
    ):
        with pytest.raises(Gone, match="'earliest'"):
            attempt()
    found = read_all(supply.source)
    assert {name: [plain(row) for row in rows] for name, rows in found.items()} == supply.rows


def test_a_plan_without_limits_is_everything(source: Source) -> None:
    """A partition nobody has read begins at its earliest."""
    assert source.plan({}, Limits()) == whole(source)


def test_a_plan_goes_on_where_it_should(source: Source) -> None:
    """Partitions with nothing new are left out."""
    first, second = whole(source).values()
    middle = source.plan({}, Limits(records=4))["0"].stop

    assert source.plan({"0": middle, "1": second.stop}, Limits()) == {
        "0": Range(start=middle, stop=first.stop)
    }
    assert source.plan({"0": first.stop, "1": second.stop}, Limits(records=1)) == {}
    assert source.plan({"0": first.stop, "1": second.stop}, Limits()) == {}


def test_a_plan_keeps_to_its_limits(source: Source) -> None:
    """No more rows than allowed, but always one if there is one; and the same on every asking."""
    everything = count(source, whole(source))
    found = {}
    for limits in LIMITS:
        ranges = source.plan({}, limits)
        assert source.plan({}, limits) == ranges
        assert all(each.start == 0 < each.stop for each in ranges.values())
        found[limits] = count(source, ranges)

    by_records = {limits: min(max(1, limits.records or 0), everything) for limits in RECORDS}
    by_bytes = dict(zip(BYTES, (1, 1, found[BYTES[2]], everything), strict=True))
    assert found == {**by_records, **by_bytes, **dict(zip(BOTH, (3, 1), strict=True))}
    assert 1 <= found[BYTES[2]] < everything


@pytest.mark.parametrize("limits", [Limits(records=7), Limits(size_bytes=700)], ids=str)
def test_plan_after_plan_reads_every_row_once(supply: Supply, limits: Limits) -> None:
    """A job that is far behind catches up, and what comes meanwhile is not forgotten."""
    source = supply.source
    resume: dict[str, int] = {}
    found: dict[str, list[Any]] = {partition: [] for partition in PARTITIONS}
    epochs = 0
    while ranges := source.plan(resume, limits):
        for partition, wanted in ranges.items():
            assert wanted.start == resume.get(partition, 0)
            found[partition] += read(source, partition, wanted.start, wanted.stop)
            resume[partition] = wanted.stop
        epochs += 1
        if epochs == 2:
            supply.add()

    assert {name: [plain(row) for row in rows] for name, rows in found.items()} == supply.rows
    assert resume == {partition: span.latest for partition, span in source.spans().items()}


def test_offsets_beyond_the_end_cannot_be_resumed_at(supply: Supply) -> None:
    """A source that was made anew under a job that remembers the old one."""
    for partition in PARTITIONS:
        with pytest.raises(Invalid) as caught:
            supply.source.plan({partition: supply.end(partition) + 1}, Limits())
        assert type(caught.value) is Invalid


def test_partitions_and_offsets_only_grow(supply: Supply) -> None:
    """What was read stays what it was, whatever comes behind it."""
    source = supply.source
    before, found = source.spans(), read_all(source)
    supply.add()
    if supply.grow is not None:
        supply.grow()
    after = source.spans()

    assert set(before) <= set(after)
    assert len(after) == len(before) + (supply.grow is not None)
    for partition, span in before.items():
        assert after[partition].earliest == span.earliest
        assert after[partition].latest > span.latest
        assert read(source, partition, span.earliest, span.latest) == found[partition]
    assert {after[partition] for partition in set(after) - set(before)} <= {Span(0, 0)}


def test_a_moment_is_found_at_the_first_row_as_late(supply: Supply) -> None:
    """Starting at a moment misses no row of it, and begins with one."""
    source, found = supply.source, read_all(supply.source)
    times = {
        name: [(offset, row[META_NAME][supply.timed_by]) for offset, row in numbered(rows)]
        for name, rows in found.items()
    }
    moments = sorted({at for rows in times.values() for _, at in rows})
    spans = source.spans()
    for moment in (moments[0], moments[len(moments) // 2], moments[-1]):
        at_ms = round(moment.timestamp() * 1000)
        for asked_ms in (at_ms - 1, at_ms, at_ms + 1):
            asked = datetime.fromtimestamp(asked_ms / 1000, UTC)
            expected = {
                name: next((offset for offset, at in rows if at >= asked), spans[name].latest)
                for name, rows in times.items()
            }
            assert source.offsets_at(asked_ms) == expected


def numbered(rows: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    return [(row[META_NAME]["offset"], row) for row in rows]


def test_moments_before_and_after_everything_are_its_ends(source: Source) -> None:
    """A date that is far off is no error."""
    spans = source.spans()

    assert source.offsets_at(0) == {name: span.earliest for name, span in spans.items()}
    assert source.offsets_at(-1_000_000) == {name: span.earliest for name, span in spans.items()}
    assert source.offsets_at(1 << 42) == {name: span.latest for name, span in spans.items()}


def test_it_can_be_sent_to_another_process(supply: Supply) -> None:
    """The leader plans, tasks read; none of them has seen the other's source."""
    source, found = supply.source, read_all(supply.source)
    ranges = source.plan({}, Limits(records=5))

    copy: Source = pickle.loads(pickle.dumps(source))

    assert (copy.name, copy.schema(), copy.spans()) == (
        source.name,
        source.schema(),
        source.spans(),
    )
    assert copy.plan({}, Limits(records=5)) == ranges
    assert read_all(copy, whole(source)) == found


def test_lag_is_what_is_still_to_be_read(source: Source) -> None:
    """Told of every partition, and never less than nothing."""
    first, second = source.spans().values()

    assert lag(source, {}) == {"0": first.latest, "1": second.latest}
    assert lag(source, {"0": 3, "1": second.latest}) == {"0": first.latest - 3, "1": 0}
    assert lag(source, {"0": first.latest + 9}) == {"0": 0, "1": second.latest}


def test_a_start_is_an_end_a_moment_or_offsets(supply: Supply) -> None:
    """The same words for every source."""
    source = supply.source
    spans = source.spans()
    times = [row[META_NAME][supply.timed_by] for row in read_all(source)["1"]]

    assert start_offsets(source, "earliest") == {"0": 0, "1": 0}
    assert start_offsets(source, "latest") == {n: span.latest for n, span in spans.items()}
    assert start_offsets(source, max(times)) == source.offsets_at(
        round(max(times).timestamp() * 1000)
    )
    assert start_offsets(source, {"1": 2}) == {"1": 2}
    assert start_offsets(source, {}) == {}


def test_a_start_that_is_none_of_these_is_refused(source: Source) -> None:
    """A mistake in somebody's job is told as one, with what there is to choose from."""
    kinds = [refusal(lambda start=start: start_offsets(source, start)) for start in WRONG_STARTS]

    assert kinds == [Invalid] * len(WRONG_STARTS)
