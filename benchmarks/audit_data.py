"""What the audit's benchmark looks at: a root of many output rows, made without running a job.

Rows are encoded by the sinks themselves, stored, and committed by a leader, epoch by epoch; a topic
is given them as the runtime gives them. So everything is as a job would have left it, but for
state, of which there is none.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.checkpoint.chain import Chain
from penstock.checkpoint.formats import ref_to
from penstock.checkpoint.manifest import Draft, Output, Range, SourceProgress, TableIndex
from penstock.checkpoint.perform import perform
from penstock.checkpoint.root import Root
from penstock.ids import Attempt, Epoch
from penstock.runtime.job import Job
from penstock.runtime.topology import Topology
from penstock.sinks.cursors import Apply, ReadCursor
from penstock.sinks.protocol import PROVENANCE, Sink, Target
from penstock.sinks.roll_forward import Shard, roll_forward
from penstock.sinks.staged import staged
from penstock.sinks.table_index import extend_index
from penstock.sinks.table_tail import table_tails

__all__ = ["EPOCHS", "PARTITIONS", "build", "topology_of"]

EPOCHS, PARTITIONS = 50, 4
NAME = "totals"
COLUMNS = pa.schema(
    [
        ("user", pa.string()),
        ("amount", pa.int64()),
        ("share", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
EVENTS = pa.schema([("user", pa.string())])


def build(folder: Path, rows: int, way: str) -> None:
    """A root with so many rows for one sink."""
    folder.mkdir(parents=True)
    ps.Log.create(str(folder / "events"), EVENTS, partitions=PARTITIONS)
    root = Root.open(str(folder / "root"))
    sink = _sink(folder, way)
    share = rows // (EPOCHS * PARTITIONS)
    index: TableIndex | None = None
    with root.lead("bench") as session:
        for number in range(1, EPOCHS + 1):
            epoch = Epoch(number)
            if way == "table" and number > 1:
                attempt = Attempt(root.chance.unique())
                tails = table_tails(Chain(), session.manifest, [NAME])
                tail = perform(tails, root.handlers)[NAME]
                extending = extend_index(NAME, tail, epoch, attempt, None)
                index = perform(extending, root.handlers)
            outputs = tuple(
                _stored(root, sink, epoch, partition, share) for partition in range(PARTITIONS)
            )
            session.commit(_draft(number, share, outputs, index))
        if way == "sinks":
            _apply(root, session, sink)


def topology_of(folder: Path) -> Topology:
    """The job that could have written it, for the sink that is read back."""

    @ps.stateful(emits="user string, amount long, share double, at timestamp")
    def totals(user: str, events: ps.Events) -> Any:
        yield from ()

    job = Job("bench", partitions=PARTITIONS)
    events = job.read(ps.Log(str(folder / "events")), name="events")
    events.key_by("user").process(totals).write(_sink(folder, "sinks"))  # type: ignore[arg-type]
    return job.topology(str(folder / "root"), _no_spark)


def _no_spark(transform: Any, schema: pa.Schema) -> pa.Schema:
    raise AssertionError("this job has no transform")


def _sink(folder: Path, way: str) -> Sink:
    return ps.Table(NAME) if way == "table" else ps.LogSink(NAME, str(folder / "topic"))


def _stored(root: Root, sink: Sink, epoch: Epoch, partition: int, share: int) -> Output:
    attempt = Attempt(root.chance.unique())
    key, body = staged(sink, epoch, partition, attempt, _rows(epoch, partition, share))
    root.store.put(key, body)
    return Output(partition=partition, ref=ref_to(key, body), rows=share)


def _rows(epoch: int, partition: int, share: int) -> pa.Table:
    """Rows of one task, each from one offset of one partition of the source."""
    first = (epoch - 1) * share
    numbers = np.arange(first, first + share)
    users = pa.array(numbers % 100_000).cast(pa.string())
    kind = PROVENANCE.field("_input").type
    ranges = pa.StructArray.from_arrays(
        [pa.array([f"events/{partition}"] * share), pa.array(numbers), pa.array(numbers)],
        fields=list(kind.value_type),
    )
    own = {
        "user": users,
        "amount": pa.array(numbers),
        "share": pa.array(numbers / 7),
        "at": pa.array(numbers * 1000).cast(COLUMNS.field("at").type),
        "_epoch": pa.array(np.full(share, epoch)),
        "_partition": pa.array(np.full(share, partition, np.int32)),
        "_sequence": pa.array(np.arange(share)),
        "_input": pa.ListArray.from_arrays(pa.array(np.arange(share + 1, dtype=np.int32)), ranges),
    }
    return pa.table(own, schema=pa.schema([*COLUMNS, *PROVENANCE]))


def _draft(epoch: int, share: int, outputs: tuple[Output, ...], index: TableIndex | None) -> Draft:
    start, stop = (epoch - 1) * share, epoch * share
    parts = [str(partition) for partition in range(PARTITIONS)]
    progress = SourceProgress(
        ranges={part: Range(start=start, stop=stop) for part in parts},
        resume_at=dict.fromkeys(parts, stop),
    )
    return Draft(
        rows_in=share * PARTITIONS,
        sources={"events": progress},
        sinks={NAME: outputs},
        tables={} if index is None else {NAME: index},
    )


def _apply(root: Root, session: Any, sink: Any) -> None:
    """Give the sink everything, as the runtime does."""
    target = Target(job="bench", columns=COLUMNS, partitions=PARTITIONS, store=root.store)
    writer = sink.open(target)
    handlers = {
        **root.handlers,
        ReadCursor: lambda asked: writer.read_cursor(asked.shard),
        Apply: writer.apply,
    }
    shards = sink.shards(PARTITIONS)
    for number in range(shards):
        shard = Shard(NAME, number, shards)
        chain = Chain(session.tenure)
        perform(roll_forward(chain, session.tenure, session.head, shard), handlers)
