"""Dead letters as an audit reads them: the tables of one operator, file by file.

An event of an operator that quarantines was processed by the epoch that read it, or it is a dead
letter of that epoch; then at most one later epoch has replayed it. Letters and replays are tables,
and tables are kept whole, so this is proved for all epochs there ever were: `audit_replays` follows
what was replayed, `audit_letter_events` looks for events that were processed besides.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.chaos.audit_history import History
from penstock.chaos.audit_trace import LETTER
from penstock.chaos.findings import Ledger
from penstock.checkpoint.rewind import is_table_file
from penstock.errors import Corrupt, Gone
from penstock.ids import Epoch, Key
from penstock.runtime.letters import LetterKey, dead_letters_name, letter_name
from penstock.sinks.table import open_file
from penstock.sinks.table_index import TableFile, find_files

__all__ = ["Event", "LetterBook", "operators_in", "spelt"]

Event = tuple[str, str, int]
"""Source, partition and offset."""


def operators_in(history: History) -> list[str]:
    """The operators that have dead letters, by what was committed."""
    sinks, ending = () if history.newest is None else history.newest.sinks, dead_letters_name("")
    return sorted(name.removesuffix(ending) for name in sinks if name.endswith(ending))


def spelt(event: Event | None) -> str:
    """An event as violations call it."""
    if event is None:
        return "no event"
    return f"source {event[0]}, partition {event[1]}, offset {event[2]}"


@dataclass(slots=True)
class LetterBook:
    """The letters of one operator."""

    history: History
    ledger: Ledger
    operator: str
    files: dict[Key, TableFile] = field(init=False)
    """Those of the letters."""
    _events: dict[Key, dict[int, Event | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        files = self.table(dead_letters_name(self.operator))
        self.files = {file.output.ref.key: file for file in files}

    def table(self, name: str) -> Iterator[TableFile]:
        """The files of a table, as of the history's last epoch; none if there is no such table."""
        newest = self.history.newest
        if newest is None or name not in {*newest.sinks, *newest.tables}:
            return iter(())
        return iter(find_files(self.history.root, name, self.history.head.epoch))

    def batches(self, file: TableFile, *only: str) -> Iterator[pa.RecordBatch]:
        """Some columns of a file. That it is damaged is said where its table is looked at."""
        ref = file.output.ref
        needed_by = self.history.head.epoch if is_table_file(ref) else file.epoch
        try:
            body = self.history.body(ref, needed_by)
            yield from open_file(ref.key, body, only)[1]
        except Gone:
            return  # given up meanwhile, with its epoch
        except (Corrupt, pa.ArrowException, OSError, KeyError) as error:
            self.ledger.unknown(f"the rows of {ref.key}", str(error))

    def events(self, file: Key) -> dict[int, Event | None]:
        """The event of each letter of a file, by the number of its row; None: a timer's."""
        if file not in self._events:
            found: dict[int, Event | None] = {}
            for batch in self.batches(self.files[file], "_sequence", *LETTER):
                for row in batch.to_pylist():
                    source, partition, offset = (row[name] for name in LETTER)
                    found[row["_sequence"]] = (source, partition, offset) if source else None
            self._events[file] = found
            self.ledger.count("letters", len(found))
        return self._events[file]

    def wrong(self, letter: LetterKey, event: Event | None, epoch: Epoch, found: str) -> None:
        """An event that is counted twice."""
        marked = self.history.head.generation > 1
        name = letter_name(self.operator, letter, marked=marked)
        subject = f"operator {self.operator}, letter {name}, {spelt(event)}, in epoch {epoch}"
        self.ledger.wrong("I2", subject, found, epoch)
