"""What lies in a root and is named by nothing: listed, not judged.

It is no damage. What is of an epoch above HEAD is somebody's work in progress, or was until they
were stopped; what is of an epoch that HEAD has passed is garbage, which the collector or a table's
sweep takes. Objects are listed page by page beside the files of each table, which come in the same
order, so nothing grows with a table.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.chaos.audit_history import History
from penstock.chaos.audit_objects import Objects
from penstock.chaos.findings import Ledger
from penstock.checkpoint.layout import EPOCH_PREFIXES, epoch_of, table_prefix, token_of
from penstock.checkpoint.perform import perform
from penstock.effects import Entry
from penstock.errors import Corrupt, Gone
from penstock.fencing.heartbeat import HEARTBEAT_PREFIX
from penstock.ids import Key
from penstock.points import Point
from penstock.sinks.table_index import TableFile, find_files, read_index

__all__ = ["check_leftovers"]

EXAMPLES_MAX = 5


@dataclass(slots=True)
class _Pile:
    """Objects of one fate."""

    count: int = 0
    size_bytes: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        self.count += 1
        self.size_bytes += entry.size_bytes
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(entry.key)

    def __str__(self) -> str:
        named = ", ".join(self.examples)
        more = self.count - len(self.examples)
        rest = f" and {more:,} more" if more else ""
        return f"{self.count:,} objects, {self.size_bytes:,} bytes: {named}{rest}"


@dataclass(slots=True)
class _Piles:
    working: _Pile = field(default_factory=_Pile)
    garbage: _Pile = field(default_factory=_Pile)


def check_leftovers(history: History, objects: Objects, tables: list[str], ledger: Ledger) -> None:
    """List everything, and say what nothing names."""
    piles = _Piles()
    for prefix in EPOCH_PREFIXES:
        for entry in _listed(history, prefix, ledger):
            if entry.key not in objects.reached:
                _sort(history, entry, piles)
    for table in tables:
        _check_table(history, objects, table, (piles, ledger))
    for entry in _listed(history, HEARTBEAT_PREFIX, ledger):
        token = token_of(entry.key)
        if token is not None and token < history.head.token:
            piles.garbage.add(entry)
    ledger.count("above HEAD", piles.working.count)
    ledger.count("garbage", piles.garbage.count)
    if piles.working.count:
        ledger.note(f"Above HEAD, work in progress or left by it: {piles.working}.")
    if piles.garbage.count:
        ledger.note(f"Garbage that the collector takes in time: {piles.garbage}.")


def _listed(history: History, prefix: str, ledger: Ledger) -> Iterator[Entry]:
    store, after = history.root.store, ""
    while page := store.list(prefix, after):
        after = page[-1].key
        ledger.count("objects listed", len(page))
        yield from page


def _sort(history: History, entry: Entry, piles: _Piles) -> None:
    """An object that nothing we know of names. Of epochs that were not looked at, though they are
    kept, nobody here knows what they name."""
    epoch = epoch_of(entry.key)
    if epoch is None:
        return
    if epoch > history.head.epoch:
        piles.working.add(entry)
    elif epoch >= history.since or history.since <= history.head.floor:
        piles.garbage.add(entry)


def _check_table(
    history: History, objects: Objects, table: str, found: tuple[_Piles, Ledger]
) -> None:
    piles, ledger = found
    # A pin of another generation, or one that cannot be read, may want files that HEAD's index
    # does not list.
    is_whole = objects.knows_all_pins and all(
        pin.generation == history.head.generation for pin in objects.pins
    )
    try:
        kept = objects.reached | _pages(history, table)
        beside = _Beside(iter(find_files(history.root, table, history.head.epoch)))
        for entry in _listed(history, table_prefix(table), ledger):
            if entry.key in kept or beside.names(entry):
                continue
            if is_whole or (epoch_of(entry.key) or 0) > history.head.epoch:
                _sort(history, entry, piles)
    except (Gone, Corrupt):
        ledger.note(f"What is left of table {table} cannot be told: its index cannot be read.")


def _pages(history: History, table: str) -> set[Key]:
    """The pages of every index that a retained manifest names."""
    named = {
        link.manifest.tables[table].ref.key: link.manifest.tables[table]
        for link in history.epochs()
        if table in link.manifest.tables
    }
    found: set[Key] = set()
    for index in named.values():
        reading = read_index(history.chain, index, history.head.epoch, Point.READ_OBJECT)
        found.update(page.key for page in perform(reading, history.root.handlers).pages)
    return found


class _Beside:
    """The files of a table, in the order of their epochs, while somebody walks through a listing
    that is in the same order."""

    def __init__(self, files: Iterator[TableFile]) -> None:
        self._files = files
        self._next = next(files, None)
        self._epoch = -1
        self._names: set[Key] = set()

    def names(self, entry: Entry) -> bool:
        """Whether the table has this file."""
        epoch = epoch_of(entry.key)
        if epoch is None:
            return False
        if epoch != self._epoch:
            self._names, self._epoch = set(), epoch
            while self._next is not None and self._next.epoch <= epoch:
                if self._next.epoch == epoch:
                    self._names.add(self._next.output.ref.key)
                self._next = next(self._files, None)
        return entry.key in self._names
