"""How fast the state engine reads, writes and opens, against bare RocksDB.

What is compared runs in turn on the same keys, so that a busy machine slows both alike. Bare means
rocksdict in raw mode: a database with its own default options, and a loop that writes an SST with
the options of a delta (the same blocks and filters) or, where it says so, with the default ones.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rocksdict import Options, Rdict, SstFileWriter

from benchmarks.state_data import (
    DELTA_GROUPS,
    GROUP_KEYS,
    KEY_BYTES,
    ROUNDS,
    SETTINGS,
    VALUE_BYTES,
    Array,
    Data,
    Row,
    Watch,
    bare_write,
    columns,
    cut,
    faster,
    workspace,
)
from penstock.state.database import PartitionDatabase
from penstock.state.delta import write_delta
from penstock.state.keys import encode_key
from penstock.state.layout import DATA, section_prefix
from penstock.state.overlay import Overlay
from penstock.state.settings import sst_options

__all__ = ["opening", "overlay_read", "pages", "reading", "writing"]

DELTAS = 3
OPENINGS = 9
NEW_DELTA_KEYS = 10_000


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
        faster(data, "read through the overlay", done, overlay_s, bare_s, 0.7),
        faster(data, "read by Value.get, decoded", done, value_s, bare_s, None),
    ]


def overlay_read(database: PartitionDatabase, entries: list[bytes]) -> list[bytes | None]:
    """What an epoch does to have the bytes of its keys."""
    overlay = Overlay(database, SETTINGS.fetched_bytes)
    overlay.prefetch(entries)
    get = overlay.get
    return [get(entry) for entry in entries]


def value_read(database: PartitionDatabase, keys: list[tuple[int, bytes]]) -> list[Any]:
    """What an epoch does to have the values of its keys."""
    space = workspace(database)
    get = space.states["total"].get
    visiting = space.visit([group for group, _ in keys], [key for _, key in keys])
    return [get() for _ in visiting]


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
        faster(data, "delta, changes in key order", done, ordered_s, bare_s, 0.7),
        faster(data, "the same, bare with default options", done, ordered_s, default_s, None),
        faster(data, "the same, the bare loop sorts, too", done, ordered_s, sorting_s, None),
        faster(data, what, done, mixed_s, bare_mixed_s, None),
    ]


def bare_write_sorting(path: Path, changes: dict[bytes, bytes]) -> None:
    """The same from what a delta is made from, which has to be sorted first."""
    writer = SstFileWriter(options=sst_options(SETTINGS))
    writer.open(str(path))
    for key in sorted(changes):
        writer[key] = changes[key]
    writer.finish()


def bare_write_columns(path: Path, keys: Array, values: Array) -> None:
    """The same from columns, which have to become objects, and be sorted, first."""
    pairs = zip(cut(keys.tobytes(), KEY_BYTES), cut(values.tobytes(), VALUE_BYTES), strict=True)
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
        faster(data, "Columns.get_many", len(keys), get_s, read_s, 1.0),
        faster(data, "Columns.put_many, and the delta", len(keys), put_s, written_s, 1.0),
        faster(data, "the same, bare with default options", len(keys), put_s, default_s, None),
        faster(data, "the same, bare from the same columns", len(keys), put_s, columns_s, None),
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


class _Nothing:
    """A committed version that is empty."""

    def get(self, key: bytes) -> bytes | None:
        return None

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        return [None for _ in keys]

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(())
