"""The promise of every sink, against every sink there is, each with its real server."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.chaos.tcp_proxy import Answers, Requests, TcpProxy
from penstock.clock import SystemChance
from penstock.errors import Fenced, Invalid, Unavailable
from penstock.ids import Token
from penstock.sinks import Guarantee, Holding, Memory, ReadableSink, Target, Writer
from penstock.sinks.protocol import PLACE
from penstock.sinks.staged import rows_of
from tests.support.delta_case import delta_append_case, delta_merge_case, delta_s3_case
from tests.support.dynamodb_case import dynamodb_case
from tests.support.for_each_case import for_each_case
from tests.support.http_case import http_case
from tests.support.kafka_case import kafka_case
from tests.support.log_sink_case import log_sink_case, log_sink_s3_case
from tests.support.postgres_case import postgres_append_case, postgres_upsert_case
from tests.support.redis_case import redis_case
from tests.support.sink_cases import (
    JOB,
    PEOPLE,
    Row,
    SinkCase,
    apply,
    cursor,
    in_order,
    people,
    staged,
)

CUTS_MAX = 200

Making = Callable[[pytest.FixtureRequest, Path], AbstractContextManager[SinkCase]]


@contextmanager
def memory_case(request: pytest.FixtureRequest, folder: Path) -> Iterator[SinkCase]:
    """The contract in its smallest form."""
    sink = Memory(f"people-{SystemChance().unique()}")
    yield SinkCase(lambda columns, deletes, proxy: sink, lambda columns: sink.rows())


CASES: dict[str, Making] = {
    "memory": memory_case,
    "postgres-append": postgres_append_case,
    "postgres-upsert": postgres_upsert_case,
    "redis": redis_case,
    "dynamodb": dynamodb_case,
    "delta-append": delta_append_case,
    "delta-merge": delta_merge_case,
    "delta-s3": delta_s3_case,
    "log": log_sink_case,
    "log-s3": log_sink_s3_case,
    "http": http_case,
    "kafka": kafka_case,
    "for-each": for_each_case,
}
OVER_A_LINE = [
    "postgres-append", "postgres-upsert", "redis", "dynamodb", "delta-s3", "log-s3", "http",
    "kafka",
]  # fmt: skip
"""Those that talk to a server over a line that can be cut."""
DELETING = ["postgres-upsert", "redis", "dynamodb", "delta-merge", "kafka"]
"""Those that can take a row back."""
READABLE = [name for name in CASES if name not in ("http", "for-each")]
"""Those whose target can be read back."""
TAKING_BACK = [name for name in DELETING if name in READABLE and name != "kafka"]
"""Those of them where a row that was taken back is gone. In a topic it stays, and a tombstone is
one message more; tests/sinks/test_kafka_holding.py has what is shown of it."""


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SinkCase]:
    with CASES[request.param](request, tmp_path) as made:
        yield made


def is_honest(case: SinkCase) -> Guarantee:
    """What the sink says of itself."""
    return case.make(PEOPLE, None, None).guarantee


def assert_holds(case: SinkCase, rows: list[Row], columns: pa.Schema = PEOPLE) -> None:
    """Exactly these rows are there."""
    assert in_order(case.rows(columns)) == in_order([case.shown(row) for row in rows])


def test_a_shard_without_rows_has_no_cursor(case: SinkCase) -> None:
    """Before the first epoch there is nothing to go on from."""
    writer = case.open()

    assert (writer.read_cursor(0), case.rows(PEOPLE)) == (None, [])


def test_rows_and_cursor_come_together(case: SinkCase) -> None:
    """What the cursor says is what is there."""
    writer = case.open()
    writer.apply(apply(1, people(1)))
    writer.apply(apply(2, people(2)))

    assert writer.read_cursor(0) == cursor(2)
    assert_holds(case, people(1) + people(2))


def test_applying_twice_changes_nothing(case: SinkCase) -> None:
    """A leader that has not heard of its success asks again."""
    writer = case.open()
    for _ in range(2):
        writer.apply(apply(1, people(1)))

    assert writer.read_cursor(0) == cursor(1)
    assert_holds(case, people(1))


def test_a_sink_that_is_opened_again_is_where_it_was(case: SinkCase) -> None:
    """The cursor is in the sink, not in the process that wrote it."""
    first = case.open()
    first.apply(apply(1, people(1)))
    first.close()
    second = case.open()

    assert second.read_cursor(0) == cursor(1)
    second.apply(apply(1, people(1)))
    second.apply(apply(2, people(2), token=2))
    assert_holds(case, people(1) + people(2))


def test_an_epoch_out_of_order_is_refused(case: SinkCase) -> None:
    """Who skips an epoch loses it: the cursor would say that it was there."""
    writer = case.open()
    writer.apply(apply(1, people(1)))

    with pytest.raises(Invalid, match="epoch 1 of generation 1 and was given epoch 3"):
        writer.apply(apply(3, people(3)))

    assert writer.read_cursor(0) == cursor(1)
    assert_holds(case, people(1))


def test_an_epoch_of_another_history_is_refused(case: SinkCase) -> None:
    """Two roots of one job must not write their epochs of one number into one another's."""
    writer = case.open()
    writer.apply(apply(1, people(1)))
    other = cursor(1, commit="of a fork")

    with pytest.raises(Invalid):
        writer.apply(apply(2, people(2), follows=other))
    with pytest.raises(Invalid):
        writer.apply(apply(1, people(7), at=other))

    assert writer.read_cursor(0) == cursor(1)
    assert_holds(case, people(1))


