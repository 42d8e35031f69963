"""An S3 endpoint that answers what it is told to, for errors no server gives on demand."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.servers import Endpoint

SECRET = "SECRET-THE-ENDPOINT-SENT"


@dataclass(frozen=True)
class Reply:
    """One answer. With a code it is an S3 error, with a quotation no message may repeat."""

    status: int
    code: str = ""
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    """What is claimed; more than the body has cuts the answer short."""

    def content(self) -> bytes:
        if not self.code:
            return self.body
        message = f"<Message>{SECRET}</Message><StringToSign>{SECRET}</StringToSign>"
        return f"<Error><Code>{self.code}</Code>{message}</Error>".encode()


@dataclass
class Stub:
    """The replies still to give, the last one for ever, and the requests seen."""

    endpoint: Endpoint
    replies: list[Reply]
    seen: list[str] = field(default_factory=list)

    def next(self, request: str) -> Reply:
        self.seen.append(request)
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


@contextmanager
def s3_stub(*replies: Reply) -> Iterator[Stub]:
    """A stub in this process, on a port of its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.stub = Stub(  # type: ignore[attr-defined]
        Endpoint(f"http://127.0.0.1:{server.server_port}", Path("/dev/null")), list(replies)
    )
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.stub  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # or else boto3 waits a second for "100 Continue"

    def do_GET(self) -> None:
        self.close_connection = True  # ends an answer that claims to be longer than it is
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        reply = self.server.stub.next(self.command)  # type: ignore[attr-defined]
        content = reply.content()
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        length = len(content) if reply.length is None else reply.length
        self.send_header("Content-Length", str(length))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
