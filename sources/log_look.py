"""Looking at TAIL, changing it, and looking again when others were faster."""

from collections.abc import Callable
from typing import TypeVar

from penstock.effects import Steps, Wait
from penstock.errors import Corrupt, Invalid, Unavailable
from penstock.fencing.register import Lost, Seen, Won, read, swap
from penstock.ids import ETag
from penstock.points import Point
from penstock.sources.log_layout import tail_key
from penstock.sources.log_pieces import Moved
from penstock.sources.log_tail import Tail, tail_register

__all__ = ["RACES_MAX", "SPREAD_S", "outrun", "read_tail", "steadily", "swap_tail"]

RACES_MAX = 1000
"""How often in a row one may lose against others."""

LOOKS_MAX = 50
SPREAD_S = 0.02

R = TypeVar("R")


def read_tail(topic: str, partition: int) -> Steps[Seen[Tail] | None]:
    """TAIL now; None while the partition is empty."""
    seen: Seen[Tail] | None = yield from read(tail_register(partition), Point.LOG_TAIL)
    if seen is not None and seen.document.topic != topic:
        raise Invalid(
            tail_key(partition),
            "belongs to another topic than the one that was opened",
            "was the topic removed and made anew? open it again; remove what is left of the old",
        )
    return seen


def swap_tail(
    partition: int, expected: Seen[Tail] | None, new: Tail
) -> Steps[Won[Tail] | Lost[Tail]]:
    """Change TAIL, and find out whether that happened."""
    register = tail_register(partition)
    return (yield from swap(register, expected, new, Point.LOG_SWAP, Point.LOG_SETTLE))


def steadily(
    topic: str, partition: int, work: Callable[[Seen[Tail] | None], Steps[R]], at_least: int = 0
) -> Steps[R]:
    """Do something with TAIL and what it names; again, when that was moved meanwhile.

    An object that is missing twice, while TAIL says the same, is lost. A TAIL below version
    `at_least` is an old answer to a new question.
    """
    missing: tuple[str, ETag] | None = None
    for _ in range(LOOKS_MAX):
        seen = yield from read_tail(topic, partition)
        if (0 if seen is None else seen.document.version) < at_least:
            yield Wait(SPREAD_S)
            continue
        try:
            return (yield from work(seen))
        except Moved as moved:
            assert seen is not None, "an empty partition names nothing"
            if missing == (moved.subject, seen.etag):
                raise Corrupt(
                    moved.subject,
                    "is missing, and the log still needs it",
                    "restore this object from a copy; what is before and after it can be read",
                ) from moved
            missing = (moved.subject, seen.etag)
        yield Wait(SPREAD_S)
    raise outrun(partition)


def outrun(partition: int) -> Unavailable:
    """What is said when others change a partition all the time."""
    return Unavailable(
        tail_key(partition), "was changed by others again and again", "try again when it is quieter"
    )
