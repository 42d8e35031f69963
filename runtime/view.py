"""What a person sees of a running job: a live table on a terminal, plain lines elsewhere."""

from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from penstock.calendar import datetime_of, told, within
from penstock.ids import Epoch
from penstock.runtime.answers import counted
from penstock.runtime.telling import EpochDone
from penstock.runtime.topology import Topology

__all__ = ["LiveView", "PlainView", "guarantees", "view_on"]

RATE_EPOCHS = 10
"""Rows per second are those of the last so many epochs."""


def view_on(console: Console) -> "LiveView | PlainView":
    """The view that fits where it is shown."""
    return LiveView(console) if console.is_terminal else PlainView(console)


def guarantees(topology: Topology) -> list[str]:
    """What every source and sink of a job promises, a line each."""
    lines = [
        f"source {name}: exactly-once (replayable)"
        for name, node in topology.sources.items()
        if not node.is_replay
    ]
    return [*lines, *(f"sink {n.name}: {n.sink.guarantee.value}" for n in topology.sinks)]


class PlainView:
    """A line for every epoch and for everything out of the ordinary."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def waiting(self, for_what: str) -> None:
        """What takes a while."""
        self._say(f"{for_what} …")

    def started(self, topology: Topology, where: str) -> None:
        """What is run, and what it promises."""
        self._say(f"job {topology.job} on {where}, {topology.partitions} partitions")
        for line in guarantees(topology):
            self._say(line)

    def committed(self, done: EpochDone) -> None:
        """An epoch has become real."""
        rate = done.rows_in / done.seconds if done.seconds else 0.0
        parts = [f"epoch {done.epoch}: {done.rows_in:,} rows in, {done.rows_out:,} out"]
        parts.append(f"{rate:,.0f} rows/s, {done.seconds:.2f} s, commit {done.commit_s:.3f} s")
        if done.lag:
            parts.append(f"lag {_lag(done):,}")
        if done.watermark_ms is not None:
            parts.append(f"watermark {_moment(done.watermark_ms)}")
        if done.quarantined:
            parts.append(counted(done.quarantined, "dead letter"))
        self._say("; ".join(parts))
        for way, count in done.rebuilt.items():
            self._say(f"restored {counted(count, 'partition')}: {way}")

    def retried(self, epoch: Epoch, why: str) -> None:
        """An epoch is tried again."""
        self._say(f"epoch {epoch} is tried again: {why}")

    def held(self, sinks: Mapping[str, str]) -> None:
        """Sinks hold the job, or do so no more."""
        for sink, why in sinks.items():
            self._say(f"held by sink {sink}: {why}")
        if not sinks:
            self._say("every sink is back; the job goes on")

    def failed(self, epoch: Epoch, why: str) -> None:
        """An epoch has failed for good."""
        self._say(f"epoch {epoch} failed, and the job ends: {why}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def _say(self, line: str) -> None:
        self._console.print(f"{datetime.now(UTC):%H:%M:%S} {escape(line)}")  # noqa: TID251


class LiveView:
    """A table that is drawn anew with every epoch."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=False)
        self._title = ""
        self._recent: deque[EpochDone] = deque(maxlen=RATE_EPOCHS)
        self._rows = 0
        self._restores = 0
        self._retries = 0
        self._dead = 0
        self._last_words = ""
        self._held: dict[str, str] = {}
        self._failure: dict[str, str] = {}

    def waiting(self, for_what: str) -> None:
        """What takes a while."""
        self._console.print(f"{escape(for_what)} …")

    def started(self, topology: Topology, where: str) -> None:
        """What is run, and what it promises."""
        self._title = f"{topology.job} on {where}"
        for line in guarantees(topology):
            self._console.print(escape(line))
        self._live.update(self._drawn())

    def committed(self, done: EpochDone) -> None:
        """An epoch has become real."""
        self._recent.append(done)
        self._rows += done.rows_in
        self._restores += sum(done.rebuilt.values())
        self._dead += done.quarantined
        self._live.update(self._drawn())

    def retried(self, epoch: Epoch, why: str) -> None:
        """An epoch is tried again."""
        self._retries += 1
        self._last_words = f"epoch {epoch} is tried again: {why}"
        self._live.update(self._drawn())

    def held(self, sinks: Mapping[str, str]) -> None:
        """Sinks hold the job, or do so no more."""
        self._held = dict(sinks)
        self._live.update(self._drawn())

    def failed(self, epoch: Epoch, why: str) -> None:
        """An epoch has failed for good."""
        self._failure = {f"epoch {epoch} failed": f"the job ends: {why}"}
        self._live.update(self._drawn())

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def _drawn(self) -> Table:
        table = Table(title=escape(self._title), box=None, show_header=False, title_justify="left")
        table.add_column(style="dim")
        table.add_column()
        for name, value in self._facts().items():
            table.add_row(name, escape(value))
        return table

    def _facts(self) -> dict[str, str]:
        held = {f"held by {sink}": why for sink, why in self._held.items()} | self._failure
        if not self._recent:
            return {"epoch": "waiting for events", **held}
        last = self._recent[-1]
        seconds = sum(done.seconds for done in self._recent)
        rows = sum(done.rows_in for done in self._recent)
        facts = {
            "epoch": f"{last.epoch:,} ({last.seconds:.2f} s, commit {last.commit_s:.3f} s)",
            "rows": f"{self._rows:,} ({rows / seconds if seconds else 0:,.0f}/s)",
            "watermark": _moment(last.watermark_ms) if last.watermark_ms is not None else "none",
        }
        for source, partitions in last.lag.items():
            facts[f"lag {source}"] = f"{sum(partitions.values()):,}"
        facts["restores, retries"] = f"{self._restores}, {self._retries}"
        if self._dead:
            facts["dead letters"] = f"{self._dead:,}"
        if self._last_words:
            facts["last retry"] = self._last_words
        return {**facts, **held}


def _lag(done: EpochDone) -> int:
    return sum(rows for partitions in done.lag.values() for rows in partitions.values())


def _moment(moment_ms: int) -> str:
    if moment_ms != within(moment_ms):
        return told(moment_ms)
    return datetime_of(moment_ms).isoformat(timespec="milliseconds")
