"""Every error Penstock raises on purpose, sorted by what the catcher must do.

    PenstockError
    ├── Unavailable   the same call may succeed later; nothing is known to be wrong
    ├── Fenced        another leader took over: stop for good, never retry
    ├── Corrupt       stored bytes are not what was written: stop and call a human
    ├── Invalid       the job, the call or its settings are wrong: fix them
    │   └── Gone      what was asked for has been given up by retention
    └── Bug           one of our own invariants broke: stop and report it

Each says three things a person needs: what it is about, what was found, what to do next.
They are plain values, so they survive the trip between processes.
"""

from typing import Any

__all__ = ["Bug", "Corrupt", "Fenced", "Gone", "Invalid", "PenstockError", "Unavailable"]


class PenstockError(Exception):
    """The root of the tree. `str()` is one sentence: subject, finding, next step."""

    def __init__(self, subject: str, found: str, advice: str) -> None:
        super().__init__(subject, found, advice)
        self.subject = subject
        self.found = found
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.subject} {self.found}: {self.advice}."

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class Unavailable(PenstockError):
    """The store or server did not do it, or did not say so. The same call may succeed later."""


class Fenced(PenstockError):
    """A newer leader holds the job. Sticky: whoever has seen this refuses every later call."""

    def __init__(self, subject: str, *, held: int, newest: int, by: str, untold: str = "") -> None:
        super().__init__(
            subject,
            f"was taken over by {by} with token {newest}, and this process holds token {held}"
            + (f" ({untold})" if untold else ""),
            "stop this process; the new leader goes on from the last committed epoch",
        )
        self.held = held
        self.newest = newest
        self.by = by
        self.untold = untold
        """What can no longer be found out, in words; empty when nothing was left open."""


class Corrupt(PenstockError):
    """Bytes on the store are not the bytes that were written. Nothing retries this."""


class Invalid(PenstockError):
    """The job, the call or its settings are wrong. Nothing was changed."""


class Gone(Invalid):
    """What was asked for existed, and retention has given it up since."""


class Bug(PenstockError):
    """An invariant of Penstock's own is broken. Nothing was committed on top of it."""


def _rebuild(kind: type[PenstockError], args: tuple[Any, ...], facts: dict[str, Any]) -> object:
    """Make the error again without its constructor, which may take other arguments."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(facts)
    return error
