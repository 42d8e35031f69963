"""How fast a partition's state comes back from its changelog topic alone, beside its root.

Both are the same version of the same state, built by the same epochs: all keys, and then twenty
epochs that change one key of a hundred each. The root has a snapshot's files and the deltas of
those epochs; the topic has a record for each change. Either way begins with an empty disk and ends
with an open database at the committed version; they take turns.
"""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

import penstock as ps
from benchmarks.restoring import ALWAYS, BUILD_CHUNK, IDENTITY, NEVER, TAIL_DELTAS, Partition
from benchmarks.state_data import SETTINGS, Array
from penstock.checkpoint import MemoryStore
from penstock.checkpoint.restore import OpenPartition, Restorer, Way
from penstock.clock import SystemChance, SystemClock
from penstock.ids import CommitId, Epoch, Token
from penstock.points import Point
from penstock.runtime.rebuilding import fill
from penstock.sinks import Apply, Cursor, Target
from penstock.sinks.changelog import CHANGE_COLUMNS, changes_table
from penstock.sinks.cursors import mark_of
from penstock.sinks.table import arrow_file
from penstock.state.changelog import read_changes
from penstock.state.database import PartitionDatabase
from penstock.state.delta import Marker
from penstock.state.host import HostFolder
from penstock.state.layout import MARKER_KEY, SCHEMA_KEY

__all__ = ["KEYS", "QUICK_KEYS", "Rebuilt", "rebuilt"]

KEYS, QUICK_KEYS = 1_000_000, 50_000
ROUNDS = 3
FILES, TOPIC = "the files of its root", "its changelog topic alone"


@dataclass(frozen=True)
class Rebuilt:
    """Both ways back of one state."""

    keys: int
    changes: int
    """How often a key was changed, the first time included."""
    ways: dict[str, float]
    """How many seconds each took: the median of several."""


class Followed(Partition):
    """A partition whose changes go to a topic as well."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        super().__init__(folder)
        prefix = f"rebuild-{SystemChance().unique()[:8]}"
        self.topic = ps.KafkaChangelog(bootstrap, prefix=prefix).sink("bench", "totals")
        target = Target(job="bench", columns=CHANGE_COLUMNS, partitions=1, store=MemoryStore())
        self.changes = 0
        self._writer = self.topic.open(target)
        self._scratch = folder / "reading"

    def change(self, numbers: Array) -> None:
        """One epoch, which the topic is given as a sink is: after the decision."""
        super().change(numbers)
        self.changes += len(numbers)
        rows = changes_table(self._entries())
        cursor = _cursor(self.epoch)
        follows = _cursor(Epoch(self.epoch - 1)) if self.epoch > 1 else None
        place = (Point.SINK_APPLY, self.topic.name, 0)
        self._writer.apply(Apply(*place, follows, cursor, Token(1), (arrow_file(rows),)))

    def _entries(self) -> Iterator[tuple[bytes, bytes | None]]:
        """What a task hands on: the entries of its delta, the schemas and the marker."""
        epoch, delta = self.lineage.deltas[-1]
        path = self.folder.delta(epoch, delta.attempt)
        yield from read_changes(path, self._scratch, SETTINGS)
        yield SCHEMA_KEY, b"{}"
        yield MARKER_KEY, msgspec.json.encode(_marker(epoch, delta.attempt))

    def from_files(self, folder: Path) -> OpenPartition:
        """As a new host opens it."""
        host = HostFolder(folder, SystemChance()).partition("bench", "totals", 0)
        return self.restorer.open(IDENTITY, self.lineage, host)

    def from_topic(self, folder: Path) -> OpenPartition:
        """As a new host opens it when the root has lost everything but its chain."""
        host = HostFolder(folder, SystemChance()).partition("bench", "totals", 0)
        lost = Restorer(MemoryStore(), SETTINGS, SystemClock())
        return lost.open(IDENTITY, self.lineage, host, elsewhere=self._fill)

    def _fill(self, database: PartitionDatabase, scratch: Path) -> None:
        fill(database, self.topic.entries(0), scratch)

    def close(self) -> None:
        """Let go of the topic."""
        self._writer.close()


def rebuilt(bootstrap: str, keys: int) -> Rebuilt:
    """Build a state, and bring it back both ways."""
    with tempfile.TemporaryDirectory(prefix="bench-kafka-rebuild-") as name:
        folder = Path(name)
        partition = _built(folder, bootstrap, keys)
        ways = {FILES: partition.from_files, TOPIC: partition.from_topic}
        taken: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(ROUNDS):
            for place, (way, open_) in enumerate(ways.items()):
                started_s = time.perf_counter()
                opened = open_(folder / f"new-{number}-{place}")
                taken[way].append(time.perf_counter() - started_s)
                _check(opened, {FILES: Way.STORE_FILES, TOPIC: Way.ELSEWHERE}[way], keys)
        partition.close()
        medians = {way: float(np.median(seconds)) for way, seconds in taken.items()}
        return Rebuilt(keys, partition.changes, medians)


def _built(folder: Path, bootstrap: str, keys: int) -> Followed:
    partition = Followed(folder, bootstrap)
    for start in range(0, keys, BUILD_CHUNK):
        partition.change(np.arange(start, min(keys, start + BUILD_CHUNK)))
    partition.policy = ALWAYS
    random = np.random.default_rng(1)
    for _ in range(TAIL_DELTAS):
        partition.change(np.unique(random.integers(0, keys, max(1, keys // 100))))
        partition.policy = NEVER
    return partition


def _check(opened: OpenPartition, way: Way, keys: int) -> None:
    """It came that way, and it is all there."""
    try:
        found = sum(1 for _ in opened.database.scan(b"\x01", b"\x02"))
        if (opened.restore.way, found) != (way, keys):
            raise SystemExit(f"{found:,} keys by {opened.restore.way}, not {keys:,} by {way}")
    finally:
        opened.close()


def _marker(epoch: Epoch, attempt: str) -> Marker:
    return Marker(
        job=IDENTITY.job,
        operator=IDENTITY.operator,
        partition=IDENTITY.partition,
        generation=IDENTITY.generation,
        epoch=epoch,
        attempt=attempt,  # type: ignore[arg-type]
    )


def _cursor(epoch: Epoch) -> Cursor:
    return Cursor(IDENTITY.generation, epoch, mark_of(CommitId(str(epoch))))
