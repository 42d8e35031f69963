"""Looking at TAIL, changing it, and looking again when others were faster."""

from collections.abc import Callable
from typing import TypeVar

from penstock.effects import Steps, Wait
from penstock.errors import Corrupt, Invalid, Unavailable
from penstock.fencing.register import Lost, Seen, Won, read, swap
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
    if seen is not None:
        _check_topic(seen.document, topic)
    return seen


def swap_tail(
    partition: int, expected: Seen[Tail] | None, new: Tail
) -> Steps[Won[Tail] | Lost[Tail]]:
    """Change TAIL, and find out whether that happened."""
    register = tail_register(partition)
    outcome = yield from swap(register, expected, new, Point.LOG_SWAP, Point.LOG_SETTLE)
    _check_topic(outcome.seen.document, new.topic)
    return outcome


def steadily(
    topic: str, partition: int, work: Callable[[Seen[Tail] | None], Steps[R]], at_least: int = 0
) -> Steps[R]:
    """Do something with TAIL and what it names; again, when that was moved meanwhile.

    Objects are deleted after TAIL has let go of them. So one that a TAIL names, which was read
    after the object was found missing, is lost. A TAIL below version `at_least` is an old answer
    to a new question.
    """
    missing = ""
    for _ in range(LOOKS_MAX):
        seen = yield from read_tail(topic, partition)
        if (0 if seen is None else seen.document.version) < at_least:
            yield Wait(SPREAD_S)
            continue
        try:
            return (yield from work(seen))
        except Moved as moved:
            if missing == moved.subject:
                raise Corrupt(
                    moved.subject,
                    "is missing, and the log still needs it",
                    "restore this object from a copy; what is before and after it can be read",
                ) from moved
            missing = moved.subject
        yield Wait(SPREAD_S)
    raise outrun(partition)


def _check_topic(tail: Tail, topic: str) -> None:
    if tail.topic != topic:
        raise Invalid(
            tail_key(tail.partition),
            "belongs to another topic than the one that was opened",
            "was the topic removed and made anew? open it again; remove what is left of the old",
        )


def outrun(partition: int) -> Unavailable:
    """What is said when others change a partition all the time."""
    return Unavailable(
        tail_key(partition), "was changed by others again and again", "try again when it is quieter"
    )
