"""What one process knows of the order of files, and how it learns and adds more.

Nothing that was read ever becomes wrong, because the order only grows: what is kept here is
asked for again only when it does not reach far enough. Of the names that are recorded a hash
each is kept, so that telling a new file from a known one costs no request.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from penstock.checkpoint.perform import Handlers, perform, store_handlers
from penstock.checkpoint.store import ObjectStore
from penstock.clock import Chance, Clock
from penstock.errors import Corrupt, Invalid
from penstock.fencing.register import Seen
from penstock.sources.files_record import (
    ChunkRef,
    FileEntry,
    Order,
    Placed,
    append,
    placed,
    read_chunk,
    read_order,
)
from penstock.sources.protocol import Range

__all__ = ["Record"]

CHUNKS_KEPT = 8
"""How many chunks stay in memory. Readers and planners stay close to where they were."""

HASH_BYTES = 16
"""Long enough that no two names of a lifetime share a hash: a file taken for another is lost."""


class Record:
    """The order of files of one folder, on one store."""

    def __init__(self, store: ObjectStore, folder: str, clock: Clock, chance: Chance) -> None:
        self._folder = folder
        self._chance = chance
        self._handlers: Handlers = store_handlers(store, clock)
        self._order: Order = Order(folder=folder)
        self._chunks: dict[str, tuple[FileEntry, ...]] = {}
        self._names: set[bytes] = set()
        self._names_of = 0

    @property
    def order(self) -> Order:
        """As much of the order as this process has seen."""
        return self._order

    def latest(self) -> Seen[Order] | None:
        """The order as it is now. `Invalid` if it is of another folder, `Corrupt` if it shrank."""
        seen = perform(read_order(), self._handlers)
        if seen is not None and seen.document.folder != self._folder:
            raise Invalid(
                f"the record of {self._folder}",
                f"is the record of {seen.document.folder}",
                "give each folder a record of its own",
            )
        now = Order(folder=self._folder) if seen is None else seen.document
        if now.version < self._order.version:
            raise Corrupt(
                f"the record of {self._folder}",
                f"was at change {self._order.version} and is at change {now.version}",
                "restore it from a copy: in a new order, files would have other offsets",
            )
        self._order = now
        return seen

    def reaching(self, partition: int, stop: int) -> Order:
        """The order, read again only if what is known ends before `stop`."""
        ends = self._order.ends()
        if partition >= len(ends) or ends[partition] < stop:
            self.latest()
        return self._order

    def append(
        self, seen: Seen[Order] | None, files: Sequence[FileEntry], columns: str
    ) -> Seen[Order] | None:
        """Add files behind those of `seen`; None, and nothing is added, if it has grown since."""
        commit = self._chance.unique()
        before = Order(folder=self._folder) if seen is None else seen.document
        grown = append(seen, before.appended(files, columns, commit), commit)
        after = perform(grown, self._handlers)
        self._order = self._order if after is None else after.document
        return after

    def learn_names(self, order: Order) -> None:
        """Know the name of every file in the order; only those not known yet are read."""
        for chunk in order.chunks:
            if chunk.first + chunk.count > self._names_of:
                self._names.update(_hash(file.path) for file in self._load(chunk))
        self._names.update(_hash(file.path) for file in order.files)
        self._names_of = order.count

    def knows(self, path: str) -> bool:
        """Whether a file of that name is among the names learned."""
        return _hash(path) in self._names

    def files(self, order: Order, partition: int, wanted: Range) -> Iterator[Placed]:
        """The files of a partition that have offsets in a range, in order."""
        for chunk in order.chunks[_first_chunk(order, partition, wanted.start) :]:
            if _start(chunk.starts, partition) >= wanted.stop:
                return
            yield from _overlapping(self._placed(chunk), partition, wanted)
        yield from _overlapping(placed(order.files, order.starts), partition, wanted)

    def since(self, order: Order, modified_us: int) -> Iterator[Placed]:
        """Every file, in order, but for chunks without any as new as `modified_us`."""
        for chunk in order.chunks:
            if chunk.newest_us >= modified_us:
                yield from self._placed(chunk)
        yield from placed(order.files, order.starts)

    def unreadable(self, order: Order) -> Iterator[FileEntry]:
        """The files in quarantine, in order."""
        for chunk in order.chunks:
            if chunk.unreadable:
                yield from (file for file in self._load(chunk) if file.unreadable)
        yield from (file for file in order.files if file.unreadable)

    def _placed(self, chunk: ChunkRef) -> Iterator[Placed]:
        return placed(self._load(chunk), chunk.starts)

    def _load(self, chunk: ChunkRef) -> tuple[FileEntry, ...]:
        files = self._chunks.get(chunk.ref.key)
        if files is None:
            files = perform(read_chunk(chunk), self._handlers)
            if len(self._chunks) >= CHUNKS_KEPT:
                self._chunks.clear()
            self._chunks[chunk.ref.key] = files
        return files


def _hash(path: str) -> bytes:
    # A name that is no UTF-8 hashes as it is recorded: with its odd bytes spelled out.
    name = path.encode("utf-8", "backslashreplace")
    return hashlib.blake2b(name, digest_size=HASH_BYTES).digest()


def _start(starts: tuple[int, ...], partition: int) -> int:
    return starts[partition] if partition < len(starts) else 0


def _first_chunk(order: Order, partition: int, offset: int) -> int:
    """Which chunk to begin with: all before it end at or before the offset."""
    if offset >= _start(order.starts, partition):
        return len(order.chunks)
    after = bisect_right(order.chunks, offset, key=lambda chunk: _start(chunk.starts, partition))
    return max(0, after - 1)


def _overlapping(files: Iterator[Placed], partition: int, wanted: Range) -> Iterator[Placed]:
    for file in files:
        mine = file.entry.partition == partition
        if mine and file.base < wanted.stop and file.end > wanted.start:
            yield file
