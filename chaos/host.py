"""What a simulated process is given instead of a machine."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from penstock.chaos.actions import Action
from penstock.clock import Chance, Clock
from penstock.effects import Steps

__all__ = ["Host"]


@dataclass(frozen=True, slots=True)
class Host:
    """What a simulated process has: a name, clocks, chance, and threads."""

    name: str
    clock: Clock
    chance: Chance
    rng: random.Random
    start_thread: Callable[[str, Steps[None]], None]
    report: Callable[..., None]
    """Tells the witness what this process believes, as it would tell its user."""
    did: Callable[[Action], None]
    """Counts an action that took effect."""
