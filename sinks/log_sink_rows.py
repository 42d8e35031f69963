"""Which partition of a topic each output row goes to, and how much of it makes a segment.

Both depend on the rows and the topic alone, so that an epoch that is applied again is shared out in
the same way.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from penstock.sinks.staged import own_columns, rows_of
from penstock.sources.log_lane import Batching
from penstock.sources.log_rows import fitted
from penstock.sources.log_topic import Topic
from penstock.state.key_groups import GROUPS
from penstock.state.key_hash import key_groups

__all__ = ["routed", "segments"]

_LARGEST = Batching()
"""What a producer makes a segment of."""


def routed(
    where: str, outputs: Sequence[bytes], columns: pa.Schema, topic: Topic, partitions: int
) -> dict[int, pa.Table]:
    """The rows of each partition that gets any, in their order, with the topic's columns."""
    parts: dict[int, list[pa.Table]] = {}
    for batch in rows_of(outputs, columns, ("_input",)).to_batches():
        numbers = _numbers(batch, topic.key, partitions)
        order = np.argsort(numbers, kind="stable")
        rows = fitted(where, own_columns(pa.Table.from_batches([batch])), topic.schema).take(order)
        ends = np.cumsum(np.bincount(numbers, minlength=partitions)).tolist()
        for number, (start, stop) in enumerate(zip([0, *ends], ends, strict=False)):
            if stop > start:
                parts.setdefault(number, []).append(rows.slice(start, stop - start))
    return {number: pa.concat_tables(tables) for number, tables in parts.items()}


def _numbers(batch: pa.RecordBatch, key: Sequence[str], partitions: int) -> NDArray[np.uint16]:
    """By the key, as every producer does; without one, as the job has them in its partitions."""
    if key:
        groups = key_groups([batch.column(name) for name in key])
        return (groups.astype(np.int64) * partitions // GROUPS).astype(np.uint16)
    own: NDArray[np.int32] = batch.column("_partition").to_numpy()
    return (own % partitions).astype(np.uint16)


def segments(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows cut into pieces that readers can hold."""
    fitting = rows.num_rows * _LARGEST.size_bytes // max(rows.nbytes, 1)
    length = max(1, min(_LARGEST.rows, fitting))
    for start in range(0, rows.num_rows, length):
        yield rows.slice(start, length).combine_chunks()
