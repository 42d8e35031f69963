"""The timeline of a chaos run: throughput, commits, faults and drivers over one axis of seconds.

What was done to the job stands between what it got done and what it had to do about it, so that a
dip, its cause and its cure are seen on one line from top to bottom. Lanes in which nothing happened
are left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.chaos.chaos_drivers import driver_lanes
from penstock.chaos.history import (
    ChaosRun,
    Committed,
    Ended,
    Family,
    Happening,
    Held,
    Led,
    Missed,
    Retried,
    Struck,
    commits,
)
from penstock.chaos.report import time_of
from penstock.chaos.telling import clock, lasting, restored, told
from penstock.chaos.timeline import Bar, Lane, Mark, Span, Tick, even_step, timeline

__all__ = ["run_timeline"]

BARS_MAX = 440
"""How many bars a lane has; commits that are closer together are one."""
INSTANT_S = 1e-3


def run_timeline(run: ChaosRun) -> str:
    """The picture; nothing if nothing happened."""
    if not run.happenings:
        return ""
    stop = max(each.at_s for each in run.happenings)
    lanes = [
        *_amounts(commits(run.happenings), stop),
        _epochs(run.happenings),
        _violations(run),
        *_faults(run.happenings),
        *driver_lanes(run.happenings, stop),
        _marked("take-overs", run.happenings, Led, "good"),
        _restores(run.happenings),
        _marked("retries", run.happenings, Retried, "plain"),
        Lane(name="held", spans=list(_held(run.happenings, stop))),
    ]
    drawn = [lane for lane in lanes if lane.bars or lane.spans or lane.marks or lane.strokes]
    return timeline(drawn, _ticks(run.at_ms, stop), 0, stop, "what happened, over time")


@dataclass(frozen=True, slots=True)
class _Stretch:
    """From one commit to a later one, with the epochs that became real meanwhile."""

    start: float
    stop: float
    epochs: tuple[Committed, ...]

    @property
    def rate(self) -> float:
        """Rows a second."""
        rows = sum(each.rows_in for each in self.epochs)
        return rows / max(self.stop - self.start, INSTANT_S)

    @property
    def lag(self) -> int | None:
        """What was last known of it."""
        known = [each.lag for each in self.epochs if each.lag is not None]
        return known[-1] if known else None

    @property
    def name(self) -> str:
        first, last = self.epochs[0].epoch, self.epochs[-1].epoch
        named = f"epoch {first:,}" if first == last else f"epochs {first:,} to {last:,}"
        return f"{clock(self.stop)}, {named}"


def _amounts(done: Sequence[Committed], stop: float) -> Iterator[Lane]:
    """How much was done between commits, and how much was left to do."""
    stretches = _stretches(done, stop / BARS_MAX)
    if not stretches:
        return
    most = max(each.rate for each in stretches)
    bars = [Bar(each.start, each.stop, each.rate, _rate(each)) for each in stretches]
    yield Lane(name="rows/s", below=f"up to {most:,.0f}", bars=bars)
    lags = [(each, each.lag) for each in stretches if each.lag is not None]
    if lags:
        most_lag = max(lag for _, lag in lags)
        yield Lane(
            name="lag",
            below=f"up to {most_lag:,}",
            bars=[
                Bar(each.start, each.stop, lag, f"{each.name}: lag {lag:,}", "plain-tint")
                for each, lag in lags
            ],
        )


def _rate(stretch: _Stretch) -> str:
    rows = sum(each.rows_in for each in stretch.epochs)
    took = lasting(stretch.stop - stretch.start)
    return f"{stretch.name}: {stretch.rate:,.0f} rows/s ({rows:,} rows in {took})"


def _stretches(done: Sequence[Committed], least_s: float) -> list[_Stretch]:
    """Each from the commit before. One that nobody could see is part of the next: a moment that
    is too short to be drawn would have a throughput out of all proportion."""
    found: list[_Stretch] = []
    waiting: list[Committed] = []
    start = max(done[0].at_s - done[0].seconds, 0.0) if done else 0.0
    for each in done:
        waiting.append(each)
        if each.at_s - start >= least_s:
            found.append(_Stretch(start, each.at_s, tuple(waiting)))
            start, waiting = each.at_s, []
    if waiting:
        before = found.pop() if found else _Stretch(start, start, ())
        epochs = (*before.epochs, *waiting)
        found.append(_Stretch(before.start, waiting[-1].at_s, epochs))
    return found


def _epochs(happenings: Sequence[Happening]) -> Lane:
    strokes = [_mark(each, "plain") for each in commits(happenings)]
    return Lane(name="commits", strokes=strokes)


def _violations(run: ChaosRun) -> Lane:
    """Where the epochs that something is wrong with became real."""
    moments = {each.epoch: each.at_s for each in commits(run.happenings)}
    marks = [
        Mark(moments[wrong.epoch], f"{wrong} (epoch {wrong.epoch:,})", "bad")
        for check in run.checks
        for wrong in check.violations
        if wrong.epoch is not None and wrong.epoch in moments
    ]
    return Lane(name="violations", marks=marks)


def _faults(happenings: Sequence[Happening]) -> Iterator[Lane]:
    """A lane for each family of faults."""
    for family in Family:
        marks = [
            _mark(each, "fault" if isinstance(each, Struck) else "doubt")
            for each in happenings
            if isinstance(each, Struck | Missed) and each.family is family
        ]
        yield Lane(name=f"{family} faults", marks=marks)


def _marked(name: str, happenings: Sequence[Happening], wanted: type[Happening], kind: str) -> Lane:
    marks = [_mark(each, kind) for each in happenings if isinstance(each, wanted)]
    return Lane(name=name, marks=marks)


def _restores(happenings: Sequence[Happening]) -> Lane:
    marks = [
        Mark(each.at_s, f"{clock(each.at_s)}, epoch {each.epoch:,}: {restored(each)}")
        for each in commits(happenings)
        if each.restores
    ]
    return Lane(name="restores", marks=marks)


def _held(happenings: Sequence[Happening], stop: float) -> Iterator[Span]:
    """From a sink being away until it is back, another one is, or the driver is gone."""
    open_since: dict[int, Held] = {}
    for each in happenings:
        if not isinstance(each, Held | Ended):
            continue
        before = open_since.pop(each.driver, None)
        if before is not None:
            yield _holding(before, each.at_s)
        if isinstance(each, Held) and each.sinks:
            open_since[each.driver] = each
    for left in open_since.values():
        yield _holding(left, stop)


def _holding(held: Held, stop: float) -> Span:
    title = f"{clock(held.at_s)}, for {lasting(stop - held.at_s)}: {told(held)}"
    return Span(held.at_s, stop, title, "doubt-tint", ", ".join(held.sinks))


def _mark(happening: Happening, kind: str) -> Mark:
    return Mark(happening.at_s, f"{clock(happening.at_s)}, {told(happening)}", kind)


def _ticks(at_ms: int, stop: float) -> list[Tick]:
    """Even moments of the run, each with the time of day."""
    step = even_step(stop)
    return [
        Tick(at, _shown(at), f"{time_of(at_ms + round(at * 1000)):%H:%M:%S}")
        for at in (number * step for number in range(int(stop / step) + 1))
    ]


def _shown(at_s: float) -> str:
    """A moment on the axis: tenths only where there are any."""
    return clock(at_s).removesuffix(".0")
