"""What can go wrong between a job and its store: each fault with the requests it fits, the
sentence that tells of it, and the answer it makes.

No fault invents damage that nobody could find: bits are flipped in objects, which are named by
their hash or carry it, and not in lists, which nothing vouches for. Nor does one end a job rightly:
a whole 403 is for a person to mend, so none is made up. A store that shows an old version, or none
of an object that is there, is broken; what is looked at through HEAD survives that all the same, so
it happens to HEAD and the manifests behind it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import TypeAlias
from urllib.parse import urlsplit

from penstock.chaos.s3_proxy import Answer, Break, Request, made_up, page

__all__ = [
    "ANSWERED",
    "DUPLICATE_AFTER_S",
    "LATE_AFTER_S",
    "NOT_PASSED_ON",
    "SLOW_S",
    "Only",
    "StoreFault",
    "is_of_head",
]

SLOW_S = 4.0
"""How much longer a slow request takes: half of it there, half of it back."""

DUPLICATE_AFTER_S = 3.0
LATE_AFTER_S = 120.0
"""How long a write is on its way of which its sender has long given up hope."""

Only: TypeAlias = Callable[[Request], bool]
"""Whether a request is one of those that are meant."""


class StoreFault(StrEnum):
    """What happens to one request on its way to the store, or to its answer on the way back."""

    LOST = "lost"
    ACK_LOST = "ack-lost"
    APPLIED_500 = "applied-500"
    APPLIED_503 = "applied-503"
    REFUSED_503 = "refused-503"
    CONFLICT_409 = "conflict-409"
    FALSE_412 = "false-412"
    SLOW = "slow"
    RESET = "reset"
    TRUNCATED = "truncated"
    FLIPPED = "flipped"
    DUPLICATED = "duplicated"
    LATE = "late"
    CUT_403 = "cut-403"
    CUT_404 = "cut-404"
    PAGE_403 = "page-403"
    PAGE_404 = "page-404"
    PAGE_502 = "page-502"
    PAGE_503 = "page-503"
    FALSE_404 = "false-404"
    STALE = "stale"

    @property
    def text(self) -> str:
        """What was done to a request, for whoever reads the history."""
        return _TEXTS[self]

    def fits(self, request: Request) -> bool:
        """Whether it can happen to such a request at all."""
        return _FITTING[self](request)


def _any(request: Request) -> bool:
    del request
    return True


def _is_put(request: Request) -> bool:
    return request.method == "PUT"


def _is_conditional(request: Request) -> bool:
    return request.is_conditional


def _is_get(request: Request) -> bool:
    return request.method == "GET"


def _is_get_of_object(request: Request) -> bool:
    """Not of a list: that names a bucket and nothing in it."""
    return request.method == "GET" and "/" in urlsplit(request.path).path.strip("/")


def _has_an_answer_with_a_body(request: Request) -> bool:
    """Not to HEAD: what has no body is not cut, nor replaced by a page."""
    return request.method != "HEAD"


def is_of_head(request: Request) -> bool:
    """Whether a request is about the one object of a root that is swapped."""
    return urlsplit(request.path).path.endswith("/HEAD")


def _is_look_at_head(request: Request) -> bool:
    return request.method == "GET" and is_of_head(request)


def _is_look_at_chain(request: Request) -> bool:
    """Of HEAD or a manifest: who finds none looks again, and then for it in a list."""
    is_of_chain = is_of_head(request) or "/manifests/" in urlsplit(request.path).path
    return request.method == "GET" and is_of_chain


def _half(answer: Answer) -> Answer:
    return replace(answer, ends=Break.CLOSED)


def _flipped(answer: Answer) -> Answer:
    body = bytearray(answer.body)
    body[len(body) // 2] ^= 1
    return replace(answer, body=bytes(body))


_TEXTS: Mapping[StoreFault, str] = {
    StoreFault.LOST: "never passed on, and hung up",
    StoreFault.ACK_LOST: "applied, and nobody was told",
    StoreFault.APPLIED_500: "applied, and answered with 500",
    StoreFault.APPLIED_503: "applied, and answered with 503",
    StoreFault.REFUSED_503: "never passed on, and answered with 503",
    StoreFault.CONFLICT_409: "never passed on, and answered with 409",
    StoreFault.FALSE_412: "applied, and answered with 412 as if it had been sent twice",
    StoreFault.SLOW: f"slowed down by {SLOW_S:g} seconds",
    StoreFault.RESET: "connection reset in the middle of the answer",
    StoreFault.TRUNCATED: "half an answer, with the length of the whole",
    StoreFault.FLIPPED: "answered with one bit flipped",
    StoreFault.DUPLICATED: f"applied, and sent again {DUPLICATE_AFTER_S:g} seconds later",
    StoreFault.LATE: f"hung up on, and held back for {LATE_AFTER_S:g} seconds",
    StoreFault.CUT_403: "never passed on, and answered with half of a 403",
    StoreFault.CUT_404: "never passed on, and answered with half of a 404",
    StoreFault.PAGE_403: "never passed on, and answered with a page of HTML and 403",
    StoreFault.PAGE_404: "never passed on, and answered with a page of HTML and 404",
    StoreFault.PAGE_502: "never passed on, and answered with a page of HTML and 502",
    StoreFault.PAGE_503: "never passed on, and answered with a page of HTML and 503",
    StoreFault.FALSE_404: "answered with 404 although it is there",
    StoreFault.STALE: "answered with what was there before its last change",
}

_FITTING: Mapping[StoreFault, Only] = {
    StoreFault.LOST: _any,
    StoreFault.ACK_LOST: _is_put,
    StoreFault.APPLIED_500: _is_put,
    StoreFault.APPLIED_503: _is_put,
    StoreFault.REFUSED_503: _any,
    StoreFault.CONFLICT_409: _is_conditional,
    StoreFault.FALSE_412: _is_conditional,
    StoreFault.SLOW: _any,
    StoreFault.RESET: _is_get,
    StoreFault.TRUNCATED: _is_get,
    StoreFault.FLIPPED: _is_get_of_object,
    StoreFault.DUPLICATED: _is_put,
    StoreFault.LATE: _is_put,
    StoreFault.CUT_403: _has_an_answer_with_a_body,
    StoreFault.CUT_404: _has_an_answer_with_a_body,
    StoreFault.PAGE_403: _has_an_answer_with_a_body,
    StoreFault.PAGE_404: _has_an_answer_with_a_body,
    StoreFault.PAGE_502: _has_an_answer_with_a_body,
    StoreFault.PAGE_503: _has_an_answer_with_a_body,
    StoreFault.FALSE_404: _is_look_at_chain,
    StoreFault.STALE: _is_look_at_head,
}

NOT_PASSED_ON: Mapping[StoreFault, Answer | None] = {
    StoreFault.LOST: None,
    StoreFault.REFUSED_503: made_up(503, "SlowDown"),
    StoreFault.CONFLICT_409: made_up(409, "ConditionalRequestConflict"),
    StoreFault.CUT_403: _half(made_up(403, "AccessDenied")),
    StoreFault.CUT_404: _half(made_up(404, "NoSuchKey")),
    StoreFault.PAGE_403: page(403),
    StoreFault.PAGE_404: page(404),
    StoreFault.PAGE_502: page(502),
    StoreFault.PAGE_503: page(503),
}
"""What is answered to requests that the store never hears of; None hangs up."""

ANSWERED: Mapping[StoreFault, Callable[[Answer], Answer | None]] = {
    StoreFault.ACK_LOST: lambda answer: None,
    StoreFault.APPLIED_500: lambda answer: made_up(500, "InternalError"),
    StoreFault.APPLIED_503: lambda answer: made_up(503, "ServiceUnavailable"),
    StoreFault.FALSE_412: lambda answer: made_up(412, "PreconditionFailed"),
    StoreFault.RESET: lambda answer: replace(answer, ends=Break.RESET),
    StoreFault.TRUNCATED: _half,
    StoreFault.FLIPPED: _flipped,
    StoreFault.FALSE_404: lambda answer: made_up(404, "NoSuchKey"),
}
"""What is made of the store's answer to a request that was passed on."""
