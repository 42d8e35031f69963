"""Sweeping a table: removes files below it that nothing names and nothing will.

A task that is tried again, an epoch that is not committed and an index that a newer one has
replaced leave files behind. Why removing them is safe at any moment, beside a running job and
in a leader that was deposed long ago:

- **A file's name says its epoch, and no name is used twice.** Only the manifest of epoch e may
  be the first to name a file of epoch e. HEAD has passed every epoch that its index covers, so
  a file of such an epoch that is not in the index was not committed and never will be. What is
  above the index is not looked at: it may be somebody's work in progress.
- **An index outlives its successors' birth.** Every manifest that is retained or pinned names an
  index; those and their pages stay. Manifests to come name one of these or a newer one, whose
  name says an epoch that is above.
- **A rewind takes epochs up again.** While an older generation is pinned, files that the present
  index does not name may be wanted, so nothing is removed. And HEAD is read again between
  looking at a stretch of names and removing any of them: if its generation is still the same,
  none of them was written for a new one.

Memory holds the names of one listed page, the files of its epochs, and a name per page of the
index: a thousandth of the table.
"""

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.head import Head
from penstock.checkpoint.layout import epoch_of, table_prefix
from penstock.checkpoint.manifest import Manifest, TableIndex
from penstock.checkpoint.pins import Pin, list_pins
from penstock.effects import Delete, Entry, Page, Steps
from penstock.errors import Gone
from penstock.ids import Epoch, Key
from penstock.points import Point
from penstock.sinks.table_index import (
    Index,
    TableFile,
    read_index,
    read_page,
    refuse_miscount,
)
from penstock.sinks.table_tail import TailWalk

__all__ = ["TableSwept", "sweep_table"]


@dataclass(frozen=True, slots=True)
class TableSwept:
    """What one sweep of a table saw below its index's epoch, and removed."""

    kept: int = 0
    removed: int = 0
    removed_bytes: int = 0


def sweep_table(chain: Chain, table: str) -> Steps[TableSwept]:
    """Remove what the newest index does not name, of the epochs it covers.

    1. Read HEAD and its manifest: the index it names is what we judge by, however long we take.
    2. Keep the indexes of all manifests from HEAD down to its floor. Go on to the index's epoch,
       and refuse an index that does not list all files that the chain has counted.
    3. List the pins, only now (see `penstock.checkpoint.pins`), and keep theirs. If one is of
       another generation or cannot be read, stop.
    4. Page through the table's objects beside the index, both in order of epochs.
    5. Look at HEAD again before removing anything: if history was rewound since 1, stop.
    6. Remove what belongs to a covered epoch and was not met in 2, 3 or 4.
    """
    head = (yield from chain.head(Point.COLLECT_HEAD)).document  # 1
    reach = _Reach(chain, table)
    newest = yield from reach.from_head(head)  # 2
    found = yield from list_pins(Point.COLLECT_PINS, Point.COLLECT_PIN)  # 3
    strange = any(pin.generation != head.generation for pin in found.pins)
    if newest is None or strange or found.unreadable:
        return TableSwept()
    for pin in found.pins:
        yield from reach.from_pin(pin)
    return (yield from _sweep(chain, head, newest, reach.keys))


class _Reach:
    """The indexes that must stay, and their pages, gathered while walking."""

    def __init__(self, chain: Chain, table: str) -> None:
        self.keys: set[Key] = set()
        self._chain = chain
        self._table = table

    def from_head(self, head: Head) -> Steps[Index | None]:
        """Keep what retained manifests name; the newest index, or None if there is none yet."""
        newest: Index | None = None
        walk, tally = TailWalk(self._table), None
        ref, epoch = head.manifest, head.epoch
        while ref is not None and (epoch >= head.floor or not walk.done):
            needed_by = max(epoch, head.floor)
            manifest = yield from self._chain.manifest(ref, needed_by, Point.COLLECT_MANIFEST)
            walk.add(manifest)
            index = yield from self._keep(manifest)
            if epoch == head.epoch:
                newest, tally = index, manifest.tally
            ref, epoch = manifest.parent, Epoch(epoch - 1)
        if newest is not None:
            counted = newest.count + len(walk.tail().files())
            refuse_miscount(self._table, counted, tally, head.epoch)
        return newest

    def from_pin(self, pin: Pin) -> Steps[None]:
        """Keep what a pin needs. One that came too late was never confirmed and keeps nothing."""
        with suppress(Gone):
            manifest = yield from self._chain.manifest(
                pin.manifest, pin.epoch, Point.COLLECT_MANIFEST
            )
            yield from self._keep(manifest)

    def _keep(self, manifest: Manifest) -> Steps[Index | None]:
        named: TableIndex | None = manifest.tables.get(self._table)
        if named is None or named.ref.key in self.keys:
            return None
        index = yield from read_index(self._chain, named, manifest.epoch, Point.COLLECT_MANIFEST)
        self.keys.add(named.ref.key)
        self.keys.update(page.key for page in index.pages)
        return index


def _sweep(chain: Chain, head: Head, index: Index, kept: set[Key]) -> Steps[TableSwept]:
    named = _Named(chain, index)
    stayed = removed = removed_bytes = 0
    after = ""
    while page := (yield Page(Point.COLLECT_LIST, table_prefix(index.table), after)):  # 4
        after = page[-1].key
        covered = [
            entry for entry in page if (epoch_of(entry.key) or head.epoch + 1) <= index.epoch
        ]
        files = yield from named.beside(covered)
        garbage = [entry for entry in covered if entry.key not in files and entry.key not in kept]
        if garbage:
            now = (yield from chain.head(Point.COLLECT_RECHECK)).document  # 5
            if now.generation != head.generation:
                break
        for entry in garbage:  # 6
            yield Delete(Point.COLLECT_DELETE, entry.key)
        stayed += len(covered) - len(garbage)
        removed += len(garbage)
        removed_bytes += sum(entry.size_bytes for entry in garbage)
        if (epoch_of(after) or 0) > index.epoch:
            break
    return TableSwept(stayed, removed, removed_bytes)


class _Named:
    """The files of an index, read page by page while somebody walks through a listing."""

    def __init__(self, chain: Chain, index: Index) -> None:
        self._chain = chain
        self._pages = deque(index.pages)
        self._last: tuple[TableFile, ...] = index.files
        self._ahead: deque[TableFile] = deque()
        self._files: dict[Key, Epoch] = {}

    def beside(self, entries: Sequence[Entry]) -> Steps[dict[Key, Epoch]]:
        """The files of all epochs that these entries belong to. The next ones must be later."""
        epochs = [epoch for entry in entries if (epoch := epoch_of(entry.key)) is not None]
        if epochs:
            first, last = epochs[0], epochs[-1]
            self._files = {key: epoch for key, epoch in self._files.items() if epoch >= first}
            while (yield from self._next_is_upto(last)):
                file = self._ahead.popleft()
                self._files[file.output.ref.key] = file.epoch
        return self._files

    def _next_is_upto(self, last: Epoch) -> Steps[bool]:
        """Whether there is one more file, of an epoch up to `last`."""
        if not self._ahead and self._pages:
            files = yield from read_page(self._chain, self._pages.popleft(), Point.COLLECT_MANIFEST)
            self._ahead.extend(files)
        if not self._ahead:
            self._ahead.extend(self._last)
            self._last = ()
        return bool(self._ahead) and self._ahead[0].epoch <= last
