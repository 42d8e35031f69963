"""When which fault is due: everything about it follows from the seed.

Every kind of fault that was asked for is due at least once, if there are that many; the rest are
chosen so that cheap ones come more often, because a run has only so much time. They are spread
over the epochs of the run, and some epochs at the end stay calm: what a job makes of a fault shows
in the epochs after it.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.chaos.nemesis import Nemesis
from penstock.errors import Invalid

__all__ = ["Due", "schedule"]

FIRST_EPOCH = 2
CALM_EPOCHS = 4
DELAY_S_MAX = 0.8


@dataclass(frozen=True, slots=True)
class Due:
    """A fault that is to happen."""

    nemesis: Nemesis
    number: int
    """Which one of the run it is, from 1."""
    epoch: int
    """Once this epoch is committed …"""
    delay_s: float
    """… and so much time has passed."""
    seed: str
    """What its own choices follow from."""

    def chance(self) -> random.Random:
        """Its own choices."""
        return random.Random(self.seed)


def schedule(seed: int, nemeses: Sequence[Nemesis], faults: int, epochs: int) -> list[Due]:
    """So many faults over so many epochs."""
    if not nemeses and faults:
        raise Invalid("the schedule", "has no kind of fault to choose from", "ask for some")
    if epochs <= FIRST_EPOCH + CALM_EPOCHS:
        found = f"has {epochs} epochs"
        raise Invalid("the schedule", found, f"use more than {FIRST_EPOCH + CALM_EPOCHS}")
    chance = random.Random(f"schedule/{seed}")
    chosen = _chosen(chance, nemeses, faults)
    last = epochs - CALM_EPOCHS
    places = sorted(chance.uniform(FIRST_EPOCH, last) for _ in chosen)
    return [
        Due(
            nemesis=nemesis,
            number=number,
            epoch=int(place),
            delay_s=chance.uniform(0.0, DELAY_S_MAX),
            seed=f"{seed}/{number}/{nemesis.name}",
        )
        for number, (nemesis, place) in enumerate(zip(chosen, places, strict=True), 1)
    ]


def _chosen(chance: random.Random, nemeses: Sequence[Nemesis], faults: int) -> list[Nemesis]:
    """Each once, in an order of chance; then more of them, the cheap ones rather."""
    once = chance.sample(list(nemeses), min(len(nemeses), faults))
    weights = [1.0 / (1.0 + nemesis.cost_s) for nemesis in nemeses]
    more = chance.choices(list(nemeses), weights, k=faults - len(once)) if faults else []
    chosen = [*once, *more]
    chance.shuffle(chosen)
    return chosen
