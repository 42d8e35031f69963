"""Whether every source partition was read without gap or overlap, from its first offset to HEAD's.

Each epoch goes on where the one before it stopped, partition by partition. Where a partition was
begun can be judged only by whoever knows the job: with its file, one that was to be read from its
earliest offset must not have begun behind an offset that it still has.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.chaos.audit_history import History, Link
from penstock.chaos.findings import Ledger
from penstock.checkpoint.manifest import Range, SourceProgress
from penstock.errors import PenstockError
from penstock.runtime.topology import SourceNode, Topology

__all__ = ["check_sources"]

Place = tuple[str, str]
"""A source and one of its partitions."""


def check_sources(history: History, topology: Topology | None, ledger: Ledger) -> None:
    """Follow every partition from epoch to epoch."""
    walk = _Walk(ledger)
    for link in history.epochs():
        walk.add(link)
    ledger.count("partitions", len(walk.reached))
    if topology is not None:
        _check_beginnings(history, walk.begun, topology, ledger)


@dataclass(slots=True)
class _Walk:
    ledger: Ledger
    reached: dict[Place, int] = field(default_factory=dict)
    """The next offset of each partition."""
    begun: dict[Place, tuple[int, int]] = field(default_factory=dict)
    """The epoch that spoke of a partition first, and where it was begun."""

    def add(self, link: Link) -> None:
        """One more epoch."""
        for source, progress in link.manifest.sources.items():
            for partition in {**progress.resume_at, **progress.ranges}:
                self._partition(link, (source, partition), progress)
        known = {(s, p) for s, each in link.manifest.sources.items() for p in each.resume_at}
        for source, partition in sorted(self.reached.keys() - known):
            at = self.reached.pop((source, partition))
            found = f"is not spoken of any more: that it is at offset {at:,} is forgotten"
            self._wrong(link, (source, partition), found)

    def _partition(self, link: Link, place: Place, progress: SourceProgress) -> None:
        partition = place[1]
        read, resumes = progress.ranges.get(partition), progress.resume_at.get(partition)
        at = self.reached.get(place)
        if at is None:
            begun = read.start if read is not None else resumes or 0
            self.begun[place] = (link.epoch, begun)
            at = begun
        self._judge(link, place, at, read, resumes)
        if read is not None:
            self.ledger.count("ranges")
            self.ledger.count("offsets", max(0, read.stop - read.start))
        stop = at if read is None else read.stop
        self.reached[place] = stop if resumes is None else resumes

    def _judge(
        self, link: Link, place: Place, at: int, read: Range | None, resumes: int | None
    ) -> None:
        start, stop = (at, at) if read is None else (read.start, read.stop)
        if start > at:
            found = f"skips offsets {at:,} up to {start:,}, which were never read"
            self._wrong(link, place, found)
        elif start < at:
            self._wrong(link, place, f"reads offsets {start:,} up to {at:,} a second time")
        if stop < start:
            self._wrong(link, place, f"reads backwards, from {start:,} to {stop:,}")
        if resumes != stop:
            to = "nowhere" if resumes is None else f"at {resumes:,}"
            self._wrong(link, place, f"was read up to {stop:,} and resumes {to}")

    def _wrong(self, link: Link, place: Place, found: str) -> None:
        subject = f"source {place[0]}, partition {place[1]}, in epoch {link.epoch}"
        self.ledger.wrong("I5", subject, found, link.epoch)


def _check_beginnings(
    history: History, begun: Mapping[Place, tuple[int, int]], topology: Topology, ledger: Ledger
) -> None:
    for source, node in topology.sources.items():
        mine = {place: found for place, found in begun.items() if place[0] == source}
        # Whatever the first retained epoch knows already was begun before it.
        known = {
            place: found
            for place, found in mine.items()
            if history.begins or found[0] > history.since
        }
        if known:
            _check_source(node, known, ledger)


def _check_source(node: SourceNode, begun: Mapping[Place, tuple[int, int]], ledger: Ledger) -> None:
    try:
        spans = node.source.spans()
    except PenstockError as error:
        ledger.unknown(f"where source {node.name} begins", str(error))
        return
    for (source, partition), (epoch, offset) in sorted(begun.items()):
        told = node.start.get(partition) if isinstance(node.start, Mapping) else None
        span = spans.get(partition)
        subject = f"source {source}, partition {partition}, in epoch {epoch}"
        if told is not None and epoch == 1:
            if offset != told:
                found = f"was begun at offset {offset:,}, and the job says {told:,}"
                ledger.wrong("I1", subject, found, epoch)
        elif span is not None and offset > span.earliest and _from_earliest(node, epoch):
            found = f"was begun at offset {offset:,}, and {span.earliest:,} is its first"
            ledger.wrong("I1", subject, found, epoch)


def _from_earliest(node: SourceNode, epoch: int) -> bool:
    """Whether a partition that an epoch speaks of first is read whole. One that comes later is,
    wherever the others were begun."""
    return epoch > 1 or node.start == "earliest"
