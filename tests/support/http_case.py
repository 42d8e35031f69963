"""A small real HTTP server that keeps rows, honours idempotency keys or not, and makes trouble."""

import json
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.chaos.tcp_proxy import TcpProxy
from penstock.clock import SystemChance
from penstock.sinks.http_sink import Http
from tests.support.sink_cases import Row, SinkCase


@dataclass
class Shelf:
    """What a server was sent, and what it makes of it."""

    honours_keys: bool = True
    answers: Callable[[int], tuple[int, dict[str, str]] | None] = lambda number: (200, {})
    """By the number of the request, from 1: status and headers, after the rows were taken; None:
    hang up without a word."""
    says: str | None = None
    """With every answer; None: a few words with every refusal."""
    rows: list[Row] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    """Of every request, also of those that were taken already."""
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, key: str, body: Any, headers: dict[str, str]) -> int:
        """Keep the rows of one request; its number."""
        with self.lock:
            if not (self.honours_keys and key in self.keys):
                self.rows += body.get("rows", [body])
            self.keys.append(key)
            self.headers.append(headers)
            self.bodies.append(body)
            return len(self.keys)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    shelf: Shelf


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        number = self.server.shelf.take(
            self.headers["Idempotency-Key"], body, dict(self.headers.items())
        )
        self.server.shelf.paths.append(self.path)
        answer = self.server.shelf.answers(number)
        if answer is None:
            self.close_connection = True
            return
        status, headers = answer
        usual = "no row for you" if status >= 400 else ""
        says = self.server.shelf.says
        said = (usual if says is None else says).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(said))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def http_server(shelf: Shelf) -> Iterator[int]:
    """The port of a server with this shelf."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.shelf = shelf
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


def spelt(value: Any) -> Any:
    """A value as JSON has it, worked out apart from the sink."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return str(value) if isinstance(value, Decimal) else value


@contextmanager
def http_case(request: pytest.FixtureRequest, folder: Path) -> Iterator[SinkCase]:
    """A server that honours keys."""
    shelf = Shelf()
    name = f"people-{SystemChance().unique()[:8]}"
    with http_server(shelf) as port:

        def make(columns: pa.Schema, deletes: str | None, proxy: TcpProxy | None) -> Http:
            return Http(name, f"http://127.0.0.1:{proxy.port if proxy else port}/in")

        yield SinkCase(
            make,
            lambda columns: list(shelf.rows),
            server_port=port,
            shown=lambda row: {name: spelt(value) for name, value in row.items()},
        )
