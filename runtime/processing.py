"""One partition of one operator in one epoch: from what came to what is staged.

1. Everything has come: a barrier of every upstream task, as many rows as they say (`inbox`).
2. Open the state at exactly the version the orders name; cut a snapshot of it, if ordered.
3. Bring the events into order; fire timers; call the function (`grouping`, `calling`); remove the
   entries whose time to live is over.
4. Write the changes as one delta. The database itself is not touched.
5. Stage the delta and the outputs under names of this attempt.
6. Send rows on to the next operators with a barrier each, and a report to the driver.

A crash anywhere leaves orphans, which the collector removes. What goes wrong is a failure part, not
an exception, so that the driver reads it word for word.
"""

import gc
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from penstock.checkpoint.formats import ref_to
from penstock.checkpoint.manifest import Output, Snapshot
from penstock.checkpoint.recovery import Lineage
from penstock.checkpoint.restore import Identity, OpenPartition, Way
from penstock.checkpoint.snapshots import Place, cut_files, cut_snapshot
from penstock.checkpoint.staging import stage_delta
from penstock.errors import Corrupt, PenstockError, Unavailable
from penstock.ids import Attempt
from penstock.runtime.calling import Caller, call_vectorised
from penstock.runtime.dead_letters import dead_letter_rows
from penstock.runtime.emitting import Provenance, with_provenance
from penstock.runtime.events import Batch, Columns, Moment
from penstock.runtime.functions import Form
from penstock.runtime.grouping import by_time, group_by_key
from penstock.runtime.inbox import NO_TIME, Gathered, Inbox, gather
from penstock.runtime.packing import RANK_LAST, Packer
from penstock.runtime.topology import CHANGES, DEAD_LETTERS, REPLAYED, OperatorNode
from penstock.runtime.unfit import without_unfit
from penstock.runtime.wire import (
    DRIVER,
    Failure,
    Kind,
    Orders,
    Part,
    Report,
    encode,
)
from penstock.runtime.workshop import Workshop
from penstock.sinks.changelog import changes_table
from penstock.sinks.protocol import Sink
from penstock.sinks.staged import staged
from penstock.state import DeltaFile, EpochTimes, Marker, StateClock, Workspace
from penstock.state.key_groups import groups_of

__all__ = ["Made", "Work", "failure_part", "process"]

STAGERS = 4
"""Uploads of one task at a time."""


@dataclass(frozen=True, slots=True)
class Made:
    """The rows of one output, and which call made each."""

    table: pa.Table
    callers: NDArray[np.int64]


@dataclass(slots=True)
class Work:
    """What one task has done so far."""

    orders: Orders
    attempt: Attempt
    provenance: Provenance | None = None
    fired_ms: list[int] = field(default_factory=list)
    made: dict[str, Made] = field(default_factory=dict)
    dead: pa.Table | None = None
    delta: DeltaFile | None = None
    changes: pa.Table | None = None
    """What has changed in the state, for a changelog that is kept elsewhere."""
    snapshot: Snapshot | None = None
    opened: OpenPartition | None = None
    next_timer_ms: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)


def process(shop: Workshop, inbox: Inbox, partition: int) -> Iterator[Part]:
    """Do the work of one partition; what it sends on, and its report or its failure."""
    operator = shop.topology.operator(inbox.stage)
    run = inbox.orders.run if inbox.orders is not None else ""
    try:
        orders = inbox.checked(operator.name, partition)  # 1
        work = Work(orders, Attempt(shop.chance.unique()))
        with ExitStack() as stack:
            stack.enter_context(_no_cycles_sought())
            _compute(shop, operator, partition, inbox, (work, stack))  # 2, 3, 4
            report = _stage(shop, operator, partition, inbox, work)  # 5
        yield from _send(shop, operator, partition, work)  # 6
        yield Part(0, DRIVER, Kind.REPORT, encode(report))
    except PenstockError as error:
        yield failure_part(error, run, inbox.stage, partition)


