"""What an error of Postgres means to a sink: whether it goes away by itself, and what to do.

The server's own code decides. A connection that is refused has no code, only a text: if we know
it for a mistake it is `Invalid`, else it is taken for a server that is away, which is tried
again. The text of a server that speaks another language than English is never known.

What a setting was resolved to is cut out of everything that is shown.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg

from penstock.errors import Invalid, PenstockError, Unavailable
from penstock.sinks.postgres_names import CURSORS, Place

__all__ = ["refused", "translated", "without"]

REASON_LENGTH_MAX = 300


@dataclass(frozen=True, slots=True)
class _Meaning:
    kind: type[Unavailable] | type[Invalid]
    found: str
    advice: str


_AWAY = _Meaning(
    Unavailable, "cannot be reached", "start its server or wait for it: the job goes on by itself"
)
_BUSY = _Meaning(
    Unavailable, "was not written in time", "wait: the job tries again; see pg_stat_activity"
)
_LOCKED = _Meaning(
    Unavailable,
    "is locked by another session",
    "wait, or end that session (see pg_stat_activity): the job tries again",
)
_FULL = _Meaning(
    Unavailable, "cannot be written for want of room", "make room: the job goes on by itself"
)
_READ_ONLY = _Meaning(
    Unavailable, "is read-only", "let it be written again: the job goes on by itself"
)
_BROKEN = _Meaning(
    Unavailable, "cannot be written by its server", "see the server's log: the job tries again"
)
_VALUE = _Meaning(
    Invalid,
    "does not take a value",
    "change the column so that it does, and start the job again: the row is committed",
)
_RULE = _Meaning(
    Invalid,
    "has a rule against a row",
    "change the rule or what is in its way, and start the job again: the row is committed",
)
_MAY_NOT = _Meaning(Invalid, "may not be written by this user", "grant it, or use another user")
_CHANGED = _Meaning(
    Invalid,
    "is not as it was when the sink was opened",
    "change it back, or start the job again",
)
_REFUSED = _Meaning(Invalid, "refuses to be written", "remove the cause, and start the job again")
_NO_ENTRY = _Meaning(Invalid, "cannot be opened", "set `connection` right")

_MEANINGS = {
    "08": _AWAY,
    "57": _AWAY,
    "57014": _BUSY,
    "25P03": _BUSY,
    "25P04": _BUSY,
    "40": _BUSY,
    "55P03": _LOCKED,
    "55006": _LOCKED,
    "53": _FULL,
    "53300": _AWAY,
    "25006": _READ_ONLY,
    "58": _BROKEN,
    "XX000": _BROKEN,
    "22": _VALUE,
    "21000": _RULE,
    "23": _RULE,
    "44": _RULE,
    "P0": _RULE,
    "42": _CHANGED,
    "42501": _MAY_NOT,
    "3F": _CHANGED,
    "28": _NO_ENTRY,
    "3D": _NO_ENTRY,
}
"""By the code of an error, or by its class, which is the first two characters."""

_MISTAKES = re.compile(
    r"authentication failed|no password supplied|pg_hba\.conf|does not exist|permission denied"
    r"|not permitted to log in|does not support SSL|certificate|SSL mode|invalid \S+ value"
    r"|invalid port|no encryption",
)
"""What libpq and the server say of a `connection` that will never do."""

_IN_COLUMN = re.compile(r"COPY .+?, \w+ \d+, \w+ (?P<column>.+?)(?:: |$)", re.DOTALL)
"""Where COPY says in which column it found a value; the words between are the server's language."""


def translated(place: Place, error: psycopg.Error) -> PenstockError:
    """What to raise for an error of a statement."""
    code = error.sqlstate
    diagnosis = error.diag
    if code is None:  # it is not the server that says so
        is_line = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return _error(_AWAY if is_line else _REFUSED, str(place), str(error).partition("\n")[0])
    if code == "23505" and diagnosis.table_name == CURSORS:
        # Two leaders gave the shard its first epoch: we were second, and have changed nothing.
        return _error(_BUSY, str(place), diagnosis.message_primary)
    meaning = _MEANINGS.get(code) or _MEANINGS.get(code[:2]) or _REFUSED
    reason = diagnosis.message_primary
    if meaning is _RULE and diagnosis.message_detail:
        reason = f"{reason}; {diagnosis.message_detail}"
    column = _column_of(diagnosis) if meaning.kind is Invalid else None
    return _error(meaning, str(place) if column is None else place.column(column), reason)


def refused(place: Place, error: Exception, secrets: Sequence[str]) -> PenstockError:
    """What to raise for a connection that did not come about. Raise it `from None`."""
    text = without(str(error), secrets)
    text = text.removeprefix("connection failed: ").removeprefix("connection is bad: ")
    is_mistake = isinstance(error, UnicodeError) or _MISTAKES.search(text)
    return _error(_NO_ENTRY if is_mistake else _AWAY, str(place), text.partition("\n")[0])


def without(text: str, secrets: Sequence[str]) -> str:
    """The text with each secret cut out."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _column_of(diagnosis: psycopg.errors.Diagnostic) -> str | None:
    if diagnosis.column_name is not None:
        return diagnosis.column_name
    found = _IN_COLUMN.search(diagnosis.context or "")
    return None if found is None else found["column"]


def _error(meaning: _Meaning, subject: str, reason: str | None) -> PenstockError:
    shown = " ".join((reason or "no reason given").split())[:REASON_LENGTH_MAX]
    return meaning.kind(subject, f"{meaning.found} ({shown})", meaning.advice)
