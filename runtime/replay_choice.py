"""The dead letters that the next epoch replays, chosen by the chain and open requests alone.

The letters that an epoch replays are the rows of its file in the table `<operator>.replayed`, which
its manifest names. So what was replayed is part of history like everything else: a rewind to
before that epoch takes it back, a fork carries it along, and retention never forgets it. A letter
is replayed if a request of this very line of history names it, it is a letter of this line, and no
earlier epoch of this line has replayed it. Asking twice, or for a letter that is gone, changes
nothing.

`offer` is a protocol without I/O: it yields effects, and the simulator can perform it.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.manifest import TableIndex
from penstock.effects import Steps
from penstock.errors import Corrupt, Gone, Invalid
from penstock.ids import Epoch, Generation, Key
from penstock.points import Point
from penstock.runtime.letters import (
    LetterKey,
    LetterPlace,
    Request,
    dead_letters_name,
    grouped,
    letter_name,
    replayed_name,
)
from penstock.runtime.replay_requests import open_requests, remove_outdated, remove_requests
from penstock.sinks.table import open_file
from penstock.sinks.table_index import TableFile, body_of, index_files
from penstock.sinks.table_read import fitted

__all__ = [
    "OPEN_LETTERS_MAX",
    "REPLAYED_COLUMNS",
    "Decision",
    "Memory",
    "Standing",
    "decide",
    "offer",
]

REPLAYED_COLUMNS = pa.schema(
    [
        ("_letter_file", pa.string()),
        ("_letter_epoch", pa.int64()),
        ("_letter_partition", pa.int32()),
        ("_letter_sequence", pa.int64()),
        ("_event_source", pa.string()),
        ("_event_partition", pa.string()),
        ("_event_offset", pa.int64()),
        ("_event_time", pa.timestamp("us", tz="UTC")),
    ]
)
"""What a row of `<operator>.replayed` says behind the event's own columns: the letter that was
replayed, and the event it holds."""

OPEN_LETTERS_MAX = 1_000_000
"""Letters of all requests that are looked at together. The requests behind them wait."""

_COPIED = {
    "_letter_epoch": "_epoch",
    "_letter_partition": "_partition",
    "_letter_sequence": "_sequence",
    "_event_source": "_source",
    "_event_partition": "_source_partition",
    "_event_offset": "_offset",
    "_event_time": "_event_time",
}
"""The columns of a letter that these are taken from."""

log = logging.getLogger("penstock.run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a line of history is: all that a decision depends on besides requests."""

    epoch: Epoch
    """The last epoch. Its commit may be on its way; the one before it is committed."""
    generation: Generation
    tables: Mapping[str, TableIndex]
    unlisted: Mapping[str, tuple[TableFile, ...]]
    """The files of each table that its index does not list yet."""

    def chain(self) -> Chain:
        """What reads objects of this line of history."""
        return Chain(generation=self.generation)


