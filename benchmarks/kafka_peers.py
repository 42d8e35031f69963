"""Who takes part: what each is called, how it is started, and what it was given."""

import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FLOOR", "PENSTOCK", "QUIX", "SPARK", "Peer", "Place", "peers"]

PENSTOCK, QUIX, SPARK = "Penstock", "Quix Streams", "Structured Streaming, Python"
FLOOR = "the floor: a bare consumer"
QUIX_PYTHON = Path(sys.prefix) / "quix" / "bin" / "python"
SMALL, LARGE = 200_000, 1_000_000
"""Rows of an epoch or a batch."""
WARMUP_S = 10.0


@dataclass(frozen=True)
class Place:
    """Where a system finds everything."""

    bootstrap: str
    source: str
    target: str
    folder: Path

    @property
    def steps(self) -> Path:
        """Where a system writes down its progress, if nobody else can see it."""
        return self.folder / "steps.jsonl"

    def options(self) -> list[str]:
        """The same for a command."""
        topics = ["--source", self.source, "--target", self.target]
        return ["--bootstrap", self.bootstrap, *topics]


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One system, set up in one way."""

    name: str
    short: str
    """What it is called on the command line."""
    module: str
    arguments: tuple[str, ...] = ()
    how: str
    """What it was given, in words."""
    guarantee: str
    python: Path = Path(sys.executable)
    processes: int = 1
    limit_s: float = 120.0
    """After how long it is stopped. What it had done by then counts."""
    warmup_s: float = WARMUP_S
    """For how long rows do not count, from the first ones on."""
    tells: bool = False
    """Whether it writes its progress down itself: Spark's rows can be read before they are
    certain, and the floor writes none."""
    ends: bool = False
    """Whether it ends by itself when there is nothing left to do."""
    rounds: int = 2

    def commands(self, place: Place, rows: int) -> list[list[str]]:
        """What to start, each with a folder of its own."""
        known = {"STEPS": str(place.steps), "ROWS": str(rows), "LIMIT": str(self.limit_s)}
        given = [known.get(word, word) for word in self.arguments]
        start = [str(self.python), "-m", self.module]
        folders = [place.folder / f"process-{number}" for number in range(self.processes)]
        return [[*start, *place.options(), "--folder", str(each), *given] for each in folders]


def peers() -> list[Peer]:
    """Everybody, in the order in which they take their turns."""
    return [
        _penstock(SMALL),
        _quix(1),
        _penstock(LARGE),
        _quix(2),
        _floor(),
        _spark(LARGE),
    ]


def _penstock(rows: int) -> Peer:
    return Peer(
        name=f"{PENSTOCK}, function per key, epochs of {rows:,} rows",
        short=f"penstock-{rows}",
        module="benchmarks.kafka_penstock",
        arguments=("--records", str(rows)),
        how="`ps.Kafka` source and sink with their defaults, two partitions, local[2], root on a "
        "folder",
        guarantee="exactly-once",
        ends=True,
        rounds=2 if rows == SMALL else 1,
    )


def _quix(processes: int) -> Peer:
    counted = {1: "one process", 2: "two processes"}[processes]
    return Peer(
        name=f"{QUIX}, {counted}",
        short=f"quix-{processes}",
        module="benchmarks.kafka_quix",
        how='`processing_guarantee="exactly-once"`, commit every 5 s (its default), state as one '
        "value per user, producer with linger.ms=100, batch.size=1 MiB and lz4, consumer with "
        "fetch.min.bytes=64 KiB and queued.min.messages=200,000; changelog topic on (its default)",
        guarantee="exactly-once",
        python=QUIX_PYTHON,
        processes=processes,
        limit_s=45.0,
    )


def _spark(rows: int) -> Peer:
    return Peer(
        name=f"{SPARK} applyInPandasWithState, batches of {rows:,} rows",
        short="spark",
        module="benchmarks.kafka_spark",
        arguments=("--steps", "STEPS", "--batch", str(rows), "--batches", "2", "--limit", "LIMIT"),
        how="RocksDB with a changelog and without counting its keys, two shuffle partitions, "
        "local[2], Unix sockets to Python, lz4; two batches, of which the first is "
        "warm-up",
        guarantee="at-least-once",
        limit_s=240.0,
        warmup_s=0.0,
        tells=True,
        ends=True,
        rounds=1,
    )


def _floor() -> Peer:
    return Peer(
        name=FLOOR,
        short="floor",
        module="benchmarks.kafka_floor",
        arguments=("--rows", "ROWS", "--steps", "STEPS"),
        how="confluent-kafka, `consume` of 10,000 messages at a time, nothing decoded",
        guarantee="none",
        warmup_s=1.0,
        tells=True,
        ends=True,
    )
