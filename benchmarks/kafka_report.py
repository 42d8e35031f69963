"""What the benchmark of Kafka says: tables, remarks, and the bar that was set before it was run."""

import os
import platform
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np
from rich.table import Table

from benchmarks.kafka_data import KEYS, PARTITIONS
from benchmarks.kafka_peers import FLOOR, PENSTOCK, QUIX, SPARK, WARMUP_S, Peer
from benchmarks.kafka_rebuild import Rebuilt
from benchmarks.results import markdown
from benchmarks.w1_report import QUIET_CORES, Bar, bar_table
from tests.support.kafka_jars import VERSION

__all__ = ["Load", "Measured", "Results", "report", "tables"]

AGAINST_QUIX = 3.0


@dataclass(frozen=True)
class Load:
    """How many cores were not the system's own, on average."""

    others: float
    broker: float


@dataclass(frozen=True)
class Measured:
    """One turn of one system."""

    rate: float | None
    """Rows per second; None if it was stopped before there were any that count."""
    rows: int
    load: Load


@dataclass
class Results:
    """Everything measured in one run, and what could not be."""

    rows: int = 0
    found: dict[Peer, list[Measured]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    rebuilt: Rebuilt | None = None

    def add(self, peer: Peer, measured: Measured) -> None:
        """One more turn."""
        self.found.setdefault(peer, []).append(measured)

    def rate(self, peer: Peer) -> float | None:
        """Rows per second: the median of its turns."""
        rates = [each.rate for each in self.found.get(peer, []) if each.rate is not None]
        return float(np.median(rates)) if rates else None

    def best(self, kind: str) -> float | None:
        """The best of the ways in which one system was set up."""
        rates = [self.rate(peer) for peer in self.found if peer.name.startswith(kind)]
        return max((rate for rate in rates if rate is not None), default=None)

    def bars(self) -> list[Bar]:
        """Every way of ours against the best of each of the others."""
        bars = []
        for peer in self.found:
            ours = self.rate(peer)
            if not peer.name.startswith(PENSTOCK) or ours is None:
                continue
            for kind, bar in ((QUIX, AGAINST_QUIX), (SPARK, None), (FLOOR, None)):
                theirs = self.best(kind)
                if theirs is not None:
                    bars.append(_bar(f"{peer.name}, against {kind}", ours / theirs, bar))
        return bars


def _bar(what: str, ratio: float, bar: float | None) -> Bar:
    return Bar(what, ratio) if bar is None else Bar(what, ratio, f"≥ {bar:g}", ratio >= bar)


def tables(results: Results) -> dict[str, Table]:
    """Every table that has rows, by what it is about."""
    made = {
        "bars": bar_table(results.bars(), is_judged=True),
        "speed": _speed_table(results),
        "rebuild": _rebuild_table(results),
    }
    return {name: table for name, table in made.items() if table.row_count}


def _speed_table(results: Results) -> Table:
    heads = ("system", "guarantee", "rows/s", "of each turn", "rows done", "broker, cores")
    table = Table(*heads, title="Speed")
    for peer, turns in results.found.items():
        rate = results.rate(peer)
        each = ", ".join("none" if turn.rate is None else f"{turn.rate:,.0f}" for turn in turns)
        done = f"{max(turn.rows for turn in turns):,}"
        shown = "" if rate is None else f"{rate:,.0f}"
        broker = f"{np.mean([turn.load.broker for turn in turns]):.2f}"
        table.add_row(peer.name, peer.guarantee, shown, each, done, broker)
    return table


def _rebuild_table(results: Results) -> Table:
    heads = ("state from", "keys", "changes", "seconds", "keys/s")
    table = Table(*heads, title="Rebuilding")
    found = results.rebuilt
    if found is not None:
        counts = (f"{found.keys:,}", f"{found.changes:,}")
        for name, taken_s in found.ways.items():
            table.add_row(name, *counts, f"{taken_s:.2f}", f"{found.keys / taken_s:,.0f}")
    return table


def report(results: Results) -> str:
    """The section of RESULTS.md."""
    made = tables(results)
    machine = (
        f"{os.cpu_count()} cores (load {os.getloadavg()[2]:.1f} over 15 minutes), "
        f"{platform.system()}, Python {platform.python_version()}, Spark {version('pyspark')}"
    )
    lines = [
        "## Kafka: count and sum per key, from topic to topic",
        "",
        f"`make bench-kafka`, {datetime.now(UTC):%Y-%m-%d}, {machine}, one broker of Kafka "
        f"{VERSION} on the same machine, which takes its share of the cores. {results.rows:,} "
        f"JSON events of about 100 bytes with their keys, {KEYS:,} users, {PARTITIONS} partitions; "
        "out comes one JSON row for each event, with its user's count and sum by then. All read "
        "the same topic, one after the other, each for a bounded time, and write to topics of "
        "their own. What counts is what a `read_committed` reader can see of it, asked ten times a "
        f"second: rows from {WARMUP_S:g} seconds after the first ones on, over the time they took; "
        "of several turns the median. Every row of every system was read and compared with a "
        "plain computation of the same; one that was stopped early must be right as far as it "
        "came.",
        "",
        "![Kafka](kafka.png)",
    ]
    for name, about in _ABOUT.items():
        if name in made:
            lines += ["", about, "", markdown(made[name])]
    return "\n".join([*lines, *_said(results)])


_ABOUT = {
    "bars": "What was asked for, against the faster way of each. Rows without a bar are for "
    "comparison.",
    "speed": "Rows per second, steady.",
    "rebuild": "One partition's state on an empty disk, from the changelog topic alone and from "
    "the root, where its files are.",
}


def _said(results: Results) -> list[str]:
    ways = {peer.name: peer.how for peer in results.found}
    lines = ["", "What they were given:", ""]
    lines += [f"- {name}: {how}." for name, how in ways.items()]
    loads = [turn.load.others for turns in results.found.values() for turn in turns]
    most = max(loads, default=0.0)
    loud = "" if most <= QUIET_CORES else "The machine was not quiet: "
    lines += ["", f"{loud}others took at most {most:.2f} cores during any turn."]
    for name, why in results.failures.items():
        lines += ["", f"{name} has no result, or not all of it: {why}."]
    return lines
