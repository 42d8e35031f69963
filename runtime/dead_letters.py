"""Dead letters: events an operator could not process, kept in the same commit as all it could.

Each is a row of the table `<operator>.dead-letters`: the event's own columns, the error, and where
the event came from. Replayed, it is a row of `<operator>.replayed` too, in the epoch that processed
it again (`replay_choice`). Both tables are read as of HEAD, and so are of one line of history.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from penstock.checkpoint.perform import perform
from penstock.checkpoint.root import Root
from penstock.errors import Corrupt, Unavailable
from penstock.ids import Epoch, Generation, Key
from penstock.runtime.inbox import Gathered
from penstock.runtime.letters import LetterKey, dead_letters_name, letter_name, replayed_name
from penstock.runtime.replay_requests import LETTERS_MAX, ask, open_requests
from penstock.runtime.replay_topics import FromTopic, replayed_from_topic
from penstock.runtime.row_values import python_rows
from penstock.sinks.protocol import PROVENANCE
from penstock.sinks.table_index import find_files
from penstock.sinks.table_read import fetch_file, read_table, table_names

__all__ = [
    "LETTER_COLUMNS",
    "Letter",
    "State",
    "dead_letter_rows",
    "dead_letters_table",
    "find_letters",
    "find_undecodable",
    "operators_with_letters",
    "replay_letters",
    "sources_with_letters",
]

_ENDING = ".dead-letters"
_SOURCE_ENDING = ".undecodable"
LOOKS_MAX = 5
"""How often letters are read again because history was rewound meanwhile."""

LETTER_COLUMNS = ("_error", "_key", "_source", "_source_partition", "_offset", "_event_time")


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


class State(StrEnum):
    """What became of a letter."""

    DEAD = ""
    REQUESTED = "requested"
    REPLAYED = "replayed"
    UNKNOWN = "unknown"
    """A root that an older version has forked does not say whether it was replayed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One dead letter."""

    name: str
    """Operator, epoch, partition and number; with a mark, if history was ever rewound."""
    operator: str
    key: str
    event: str
    """Source, partition and offset; empty for a timer, which has no event."""
    error: str
    state: State
    row: dict[str, Any]
    place: LetterKey
    generation: Generation
    """The line of history it was seen in."""


def operators_with_letters(root: str) -> list[str]:
    """The operators of a job that can have dead letters."""
    return [n.removesuffix(_ENDING) for n in table_names(root) if n.endswith(_ENDING)]


def sources_with_letters(root: str) -> list[str]:
    """The sources of a job that keep what they cannot decode."""
    names = (name for name in table_names(root) if name.endswith(_SOURCE_ENDING))
    return [name.removesuffix(_SOURCE_ENDING) for name in names]


def find_undecodable(root: str, source: str) -> list[Letter]:
    """Every message of a source that could not be decoded, oldest first."""
    opened = Root.open(root)
    look = _Look(opened.head().generation, source, {}, set(), FromTopic())
    return look.letters(opened, f"{source}{_SOURCE_ENDING}")


def find_letters(root: str, operator: str) -> list[Letter]:
    """Every dead letter of an operator, oldest first, all of one line of history."""
    opened = Root.open(root)
    for _ in range(LOOKS_MAX):
        generation = opened.head().generation
        look = _Look(
            generation,
            operator,
            _replayed(opened, operator),
            _requested(opened, operator, generation),
            replayed_from_topic(opened, operator),
        )
        letters = look.letters(opened, dead_letters_name(operator))
        if opened.head().generation == generation:
            return letters
    raise Unavailable(root, "is being rewound again and again", "look again later")


@dataclass(frozen=True, slots=True)
class _Look:
    """What is known of the letters of one operator or source."""

    generation: Generation
    operator: str
    replayed: dict[LetterKey, Epoch]
    requested: set[LetterKey]
    topic: FromTopic

    def letters(self, root: Root, table: str) -> list[Letter]:
        """All of them, file by file."""
        files = find_files(root, table)
        found = []
        for file in files:
            key = file.output.ref.key
            schema, batches = fetch_file(files, file.output.ref)
            _check_letters(key, schema)
            for batch in batches:
                _check_places(key, batch)
                rows = python_rows(pa.Table.from_batches([batch]))
                found += [self._letter(key, row) for row in rows]
        return found

    def _letter(self, file: Key, row: dict[str, Any]) -> Letter:
        place = (file, row["_sequence"])
        source = row.get("_source")
        event = f"{source}/{row['_source_partition']}@{row['_offset']}" if source else ""
        return Letter(
            name=letter_name(self.operator, place, marked=self.generation > 1),
            operator=self.operator,
            key=str(row["_key"]),
            event=event,
            error=str(row["_error"]),
            state=self._state(place, row),
            row=row,
            place=place,
            generation=self.generation,
        )

    def _state(self, place: LetterKey, row: dict[str, Any]) -> State:
        at = (row["_epoch"], row["_partition"], row["_sequence"])
        if place in self.replayed or at in self.topic.places:
            return State.REPLAYED
        if place in self.requested:
            return State.REQUESTED
        return State.UNKNOWN if at[0] < self.topic.unknown_below else State.DEAD


_LETTER_COLUMNS = {
    "_key": pa.string(),
    "_error": pa.string(),
    **{name: PROVENANCE.field(name).type for name in ("_epoch", "_partition", "_sequence")},
}
_EVENT_COLUMNS = {
    "_source": pa.string(),
    "_source_partition": pa.string(),
    "_offset": pa.int64(),
}


def _check_letters(key: Key, schema: pa.Schema) -> None:
    """Raise `Corrupt` unless a file has the columns of dead letters."""
    told = dict(zip(schema.names, schema.types, strict=True))
    wanted = {**_LETTER_COLUMNS, **(_EVENT_COLUMNS if "_source" in told else {})}
    for name, kind in wanted.items():
        if told.get(name) != kind:
            found = f"has a column {name!r} of {told.get(name)}, and a dead letter's is {kind}"
            raise Corrupt(key, found, "restore it from a copy: it was altered or forged")


def _check_places(key: Key, batch: pa.RecordBatch) -> None:
    """Raise `Corrupt` if a letter does not say where it is."""
    for name in ("_epoch", "_partition", "_sequence"):
        if batch.column(name).null_count:
            found = f"has a dead letter whose {name!r} is null"
            raise Corrupt(key, found, "restore it from a copy: it was altered or forged")


def _replayed(root: Root, operator: str) -> dict[LetterKey, Epoch]:
    """The letters that were replayed, and the epoch that did."""
    newest = root.newest()
    if newest is None or replayed_name(operator) not in newest.sinks:
        return {}
    table = read_table(root, replayed_name(operator))
    if not table.num_rows:
        return {}
    names = ("_letter_file", "_letter_sequence", "_epoch")
    rows = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    return {(file, number): epoch for file, number, epoch in rows}


def _requested(root: Root, operator: str, generation: Generation) -> set[LetterKey]:
    """The letters that somebody has asked for. Requests of older lines are left for a leader."""
    found = perform(open_requests(operator, generation, {}), root.handlers)
    return {letter for request in found.values() for letter in request.each()}


def replay_letters(root: str, operator: str, letters: Sequence[Letter]) -> int:
    """Ask for letters to be processed again; how many. A timer's letter has no event."""
    chosen = [letter for letter in letters if letter.event]
    if chosen:
        opened = Root.open(root)
        for at in range(0, len(chosen), LETTERS_MAX):
            places = [each.place for each in chosen[at : at + LETTERS_MAX]]
            mark = opened.chance.unique()
            perform(ask(operator, chosen[0].generation, places, mark), opened.handlers)
    return len(chosen)
