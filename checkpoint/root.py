"""A root, as a process works on it: the protocols of this room, performed on a real store.

`Root` looks; `Session` leads. Everything a session does carries its tenure, and once the tenure
is over every call says so.
"""

import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.collector import Collected, Retention, collect
from penstock.checkpoint.fsck import Findings, check
from penstock.checkpoint.head import HEAD_REGISTER, Head
from penstock.checkpoint.leader import Leader, lead
from penstock.checkpoint.manifest import Draft, Manifest
from penstock.checkpoint.perform import Handlers, perform, store_handlers
from penstock.checkpoint.pins import Pin, Pins, list_pins, pin, unpin
from penstock.checkpoint.recovery import Lineage, PartitionName, recover
from penstock.checkpoint.rewind import Target, rewind
from penstock.checkpoint.signed_store import open_root_store
from penstock.checkpoint.store import ObjectStore
from penstock.clock import Chance, Clock, SystemChance, SystemClock
from penstock.effects import Wait
from penstock.errors import Gone, Invalid, PenstockError
from penstock.fencing import Tenure, heartbeats, is_led, release, stand_by
from penstock.ids import Epoch, Holder, JobName
from penstock.points import Point

__all__ = ["Lease", "Root", "Session"]

LOOKS_MAX = 10
"""How often a reader that fell behind a running job looks at HEAD again."""


@dataclass(frozen=True, slots=True)
class Lease:
    """When a leader counts as silent. Decides when to try, never who is right."""

    length_s: float = 15.0
    beat_every_s: float = 3.0
    poll_every_s: float = 1.0


class Root:
    """One root on one store."""

    def __init__(
        self, store: ObjectStore, clock: Clock | None = None, chance: Chance | None = None
    ) -> None:
        self.store = store
        self.clock = clock or SystemClock()
        self.chance = chance or SystemChance()
        self.handlers: Handlers = store_handlers(store, self.clock)

    @classmethod
    def open(cls, url: str) -> Self:
        """The root at a URL, signed if this process has a key. Nothing is asked or changed before
        the first call."""
        return cls(open_root_store(url))

    def head(self) -> Head:
        """HEAD now."""
        return perform(Chain().head(Point.READ_HEAD), self.handlers).document

    def history(self) -> Iterator[Manifest]:
        """The committed epochs, newest first, as far back as they are promised."""
        chain, manifest = self._newest()
        floor = self.head().floor
        while manifest is not None:
            yield manifest
            if manifest.parent is None or manifest.epoch <= floor:
                return
            epoch = Epoch(manifest.epoch - 1)
            try:
                reading = chain.manifest(manifest.parent, epoch, Point.READ_MANIFEST)
                manifest = perform(reading, self.handlers)
            except Gone:
                return  # given up while we were reading: history is shorter now

    def newest(self) -> Manifest | None:
        """The manifest of the last committed epoch, or None before the first."""
        return self._newest()[1]

    def _newest(self) -> tuple[Chain, Manifest | None]:
        """The same, and the chain that reads on from there."""
        for remaining in reversed(range(LOOKS_MAX)):
            chain = Chain()
            head = perform(chain.head(Point.READ_HEAD), self.handlers).document
            if head.manifest is None:
                return chain, None
            try:
                reading = chain.manifest(head.manifest, head.epoch, Point.READ_MANIFEST)
                return chain, perform(reading, self.handlers)
            except Gone:  # the job went on and collected between our two looks
                if not remaining:
                    raise
        raise AssertionError("unreachable: the last look returns or raises")

    def lineages(self) -> Mapping[PartitionName, Lineage]:
        """What rebuilds each partition's state as of HEAD."""
        chain, newest = self._newest()
        return perform(recover(chain, newest), self.handlers)

    def check(self) -> Findings:
        """Verify everything that is retained."""
        return perform(check(Chain()), self.handlers)

    def pin(self, name: str, epoch: Epoch | None = None) -> Pin:
        """Keep an epoch, by default the last, until it is unpinned."""
        return perform(pin(Chain(), name, self.chance.unique(), epoch), self.handlers)

    def unpin(self, name: str) -> None:
        """Let go of a pinned epoch."""
        perform(unpin(name), self.handlers)

    def pins(self) -> list[Pin]:
        """Every pin that can be read."""
        return self.all_pins().pins

    def all_pins(self) -> Pins:
        """Every pin there is, and what else is in their place."""
        return perform(list_pins(Point.READ_HEAD, Point.READ_HEAD), self.handlers)

    def wait_for_turn(self, lease: Lease) -> None:
        """Return when nobody leads, or the leader has been silent for a lease."""
        waiting = stand_by(HEAD_REGISTER, self.clock, lease.length_s, lease.poll_every_s)
        perform(waiting, self.handlers)

    def is_led(self, lease: Lease) -> Holder | None:
        """Who leads and lives, or None. May take a lease, if a leader shows no sign of either."""
        looking = is_led(HEAD_REGISTER, self.clock, lease.length_s, lease.poll_every_s, _is_gone)
        return perform(looking, self.handlers)

    def lead(self, job: str, holder: str | None = None) -> "Session":
        """Take the root over, whoever led it, and lead. A unique ending is added to `holder`."""
        name = self.new_holder(holder)
        leader = perform(lead(JobName(job), name, self.clock, self.chance), self.handlers)
        return Session(self, leader)

    def rewind(self, job: str, target: Target) -> Head:
        """Go back to a retained or pinned epoch, whoever leads; the job goes on from there with
        its next start."""
        going = rewind(JobName(job), self.new_holder(), target, self.chance)
        head = perform(going, self.handlers)
        self.leave(head)
        return head

    def leave(self, head: Head) -> None:
        """Tell the next leader that whoever made this HEAD is done. Best effort."""
        with suppress(PenstockError):
            perform(release(Tenure(head.job, head.token, head.holder)), self.handlers)

    def new_holder(self, name: str | None = None) -> Holder:
        """A name for a process that leads, with a unique ending."""
        return Holder(f"{name or _host_and_process()}-{self.chance.unique()[:12]}")


