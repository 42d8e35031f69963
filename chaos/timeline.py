"""A timeline as a picture: lanes above each other, over one axis of epochs or of time.

It is an SVG that stands in a page and takes its colours from there, by the names of kinds: `good`,
`bad`, `doubt`, `plain`, `fault`, `ink`, and for what is written upon `faint`, `pale`, `plain-tint`,
`doubt-tint`, `fault-tint`. What is drawn says what it is when it is pointed at. Nothing here knows
what the lanes mean, so a run with faults is drawn as well as an audit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

__all__ = ["Bar", "Lane", "Mark", "Span", "Tick", "even_step", "timeline"]

WIDTH = 1000.0
LABELS = 126.0
"""The room on the left for the names of lanes."""
LANE_HEIGHT, BARS_HEIGHT, GAP = 22.0, 56.0, 10.0
AXIS_HEIGHT = 34.0
BAR_GAP_MAX = 2.0
TEXT_WIDTH = 6.3
"""About what a letter takes, to see whether a label fits."""
RADIUS, LEVEL_HEIGHT = 4.0, 7.0
STROKE_WIDTH_MAX = 2.0
STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400)
"""What may lie between two ticks of an axis of seconds."""
TICKS_MAX = 10


@dataclass(frozen=True, slots=True)
class Bar:
    """An amount at a place: it reaches from `start` to `stop` on the axis."""

    start: float
    stop: float
    amount: float
    title: str
    kind: str = "plain"


@dataclass(frozen=True, slots=True)
class Span:
    """Something that lasted."""

    start: float
    stop: float
    title: str
    kind: str = "faint"
    label: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at a place."""

    at: float
    title: str
    kind: str = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What is drawn beside one name: bars that stand, or spans with marks on them."""

    name: str
    below: str = ""
    """A second line under the name, such as what the highest bar stands for."""
    bars: Sequence[Bar] = ()
    spans: Sequence[Span] = ()
    marks: Sequence[Mark] = ()
    strokes: Sequence[Mark] = ()
    """Marks that are so many that only where they are is drawn."""

    @property
    def height(self) -> float:
        """The room it takes."""
        return BARS_HEIGHT if self.bars else LANE_HEIGHT


@dataclass(frozen=True, slots=True)
class Tick:
    """A place on the axis that has a name; the second line may be empty."""

    at: float
    text: str
    below: str = ""


@dataclass(slots=True)
class _Drawing:
    """Shapes on their way into a picture, and where the axis leads."""

    start: float
    stop: float
    top: float = 4.0
    shapes: list[str] = field(default_factory=list)

    def x(self, at: float) -> float:
        """Where a place of the axis is in the picture."""
        length = max(self.stop - self.start, 1e-9)
        return LABELS + (min(max(at, self.start), self.stop) - self.start) / length * self.room

    @property
    def room(self) -> float:
        return WIDTH - LABELS - 8

    def rect(self, x: float, y: float, width: float, height: float, kind: str, title: str) -> None:
        self.shapes.append(
            f'<rect class="{escape(kind)}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 1.0):.1f}" '
            f'height="{height:.1f}" rx="2"><title>{escape(title)}</title></rect>'
        )

    def text(self, x: float, y: float, text: str, kind: str, anchor: str = "start") -> None:
        self.shapes.append(
            f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )


def timeline(
    lanes: Sequence[Lane],
    ticks: Sequence[Tick],
    start: float,
    stop: float,
    name: str = "timeline",
) -> str:
    """The picture, from `start` to `stop` on the axis. Its name is for whoever does not see it."""
    drawing = _Drawing(start, stop)
    bottom = drawing.top + sum(lane.height + GAP for lane in lanes)
    for tick in ticks:
        _draw_tick(drawing, tick, bottom)
    for lane in lanes:
        _draw_lane(drawing, lane)
        drawing.top += lane.height + GAP
    height = bottom + AXIS_HEIGHT
    shapes = "\n".join(drawing.shapes)
    return (
        f'<svg class="timeline" viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" '
        f'aria-label="{escape(name)}">\n{shapes}\n</svg>'
    )


def even_step(length: float) -> float:
    """How far apart the ticks of an axis of seconds are, so that they can be read."""
    return next((step for step in STEPS if length / step <= TICKS_MAX), STEPS[-1])


def _draw_tick(drawing: _Drawing, tick: Tick, bottom: float) -> None:
    x = drawing.x(tick.at)
    drawing.shapes.append(
        f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{bottom + 3:.1f}"/>'
    )
    half = max(len(tick.text), len(tick.below)) * TEXT_WIDTH / 2
    anchor = "end" if x + half > WIDTH else "middle"
    drawing.text(x, bottom + 15, tick.text, "axis", anchor)
    drawing.text(x, bottom + 29, tick.below, "axis below", anchor)


def _draw_lane(drawing: _Drawing, lane: Lane) -> None:
    middle = drawing.top + lane.height / 2
    drawing.text(LABELS - 12, middle + (-3 if lane.below else 4), lane.name, "name", "end")
    if lane.below:
        drawing.text(LABELS - 12, middle + 12, lane.below, "below", "end")
    base = drawing.top + lane.height
    if lane.bars:
        _draw_bars(drawing, lane.bars, base)
    else:
        drawing.shapes.append(
            f'<line class="rail" x1="{LABELS}" x2="{WIDTH - 8}" y1="{middle}" y2="{middle}"/>'
        )
    for span in lane.spans:
        _draw_span(drawing, span, lane.height)
    _draw_marks(drawing, lane.marks, middle)
    _draw_strokes(drawing, lane.strokes, lane.height)


def _draw_bars(drawing: _Drawing, bars: Sequence[Bar], base: float) -> None:
    most = max(*(bar.amount for bar in bars), 1e-9)
    for bar in bars:
        left, right = drawing.x(bar.start), drawing.x(bar.stop)
        gap = min(BAR_GAP_MAX, (right - left) / 4)
        height = bar.amount / most * (BARS_HEIGHT - 4)
        tall = max(height, 1.5 if bar.amount else 0.0)
        drawing.rect(left + gap / 2, base - tall, right - left - gap, tall, bar.kind, bar.title)


def _draw_span(drawing: _Drawing, span: Span, height: float) -> None:
    left, right = drawing.x(span.start), drawing.x(span.stop)
    drawing.rect(left + 0.5, drawing.top + 2, right - left - 1, height - 4, span.kind, span.title)
    if span.label and len(span.label) * TEXT_WIDTH < right - left - 14:
        drawing.text(left + 8, drawing.top + height / 2 + 4, span.label, "label")


def _draw_strokes(drawing: _Drawing, strokes: Sequence[Mark], height: float) -> None:
    """However many there are, at least as much is left free as is drawn."""
    width = min(STROKE_WIDTH_MAX, drawing.room / max(len(strokes), 1) / 2)
    for each in strokes:
        left = drawing.x(each.at) - width / 2
        drawing.rect(left, drawing.top + 2, width, height - 4, each.kind, each.title)


def _draw_marks(drawing: _Drawing, marks: Sequence[Mark], middle: float) -> None:
    """Dots; where they would cover one another they are above and below as well."""
    placed = sorted(((drawing.x(mark.at), mark) for mark in marks), key=lambda pair: pair[0])
    reached = {0: -1.0, -1: -1.0, 1: -1.0}
    for x, mark in placed:
        free = [level for level, last in reached.items() if x - last >= 2 * RADIUS]
        level = free[0] if free else min(reached, key=reached.__getitem__)
        reached[level] = x
        drawing.shapes.append(
            f'<circle class="{escape(mark.kind)}" cx="{x:.1f}" '
            f'cy="{middle + level * LEVEL_HEIGHT:.1f}" r="{RADIUS}">'
            f"<title>{escape(mark.title)}</title></circle>"
        )
