"""How near to bare RocksDB the state engine is: reading, writing, opening, memory, and pages.

    make bench-state                                  1 M and 10 M keys
    python -m benchmarks.state --sizes 100000         a quick try

Keys of 16 bytes, values of 32, both random. What is compared runs in turn on the same keys, so
that a busy machine slows both alike. Bare means rocksdict in raw mode: a database with its own
default options, and a loop that writes an SST with the options of a delta (the same blocks and
filters) or, where it says so, with the default ones. Every measurement is one function in
`MEASUREMENTS`; it takes a `Data` and returns rows.
"""

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rocksdict import Options, Rdict, SstFileWriter

from benchmarks.results import markdown, write_section
from penstock.ids import Attempt, Epoch, Generation
from penstock.state.columns import Columns
from penstock.state.database import PartitionDatabase
from penstock.state.declare import StateSpec
from penstock.state.delta import DeltaFile, Marker, write_delta
from penstock.state.keys import encode_key
from penstock.state.layout import DATA, section_prefix
from penstock.state.overlay import Overlay
from penstock.state.settings import StateSettings, sst_options
from penstock.state.workspace import EpochTimes, Workspace

SIZES = (1_000_000, 10_000_000)
KEY_BYTES, VALUE_BYTES = 16, 32
GROUP_KEYS = 100_000
"""Keys of one key group, which are also read at once: what a batch of an epoch is."""
GROUPS_READ = 20
"""Of a larger state, a part is read: so many groups, spread over all."""
DELTA_GROUPS = 10
DELTAS = 3
OPENINGS = 9
NEW_DELTA_KEYS = 10_000
ROUNDS = 3
DENSITIES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
SETTINGS = StateSettings()
SPECS = [StateSpec("total", "value", None, bytes)]
TIMES = EpochTimes(watermark_ms=None, planned_ms=0)


