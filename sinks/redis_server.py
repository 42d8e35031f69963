"""How Penstock talks to a Redis: the settings of its client, and what its refusals mean.

The client repeats nothing by itself: whoever called knows whether to ask again. A connection that
failed is thrown away, and the next call makes a new one. A message is built from the kind of an
error alone, because what a client or a server says may quote a password or a row.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote, unquote

import redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterCrossSlotError,
    ClusterDownError,
    InvalidResponse,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import TimeoutError as NoAnswer
from redis.retry import Retry

from penstock.errors import Invalid, PenstockError, Unavailable
from penstock.secrets import resolved

__all__ = ["connected", "explained", "greeted"]

log = logging.getLogger("penstock.sinks")

CONNECT_TIMEOUT_S = 5
ANSWER_TIMEOUT_S = 30
CONNECTIONS_MAX = 1024

_PASSING = {
    "BUSY": ("is busy with a script", "let it end"),
    "LOADING": ("is still loading its data", "wait until it has"),
    "MASTERDOWN": ("is a replica whose primary is away", "bring the primary back"),
    "MISCONF": ("cannot write to its disk", "make room on its disk, or repair it"),
    "NOREPLICAS": ("has fewer replicas than it must have", "bring them back"),
    "NOSCRIPT": ("has forgotten the script it was given", "let the job try again"),
    "OOM": ("has no memory left for rows", "give it more, and raise its maxmemory"),
    "READONLY": ("is a read-only replica", "let the URL lead to the primary"),
}
"""What may be over at the next call."""
_CLUSTER = ("is a cluster, which this sink cannot write to", "use a single server")
_LASTING = {
    "CLUSTERDOWN": _CLUSTER,
    "CROSSSLOT": _CLUSTER,
    "MOVED": _CLUSTER,
    "NOAUTH": ("does not let us in", "check the user and the password of its URL"),
    "NOPERM": (
        "does not let this user do all that the sink needs",
        "allow it PING, INFO, EVALSHA, SCRIPT, HMGET, HSET, DEL and PEXPIRE on the sink's keys",
    ),
    "WRONGTYPE": ("has something else than a hash where a cursor should be", "remove that key"),
}
_KINDS: dict[type[RedisError], str] = {
    AuthenticationError: "NOAUTH",
    AuthorizationError: "NOAUTH",
    BusyLoadingError: "LOADING",
    ClusterCrossSlotError: "CROSSSLOT",
    MasterDownError: "MASTERDOWN",  # before the next, of which it is one
    ClusterDownError: "CLUSTERDOWN",
    MovedError: "MOVED",
    NoPermissionError: "NOPERM",
    NoScriptError: "NOSCRIPT",
    OutOfMemoryError: "OOM",
    ReadOnlyError: "READONLY",
}
"""Errors of which the client leaves out the word that Redis began with."""
_WORD = re.compile(rf"\b({'|'.join([*_PASSING, *_LASTING, 'WRONGPASS'])})\b")
"""Before Redis 7 the word may stand behind the name of the script that met the error."""


def connected(where: str, place: str, url: str) -> redis.Redis:
    """A client; nothing is sent yet."""
    try:
        return redis.Redis.from_url(
            _filled_in(where, url),
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            socket_timeout=ANSWER_TIMEOUT_S,
            max_connections=CONNECTIONS_MAX,
        )
    except (ValueError, TypeError):
        # What it says may quote the URL.
        found = "cannot be reached, because its URL is not one that Redis has"
        raise Invalid(place, found, "write redis://:${REDIS_PASSWORD}@host:6379/0") from None


def _filled_in(where: str, url: str) -> str:
    """The URL with every reference replaced; what comes from one may hold any characters."""
    scheme, is_url, rest = url.partition("://")
    if not is_url:
        return resolved(where, url)
    credentials, at, host = rest.rpartition("@")
    known = (quote(resolved(where, unquote(part)), safe="") for part in credentials.split(":", 1))
    return f"{scheme}://{':'.join(known)}{at}{resolved(where, host)}"


def greeted(client: redis.Redis, place: str) -> None:
    """See that the server is there and what kind it is; warn of what it may lose."""
    with explained(place):
        client.ping()
        told = client.info()
    assert isinstance(told, dict)
    if told.get("redis_mode") == "cluster":
        raise Invalid(place, *_CLUSTER)
    if not told.get("aof_enabled"):
        log.warning(
            "%s keeps no append-only file: a crash of Redis can lose what the job believes "
            "applied. Set appendonly yes.",
            place,
        )
    policy = str(told.get("maxmemory_policy", ""))
    if policy.startswith("allkeys"):
        log.warning(
            "%s drops keys when its memory is full (%s), rows and cursors too. "
            "Set maxmemory-policy noeviction.",
            place,
            policy,
        )


@contextmanager
def explained(place: str) -> Iterator[None]:
    """Raise what the client raises inside as a Penstock error about that server."""
    try:
        yield
    except RedisError as error:
        raise _sorted(place, error) from None


def _sorted(place: str, error: RedisError) -> PenstockError:
    word = _word(error)
    if word in _PASSING:
        return Unavailable(place, *_PASSING[word])
    if word in _LASTING:
        return Invalid(place, *_LASTING[word])
    if isinstance(error, NoAnswer):
        return Unavailable(place, "did not answer in time", "see what keeps it or the network busy")
    if isinstance(error, NoConnection | InvalidResponse):
        return Unavailable(place, "could not be reached", "start it, or correct the URL")
    code = str(error).partition(" ")[0] if isinstance(error, ResponseError) else ""
    found = f"refused what it was asked ({code if code.isupper() else type(error).__name__})"
    return Invalid(place, found, "look at its version and settings")


def _word(error: RedisError) -> str:
    """The word by which Redis sorts its errors; empty if there is none we know."""
    for kind, word in _KINDS.items():
        if isinstance(error, kind):
            return word
    found = _WORD.search(str(error)) if isinstance(error, ResponseError) else None
    return {"WRONGPASS": "NOAUTH"}.get(found[0], found[0]) if found else ""
