"""The drivers of a chaos run as lanes: each from its start to its end, and when it led.

Drivers overlap: one stands by while another leads, a zombie outlives its tenure. Those that would
cover one another are on lanes of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from penstock.chaos.history import Ended, Happening, Led, Started
from penstock.chaos.telling import clock, told
from penstock.chaos.timeline import Lane, Mark, Span

__all__ = ["driver_lanes"]

NAMED_MAX = 8
"""With more drivers than these there is room for their numbers only."""


@dataclass(frozen=True, slots=True)
class _Driver:
    """One process, as far as it is known."""

    started: Started
    led: Led | None
    deposed: Led | None
    """When another one led, if it was still there."""
    ended: Ended | None

    def until(self, stop: float) -> float:
        """Its end; one that did not end went on to the end of the run."""
        return stop if self.ended is None else self.ended.at_s


def driver_lanes(happenings: Sequence[Happening], stop: float) -> list[Lane]:
    """As many lanes as there were drivers at once."""
    drivers = _drivers(happenings)
    named = "driver " if len(drivers) <= NAMED_MAX else ""
    rows: list[list[_Driver]] = []
    for driver in drivers:
        free = (row for row in rows if row[-1].until(stop) <= driver.started.at_s)
        row = next(free, None)
        if row is None:
            rows.append([driver])
        else:
            row.append(driver)
    return [
        Lane(
            name="" if at else "drivers",
            spans=[span for driver in row for span in _spans(driver, named, stop)],
            marks=[mark for driver in row for mark in _endings(driver)],
        )
        for at, row in enumerate(rows)
    ]


def _drivers(happenings: Sequence[Happening]) -> list[_Driver]:
    ended = {each.driver: each for each in happenings if isinstance(each, Ended)}
    leads = [each for each in happenings if isinstance(each, Led)]
    led = {each.driver: each for each in reversed(leads)}
    after = {each.driver: later for each, later in pairwise(leads) if each.driver != later.driver}
    found = []
    for each in happenings:
        if isinstance(each, Started):
            end, next_led = ended.get(each.driver), after.get(each.driver)
            gone = end is not None and next_led is not None and end.at_s <= next_led.at_s
            deposed = None if gone else next_led
            found.append(_Driver(each, led.get(each.driver), deposed, end))
    return found


def _spans(driver: _Driver, named: str, stop: float) -> list[Span]:
    """The time before it led, that in which it did, and that in which another one does."""
    last = driver.until(stop)
    leads_from = last if driver.led is None else driver.led.at_s
    leads_to = last if driver.deposed is None else driver.deposed.at_s
    label = f"{named}{driver.started.driver}"
    title = "; ".join(_lines(driver))
    parts = [
        (driver.started.at_s, leads_from, "pale"),
        (leads_from, leads_to, "plain-tint"),
        (leads_to, last, "faint"),
    ]
    return [Span(start, end, title, kind, label) for start, end, kind in parts if end > start]


def _lines(driver: _Driver) -> list[str]:
    known = (driver.started, driver.led, driver.ended)
    return [f"{clock(each.at_s)}, {told(each)}" for each in known if each is not None]


def _endings(driver: _Driver) -> list[Mark]:
    """Where a driver ended with something else than success."""
    ended = driver.ended
    if ended is None or ended.code == 0:
        return []
    return [Mark(ended.at_s, f"{clock(ended.at_s)}, {told(ended)}", "bad")]
