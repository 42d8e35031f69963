"""What a planted bug is, and the usual ways of catching one."""

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain, product, zip_longest
from pathlib import Path
from typing import Any

import pytest

from penstock.chaos.crashpoints import SOON, run_script
from penstock.chaos.faults import Fault
from penstock.chaos.simulation import simulate
from penstock.chaos.small_search import play

SEEDS_FILE = Path(__file__).with_name("seeds.txt")
SEEDS_MAX = 3000
ZOMBIES_MAX = 400

_SEED = re.compile(r"seed (\d+): ")

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
        """Plant the bug, look for it, and take it out again. The seed that caught it last time is
        tried before all others."""
        with planted(self.changes):
            seed = seeds_of_last_time().get(self.name)
            how = None if seed is None else by_seed(seed)
            return how or self.catch()


@cache
def seeds_of_last_time() -> dict[str, int]:
    """By name, the seed of the simulator that caught a bug when `make mutants` ran last."""
    lines = SEEDS_FILE.read_text().splitlines() if SEEDS_FILE.exists() else []
    return {name: int(seed) for name, seed in map(str.split, lines)}


def keep_seeds(caught: Mapping[str, str | None]) -> None:
    """Write down which seed caught what, for the next time."""
    found = {name: _SEED.match(how) for name, how in caught.items() if how is not None}
    lines = [f"{name} {seed[1]}\n" for name, seed in found.items() if seed is not None]
    SEEDS_FILE.write_text("".join(lines))


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
    return next(filter(None, map(by_seed, range(SEEDS_MAX))), None)


def by_seed(seed: int) -> str | None:
    """Caught by the simulator with this seed."""
    how = _broken(lambda: simulate(seed).broken)
    return None if how is None else f"seed {seed}: {how}"


def by_zombies(invariant: str = "") -> Callable[[], str | None]:
    """Caught by a process that goes on after another leader has finished everything."""

    def catch() -> str | None:
        plain = ((number, 0) for number in range(ZOMBIES_MAX))
        unheard_of = product(range(ZOMBIES_MAX), range(1, SOON + 1))
        by_turns = chain.from_iterable(zip_longest(plain, unheard_of))
        for number, soon in filter(None, by_turns):
            faults = {number + soon: Fault.ZOMBIE}
            if soon:
                faults[number] = Fault.ACK_LOST
            how = _broken(lambda faults=faults: run_script(faults).broken)
            if how is not None and how.startswith(invariant):
                unheard = f" after an unheard {number}" if soon else ""
                return f"zombie at request {number + soon}{unheard}: {how}"
        return None

    return catch


def by_sequence(begun: str, *actions: str) -> Callable[[], str | None]:
    """Caught by a sequence of the exhaustive search, which is right without the bug."""

    def catch() -> str | None:
        how = play(begun, actions)
        return None if how is None else f"{begun} root, {', '.join(actions)}: {how}"

    return catch


def by(test: Callable[[], None]) -> Callable[[], str | None]:
    """Caught by a test of the suite, which fails with the bug planted."""

    def catch() -> str | None:
        try:
            test()
        except (Exception, pytest.fail.Exception) as failure:  # noqa: BLE001 - any will do
            name = getattr(test, "__name__", "a test with these facts")
            return f"{name} fails: {type(failure).__name__}"
        return None

    return catch


def by_folder(test: Callable[..., None], *given: Any) -> Callable[[], str | None]:
    """Caught by a test that needs a folder, with one choice of its other parameters."""

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            test(Path(folder), *given)

    run.__name__ = test.__name__
    return by(run)


def _broken(run: Callable[[], tuple[str, ...]]) -> str | None:
    """The first broken promise; a run that falls over counts as one."""
    try:
        broken = run()
    except Exception as failure:  # noqa: BLE001 - so does whatever else a bug makes of it
        return f"the run fell over: {failure!r}"
    return broken[0] if broken else None
