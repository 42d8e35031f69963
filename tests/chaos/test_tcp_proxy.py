"""The proxy that cuts lines: what passes, what is lost, and what is counted."""

import socket
import socketserver
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest

from penstock.chaos.tcp_proxy import Answers, Away, Requests, TcpProxy


class Echo(socketserver.BaseRequestHandler):
    """Answers every line with itself, and remembers it."""

    heard: ClassVar[list[bytes]] = []

    def handle(self) -> None:
        while line := self.request.recv(1000):
            Echo.heard.append(line)
            self.request.sendall(line)


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


@pytest.fixture
def proxy() -> Iterator[TcpProxy]:
    Echo.heard = []
    with Server(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with TcpProxy(server.server_address[1]) as made:
            yield made
        server.shutdown()


def said(proxy: TcpProxy, *lines: bytes) -> list[bytes]:
    """What comes back, as far as the line holds."""
    found: list[bytes] = []
    with socket.create_connection(("127.0.0.1", proxy.port)) as line:
        try:
            for each in lines:
                line.sendall(each)
                found.append(line.recv(1000))
        except OSError:
            pass
    return [each for each in found if each]


def test_bytes_pass_as_they_are(proxy: TcpProxy) -> None:
    """Nobody notices a proxy that is not armed."""
    assert said(proxy, b"one", b"two") == [b"one", b"two"]
    assert (proxy.cuts, Echo.heard) == (0, [b"one", b"two"])


def test_a_lost_request_never_arrives(proxy: TcpProxy) -> None:
    """And the next connection passes."""
    proxy.arm(Requests(2))

    assert said(proxy, b"one", b"two", b"three") == [b"one"]
    assert said(proxy, b"four") == [b"four"]
    assert (proxy.cuts, Echo.heard) == (1, [b"one", b"four"])


def test_a_lost_answer_has_been_given(proxy: TcpProxy) -> None:
    """The server has done it, and nobody knows."""
    proxy.arm(Answers(containing=b"COMMIT"))

    assert said(proxy, b"BEGIN", b"COMMIT", b"more") == [b"BEGIN"]
    assert said(proxy, b"COMMIT") == []
    assert (proxy.cuts, Echo.heard) == (2, [b"BEGIN", b"COMMIT", b"COMMIT"])


def test_the_answer_of_one_number_is_lost(proxy: TcpProxy) -> None:
    """To try every point in turn."""
    proxy.arm(Answers(number=2))

    assert said(proxy, b"a", b"b") == [b"a"]
    assert said(proxy, b"c") == [b"c"]
    assert proxy.cuts == 1


def test_a_server_that_is_away_answers_nobody(proxy: TcpProxy) -> None:
    """Until it is back."""
    proxy.arm(Away())
    assert said(proxy, b"one") == []

    proxy.arm(None)
    assert said(proxy, b"one") == [b"one"]
