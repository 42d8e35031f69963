"""One picture of W1: rows per second, small epochs, and epochs over a growing state."""

from pathlib import Path
from typing import Any

import matplotlib

from benchmarks.w1_data import (
    FLOOR,
    FUNCTION,
    FUNCTION_DIRECT,
    GROUP_BY,
    GROWTH,
    PYTHON,
    SMALL,
    SMALL_DIRECT,
    SMALL_GROUP_BY,
    SMALL_ROWS,
    VECTORISED,
    VECTORISED_DIRECT,
)
from benchmarks.w1_report import Results

matplotlib.use("Agg")
from matplotlib import pyplot as plt

__all__ = ["plot"]

OURS, THEIRS, FLOOR_COLOUR = "#1f6f8b", "#c8793a", "#9a9a9a"
LIGHTER = 0.55
SPEED_ROWS = {
    "function per key, shuffled": FUNCTION,
    "function per key, direct": FUNCTION_DIRECT,
    "vectorised, shuffled": VECTORISED,
    "vectorised, direct": VECTORISED_DIRECT,
    "Spark, JVM groupBy, Parquet": GROUP_BY["Parquet"],
    "Spark, JVM groupBy, noop": GROUP_BY["noop"],
    "floor: shuffle and Arrow": FLOOR,
}
LATENCY_ROWS = {
    "Penstock, shuffled": SMALL,
    "Penstock, direct": SMALL_DIRECT,
    "Spark, JVM, Parquet": SMALL_GROUP_BY["Parquet"],
    "Spark, JVM, noop": SMALL_GROUP_BY["noop"],
}


def plot(results: Results, path: Path) -> None:
    """Draw what was measured."""
    figure, (speed, latency, growth) = plt.subplots(
        3, 1, figsize=(9, 11), height_ratios=(9, 4, 4), layout="constrained"
    )
    _speed(speed, results)
    _latency(latency, results)
    _growth(growth, results)
    for axes in (speed, latency, growth):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _speed(axes: Any, results: Results) -> None:
    """A pair of bars for each system, the smaller epochs below and lighter."""
    small, large = results.amount.rows
    bars = [
        (label, _colour(system), [results.of(system, rows) for rows in (large, small)])
        for label, system in SPEED_ROWS.items()
    ]
    names = sorted({m.system for m in results.found if m.system.startswith(PYTHON)})
    for system in names:
        fastest = max(
            (m for m in results.found if m.system == system), key=lambda m: m.rate_max or 0
        )
        label = f"Spark, {system.removeprefix(PYTHON)}"
        bars.append((label, THEIRS, [None, fastest]))
    for place, (_, colour, pair) in enumerate(bars):
        for found, shift, alpha in zip(pair, (-0.2, 0.2), (1.0, LIGHTER), strict=True):
            if found is None or found.rate_max is None:
                continue
            axes.barh(place + shift, found.rate_max, 0.38, color=colour, alpha=alpha)
            under = "" if found.seconds else "under "
            text = f" {under}{found.rate_max:,.0f}   ({found.rows:,} rows)"
            axes.text(found.rate_max, place + shift, text, va="center", fontsize=8)
    axes.set_yticks(range(len(bars)), [label for label, _, _ in bars])
    axes.invert_yaxis()
    axes.margins(x=0.4)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1e6:g} M")
    axes.set_title("Rows per second, count and sum per key; rows of an epoch in brackets")


def _latency(axes: Any, results: Results) -> None:
    """Medians as bars, and a line to where nine of ten epochs end."""
    labels: list[str] = []
    for label, system in LATENCY_ROWS.items():
        found = results.of(system)
        if found is None or found.epoch_s is None or found.p90_s is None:
            continue
        place, median, p90 = len(labels), found.epoch_s * 1000, found.p90_s * 1000
        axes.barh(place, median, 0.6, color=_colour(system))
        axes.plot([median, p90], [place, place], color="black", linewidth=1)
        axes.text(max(median, p90), place, f" {median:.0f} ms", va="center", fontsize=8)
        labels.append(label)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_title(f"An epoch of {SMALL_ROWS} rows: median, and a line to the 90th percentile, ms")


def _growth(axes: Any, results: Results) -> None:
    """One bar for each number of keys."""
    grown = [m for m in results.found if m.system == GROWTH and m.epoch_s is not None]
    for place, found in enumerate(grown):
        taken_s = found.epoch_s or 0.0
        axes.bar(place, taken_s, 0.6, color=OURS)
        axes.text(place, taken_s, f"{taken_s:.2f} s", ha="center", va="bottom", fontsize=8)
    axes.set_xticks(range(len(grown)), [f"{found.keys:,} keys" for found in grown])
    axes.margins(y=0.15)
    small = results.amount.rows[0]
    axes.set_title(f"An epoch of {small:,} rows over a growing state, seconds")


def _colour(system: str) -> str:
    if system == FLOOR:
        return FLOOR_COLOUR
    return OURS if system.startswith("Penstock") else THEIRS
