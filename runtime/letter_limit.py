"""How many events an operator may set aside before the job is stopped instead.

A quarantine is for events that are bad one by one. A mistake in the function makes letters of all
of them, and a job that goes on looks healthy. The limit is of an epoch, and is compared before the
epoch is committed: what stops the job has not happened.
"""

import re
from dataclasses import dataclass

from penstock.errors import Invalid

__all__ = ["LetterLimit", "Quarantine", "quarantine"]

_SHARE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")


@dataclass(frozen=True, slots=True)
class LetterLimit:
    """A number of letters, or a share of events."""

    count: int | None = None
    percent: float | None = None

    def __str__(self) -> str:
        return f"{self.count:,}" if self.percent is None else f"{self.percent:g} %, or one"

    def is_passed(self, letters: int, events: int) -> bool:
        """Whether so many letters are too many. One event is never a share: an epoch may be
        small."""
        if self.percent is None:
            return letters > (self.count or 0)
        return letters > max(1, events * self.percent / 100)


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The policy of an operator that sets aside events on which its function raises."""

    at_most: LetterLimit | None = None


def quarantine(*, at_most: int | str | None = None) -> Quarantine:
    """Set events aside on which a function raises; stop the job if an epoch has more of them than
    `at_most`: a number, or a share of its events such as "1 %"."""
    if at_most is None:
        return Quarantine()
    if isinstance(at_most, int) and not isinstance(at_most, bool) and at_most >= 0:
        return Quarantine(LetterLimit(count=at_most))
    share = _SHARE.fullmatch(at_most) if isinstance(at_most, str) else None
    if share is None or float(share[1]) > 100:
        raise Invalid(f"quarantine(at_most={at_most!r})", "is no limit", "use a number or '1 %'")
    return Quarantine(LetterLimit(percent=float(share[1])))
