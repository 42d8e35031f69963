"""What can go wrong between a job and its store: each fault with the requests it fits, the
sentence that tells of it, and the answer it makes.

No fault invents damage that nobody could find: bits are flipped in objects, which are named by
their hash or carry it, and not in lists, which nothing vouches for.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import TypeAlias
from urllib.parse import urlsplit

from penstock.chaos.s3_proxy import Answer, Break, Request, made_up

__all__ = ["ANSWERED", "DUPLICATE_AFTER_S", "NOT_PASSED_ON", "SLOW_S", "Only", "StoreFault"]

SLOW_S = 4.0
"""How much longer a slow request takes: half of it there, half of it back."""

DUPLICATE_AFTER_S = 3.0

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
}

NOT_PASSED_ON: Mapping[StoreFault, Answer | None] = {
    StoreFault.LOST: None,
    StoreFault.REFUSED_503: made_up(503, "SlowDown"),
    StoreFault.CONFLICT_409: made_up(409, "ConditionalRequestConflict"),
}
"""What is answered to requests that the store never hears of; None hangs up."""

ANSWERED: Mapping[StoreFault, Callable[[Answer], Answer | None]] = {
    StoreFault.ACK_LOST: lambda answer: None,
    StoreFault.APPLIED_500: lambda answer: made_up(500, "InternalError"),
    StoreFault.APPLIED_503: lambda answer: made_up(503, "ServiceUnavailable"),
    StoreFault.FALSE_412: lambda answer: made_up(412, "PreconditionFailed"),
    StoreFault.RESET: lambda answer: replace(answer, ends=Break.RESET),
    StoreFault.TRUNCATED: lambda answer: replace(answer, ends=Break.CLOSED),
    StoreFault.FLIPPED: _flipped,
}
"""What is made of the store's answer to a request that was passed on."""
