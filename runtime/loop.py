"""The epoch loop: plan, run, check, commit; the next epoch runs while the last is committed.

1. Plan the next epoch from where the job stands, whether or not the last commit is confirmed.
2. Run it on Spark. What fails in passing is tried again whole, as a new run of the same plan.
3. Wait until the epoch before is committed. If that failed, this one is forgotten: nothing of it
   is named anywhere, and a local database that is an epoch ahead is not on the lineage.
4. Check that this epoch is whole, commit it in a thread of its own, and apply it to the sinks
   outside the root.

So two epochs are under way at most, they become real in order, and no sink is more than one epoch
behind: one that is away holds the job.

An epoch that fails for good ends the job, and is told at once, whatever the epoch before still
waits for. That one is settled first, but no sink is waited for: the next start applies what it
lacks. If the epoch before has failed as well, its error is raised, in the context of the later one.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.formats import Ref
from penstock.checkpoint.manifest import Draft, Manifest, TableIndex
from penstock.checkpoint.perform import perform
from penstock.checkpoint.root import Root, Session
from penstock.clock import Clock
from penstock.errors import Corrupt, Gone, Invalid, PenstockError, Unavailable
from penstock.ids import Attempt, Epoch, Generation
from penstock.runtime.applying import Applier
from penstock.runtime.checking import Outcome, checked_draft
from penstock.runtime.description import JobDescription, stage_description
from penstock.runtime.following import tell_sources
from penstock.runtime.planning import EpochPlan, Planner
from penstock.runtime.position import Position, changelogs_of
from penstock.runtime.settings import RunSettings
from penstock.runtime.telling import EpochDone, Listener
from penstock.runtime.topology import Topology
from penstock.runtime.wire import Plan, Report
from penstock.sinks.table_index import extend_index
from penstock.sinks.table_sweep import sweep_table
from penstock.sinks.table_tail import table_tails
from penstock.sources.planning import lag

__all__ = ["EpochLoop", "Runner", "position_of"]

INDEX_EVERY = 50
"""A table is indexed anew when so many epochs have added to it since."""

PAUSE_S_MAX = 10.0
"""How long to leave a source alone that is away, at most."""

LAG_EVERY_S = 2.0
"""Sources are asked how far they are at most so often."""

log = logging.getLogger("penstock.run")

T = TypeVar("T")


class Runner(Protocol):
    """Promise: brings back what the tasks of a run said, or raises `Unavailable`."""

    def run(self, plan: Plan) -> Outcome:
        """Run one try of an epoch."""

    def is_alive(self) -> bool:
        """Whether trying again makes sense."""


@dataclass(slots=True)
class EpochLoop:
    """One tenure of one job."""

    root: Root
    session: Session
    planner: Planner
    runner: Runner
    settings: RunSettings
    listener: Listener
    clock: Clock
    position: Position
    _committing: "Future[None] | None" = None
    _lags: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    _lags_at_s: float = float("-inf")
    _watermarks: Mapping[str, int | None] | None = None
    """Those of the last epoch that ran; None before the first."""
    _next_timer_ms: int | None = 0
    """When a timer by processing time is due; 0 while nobody knows."""
    _changed: frozenset[int] = frozenset()
    """The stages whose state the last epoch changed: it may have set timers that are due by now."""
    _has_failed: bool = False
    _applier: Applier = field(init=False)

    def __post_init__(self) -> None:
        topology = self.planner.topology
        self._applier = Applier(self.root, self.session, topology, self.clock, self.listener)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Run epochs until stopped, or until there is nothing more to do if that was asked for."""

        def ends() -> bool:
            return self._has_failed or stopped()

        with closing(self._applier), ThreadPoolExecutor(1, "penstock-commit") as committer:
            self._applier.roll_forward(stopped)  # what an earlier leader left to be applied
            try:
                while not stopped() and self._step(committer, ends):
                    pass
            except BaseException as failure:
                self._fail(failure)
                raise
            finally:
                self._settle()

    def _fail(self, failure: BaseException) -> None:
        """Tell of an epoch that has failed for good, now: the one before may take its time."""
        self._has_failed = True
        if self._committing is None or self._committing.done():
            return  # nothing is waited for: it is raised at once
        epoch = Epoch(self.position.epoch + 1)
        why = str(failure) or repr(failure)
        log.error("epoch %d failed, and the job ends: %s", epoch, why)
        self.listener.failed(epoch, why)

    def _step(self, committer: ThreadPoolExecutor, stopped: Callable[[], bool]) -> bool:
        """One epoch, or a pause if there is nothing to do; False at the end."""
        self.session.tenure.check()  # also while there is nothing to do
        started_s = self.clock.monotonic()
        plan = self._answered(lambda: self.planner.plan(self.position), stopped)  # 1
        if plan is None:
            return False
        if not self._is_worth_it(plan):
            self._settle()
            if self.settings.until == "caught-up":
                return False
            self.clock.sleep(self.settings.poll_s)
            return True
        draft, outcome, retries = self._tried(plan, stopped)  # 2
        self._settle()  # 3
        self.position = self.position.after(draft)
        self._remember(plan, outcome.reports)
        seconds = self.clock.monotonic() - started_s
        done = EpochDone.of(plan, draft, outcome.reports, seconds, retries)
        self._committing = committer.submit(self._commit, draft, done, stopped)  # 4
        limit = self.settings.epochs_max
        if limit is not None and plan.epoch >= limit:
            return False
        self.clock.sleep(max(0.0, self.settings.every_s - seconds))
        return True

    def _answered(self, ask: Callable[[], T], stopped: Callable[[], bool]) -> T | None:
        """What the sources answer, however long they are away; None if it is time to stop. Who has
        an epoch under way does not lose it: it is committed meanwhile."""
        pause_s = self.settings.backoff_s
        while True:
            try:
                return ask()
            except Unavailable as failure:
                log.warning("waiting for a source: %s", failure)
                self.listener.retried(Epoch(self.position.epoch + 1), str(failure))
            if stopped():
                return None
            self.clock.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
            self.session.tenure.check()

    def _ask_sources(self) -> bool:
        for node in self.planner.topology.sources.values():
            if not node.is_replay:
                node.source.spans()
        return True

    def _is_worth_it(self, plan: EpochPlan) -> bool:
        """Whether there is something to read, or time has come far enough for something to fire."""
        if plan.ranges or self._begins_late(plan):
            return True
        for operator in self.planner.topology.operators:
            wrapped = operator.wrapped
            follows_events = wrapped.has_timers("event") or wrapped.has_ageing()
            now = plan.watermarks[operator.name]
            before = None if self._watermarks is None else self._watermarks.get(operator.name)
            may_be_due = wrapped.has_timers("event") and operator.stage in self._changed
            if follows_events and now is not None and (now != before or may_be_due):
                return True
            due_ms = self._next_timer_ms
            if (
                wrapped.has_timers("processing")
                and due_ms is not None
                and due_ms <= plan.planned_ms
            ):
                return True
        return False

    def _begins_late(self, plan: EpochPlan) -> bool:
        """Whether a source begins elsewhere than at its first event: where that is must be
        written down, or the next look would find its end further on and what came since lost."""
        sources = self.planner.topology.sources
        return any(
            offsets and sources[name].start != "earliest" for name, offsets in plan.starts.items()
        )

    def _remember(self, plan: EpochPlan, reports: Sequence[Report]) -> None:
        self._watermarks = plan.watermarks
        moments = [r.next_timer_ms for r in reports if r.next_timer_ms is not None]
        self._next_timer_ms = min(moments, default=None)
        self._changed = frozenset(r.stage for r in reports if r.delta is not None)

    def _tried(self, plan: EpochPlan, stopped: Callable[[], bool]) -> tuple[Draft, Outcome, int]:
        """The epoch, however many tries it takes; it gives up after as many as are allowed. A
        source that is away is waited for, and no try is wasted on it."""
        for retries in range(self.settings.retries_max + 1):
            self.session.tenure.check()
            try:
                return (*self._once(plan), retries)
            except (Corrupt, Gone, Invalid):
                raise
            except Unavailable as failure:
                if self._committing is not None and self._committing.done():
                    self._settle()  # if the epoch before failed, that is the reason to give
                if retries == self.settings.retries_max or not self.runner.is_alive():
                    raise self._given_up(plan, retries + 1, failure) from failure
                log.warning("epoch %d, try %d: %s", plan.epoch, retries + 1, failure)
                self.listener.retried(plan.epoch, str(failure))
                self.clock.sleep(self.settings.backoff_s * 2**retries)
                self._answered(self._ask_sources, stopped)
                if getattr(failure, "code", "") == "Misplaced":
                    self.planner.may_be_direct = False
                    plan = self.planner.shuffled(plan)
        raise AssertionError("unreachable: the last try returns or raises")

    def _once(self, plan: EpochPlan) -> tuple[Draft, Outcome]:
        run = self.planner.run(plan, self.session.tenure.token)
        outcome = self.runner.run(run)
        worst = outcome.worst()
        if worst is not None:
            raise worst.error()
        tables = self._indexes(plan)
        draft = checked_draft(self.planner.topology, plan, run, outcome, tables)
        return msgspec.structs.replace(draft, description=self._description(plan)), outcome

    def _given_up(self, plan: EpochPlan, tries: int, failure: Unavailable) -> Unavailable:
        if not self.runner.is_alive():
            found = f"lost Spark during epoch {plan.epoch} ({failure.subject} {failure.found})"
            advice = "start the job again; it goes on from the last committed epoch"
            return Unavailable(f"job {self.session.tenure.job}", found, advice)
        why = f"the last time {failure.subject} {failure.found}"
        found = f"gave epoch {plan.epoch} up after {tries} tries ({why})"
        advice = "mend that and start the job again; it goes on from the last committed epoch"
        return Unavailable(f"job {self.session.tenure.job}", found, advice)

    def _indexes(self, plan: EpochPlan) -> dict[str, TableIndex]:
        """The index of each table, extended where it has fallen behind."""
        found = dict(plan.position.tables)
        upto = plan.position.epoch
        for node in self.planner.topology.tables:
            index = found.get(node.name)
            due = 1 if index is None else index.epoch + INDEX_EVERY  # the first one at once
            if upto < due:
                continue
            attempt = Attempt(self.root.chance.unique())
            tail, tally = plan.position.tails[node.name], plan.position.tally
            chain = Chain(self.session.tenure)
            extending = extend_index(chain, node.name, tail, plan.epoch, attempt, tally)
            found[node.name] = perform(extending, self.root.handlers)
        return found

    def _description(self, plan: EpochPlan) -> Ref | None:
        """What every manifest names as the description of the job: a new one, if it has changed."""
        undescribed = plan.position.undescribed
        if undescribed is None:
            return plan.position.description
        attempt = Attempt(self.root.chance.unique())
        staging = stage_description(undescribed, plan.epoch, attempt)
        return perform(staging, self.root.handlers)

    def _settle(self) -> None:
        """Wait for the commit under way, and raise what became of it."""
        committing, self._committing = self._committing, None
        if committing is not None:
            committing.result()

    def _commit(self, draft: Draft, done: EpochDone, stopped: Callable[[], bool]) -> None:
        started_s = self.clock.monotonic()
        manifest = self.session.commit(draft)
        commit_s = self.clock.monotonic() - started_s
        self.listener.committed(done.with_commit(commit_s, self._lag(manifest)))
        self._tell_sources(manifest)
        self._applier.roll_forward(stopped)
        if manifest.epoch % self.settings.collect_every == 0:
            self._collect(manifest)

    def _tell_sources(self, manifest: Manifest) -> None:
        tell_sources(self.planner.topology, manifest)

    def _lag(self, manifest: Manifest) -> Mapping[str, Mapping[str, int]]:
        now_s = self.clock.monotonic()
        if now_s - self._lags_at_s >= LAG_EVERY_S:
            self._lags_at_s = now_s
            try:
                self._lags = {
                    name: lag(node.source, manifest.sources[name].resume_at)
                    for name, node in self.planner.topology.sources.items()
                    if name in manifest.sources and not node.is_replay
                }
            except PenstockError as unknown:  # it is only for show
                log.info("lag is unknown: %s", unknown)
        return self._lags

    def _collect(self, manifest: Manifest) -> None:
        """Remove what is out of reach. What cannot be removed now can be the next time."""
        try:
            needed = self._applier.needed(manifest)
            done = self.session.collect(self.settings.retention, needed)
            for why in done.unreadable:
                log.warning("nothing is collected, and all is kept: %s", why)
            for table in manifest.tables:
                self._sweep(table)
            log.info("collected %d objects, %d bytes", done.removed, done.removed_bytes)
        except (Corrupt, Invalid, Unavailable) as failure:
            # What is damaged, or may not be read or removed, ends no job that can go on.
            log.warning("not collected: %s", failure)

    def _sweep(self, table: str) -> None:
        """Remove what a table does not name. One whose index cannot be trusted keeps everything."""
        try:
            perform(sweep_table(Chain(self.session.tenure), table), self.root.handlers)
        except Corrupt as doubt:
            log.error("nothing of table %s is removed: %s", table, doubt)


def position_of(
    root: Root,
    newest: Manifest | None,
    generation: Generation,
    topology: Topology,
    undescribed: JobDescription | None = None,
) -> Position:
    """Where the job stands by what the chain says. `undescribed` is what it does not say of the
    job yet; see `check_same_job`."""
    tables = [node.name for node in topology.tables]
    tails = perform(table_tails(Chain(generation=generation), newest, tables), root.handlers)
    if newest is None:
        return Position(epoch=Epoch(0), generation=generation, tails=tails, undescribed=undescribed)
    return Position(
        epoch=newest.epoch,
        generation=generation,
        sources=newest.sources,
        lineages=root.lineages(),
        tables=newest.tables,
        tails=tails,
        tally=newest.tally,
        planned_ms=newest.planned_ms,
        changelogs=changelogs_of(newest.sinks),
        description=newest.description,
        undescribed=undescribed,
    )