def test_a_deposed_leader_is_refused(case: SinkCase) -> None:
    """The sink has heard of a later one, and needs no HEAD to know."""
    writer, late = case.open(), case.open()
    writer.apply(apply(1, people(1), token=2))

    with pytest.raises(Fenced) as caught:
        late.apply(apply(2, people(2), token=1))

    assert (caught.value.held, caught.value.newest) == (1, 2)
    assert writer.read_cursor(0) == cursor(1)
    assert_holds(case, people(1))


def test_an_empty_epoch_moves_the_cursor(case: SinkCase) -> None:
    """Else a quiet shard would look like one that lags."""
    writer = case.open()
    writer.apply(apply(1, []))
    writer.apply(apply(2, people(2)))
    writer.apply(apply(3, []))

    assert writer.read_cursor(0) == cursor(3)
    assert_holds(case, people(2))


def test_shards_are_independent(case: SinkCase) -> None:
    """Each has its own cursor, and several are written at once."""
    shards = case.make(PEOPLE, None, None).shards(case.shards)
    writer = case.open()
    with ThreadPoolExecutor(shards) as pool:

        def work(shard: int) -> None:
            for epoch in range(1, 4 + shard):
                writer.apply(apply(epoch, people(epoch, shard=shard), shard=shard))

        list(pool.map(work, range(shards)))

    assert [writer.read_cursor(shard) for shard in range(shards)] == [
        cursor(3 + shard) for shard in range(shards)
    ]
    written = [people(epoch, shard=s) for s in range(shards) for epoch in range(1, 4 + s)]
    assert_holds(case, [row for rows in written for row in rows])


def test_jobs_have_cursors_of_their_own(case: SinkCase) -> None:
    """Two jobs may write to one target; neither takes the other's cursor for its own."""
    case.open().apply(apply(1, people(1)))
    other = case.open(job="another")

    assert other.read_cursor(0) is None
    other.apply(apply(1, people(8)))
    assert_holds(case, people(1) + people(8))


def test_a_hundred_thousand_rows(case: SinkCase) -> None:
    """A burst is one epoch like any other."""
    writer = case.open()
    writer.apply(apply(1, people(1, case.many)))

    found = case.rows(PEOPLE)
    assert len(found) == case.many
    assert {row["user"] for row in found} == {row["user"] for row in people(1, case.many)}
    assert writer.read_cursor(0) == cursor(1)


def test_wide_rows(case: SinkCase) -> None:
    """Three hundred columns are still one row."""
    names = [f"column {n}" for n in range(300)]
    columns = pa.schema([PEOPLE.field("user"), *((name, pa.int64()) for name in names)])
    rows: list[Row] = [
        {"user": f"u{m}", **{name: m * n for n, name in enumerate(names)}} for m in range(20)
    ]
    case.open(columns).apply(apply(1, rows, columns=columns))

    assert_holds(case, rows, columns)


