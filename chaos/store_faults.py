"""A store that fails on command: a proxy before it, and faults that are armed one at a time.

Whoever conducts a chaos run arms a fault, and the next request that fits it suffers it; all others
pass as they are.

What is told is true. A fault counts when it has come about: a write that the store refused was
not applied, so nothing is hidden by losing its answer, and an answer without a body cannot be cut.
Such a request passes, and the fault waits for the next one.

Writes reach the store one at a time, because one that checks first and acts later is no store to
prove anything with. Nobody sleeps in that turn, so a slow request holds up no other. After `close`
no write is passed on any more, not even one that was on its way.
"""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from penstock.chaos.s3_proxy import Answer, Request, Upstream, listen
from penstock.chaos.store_fault_kinds import (
    ANSWERED,
    DUPLICATE_AFTER_S,
    LATE_AFTER_S,
    NOT_PASSED_ON,
    SLOW_S,
    Only,
    StoreFault,
    is_of_head,
)
from penstock.clock import Clock

__all__ = ["Armed", "Only", "StoreFault", "StoreFaults", "faulty_store"]

STOP_POLL_S = 0.05


class Armed:
    """One fault that waits for its requests, and what has come of it so far."""

    def __init__(self, fault: StoreFault, only: Only | None, times: int) -> None:
        self.fault = fault
        self.hits: list[str] = []
        """Each request that suffered it, in a sentence."""
        self._only = only
        self._times = times
        self._left = times
        self._lock = threading.Lock()
        self._done = threading.Event()

    def wait(self, timeout_s: float) -> bool:
        """Whether it has happened as often as it was to, after waiting for that so long."""
        return self._done.wait(timeout_s)

    def takes(self, request: Request) -> bool:
        """Whether this request is to suffer the fault. If so, somebody must say what came of it:
        `happened` or `missed`."""
        if not self.fault.fits(request) or not (self._only is None or self._only(request)):
            return False
        with self._lock:
            found = self._left > 0
            self._left -= found
            return found

    def happened(self, request: Request, more: str = "") -> None:
        """It came about."""
        path = urlsplit(request.path).path  # what is behind it may be a signature
        with self._lock:
            self.hits.append(f"{request.method} {path}: {self.fault.text}{more}")
            if len(self.hits) == self._times:
                self._done.set()

    def missed(self) -> None:
        """It could not come about: another request is to suffer it."""
        with self._lock:
            self._left += 1


class StoreFaults:
    """A mode of the proxy that does what it was armed to do, and otherwise nothing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._armed: tuple[Armed, ...] = ()
        self._arming = threading.Lock()
        self._writing = threading.Lock()
        self._heads: dict[str, tuple[Answer | None, Answer]] = {}
        """Of each HEAD that was swapped, the version before the last swap, and the last."""
        self._closed = False

    def arm(self, fault: StoreFault, only: Only | None = None, times: int = 1) -> Armed:
        """Let the next `times` requests that fit suffer this. What was armed first takes first."""
        armed = Armed(fault, only, times)
        with self._arming:
            self._armed = (*self._armed, armed)
        return armed

    def disarm(self) -> None:
        """What has not begun does not happen any more. A write that waits is still sent."""
        with self._arming:
            self._armed = ()

    def close(self) -> None:
        """Hang up on everybody from now on; writes that still wait are dropped."""
        self.disarm()
        with self._writing:  # whoever has the turn finishes
            self._closed = True

    def __call__(self, request: Request, upstream: Upstream) -> Answer | None:
        """The answer to one request; None hangs up."""
        armed = next((each for each in self._armed if each.takes(request)), None)
        if armed is None:
            return self._passed(request, upstream)
        if armed.fault in NOT_PASSED_ON:
            armed.happened(request)
            return NOT_PASSED_ON[armed.fault]
        if armed.fault is StoreFault.SLOW:
            armed.happened(request)
            return self._slowly(request, upstream)
        if armed.fault is StoreFault.LATE:
            armed.happened(request)
            self._later("late", LATE_AFTER_S, lambda: self._passed(request, upstream))
            return None
        return self._altered(armed, request, upstream)

    def _passed(self, request: Request, upstream: Upstream) -> Answer | None:
        """The store's own answer; None if this is closed, or the store is away."""
        try:
            if request.is_read:
                return None if self._closed else upstream(request)
            with self._writing:
                answer = None if self._closed else upstream(request)
                self._remember(request, answer)
                return answer
        except (OSError, http.client.HTTPException):
            return None

    def _remember(self, request: Request, answer: Answer | None) -> None:
        """Keep what a HEAD was before a swap, for whoever is to read it once more."""
        if answer is None or answer.status >= 300 or not is_of_head(request):
            return
        etag = {"ETag": answer.header("etag") or ""}
        before = self._heads.get(request.path, (None, None))[1]
        self._heads[request.path] = (before, Answer(200, etag, request.body))

    def _slowly(self, request: Request, upstream: Upstream) -> Answer | None:
        self._clock.sleep(SLOW_S / 2)
        answer = self._passed(request, upstream)
        self._clock.sleep(SLOW_S / 2)
        return answer

    def _altered(self, armed: Armed, request: Request, upstream: Upstream) -> Answer | None:
        """Pass it on, and do what is to be done to an answer that can bear it."""
        answer = self._passed(request, upstream)
        if answer is None or not _can_suffer(request, answer):
            armed.missed()
            return answer
        if armed.fault is StoreFault.DUPLICATED:
            self._send_again_later(armed, request, upstream)
            return answer
        if armed.fault is StoreFault.STALE:
            return self._as_it_was(armed, request, answer)
        armed.happened(request)
        return ANSWERED[armed.fault](answer)

    def _as_it_was(self, armed: Armed, request: Request, answer: Answer) -> Answer:
        """The version before, if there was one and it is another."""
        before, _ = self._heads.get(request.path, (None, None))
        if before is None or before.header("etag") == answer.header("etag"):
            armed.missed()
            return answer
        armed.happened(request)
        return before

    def _send_again_later(self, armed: Armed, request: Request, upstream: Upstream) -> None:
        def send_again() -> None:
            answer = self._passed(request, upstream)
            if answer is not None:
                armed.happened(request, f" and answered with {answer.status}")

        self._later("duplicate", DUPLICATE_AFTER_S, send_again)

    def _later(self, name: str, after_s: float, send: Callable[[], object]) -> None:
        """From a thread of its own: whoever sent it may be gone by then."""

        def wait_and_send() -> None:
            self._clock.sleep(after_s)
            send()

        threading.Thread(target=wait_and_send, daemon=True, name=f"penstock-{name}").start()


def _can_suffer(request: Request, answer: Answer) -> bool:
    """Whether a write was applied, or a read has found something."""
    return answer.status < 300 and (not request.is_read or bool(answer.body))


@contextmanager
def faulty_store(upstream_url: str, clock: Clock) -> Iterator[tuple[str, StoreFaults]]:
    """The URL of a proxy before the store at `upstream_url`, and the way to its faults."""
    faults = StoreFaults(clock)
    server = listen(upstream_url, 0, faults, _say_nothing)
    serving = threading.Thread(
        target=server.serve_forever, args=(STOP_POLL_S,), daemon=True, name="penstock-store-proxy"
    )
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", faults
    finally:
        faults.close()
        server.shutdown()
        serving.join()
        server.server_close()


def _say_nothing(line: str) -> None:
    del line
