"""Dead letters: events an operator could not process, kept in the same commit as all it could.

Each is a row of the table `<operator>.dead-letters`: the event's own columns, the error, and where
the event came from. Played again, it is appended to a topic below the root, which the job reads
like any other source; so a letter is processed again exactly once, however often one asks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from penstock.errors import Invalid
from penstock.runtime.inbox import Gathered
from penstock.sinks.protocol import PROVENANCE
from penstock.sinks.table_read import read_table, table_names
from penstock.sources import Log
from penstock.sources.protocol import Range

__all__ = [
    "LETTER_COLUMNS",
    "Letter",
    "dead_letter_rows",
    "dead_letters_name",
    "dead_letters_table",
    "find_letters",
    "find_undecodable",
    "operators_with_letters",
    "replay_letters",
    "replay_url",
    "sources_with_letters",
]

_ENDING = ".dead-letters"
_SOURCE_ENDING = ".undecodable"
_LETTER = "_letter"
"""The column of a topic of letters that says which letter a row is."""
PRODUCER = "replay"

LETTER_COLUMNS = ("_error", "_key", "_source", "_source_partition", "_offset", "_event_time")


def dead_letters_name(operator: str) -> str:
    """The table that an operator's dead letters go to."""
    return f"{operator}{_ENDING}"


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


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter."""

    name: str
    """Epoch, partition and sequence: unique in a root."""
    operator: str
    key: str
    event: str
    """Source, partition and offset; empty for a timer, which has no event."""
    error: str
    replayed: bool
    row: dict[str, Any]


def operators_with_letters(root: str) -> list[str]:
    """The operators of a job that can have dead letters."""
    return [n.removesuffix(_ENDING) for n in table_names(root) if n.endswith(_ENDING)]


def sources_with_letters(root: str) -> list[str]:
    """The sources of a job that keep what they cannot decode."""
    names = (name for name in table_names(root) if name.endswith(_SOURCE_ENDING))
    return [name.removesuffix(_SOURCE_ENDING) for name in names]


def find_undecodable(root: str, source: str) -> list["Letter"]:
    """Every message of a source that could not be decoded, oldest first."""
    rows = read_table(root, f"{source}{_SOURCE_ENDING}").to_pylist()
    return [_letter(source, row, set()) for row in rows]


def find_letters(root: str, operator: str) -> list[Letter]:
    """Every dead letter of an operator, oldest first."""
    played = _played(Log(replay_url(root, operator)))
    return [
        _letter(operator, row, played)
        for row in read_table(root, dead_letters_name(operator)).to_pylist()
    ]


def _letter(operator: str, row: dict[str, Any], played: set[str]) -> Letter:
    name = f"{row['_epoch']}/{row['_partition']}/{row['_sequence']}"
    source = row.get("_source")
    event = f"{source}/{row['_source_partition']}@{row['_offset']}" if source else ""
    return Letter(name, operator, row["_key"], event, row["_error"], name in played, row)


def _played(log: Log) -> set[str]:
    """The letters that were put there to be processed again."""
    try:
        spans = log.spans()
    except Invalid:  # nobody has asked for any yet
        return set()
    batches = (
        batch
        for partition, span in spans.items()
        for batch in log.read(partition, Range(start=span.earliest, stop=span.latest))
    )
    return {name for batch in batches for name in batch.column(_LETTER).to_pylist()}


def replay_letters(root: str, operator: str, letters: Sequence[Letter]) -> int:
    """Put letters where the job reads them again; how many. A timer's letter has no event."""
    chosen = [letter for letter in letters if letter.event]
    if not chosen:
        return 0
    schema = _columns(root, operator)
    log = Log(replay_url(root, operator))
    try:
        log.topic()
    except Invalid:
        log = Log.create(log.url, schema.append(pa.field(_LETTER, pa.string())))
    rows = [{**{n: letter.row[n] for n in schema.names}, _LETTER: letter.name} for letter in chosen]
    # Whoever else is at this now is replaced by the name, and told so.
    with log.producer(PRODUCER) as producer:
        producer.append(pa.Table.from_pylist(rows, log.schema()))
    return len(chosen)


def _columns(root: str, operator: str) -> pa.Schema:
    """The columns of the events themselves."""
    table = read_table(root, dead_letters_name(operator))
    hidden = {*LETTER_COLUMNS, *PROVENANCE.names}
    return pa.schema([each for each in table.schema if each.name not in hidden])
