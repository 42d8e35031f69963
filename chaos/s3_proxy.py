"""A proxy that stands before an S3 endpoint and makes it better or worse.

    python -m penstock.chaos.s3_proxy --upstream http://127.0.0.1:5000 --port 0 --mode lost-ack

It prints the port it listens on, then one line per request it answers. All modes but
`racy` let one changing request through at a time, which makes even an endpoint atomic that
checks first and acts later. Each fault is a function from a request to its answer; None
hangs up without one. Signatures are passed on as they are, so an endpoint that checks them
refuses what a mode has altered. A client that is killed in the middle, or an endpoint that is
away, costs its own connection and no other.
"""

import argparse
import http.client
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import TypeAlias
from urllib.parse import urlsplit

from penstock.clock import Clock, SystemClock

__all__ = [
    "MODES",
    "Answer",
    "Break",
    "FirstOnly",
    "Mode",
    "Racy",
    "Request",
    "Tell",
    "Upstream",
    "always_200",
    "applied_500",
    "conflict_409",
    "cut_errors",
    "ignore_if_match",
    "ignore_if_match_when_absent",
    "listen",
    "lost_ack",
    "made_up",
    "main",
    "page",
    "proxy",
    "serialise",
]

RACE_WINDOW_S = 0.005
UPSTREAM_TIMEOUT_S = 60
WAITING_MAX = 128
"""How many connections may wait to be accepted: a job's processes all come at once."""

_RESET = struct.pack("ii", 1, 0)
_CONDITIONS = ("if-match", "if-none-match")
_HOP_BY_HOP = ("connection", "expect", "keep-alive", "transfer-encoding")


@dataclass(frozen=True, slots=True)
class Request:
    """One request, read whole."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    def header(self, name: str) -> str | None:
        """The value of a header, however it is spelt."""
        return {key.lower(): value for key, value in self.headers.items()}.get(name)

    @property
    def is_read(self) -> bool:
        """Whether this changes nothing, wherever it ends up."""
        return self.method in ("GET", "HEAD")

    @property
    def is_conditional(self) -> bool:
        """Whether this is a write that depends on the object's version."""
        return self.method == "PUT" and any(map(self.header, _CONDITIONS))

    def unconditional(self) -> "Request":
        """The same, whatever the version."""
        kept = {k: v for k, v in self.headers.items() if k.lower() not in _CONDITIONS}
        return replace(self, headers=kept)


class Break(Enum):
    """How a connection ends in the middle of an answer's body."""

    CLOSED = "closed, as if all had been said"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    ends: Break | None = None
    """How the connection ends after half of the body, whose whole length was promised; None: all
    of it is sent."""

    def header(self, name: str) -> str | None:
        """The value of a header, however it is spelt."""
        return {key.lower(): value for key, value in self.headers.items()}.get(name)


Upstream: TypeAlias = Callable[[Request], Answer]
Mode: TypeAlias = Callable[[Request, Upstream], Answer | None]
Tell: TypeAlias = Callable[[str], None]
"""Is told of every request and what it is answered, before whoever asked is."""


def serialise(request: Request, upstream: Upstream) -> Answer:
    """Change nothing: one write at a time is all that moto lacks."""
    return upstream(request)


def ignore_if_match(request: Request, upstream: Upstream) -> Answer:
    """An endpoint older than conditional writes."""
    return upstream(request.unconditional())


def ignore_if_match_when_absent(request: Request, upstream: Upstream) -> Answer:
    """An endpoint that creates the object it was told to replace."""
    if request.header("if-match") and _version(request, upstream) is None:
        return upstream(request.unconditional())
    return upstream(request)


def always_200(request: Request, upstream: Upstream) -> Answer:
    """An endpoint or gateway that calls a refusal a success."""
    answer = upstream(request)
    if request.method == "PUT" and answer.status in (404, 412):
        return Answer(200, {"ETag": '"00000000000000000000000000000000"'}, b"")
    return answer


def lost_ack(request: Request, upstream: Upstream) -> Answer | None:
    """Do a conditional write, and hang up instead of saying so."""
    answer = upstream(request)
    return None if request.is_conditional else answer


def applied_500(request: Request, upstream: Upstream) -> Answer:
    """Do a conditional write, and claim to have failed."""
    answer = upstream(request)
    return made_up(500, "InternalError") if request.is_conditional else answer


def conflict_409(request: Request, upstream: Upstream) -> Answer:
    """Leave a conditional write undone because of another that may not happen either."""
    if request.is_conditional:
        return made_up(409, "ConditionalRequestConflict")
    return upstream(request)


def cut_errors(request: Request, upstream: Upstream) -> Answer:
    """Cut every error off in the middle of its body."""
    answer = upstream(request)
    if answer.status >= 400 and answer.body and request.method != "HEAD":
        return replace(answer, ends=Break.CLOSED)
    return answer


@dataclass(frozen=True, slots=True)
class Racy:
    """An endpoint that checks first and acts later, with time for another between the two."""

    clock: Clock

    def __call__(self, request: Request, upstream: Upstream) -> Answer:
        """Compare, wait, write."""
        if not request.is_conditional:
            return upstream(request)
        version = _version(request, upstream)
        expected = request.header("if-match")
        self.clock.sleep(RACE_WINDOW_S)
        if version != expected:
            return made_up(412, "PreconditionFailed")
        return upstream(request.unconditional())


