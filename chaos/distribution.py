"""How long things took, as a picture and in numbers: a row for each kind, a dot for each time.

A median says what to expect and hides the worst; dots show both, and how many there are. What never
came to an end has a place of its own beyond the axis, never a number.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.chaos.report import cut
from penstock.chaos.telling import lasting
from penstock.chaos.timeline import Lane, Mark, Span, Tick, even_step, timeline

__all__ = ["Dot", "Sample", "distribution"]

DOTS_MAX = 40
"""With more than these, nobody sees a dot."""


@dataclass(frozen=True, slots=True)
class Dot:
    """One time."""

    seconds: float | None
    """None: it never came to an end."""
    title: str

    def is_outside(self, low: float, high: float) -> bool:
        """Whether it is longer or shorter than all between these."""
        return self.seconds is None or not low <= self.seconds <= high


@dataclass(frozen=True, slots=True)
class Sample:
    """All times of one kind."""

    name: str
    dots: tuple[Dot, ...]
    kind: str = "fault"

    @property
    def seconds(self) -> list[float]:
        """Those that came to an end, the shortest first."""
        return sorted(dot.seconds for dot in self.dots if dot.seconds is not None)

    @property
    def never(self) -> int:
        """How many did not."""
        return sum(dot.seconds is None for dot in self.dots)

    def quantile(self, share: float) -> float | None:
        """The shortest time that is not exceeded by this share of those that came to an end."""
        seconds = self.seconds
        if not seconds:
            return None
        return seconds[max(math.ceil(share * len(seconds)) - 1, 0)]


def distribution(samples: Sequence[Sample]) -> str:
    """The picture."""
    longest = max((each for sample in samples for each in sample.seconds), default=1.0)
    step = even_step(longest)
    stop = max(math.ceil(longest / step), 1) * step
    ticks = [Tick(at * step, f"{at * step:g} s") for at in range(round(stop / step) + 1)]
    end = stop
    if any(sample.never for sample in samples):
        end = stop * 1.08
        ticks.append(Tick(end, "never"))
    lanes = [_lane(sample, end) for sample in samples]
    return timeline(lanes, ticks, 0, end, "how long it took, by kind")


def _lane(sample: Sample, never_at: float) -> Lane:
    """Of many times, those in the middle are one band: only the others are dots."""
    low, high = sample.quantile(0.1), sample.quantile(0.9)
    spans = []
    dots = sample.dots
    if low is not None and high is not None and len(dots) > DOTS_MAX:
        title = f"from the 10th of a hundred to the 90th: {lasting(low)} to {lasting(high)}"
        spans.append(Span(low, high, title, f"{sample.kind}-tint"))
        dots = tuple(each for each in dots if each.is_outside(low, high))
    median = sample.quantile(0.5) if len(sample.seconds) > 1 else None
    strokes = [] if median is None else [Mark(median, f"median {lasting(median)}", "ink")]
    marks = [_mark(dot, sample.kind, never_at) for dot in dots]
    return Lane(name=cut(sample.name), spans=spans, marks=marks, strokes=strokes)


def _mark(dot: Dot, kind: str, never_at: float) -> Mark:
    if dot.seconds is None:
        return Mark(never_at, dot.title, "bad")
    return Mark(dot.seconds, dot.title, kind)
