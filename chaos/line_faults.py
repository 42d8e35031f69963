"""Cuts in the lines between a job and the servers of its sinks, made from outside the job.

Every sink with an address (`penstock.chaos.rerouting`) gets a proxy in the process that conducts
the run; the job knows only its port. A fault is armed, and waits for bytes that it can strike: so
whether it came about is known, and a line that nobody used is not taken for one that was survived.
A sink has one fault at a time; the next one takes the place of the last.
"""

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from penstock.chaos.rerouting import Address
from penstock.chaos.tcp_proxy import Answers, Away, Cut, Requests, TcpProxy, Way
from penstock.errors import Invalid

__all__ = ["LineFault", "Lines"]

COMMITTED = b"COMMIT\x00"
"""How a Postgres says that a transaction is committed, on a line that is not encrypted."""


class LineFault:
    """A fault of one line: armed until it is withdrawn, or another takes its place."""

    def __init__(self, sink: str, what: str, cut: Cut) -> None:
        self._sink = sink
        self._what = what
        self._cut = cut
        self._settled = threading.Event()
        self._is_over = False
        self.cuts = 0
        """How often it has cut the line."""

    def __call__(self, way: Way, piece: bytes) -> bool:
        """Whether to cut now; the proxy asks, one piece at a time."""
        is_cut = not self._is_over and self._cut(way, piece)
        self.cuts += is_cut
        if is_cut:
            self._settled.set()
        return is_cut

    def wait(self, timeout_s: float) -> bool:
        """Wait until it has cut a line, or no longer will; whether it has."""
        self._settled.wait(timeout_s)
        return self.cuts > 0

    @property
    def is_settled(self) -> bool:
        """Whether it has cut a line, or no longer will."""
        return self._settled.is_set()

    def withdraw(self) -> None:
        """From now on it cuts nothing."""
        self._is_over = True
        self._settled.set()

    @property
    def text(self) -> str:
        """What it did, for a person."""
        if not self.cuts:
            return f"the line to sink {self._sink} was not {self._what}: nothing came by"
        return f"the line to sink {self._sink} was {self._what}, {_times(self.cuts)}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


class Lines:
    """The lines to some servers, by the names of the sinks. Use it as a context."""

    def __init__(self, addresses: Mapping[str, Address]) -> None:
        self._addresses = dict(addresses)
        self._proxies: dict[str, TcpProxy] = {}
        self._armed: dict[str, LineFault] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for sink, (host, port) in self._addresses.items():
                self._proxies[sink] = stack.enter_context(TcpProxy(port, host))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for fault in self._armed.values():
            fault.withdraw()
        self._stack.close()

    @property
    def ports(self) -> Mapping[str, int]:
        """Where each sink is to go instead, on this machine."""
        return {sink: proxy.port for sink, proxy in self._proxies.items()}

    def cut_before(self, sink: str, piece: int = 1) -> LineFault:
        """Cut before the next piece that goes to the server, or before a later one: the server
        never hears it."""
        return self._arm(sink, "cut before a request", Requests(piece))

    def cut_after(self, sink: str) -> LineFault:
        """Cut before the next piece that comes back: the server has done what it was asked."""
        return self._arm(sink, "cut before an answer", Answers(number=1))

    def cut_after_commit(self, sink: str) -> LineFault:
        """Cut before a Postgres says that it has committed. On an encrypted line nobody sees it say
        so, and this never comes about."""
        cut = Answers(containing=COMMITTED, number=1)
        return self._arm(sink, "cut before the answer to COMMIT", cut)

    def away(self, sink: str, seconds: float) -> LineFault:
        """Let nothing pass from now on, for so long."""
        fault = self._arm(sink, f"away for {seconds:g} s", Away())
        timer = threading.Timer(seconds, fault.withdraw)
        timer.daemon = True
        timer.start()
        self._stack.callback(timer.cancel)
        return fault

    def _arm(self, sink: str, what: str, cut: Cut) -> LineFault:
        if sink not in self._proxies:
            known = ", ".join(self._proxies) or "none"
            raise Invalid(f"sink {sink}", "has no line here", f"use one of: {known}")
        fault = LineFault(sink, what, cut)
        self._proxies[sink].arm(fault)
        if sink in self._armed:
            self._armed[sink].withdraw()
        self._armed[sink] = fault
        return fault
