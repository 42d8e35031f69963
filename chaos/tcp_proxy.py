"""A proxy between a client and any server, which cuts the line at a moment of one's choosing.

A cut before a request is passed on is a request that never arrived; a cut before an answer is
passed back is the worse one: the server has done what it was asked, and nobody knows. After a cut
new connections pass as before, so that what comes next shows what the client makes of it.
"""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Self

__all__ = ["Answers", "Away", "Cut", "Requests", "TcpProxy", "Way"]

CHUNK_BYTES = 1 << 16
ACCEPT_S = 0.2
_RESET = struct.pack("ii", 1, 0)


class Way(Enum):
    """Where bytes go."""

    TO_SERVER = "to the server"
    TO_CLIENT = "to the client"


Cut = Callable[[Way, bytes], bool]
"""Whether the line is cut instead of passing these bytes on. Asked for every piece, in order."""


@dataclass(slots=True)
class Requests:
    """Cuts before the n-th piece that a client sends, counted from 1, once."""

    number: int
    seen: int = 0

    def __call__(self, way: Way, piece: bytes) -> bool:
        """Whether to cut now."""
        del piece
        self.seen += way is Way.TO_SERVER
        return way is Way.TO_SERVER and self.seen == self.number


@dataclass(slots=True)
class Answers:
    """Cuts before answers that contain some bytes: every one of them, or the n-th alone."""

    containing: bytes = b""
    number: int | None = None
    seen: int = 0

    def __call__(self, way: Way, piece: bytes) -> bool:
        """Whether to cut now."""
        found = way is Way.TO_CLIENT and self.containing in piece
        self.seen += found
        return found and self.number in (None, self.seen)


class Away:
    """Cuts always: the server cannot be reached."""

    def __call__(self, way: Way, piece: bytes) -> bool:
        """Whether to cut now."""
        del way, piece
        return True


@dataclass(slots=True)
class _Line:
    """One client's connection, and the one to the server behind it."""

    client: socket.socket
    server: socket.socket
    lock: threading.Lock = field(default_factory=threading.Lock)

    def reset(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            with suppress(OSError):
                end.close()


class TcpProxy:
    """Use it as a context; `port` is where it listens."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(ACCEPT_S)
        self.port: int = self._listener.getsockname()[1]
        self.cuts = 0
        """How often the line was cut."""
        self._cut: Cut | None = None
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._lines: list[_Line] = []

    def arm(self, cut: Cut | None) -> None:
        """Cut when `cut` says so, from now on; None: never."""
        with self._lock:
            self._cut, self.cuts = cut, 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True, name="penstock-proxy").start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._listener.close()
        for line in self._lines:
            line.reset()

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            try:
                server = socket.create_connection(self._server)
            except OSError:
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line = _Line(client, server)
            self._lines.append(line)
            for way in Way:
                threading.Thread(
                    target=self._pump, args=(line, way), daemon=True, name=f"penstock-{way.name}"
                ).start()

    def _pump(self, line: _Line, way: Way) -> None:
        ends = (line.client, line.server)
        source, target = ends if way is Way.TO_SERVER else ends[::-1]
        try:
            while piece := source.recv(CHUNK_BYTES):
                if self._is_cut(way, piece):
                    break
                target.sendall(piece)
        except OSError:
            pass
        line.reset()

    def _is_cut(self, way: Way, piece: bytes) -> bool:
        with self._lock:
            found = self._cut is not None and self._cut(way, piece)
            self.cuts += found
            return found
