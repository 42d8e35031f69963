"""Epochs run in this process: the very functions that Spark calls, without Spark between them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.checkpoint.manifest import PartitionState
from penstock.checkpoint.recovery import Lineage
from penstock.checkpoint.root import Root
from penstock.checkpoint.signed_store import open_root_store
from penstock.checkpoint.snapshots import SnapshotPolicy
from penstock.clock import Clock, SystemChance
from penstock.errors import Unavailable
from penstock.ids import Epoch, Generation, Key, Token
from penstock.runtime.checking import Outcome
from penstock.runtime.compatibility import check_same_job
from penstock.runtime.inbox import Inbox
from penstock.runtime.loop import EpochLoop, Runner, position_of
from penstock.runtime.packing import Packer
from penstock.runtime.planning import Planner
from penstock.runtime.processing import failure_part, process
from penstock.runtime.reading import read
from penstock.runtime.row_values import python_rows
from penstock.runtime.settings import RunSettings
from penstock.runtime.telling import Listener, Ran
from penstock.runtime.topology import Topology
from penstock.runtime.wire import (
    Failure,
    Kind,
    Orders,
    Part,
    Plan,
    Report,
    batches_of,
    decode,
    encode,
    parts_of,
)
from penstock.runtime.workshop import Workshop
from penstock.sinks.table import open_file
from penstock.state import StateSettings
from tests.support.driving import ManualClock
from tests.support.logs import AT_ONCE

CLICKS = pa.schema([("user", pa.string()), ("n", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
"""The columns of most events here."""

SMALL = StateSettings(block_cache_bytes=4 << 20)
SETTINGS = RunSettings(
    until="caught-up",
    read_tasks=2,
    state=SMALL,
    snapshots=SnapshotPolicy(every_epochs=3),
    backoff_s=1.0,
)


class Misplaced(Unavailable):
    """The loop knows it by its name: a row that a direct task may not have."""


class InProcessRunner:
    """Runs the stages of an epoch one after the other. Parts travel as bytes, as with Spark."""

    def __init__(self, shop: Workshop, seed: int = 0) -> None:
        self.shop = shop
        self.plans: list[Plan] = []
        self._random = Random(seed)

    def run(self, plan: Plan) -> Outcome:
        """One try of an epoch."""
        self.plans.append(plan)
        parts = [part for number in range(len(plan.tasks)) for part in self._read(plan, number)]
        for operator in self.shop.topology.operators:
            if not (plan.direct and operator.stage == 1):
                parts = self._stage(operator.stage, parts)
        reports = [decode(part.head, Report) for part in parts if part.kind is Kind.REPORT]
        failures = [decode(part.head, Failure) for part in parts if part.kind is Kind.FAILURE]
        return Outcome(reports, failures, {})

    def is_alive(self) -> bool:
        """It cannot be lost."""
        return True

    def _read(self, plan: Plan, number: int) -> Iterator[Part]:
        parts = read(self.shop, plan, number)
        if not plan.direct:
            yield from parts
            return
        inbox = Inbox(1)
        for part in parts:
            if part.stage != 1:
                yield part
            elif part.to == number:
                inbox.add(part)
            elif part.kind is Kind.ROWS:
                error = Misplaced(f"partition {number}", "holds rows of another", "shuffle")
                yield failure_part(error, plan.run, 1, number)
                return
        yield from process(self.shop, inbox, number)

    def _stage(self, stage: int, parts: list[Part]) -> list[Part]:
        """What a stage hands on. Its parts come in any order."""
        travelled = list(parts_of(batches_of(parts)))
        self._random.shuffle(travelled)
        handed_on = [part for part in travelled if part.stage != stage]
        for partition in range(self.shop.topology.partitions):
            inbox = Inbox(stage)
            for part in travelled:
                if (part.stage, part.to) == (stage, partition):
                    inbox.add(part)
            handed_on += process(self.shop, inbox, partition)
        return handed_on


def no_spark(transform: Any, schema: pa.Schema) -> pa.Schema:
    """What a transform makes of columns, for jobs that have none."""
    raise AssertionError("this job has no transform")


def workshop(topology: Topology, folder: Path) -> Workshop:
    """What the tasks of a job are given; its root and its state are below a folder."""
    return Workshop(
        topology=topology,
        root_url=str(folder / "root"),
        folder_name=topology.job,
        settings=SMALL,
        snapshots=SETTINGS.snapshots,
        state_folder=str(folder / "state"),
    )


@dataclass
class LocalRun:
    """A job on a root below a folder; `run` is one life of its leader."""

    job: ps.Job
    folder: Path
    clock: Clock = field(default_factory=ManualClock)
    seed: int = 0
    direct: bool = True
    runners: list[InProcessRunner] = field(default_factory=list)
    loops: list[EpochLoop] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The root."""
        return str(self.folder / "root")

    @property
    def root(self) -> Root:
        """The root, to look at."""
        return Root(open_root_store(self.url), self.clock, SystemChance())

    def run(
        self,
        settings: RunSettings = SETTINGS,
        *,
        around: Callable[[Runner], Runner] = lambda runner: runner,
        stopped: Callable[[], bool] = lambda: False,
        listener: Listener | None = None,
    ) -> Ran:
        """Lead, run epochs, release. `around` may put something between the loop and the tasks."""
        topology = self.job.topology(self.url, no_spark)
        self.runners.append(InProcessRunner(workshop(topology, self.folder), self.seed))
        root, ran = self.root, Ran() if listener is None else Ran(listener)
        with root.lead(self.job.name) as session:
            undescribed = check_same_job(topology, root, session.manifest, self.url)
            planner = Planner(
                topology,
                settings.limits,
                settings.snapshots,
                settings.read_tasks or 1,
                self.clock,
                root.chance,
                self.direct,
            )
            generation = session.head.generation
            position = position_of(root, session.manifest, generation, topology, undescribed)
            runner = around(self.runners[-1])
            loop = EpochLoop(root, session, planner, runner, settings, ran, self.clock, position)
            self.loops.append(loop)
            loop.run(stopped)
        return ran

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Some columns of a table, sorted."""
        found = ps.read_table(self.url, table).select(list(columns)).to_pylist()
        return sorted(tuple(row.values()) for row in found)


def clicks_log(folder: Path, name: str = "clicks", **settings: Any) -> ps.Log:
    """A topic of clicks on a real folder."""
    return ps.Log.create(str(folder / name), CLICKS, **settings)


def click(user: str | None, n: int, at_s: int | None = 0) -> dict[str, Any]:
    """One click, so many seconds after 1970."""
    at = None if at_s is None else datetime.fromtimestamp(at_s, tz=UTC)
    return {"user": user, "n": n, "at": at}


def append(log: ps.Log, rows: Sequence[dict[str, Any]], partition: int | None = None) -> None:
    """Append rows, by their key or to a partition."""
    with log.producer(batching=AT_ONCE) as producer:
        producer.append(list(rows), partition)


@dataclass(frozen=True)
class Done:
    """What came out of one attempt."""

    parts: list[Part]
    outputs: dict[str, list[dict[str, Any]]]
    """The staged rows of each sink, read back from the store."""

    @property
    def report(self) -> Report:
        """The report, which is the last part unless it failed."""
        assert self.parts[-1].kind is Kind.REPORT, self.failure
        return decode(self.parts[-1].head, Report)

    @property
    def failure(self) -> Failure:
        """The failure, which is then the only part."""
        assert [part.kind for part in self.parts] == [Kind.FAILURE]
        return decode(self.parts[0].head, Failure)

    def rows(self, sink: str, *columns: str) -> list[tuple[Any, ...]]:
        """Some columns of what was staged for a sink, as they stand."""
        return [tuple(row[column] for column in columns) for row in self.outputs.get(sink, [])]


@dataclass(frozen=True)
class Sent:
    """Rows as a reading task sends them: of one source partition, from some offset on."""

    rows: Sequence[dict[str, Any]]
    partition: str = "0"
    first: int = 0
    source: str = "clicks"


def table_of(schema: pa.Schema, sent: Sent) -> pa.Table:
    """Rows with the columns that reading adds; the column `at` is the event time."""
    table = pa.Table.from_pylist(list(sent.rows), schema)
    offsets = pa.array(range(sent.first, sent.first + len(sent.rows)), pa.int64())
    table = table.append_column("_offset", offsets)
    times = table.column("at") if "at" in schema.names else pa.nulls(len(offsets), CLICKS[2].type)
    table = table.append_column("_event_time", times)
    return table.append_column("_broker_time", pa.nulls(len(offsets), CLICKS[2].type))


def _add_first(inbox: Inbox, parts: Iterable[Part]) -> None:
    for part in parts:
        if part.to == 0:
            inbox.add(part)


class OnePartition:
    """The first partition of a job's first operator, epoch by epoch, without a loop."""

    def __init__(self, job: ps.Job, folder: Path) -> None:
        self.topology = job.topology(str(folder / "root"), no_spark)
        self.shop = workshop(self.topology, folder)
        self.epoch = 0
        self.lineage = Lineage((), ())

    def orders(self, watermark_ms: int | None = None, planned_ms: int = 1_000_000) -> Orders:
        """Orders for the next epoch. One reading task feeds it."""
        return Orders(
            run="run",
            epoch=Epoch(self.epoch + 1),
            generation=Generation(1),
            token=Token(1),
            watermark_ms=watermark_ms,
            planned_ms=planned_ms,
            files=self.lineage.files,
            deltas=self.lineage.deltas,
            files_at=self.lineage.files_at,
            cuts_snapshot=False,
            origins=tuple((feed.origin, 1) for feed in self.topology.operator(1).feeds),
        )

    def inbox(self, orders: Orders, sent: Iterable[Sent]) -> Inbox:
        """Everything that comes for it in an epoch."""
        inbox = Inbox(1)
        inbox.add(Part(0, 1, Kind.ORDERS, encode(orders)))
        mine, operator = list(sent), self.topology.operator(1)
        for number, feed in enumerate(operator.feeds):
            packer = Packer.to(self.topology, 1, number, feed, orders.run)
            for each in (each for each in mine if each.source == feed.origin):
                table = table_of(feed.schema, each)
                parts = packer.pack(table, each.source, each.partition, (each.first, 0))
                _add_first(inbox, parts)
            _add_first(inbox, packer.barriers(0, 1))
        return inbox

    def attempt(self, *sent: Sent, **times: Any) -> Done:
        """Process the next epoch; nothing of it is committed."""
        parts = list(process(self.shop, self.inbox(self.orders(**times), sent), 0))
        if parts[-1].kind is not Kind.REPORT:
            return Done(parts, {})
        outputs = decode(parts[-1].head, Report).outputs
        return Done(parts, {name: self._stored(output.ref.key) for name, output in outputs.items()})

    def run(self, *sent: Sent, **times: Any) -> Done:
        """Process the next epoch and commit it: the next orders carry its lineage."""
        done = self.attempt(*sent, **times)
        self.epoch += 1
        state = PartitionState(delta=done.report.delta, snapshot=done.report.snapshot)
        self.lineage = self.lineage.extended(Epoch(self.epoch), state)
        return done

    def _stored(self, key: Key) -> list[dict[str, Any]]:
        stored = self.shop.store.get(key)
        assert stored is not None
        _, batches = open_file(key, stored.body)
        return [row for batch in batches for row in python_rows(pa.Table.from_batches([batch]))]
