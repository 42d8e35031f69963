"""What the runtime's benchmark says: tables, and the bars that were set before it was run."""

import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np
from rich.table import Table

from benchmarks.results import markdown
from benchmarks.w1_data import (
    CORES,
    FLOOR,
    FULL,
    FUNCTION,
    FUNCTION_DIRECT,
    GROUP_BY,
    GROWTH,
    KEYS,
    LONG,
    MEMORY,
    PARTITIONS,
    PYTHON,
    SMALL,
    SMALL_DIRECT,
    SMALL_GROUP_BY,
    SMALL_ROWS,
    VECTORISED,
    Amount,
    Measured,
)

__all__ = ["Bar", "Results", "quietness", "report", "tables"]

AGAINST_JVM, AGAINST_PYTHON = 1.5, 50.0
SHARE_OF_FLOOR, SHARE_VECTORISED = 0.20, 0.30
GROWTH_SHARE = 0.1
"""Time may grow by a tenth of what the number of keys grows by."""
QUIET_CORES = 0.2
"""What others may take of the machine before figures of different parts cannot be compared."""
FLAT = 1.2
"""How much larger the end may be than the middle, and still be called flat."""


@dataclass(frozen=True)
class Bar:
    """One thing that was asked for."""

    what: str
    figure: float
    bar: str = ""
    met: bool | None = None


@dataclass(frozen=True)
class Results:
    """Everything measured in one run, and what could not be."""

    amount: Amount
    found: list[Measured]
    failures: dict[str, str]
    """Why a part has no result, or not all."""
    others: dict[str, float]
    """How many cores other processes took while a part ran."""

    def of(self, system: str, rows: int | None = None) -> Measured | None:
        """One result; None if that was not measured."""
        matching = [m for m in self.found if m.system == system and rows in (None, m.rows)]
        return matching[0] if matching else None

    def rate(self, system: str, rows: int) -> float | None:
        """Rows per second."""
        found = self.of(system, rows)
        return None if found is None else found.rate

    def fastest_python(self) -> Measured | None:
        """The Python function of Structured Streaming that can have been the fastest. One that
        finished nothing counts with the rate it stayed under, which is in its favour."""
        found = [m for m in self.found if m.system.startswith(PYTHON) and m.rate_max is not None]
        return max(found, key=lambda m: m.rate_max or 0.0, default=None)

    def bars(self) -> list[Bar]:
        """All that can be judged by what was measured."""
        small, large = self.amount.rows
        return [
            *(bar for rows in (small, large) for bar in self._against_jvm(rows)),
            *self._against_python(small),
            *self._against_floor("function per key", FUNCTION, large, SHARE_OF_FLOOR),
            *self._against_floor("vectorised", VECTORISED, large, SHARE_VECTORISED),
            *self._latencies(),
            *self._growth(),
        ]

    def _against_jvm(self, rows: int) -> list[Bar]:
        found = []
        durable, nowhere = (self.rate(GROUP_BY[sink], rows) for sink in ("Parquet", "noop"))
        for way, system in (("direct", FUNCTION_DIRECT), ("shuffled", FUNCTION)):
            what, ours = f"function per key, {way}, {rows:,} rows", self.rate(system, rows)
            found += _at_least(f"{what}, against the JVM", ours, durable, AGAINST_JVM)
            found += _at_least(f"{what}, against the JVM with no sink", ours, nowhere, None)
        return found

    def _against_python(self, rows: int) -> list[Bar]:
        fastest = self.fastest_python()
        if fastest is None:
            return []
        basis = "measured" if fastest.seconds else "what it stayed under"
        name = fastest.system.removeprefix(PYTHON)
        what = f"function per key, {rows:,} rows, against {name}, {fastest.rows:,} rows, {basis}"
        return _at_least(what, self.rate(FUNCTION, rows), fastest.rate_max, AGAINST_PYTHON)

    def _against_floor(self, what: str, system: str, rows: int, share: float) -> list[Bar]:
        floor = self.rate(FLOOR, rows)
        return _at_least(
            f"{what}, {rows:,} rows, share of the floor", self.rate(system, rows), floor, share
        )

    def _latencies(self) -> list[Bar]:
        theirs, nowhere = (self.of(SMALL_GROUP_BY[sink]) for sink in ("Parquet", "noop"))
        found = []
        for what, ours in (("shuffled", self.of(SMALL)), ("direct", self.of(SMALL_DIRECT))):
            text = f"an epoch of {SMALL_ROWS} rows, {what}, share of Structured Streaming's time"
            found += _at_most(f"{text}, Parquet sink", ours, theirs, 1.0)
            found += _at_most(f"{text}, noop sink", ours, nowhere, None)
        return found

    def _growth(self) -> list[Bar]:
        grown = sorted((m for m in self.found if m.system == GROWTH), key=lambda m: m.keys)
        if len(grown) < 2:
            return []
        least, most = grown[0], grown[-1]
        times = most.keys / least.keys
        what = f"an epoch over {most.keys:,} keys, times one over {least.keys:,}"
        return _at_most(what, most, least, times * GROWTH_SHARE)


