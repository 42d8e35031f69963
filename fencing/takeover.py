"""Taking over: the same compare-and-swap as a commit, with a higher token.

There is no lock to ask for and nobody to ask. Whoever changes the register to its own name
leads; the old leader's next swap expects a version that is no longer there.
"""

from collections.abc import Callable
from typing import TypeVar

from penstock.clock import Chance
from penstock.effects import Steps, Wait
from penstock.errors import Gone, Unavailable
from penstock.fencing.register import Led, Register, Seen, Won, read, swap
from penstock.points import Point

__all__ = ["take_over"]

RACES_MAX = 64
"""How many lost races in a row are bad luck; more are a storm somebody should look at."""

SPREAD_S = 0.2

D = TypeVar("D", bound=Led)


def take_over(
    register: Register[D], claim: Callable[[D | None], Steps[D]], chance: Chance
) -> Steps[Seen[D]]:
    """Put the document that `claim` makes of the present one into the register.

    1. Read the register.
    2. Claim it: same contents, next token, our name. `claim` looks at whatever it must be sure
       of first, and refuses by raising: then nothing has changed. What it looks for may be gone
       because others went on meanwhile; then the register is read again.
    3. Swap. Won: every older token is powerless from here on.
    4. Lost: somebody was faster, which tells nothing against us. Read again.
    """
    for race in range(RACES_MAX):
        seen = yield from read(register, Point.TAKEOVER_READ)  # 1
        try:
            claimed = yield from claim(None if seen is None else seen.document)  # 2
        except Gone:
            yield Wait(SPREAD_S)
            continue
        outcome = yield from swap(  # 3
            register, seen, claimed, Point.TAKEOVER_SWAP, Point.TAKEOVER_SETTLE
        )
        if isinstance(outcome, Won):
            return outcome.seen
        yield Wait(SPREAD_S * chance.fraction() * min(race + 1, 8))  # 4
    raise Unavailable(
        register.key,
        f"was won by others {RACES_MAX} times in a row",
        "find out which processes keep taking the job over, and stop all but one",
    )
