"""What the benchmark of the runtime measures on: the rows of W1, how much of it, and results.

W1 counts and sums per key. Row i of epoch e is the same for every system and on every run. Each
system runs in a process of its own and writes one `Measured` per line as it gets them, so that
one that is killed at its time limit has still said what it did before.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

__all__ = [
    "CORES", "FLOOR", "FULL", "FUNCTION", "FUNCTION_DIRECT", "GROUP_BY", "GROWTH", "KEYS", "LONG",
    "MEMORY", "PARTITIONS", "PYTHON", "QUICK", "SCHEMA", "SMALL", "SMALL_DIRECT",
    "SMALL_GROUP_BY", "SMALL_ROWS", "VECTORISED", "VECTORISED_DIRECT", "Amount", "Measured",
    "epochs_of", "measured_in", "pooled", "rows_of", "write",
]  # fmt: skip

KEYS = 100_000
PARTITIONS = 2
CORES = "local[2]"
MEMORY = {"spark.driver.memory": "2g"}
"""Of every JVM alike."""
SMALL_ROWS = 100
FUNCTION = "Penstock, function per key, shuffled"
FUNCTION_DIRECT = "Penstock, function per key, direct"
VECTORISED = "Penstock, vectorised, shuffled"
VECTORISED_DIRECT = "Penstock, vectorised, direct"
GROUP_BY = {sink: f"Structured Streaming, JVM groupBy, {sink} sink" for sink in ("Parquet", "noop")}
PYTHON = "Structured Streaming, Python "
"""And the name of the interface."""
FLOOR = "the floor: shuffle and Arrow, no state"
SMALL = "Penstock, small epochs, shuffled"
SMALL_DIRECT = "Penstock, small epochs, direct"
SMALL_GROUP_BY = {
    sink: f"Structured Streaming, small batches, {sink} sink" for sink in ("Parquet", "noop")
}
LONG = "Penstock, many small epochs"
GROWTH = "Penstock, state growth"
"""What systems are called in results."""
SCHEMA = pa.schema([("user", pa.int64()), ("amount", pa.int64())])


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured."""

    warmups: dict[int, int]
    """How many epochs come before those that count, by their rows. A JVM needs millions of rows
    until it is as fast as it gets, and small epochs come first."""
    epochs: dict[int, int]
    """How many epochs count, by their rows."""
    small_warmups: int
    small_epochs: int
    long_epochs: int
    python_rows: tuple[int, ...]
    """Rows of a batch for the Python functions of Structured Streaming."""
    python_warmups: int
    python_epochs: int
    python_limit_s: float
    """How long those may take once the query has processed its first few rows."""
    keys: tuple[int, ...]
    grown_warmups: int
    grown_epochs: int
    load_rows: int = 1_000_000
    """Rows of the epochs that load keys."""

    @property
    def rows(self) -> tuple[int, int]:
        """Rows of an epoch: the smaller and the larger."""
        return min(self.epochs), max(self.epochs)


FULL = Amount(
    warmups={200_000: 20, 1_000_000: 3},
    epochs={200_000: 9, 1_000_000: 5},
    small_warmups=10,
    small_epochs=40,
    long_epochs=1_000,
    python_rows=(20_000, 200_000),
    python_warmups=3,
    python_epochs=5,
    python_limit_s=80.0,
    keys=(10_000, 100_000, 1_000_000, 5_000_000),
    grown_warmups=3,
    grown_epochs=5,
)
QUICK = Amount(
    warmups={200_000: 2, 1_000_000: 1},
    epochs={200_000: 2, 1_000_000: 1},
    small_warmups=2,
    small_epochs=4,
    long_epochs=30,
    python_rows=(2_000, 20_000),
    python_warmups=1,
    python_epochs=1,
    python_limit_s=15.0,
    keys=(10_000, 100_000),
    grown_warmups=1,
    grown_epochs=2,
)


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One system at one size: how long each epoch took after warm-up."""

    system: str
    rows: int
    """Of one epoch."""
    keys: int = KEYS
    seconds: list[float] = []
    """Per epoch. Empty: none was finished."""
    limit_s: float = 0.0
    """After how long it was given up, if it was."""
    note: str = ""
    """What must be known to read it right."""
    series: dict[str, list[float]] = {}
    """Other figures per epoch, by name."""

    @property
    def epoch_s(self) -> float | None:
        """The median."""
        return float(np.median(self.seconds)) if self.seconds else None

    @property
    def rate(self) -> float | None:
        """Rows per second, steady."""
        return None if not self.seconds else self.rows / float(np.median(self.seconds))

    @property
    def rate_max(self) -> float | None:
        """The same; of one that finished nothing, what it stayed under."""
        if self.seconds or not self.limit_s:
            return self.rate
        return self.rows / self.limit_s

    @property
    def p90_s(self) -> float | None:
        """Nine of ten epochs took no longer."""
        return float(np.quantile(self.seconds, 0.9)) if self.seconds else None

    def typical(self, name: str) -> float:
        """The median of another figure; 0 if there is none."""
        found = self.series.get(name, [])
        return float(np.median(found)) if found else 0.0


def rows_of(epoch: int, rows: int, keys: int = KEYS) -> pa.Table:
    """The rows of one epoch."""
    random = np.random.default_rng((epoch, rows, keys))
    columns = [random.integers(0, keys, rows), random.integers(1, 100, rows)]
    return pa.table(columns, schema=SCHEMA)


def epochs_of(count: int, rows: int, keys: int = KEYS) -> Iterator[pa.Table]:
    """The rows of so many epochs."""
    return (rows_of(epoch, rows, keys) for epoch in range(count))


def write(path: Path, measured: Measured) -> None:
    """Add one result to a file of them."""
    with path.open("ab") as file:
        file.write(msgspec.json.encode(measured) + b"\n")


def pooled(found: Iterable[Measured]) -> list[Measured]:
    """The epochs of several runs of one system at one size as one result."""
    kept: dict[tuple[str, int, int], Measured] = {}
    for each in found:
        place = (each.system, each.rows, each.keys)
        kept[place] = _together(kept[place], each) if place in kept else each
    return list(kept.values())


def _together(one: Measured, other: Measured) -> Measured:
    names = one.series.keys() | other.series.keys()
    series = {name: one.series.get(name, []) + other.series.get(name, []) for name in names}
    return msgspec.structs.replace(one, seconds=one.seconds + other.seconds, series=series)


def measured_in(path: Path) -> list[Measured]:
    """All results of a file that may not be there."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Measured) for line in lines]