def _at_least(what: str, ours: float | None, theirs: float | None, bar: float | None) -> list[Bar]:
    if ours is None or theirs is None:
        return []
    ratio = ours / theirs
    return [Bar(what, ratio)] if bar is None else [Bar(what, ratio, f"≥ {bar:g}", ratio >= bar)]


def _at_most(
    what: str, ours: Measured | None, theirs: Measured | None, bar: float | None
) -> list[Bar]:
    if ours is None or theirs is None or ours.epoch_s is None or theirs.epoch_s is None:
        return []
    ratio = ours.epoch_s / theirs.epoch_s
    return [Bar(what, ratio)] if bar is None else [Bar(what, ratio, f"≤ {bar:g}", ratio <= bar)]


def tables(results: Results) -> dict[str, Table]:
    """Every table that has rows, by what it is about."""
    made = {
        "bars": bar_table(results.bars(), is_judged=results.amount is FULL),
        "speed": speed_table(results),
        "latency": latency_table(results),
        "long": long_table(results),
        "growth": growth_table(results),
    }
    return {name: table for name, table in made.items() if table.row_count}


def bar_table(bars: list[Bar], *, is_judged: bool) -> Table:
    """What was asked for, and whether it is so. A quick run has too few epochs to judge by."""
    title = "Bars" if is_judged else "Bars; too few epochs to judge"
    table = Table("what", "ratio", "bar", "met", title=title)
    for each in bars:
        met = {None: "", True: "yes", False: "no"}[each.met if is_judged else None]
        table.add_row(each.what, f"{each.figure:.2f}", each.bar, met)
    return table


def speed_table(results: Results) -> Table:
    """Rows per second of each system."""
    table = Table("system", "rows per epoch", "epoch, s", "rows/s", "epochs", "note", title="Speed")
    others = {SMALL, SMALL_DIRECT, LONG, GROWTH, *SMALL_GROUP_BY.values()}
    for each in sorted(results.found, key=lambda m: m.rows):
        if each.system in others:
            continue
        rate, taken_s = each.rate_max, each.epoch_s
        under = "" if each.seconds else "under "
        table.add_row(
            each.system,
            f"{each.rows:,}",
            "" if taken_s is None else f"{taken_s:.2f}",
            "" if rate is None else f"{under}{rate:,.0f}",
            str(len(each.seconds)),
            each.note,
        )
    return table


def latency_table(results: Results) -> Table:
    """Small epochs, and what ours are made of."""
    parts = ("planning", "Spark and reading", "tasks", "commit")
    heads = ("system", "median, ms", "p90, ms", *(f"{part}, ms" for part in parts))
    table = Table(*heads, title=f"Epochs of {SMALL_ROWS} rows")
    for system in (SMALL, SMALL_DIRECT, *SMALL_GROUP_BY.values()):
        found = results.of(system)
        if found is None or found.epoch_s is None or found.p90_s is None:
            continue
        shares = [f"{found.typical(p) * 1000:.0f}" if p in found.series else "" for p in parts]
        table.add_row(system, f"{found.epoch_s * 1000:.0f}", f"{found.p90_s * 1000:.0f}", *shares)
    return table


def long_table(results: Results) -> Table:
    """The beginning, the middle and the end of a long run."""
    table = Table("epochs", "median, ms", "driver, MiB", "JVM, MiB", "workers, MiB", title="Long")
    found = results.of(LONG)
    if found is None:
        return table
    for name, share in (("first tenth", 0.0), ("middle tenth", 0.45), ("last tenth", 0.9)):
        taken_ms = np.median(_tenth(found.seconds, share)) * 1000
        memory = [np.median(_tenth(found.series[k], share)) for k in ("driver", "JVM", "workers")]
        table.add_row(name, f"{taken_ms:.0f}", *(f"{size:.0f}" for size in memory))
    return table


