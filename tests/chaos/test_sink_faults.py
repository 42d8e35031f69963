"""Applies that are lost by order: each order once, each row once."""

import json
import pickle  # noqa: TID251 - sinks are sent to other processes as Spark does it
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.chaos.dressing import dressed
from penstock.chaos.sink_faults import (
    SinkFault,
    SinkOrders,
    Unsteady,
    UnsteadyReadable,
    UnsteadyWriter,
    unsteady,
)
from penstock.clock import SystemChance
from penstock.errors import Invalid, Unavailable
from penstock.sinks import AppliedSink, ReadableSink, Sink, StagedSink
from penstock.sinks.kafka_changelog import ChangelogTopic
from tests.support import databases
from tests.support.in_process import CLICKS, SETTINGS, LocalRun, append, click, clicks_log
from tests.support.postgres_case import new_table, plain_client, rows_in, target
from tests.support.sink_cases import apply, cursor, people

SMALL = replace(SETTINGS, limits=ps.Limits(records=9))


@pytest.fixture
def shelf() -> Iterator[ps.Memory]:
    """Memory that no other test has."""
    memory = ps.Memory(f"people-{SystemChance().unique()[:8]}")
    yield memory
    memory.clear()


@pytest.fixture
def orders(tmp_path: Path) -> SinkOrders:
    return SinkOrders(tmp_path / "orders")


def opened(sink: Sink, folder: Path) -> UnsteadyWriter:
    """The sink, open, to go wrong by the orders of the fixture."""
    made = unsteady(sink, str(folder / "orders"))
    assert isinstance(made, Unsteady)
    return made.open(target())


def test_a_lost_request_is_not_applied(
    shelf: ps.Memory, orders: SinkOrders, tmp_path: Path
) -> None:
    """The next one is."""
    writer = opened(shelf, tmp_path)
    ordered = orders.order(SinkFault.BEFORE, "people")
    with pytest.raises(Unavailable) as caught:
        writer.apply(apply(1, people(1)))

    assert (writer.read_cursor(0), shelf.rows()) == (None, [])
    assert str(caught.value).startswith("sink people, shard 0, epoch 1 met a fault: the request")
    writer.apply(apply(1, people(1)))
    assert (writer.read_cursor(0), shelf.rows()) == (cursor(1), people(1))
    assert ordered.taken() == ["sink people, shard 0, epoch 1: the request was lost"]


def test_a_lost_answer_is_to_a_request_that_was_done(
    shelf: ps.Memory, orders: SinkOrders, tmp_path: Path
) -> None:
    """Asked again, the sink finds it done."""
    writer = opened(shelf, tmp_path)
    ordered = orders.order(SinkFault.AFTER, None)
    with pytest.raises(Unavailable, match="the answer was lost"):
        writer.apply(apply(1, people(1)))

    assert (writer.read_cursor(0), shelf.rows()) == (cursor(1), people(1))
    writer.apply(apply(1, people(1)))
    assert shelf.rows() == people(1)
    told = "sink people, shard 0, epoch 1: it was done, and the answer was lost"
    assert ordered.taken() == [told]


def test_orders_are_for_so_many_applies_of_one_sink(
    shelf: ps.Memory, orders: SinkOrders, tmp_path: Path
) -> None:
    """Another sink's are left alone, and what is withdrawn does not happen."""
    writer = opened(shelf, tmp_path)
    of_another = orders.order(SinkFault.BEFORE, "others", 3)
    twice, later = orders.order(SinkFault.BEFORE, "people", 2), orders.order(SinkFault.BEFORE, None)
    for shard in (0, 1):
        with pytest.raises(Unavailable):
            writer.apply(apply(1, people(1), shard=shard))
    later.withdraw()
    writer.apply(apply(1, people(1)))

    assert [text.partition(":")[0] for text in twice.taken()] == [
        "sink people, shard 0, epoch 1",
        "sink people, shard 1, epoch 1",
    ]
    assert (later.taken(), of_another.taken()) == ([], [])
    twice.withdraw()
    assert len(twice.taken()) == 2


