"""The order of files: written down when a file is first seen, and never changed after.

A file's place decides the offsets of its rows, so everybody must agree on it for ever. The
order is one register that is only ever appended to by compare-and-swap. It stays small: full
chunks of the list move to objects of their own, which are stored before the register names
them by hash, and are never written again. A crash in between leaves an orphan nobody reads.

Who appends names the order it has seen; if that is no longer the last one, nothing happens. A
file that somebody else has recorded meanwhile is therefore never recorded twice, and neither
is one whose own swap was confirmed to nobody.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import msgspec

from penstock.checkpoint.formats import Ref, Sealed, ref_to, seal, unseal
from penstock.effects import Get, Put, Steps, Wait
from penstock.errors import Corrupt, Invalid
from penstock.fencing.register import Landed, Register, Seen, Won, read, swap
from penstock.fields import (
    Count,
    FormatNumber,
    HexHash,
    Int64,
    Name,
    PartitionNumber,
    SchemaText,
    SizeBytes,
    Text,
)
from penstock.ids import Key
from penstock.points import Point
from penstock.sources.files_names import FileFormat

__all__ = [
    "CHUNK_FILES",
    "ChunkRef",
    "FileEntry",
    "Order",
    "Placed",
    "append",
    "placed",
    "read_chunk",
    "read_order",
]

ORDER_FORMAT = 1
CHUNK_FILES = 500
"""How many files the register lists itself before they become a chunk."""

RECENT_MAX = 32
"""How many changes back the order remembers, for those who never heard of their own success."""

READS_MAX = 4
"""How often a chunk that does not fit its name is read again: a wire may flip a bit, once."""

PAUSE_S = 0.05


class FileEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One file, as it was when it was first seen."""

    path: Text
    size_bytes: SizeBytes
    version: Text
    modified_us: Int64
    partition: PartitionNumber
    length: Count
    """How many offsets it takes."""
    format: FileFormat | None
    """None: nothing told, and so it is unreadable."""
    unit: Literal["rows", "bytes"]
    """What an offset counts."""
    unreadable: Text = ""
    """Why it was put into quarantine; empty for a file that can be read."""
    ends: HexHash = ""
    """How it began and ended, where its version alone does not tell it from another; see
    `penstock.sources.files_listing.hash_ends`. Empty in records of earlier versions."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A file and the offset it begins at in its partition."""

    entry: FileEntry
    base: int

    @property
    def end(self) -> int:
        """Where the next file of its partition begins."""
        return self.base + self.entry.length


