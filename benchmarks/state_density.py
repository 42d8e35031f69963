"""From which share of changed keys on pages pay, against an entry per key.

One epoch reads and changes a share of all keys and writes its delta, both ways.
"""

import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from rich.table import Table

from benchmarks.state_data import (
    ROUNDS,
    SETTINGS,
    VALUE_BYTES,
    Array,
    Data,
    columns,
    cut,
    workspace,
)
from penstock.state.database import PartitionDatabase
from penstock.state.keys import encode_key
from penstock.state.overlay import Overlay

__all__ = ["Density", "crossover", "densities", "density_table"]

DENSITIES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


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
    keys: Array,
    values: Array,
    groups: Array,
) -> tuple[float, int]:
    """Seconds, and the size of the delta, with an entry per key."""
    started = time.perf_counter()
    space = workspace(database)
    visiting = space.visit(groups.tolist(), [encode_key(key) for key in keys.tolist()])
    total = space.states["total"]
    for value, _ in zip(cut(values.tobytes(), VALUE_BYTES), visiting, strict=True):
        total.get()
        total.set(value)
    delta = space.finish(data.folder / "value.sst", data.marker(), SETTINGS)
    return time.perf_counter() - started, 0 if delta is None else delta.size_bytes


def pages_epoch(
    data: Data,
    database: PartitionDatabase,
    keys: Array,
    values: Array,
    groups: Array,
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
