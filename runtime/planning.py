"""Planning an epoch: which ranges, by which tasks, under which orders.

The same position, sources and limits always give the same ranges; only the name of the run and
the planned time are new. A retried epoch keeps its plan and gets a new run. Planned time strictly
grows from epoch to epoch, and is steady: no reading of the wall clock stops it or carries it away.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.checkpoint.formats import Ref
from penstock.checkpoint.manifest import Output
from penstock.checkpoint.snapshots import SnapshotPolicy
from penstock.clock import Chance, Clock
from penstock.ids import Epoch, Token
from penstock.runtime.letters import LETTERS
from penstock.runtime.position import Position
from penstock.runtime.replays import Replayer, Replays
from penstock.runtime.topology import OperatorNode, Topology
from penstock.runtime.watermarks import operator_watermark
from penstock.runtime.wire import Orders, Plan, ReadTask, WantedRange
from penstock.sources import Kafka, Log, Rate
from penstock.sources.planning import share_rows, start_offsets
from penstock.sources.protocol import Identified, Limits, Range
from penstock.steady_time import SteadyTime

__all__ = ["SPLIT_ROWS", "EpochPlan", "Planner"]

SPLIT_ROWS = 20_000
"""A range is parted between tasks if each gets at least so many offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPlan:
    """One epoch, before it is tried."""

    position: Position
    """Where it begins."""
    ranges: Mapping[str, Mapping[str, Range]]
    starts: Mapping[str, Mapping[str, int]]
    """Where partitions begin that no epoch has spoken of yet."""
    planned_ms: int
    watermarks: Mapping[str, int | None]
    """Per operator."""
    direct: bool
    letters: Mapping[str, Output] = field(default_factory=dict)
    """By operator: the dead letters that it replays, as they are staged."""

    @property
    def epoch(self) -> Epoch:
        """Its number."""
        return Epoch(self.position.epoch + 1)

    @property
    def rows(self) -> int:
        """How many offsets it reads."""
        return sum(map(_offsets, self.ranges.values()))


