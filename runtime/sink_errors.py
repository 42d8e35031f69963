"""Exceptions of a sink, as errors that name the sink and the way out.

A sink raises Penstock's own errors for all that it knows of. Anything else comes from a client, a
value or a bug that the sink was not written for, perhaps a sink of the job's own. It stops the job
as `Invalid`; only a connection that broke or a time that ran out is `Unavailable`, and tried again.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import Invalid, PenstockError, Unavailable
from penstock.sinks.cursors import Apply
from penstock.sinks.protocol import PROVENANCE
from penstock.sinks.staged import rows_of
from penstock.sinks.value_check import check_calendar, check_sound

__all__ = ["applying_explained", "explained"]

SHOWN_MAX = 300
"""Characters of an exception that a message has room for."""


@contextmanager
def explained(sink: str, doing: str) -> Iterator[None]:
    """Raise what a sink raises inside as a Penstock error. `doing` says what was asked of it."""
    try:
        yield
    except PenstockError:
        raise
    except (ConnectionError, TimeoutError) as error:
        raise _lost(sink, doing, error) from error
    except Exception as error:
        found = f"failed {doing} ({_shown(error)})"
        advice = "mend the sink or its settings, and start the job again"
        raise Invalid(f"sink {sink}", found, advice) from error


@contextmanager
def applying_explained(asked: Apply) -> Iterator[None]:
    """The same for one epoch on its way into a sink: its number is told, and its first row that
    could be the reason."""
    doing = f"on epoch {asked.cursor.epoch}"
    try:
        yield
    except PenstockError:
        raise
    except (ConnectionError, TimeoutError) as error:
        raise _lost(asked.sink, doing, error) from error
    except Exception as error:
        reason = _unfit_row(asked)
        subject = f"sink {asked.sink}" if reason is None else reason.subject
        why = _shown(error) if reason is None else f"its value {reason.found}; {_shown(error)}"
        raise Invalid(subject, f"failed {doing} ({why})", _ways_out(asked)) from error


def _lost(sink: str, doing: str, error: Exception) -> Unavailable:
    return Unavailable(f"sink {sink}", f"failed {doing} ({_shown(error)})", "it is tried again")


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:SHOWN_MAX]


def _unfit_row(asked: Apply) -> Invalid | None:
    """The first row that would be refused if it were staged now; None if all would be taken."""
    if not asked.outputs:
        return None
    rows = rows_of(asked.outputs, PROVENANCE)
    try:
        check_sound(f"sink {asked.sink}", rows)
        check_calendar(f"sink {asked.sink}", rows)
    except Invalid as reason:
        return reason
    return None


def _ways_out(asked: Apply) -> str:
    epoch, before = asked.cursor.epoch, asked.cursor.epoch - 1
    back = f", go back with `penstock restore --at {before}` and emit other rows" if before else ""
    return (
        f"its rows are kept: mend the sink and start the job again{back}, or leave epoch {epoch} "
        "and all up to HEAD out of this sink with `penstock sinks accept`"
    )
