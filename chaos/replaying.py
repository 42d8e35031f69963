"""Going through the epochs of a root once more, without a fault: the same ranges, the same times.

A committed manifest says what its epoch read and when it was planned. That is all a function's
results depend on, if it is honest. So a second run over the same plans, on a root of its own, must
make the same rows and the same changes of state, epoch by epoch; who compares the two needs to
know nothing of what the job is for. Sinks outside the root are not touched: what was meant for
them becomes a table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.manifest import Manifest, Output, SourceProgress
from penstock.checkpoint.perform import perform
from penstock.checkpoint.root import Root
from penstock.errors import Gone, Invalid
from penstock.points import Point
from penstock.runtime.letters import LETTERS, replayed_name
from penstock.runtime.loop import EpochLoop
from penstock.runtime.planning import EpochPlan, Planner
from penstock.runtime.position import Position
from penstock.runtime.replays import Replayer, Replays
from penstock.runtime.watermarks import operator_watermark
from penstock.sinks.protocol import AppliedSink, Sink
from penstock.sinks.table import Table, open_file
from penstock.sinks.table_index import body_of

__all__ = ["FollowingLoop", "FollowingPlanner", "QuietLoop", "as_table", "recorded"]


def recorded(root: Root) -> dict[int, Manifest]:
    """Every epoch of a root, by number; `Gone` if the first ones have been given up."""
    found = {manifest.epoch: manifest for manifest in root.history()}
    if found and min(found) != 1:
        what = f"has given up the epochs before {min(found)}"
        raise Gone("the root", what, "keep all of them: a replay begins with the first")
    return {int(epoch): manifest for epoch, manifest in found.items()}


def as_table(sink: Sink) -> Sink:
    """A table in the place of a sink outside the root."""
    return Table(sink.name) if isinstance(sink, AppliedSink) else sink


@dataclass(slots=True)
class FollowingPlanner(Planner):
    """Plans what was planned before."""

    story: Mapping[int, Manifest] = field(default_factory=dict)
    may_be_direct: bool = False
    """Rows are always shuffled: it must make no difference."""
    original: Root | None = None
    """The root whose story it is: the letters that were replayed are read there."""

    def plan(self, position: Position) -> EpochPlan:
        """The epoch after that position, as it is written down."""
        told = self.story.get(position.epoch + 1)
        if told is None:
            found = f"goes on after epoch {position.epoch}, and the history ends there"
            raise Invalid("the replay", found, "limit it by epochs_max")
        return EpochPlan(
            position=position,
            ranges={name: each.ranges for name, each in told.sources.items() if each.ranges},
            starts={
                name: _starts(told, name)
                for name in told.sources
                if not position.progress(name).resume_at
            },
            planned_ms=told.planned_ms,
            watermarks={
                operator.name: operator_watermark(
                    self.topology, operator, position.sources, told.planned_ms
                )
                for operator in self.topology.operators
            },
            direct=False,
            letters=self._letters(told),
        )

    def _letters(self, told: Manifest) -> dict[str, Output]:
        """The dead letters that the epoch has replayed, staged once more for this root."""
        found = {}
        for name, node in self.topology.sources.items():
            range_ = told.sources.get(name, SourceProgress()).ranges.get(LETTERS)
            if range_ is None or not isinstance(node.source, Replays):
                continue
            assert self.original is not None, "only the root of the story has its letters"
            (output,) = told.sinks[replayed_name(node.source.operator)]
            reading = body_of(Chain(), output.ref, Point.READ_OBJECT)
            body = perform(reading, self.original.handlers)
            schema, batches = open_file(output.ref.key, body)
            rows = pa.Table.from_batches(batches, schema)
            staged = Replayer.of(node.source).stage(rows, told.epoch, range_.start)
            found[node.source.operator] = staged
        return found


def _starts(told: Manifest, source: str) -> dict[str, int]:
    """Where the partitions of a source began: with what was read, or where nothing was yet."""
    progress = told.sources[source]
    return {
        partition: progress.ranges[partition].start if partition in progress.ranges else resume
        for partition, resume in progress.resume_at.items()
    }


class QuietLoop(EpochLoop):
    """Tells nobody how far a source was read: whoever follows a job follows the real one."""

    __slots__ = ()

    def _tell_sources(self, manifest: Manifest) -> None:
        pass


class FollowingLoop(QuietLoop):
    """Runs every epoch that is written down, also those in which nothing happened."""

    __slots__ = ()

    def _is_worth_it(self, plan: EpochPlan) -> bool:
        return True
