"""One picture of what exactly-once costs: a pair of bars for each sink."""

from pathlib import Path

import matplotlib

from benchmarks.sinks_data import Measured

matplotlib.use("Agg")
from matplotlib import pyplot as plt

__all__ = ["plot"]

OURS, PLAIN = "#1f6f8b", "#9a9a9a"


def plot(found: list[Measured], path: Path) -> None:
    """Draw what was measured. Sinks differ by orders of magnitude, so each pair is drawn as a share
    of its plain way, with the rates beside it."""
    figure, axes = plt.subplots(figsize=(9, 0.75 * len(found) + 1.2), layout="constrained")
    for place, each in enumerate(found):
        share = each.our_rate / each.plain_rate
        for shift, width, colour, rate in (
            (-0.2, 1.0, PLAIN, each.plain_rate),
            (0.2, share, OURS, each.our_rate),
        ):
            axes.barh(place + shift, width, 0.38, color=colour)
            axes.text(width, place + shift, f" {rate:,.0f} rows/s", va="center", fontsize=8)
        if each.peer.bar is not None:
            least = 1 - each.peer.bar
            axes.plot([least, least], [place - 0.42, place + 0.42], color="black", linewidth=1)
    axes.set_yticks(range(len(found)), [each.peer.name for each in found])
    axes.invert_yaxis()
    axes.margins(x=0.18)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(
        "Penstock (blue) beside a plain bulk write of the same rows (grey); the line is the bar",
        fontsize=10,
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)