def test_what_the_sink_itself_refuses_takes_no_order(
    shelf: ps.Memory, orders: SinkOrders, tmp_path: Path
) -> None:
    """No answer was lost where none was given."""
    writer = opened(shelf, tmp_path)
    ordered = orders.order(SinkFault.AFTER, None)
    with pytest.raises(Invalid, match="is at no epoch"):
        writer.apply(apply(2, people(2)))

    assert ordered.taken() == []


def test_an_order_that_a_crash_fell_upon_is_not_counted(
    shelf: ps.Memory, orders: SinkOrders, tmp_path: Path
) -> None:
    """It is taken, and says nothing: whether the fault was felt is not known."""
    ordered = orders.order(SinkFault.BEFORE, None)
    (path,) = (tmp_path / "orders").iterdir()
    path.rename(path.with_name(path.name.replace("sink-", "taken-")))
    opened(shelf, tmp_path).apply(apply(1, people(1)))

    assert (ordered.taken(), shelf.rows()) == ([], people(1))


def test_without_a_folder_there_are_no_orders(shelf: ps.Memory, tmp_path: Path) -> None:
    """Whoever conducted the run may be gone."""
    opened(shelf, tmp_path / "nowhere").apply(apply(1, people(1)))

    assert shelf.rows() == people(1)


def test_what_is_no_order_is_named(shelf: ps.Memory, orders: SinkOrders, tmp_path: Path) -> None:
    """Somebody else has written into the folder."""
    orders.order(SinkFault.AFTER, "nobody")
    (tmp_path / "orders" / "sink-0.json").write_text("{}")
    with pytest.raises(Invalid, match=r"sink-0\.json is no order for a sink"):
        opened(shelf, tmp_path).apply(apply(1, people(1)))


def test_threads_take_each_order_once(shelf: ps.Memory, orders: SinkOrders, tmp_path: Path) -> None:
    """Shards are applied to at the same time."""
    writer = opened(shelf, tmp_path)
    ordered = orders.order(SinkFault.BEFORE, None, 40)

    def lost(shard: int) -> int:
        return sum(is_lost(writer, shard) for _ in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lost, range(8))) == 40
    assert len(ordered.taken()) == 40


def is_lost(writer: UnsteadyWriter, shard: int) -> bool:
    try:
        writer.apply(apply(1, [], shard=shard))
    except Unavailable:
        return True
    return False


LOSING = """
import sys
from pathlib import Path
from penstock.errors import Unavailable
from penstock.sinks import Memory
from penstock.chaos.sink_faults import unsteady
from tests.support.postgres_case import target
from tests.support.sink_cases import apply

folder, lost = Path(sys.argv[1]), 0
writer = unsteady(Memory("people"), str(folder)).open(target())
print("ready", flush=True)
sys.stdin.readline()
while list(folder.glob("sink-*")):
    try:
        writer.apply(apply(1, []))
    except Unavailable:
        lost += 1
print(lost)
"""


def test_processes_take_each_order_once(orders: SinkOrders, tmp_path: Path) -> None:
    """A zombie and its successor do not both lose the same request."""
    ordered = orders.order(SinkFault.BEFORE, None, 40)
    command = [sys.executable, "-c", LOSING, str(tmp_path / "orders")]
    with ExitStack() as stack:
        started = [stack.enter_context(contender(command)) for _ in range(2)]
        for each in started:
            assert each.stdout is not None and each.stdout.readline() == "ready\n"
        for each in started:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        lost = [int(each.communicate()[0]) for each in started]

    assert sum(lost) == 40
    assert len(ordered.taken()) == 40


