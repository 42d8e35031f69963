"""Harm from outside the job: its store, its sinks, the line to them, the clock on the wall."""

import random
from collections.abc import Callable

from penstock.chaos.history import Family
from penstock.chaos.jumping_clock import jump
from penstock.chaos.line_faults import LineFault, Lines
from penstock.chaos.nemesis import Nemesis, Strike
from penstock.chaos.scene import NothingThere, Scene
from penstock.chaos.sink_faults import SinkFault
from penstock.chaos.store_fault_kinds import StoreFault

__all__ = ["CLOCK_NEMESES", "LINE_NEMESES", "SINK_NEMESES", "STORE_NEMESES"]

_CUTS: dict[str, Callable[[Lines, str], LineFault]] = {
    "line.before": lambda lines, sink: lines.cut_before(sink),
    "line.after": lambda lines, sink: lines.cut_after(sink),
    "line.commit": lambda lines, sink: lines.cut_after_commit(sink),
    "line.away": lambda lines, sink: lines.away(sink, AWAY_S),
}
JUMPS_S = {"clock.forward": (60.0, 86_400.0), "clock.back": (-86_400.0, -60.0)}
AWAY_S = 6.0


def _store(fault: StoreFault) -> Strike:
    def strike(scene: Scene, chance: random.Random) -> str:
        if scene.store is None:
            raise NothingThere("the job's store cannot be reached by a proxy")
        armed = scene.store.arm(fault, times=chance.randint(1, 2))
        scene.patiently(lambda: armed.wait(0.0))
        scene.store.disarm()
        if not armed.hits:
            raise NothingThere("no request came that it fits")
        more = f", and {len(armed.hits) - 1} more" if len(armed.hits) > 1 else ""
        return f"{armed.hits[0]}{more}"

    return strike


def _sink(fault: SinkFault) -> Strike:
    def strike(scene: Scene, chance: random.Random) -> str:
        if scene.sinks is None:
            raise NothingThere("no sink is outside the root")
        ordered = scene.sinks.order(fault, None, times=chance.randint(1, 2))
        scene.patiently(ordered.taken)
        ordered.withdraw()
        taken = ordered.taken()
        if not taken:
            raise NothingThere("nothing was applied")
        return taken[0]

    return strike


def _line(name: str) -> Strike:
    def strike(scene: Scene, chance: random.Random) -> str:
        if scene.lines is None or not scene.lines.ports:
            raise NothingThere("no sink is a server that a proxy can stand before")
        chosen = scene.committing if name == "line.commit" else scene.lines.ports.keys()
        sink = chance.choice(sorted(chosen))
        fault = _CUTS[name](scene.lines, sink)
        scene.patiently(lambda: fault.is_settled)
        if name != "line.away" or not fault.cuts:
            fault.withdraw()
        if not fault.cuts:
            raise NothingThere(f"nothing went over the line to {sink}")
        return fault.text

    return strike


def _jump(name: str) -> Strike:
    def strike(scene: Scene, chance: random.Random) -> str:
        seconds = round(chance.uniform(*JUMPS_S[name]))
        jump(scene.folder, seconds)
        return f"the wall clock set {abs(seconds):,} s {'ahead' if seconds > 0 else 'back'}"

    return strike


STORE_NEMESES = tuple(
    Nemesis(f"store.{fault}", Family.STORE, _store(fault)) for fault in StoreFault
)
SINK_NEMESES = tuple(
    Nemesis(f"sink.{fault.name.lower()}", Family.SINK, _sink(fault)) for fault in SinkFault
)
LINE_NEMESES = tuple(Nemesis(name, Family.SINK, _line(name), 2.0) for name in _CUTS)
CLOCK_NEMESES = tuple(Nemesis(name, Family.CLOCK, _jump(name)) for name in JUMPS_S)