class ChunkRef(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A full chunk, and what can be told about it without reading it."""

    ref: Ref
    first: Count
    """The number of its first file."""
    count: Count
    starts: tuple[Count, ...]
    """Where it begins, in each partition there was."""
    newest_us: Int64
    """The latest time a file of it was modified."""
    unreadable: Count = 0
    """How many of its files are in quarantine."""


class _Chunk(Sealed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: FormatNumber = ORDER_FORMAT
    first: Count
    files: tuple[FileEntry, ...]


class Order(Sealed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every file there is, in order: chunks first, then those no chunk holds yet."""

    format: FormatNumber = ORDER_FORMAT
    version: Count = 0
    """Grows by one with every change."""
    folder: Text
    columns: SchemaText = ""
    """The columns inferred from the first file that had any; empty before."""
    chunks: tuple[ChunkRef, ...] = ()
    files: tuple[FileEntry, ...] = ()
    starts: tuple[Count, ...] = ()
    """Where `files` begin, in each partition."""
    sizes_bytes: tuple[Count, ...] = ()
    """How many bytes the files of each partition have, together."""
    has_text: bool = False
    """Whether the offsets of some file are bytes."""
    recent: tuple[Name, ...] = ()
    """The names of the last changes, oldest first."""

    @property
    def rank(self) -> tuple[int]:
        """Grows with every change."""
        return (self.version,)

    @property
    def listed(self) -> int:
        """The number of the first file that no chunk holds yet."""
        return self.chunks[-1].first + self.chunks[-1].count if self.chunks else 0

    @property
    def count(self) -> int:
        """How many files there are; the number of the next one."""
        return self.listed + len(self.files)

    def ends(self) -> tuple[int, ...]:
        """Where each partition ends."""
        return _added(self.starts, ((file.partition, file.length) for file in self.files))

    def tells_of(self, change: Self, expected: Self | None) -> Landed:
        """Whether `change` is part of this order's past."""
        if change.recent[-1] in self.recent:
            return Landed.YES
        # It would stand at its own version; is that one still remembered, or yet to come?
        remembered = change.version > self.version - len(self.recent)
        return Landed.NO if remembered else Landed.UNTOLD

    def appended(self, files: Sequence[FileEntry], columns: str, commit: str) -> Self:
        """This order with more files at its end, all of them listed here."""
        grown = ((file.partition, file.size_bytes) for file in files)
        return msgspec.structs.replace(
            self,
            version=self.version + 1,
            columns=self.columns or columns,
            files=(*self.files, *files),
            sizes_bytes=_added(self.sizes_bytes, grown),
            has_text=self.has_text or any(file.unit == "bytes" for file in files),
            recent=(*self.recent, commit)[-RECENT_MAX:],
        )

    def chunked(self, commit: str) -> tuple[Self, Key, bytes]:
        """This order with its first listed files in a chunk; and the chunk, to be stored first."""
        files = self.files[:CHUNK_FILES]
        key = Key(f"chunks/{self.listed:012d}-{commit}.json")
        body = seal(_Chunk(first=self.listed, files=files))
        chunk = ChunkRef(
            ref=ref_to(key, body),
            first=self.listed,
            count=len(files),
            starts=self.starts,
            newest_us=max(file.modified_us for file in files),
            unreadable=sum(bool(file.unreadable) for file in files),
        )
        changed = msgspec.structs.replace(
            self,
            chunks=(*self.chunks, chunk),
            files=self.files[CHUNK_FILES:],
            starts=_added(self.starts, ((file.partition, file.length) for file in files)),
        )
        return changed, key, body


def _added(sums: tuple[int, ...], more: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """Sums per partition with some more; a partition that was not there began with nothing."""
    totals = list(sums)
    for partition, amount in more:
        totals += [0] * (partition + 1 - len(totals))
        totals[partition] += amount
    return tuple(totals)


def placed(files: Iterable[FileEntry], starts: tuple[int, ...]) -> Iterator[Placed]:
    """Files in their order, each with its offset; `starts` is where the first of them begin."""
    ends = dict(enumerate(starts))
    for file in files:
        base = ends.get(file.partition, 0)
        yield Placed(file, base)
        ends[file.partition] = base + file.length


def _decode(body: bytes) -> Order:
    return unseal("order.json", body, Order, ORDER_FORMAT)


_REGISTER: Register[Order] = Register(Key("order.json"), seal, _decode)


def read_order() -> Steps[Seen[Order] | None]:
    """The order now, or None before the first file."""
    return (yield from read(_REGISTER, Point.FILES_ORDER))


def append(seen: Seen[Order] | None, grown: Order, commit: str) -> Steps[Seen[Order] | None]:
    """Change the order from `seen` to `grown`; None if somebody else's change came first.

    1. Store every chunk that is full.
    2. Swap the register.
    """
    while len(grown.files) >= CHUNK_FILES:
        grown, key, body = grown.chunked(commit)
        yield Put(Point.FILES_STAGE, key, body)  # 1
    outcome = yield from swap(_REGISTER, seen, grown, Point.FILES_SWAP, Point.FILES_SETTLE)  # 2
    return outcome.seen if isinstance(outcome, Won) else None


def read_chunk(chunk: ChunkRef) -> Steps[tuple[FileEntry, ...]]:
    """The files of a chunk. `Corrupt` if they are not to the letter what was stored."""
    for remaining in reversed(range(READS_MAX)):
        stored = yield Get(Point.FILES_CHUNK, chunk.ref.key)
        try:
            return _checked(chunk, None if stored is None else stored.body)
        except (Corrupt, Invalid):
            if not remaining:
                raise
        yield Wait(PAUSE_S)
    raise AssertionError("unreachable: the last read returns or raises")


def _checked(chunk: ChunkRef, body: bytes | None) -> tuple[FileEntry, ...]:
    if body is None or ref_to(chunk.ref.key, body) != chunk.ref:
        found = "is missing" if body is None else "is not what was stored under its name"
        raise Corrupt(
            f"chunk {chunk.ref.key} of the order of files",
            found,
            "restore it from a copy: without it nobody knows which offsets its files have",
        )
    return unseal(chunk.ref.key, body, _Chunk, ORDER_FORMAT).files