def contender(command: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


FAITHFUL: list[tuple[Sink, type | None]] = [
    (ps.Memory("people"), UnsteadyReadable),
    (ps.Postgres("people", "host=db", key="user"), UnsteadyReadable),
    (ps.Redis("people", "redis://cache", key="user"), UnsteadyReadable),
    (ps.DynamoDB("people", key="user"), UnsteadyReadable),
    (ps.LogSink("people", "memory://people"), UnsteadyReadable),
    (ps.Http("people", "https://hooks.example"), Unsteady),
    (ps.KafkaSink("people", "127.0.0.1:1", "people"), UnsteadyReadable),
    (ps.ForEachEpoch(print, name="people"), Unsteady),
    (ps.Table("people"), None),
    (ps.KafkaChangelog("127.0.0.1:1").sink("job", "count"), None),
]


@pytest.mark.parametrize(("sink", "kind"), FAITHFUL, ids=lambda each: type(each).__name__)
def test_an_unsteady_sink_is_known_for_what_it_is(sink: Sink, kind: type | None) -> None:
    """By whatever the runtime asks it for; a table and a changelog are left as they are."""
    found = unsteady(sink, "folder")

    assert type(found) is (kind or type(sink))
    assert (found.name, found.guarantee) == (sink.name, sink.guarantee)
    for asked in (AppliedSink, ReadableSink, StagedSink):
        assert isinstance(found, asked) == isinstance(sink, asked)
    if isinstance(found, AppliedSink) and isinstance(sink, AppliedSink):
        assert found.shards(4) == sink.shards(4)
    assert pickle.loads(pickle.dumps(found)) == found
    assert unsteady(found, "folder") is found
    assert isinstance(found, ChangelogTopic) == isinstance(sink, ChangelogTopic)


def test_an_unsteady_sink_is_read_back_as_it_is(shelf: ps.Memory, tmp_path: Path) -> None:
    """And refuses what it would refuse."""
    opened(shelf, tmp_path).apply(apply(1, people(1)))
    found = unsteady(shelf, str(tmp_path))
    assert isinstance(found, UnsteadyReadable)

    holding = found.read_back(target())
    assert [row for batch in holding.batches() for row in batch.to_pylist()] == people(1)
    keyed = unsteady(ps.Redis("people", "redis://cache", key="nobody"), str(tmp_path))
    assert isinstance(keyed, Unsteady)
    with pytest.raises(Invalid, match="nobody"):
        keyed.check(target().columns.empty_table())


def some_clicks() -> list[dict[str, Any]]:
    return [click(f"user {n % 7}", n, n) for n in range(60)]


def run_with(sink: Sink, folder: Path) -> LocalRun:
    """A job that writes what it reads, its sink unsteady; run to its end."""
    log = clicks_log(folder, partitions=2, key="user")
    append(log, some_clicks())
    job = ps.Job("clicks", partitions=2)
    job.read(log, event_time="at").write(sink)
    run = LocalRun(dressed(job, sinks=lambda each: unsteady(each, str(folder / "orders"))), folder)
    run.run(SMALL)
    return run


@pytest.mark.parametrize("kind", list(SinkFault), ids=lambda kind: kind.name)
def test_a_job_survives_what_is_lost(
    kind: SinkFault, shelf: ps.Memory, orders: SinkOrders, tmp_path: Path
) -> None:
    """Every row is there once, and every order was carried out."""
    ordered = orders.order(kind, shelf.name, 5)
    run = run_with(shelf, tmp_path)

    assert sorted(shelf.rows(), key=lambda row: row["n"]) == some_clicks()
    told = ordered.taken()
    assert len(told) == 5 and all(text.startswith(f"sink {shelf.name}, shard ") for text in told)
    assert run.root.check().clean


@pytest.mark.usefixtures("passwords")
@pytest.mark.parametrize("kind", list(SinkFault), ids=lambda kind: kind.name)
def test_a_postgres_has_every_row_once(
    kind: SinkFault, postgres_server: databases.Postgres, orders: SinkOrders, tmp_path: Path
) -> None:
    """Where a row that is applied twice would be there twice."""
    table = new_table()
    ordered = orders.order(kind, "people", 5)
    run_with(ps.Postgres("people", postgres_server.dsn(), table=table, create=True), tmp_path)

    with plain_client(postgres_server) as client:
        found = rows_in(client, table, CLICKS.names)
    assert sorted(found, key=lambda row: row["n"]) == some_clicks()
    assert len(ordered.taken()) == 5


def test_an_order_is_a_line_that_anybody_can_read(orders: SinkOrders, tmp_path: Path) -> None:
    """Whoever looks into the folder of a run that went wrong."""
    orders.order(SinkFault.AFTER, "people")
    (path,) = (tmp_path / "orders").iterdir()

    assert path.name.startswith("sink-000001-")
    assert json.loads(path.read_text()) == {
        "kind": "it was done, and the answer was lost",
        "sink": "people",
    }
