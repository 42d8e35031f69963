"""`audit`: everything that can be checked of a job from what it has stored, while it runs.

It reads and changes nothing, not even by a pin, so whoever may read a root and its sinks may audit
them. Each check stands for itself: what one of them cannot look at is unknown, and the others go
on. A job that goes back to an earlier epoch meanwhile has another history, and is audited anew.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import TypeVar

import msgspec

from penstock.chaos.audit_history import History, Rewound, read_history
from penstock.chaos.audit_indexes import check_indexes
from penstock.chaos.audit_leftovers import check_leftovers
from penstock.chaos.audit_letter_events import check_letter_events
from penstock.chaos.audit_letters import LetterBook, operators_in
from penstock.chaos.audit_objects import Objects
from penstock.chaos.audit_replays import check_replays
from penstock.chaos.audit_rows import Rows, TableDigest, applied_in, changelogs_in, tables_in
from penstock.chaos.audit_sinks import SinkAudit, SinkDigest
from penstock.chaos.audit_sources import check_sources
from penstock.chaos.findings import Check, Ledger, Verdict, worst
from penstock.checkpoint.formats import Ref
from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.root import Root
from penstock.errors import Invalid, PenstockError
from penstock.ids import Epoch, Generation, JobName
from penstock.runtime.compatibility import check_same_job
from penstock.runtime.topology import Topology

__all__ = ["Audit", "Audited", "EpochTold", "Scope", "audit"]

STARTS_MAX = 5
"""How often an audit begins again because somebody went back to an earlier epoch."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What is to be looked at."""

    since: Epoch | None = None
    """The first epoch; None: the oldest that is kept."""
    sample: float = 1.0
    """The share of what sinks hold that is compared."""

    def __post_init__(self) -> None:
        if not 0.0 < self.sample <= 1.0:
            found = f"is {self.sample:.2%} of what sinks hold"
            raise Invalid("the sample", found, "take more than 0 % and at most 100 %")


