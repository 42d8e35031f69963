"""Dead letters: events an operator could not process, kept in the same commit as all it could.

Each is a row of the table `<operator>.dead-letters`: the event's own columns, the error, and where
the event came from. Played again, it is appended to a topic below the root, which the job reads
like any other source; so a letter is processed again exactly once, however often one asks.
"""

from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from penstock.runtime.inbox import Gathered

__all__ = [
    "LETTER_COLUMNS",
    "dead_letter_rows",
    "dead_letters_name",
    "dead_letters_table",
    "replay_url",
]

LETTER_COLUMNS = ("_error", "_key", "_source", "_source_partition", "_offset", "_event_time")


def dead_letters_name(operator: str) -> str:
    """The table that an operator's dead letters go to."""
    return f"{operator}.dead-letters"


def replay_url(root: str, operator: str) -> str:
    """Where the letters are that are to be processed again."""
    return f"{root.rstrip('/')}/replays/{operator}"


def dead_letter_rows(gathered: Gathered, dead: Any, nulls: pa.Table | None) -> pa.Table:
    """The rows of a partition's dead letters in one epoch."""
    rows = np.array(dead.rows, np.int64)
    tables = [] if nulls is None else [nulls]
    tables.append(dead_letters_table(gathered, rows, dead.errors, dead.keys))
    return pa.concat_tables(tables)


def dead_letters_table(
    gathered: Gathered, rows: NDArray[np.int64], errors: list[str] | str, keys: list[str] | str
) -> pa.Table:
    """Some events as dead letters; row -1 stands for a timer, which has no event."""
    count = len(rows)
    places = pa.array(rows, mask=rows < 0)
    names = [name for name in gathered.table.column_names if not name.startswith("_")]
    table = gathered.table.select(names).take(places)
    origins = gathered.origins
    sources = pa.array([source for source, _ in origins.names], pa.string())
    partitions = pa.array([partition for _, partition in origins.names], pa.string())
    slots = pa.array(origins.slots).take(places)
    columns = {
        "_error": pa.array([errors] * count if isinstance(errors, str) else errors, pa.string()),
        "_key": pa.array([keys] * count if isinstance(keys, str) else keys, pa.string()),
        "_source": sources.take(slots),
        "_source_partition": partitions.take(slots),
        "_offset": origins.meta.column("offset").take(places),
        "_event_time": origins.meta.column("event_time").take(places),
    }
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table
