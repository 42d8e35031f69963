"""The indexes of a table on trial: none is trusted, each is proved from what it was made of.

An index stands for manifests that were given up, so a file that it leaves out is missing from the
table without a trace. It is proved in two ways, and neither reads the index to know what it should
list:

1. The oldest one by the tally that the manifest behind it carries: the chain has counted and
   hashed every file since the table's first epoch. A root that an older version began has no tally
   of those epochs; if their manifests are gone too, what the index says of them is unknown.
2. Each later one from the one before it and the manifests between the two, file by file.

Pages that two indexes share are compared by their names, so the work does not grow with the table
from index to index; only the oldest one is read whole.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from penstock.chaos.audit_history import History, Link
from penstock.chaos.findings import Ledger
from penstock.checkpoint.manifest import Manifest, Output, TableIndex
from penstock.checkpoint.perform import perform
from penstock.checkpoint.tally import NOTHING, TableTotal
from penstock.errors import Corrupt, Gone
from penstock.ids import Epoch
from penstock.points import Point
from penstock.sinks.table_index import Index, read_index, read_page
from penstock.sinks.table_tail import TableFile, TailWalk

__all__ = ["check_indexes"]

Place = tuple[Epoch, int]
"""The epoch and the partition of a file."""


def check_indexes(history: History, table: str, ledger: Ledger) -> None:
    """Prove every index that a retained manifest names; of later ones, if the job gives the
    oldest epochs up meanwhile."""
    for link in history.epochs():
        try:
            _Proof(history, table, ledger).run(link)
            return
        except Gone:
            history.shorten()
        except Corrupt as wrong:
            ledger.wrong("I7", wrong.subject, wrong.found, link.epoch)
            return


@dataclass(slots=True)
class _Proof:
    history: History
    table: str
    ledger: Ledger

    def run(self, oldest: Link) -> None:
        """Go from the oldest index that can be reached to HEAD's."""
        manifests, walk = self._reached(oldest)
        index = None if walk.index is None else self._read(walk.index, oldest.epoch)
        self._prove_first(index, manifests[0])
        named, since = walk.index, walk.tail().base
        added: list[TableFile] = []
        for manifest in manifests:
            now = manifest.tables.get(self.table)
            if now is not None and now != named:
                read = self._read(now, manifest.epoch)
                self._prove_next(index, [f for f in added if f.epoch > since], read)
                index, named, since = read, now, now.epoch
            outputs = manifest.sinks.get(self.table, ())
            added = [file for file in added if file.epoch > since]
            added += _files(manifest.epoch, outputs)

    def _reached(self, oldest: Link) -> tuple[list[Manifest], TailWalk]:
        """The retained manifests, and those before them that are kept for the table's tail, oldest
        first; and the walk that went back to the index."""
        walk, found = TailWalk(self.table), [oldest.manifest]
        walk.add(oldest.manifest)
        while not walk.done and found[-1].parent is not None:
            reading = self.history.chain.manifest(
                found[-1].parent, oldest.epoch, Point.READ_MANIFEST
            )
            found.append(perform(reading, self.history.root.handlers))
            walk.add(found[-1])
        later = [link.manifest for link in self.history.links if link.epoch > oldest.epoch]
        return [*reversed(found), *later], walk

    def _prove_first(self, index: Index | None, behind: Manifest) -> None:
        """By the tally of the manifest that follows it."""
        if index is None:
            return  # its files are all in manifests that were read
        tally = behind.tally
        uncounted = index.epoch if tally is None else min(tally.since, index.epoch)
        if uncounted > 0:
            why = "their manifests were given up before the root counted files along its chain"
            self.ledger.unknown(f"table {self.table}, epochs 1 to {uncounted}", why)
        if tally is None:
            return
        listed = _total(each for each in self._files(index) if each.epoch > tally.since)
        counted = tally.total(self.table)
        if listed.plus(behind.epoch, behind.sinks.get(self.table, ())) != counted:
            mine = TableTotal(files=listed.files, rows=listed.rows)
            found = f"lists {mine.files:,} files with {mine.rows:,} rows up to epoch {index.epoch}"
            added = _total(_files(behind.epoch, behind.sinks.get(self.table, ())))
            files, rows = counted.files - added.files, counted.rows - added.rows
            found += f", and the chain has counted {files:,} with {rows:,}, or others"
            self.ledger.wrong("I4", self._name(index), found, index.epoch)

    def _prove_next(self, before: Index | None, added: Sequence[TableFile], index: Index) -> None:
        """From the index before it, and what the epochs between have added."""
        self.ledger.count("indexes proved")
        pages = () if before is None else before.pages
        is_longer = index.pages[: len(pages)] == pages
        old = () if before is None else before.files if is_longer else tuple(self._files(before))
        expected = [*old, *(file for file in added if file.epoch <= index.epoch)]
        found = self._files(index, len(pages) if is_longer else 0)
        self._differences(index, expected, list(found))

    def _differences(
        self, index: Index, expected: Sequence[TableFile], found: Sequence[TableFile]
    ) -> None:
        theirs, mine = _by_place(expected), _by_place(found)
        for lost in _stretches(file for place, file in theirs.items() if place not in mine):
            told = f"does not list {_spelt(lost)}, which their manifests have added"
            self.ledger.wrong("I1", self._name(index), told, lost[0].epoch, len(lost))
        for extra in _stretches(file for place, file in mine.items() if place not in theirs):
            told = f"lists {_spelt(extra)}, which no manifest has added"
            self.ledger.wrong("I4", self._name(index), told, extra[0].epoch, len(extra))
        for place in mine.keys() & theirs.keys():
            if mine[place] != theirs[place]:
                told = f"lists another file than epoch {place[0]} added for partition {place[1]}"
                self.ledger.wrong("I4", self._name(index), told, place[0])
        if len(mine) < len(found):
            told = f"lists {len(found) - len(mine):,} files twice"
            self.ledger.wrong("I2", self._name(index), told, index.epoch)

    def _read(self, named: TableIndex, needed_by: Epoch) -> Index:
        reading = read_index(self.history.chain, named, needed_by, Point.READ_OBJECT)
        index = perform(reading, self.history.root.handlers)
        if (index.table, index.epoch) != (self.table, named.epoch):
            found = f"is the index of table {index.table} up to epoch {index.epoch}"
            self.ledger.wrong("I4", named.ref.key, found, needed_by)
        return index

    def _files(self, index: Index, first_page: int = 0) -> Iterator[TableFile]:
        for page in index.pages[first_page:]:
            reading = read_page(self.history.chain, page, Point.READ_OBJECT)
            yield from perform(reading, self.history.root.handlers)
        yield from index.files

    def _name(self, index: Index) -> str:
        return f"the index of table {self.table} up to epoch {index.epoch}"


def _files(epoch: Epoch, outputs: Iterable[Output]) -> list[TableFile]:
    return [TableFile(epoch, output) for output in outputs]


def _total(files: Iterable[TableFile]) -> TableTotal:
    total = NOTHING
    for file in files:
        total = total.plus(file.epoch, [file.output])
    return total


def _by_place(files: Iterable[TableFile]) -> dict[Place, TableFile]:
    return {(file.epoch, file.output.partition): file for file in files}


def _stretches(files: Iterable[TableFile]) -> list[list[TableFile]]:
    """Files of epochs that follow each other, together."""
    found: list[list[TableFile]] = []
    for file in sorted(files, key=lambda each: (each.epoch, each.output.partition)):
        if found and file.epoch <= found[-1][-1].epoch + 1:
            found[-1].append(file)
        else:
            found.append([file])
    return found


def _spelt(files: Sequence[TableFile]) -> str:
    first, last = files[0].epoch, files[-1].epoch
    epochs = f"epoch {first}" if first == last else f"epochs {first} to {last}"
    rows = sum(file.output.rows for file in files)
    return f"{epochs} ({len(files):,} files with {rows:,} rows)"