class FirstOnly:
    """Another mode for the first conditional writes, and none after them."""

    def __init__(self, mode: Mode, times: int) -> None:
        self._mode = mode
        self._times = times
        self._seen = count(1)

    def __call__(self, request: Request, upstream: Upstream) -> Answer | None:
        """Fault while there are faults left."""
        if request.is_conditional and next(self._seen) <= self._times:
            return self._mode(request, upstream)
        return upstream(request)


MODES: Mapping[str, Mode] = {
    "serialise": serialise,
    "racy": Racy(SystemClock()),
    "ignore-if-match": ignore_if_match,
    "ignore-if-match-when-absent": ignore_if_match_when_absent,
    "always-200": always_200,
    "lost-ack": lost_ack,
    "applied-500": applied_500,
    "conflict-409": conflict_409,
    "cut-errors": cut_errors,
}


_PRINTED: Tell = partial(print, flush=True)


def proxy(upstream: str, port: int, mode: Mode, tell: Tell = _PRINTED) -> ThreadingHTTPServer:
    """A server that answers as `mode` does, ready for `serve_forever`."""
    answer = mode if isinstance(mode, Racy) else _one_at_a_time(mode)
    return listen(upstream, port, answer, tell)


def listen(upstream: str, port: int, mode: Mode, tell: Tell) -> ThreadingHTTPServer:
    """The same for a mode that is to be asked by many at once, and serialises what it must."""

    class Handler(_Handler):
        endpoint = urlsplit(upstream).netloc
        answer = staticmethod(mode)
        told = staticmethod(tell)

    return _Server(("127.0.0.1", port), Handler)


def _one_at_a_time(mode: Mode) -> Mode:
    """The same mode, with every changing request let through by itself."""
    lock = threading.Lock()

    def answer(request: Request, upstream: Upstream) -> Answer | None:
        if request.is_read:
            return mode(request, upstream)
        with lock:
            return mode(request, upstream)

    return answer


class _Server(ThreadingHTTPServer):
    """Goes on whatever becomes of a connection."""

    request_queue_size = WAITING_MAX

    def handle_error(self, request: object, client_address: object) -> None:
        """Either end may go away at any moment: that is what this is for."""
        if not isinstance(sys.exception(), OSError | http.client.HTTPException):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    """One client's connection: each request is read whole, answered by the mode, written."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    endpoint: str
    answer: Callable[[Request, Upstream], Answer | None]
    told: Callable[[str], None]

    def do_GET(self) -> None:
        """Any method is passed on alike."""
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if len(body) < length:  # the client is gone: nobody asked for half of it
            self.close_connection = True
            return
        request = Request(self.command, self.path, dict(self.headers.items()), body)
        answer = self.answer(request, self._forward)
        # First: whoever has the answer may look at once.
        self.told(f"{self.command} {self.path} {answer.status if answer else 'hung-up'}")
        if answer is None:
            self.close_connection = True
        else:
            self._send(answer)

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815

    def _forward(self, request: Request) -> Answer:
        connection = http.client.HTTPConnection(self.endpoint, timeout=UPSTREAM_TIMEOUT_S)
        try:
            connection.request(request.method, request.path, request.body, _kept(request.headers))
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def _send(self, answer: Answer) -> None:
        """Write it with the one length that is true; that of a HEAD is the endpoint's."""
        self.send_response_only(answer.status)
        for name, value in _kept(answer.headers).items():
            if name.lower() != "content-length":
                self.send_header(name, value)
        is_head = self.command == "HEAD"
        length = answer.header("content-length") if is_head else str(len(answer.body))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        if answer.ends is not None:
            self.wfile.write(answer.body[: len(answer.body) // 2])
            self._break(answer.ends)
        elif not is_head:
            self.wfile.write(answer.body)

    def _break(self, how: Break) -> None:
        """End the connection. A reset must not be announced by an orderly close, as the server
        does: so this takes its socket away."""
        self.close_connection = True
        if how is Break.RESET:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            os.close(self.connection.detach())

    def log_message(self, format: str, *args: object) -> None:
        """Requests are reported by `do_GET`."""


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}


def _version(request: Request, upstream: Upstream) -> str | None:
    """The object's ETag now, or None."""
    asked = request.unconditional().headers.items()
    bare = {name: value for name, value in asked if not name.lower().startswith("content-")}
    answer = upstream(Request("HEAD", request.path, bare, b""))
    return answer.header("etag") if answer.status == 200 else None


def made_up(status: int, code: str) -> Answer:
    """An error as S3 tells it, which no endpoint has sent."""
    text = f"<Error><Code>{code}</Code><Message>made up by the proxy</Message></Error>"
    return Answer(status, {"Content-Type": "application/xml"}, text.encode())


def page(status: int) -> Answer:
    """An answer as a proxy or a load balancer gives it in the endpoint's place."""
    text = f"<html><head><title>{status}</title></head><body><h1>{status}</h1></body></html>"
    return Answer(status, {"Content-Type": "text/html"}, text.encode())


def main() -> None:
    """Run until ended."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--upstream", required=True, help="http://host:port of the endpoint")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--mode", choices=MODES, default="serialise")
    parser.add_argument("--count", type=int, help="fault only the first COUNT conditional writes")
    given = parser.parse_args()
    mode = MODES[given.mode]
    if given.count is not None:
        mode = FirstOnly(mode, given.count)
    server = proxy(given.upstream, given.port, mode)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
