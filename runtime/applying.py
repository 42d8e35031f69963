"""Bringing sinks outside the root up to HEAD, at the start and after every commit.

Tables need nothing: they are visible as far as HEAD says. Every other sink has a cursor of its own,
and is given what it lacks from what was staged; see `penstock.sinks.roll_forward`. All shards of
all sinks go forward at once. One that is away holds the job, and nothing else: what is committed
stays committed, the reason is told, and it catches up by itself when it is back.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.perform import Handlers, perform
from penstock.checkpoint.root import Root, Session
from penstock.checkpoint.store import ObjectStore
from penstock.clock import Clock
from penstock.errors import Fenced, PenstockError, Unavailable
from penstock.ids import Epoch, Key
from penstock.runtime.sink_errors import applying_explained, explained
from penstock.runtime.topology import SinkNode, Topology
from penstock.sinks.cursors import Apply, Cursor, ReadCursor
from penstock.sinks.protocol import AppliedSink, Target, Writer
from penstock.sinks.roll_forward import Shard, roll_forward

__all__ = ["Applier", "Listener", "check_targets", "open_sink", "shards_of"]

APPLIES_AT_ONCE = 8
"""Shards that are written to at a time, over all sinks."""

PAUSE_S, PAUSE_S_MAX = 0.5, 10.0
"""How long to leave a sink alone that is away: at first, and at most."""

log = logging.getLogger("penstock.run")


class Listener(Protocol):
    """Is told that sinks hold the job, and why. Returns soon, and never raises."""

    def held(self, sinks: Mapping[str, str]) -> None:
        """The sinks that are away now, and what each says; none: the job goes on."""


def shards_of(node: SinkNode, partitions: int) -> list[Shard]:
    """Every shard of a sink."""
    assert isinstance(node.sink, AppliedSink)
    count = node.sink.shards(partitions)
    return [Shard(node.name, number, count) for number in range(count)]


def open_sink(node: SinkNode, topology: Topology, store: ObjectStore) -> Writer:
    """A sink, connected and checked."""
    assert isinstance(node.sink, AppliedSink) and node.columns is not None
    target = Target(
        job=topology.job, columns=node.columns, partitions=topology.partitions, store=store
    )
    with explained(node.name, "when it was opened"):
        return node.sink.open(target)


def check_targets(topology: Topology, store: ObjectStore) -> None:
    """Raise if a sink cannot take what the job will give it. One that is away may be back later."""
    for node in topology.applied:
        with suppress(Unavailable):
            open_sink(node, topology, store).close()


@dataclass(slots=True)
class Applier:
    """The sinks of one job, under one tenure."""

    root: Root
    session: Session
    topology: Topology
    clock: Clock
    listener: Listener
    _writers: dict[str, Writer] = field(default_factory=dict)
    _reached: dict[Shard, Cursor | None] = field(default_factory=dict)
    _known: dict[Key, Manifest] = field(default_factory=dict)
    """Manifests that were read: every shard walks over the same few."""
    _away: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def roll_forward(self, stopped: Callable[[], bool]) -> None:
        """Apply every committed epoch that some shard lacks, however long a sink is away. Whoever
        has asked to stop need not wait for it: the next start goes on from the same place."""
        pause_s = PAUSE_S
        while away := self._tried():
            self._tell(away)
            if stopped():
                log.warning("stopping; what %s lack is applied at the next start", ", ".join(away))
                return
            self.clock.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
            self.session.tenure.check()
        self._tell({})

    def needed(self, manifest: Manifest) -> dict[str, Epoch]:
        """Per sink of the manifest, the oldest epoch that it has yet to take or, of a table, to
        list. One that the job has no more, such as a changelog that was given up, takes nothing:
        kept for it, no epoch would ever go. Coming back, it is refused by name."""
        known = {node.name for node in self.topology.sinks}
        found = {name: Epoch(manifest.epoch + 1) for name in manifest.sinks if name not in known}
        found |= {name: Epoch(index.epoch + 1) for name, index in manifest.tables.items()}
        found |= {name: Epoch(epoch + 1) for name, epoch in self.epochs().items()}
        return found

    def epochs(self) -> dict[str, int]:
        """Per sink, the last epoch that all of its shards have."""
        found = {}
        for node in self.topology.applied:
            cursors = [self._reached.get(s) for s in shards_of(node, self.topology.partitions)]
            found[node.name] = min(0 if each is None else each.epoch for each in cursors)
        return found

    def close(self) -> None:
        """Let go of every sink."""
        for name, writer in self._writers.items():
            try:
                with explained(name, "when it was closed"):
                    writer.close()
            except PenstockError as error:
                log.info("a sink did not close cleanly: %s", error)
        self._writers.clear()

    def _tried(self) -> dict[str, str]:
        """Give every shard what it lacks; the sinks that are away, and what they say."""
        shards = [
            (node, shard)
            for node in self.topology.applied
            for shard in shards_of(node, self.topology.partitions)
        ]
        if not shards:
            return {}
        self._know_head()
        with ThreadPoolExecutor(min(len(shards), APPLIES_AT_ONCE), "penstock-apply") as pool:
            failures = list(pool.map(lambda each: self._forward(*each), shards))
        worst = _worst(failure for failure in failures if failure is not None)
        if worst is not None and not isinstance(worst, Unavailable):
            raise worst
        return {
            shard.sink: str(failure)
            for (_, shard), failure in zip(shards, failures, strict=True)
            if failure is not None
        }

    def _know_head(self) -> None:
        """Begin with what was committed last, which is all that most shards lack."""
        self._known.clear()
        head, manifest = self.session.head, self.session.manifest
        if head.manifest is not None and manifest is not None:
            self._known[head.manifest.key] = manifest

    def _forward(self, node: SinkNode, shard: Shard) -> PenstockError | None:
        """Give one shard what it lacks, or say why not. All others are given theirs meanwhile."""
        tenure, head = self.session.tenure, self.session.head
        try:
            writer = self._writer(node)
            rolling = roll_forward(Chain(tenure, self._known), tenure, head, shard)
            self._reached[shard] = perform(rolling, self._handlers(writer))
        except PenstockError as failure:
            return failure
        return None

    def _writer(self, node: SinkNode) -> Writer:
        with self._lock:
            if node.name not in self._writers:
                self._writers[node.name] = open_sink(node, self.topology, self.root.store)
            return self._writers[node.name]

    def _handlers(self, writer: Writer) -> Handlers:
        return {
            **self.root.handlers,
            ReadCursor: lambda asked: _cursor(writer, asked),
            Apply: lambda asked: _applied(writer, asked),
        }

    def _tell(self, away: Mapping[str, str]) -> None:
        """Say where the sinks are to whoever looks at the job, and which of them hold it."""
        self.session.note("sinks", {
            name: {"epoch": epoch, "held": away.get(name)}
            for name, epoch in self.epochs().items()
        })  # fmt: skip
        if away != self._away:
            self._away = dict(away)
            self.listener.held(away)


def _cursor(writer: Writer, asked: ReadCursor) -> Cursor | None:
    with explained(asked.sink, "when it was asked for its cursor"):
        return writer.read_cursor(asked.shard)


def _applied(writer: Writer, asked: Apply) -> None:
    with applying_explained(asked):
        writer.apply(asked)


def _worst(failures: Iterable[PenstockError]) -> PenstockError | None:
    """The failure that decides what to do: one that ends the tenure, then one that stops the job,
    then one that passes."""

    def gravity(failure: PenstockError) -> int:
        return 0 if isinstance(failure, Fenced) else 2 if isinstance(failure, Unavailable) else 1

    return min(failures, key=gravity, default=None)
