"""A function of somebody's own that keeps rows, once per epoch."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.clock import SystemChance
from penstock.sinks.for_each import Committed, ForEachEpoch
from penstock.sinks.staged import own_columns
from tests.support.sink_cases import Row, SinkCase


@contextmanager
def for_each_case(request: pytest.FixtureRequest, folder: Path) -> Iterator[SinkCase]:
    """It is idempotent by what it is given, as users are asked to make it."""
    kept: dict[str, list[Row]] = {}

    def keep(epoch: Committed, batches: Iterator[pa.RecordBatch]) -> None:
        kept[epoch.id] = [row for batch in batches for row in _own(batch)]

    sink = ForEachEpoch(keep, name=f"people-{SystemChance().unique()[:8]}")
    yield SinkCase(
        lambda columns, deletes, proxy: sink,
        lambda columns: [row for rows in kept.values() for row in rows],
    )


def _own(batch: pa.RecordBatch) -> list[Row]:
    rows: list[Row] = own_columns(pa.Table.from_batches([batch])).to_pylist()
    return rows