@dataclass(slots=True)
class Planner:
    """Plans the epochs of one job."""

    topology: Topology
    limits: Limits
    snapshots: SnapshotPolicy
    read_tasks: int
    clock: Clock
    chance: Chance
    may_be_direct: bool = True
    _replayers: dict[str, Replayer] = field(default_factory=dict, init=False)
    _time: SteadyTime = field(init=False)

    def __post_init__(self) -> None:
        self._time = SteadyTime(self.clock)

    def plan(self, position: Position) -> EpochPlan:
        """The next epoch. One without ranges has nothing to read."""
        self._recognise(position)
        planned_ms = max(self._time.now_ms(position.planned_ms), position.planned_ms + 1)
        watermarks = {
            operator.name: operator_watermark(self.topology, operator, position.sources, planned_ms)
            for operator in self.topology.operators
        }
        starts = {
            name: start_offsets(node.source, node.start)
            for name, node in self.topology.sources.items()
            if not position.progress(name).resume_at and not node.is_replay
        }
        offered = self._offered(position)
        ranges = self._ranges(position, starts, offered)
        return EpochPlan(
            position=position,
            ranges=ranges,
            starts=starts,
            planned_ms=planned_ms,
            watermarks=watermarks,
            direct=self.may_be_direct and self._is_direct(),
            letters=self._staged(position, offered, ranges),
        )

    def _offered(self, position: Position) -> dict[str, pa.Table]:
        """By source: the dead letters that were asked for and are to be replayed now."""
        found = {}
        for name, node in self.topology.sources.items():
            if not isinstance(node.source, Replays):
                continue
            replayer = self._replayers.setdefault(name, Replayer.of(node.source))
            letters = replayer.offer(position, self.limits)
            if letters is not None:
                found[name] = letters
        return found

    def _staged(
        self,
        position: Position,
        offered: Mapping[str, pa.Table],
        ranges: Mapping[str, Mapping[str, Range]],
    ) -> dict[str, Output]:
        """Store as many of the offered letters as the epoch reads."""
        found = {}
        for name, letters in offered.items():
            mine, replayer = ranges[name][LETTERS], self._replayers[name]
            some = letters.slice(0, mine.stop - mine.start)
            epoch = Epoch(position.epoch + 1)
            found[replayer.source.operator] = replayer.stage(some, epoch, mine.start)
        return found

    def _recognise(self, position: Position) -> None:
        """Remind sources of what earlier leaders have seen of them."""
        for name, node in self.topology.sources.items():
            if isinstance(node.source, Identified):
                node.source.recognise(position.progress(name).identities)

    def shuffled(self, plan: EpochPlan) -> EpochPlan:
        """The same epoch, with its rows sent to the partitions of their keys."""
        return replace(plan, direct=False)

    def run(self, plan: EpochPlan, token: Token) -> Plan:
        """One try of an epoch."""
        run = self.chance.unique()[:16]
        pieces = self._tasks(plan)
        orders = self._orders(plan, run, token, len(pieces))
        tasks = []
        for number, ranges in enumerate(pieces):
            mine = [o for o in orders if (o[1] if plan.direct and o[0] == 1 else 0) == number]
            tasks.append(ReadTask(ranges=tuple(ranges), orders=tuple(mine)))
        return Plan(
            run=run,
            epoch=plan.epoch,
            planned_ms=plan.planned_ms,
            direct=plan.direct,
            tasks=tuple(tasks),
        )

    def _ranges(
        self,
        position: Position,
        starts: Mapping[str, Mapping[str, int]],
        offered: Mapping[str, pa.Table],
    ) -> dict[str, Mapping[str, Range]]:
        """What to read of each source, so that all of it together keeps the limits."""
        resume = {n: starts.get(n) or position.progress(n).resume_at for n in self.topology.sources}
        wanted = {
            name: node.source.plan(resume[name], self.limits)
            for name, node in self.topology.sources.items()
        }
        for name, letters in offered.items():
            wanted[name] = _letters_read(resume[name], letters.num_rows)
        counts = {
            name: sum(r.stop - r.start for r in each.values()) for name, each in wanted.items()
        }
        busy = {name: count for name, count in counts.items() if count}
        if len(busy) > 1 and self.limits.records and sum(busy.values()) > self.limits.records:
            shares = share_rows(busy, Limits(records=self.limits.records), {})
            for name in busy:
                # At least one row of each, however low the limit: no source waits for ever.
                share = replace(self.limits, records=max(1, shares.get(name, 1)))
                if name in offered:
                    count = min(offered[name].num_rows, share.records or 1)
                    wanted[name] = _letters_read(resume[name], count)
                    continue
                wanted[name] = self.topology.sources[name].source.plan(resume[name], share)
        return {name: each for name, each in wanted.items() if each}

    def _is_direct(self) -> bool:
        """Whether the sources of the first operator are parted by its key already, so that each
        of its partitions can read its own."""
        first = self.topology.operators[0]
        return all(
            feed.origin in self.topology.sources
            and not self.topology.sources[feed.origin].is_replay
            and _is_parted(self.topology, first, feed.origin, feed.key)
            for feed in first.feeds
        )

    def _tasks(self, plan: EpochPlan) -> list[list[WantedRange]]:
        wanted = [
            WantedRange(
                source=source,
                partition=partition,
                start=each.start,
                stop=each.stop,
                letters=self._letters_of(plan, source),
            )
            for source, ranges in sorted(plan.ranges.items())
            for partition, each in ranges.items()
        ]
        if plan.direct:
            tasks: list[list[WantedRange]] = [[] for _ in range(self.topology.partitions)]
            for each in wanted:
                tasks[self._own_task(each)].append(each)
            return tasks
        return _balanced(self._split(wanted), self.read_tasks)

    def _letters_of(self, plan: EpochPlan, name: str) -> Ref | None:
        source = self.topology.sources[name].source
        return plan.letters[source.operator].ref if isinstance(source, Replays) else None

    def _own_task(self, wanted: WantedRange) -> int:
        """The partition that a topic's partition belongs to; others are spread."""
        source = self.topology.sources[wanted.source].source
        if isinstance(source, Log) and wanted.partition.isdecimal():
            partitions = source.topic().partitions
            if partitions % self.topology.partitions == 0:
                return int(wanted.partition) * self.topology.partitions // partitions
        return sum(map(ord, wanted.partition)) % self.topology.partitions

    def _split(self, wanted: list[WantedRange]) -> list[WantedRange]:
        """Cut long ranges, where a source can be read from anywhere at the same cost."""
        total = sum(each.stop - each.start for each in wanted)
        share = max(SPLIT_ROWS, -(-total // self.read_tasks))
        pieces = []
        for each in wanted:
            source = self.topology.sources[each.source].source
            step = (
                share if isinstance(source, Kafka | Log | Rate) else max(1, each.stop - each.start)
            )
            pieces += [
                msgspec.structs.replace(each, start=start, stop=min(each.stop, start + step))
                for start in range(each.start, each.stop, step)
            ]
        return pieces

    def _orders(
        self, plan: EpochPlan, run: str, token: Token, tasks: int
    ) -> list[tuple[int, int, Orders]]:
        return [
            (operator.stage, partition, self._order(plan, operator, partition, (run, token, tasks)))
            for operator in self.topology.operators
            for partition in range(self.topology.partitions)
        ]

    def _order(
        self, plan: EpochPlan, operator: OperatorNode, partition: int, run: tuple[str, Token, int]
    ) -> Orders:
        lineage = plan.position.lineage((operator.name, partition))
        cuts = self.snapshots.wants_snapshot(plan.epoch, partition)
        return Orders(
            run=run[0],
            epoch=plan.epoch,
            generation=plan.position.generation,
            token=run[1],
            watermark_ms=plan.watermarks[operator.name],
            planned_ms=plan.planned_ms,
            files=lineage.files,
            deltas=lineage.deltas,
            files_at=lineage.files_at,
            cuts_snapshot=bool(operator.wrapped.states) and cuts,
            seeds_changelog=lineage.version is not None and self._begins_changelog(plan, operator),
            origins=self._origins(plan, operator, run[2]),
        )

    def _begins_changelog(self, plan: EpochPlan, operator: OperatorNode) -> bool:
        node = self.topology.changelog_of(operator.name)
        return node is not None and node.name not in plan.position.changelogs

    def _origins(
        self, plan: EpochPlan, operator: OperatorNode, tasks: int
    ) -> tuple[tuple[str, int], ...]:
        """Who must send barriers. In a direct epoch the first operator's rows do not travel."""
        found = []
        for feed in operator.feeds:
            if feed.origin not in self.topology.sources:
                found.append((feed.origin, self.topology.partitions))
            elif feed.origin in self.topology.transformed or (plan.direct and operator.stage == 1):
                found.append((feed.origin, 0))
            else:
                found.append((feed.origin, tasks))
        return tuple(found)


def _offsets(ranges: Mapping[str, Range]) -> int:
    return sum(each.stop - each.start for each in ranges.values())


def _letters_read(resume: Mapping[str, int], count: int) -> dict[str, Range]:
    """The range of so many more replayed letters."""
    first = resume.get(LETTERS, 0)
    return {LETTERS: Range(start=first, stop=first + count)}


def _is_parted(topology: Topology, first: OperatorNode, source: str, key: tuple[str, ...]) -> bool:
    if source in topology.transformed:
        return False
    log = topology.sources[source].source
    if not isinstance(log, Log):
        return False
    topic = log.topic()
    return bool(key) and topic.key == key and topic.partitions % topology.partitions == 0


def _balanced(pieces: list[WantedRange], tasks: int) -> list[list[WantedRange]]:
    """The pieces over at most so many tasks, the largest first; at least one task, with nothing
    to read if there is nothing, because somebody must pass on the orders."""
    found: list[list[WantedRange]] = [[] for _ in range(max(1, min(tasks, len(pieces))))]
    loads = [0] * len(found)
    for piece in sorted(pieces, key=lambda p: (p.start - p.stop, p.source, p.partition, p.start)):
        lightest = loads.index(min(loads))
        found[lightest].append(piece)
        loads[lightest] += piece.stop - piece.start
    return found
