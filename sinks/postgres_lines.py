"""Connections to one database: a few spare ones, and a new one whenever there is none.

A connection that was part of any failure is closed, and after one that broke no spare one is
trusted either. So whatever state a server left one in, nobody meets it again.

Everything has a limit: connecting, waiting for a lock, a statement, a transaction whose client went
silent, and a server that does not answer though its machine does.
"""

import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
from psycopg import sql
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict

from penstock.errors import Invalid
from penstock.secrets import resolved, secrets_in
from penstock.sinks.postgres_errors import refused, translated
from penstock.sinks.postgres_names import Place

__all__ = ["Line", "Lines", "Settings", "settings_of", "start"]

SPARE_MAX = 4
CONNECT_S_MAX = 10
LOCK_MS_MAX = 10_000
STATEMENT_MS_MAX = 600_000
IDLE_MS_MAX = 60_000
"""How long the server keeps a transaction, and with it the cursor's lock, for a silent client."""
SILENCE_S_MAX = STATEMENT_MS_MAX / 1000 + 60
"""How long we wait for a server that should have ended a statement long ago."""
UNHEARD_MS_MAX = 20_000
"""How long what we sent may stay unconfirmed by the other machine."""

_TICK_S = 0.1

_DEFAULTS: dict[str, Any] = {
    "connect_timeout": CONNECT_S_MAX,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": UNHEARD_MS_MAX,
    "application_name": "penstock",
}
"""What `connection` may say otherwise."""

R = TypeVar("R")
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Settings:
    """What libpq is given, and what of it nobody may read."""

    given: dict[str, Any]
    secrets: tuple[str, ...]

    def __repr__(self) -> str:
        return "Settings(…)"


def settings_of(where: str, connection: str) -> Settings:
    """The settings that `connection` stands for.

    It is taken apart before its references are replaced, so that no character of a secret means
    anything. A reference that stands for all of it is replaced first.
    """
    text = connection.strip()
    is_whole = text.startswith("${") and text.endswith("}") and text.count("${") == 1
    whole = resolved(where, text) if is_whole else text
    try:
        parts = conninfo_to_dict(whole)
    except psycopg.Error:  # its text may quote a password
        raise Invalid(
            f"{where}, connection",
            "is neither a URL nor a list of settings that libpq understands",
            "write postgresql://user:${PASSWORD}@host/database",
        ) from None
    given = {name: str(value) for name, value in parts.items() if value is not None}
    if not is_whole:
        given = {name: resolved(where, value) for name, value in given.items()}
    return Settings(given, (*secrets_in(where, text), given.get("password", "")))


class Line(psycopg.Connection[Row]):
    """A connection that does not wait for ever, and ends with whoever holds it."""

    def __del__(self, *_: Any) -> None:
        self.pgconn.finish()

    def wait(self, gen: PQGen[R], interval: float = _TICK_S, timeout: float | None = None) -> R:
        """What psycopg waits by for every answer; older versions know no timeout."""
        limited = _limited(gen, interval)
        if timeout is None:
            return super().wait(limited, interval)
        return super().wait(limited, interval, timeout)

    def run(self, statements: sql.SQL | sql.Composed) -> list[Row]:
        """Statements in one message. The rows of the last that has any."""
        rows: list[Row] = []
        with self.cursor() as cursor:
            cursor.execute(statements)
            while True:
                if cursor.description is not None:
                    rows = cursor.fetchall()
                if not cursor.nextset():
                    return rows


def _limited(gen: PQGen[R], interval: float) -> PQGen[R]:
    """The same steps, until nothing was heard for too long."""
    silent_s = 0.0
    try:
        wish = next(gen)
        while True:
            ready = yield wish
            silent_s = 0.0 if ready else silent_s + interval
            if silent_s > SILENCE_S_MAX:
                raise psycopg.OperationalError("the server does not answer")
            wish = gen.send(ready)
    except StopIteration as end:
        result: R = end.value
        return result


def start(then: sql.SQL | sql.Composed) -> sql.Composed:
    """The beginning of every transaction, in one message with what comes first in it.

    Its limits are of this transaction alone, so that a pooler between us and the server may lend
    each transaction another connection. A commit that a crash of the server takes back is none,
    whatever the server is set to.
    """
    limits = sql.SQL(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {}; "
        "SET LOCAL statement_timeout = {}; SET LOCAL idle_in_transaction_session_timeout = {}; "
        "SELECT set_config('synchronous_commit', 'on', true) "
        "WHERE current_setting('synchronous_commit') = 'off'; "
    )
    return limits.format(LOCK_MS_MAX, STATEMENT_MS_MAX, IDLE_MS_MAX) + then


class Lines:
    """The connections of one open sink."""

    def __init__(self, place: Place, settings: Settings) -> None:
        self._place = place
        self._settings = settings
        self._lock = threading.Lock()
        self._spare: list[Line] = []

    @contextmanager
    def line(self) -> Iterator[Line]:
        """A connection without a transaction, for one thread."""
        line = self._taken() or self._connected()
        try:
            yield line
        except psycopg.Error as error:
            line.close()
            if error.sqlstate is None:
                self.close()
            raise translated(self._place, error) from error
        except BaseException:
            line.close()
            raise
        self._give_back(line)

    def close(self) -> None:
        """Close those that nobody uses."""
        with self._lock:
            spare, self._spare = self._spare, []
        for line in spare:
            line.close()

    def _taken(self) -> Line | None:
        while True:
            with self._lock:
                if not self._spare:
                    return None
                line = self._spare.pop()
            if _is_quiet(line):
                return line
            line.close()

    def _give_back(self, line: Line) -> None:
        is_idle = line.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
        with self._lock:
            if is_idle and len(self._spare) < SPARE_MAX:
                self._spare.append(line)
                return
        line.close()

    def _connected(self) -> Line:
        given = {**_DEFAULTS, **self._settings.given, "client_encoding": "UTF8"}
        try:
            return Line.connect(**given, autocommit=True, prepare_threshold=None)
        except (psycopg.Error, UnicodeError) as error:
            raise refused(self._place, error, self._settings.secrets) from None


def _is_quiet(line: Line) -> bool:
    """Whether nothing has come on a connection that nobody uses: not even its end."""
    waiting = select.poll()
    with suppress(psycopg.Error, OSError, ValueError):
        waiting.register(line.fileno(), select.POLLIN)
        return not waiting.poll(0)
    return False
