"""A nemesis: one kind of harm, done once each time it is asked.

It says what it has done in words that stand in the history, or that there was nothing to do it to.
Nobody counts a fault that did not happen. Nemeses compose: two at once are a nemesis again, and
one that does nothing is there to compare with.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from penstock.chaos.history import Family
from penstock.chaos.scene import Scene

__all__ = ["Nemesis", "at_once", "nothing"]

Strike = Callable[[Scene, random.Random], str]
"""Does it, and tells what it did; `NothingThere` if it could not."""


@dataclass(frozen=True, slots=True)
class Nemesis:
    """One kind of fault."""

    name: str
    """Such as `executor.kill`."""
    family: Family
    strike: Strike
    cost_s: float = 1.0
    """About how long a job needs to recover from it on two cores: what a schedule reckons with."""


def at_once(first: Nemesis, second: Nemesis) -> Nemesis:
    """Two kinds of harm, one right after the other."""

    def strike(scene: Scene, chance: random.Random) -> str:
        return f"{first.strike(scene, chance)}; and {second.strike(scene, chance)}"

    name = f"{first.name}+{second.name}"
    return Nemesis(name, first.family, strike, first.cost_s + second.cost_s)


def nothing(family: Family) -> Nemesis:
    """Does no harm, and says so."""

    return Nemesis("nothing", family, lambda scene, chance: "nothing was done", 0.0)
