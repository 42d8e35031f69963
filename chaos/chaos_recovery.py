"""How long a job took to commit again after each fault, told by kind of fault.

For comparison stand above them the times from one commit to the next during which no fault
happened: a fault whose times are not longer than those has cost nothing.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from penstock.chaos.distribution import Dot, Sample, distribution
from penstock.chaos.history import Family, Happening, commits, recoveries, strikes
from penstock.chaos.report import grid, legend, wide
from penstock.chaos.telling import clock, lasting

__all__ = ["recovery_told"]

UNDISTURBED = "no fault"
HEADS = ("fault", "times", "least", "median", "90th", "most", "not recovered")
LEGEND = (
    ("fault", "fault, and how long until the next commit"),
    ("plain", "commit to commit, where no fault happened"),
    ("plain-tint", "10th to 90th of a hundred, where there are many"),
    ("ink", "median"),
)


def recovery_told(happenings: Sequence[Happening]) -> str:
    """The picture and the numbers, as HTML; nothing if there was no fault."""
    samples = _by_fault(happenings)
    if not samples:
        return ""
    compared = _undisturbed(happenings)
    shown = [compared, *samples] if compared.dots else samples
    return wide(distribution(shown)) + legend(LEGEND) + wide(grid(HEADS, map(_row, shown)))


def _by_fault(happenings: Sequence[Happening]) -> list[Sample]:
    """One sample for each fault, those of a family together."""
    order = list(Family)
    dots: defaultdict[tuple[int, str], list[Dot]] = defaultdict(list)
    for each in recoveries(happenings):
        took = "nothing was committed after it"
        if each.seconds is not None:
            took = f"{lasting(each.seconds)} to the next commit"
        title = f"{each.fault} at {clock(each.at_s)}: {took}"
        dots[order.index(each.family), each.fault].append(Dot(each.seconds, title))
    return [Sample(fault, tuple(found)) for (_, fault), found in sorted(dots.items())]


def _undisturbed(happenings: Sequence[Happening]) -> Sample:
    """From commit to commit, where no fault happened."""
    struck = sorted(each.at_s for each in strikes(happenings))
    dots = [
        Dot(after.at_s - before.at_s, f"epoch {after.epoch:,}: {lasting(after.at_s - before.at_s)}")
        for before, after in pairwise(commits(happenings))
        if bisect_left(struck, before.at_s) == bisect_left(struck, after.at_s)
    ]
    return Sample(UNDISTURBED, tuple(dots), "plain")


def _row(sample: Sample) -> tuple[str, ...]:
    times = (sample.quantile(share) for share in (0.0, 0.5, 0.9, 1.0))
    told = ("–" if each is None else lasting(each) for each in times)
    return (
        sample.name,
        f"{len(sample.dots):,}",
        *told,
        f"{sample.never:,}" if sample.never else "–",
    )