@dataclass(slots=True)
class Memory:
    """What one leader has read before and need not read again: none of it ever changes."""

    operator: str
    columns: pa.Schema
    """Those of the operator's events."""
    earlier: frozenset[LetterPlace] = frozenset()
    """Letters of this line that an older version of Penstock has replayed, from a topic."""
    requests: dict[Key, Request | None] = field(default_factory=dict)
    replayed: dict[Key, frozenset[LetterKey]] = field(default_factory=dict)
    """By file of the table of replayed letters."""
    refused: set[LetterKey] = field(default_factory=set)
    """Letters that cannot be replayed. Each was reported once."""
    indexes: dict[str, tuple[Key, list[TableFile]]] = field(default_factory=dict)
    """By table: its newest index, and the files that it lists."""
    warned: set[str] = field(default_factory=set)

    def refuses(self, request: Request) -> bool:
        """Whether there is nothing in a request that could be replayed."""
        return all(letter in self.refused for letter in request.each())


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows from the open requests."""

    letters: tuple[LetterKey, ...]
    """To be replayed by the next epoch, oldest first."""
    fulfilled: tuple[Key, ...]
    """Requests that may be forgotten: committed epochs have replayed all of their letters."""
    strangers: tuple[LetterKey, ...]
    """Letters that this line of history does not have."""


def decide(
    requests: Mapping[Key, Request],
    files: Iterable[Key],
    replayed: Mapping[LetterKey, Epoch],
    epoch: Epoch,
    limit: int,
) -> Decision:
    """Decide by the letters' `files` of this line, and by the epoch in which each was `replayed`.
    `epoch` is the last one, which may not be committed yet."""
    mine, fulfilled = set(files), []
    wanted: set[LetterKey] = set()
    strangers: set[LetterKey] = set()
    for key, request in requests.items():
        letters = list(request.each())
        strangers.update(letter for letter in letters if letter[0] not in mine)
        wanted.update(letter for letter in letters if letter[0] in mine and letter not in replayed)
        if all(replayed.get(letter, epoch) < epoch for letter in letters):
            fulfilled.append(key)
    return Decision(tuple(sorted(wanted)[:limit]), tuple(fulfilled), tuple(sorted(strangers)))


def offer(memory: Memory, standing: Standing, limit: int) -> Steps[pa.Table | None]:
    """The letters that the next epoch replays, at most `limit`, with the columns of the operator's
    events and `REPLAYED_COLUMNS`; None if there is nothing to replay."""
    try:
        return (yield from _offered(memory, standing, limit))
    except Gone:  # history was rewound under this leader: its next commit is refused
        return None


def _offered(memory: Memory, standing: Standing, limit: int) -> Steps[pa.Table | None]:
    """The same, while history is what it was.

    1. List the requests of this line of history, and remove those of older lines. Most of the
       time there is none.
    2. List the letters of this line, and those that it has replayed, also by an epoch whose
       commit is on its way: if that fails, so does the epoch that is planned now.
    3. Decide. What is fulfilled is removed: it was replayed in a committed epoch.
    4. Read the letters. Those that cannot be read, or do not fit the operator's columns any more,
       are left alone, and others take their places.
    """
    found = yield from open_requests(memory.operator, standing.generation, memory.requests)  # 1
    yield from remove_outdated(standing.generation, memory.requests)
    requests = _bounded({k: each for k, each in found.items() if not memory.refuses(each)})
    if not requests:
        return None
    try:
        files = yield from _files(memory, standing, dead_letters_name(memory.operator))  # 2
        replayed = yield from _replayed(memory, standing, files)
    except Corrupt as damage:  # better none than one twice; and no reason to end a job
        _warn_once(
            memory, f"no dead letters are replayed, for it is not known which were: {damage}"
        )
        return None
    while True:
        settled = {**dict.fromkeys(memory.refused, standing.epoch), **replayed}
        decision = decide(requests, files, settled, standing.epoch, limit)  # 3
        _report(memory, decision.strangers, "is not a dead letter of this line of history")
        rows = yield from _read(standing.chain(), memory, files, decision.letters)  # 4
        if rows is not None or not decision.letters:
            yield from remove_requests(decision.fulfilled)
            return rows


def _bounded(requests: Mapping[Key, Request]) -> dict[Key, Request]:
    """The first requests, as many as name `OPEN_LETTERS_MAX` letters together at most."""
    totals = accumulate(request.count for request in requests.values())
    return {
        key: request
        for (key, request), total in zip(requests.items(), totals, strict=True)
        if total <= OPEN_LETTERS_MAX
    }


def _files(memory: Memory, standing: Standing, table: str) -> Steps[dict[Key, TableFile]]:
    """Every file of a table, also of the epoch whose commit is on its way."""
    index = standing.tables.get(table)
    listed: list[TableFile] = []
    if index is not None:
        if memory.indexes.get(table, ("",))[0] != index.ref.key:
            memory.indexes[table] = (
                index.ref.key,
                (yield from index_files(standing.chain(), index)),
            )
        listed = memory.indexes[table][1]
    return {file.output.ref.key: file for file in [*listed, *standing.unlisted.get(table, ())]}


def _replayed(
    memory: Memory, standing: Standing, letters: Mapping[Key, TableFile]
) -> Steps[dict[LetterKey, Epoch]]:
    """When each letter was replayed; 0 if it was by an older version."""
    found: dict[LetterKey, Epoch] = {}
    keys = {(file.epoch, file.output.partition): key for key, file in letters.items()}
    for epoch, partition, number in memory.earlier:
        if (Epoch(epoch), partition) in keys:
            found[keys[Epoch(epoch), partition], number] = Epoch(0)
    files = yield from _files(memory, standing, replayed_name(memory.operator))
    for key, file in files.items():
        if key not in memory.replayed:
            body = yield from body_of(standing.chain(), file.output.ref, Point.LETTER_READ)
            memory.replayed[key] = frozenset(_letters_in(key, body))
        found.update(dict.fromkeys(memory.replayed[key], file.epoch))
    return found


def _letters_in(key: Key, body: bytes) -> Iterable[LetterKey]:
    names = ("_letter_file", "_letter_sequence")
    for batch in open_file(key, body, names)[1]:
        yield from zip(*(batch.column(name).to_pylist() for name in names), strict=True)


def _read(
    chain: Chain, memory: Memory, files: Mapping[Key, TableFile], letters: Iterable[LetterKey]
) -> Steps[pa.Table | None]:
    """Letters as rows of the table of replayed letters; None if none of them can be read."""
    parts = []
    for chosen in grouped(letters):
        numbers = [number for _, number in chosen.each()]
        try:
            part = yield from _rows(chain, memory, files[chosen.file], numbers)
            parts += [part] if part.num_rows else []
        except Gone:
            raise
        except (Corrupt, Invalid) as error:
            every = [(chosen.file, number) for number in numbers]
            _report(memory, every, f"cannot be replayed: {error.subject} {error.found}")
    return pa.concat_tables(parts) if parts else None


def _rows(chain: Chain, memory: Memory, file: TableFile, numbers: Sequence[int]) -> Steps[pa.Table]:
    """Some letters of a file, as rows of the table of replayed letters."""
    ref = file.output.ref
    body = yield from body_of(chain, ref, Point.LETTER_READ)
    schema, batches = open_file(ref.key, body)
    whole = pa.Table.from_batches(batches, schema)
    known = whole.column("_offset").is_valid().to_numpy() & np.isin(
        whole.column("_sequence").to_numpy(), numbers
    )
    missing = set(numbers) - set(whole.column("_sequence").to_numpy()[known].tolist())
    _report(memory, [(ref.key, n) for n in sorted(missing)], "has no event to be processed again")
    rows = whole.filter(pa.array(known))
    events = fitted(dead_letters_name(memory.operator), rows, memory.columns)
    for field_ in REPLAYED_COLUMNS:
        taken = _COPIED.get(field_.name)
        column = [ref.key] * rows.num_rows if taken is None else rows.column(taken)
        events = events.append_column(field_, _as(column, field_.type))
    return events


def _as(column: "pa.ChunkedArray | list[str]", kind: pa.DataType) -> pa.ChunkedArray:
    if isinstance(column, list):
        return pa.chunked_array([pa.array(column, kind)])
    return column.cast(kind)


def _warn_once(memory: Memory, what: str) -> None:
    if what not in memory.warned:
        memory.warned.add(what)
        log.warning("%s", what)


def _report(memory: Memory, letters: Iterable[LetterKey], why: str) -> None:
    """Say once of each letter why it is left alone."""
    for letter in letters:
        if letter not in memory.refused:
            memory.refused.add(letter)
            name = letter_name(memory.operator, letter, marked=True)
            log.warning("dead letter %s was asked for and %s", name, why)