class Session:
    """One tenure on a root. Use it as a context: leaving it releases the job."""

    def __init__(self, root: Root, leader: Leader) -> None:
        self._root = root
        self._leader = leader
        self._stop = threading.Event()
        self._beating: threading.Thread | None = None
        self._notes: dict[str, Any] = {}

    @property
    def tenure(self) -> Tenure:
        """What everything that writes is handed."""
        return self._leader.tenure

    @property
    def head(self) -> Head:
        """HEAD as this session last saw it."""
        return self._leader.head

    @property
    def manifest(self) -> Manifest | None:
        """The last committed manifest, or None before the first."""
        return self._leader.parent

    def commit(self, draft: Draft) -> Manifest:
        """Make one epoch real."""
        return perform(self._leader.commit(draft), self._root.handlers)

    def collect(self, retention: Retention, needed: Mapping[str, Epoch] | None = None) -> Collected:
        """Remove what is out of reach, and raise the floor with the next commit."""
        self.tenure.check()
        done = perform(collect(Chain(self.tenure), retention, needed), self._root.handlers)
        self._leader.raise_floor(done.next_floor)
        return done

    def beat(self, every_s: float) -> None:
        """Show signs of life from a thread of its own until this session ends."""
        steps = heartbeats(HEAD_REGISTER, self.tenure, every_s, self._stop.is_set, self._notes)
        handlers = {**self._root.handlers, Wait: lambda wait: self._stop.wait(wait.seconds)}
        self._beating = threading.Thread(
            target=perform, args=(steps, handlers), name="penstock-heartbeat", daemon=True
        )
        self._beating.start()

    def note(self, name: str, fact: Any) -> None:
        """Let the signs of life say something, from the next one on, for whoever looks."""
        self._notes[name] = fact

    def release(self) -> None:
        """Stop beating, and tell the next leader that it need not wait. Best effort: a store
        that is out of reach costs the next leader a lease, nothing else."""
        self._stop.set()
        if self._beating is not None:
            self._beating.join()
        if not self.tenure.over:
            with suppress(PenstockError):
                perform(release(self.tenure, self._notes), self._root.handlers)
        self.tenure.end(Invalid(f"job {self.tenure.job}", "was released", "lead it again first"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def _host_and_process() -> str:
    """A name that a person can place."""
    return f"{socket.gethostname()}-{os.getpid()}"


def _is_gone(holder: Holder) -> bool:
    """Whether that was a process of this host which certainly is no more."""
    host, _, ending = holder.rpartition("-")[0].rpartition("-")
    if host != socket.gethostname() or not (ending.isascii() and ending.isdigit()):
        return False
    try:
        os.kill(int(ending), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # somebody else's, or no number of a process
        return False
    return False
