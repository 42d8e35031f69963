"""A schema registry: the part of its REST interface that clients use, over HTTP, in a thread.

    with registry.running() as found:
        SchemaRegistryClient({"url": found.url})

A schema gets one number, whatever subjects it is in. It can ask for a user and a password
(`lock`), say that it is overloaded (`fail`), and knows what it was asked (`asked`). A schema of
Protobuf is sent as a compiled descriptor to who asks for one, and else as the text it would be.
"""

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

AS_TEXT = 'syntax = "proto3"; // as it was written'


@dataclass
class Registry:
    """What it holds, and what it was asked."""

    port: int = 0
    schemas: list[dict[str, Any]] = field(default_factory=list)
    """By their numbers, of which the first is 1."""
    subjects: dict[str, list[int]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    password: str | None = None
    failing: int | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def lock(self, user: str, password: str) -> None:
        """From now on, let in only who says this."""
        self.password = base64.b64encode(f"{user}:{password}".encode()).decode()

    def fail(self, status: int | None) -> None:
        """From now on, answer with this alone; None: no more."""
        self.failing = status

    def answer(self, method: str, path: str, query: dict[str, Any], body: Any) -> tuple[int, Any]:
        """What to say to a request."""
        if found := re.fullmatch(r"/schemas/ids/(\d+)", path):
            return self._schema(int(found[1]), query)
        if found := re.fullmatch(r"/subjects/([^/]+)/versions/(\w+)", path):
            return self._version(unquote(found[1]), found[2], query)
        if found := re.fullmatch(r"/subjects/([^/]+)/versions", path):
            return self._registered(unquote(found[1]), body)
        if found := re.fullmatch(r"/subjects/([^/]+)", path):
            return self._looked_up(unquote(found[1]), body)
        return 404, {"error_code": 404, "message": f"HTTP 404 Not Found {method} {path}"}

    def _schema(self, number: int, query: dict[str, Any]) -> tuple[int, Any]:
        if not 1 <= number <= len(self.schemas):
            return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
        return 200, self._shown(number, query)

    def _version(self, subject: str, version: str, query: dict[str, Any]) -> tuple[int, Any]:
        numbers = self.subjects.get(subject, [])
        at = len(numbers) if version == "latest" else int(version)
        if not 1 <= at <= len(numbers):
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        shown = self._shown(numbers[at - 1], query)
        return 200, {"subject": subject, "version": at, "id": numbers[at - 1], **shown}

    def _registered(self, subject: str, body: Any) -> tuple[int, Any]:
        schema = _kept(body)
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        numbers = self.subjects.setdefault(subject, [])
        if number not in numbers:
            numbers.append(number)
        return 200, {"id": number, "version": numbers.index(number) + 1, **schema}

    def _looked_up(self, subject: str, body: Any) -> tuple[int, Any]:
        schema = _kept(body)
        if schema not in self.schemas:
            return 404, {"error_code": 40403, "message": "Schema not found"}
        number = self.schemas.index(schema) + 1
        at = self.subjects[subject].index(number) + 1
        return 200, {"subject": subject, "version": at, "id": number, **schema}

    def _shown(self, number: int, query: dict[str, Any]) -> dict[str, Any]:
        schema = self.schemas[number - 1]
        if schema["schemaType"] == "PROTOBUF" and query.get("format") != ["serialized"]:
            return {**schema, "schema": AS_TEXT}
        return schema


def _kept(body: Any) -> dict[str, Any]:
    return {
        "schema": body["schema"],
        "schemaType": body.get("schemaType", "AVRO"),
        "references": body.get("references", []),
    }


@contextmanager
def running() -> Iterator[Registry]:
    """One that is empty, until the block ends."""
    found = Registry()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(found))
    found.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(registry: Registry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._respond(None)

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            self._respond(json.loads(self.rfile.read(length)))

        def _respond(self, body: Any) -> None:
            parts = urlsplit(self.path)
            registry.asked.append(f"{self.command} {self.path}")
            status, said = self._barred() or registry.answer(
                self.command, parts.path, parse_qs(parts.query), body
            )
            text = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def _barred(self) -> tuple[int, Any] | None:
            if registry.failing is not None:
                return registry.failing, {"error_code": registry.failing, "message": "not now"}
            given = self.headers.get("Authorization", "")
            if registry.password is not None and given != f"Basic {registry.password}":
                return 401, {"error_code": 401, "message": f"Unauthorized: {given}"}
            return None

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler
