"""What the state benchmarks measure on: keys and values, databases of them, and rows of results.

Keys of 16 bytes, values of 32, both random. A `Data` makes them group by group, the same on every
run, and builds each database when a measurement first asks for it.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from rocksdict import Options, Rdict, SstFileWriter

from penstock.ids import Attempt, Epoch, Generation
from penstock.state.columns import Columns
from penstock.state.database import PartitionDatabase
from penstock.state.declare import StateSpec
from penstock.state.delta import DeltaFile, Marker, write_delta
from penstock.state.keys import encode_key
from penstock.state.overlay import Overlay
from penstock.state.settings import StateSettings
from penstock.state.workspace import EpochTimes, Workspace

__all__ = [
    "DELTA_GROUPS", "GROUP_KEYS", "KEY_BYTES", "ROUNDS", "SETTINGS", "SPECS", "TIMES",
    "VALUE_BYTES", "Array", "Data", "Row", "Watch", "bare_write", "columns", "cut", "faster",
    "workspace",
]  # fmt: skip

Array = np.ndarray[Any, Any]

KEY_BYTES, VALUE_BYTES = 16, 32
GROUP_KEYS = 100_000
"""Keys of one key group, which are also read at once: what a batch of an epoch is."""
GROUPS_READ = 20
"""Of a larger state, a part is read: so many groups, spread over all."""
DELTA_GROUPS = 10
ROUNDS = 3
SETTINGS = StateSettings()
SPECS = [StateSpec("total", "value", None, bytes)]
TIMES = EpochTimes(watermark_ms=None, planned_ms=0)


@dataclass(frozen=True)
class Row:
    """One thing measured, beside what it is compared with."""

    keys: int
    what: str
    figure: str
    compared: str = ""
    ratio: float | None = None
    bar: str = ""
    met: bool | None = None


class Data:
    """So many keys and values, made group by group, and the databases that hold them."""

    def __init__(self, keys: int, folder: Path) -> None:
        self.keys = keys
        self.folder = folder
        self.groups = max(1, keys // GROUP_KEYS)
        self._epoch = 0

    def group(self, number: int) -> tuple[list[bytes], list[bytes]]:
        """The keys of a group, sorted, and their values."""
        keys, values = (array.tobytes() for array in self.columns(number))
        return cut(keys, KEY_BYTES), cut(values, VALUE_BYTES)

    def columns(self, number: int) -> tuple[Array, Array]:
        """The same as columns. A key begins with its group, so the groups are in order too."""
        random = np.random.default_rng(number)
        count = min(GROUP_KEYS, self.keys)
        body = np.frombuffer(random.bytes(KEY_BYTES * count), np.uint8).reshape(count, KEY_BYTES)
        named = np.maximum(body, 1)  # a zero would be escaped, and the key be longer
        named[:, :2] = 1 + number // 250, 1 + number % 250
        keys = np.sort(named.view(f"S{KEY_BYTES}").reshape(count))
        return keys, np.frombuffer(random.bytes(VALUE_BYTES * count), f"V{VALUE_BYTES}")

    def batch(self) -> tuple[Array, ...]:
        """All keys, values and key groups, in the order in which events might come."""
        keys, values = zip(*(self.columns(number) for number in range(self.groups)), strict=True)
        groups = np.repeat(np.arange(self.groups, dtype=np.uint16), [len(k) for k in keys])
        order = np.random.default_rng(0).permutation(len(groups))
        return np.concatenate(keys)[order], np.concatenate(values)[order], groups[order]

    def some_groups(self) -> list[int]:
        """The groups that are read."""
        return list(range(0, self.groups, -(-self.groups // GROUPS_READ)))

    @cached_property
    def bare(self) -> Path:
        """A database of rocksdict's own making."""
        database = Rdict(str(self.folder / "bare"), Options(raw_mode=True))
        for start in range(0, self.groups, DELTA_GROUPS):
            path = self.folder / "bare.sst"
            bare_write(path, list(self.pairs(start, DELTA_GROUPS)), Options(raw_mode=True))
            database.ingest_external_file([str(path)])
            path.unlink()
        database.close()
        return self.folder / "bare"

    @cached_property
    def engine(self) -> Path:
        """A partition's database with an entry per key."""
        with PartitionDatabase(self.folder / "engine", SETTINGS) as database:
            for start in range(0, self.groups, DELTA_GROUPS):
                space = workspace(database)
                for number in range(start, min(self.groups, start + DELTA_GROUPS)):
                    for key, value in zip(*self.group(number), strict=True):
                        space.bind(number, encode_key(key))
                        space.states["total"].set(value)
                delta = space.finish(self.folder / "build.sst", self.marker(), SETTINGS)
                assert delta is not None
                database.ingest([delta.path])
            database.compact()
        return self.folder / "engine"

    @cached_property
    def paged(self) -> Path:
        """A partition's database with pages."""
        with PartitionDatabase(self.folder / "paged", SETTINGS) as database:
            overlay = Overlay(database)
            columns(overlay).put_many(*self.batch())
            database.ingest([self.delta("build.sst", overlay).path])
        return self.folder / "paged"

    def pairs(self, start: int, groups: int) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values of some groups."""
        for number in range(start, min(self.groups, start + groups)):
            yield from zip(*self.group(number), strict=True)

    def marker(self) -> Marker:
        """The next version's."""
        self._epoch += 1
        return Marker(
            job="bench",
            operator="totals",
            partition=0,
            generation=Generation(1),
            epoch=Epoch(self._epoch),
            attempt=Attempt("a"),
        )

    def delta(self, name: str, overlay: Overlay) -> DeltaFile:
        """What an overlay has changed, as a file."""
        return write_delta(self.folder / name, self.marker(), overlay.changes, b"{}", SETTINGS)


