"""What a planted bug is, and the usual ways of catching one."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.chaos.crashpoints import SOON, run_script
from penstock.chaos.faults import Fault
from penstock.chaos.simulation import simulate

SEEDS_MAX = 3000
ZOMBIES_MAX = 250

Change = tuple[Any, str, Any]
"""An owner, the name of one of its attributes, and what to put there."""


@dataclass(frozen=True)
class Mutant:
    """One planted bug. `catch` runs with the bug planted, and says how it was caught, or None."""

    name: str
    bug: str
    changes: tuple[Change, ...]
    catch: Callable[[], str | None]

    def caught(self) -> str | None:
        """Plant the bug, look for it, and take it out again."""
        with planted(self.changes):
            return self.catch()


@contextmanager
def planted(changes: tuple[Change, ...]) -> Iterator[None]:
    """Replace attributes for a while."""
    with ExitStack() as undo:
        for owner, name, value in changes:
            before = owner[name] if isinstance(owner, dict) else getattr(owner, name)
            undo.callback(_put, owner, name, before)
            _put(owner, name, value)
        yield


def _put(owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, dict):
        owner[name] = value
    else:
        setattr(owner, name, value)


def by_seeds() -> str | None:
    """Caught by the simulator with a random seed."""
    for seed in range(SEEDS_MAX):
        how = _broken(lambda seed=seed: simulate(seed).broken)
        if how is not None:
            return f"seed {seed}: {how}"
    return None


def by_zombies(invariant: str = "") -> Callable[[], str | None]:
    """Caught by a process that goes on after another leader has finished everything."""

    def catch() -> str | None:
        for number in range(ZOMBIES_MAX):
            for soon in range(SOON + 1):
                faults = {number + soon: Fault.ZOMBIE}
                if soon:
                    faults[number] = Fault.ACK_LOST
                how = _broken(lambda faults=faults: run_script(faults).broken)
                if how is not None and how.startswith(invariant):
                    unheard = f" after an unheard {number}" if soon else ""
                    return f"zombie at request {number + soon}{unheard}: {how}"
        return None

    return catch


def by(test: Callable[[], None]) -> Callable[[], str | None]:
    """Caught by a test of the suite, which fails with the bug planted."""

    def catch() -> str | None:
        try:
            test()
        except (Exception, pytest.fail.Exception) as failure:  # noqa: BLE001 - any will do
            return f"{test.__name__} fails: {type(failure).__name__}"
        return None

    return catch


def _broken(run: Callable[[], tuple[str, ...]]) -> str | None:
    """The first broken promise; a run that falls over counts as one."""
    try:
        broken = run()
    except Exception as failure:  # noqa: BLE001 - so does whatever else a bug makes of it
        return f"the run fell over: {failure!r}"
    return broken[0] if broken else None