@contextmanager
def _no_cycles_sought() -> Iterator[None]:
    """Leave Python's search for cycles until the end: with a row as a dict and a key as several
    objects it would begin anew all the time, and find nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def failure_part(error: PenstockError, run: str, stage: int, partition: int) -> Part:
    """A failure on its way to the driver."""
    trace = getattr(error, "trace", "")
    return Part(0, DRIVER, Kind.FAILURE, encode(Failure.of(error, run, stage, partition, trace)))


def _compute(
    shop: Workshop,
    operator: OperatorNode,
    partition: int,
    inbox: Inbox,
    context: tuple[Work, ExitStack],
) -> None:
    work, stack = context
    orders = work.orders
    lap = shop.stopwatch()
    gathered = gather(operator, inbox.parts, orders.planned_ms)
    lap(work.seconds, "gather")
    wrapped = operator.wrapped
    if not wrapped.states and not len(gathered.groups):
        return
    space = _opened_space(shop, operator, partition, work, stack)
    lap(work.seconds, "open")
    moment = Moment(
        f"{shop.topology.job}/{operator.name}", orders.epoch, orders.planned_ms, orders.watermark_ms
    )
    if wrapped.form is Form.PER_PARTITION:
        _call_once(shop, operator, partition, gathered, (work, space, moment))
    else:
        _call_by_key(shop, operator, gathered, space or shop.no_state(), (work, moment, partition))
    lap(work.seconds, "call")
    if space is not None:
        marker = _marker(shop, operator, partition, work)
        path = shop.folder(operator.name, partition).delta(orders.epoch, work.attempt)
        work.delta = space.finish(path, marker, shop.settings)
        if shop.topology.changelog_of(operator.name) is not None:
            work.changes = changes_table(space.changed(marker, orders.seeds_changelog))
        if wrapped.has_timers("processing"):
            work.next_timer_ms = space.next_due(StateClock.PROCESSING)
    lap(work.seconds, "delta")


@contextmanager
def _in_hand(opened: OpenPartition) -> Iterator[None]:
    """Let go of a partition in the end. Damage that shows only where it is read is this host's own
    affair: what is here is discarded, and the next try of the epoch restores it."""
    try:
        yield
    except Corrupt as damage:
        if damage.subject != opened.database.name:
            opened.close()
            raise
        opened.discard()
        advice = "the epoch is tried again, on state that is restored"
        raise Unavailable(damage.subject, damage.found, advice) from damage
    except BaseException:
        opened.close()
        raise
    else:
        opened.close()


def _opened_space(
    shop: Workshop, operator: OperatorNode, partition: int, work: Work, stack: ExitStack
) -> Workspace | None:
    """The state at the version the orders name; None for an operator without any."""
    orders, specs = work.orders, list(operator.wrapped.states)
    if not specs:
        return None
    identity = Identity(shop.topology.job, operator.name, partition, orders.generation)
    folder = shop.folder(operator.name, partition)
    opened = shop.restorer.open(
        identity,
        orders.lineage,
        folder,
        shop.whole(orders, identity),
        shop.elsewhere(operator.name, partition),
    )
    stack.enter_context(_in_hand(opened))
    work.opened = opened
    place = Place(operator.name, partition, orders.epoch, work.attempt)
    if opened.restore.way is Way.ELSEWHERE:
        # What the lineage names is lost, so nothing of it is named again.
        lost = Lineage((), (), orders.lineage.version)
        work.snapshot = cut_files(shop.store, opened.database, lost, folder, place)
    elif orders.cuts_snapshot:
        work.snapshot = cut_snapshot(
            shop.store, opened.database, orders.lineage, folder, place, shop.snapshots
        )
    groups = groups_of(partition, shop.topology.partitions, shop.topology.groups)
    times = EpochTimes(orders.watermark_ms, orders.planned_ms)
    return Workspace(opened.database, operator.name, specs, groups, times)


def _call_by_key(
    shop: Workshop,
    operator: OperatorNode,
    gathered: Gathered,
    space: Workspace,
    context: tuple[Work, Moment, int],
) -> None:
    work, moment, partition = context
    base = _base_order(shop, gathered)
    gathered, base, unfit = without_unfit(operator, gathered, base)
    grouped = group_by_key(gathered.keys, gathered.groups, base)
    columns = Columns(gathered.table, grouped.order, gathered.origins)
    caller = Caller(operator, space, moment, gathered)
    caller.fire_timers()
    caller.process(grouped, columns)
    space.expire()
    work.fired_ms = caller.fired_ms
    stops = grouped.stops if caller.stops is None else caller.stops
    per_event = operator.wrapped.form is Form.PER_EVENT
    work.provenance = Provenance.of(
        work.orders.epoch,
        partition,
        gathered.origins,
        grouped.order,
        np.arange(1, len(grouped.order) + 1) if per_event else np.array(stops, np.int64),
        gathered.times_us,
    )
    work.made = {
        output: Made(emitted.table(), emitted.caller_of_rows())
        for output, emitted in caller.emitted.items()
    }
    if operator.on_error == "quarantine":
        work.dead = dead_letter_rows(gathered, caller.dead, unfit)


def _base_order(shop: Workshop, gathered: Gathered) -> NDArray[np.int64] | None:
    """The order of events before they are grouped: rows set off by timers by their time, then
    log order; and all of it by event time, if the job says so."""
    base = None if gathered.ranks is None else by_time(gathered.ranks)
    if shop.topology.order != "event-time":
        return base
    times = gathered.times_us if base is None else gathered.times_us[base]
    by_event = by_time(times)
    if by_event is None or base is None:
        return base if by_event is None else by_event
    return base[by_event]


def _call_once(
    shop: Workshop,
    operator: OperatorNode,
    partition: int,
    gathered: Gathered,
    context: tuple[Work, Workspace | None, Moment],
) -> None:
    work, space, moment = context
    base = _base_order(shop, gathered)
    gathered, base, work.dead = without_unfit(operator, gathered, base)
    gathered = gathered if base is None else gathered.taken(base)
    rows = len(gathered.groups)
    stops = np.array([rows], np.int64) if rows else np.empty(0, np.int64)
    work.provenance = Provenance.of(
        work.orders.epoch, partition, gathered.origins, np.arange(rows), stops, gathered.times_us
    )
    if space is None and not rows:
        return
    visible = gathered.table.select(operator.schema.names)
    batch = Batch(visible, operator.key, gathered.groups)
    table = call_vectorised(operator, {} if space is None else space.states, moment, batch)
    if table is not None:
        calls = np.full(table.num_rows, 0 if rows else -1, np.int64)
        work.fired_ms = [] if rows else [work.orders.planned_ms]
        work.made = {"": Made(table, calls)}


def _marker(shop: Workshop, operator: OperatorNode, partition: int, work: Work) -> Marker:
    return Marker(
        job=shop.topology.job,
        operator=operator.name,
        partition=partition,
        generation=work.orders.generation,
        epoch=work.orders.epoch,
        attempt=work.attempt,
    )


def _stage(
    shop: Workshop, operator: OperatorNode, partition: int, inbox: Inbox, work: Work
) -> Report:
    """Store the delta and the outputs, several at once; what the manifest will say of them."""
    lap = shop.stopwatch()
    with ThreadPoolExecutor(STAGERS) as pool:
        made = work.delta
        delta = None if made is None else pool.submit(stage_delta, shop.store, made)
        outputs = {
            node.name: pool.submit(_put, shop, node.sink, partition, work, rows)
            for node, rows in _outputs(shop, operator, work)
        }
        report = Report(
            run=work.orders.run,
            stage=operator.stage,
            partition=partition,
            rows_in=inbox.rows_in(),
            rows_out=sum(made.table.num_rows for made in work.made.values()),
            delta=None if delta is None else delta.result(),
            snapshot=work.snapshot,
            outputs={name: output.result() for name, output in outputs.items()},
            quarantined=0 if work.dead is None else work.dead.num_rows,
            restored="" if work.opened is None else work.opened.restore.way.value,
            restore_bytes=0 if work.opened is None else work.opened.restore.downloaded_bytes,
            next_timer_ms=work.next_timer_ms,
            seconds=work.seconds,
        )
    lap(work.seconds, "stage")
    return report


def _outputs(shop: Workshop, operator: OperatorNode, work: Work) -> Iterable[tuple[Any, pa.Table]]:
    """Every sink of this operator that gets rows, and the rows."""
    for node in shop.topology.sinks:
        if node.operator != operator.name or node.output == REPLAYED:  # the leader's
            continue
        if node.output == CHANGES:
            if work.changes is not None and work.changes.num_rows:
                yield node, work.changes
        elif node.output == DEAD_LETTERS:
            if work.dead is not None and work.dead.num_rows:
                none = np.full(work.dead.num_rows, -1, np.int64)
                yield node, with_provenance(work.dead, _known(work), none)
        elif node.output in work.made and work.made[node.output].table.num_rows:
            made = work.made[node.output]
            yield node, with_provenance(made.table, _known(work), made.callers)


def _known(work: Work) -> Provenance:
    assert work.provenance is not None, "rows are made by calls"
    return work.provenance


def _put(shop: Workshop, sink: Sink, partition: int, work: Work, rows: pa.Table) -> Output:
    key, body = staged(sink, work.orders.epoch, partition, work.attempt, rows)
    shop.store.put(key, body)
    return Output(partition=partition, ref=ref_to(key, body), rows=rows.num_rows)


def _send(shop: Workshop, operator: OperatorNode, partition: int, work: Work) -> Iterator[Part]:
    """Rows for the operators this one feeds, and a barrier for each partition of each."""
    topology = shop.topology
    for output in operator.wrapped.outputs:
        for target, number, feed in topology.feeds_from(operator.name, output):
            packer = Packer.to(topology, target.stage, number, feed, work.orders.run)
            made = work.made.get(output)
            if made is not None and made.table.num_rows:
                rows = _placed(made, work)
                yield from packer.pack(rows, operator.name, str(partition), (partition, 0))
            yield from packer.barriers(partition, topology.partitions)


def _in_firing_order(fired_ms: NDArray[np.int64]) -> NDArray[np.int64]:
    """Times that do not fall: a timer that one at 30 has set to 15 fires after that one, and so its
    rows come after those of that one too."""
    return np.maximum.accumulate(fired_ms) if len(fired_ms) else fired_ms


def _placed(made: Made, work: Work) -> pa.Table:
    """Emitted rows with what gives them their order downstream."""
    fired_ms = np.array(work.fired_ms, np.int64)
    times_us = _known(work).event_times(made.callers, fired_ms)
    by_timer = made.callers < 0
    ranks = np.full(len(times_us), RANK_LAST, np.int64)
    ranks[by_timer] = _in_firing_order(fired_ms)[-made.callers[by_timer] - 1]
    unknown = pa.array(times_us == NO_TIME)
    moments = pa.array(times_us, pa.int64(), mask=unknown.to_numpy(zero_copy_only=False))
    table = made.table.append_column("_offset", pa.array(np.arange(len(times_us))))
    table = table.append_column("_event_time", moments.cast(pa.timestamp("us", tz="UTC")))
    return table.append_column("_rank", pa.array(ranks))