class Watch:
    """Seconds spent, by what is measured and by the part of the data it is measured on."""

    def __init__(self) -> None:
        self._best_s: dict[tuple[str, int], float] = {}

    def time(self, name: str, part: int, work: Callable[[], Any]) -> Any:
        """Do it, and keep how long it took if it never took less."""
        started = time.perf_counter()
        result = work()
        taken_s = time.perf_counter() - started
        best_s = self._best_s.get((name, part), taken_s)
        self._best_s[name, part] = min(best_s, taken_s)
        return result

    def spent_s(self, name: str) -> float:
        """All parts together, each at its best."""
        return sum(taken_s for (each, _), taken_s in self._best_s.items() if each == name)


def bare_write(path: Path, pairs: list[tuple[bytes, bytes]], options: Options) -> None:
    """The least that a Python loop can do to make an SST."""
    writer = SstFileWriter(options=options)
    writer.open(str(path))
    for key, value in pairs:
        writer[key] = value
    writer.finish()


def workspace(database: PartitionDatabase) -> Workspace:
    """The engine with one value per key."""
    return Workspace(database, "totals", SPECS, range(1 << 15), TIMES)


def columns(overlay: Overlay) -> Columns[Any, Any]:
    """The vectorised view of the same."""
    return Columns(overlay, "total", 0, f"S{KEY_BYTES}", f"V{VALUE_BYTES}")


def cut(body: bytes, width: int) -> list[bytes]:
    """Packed items, each as an object of its own."""
    return [body[at : at + width] for at in range(0, len(body), width)]


def faster(
    data: Data, what: str, done: int, taken_s: float, bare_s: float, bar: float | None
) -> Row:
    """A row about keys per second."""
    ratio = bare_s / taken_s
    return Row(
        data.keys,
        what,
        f"{done / taken_s:,.0f} keys/s",
        f"{done / bare_s:,.0f} keys/s",
        ratio,
        "" if bar is None else f"≥ {bar:g}",
        None if bar is None else ratio >= bar,
    )
