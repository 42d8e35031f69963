"""Requests of Kafka's clients as they pass a `TcpProxy`: to know them, stop them, or keep one."""

import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from penstock.chaos.tcp_proxy import Way

SIZE_MAX = 1 << 24


class Api(IntEnum):
    """What a request asks for."""

    PRODUCE = 0
    OFFSET_FETCH = 9
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS = 24
    ADD_OFFSETS = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28


def requests_in(piece: bytes) -> Iterator[int]:
    """What the requests of a piece ask for. Requests here are small, and begin where pieces do."""
    at = 0
    while at + 6 <= len(piece):
        size, api = struct.unpack_from(">ih", piece, at)
        if not 0 < size < SIZE_MAX:
            return
        yield api
        at += 4 + size


@dataclass
class Before:
    """Does something before the n-th request of a kind passes, or before every one; the line
    itself holds."""

    api: Api
    act: Callable[[], object]
    number: int | None = 1
    seen: int = 0

    def __call__(self, way: Way, piece: bytes) -> bool:
        if way is Way.TO_SERVER and self.api in requests_in(piece):
            self.seen += 1
            if self.number in (None, self.seen):
                self.act()
        return False


@dataclass
class Severed:
    """From the first request of a kind on nothing passes: not that request either, or, if it was
    `heard`, just no answer to it."""

    api: Api
    heard: bool = False
    is_cut: bool = False

    def __call__(self, way: Way, piece: bytes) -> bool:
        if self.is_cut:
            return True
        self.is_cut = way is Way.TO_SERVER and self.api in requests_in(piece)
        return self.is_cut and not self.heard


@dataclass
class Kept:
    """Cuts the line before the first request of a kind, and keeps that request: it is still on its
    way."""

    api: Api
    request: bytes = b""

    def __call__(self, way: Way, piece: bytes) -> bool:
        if way is Way.TO_SERVER and not self.request and self.api in requests_in(piece):
            self.request = piece
            return True
        return False

    def arrive(self, port: int) -> bytes:
        """Let it get there after all; what it is answered."""
        with socket.create_connection(("127.0.0.1", port)) as line:
            line.sendall(self.request)
            return line.recv(1 << 16)


@dataclass
class Copied(Kept):
    """Lets everything pass, and keeps a copy of the last request of a kind."""

    def __call__(self, way: Way, piece: bytes) -> bool:
        if way is Way.TO_SERVER and self.api in requests_in(piece):
            self.request = piece
        return False
