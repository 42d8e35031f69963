"""Bringing sinks outside the root up to HEAD, at the start and after every commit.

Tables need nothing: they are visible as far as HEAD says. Every other sink has a cursor of its own,
and is given what it lacks from what was staged; see `penstock.sinks.roll_forward`.
"""

from dataclasses import dataclass

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.perform import Handlers, perform
from penstock.checkpoint.root import Root, Session
from penstock.ids import Epoch
from penstock.points import Point
from penstock.runtime.topology import Topology
from penstock.sinks.protocol import AppliedSink
from penstock.sinks.roll_forward import Apply, ReadCursor, roll_forward

__all__ = ["Applier"]


@dataclass(frozen=True, slots=True)
class Applier:
    """The sinks of one job, under one tenure."""

    root: Root
    session: Session
    topology: Topology

    def roll_forward(self) -> None:
        """Apply every committed epoch that some shard lacks."""
        for sink in self._applied():
            handlers: Handlers = {
                **self.root.handlers,
                ReadCursor: sink.read_cursor,
                Apply: sink.apply,
            }
            for shard in range(self.topology.partitions):
                chain, tenure = Chain(self.session.tenure), self.session.tenure
                rolling = roll_forward(chain, tenure, self.session.head, sink.name, shard)
                perform(rolling, handlers)

    def needed(self, manifest: Manifest) -> dict[str, Epoch]:
        """Per sink, the oldest epoch that it has yet to take or, of a table, to list."""
        found = {name: Epoch(index.epoch + 1) for name, index in manifest.tables.items()}
        for sink in self._applied():
            cursors = [
                sink.read_cursor(ReadCursor(Point.SINK_CURSOR, sink.name, shard))
                for shard in range(self.topology.partitions)
            ]
            reached = [0 if cursor is None else cursor.epoch for cursor in cursors]
            found[sink.name] = Epoch(min(reached) + 1)
        return found

    def _applied(self) -> list[AppliedSink]:
        return [n.sink for n in self.topology.sinks if isinstance(n.sink, AppliedSink)]