SEOUL = timezone(timedelta(hours=9))
KINDS = pa.schema(
    [
        ("user", pa.string()),
        ("small", pa.int32()),
        ("large", pa.int64()),
        ("share", pa.float64()),
        ("yes", pa.bool_()),
        ("price", pa.decimal128(20, 4)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("home", pa.struct([("city", pa.string()), ("floor", pa.int64())])),
    ]
)


def of_every_kind() -> list[Row]:
    """Values that are easily lost on the way."""
    full: Row = {
        "user": "김민수 🚀 \"quoted\", 'single' \\ back\nline\ttab",
        "small": -(2**31),
        "large": 2**63 - 1,
        "share": 0.1,
        "yes": True,
        "price": Decimal("-1234567890123456.7891"),
        "at": datetime(2026, 3, 1, 9, 30, 15, 123456, tzinfo=SEOUL).astimezone(UTC),
        "day": date_of(2026, 2, 28),
        "raw": b"\x00\xff\\x00",
        "tags": ["a", 'b"c', "", None],
        "home": {"city": "Busan, 부산", "floor": 12},
    }
    nothing: Row = dict.fromkeys(KINDS.names) | {"user": "nothing"}
    empty: Row = {**full, "user": "", "raw": b"", "tags": [], "home": {"city": None, "floor": 0}}
    return [full, nothing, empty]


def date_of(year: int, month: int, day: int) -> Any:
    return datetime(year, month, day, tzinfo=UTC).date()


def test_values_of_every_kind_come_back(case: SinkCase) -> None:
    """Nulls, unicode, decimals, moments with a zone, nested values: as they were written."""
    *rows, empty = of_every_kind()
    rows.append(empty if case.empty_keys else {**empty, "user": "empty"})
    case.open(KINDS).apply(apply(1, rows, columns=KINDS))

    assert_holds(case, rows, KINDS)


def test_the_last_row_of_a_key_stays(case: SinkCase) -> None:
    """Where there is a key: also of several rows in one epoch."""
    rows = [{"user": "ada", "n": n} for n in range(3)]
    writer = case.open()
    writer.apply(apply(1, [*rows, {"user": "bob", "n": 7}]))
    writer.apply(apply(2, [{"user": "ada", "n": 9}]))

    every = [*rows, {"user": "bob", "n": 7}, {"user": "ada", "n": 9}]
    assert_holds(case, every if case.keeps_all else every[-2:])


FLAGGED = pa.schema([*PEOPLE, ("gone", pa.bool_())])


@pytest.mark.parametrize("case", DELETING, indirect=True)
def test_a_row_can_be_taken_back(case: SinkCase) -> None:
    """Of a row that deletes, only the key counts; a later row brings the key back."""
    writer = case.open(FLAGGED, deletes="gone")
    for epoch, rows in enumerate(
        (
            [("ada", 1, False), ("bob", 2, None), ("eve", 3, False)],
            [("ada", 0, True), ("bob", 5, False), ("bob", 0, True), ("nobody", 0, True)],
            [("ada", 9, False)],
        ),
        start=1,
    ):
        given = [{"user": user, "n": n, "gone": gone} for user, n, gone in rows]
        writer.apply(apply(epoch, given, columns=FLAGGED))

    assert_holds(case, [{"user": "ada", "n": 9}, {"user": "eve", "n": 3}])


def test_a_cursor_can_be_put_elsewhere(case: SinkCase) -> None:
    """After a rewind somebody decides what becomes of the rows; the sink goes on from there."""
    writer = case.open()
    for epoch in range(1, 4):
        writer.apply(apply(epoch, people(epoch), token=7))
    new = cursor(2, generation=2, commit="of the new line")
    writer.accept(0, new, Token(3))

    assert writer.read_cursor(0) == new
    after = cursor(3, generation=2, commit="its next")
    writer.apply(apply(3, people(9), follows=new, at=after, token=3))
    assert writer.read_cursor(0) == after
    assert_holds(case, people(1) + people(2) + people(3) + people(9))


@pytest.mark.parametrize("case", OVER_A_LINE, indirect=True)
@pytest.mark.parametrize("lost", ["request", "answer"])
def test_a_line_cut_at_any_point_is_survived(case: SinkCase, lost: str) -> None:
    """Wherever the connection breaks: all of an epoch is there or nothing, and the cursor tells."""
    assert case.server_port is not None
    written: list[Row] = []
    epoch, cuts = 0, 0
    with TcpProxy(case.server_port) as proxy:
        every = 1 if os.environ.get("PENSTOCK_CUTS") == "all" else case.cut_every
        for number in range(1, CUTS_MAX, every):
            epoch += 1
            asked = apply(epoch, people(epoch))
            writer = case.open(proxy=proxy)
            proxy.arm(Requests(number) if lost == "request" else Answers(number=number))
            heard = is_heard(writer, asked)
            cuts, was_cut = cuts + proxy.cuts, bool(proxy.cuts)
            proxy.arm(None)
            with_it = written + people(epoch)
            if is_honest(case) is Guarantee.EXACTLY_ONCE:
                done = case.open().read_cursor(0) == asked.cursor
                assert done or not heard
                assert_holds(case, with_it if done else written)
            writer.apply(asked)  # by the same writer: it finds its own way back
            writer.close()
            written = with_it
            assert case.open().read_cursor(0) == asked.cursor
            if is_honest(case) is not Guarantee.AT_LEAST_ONCE:
                assert_holds(case, written)
            if not was_cut:
                break
        else:
            pytest.fail(f"an epoch of three rows takes more than {CUTS_MAX} pieces")
    assert cuts, "no line was cut"


def is_heard(writer: Writer, asked: Any) -> bool:
    """Whether the leader hears of its success."""
    try:
        writer.apply(asked)
    except Unavailable:
        return False
    return True


def read_back(case: SinkCase, columns: pa.Schema = PEOPLE, deletes: str | None = None) -> Holding:
    """What the target holds, as the sink itself shows it."""
    sink = case.make(columns, deletes, None)
    assert isinstance(sink, ReadableSink)
    target = Target(job=JOB, columns=columns, partitions=case.shards, store=case.store)
    return sink.read_back(target)


def compared(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Rows in any order, without where they come from."""
    names = sorted(name for name in rows.column_names if name not in PLACE)
    return sorted(zip(*(rows.column(name).to_pylist() for name in names), strict=True), key=repr)


def shown(holding: Holding) -> list[tuple[Any, ...]]:
    return [row for batch in holding.batches() for row in compared(pa.table(batch))]


def of_staged(
    holding: Holding, epoch: int, rows: list[Row], columns: pa.Schema = PEOPLE
) -> list[tuple[Any, ...]]:
    """What the sink says that staged rows must look like in its target."""
    return compared(holding.expected(rows_of(staged(epoch, rows, columns), columns)).puts)


@pytest.mark.parametrize("case", READABLE, indirect=True)
def test_what_was_written_is_read_back(case: SinkCase) -> None:
    """Rows and cursor, again and again: whoever checks a sink goes by nothing else."""
    writer = case.open()
    writer.apply(apply(1, people(1)))
    writer.apply(apply(2, people(2)))
    with closing(read_back(case)) as holding:
        assert holding.read_cursor(0) == cursor(2)
        wanted = of_staged(holding, 1, people(1)) + of_staged(holding, 2, people(2))

        assert len(wanted) == 6
        for _ in range(2):
            assert sorted(shown(holding), key=repr) == sorted(wanted, key=repr)


@pytest.mark.parametrize("case", READABLE, indirect=True)
def test_values_of_every_kind_are_read_back_as_they_were_staged(case: SinkCase) -> None:
    """A value that looks another way in the target must not be taken for another value."""
    *rows, empty = of_every_kind()
    rows.append(empty if case.empty_keys else {**empty, "user": "empty"})
    case.open(KINDS).apply(apply(1, rows, columns=KINDS))
    with closing(read_back(case, KINDS)) as holding:
        assert holding.traits.left_out == ()
        assert sorted(shown(holding), key=repr) == of_staged(holding, 1, rows, KINDS)


@pytest.mark.parametrize("case", TAKING_BACK, indirect=True)
def test_rows_that_were_taken_back_are_not_shown(case: SinkCase) -> None:
    """And what is to go is told by its key."""
    writer = case.open(FLAGGED, deletes="gone")
    first = [{"user": "ada", "n": 1, "gone": False}, {"user": "bob", "n": 2, "gone": False}]
    second = [{"user": "ada", "n": 0, "gone": True}]
    writer.apply(apply(1, first, columns=FLAGGED))
    writer.apply(apply(2, second, columns=FLAGGED))
    with closing(read_back(case, FLAGGED, "gone")) as holding:
        changes = holding.expected(rows_of(staged(2, second, FLAGGED), FLAGGED))

        assert (changes.puts.num_rows, changes.gone.num_rows) == (0, 1)
        assert shown(holding) == of_staged(holding, 1, first[1:], FLAGGED)


@pytest.mark.parametrize("case", READABLE, indirect=True)
def test_reading_back_makes_nothing(case: SinkCase) -> None:
    """Whoever looks leaves no trace: what is not there is an error, or empty, and stays so."""
    for _ in range(2):
        try:
            with closing(read_back(case)) as holding:
                found = (holding.read_cursor(0), shown(holding))
        except Invalid as refused:
            assert "not there" in refused.found or "not exist" in refused.found
        else:
            assert found == (None, [])
