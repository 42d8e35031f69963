"""One picture of Kafka: rows per second of each system, and keys per second of a rebuild."""

from pathlib import Path
from typing import Any

import matplotlib

from benchmarks.kafka_peers import FLOOR, PENSTOCK
from benchmarks.kafka_report import Results

matplotlib.use("Agg")
from matplotlib import pyplot as plt

__all__ = ["plot"]

OURS, THEIRS, FLOOR_COLOUR = "#1f6f8b", "#c8793a", "#9a9a9a"


def plot(results: Results, path: Path) -> None:
    """Draw what was measured."""
    figure, (speed, rebuild) = plt.subplots(
        2, 1, figsize=(9, 6), height_ratios=(7, 3), layout="constrained"
    )
    rates = {peer.name: results.rate(peer) for peer in results.found}
    _bars(speed, {name: rate for name, rate in rates.items() if rate is not None})
    speed.set_title("Rows per second from topic to topic, count and sum per key")
    found = results.rebuilt
    ways = {} if found is None else found.ways
    keys = 0 if found is None else found.keys
    _bars(rebuild, {f"{PENSTOCK}, {name}": keys / taken_s for name, taken_s in ways.items()})
    rebuild.set_title(f"Keys per second when the state of {keys:,} keys is brought back")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _bars(axes: Any, rates: dict[str, float]) -> None:
    for place, (name, rate) in enumerate(rates.items()):
        axes.barh(place, rate, 0.6, color=_colour(name))
        axes.text(rate, place, f" {rate:,.0f}", va="center", fontsize=8)
    axes.set_yticks(range(len(rates)), [name.replace(", ", ",\n", 1) for name in rates])
    axes.tick_params(axis="y", labelsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1e6:g} M")
    axes.spines[["top", "right"]].set_visible(False)


def _colour(name: str) -> str:
    if name == FLOOR:
        return FLOOR_COLOUR
    return OURS if name.startswith(PENSTOCK) else THEIRS