@dataclass(frozen=True)
class Row:
    """One thing measured, beside what it is compared with."""

    keys: int
    what: str
    figure: str
    bare: str = ""
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
        return _cut(keys, KEY_BYTES), _cut(values, VALUE_BYTES)

    def columns(self, number: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The same as columns. A key begins with its group, so the groups are in order too."""
        random = np.random.default_rng(number)
        count = min(GROUP_KEYS, self.keys)
        body = np.frombuffer(random.bytes(KEY_BYTES * count), np.uint8).reshape(count, KEY_BYTES)
        named = np.maximum(body, 1)  # a zero would be escaped, and the key be longer
        named[:, :2] = 1 + number // 250, 1 + number % 250
        keys = np.sort(named.view(f"S{KEY_BYTES}").reshape(count))
        return keys, np.frombuffer(random.bytes(VALUE_BYTES * count), f"V{VALUE_BYTES}")

    def batch(self) -> tuple[np.ndarray[Any, Any], ...]:
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


def reading(data: Data) -> list[Row]:
    """Sorted `multi_get`, the overlay, and a value's own `get`."""
    watch, done = Watch(), 0
    with PartitionDatabase(data.engine, SETTINGS) as database:
        bare = Rdict(str(data.bare), Options(raw_mode=True))
        for number in data.some_groups():
            keys = data.group(number)[0]
            named = [(number, encode_key(key)) for key in keys]
            entries = [section_prefix(number, DATA) + key + b"\x00" for _, key in named]
            works: dict[str, Callable[[], list[Any]]] = {
                "bare": partial(bare.get, keys),
                "overlay": partial(overlay_read, database, entries),
                "value": partial(value_read, database, named),
            }
            for name, work in [*works.items()] * ROUNDS:
                assert None not in watch.time(name, number, work)
            done += len(keys)
        bare.close()
    bare_s, overlay_s, value_s = map(watch.spent_s, ("bare", "overlay", "value"))
    return [
        _faster(data, "read through the overlay", done, overlay_s, bare_s, 0.7),
        _faster(data, "read by Value.get, decoded", done, value_s, bare_s, None),
    ]


def overlay_read(database: PartitionDatabase, entries: list[bytes]) -> list[bytes | None]:
    """What an epoch does to have the bytes of its keys."""
    overlay = Overlay(database)
    overlay.prefetch(entries)
    get = overlay.get
    return [get(entry) for entry in entries]


def value_read(database: PartitionDatabase, keys: list[tuple[int, bytes]]) -> list[Any]:
    """What an epoch does to have the values of its keys."""
    space = workspace(database)
    space.prefetch(keys)
    bind, get = space.bind, space.states["total"].get
    found = []
    for group, key in keys:
        bind(group, key)
        found.append(get())
    return found


def writing(data: Data) -> list[Row]:
    """A bare loop over sorted pairs, and a delta: of changes made in order, and in no order."""
    watch, done, path = Watch(), 0, data.folder / "written.sst"
    for start in range(0, min(data.groups, DELTAS * DELTA_GROUPS), DELTA_GROUPS):
        pairs = list(data.pairs(start, DELTA_GROUPS))
        shuffled = [pairs[at] for at in np.random.default_rng(0).permutation(len(pairs))]
        ordered, mixed = dict(pairs), dict(shuffled)
        works: dict[str, Callable[[], Any]] = {
            "bare": partial(bare_write, path, pairs, sst_options(SETTINGS)),
            "default": partial(bare_write, path, pairs, Options(raw_mode=True)),
            "ordered": partial(write_delta, path, data.marker(), ordered, b"{}", SETTINGS),
            "mixed": partial(write_delta, path, data.marker(), mixed, b"{}", SETTINGS),
            "bare sorting": partial(bare_write_sorting, path, ordered),
            "bare mixed": partial(bare_write_sorting, path, mixed),
        }
        for name, work in [*works.items()] * ROUNDS:
            watch.time(name, start, work)
        done += len(pairs)
    bare_s, default_s, ordered_s = map(watch.spent_s, ("bare", "default", "ordered"))
    sorting_s, mixed_s, bare_mixed_s = map(watch.spent_s, ("bare sorting", "mixed", "bare mixed"))
    what = "delta, changes in no order, the bare loop sorts them, too"
    return [
        _faster(data, "delta, changes in key order", done, ordered_s, bare_s, 0.7),
        _faster(data, "the same, bare with default options", done, ordered_s, default_s, None),
        _faster(data, "the same, the bare loop sorts, too", done, ordered_s, sorting_s, None),
        _faster(data, what, done, mixed_s, bare_mixed_s, None),
    ]


def bare_write(path: Path, pairs: list[tuple[bytes, bytes]], options: Options) -> None:
    """The least that a Python loop can do to make an SST."""
    writer = SstFileWriter(options=options)
    writer.open(str(path))
    for key, value in pairs:
        writer[key] = value
    writer.finish()


def bare_write_sorting(path: Path, changes: dict[bytes, bytes]) -> None:
    """The same from what a delta is made from, which has to be sorted first."""
    writer = SstFileWriter(options=sst_options(SETTINGS))
    writer.open(str(path))
    for key in sorted(changes):
        writer[key] = changes[key]
    writer.finish()


def bare_write_columns(
    path: Path, keys: np.ndarray[Any, Any], values: np.ndarray[Any, Any]
) -> None:
    """The same from columns, which have to become objects, and be sorted, first."""
    pairs = zip(_cut(keys.tobytes(), KEY_BYTES), _cut(values.tobytes(), VALUE_BYTES), strict=True)
    bare_write(path, sorted(pairs), sst_options(SETTINGS))


def pages(data: Data) -> list[Row]:
    """All keys in one batch, in the order of events, against the bare loops over sorted ones."""
    watch, path = Watch(), data.folder / "written.sst"
    keys, values, groups = data.batch()
    changed = np.ascontiguousarray(values[::-1])
    bare = Rdict(str(data.bare), Options(raw_mode=True))
    parts = [(n, list(data.pairs(n, DELTA_GROUPS))) for n in data.some_groups()[::DELTA_GROUPS]]
    written = {"bare write": sst_options(SETTINGS), "bare default": Options(raw_mode=True)}
    with PartitionDatabase(data.paged, SETTINGS) as database:
        for _ in range(ROUNDS):
            overlay = Overlay(database)
            view = columns(overlay)
            _, found = watch.time("get", 0, partial(view.get_many, keys, groups))
            assert found.all()
            watch.time("put", 0, partial(view.put_many, keys, changed, groups))
            watch.time("delta", 0, partial(data.delta, path.name, overlay))
            some = slice(0, DELTA_GROUPS * GROUP_KEYS)
            loop = partial(bare_write_columns, path, keys[some], changed[some])
            watch.time("bare columns", 0, loop)
            for number, pairs in parts:
                watch.time("bare read", number, partial(bare.get, [key for key, _ in pairs]))
                for name, options in written.items():
                    watch.time(name, number, partial(bare_write, path, pairs, options))
    bare.close()
    names = ("bare read", "bare write", "bare default")
    share = len(keys) / sum(len(pairs) for _, pairs in parts)
    read_s, written_s, default_s = (watch.spent_s(name) * share for name in names)
    get_s, put_s = watch.spent_s("get"), watch.spent_s("put") + watch.spent_s("delta")
    columns_s = watch.spent_s("bare columns") * len(keys) / len(keys[some])
    return [
        _faster(data, "Columns.get_many", len(keys), get_s, read_s, 1.0),
        _faster(data, "Columns.put_many, and the delta", len(keys), put_s, written_s, 1.0),
        _faster(data, "the same, bare with default options", len(keys), put_s, default_s, None),
        _faster(data, "the same, bare from the same columns", len(keys), put_s, columns_s, None),
    ]


def opening(data: Data) -> list[Row]:
    """Opening and taking in one delta, against opening alone."""
    pairs = list(data.pairs(0, 1))[:NEW_DELTA_KEYS]
    deltas = []
    for number in range(OPENINGS):
        overlay = Overlay(_Nothing())
        overlay.changes.update((section_prefix(0, DATA) + key, value) for key, value in pairs)
        deltas.append(data.delta(f"new-{number}.sst", overlay).path)
    bare_ms, engine_ms = [], []
    for delta in deltas:
        started = time.perf_counter()
        database = Rdict(str(data.bare), Options(raw_mode=True))
        bare_ms.append((time.perf_counter() - started) * 1000)
        database.close()
        started = time.perf_counter()
        with PartitionDatabase(data.engine, SETTINGS) as partition:
            partition.ingest([delta])
            engine_ms.append((time.perf_counter() - started) * 1000)
    taken, bare = statistics.median(engine_ms), statistics.median(bare_ms)
    what = f"open, and take in a delta of {NEW_DELTA_KEYS:,} keys"
    ratio = taken / bare
    return [
        Row(data.keys, what, f"{taken:.1f} ms", f"{bare:.1f} ms", ratio, "≤ 3", ratio <= 3),
    ]


def memory(data: Data) -> list[Row]:
    """The peak of a fresh process that reads every key, batch by batch."""
    readers = {"overlay": data.engine, "columns": data.paged, "bare": data.bare, "nothing": ""}
    peaks = {reader: _peak_of(reader, data.keys, folder) for reader, folder in readers.items()}
    bare = f"{peaks['bare'] >> 20} MiB"
    cache = f"block cache {SETTINGS.block_cache_bytes >> 20} MiB, process {peaks['nothing'] >> 20}"
    return [
        Row(
            data.keys,
            f"peak memory, {reader}, batches of {GROUP_KEYS:,} ({cache} MiB)",
            f"{peaks[reader] >> 20} MiB",
            bare,
            peaks[reader] / peaks["bare"],
        )
        for reader in ("overlay", "columns")
    ]


def _peak_of(reader: str, keys: int, folder: Path | str) -> int:
    command = [sys.executable, "-m", "benchmarks.state", "--peak", reader]
    command += ["--sizes", str(keys), "--folder", str(folder)]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def peak(reader: str, data: Data, folder: str) -> int:
    """Read everything, and say how much memory that took at most, in bytes."""
    if reader == "bare":
        bare = Rdict(folder, Options(raw_mode=True))
    elif reader != "nothing":
        database = PartitionDatabase(Path(folder), SETTINGS)
    for number in range(data.groups):
        if reader == "columns":
            keys, _ = data.columns(number)
            groups = np.full(len(keys), number, np.uint16)
            assert columns(Overlay(database)).get_many(keys, groups)[1].all()
        elif reader == "overlay":
            prefix = section_prefix(number, DATA)
            entries = [prefix + encode_key(key) + b"\x00" for key in data.group(number)[0]]
            assert None not in overlay_read(database, entries)
        elif reader == "bare":
            assert None not in bare.get(data.group(number)[0])
        else:
            data.group(number)
    # Not getrusage: its maximum is kept over exec, and is then that of the parent.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


MEASUREMENTS: tuple[Callable[[Data], list[Row]], ...] = (
    reading,
    writing,
    pages,
    opening,
    memory,
    # Room for what needs a store: restore from a snapshot and deltas, bytes uploaded per epoch.
)


@dataclass(frozen=True)
class Density:
    """One epoch that reads and changes a share of all keys, done both ways."""

    share: float
    value_s: float
    value_bytes: int
    pages_s: float
    pages_bytes: int


def densities(data: Data) -> list[Density]:
    """From which share of keys on pages pay: read, change, and write the delta."""
    keys, values, groups = data.batch()
    found = []
    with (
        PartitionDatabase(data.engine, SETTINGS) as entries,
        PartitionDatabase(data.paged, SETTINGS) as paged,
    ):
        for share in DENSITIES:
            count = max(1, round(len(keys) * share))
            changed = values[::-1][:count]
            both = [
                (
                    value_epoch(data, entries, keys[:count], changed, groups[:count]),
                    pages_epoch(data, paged, keys[:count], changed, groups[:count]),
                )
                for _ in range(ROUNDS)
            ]
            (value_s, value_bytes), (pages_s, pages_bytes) = map(min, zip(*both, strict=True))
            found.append(Density(share, value_s, value_bytes, pages_s, pages_bytes))
    return found


def value_epoch(
    data: Data,
    database: PartitionDatabase,
    keys: np.ndarray[Any, Any],
    values: np.ndarray[Any, Any],
    groups: np.ndarray[Any, Any],
) -> tuple[float, int]:
    """Seconds, and the size of the delta, with an entry per key."""
    started = time.perf_counter()
    space = workspace(database)
    named = list(zip(groups.tolist(), map(encode_key, keys.tolist()), strict=True))
    space.prefetch(named)
    total = space.states["total"]
    for (group, key), value in zip(named, _cut(values.tobytes(), VALUE_BYTES), strict=True):
        space.bind(group, key)
        total.get()
        total.set(value)
    delta = space.finish(data.folder / "value.sst", data.marker(), SETTINGS)
    return time.perf_counter() - started, 0 if delta is None else delta.size_bytes


def pages_epoch(
    data: Data,
    database: PartitionDatabase,
    keys: np.ndarray[Any, Any],
    values: np.ndarray[Any, Any],
    groups: np.ndarray[Any, Any],
) -> tuple[float, int]:
    """The same with pages."""
    started = time.perf_counter()
    overlay = Overlay(database)
    view = columns(overlay)
    view.get_many(keys, groups)
    view.put_many(keys, values, groups)
    delta = data.delta("pages.sst", overlay)
    return time.perf_counter() - started, delta.size_bytes


def crossover(found: list[Density]) -> str:
    """Where pages begin to be faster, on a line between the two shares around it, in words."""
    for low, high in pairwise(found):
        below, above = np.log(low.pages_s / low.value_s), np.log(high.pages_s / high.value_s)
        if below > 0 >= above:
            shares = np.log([low.share, high.share])
            share = float(np.exp(shares[0] + (shares[1] - shares[0]) * below / (below - above)))
            return f"Pages are faster from {share:.1%} of the keys on."
    always = found[0].pages_s <= found[0].value_s
    return "Pages are faster throughout." if always else "Pages are slower throughout."


class _Nothing:
    """A committed version that is empty."""

    def get(self, key: bytes) -> bytes | None:
        return None

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        return [None for _ in keys]

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(())


def workspace(database: PartitionDatabase) -> Workspace:
    """The engine with one value per key."""
    return Workspace(database, "totals", SPECS, range(1 << 15), TIMES)


def columns(overlay: Overlay) -> Columns:
    """The vectorised view of the same."""
    return Columns(overlay, "total", 0, f"S{KEY_BYTES}", f"V{VALUE_BYTES}")


def _cut(body: bytes, width: int) -> list[bytes]:
    return [body[at : at + width] for at in range(0, len(body), width)]


def _faster(
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


def row_table(rows: list[Row]) -> Table:
    """Everything measured, with its bar."""
    table = Table("keys", "what", "Penstock", "bare rocksdict", "ratio", "bar", "met")
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        met = {None: "", True: "yes", False: "no"}[row.met]
        table.add_row(f"{row.keys:,}", row.what, row.figure, row.bare, ratio, row.bar, met)
    return table


def density_table(found: list[Density]) -> Table:
    """Both ways, by the share of keys."""
    table = Table("share of keys", "Value, ms", "pages, ms", "Value, delta kB", "pages, delta kB")
    for each in found:
        table.add_row(
            f"{each.share:.1%}",
            f"{each.value_s * 1000:,.1f}",
            f"{each.pages_s * 1000:,.1f}",
            f"{each.value_bytes / 1000:,.0f}",
            f"{each.pages_bytes / 1000:,.0f}",
        )
    return table


def report(rows: list[Row], found: list[Density], keys: int) -> str:
    """The section of RESULTS.md."""

    machine = (
        f"{os.cpu_count()} cores (load {os.getloadavg()[2]:.1f} over 15 minutes), "
        f"{platform.system()}, Python {platform.python_version()}"
    )
    return "\n".join(
        [
            "## State",
            "",
            f"`make bench-state`, {datetime.now(UTC):%Y-%m-%d}, {machine}. Keys of {KEY_BYTES} "
            f"bytes, values of {VALUE_BYTES}, random. Bare is rocksdict: a database with default "
            "options, and a loop that writes an SST with those of a delta. Bare loops are given "
            "their keys sorted, `Columns` in the order of events. Databases are compacted; every "
            f"part is measured {ROUNDS} times in turn, and the best counts.",
            "",
            markdown(row_table(rows)),
            "",
            f"Pages or an entry per key: one epoch that reads and changes a share of {keys:,} "
            f"keys and writes its delta, the best of {ROUNDS}.",
            "",
            markdown(density_table(found)),
            "",
            f"{crossover(found)} Their delta is the larger one until nearly all keys change.",
        ]
    )


def measure(sizes: list[int]) -> tuple[list[Row], list[Density]]:
    """Every measurement at every size; the densities at the smallest."""
    rows: list[Row] = []
    found: list[Density] = []
    for keys in sizes:
        folder = Path(tempfile.mkdtemp(prefix="bench-state-"))
        try:
            data = Data(keys, folder)
            found = found or densities(data)
            for measurement in MEASUREMENTS:
                rows += measurement(data)
                print(f"{keys:,} keys: {measurement.__name__} done", file=sys.stderr)
        finally:
            shutil.rmtree(folder)
    return rows, found


def main() -> None:
    """Measure, show, and write it down."""
    parser = argparse.ArgumentParser(description="How near to bare RocksDB the state engine is.")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="keys")
    parser.add_argument("--dry", action="store_true", help="leave RESULTS.md as it is")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print(peak(options.peak, Data(options.sizes[0], Path()), options.folder))
        return
    sizes = sorted(options.sizes)
    rows, found = measure(sizes)
    console = Console()
    console.print(row_table(rows))
    console.print(density_table(found))
    console.print(crossover(found))
    if not options.dry:
        write_section("state", report(rows, found, sizes[0]))


if __name__ == "__main__":
    main()
