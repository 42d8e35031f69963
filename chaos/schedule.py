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

__all__ = ["Due", "Length", "schedule"]

FIRST_EPOCH = 2
CALM_EPOCHS = 4
STARTING, CALM = 0.15, 0.15
"""The shares of a run that is measured in seconds in which it starts, and stays calm in the end."""
DELAY_S_MAX = 0.8


@dataclass(frozen=True, slots=True)
class Due:
    """A fault that is to happen."""

    nemesis: Nemesis
    number: int
    """Which one of the run it is, from 1."""
    epoch: int
    """Once this epoch is committed …"""
    at_s: float
    """… and the run has lasted so long …"""
    delay_s: float
    """… and so much more time has passed."""
    seed: str
    """What its own choices follow from."""

    def chance(self) -> random.Random:
        """Its own choices."""
        return random.Random(self.seed)


@dataclass(frozen=True, slots=True)
class Length:
    """How long a run is: so many epochs or, if it is given, so many seconds."""

    epochs: int
    seconds: float | None = None

    def place(self, share: float) -> tuple[int, float]:
        """The epoch and the second at which so much of the time for faults has passed."""
        if self.seconds is not None:
            return 1, self.seconds * (STARTING + share * (1.0 - STARTING - CALM))
        first, last = FIRST_EPOCH, self.epochs - CALM_EPOCHS
        return int(first + share * (last - first)), 0.0


def schedule(
    seed: int, nemeses: Sequence[Nemesis], faults: int, length: Length, *, evenly: bool = False
) -> list[Due]:
    """So many faults over the length of a run. `evenly`: each with as much calm after it as the
    others; else some come at once, as they do."""
    if not nemeses and faults:
        raise Invalid("the schedule", "has no kind of fault to choose from", "ask for some")
    if length.seconds is None and length.epochs <= FIRST_EPOCH + CALM_EPOCHS:
        found = f"has {length.epochs} epochs"
        raise Invalid("the schedule", found, f"use more than {FIRST_EPOCH + CALM_EPOCHS}")
    chance = random.Random(f"schedule/{seed}")
    chosen = _chosen(chance, nemeses, faults)
    even = [number / len(chosen) for number in range(len(chosen))]
    shares = even if evenly else sorted(chance.random() for _ in chosen)
    return [
        Due(
            nemesis=nemesis,
            number=number,
            epoch=length.place(share)[0],
            at_s=length.place(share)[1],
            delay_s=chance.uniform(0.0, DELAY_S_MAX),
            seed=f"{seed}/{number}/{nemesis.name}",
        )
        for number, (nemesis, share) in enumerate(zip(chosen, shares, strict=True), 1)
    ]


def _chosen(chance: random.Random, nemeses: Sequence[Nemesis], faults: int) -> list[Nemesis]:
    """Each once, in an order of chance; then more of them, the cheap ones rather."""
    once = chance.sample(list(nemeses), min(len(nemeses), faults))
    weights = [1.0 / (1.0 + nemesis.cost_s) for nemesis in nemeses]
    more = chance.choices(list(nemeses), weights, k=faults - len(once)) if faults else []
    chosen = [*once, *more]
    chance.shuffle(chosen)
    return chosen
