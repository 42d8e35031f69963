"""Looking for new files, and giving each its place in the order.

Several processes may look at once. What one of them records, the others find recorded: whoever
comes second throws away what it has found out and looks again, because files are no longer new
and the columns may have been settled by another file meanwhile.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from heapq import nsmallest

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.clock import Clock
from penstock.errors import Corrupt, Gone, Invalid, PenstockError, Unavailable
from penstock.fencing.register import Seen
from penstock.sources.files_formats import format_for
from penstock.sources.files_listing import Found, Listing, hash_ends
from penstock.sources.files_order import Record
from penstock.sources.files_pieces import DAMAGE, reason
from penstock.sources.files_record import CHUNK_FILES, FileEntry, Order
from penstock.sources.files_settings import FilesSettings
from penstock.sources.files_shape import Shape, check_columns, decode_columns, encode_columns

__all__ = ["Discovery"]

LOOK_FILES_MAX = 10_000
"""How many new files one look takes in; more are left to the next one."""

LOOK_THREADS = 8
"""How many files are looked into at once. Most of that is waiting for a store."""

UNREADABLE_LENGTH = 1
"""How many offsets a file takes that cannot be read: one, so that an epoch reads that offset, and
what it leaves out is part of its commit."""

LOOKS_LOST_MAX = 20
"""How often somebody else may be first before it is called a fault."""


@dataclass(slots=True)
class _Draft:
    """Files that are to be recorded behind those of an order, and what their columns are."""

    seen: Seen[Order] | None
    columns: pa.Schema | None
    inferred: str
    files: list[FileEntry]

    @property
    def number(self) -> int:
        """The number of the next file."""
        return len(self.files) + (0 if self.seen is None else self.seen.document.count)


@dataclass(frozen=True, slots=True)
class _Inside:
    """What was found out about a file by looking into it."""

    length: int
    columns: pa.Schema | None
    unreadable: str = ""
    ends: str = ""


@dataclass(frozen=True, slots=True)
class Discovery:
    """Finds what is new in a folder."""

    settings: FilesSettings
    listing: Listing
    record: Record
    clock: Clock

    def run(self) -> int:
        """Record every file there is that is finished and not recorded. How many they were."""
        count = lost = 0
        while lost < LOOKS_LOST_MAX:
            recorded, more = self._look()
            count += recorded
            lost += more and not recorded
            if not more:
                return count
        raise Unavailable(
            f"the record of {self.settings.name}",
            f"was changed by others {LOOKS_LOST_MAX} times while this process looked",
            "try again; if it stays so, let fewer processes lead this job",
        )

    def _look(self) -> tuple[int, bool]:
        """How many files were recorded, and whether another look is needed.

        1. Read the order, and learn the names in it.
        2. List what has none of those names, and put it in order: by time, then by path.
        3. A group at a time: look into each file, then append the group to the order.
        """
        seen = self.record.latest()  # 1
        self._learn(seen)
        new = self._new()  # 2
        count = 0
        for first in range(0, len(new), CHUNK_FILES):  # 3
            group = [found for found in new[first : first + CHUNK_FILES] if self._is_new(found)]
            draft = self._draft(seen)
            self._fill(draft, group)
            if draft.files:
                seen = self._append(draft)
                if seen is None:
                    return count, True
                self._learn(seen)
            count += len(draft.files)
        return count, len(new) == LOOK_FILES_MAX

    def _learn(self, seen: Seen[Order] | None) -> None:
        if seen is not None:
            self.record.learn_names(seen.document)

    def _new(self) -> Sequence[Found]:
        settle_s = self.settings.settle_s
        settled_us = round((self.clock.wall() - settle_s) * 1_000_000) if settle_s else None
        ours = self.settings.names.wanted()
        found = self.listing.files(
            lambda path: ours(path) and not self.record.knows(path), settled_us
        )
        return nsmallest(LOOK_FILES_MAX, found, key=lambda file: (file.modified_us, file.path))

    def _is_new(self, found: Found) -> bool:
        return not self.record.knows(found.path)

    def _draft(self, seen: Seen[Order] | None) -> _Draft:
        columns = self.settings.columns
        if columns is None and seen is not None and seen.document.columns:
            columns = decode_columns(seen.document.columns)
        return _Draft(seen, columns, "", [])

    def _append(self, draft: _Draft) -> Seen[Order] | None:
        return self.record.append(draft.seen, draft.files, draft.inferred)

    def _fill(self, draft: _Draft, group: Sequence[Found]) -> None:
        """Look into files; what was found out before one of them stops us is recorded first.

        Until a file has told the columns, one after the other; then some at a time.
        """
        waiting = iter(group)
        try:
            while draft.columns is None and (found := next(waiting, None)) is not None:
                self._take(draft, found, self._look_into(found, None))
            with ThreadPoolExecutor(LOOK_THREADS) as pool:
                left = list(waiting)
                insides = pool.map(lambda found: self._look_into(found, draft.columns), left)
                for found, inside in zip(left, insides, strict=True):
                    self._take(draft, found, inside)
        except PenstockError:
            if draft.files:
                self._append(draft)
            raise

    def _take(self, draft: _Draft, found: Found, inside: _Inside | None) -> None:
        if inside is None:
            return
        if inside.unreadable and self.settings.poison == "fail":
            raise self._refused(found, inside.unreadable)
        if draft.columns is None and inside.columns is not None:
            draft.columns, draft.inferred = inside.columns, encode_columns(inside.columns)
        draft.files.append(self._entry(found, inside, draft.number))

    def _look_into(self, found: Found, columns: pa.Schema | None) -> _Inside | None:
        """What is in a file; None if it was changed or removed since it was listed."""
        try:
            return self._measured(found, columns)
        except (Corrupt, Gone):
            return None
        except DAMAGE as why:
            return _Inside(UNREADABLE_LENGTH, None, reason(why))

    def _measured(self, found: Found, columns: pa.Schema | None) -> _Inside:
        if found.wrong:
            raise ValueError(found.wrong)
        kind = self.settings.names.format_of(found.path)
        reader = format_for(found.path, kind, self.settings.by_rows(found.path))
        with closing(self.listing.open(found.path, found.size_bytes, found.version)) as file:
            columns = reader.infer(file) if columns is None else columns
            if columns is not None:
                check_columns(columns, self.settings.event_time)
            shape = None if columns is None else Shape(columns, self.settings.event_time)
            ends = hash_ends(file) if found.is_weak else ""
            length = reader.measure(file, shape)
            if shape is not None and self.settings.poison == "fail":
                reader.try_first(file, shape)
            return _Inside(length, columns, ends=ends)

    def _entry(self, found: Found, inside: _Inside, number: int) -> FileEntry:
        try:
            kind = self.settings.names.format_of(found.path)
        except ValueError:
            kind = None
        by_rows = kind is None or self.settings.by_rows(found.path)
        return FileEntry(
            path=found.path,
            size_bytes=found.size_bytes,
            version=found.version,
            modified_us=found.modified_us,
            partition=number % self.settings.partitions,
            length=inside.length,
            format=kind,
            unit="rows" if by_rows else "bytes",
            unreadable=inside.unreadable,
            ends=inside.ends,
        )

    def _refused(self, found: Found, why: str) -> Invalid:
        return Invalid(
            f"file {found.path} of {self.settings.name}",
            f"cannot be read ({why}); nothing was recorded of it and of later files",
            "correct or remove it, or go on without it by poison='quarantine'",
        )
