"""One leader's time in office, and the memory that it is over.

`Fenced` is sticky: once this process has learnt that another leads, every writer that was
handed the tenure refuses, even if a stale read would now say otherwise.
"""

from penstock.errors import Fenced, PenstockError
from penstock.ids import Holder, JobName, Token

__all__ = ["Tenure"]


class Tenure:
    """Handed to whatever decides something or gives something away: commits, sinks, heartbeats,
    collections. What only stages is harmless without it. `end` never comes undone."""

    def __init__(self, job: JobName, token: Token, holder: Holder) -> None:
        self.job = job
        self.token = token
        self.holder = holder
        self._ended: PenstockError | None = None

    @property
    def over(self) -> bool:
        """Whether this tenure has ended, for whatever reason."""
        return self._ended is not None

    def check(self) -> None:
        """Raise what ended the tenure, if anything has."""
        if self._ended is not None:
            raise self._ended

    def end(self, why: PenstockError) -> None:
        """Refuse every later call with `why`, or with the earlier reason if there is one."""
        if self._ended is None:
            self._ended = why

    def fence(self, newest: Token, by: Holder, untold: str = "") -> Fenced:
        """End the tenure because `by` holds the larger token `newest`; the error to raise."""
        fenced = Fenced(f"job {self.job}", held=self.token, newest=newest, by=by, untold=untold)
        self.end(fenced)
        return fenced
