"""One POST, as often as it takes: what each answer means, and how long to wait after it.

The same request is sent again after no answer, 408, 409, 425, 429 and 5xx, a few times here
and then by the runtime, for ever; and after a page of HTML with whatever status, or a temporary
redirect, which portals, proxies and load balancers give in a server's place (ADR 26): a page for
people to log in at is no receipt for rows. Other answers will not change by themselves. What
a server asks for with `Retry-After` is kept to, up to a limit.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

import tenacity
import urllib3

from penstock.checkpoint.open_store import without_secrets
from penstock.clock import Clock, SystemClock
from penstock.errors import Invalid, Unavailable
from penstock.secrets import resolved, secrets_in

__all__ = ["HttpLine", "check_url", "open_line"]

CONNECT_S, READ_S = 5.0, 30.0
TRIES_MAX = 4
PAUSE_S, PAUSE_S_MAX = 0.1, 30.0
"""How long to wait before trying again: at first, and at most, whatever the server asks for."""
SHOWN_MAX = 200
PASSING = frozenset({302, 303, 307, 408, 409, 425, 429})
"""Answers that another one may follow; 409 is said while the same key is still being worked on."""
_PROLOGUE = re.compile(rb"(?:\xef\xbb\xbf|\s+|<\?xml[^>]*>|<!--.*?-->)+", re.DOTALL)
"""What may stand before the first element of a page."""
_PAGE = re.compile(rb"<(?:!doctype html|html|head|body)[\s>]", re.IGNORECASE)


def check_url(where: str, url: str) -> urllib3.util.Url:
    """The URL in its parts; `Invalid`, which does not quote it, if it is none."""
    try:
        parts = urllib3.util.parse_url(url)
    except urllib3.exceptions.LocationParseError:
        raise Invalid(where, "has a URL that is none", "check it") from None
    if parts.scheme not in ("http", "https") or not parts.host:
        raise Invalid(where, "has a URL of another kind", "use http://host/… or https://host/…")
    return parts


def open_line(where: str, url: str, headers: Mapping[str, str]) -> "HttpLine":
    """The references looked up, and everything checked that can be before the first request."""
    texts = [url, *headers.values()]
    secrets = {secret for text in texts for secret in secrets_in(where, text)}
    parts = check_url(where, resolved(where, url))
    sent = {name: resolved(where, value) for name, value in headers.items()}
    if parts.auth is not None:
        secrets |= {parts.auth, *parts.auth.split(":")}
        sent = {**urllib3.util.make_headers(basic_auth=unquote(parts.auth)), **sent}
    for name, value in sent.items():
        if not value.isprintable() or not value.isascii() or value != value.strip():
            found = f"has a header {name!r} with characters that cannot be sent"
            raise Invalid(where, found, "look for a line break or a blank at its end")
    secrets |= {*sent.values(), *(value.rpartition(" ")[2] for value in sent.values())}
    secrets |= {value for _, value in parse_qsl(parts.query or "")} | {parts.query or ""}
    shown = f"{where} at {without_secrets(url)}"
    return HttpLine(shown, parts._replace(auth=None).url, sent, [s for s in secrets if s])


class _TryAgain(Exception):
    """An answer, or none, after which the same request is sent again."""

    def __init__(self, why: str, after_s: float | None) -> None:
        super().__init__(why)
        self.why = why
        self.after_s = after_s


@dataclass(slots=True)
class HttpLine:
    """A server, and what is sent with every request."""

    where: str
    """The sink and its URL without secrets, as messages call them."""
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    secrets: Sequence[str] = field(default=(), repr=False)
    """What must not be shown, also if the server says it."""
    clock: Clock = field(default_factory=SystemClock)
    _pool: urllib3.PoolManager = field(init=False, repr=False)

    def __post_init__(self) -> None:
        timeout = urllib3.Timeout(connect=CONNECT_S, read=READ_S)
        self._pool = urllib3.PoolManager(timeout=timeout, retries=False, maxsize=8)

    def post(self, body: bytes, key: str) -> None:
        """Return when the server has said that it has it."""
        trying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_TryAgain),
            stop=tenacity.stop_after_attempt(TRIES_MAX),
            wait=_pause_s,
            sleep=self.clock.sleep,
            reraise=True,
        )
        try:
            trying(self._once, body, key)
        except _TryAgain as failure:
            raise Unavailable(self.where, failure.why, "it is sent again by and by") from None

    def close(self) -> None:
        """Close the spare connections."""
        self._pool.clear()

    def _once(self, body: bytes, key: str) -> None:
        headers = {**self.headers, "Content-Type": "application/json", "Idempotency-Key": key}
        try:
            answer = self._pool.request(
                "POST", self.url, body=body, headers=headers, redirect=False
            )
        except urllib3.exceptions.HTTPError as error:
            # Its words may hold the whole URL, and with it a secret.
            raise _TryAgain(f"does not answer ({type(error).__name__})", None) from None
        if answer.status in PASSING or answer.status >= 500:
            raise _TryAgain(f"answered {answer.status}", _asked_for_s(answer))
        if _is_page(answer):
            raise _TryAgain(f"answered {answer.status} with a page of HTML, as proxies do", None)
        if not 200 <= answer.status < 300:
            shown = self._without_secrets(answer.data.decode(errors="replace"))[:SHOWN_MAX]
            found = f"refused a request with {answer.status} ({shown})"
            raise Invalid(self.where, found, "mend what it says, and start the job again")

    def _without_secrets(self, text: str) -> str:
        """What a server says may hold what it was sent."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, "…")
        return text


def _is_page(answer: Any) -> bool:
    """Whether this is for people to look at: whoever takes rows by POST speaks to programs."""
    before = _PROLOGUE.match(answer.data)
    return _PAGE.match(answer.data, 0 if before is None else before.end()) is not None


def _asked_for_s(answer: Any) -> float | None:
    """The seconds that a server asks to be left alone; a date is not looked at."""
    try:
        return max(0.0, float(answer.headers.get("Retry-After", "")))
    except ValueError:
        return None


def _pause_s(state: tenacity.RetryCallState) -> float:
    failure = state.outcome.exception() if state.outcome is not None else None
    asked_s = failure.after_s if isinstance(failure, _TryAgain) else None
    usual_s = PAUSE_S * 2 ** (state.attempt_number - 1)
    return min(PAUSE_S_MAX, usual_s if asked_s is None else asked_s)