def _tenth(figures: list[float], share: float) -> list[float]:
    start = int(len(figures) * share)
    return figures[start : start + max(1, len(figures) // 10)]


def is_flat(figures: list[float]) -> bool:
    """Whether the end is like the middle. The beginning is warm-up."""
    middle, end = np.median(_tenth(figures, 0.45)), np.median(_tenth(figures, 0.9))
    return bool(end <= FLAT * middle)


def growth_table(results: Results) -> Table:
    """The same epoch over larger and larger states."""
    heads = ("keys", "keys touched", "epoch, s", "open, ms", "call, ms", "delta, ms")
    table = Table(*heads, title="State growth")
    for each in results.found:
        if each.system == GROWTH and each.epoch_s is not None:
            work = [f"{each.typical(f'work: {p}') * 1000:.0f}" for p in ("open", "call", "delta")]
            touched = each.typical("rows out")
            table.add_row(f"{each.keys:,}", f"{touched:,.0f}", f"{each.epoch_s:.2f}", *work)
    return table


def report(results: Results) -> str:
    """The section of RESULTS.md."""
    made = tables(results)
    small, large = results.amount.rows
    machine = (
        f"{os.cpu_count()} cores (load {os.getloadavg()[2]:.1f} over 15 minutes), "
        f"{platform.system()}, Python {platform.python_version()}, Spark {version('pyspark')}"
    )
    lines = [
        "## W1: count and sum per key, on Spark",
        "",
        f"`make bench`, {datetime.now(UTC):%Y-%m-%d}, {machine}. {KEYS:,} keys, {CORES}, "
        f"{PARTITIONS} partitions, {MEMORY['spark.driver.memory']} for each JVM, each system in a "
        f"process of its own, one after the other. Medians over epochs after "
        f"{results.amount.warmups[small]} warm-up epochs of {small:,} rows and "
        f"{results.amount.warmups[large]} of {large:,}. Penstock's epochs last from commit to "
        "commit, with durable deltas and outputs; those of Structured Streaming are its own "
        "`triggerExecution`, with RocksDB, a changelog and without counting its keys. The floor "
        "reads the same rows, shuffles them and counts them in Python, without any state; it moves "
        "them row by row out of Parquet, where Penstock moves Arrow whole out of its own log, so "
        "it is no bound that Penstock could not pass.",
        "",
        "![W1](w1.png)",
    ]
    for name, about in _ABOUT.items():
        if name in made:
            lines += ["", about.format(rows=f"{small:,}"), "", markdown(made[name])]
    return "\n".join([*lines, *_said(results)])


_ABOUT = {
    "bars": "What was asked for. Rows without a bar are for comparison.",
    "speed": "Rows per second, steady.",
    "latency": "Small epochs, from plan to commit. The slowest task counts; reading is Spark's.",
    "long": "Many small epochs, shuffled, from commit to commit; memory is what is resident.",
    "growth": "Function per key, shuffled, epochs of {rows} rows. The slowest task's work.",
}


def quietness(results: Results) -> str:
    """Whether parts can be compared: each ran at another time, and had the machine to itself or
    had not."""
    loud = {name: cores for name, cores in results.others.items() if cores > QUIET_CORES}
    if not loud:
        most = max(results.others.values(), default=0.0)
        return f"Others took at most {most:.2f} cores while any part ran."
    spelled = ", ".join(f"{name} ({cores:.1f})" for name, cores in loud.items())
    return (
        f"The machine was not quiet, and ratios cannot be relied on: others took more than "
        f"{QUIET_CORES:g} cores during {spelled}."
    )


def _said(results: Results) -> list[str]:
    lines = ["", quietness(results)]
    found = results.of(LONG)
    if found is not None:
        checked = {"epoch time": found.seconds, **found.series}
        not_flat = [name for name, figures in checked.items() if not is_flat(figures)]
        verdict = f"not flat: {', '.join(not_flat)}" if not_flat else "all flat"
        lines += ["", f"From the middle to the end of {len(found.seconds) + 1} epochs: {verdict}."]
    for name, why in results.failures.items():
        lines += ["", f"`{name}` has no result, or not all of it: {why}."]
    return lines
