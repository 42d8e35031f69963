"""An exhaustive search: every sequence of a few actions on a small root, judged after each step.

A random schedule finds what is likely; this finds what is possible in so few steps. Sequences share
their beginnings: a root is copied at each node of the tree. An action that changes nothing ends its
branch, for what would follow it is found without it.

Besides an empty root, the search begins with one whose history is partly given up, whose table has
two indexes, and whose older one is named by an epoch that is still retained.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import product

from penstock.chaos.crashpoints import in_parallel
from penstock.chaos.small_root import Names, SmallRoot
from penstock.chaos.small_truth import wrong_with
from penstock.errors import PenstockError

__all__ = ["ACTIONS", "BEGINNINGS", "Searched", "play", "search"]

Action = Callable[[SmallRoot], bool]
Sequence = tuple[str, ...]

ACTIONS: dict[str, Action] = {
    "commit": SmallRoot.commit,
    "empty commit": SmallRoot.empty_commit,
    "index": SmallRoot.index,
    "collect": SmallRoot.collect,
    "sweep": SmallRoot.sweep,
    "pin": SmallRoot.pin,
    "unpin": SmallRoot.unpin,
    "rewind": SmallRoot.rewind,
    "fork": SmallRoot.fork,
    "give up a sink": SmallRoot.give_up,
    "restart": SmallRoot.restart,
}

BEGINNINGS: dict[str, Sequence] = {
    "empty": (),
    "grown": ("commit", "index", "commit", "commit", "index", "collect", "empty commit"),
}
BAD_MAX = 100
"""How many bad sequences one part of a search keeps."""


@dataclass(slots=True)
class Searched:
    """What a search, or a part of it, has seen."""

    sequences: int = 0
    """Of the full length, those included whose actions change nothing."""
    steps: int = 0
    """Actions that changed something and were judged."""
    taken: dict[str, int] = field(default_factory=dict)
    """Of these, how many per action."""
    bad: list[tuple[str, Sequence, str]] = field(default_factory=list)
    """The beginning, what was done, and what was wrong then; the shortest first."""

    def join(self, other: "Searched") -> None:
        """Count another part."""
        self.sequences += other.sequences
        self.steps += other.steps
        for name, times in other.taken.items():
            self.taken[name] = self.taken.get(name, 0) + times
        self.bad = sorted([*self.bad, *other.bad], key=lambda each: (len(each[1]), each))[:BAD_MAX]


def search(length: int, workers: int = 1) -> Iterator[Searched]:
    """Every sequence of up to `length` actions; yields the sum so far after every part."""
    total = Searched()
    firsts = product(BEGINNINGS, ACTIONS, ACTIONS if length > 1 else ("",))
    parts = [(begun, tuple(filter(None, names))) for begun, *names in firsts]
    for part in in_parallel(partial(_search_part, length), parts, workers):
        total.join(part)
        yield total


def play(begun: str, sequence: Sequence) -> str | None:
    """What is wrong behind the first action that leaves something wrong; None if none does."""
    small = _beginning(begun)
    for name in sequence:
        small.source = None
        found = _tried(small, name)
        if isinstance(found, str):
            return found
    return None


def _beginning(begun: str) -> SmallRoot:
    small = SmallRoot(Names())
    for name in BEGINNINGS[begun]:
        ACTIONS[name](small)
    return small


def _search_part(length: int, part: tuple[str, Sequence]) -> Searched:
    """All sequences that begin like this. The first part that has a prefix judges it as well."""
    begun, first = part
    branch = _Branch(begun, length)
    small = _beginning(begun)
    for depth in range(len(first)):
        is_first = all(later == next(iter(ACTIONS)) for later in first[depth + 1 :])
        following = branch.step(small, first[: depth + 1], is_counted=is_first)
        if following is None:
            if is_first:
                branch.found.sequences += len(ACTIONS) ** (length - depth - 1)
            return branch.found
        small = following
    branch.descend(small, first)
    return branch.found


class _Branch:
    """A walk down the tree of sequences."""

    def __init__(self, begun: str, length: int) -> None:
        self.found = Searched()
        self._begun = begun
        self._length = length

    def descend(self, small: SmallRoot, done: Sequence) -> None:
        """Everything below this node."""
        left = self._length - len(done)
        if left == 0:
            self.found.sequences += 1
            return
        for name in ACTIONS:
            following = self.step(small, (*done, name), is_counted=True)
            if following is None:
                self.found.sequences += len(ACTIONS) ** (left - 1)
            else:
                self.descend(following, (*done, name))

    def step(self, small: SmallRoot, done: Sequence, *, is_counted: bool) -> SmallRoot | None:
        """The root after the last of these actions; None if it changed nothing, or was bad."""
        twin = small.copied()
        wrong = _tried(twin, done[-1])
        if wrong is False:
            return None
        if is_counted:
            self.found.steps += 1
            self.found.taken[done[-1]] = self.found.taken.get(done[-1], 0) + 1
        if isinstance(wrong, str):
            if is_counted and len(self.found.bad) < BAD_MAX:
                self.found.bad.append((self._begun, done, wrong))
            return None
        return twin


def _tried(small: SmallRoot, name: str) -> str | bool:
    """What is wrong after an action; True: nothing; False: it changed nothing."""
    try:
        if not ACTIONS[name](small):
            return False
    except PenstockError as error:
        return f"{type(error).__name__}: {error}"
    return wrong_with(small) or True