class Audited(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an audit has found."""

    penstock: str
    """The version of Penstock that looked."""
    job: JobName
    generation: Generation
    verdict: Verdict
    at_ms: int
    seconds: float
    epochs: tuple[Epoch, Epoch] | None
    """The first and the last that were looked at; None: nothing is committed, or nothing of it
    could be read."""
    head: Ref | None
    """The manifest that HEAD named."""
    sample: float
    checks: tuple[Check, ...]
    tables: dict[str, TableDigest]
    sinks: dict[str, SinkDigest]


@dataclass(frozen=True, slots=True)
class EpochTold:
    """An epoch, as far as a report shows it."""

    epoch: Epoch
    generation: Generation
    token: int
    holder: str
    at_ms: int
    rows_in: int
    rows_out: int
    commit: str
    ranges: dict[str, tuple[int, int]]

    @classmethod
    def of(cls, manifest: Manifest) -> "EpochTold":
        """What a manifest tells."""
        return cls(
            manifest.epoch,
            manifest.generation,
            manifest.token,
            manifest.holder,
            manifest.at_ms,
            manifest.rows_in,
            manifest.rows_out,
            manifest.commit,
            {
                f"{source}/{partition}": (each.start, each.stop)
                for source, progress in manifest.sources.items()
                for partition, each in progress.ranges.items()
            },
        )


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found, and the epochs it is about, oldest first."""

    audited: Audited
    story: list[EpochTold]


def audit(
    root: Root,
    topology: Topology | None = None,
    scope: Scope | None = None,
    tell: Callable[[str], None] = lambda what: None,
) -> Audit:
    """Look at a root and, if its job is known, at its sinks; `tell` is told what is looked at."""
    for remaining in reversed(range(STARTS_MAX)):
        try:
            return _Auditor(root, topology, scope or Scope(), tell).run()
        except Rewound:
            if not remaining:
                raise
    raise AssertionError("unreachable: the last start returns or raises")


@dataclass(slots=True)
class _Auditor:
    root: Root
    topology: Topology | None
    scope: Scope
    tell: Callable[[str], None]
    checks: list[Check] = field(default_factory=list)
    tables: dict[str, TableDigest] = field(default_factory=dict)
    sinks: dict[str, SinkDigest] = field(default_factory=dict)

    def run(self) -> Audit:
        """Every check, in an order in which each has what it needs.

        1. The chain: without it nothing is named. No HEAD is an error and not a finding.
        2. What goes first when a job gives epochs up: objects, then rows, oldest first.
        3. Sinks, each against the history as it is when its cursors have been read.
        4. Whether it was one history all the time.
        """
        started_s, at_ms = self.root.clock.monotonic(), round(self.root.clock.wall() * 1000)
        history = self._chain()  # 1
        head, told = history.head, [EpochTold.of(link.manifest) for link in history.links]
        if self.topology is not None:
            self._check_job(history, self.topology)
        if history.links:
            self._checks(history)  # 2, 3
        history.now()  # 4
        epochs = (max(history.since, told[0].epoch), head.epoch) if told else None
        if epochs is not None and epochs[0] > epochs[1]:
            self._nothing_left()
            epochs = None
        return Audit(
            Audited(
                penstock=version("penstock"),
                job=head.job,
                generation=head.generation,
                verdict=worst(check.verdict for check in self.checks),
                at_ms=at_ms,
                seconds=round(self.root.clock.monotonic() - started_s, 3),
                epochs=epochs,
                head=head.manifest,
                sample=self.scope.sample,
                checks=tuple(self.checks),
                tables=self.tables,
                sinks=self.sinks,
            ),
            told,
        )

    def _chain(self) -> History:
        self.tell("the chain")
        promise = "Every epoch follows its parent by hash, number, token and time."
        ledger = Ledger("chain", promise)
        history = read_history(self.root, self.scope.since, ledger)
        if history.head.manifest is None:
            ledger.note("Nothing has been committed yet.")
        self.checks.append(ledger.check())
        return history

    def _nothing_left(self) -> None:
        ledger = Ledger("retention", "Epochs were kept for as long as it took to look at them.")
        ledger.unknown("every epoch", "the job gave them up faster than they were looked at")
        self.checks.append(ledger.check())

    def _check_job(self, history: History, topology: Topology) -> None:
        if topology.job != history.head.job:
            found = f"is job {topology.job!r}, and the root belongs to {history.head.job!r}"
            raise Invalid("the job's file", found, "give the file of the job that runs there")
        check_same_job(topology, self.root, history.newest, "the root")

    def _checks(self, history: History) -> None:
        tables, applied = tables_in(history), applied_in(history)
        promise = "Every source partition was read without gap or overlap."
        self._check(
            "sources", promise, lambda ledger: check_sources(history, self.topology, ledger)
        )
        promise = "All that state, indexes and pins are made of is there, and hashes."
        ledger = Ledger("objects", promise)
        objects = Objects(history, ledger)
        self._done(ledger, objects.check)
        for name in tables:
            self._table(history, name)
        for name in operators_in(history):
            promise = (
                "No event counts twice: processed, or a letter that was replayed once at most."
            )
            self._check(f"letters {name}", promise, partial(self._letters, history, name))
        for name in applied:
            self._sink(history, name)
        for name in changelogs_in(history):
            self._changelog(name)
        promise = "What lies in the root and is named by nothing is listed."
        self._check(
            "leftovers", promise, lambda ledger: check_leftovers(history, objects, tables, ledger)
        )

    def _table(self, history: History, name: str) -> None:
        promise = "Every row there ever was is there once, and traced to what its epoch read."
        ledger = Ledger(f"table {name}", promise)

        def look() -> TableDigest | None:
            check_indexes(history, name, ledger)
            return Rows(history, self.topology, ledger, name).table()

        seen = self._done(ledger, look)
        if seen is not None:
            self.tables[name] = seen

    def _letters(self, history: History, operator: str, ledger: Ledger) -> None:
        book = LetterBook(history, ledger, operator)
        check_replays(book)
        check_letter_events(book, self.topology)

    def _sink(self, history: History, name: str) -> None:
        promise = "Staged rows are numbered and traced, and the sink holds them up to its cursor."
        ledger = Ledger(f"sink {name}", promise)
        seen = self._done(ledger, lambda: self._looked_into(history, name, ledger))
        if seen is not None:
            self.sinks[name] = seen

    def _changelog(self, name: str) -> None:
        """What a changelog outside the root holds is the state, which is not read back here."""
        ledger = Ledger(f"changelog {name}", "It holds the state of the last epoch it was given.")
        ledger.unknown(f"what {name} holds", "a changelog outside the root is not read back")
        self.checks.append(ledger.check())

    def _looked_into(self, history: History, name: str, ledger: Ledger) -> SinkDigest | None:
        Rows(history, self.topology, ledger, name).staged()
        if self.topology is None:
            why = "only the job's file says where it is: name it with --job"
            ledger.unknown(f"what sink {name} holds", why)
            return None
        node = next(each for each in self.topology.sinks if each.name == name)
        return SinkAudit(history, self.topology, ledger, node, self.scope.sample).check()

    def _check(self, name: str, promise: str, work: Callable[[Ledger], None]) -> None:
        ledger = Ledger(name, promise)
        self._done(ledger, lambda: work(ledger))

    def _done(self, ledger: Ledger, work: Callable[[], T]) -> T | None:
        """Do a check. What keeps it from being done leaves it unknown."""
        self.tell(ledger.name)
        found: T | None = None
        try:
            found = work()
        except Rewound:
            raise
        except PenstockError as error:
            ledger.unknown("the rest", str(error))
        self.checks.append(ledger.check())
        return found
