"""Files that arrive in a folder or under a prefix of a bucket, read as one stream.

Each file is read exactly once, at a place in an order that is recorded when it is first seen
and never changes, wherever and by however many processes it is looked for. A file, once
recorded, must stay as it is: one that was changed or removed is refused when it is read, and
never gives other rows. An object is known by its ETag; a file of a folder by its size, its time,
and a hash of its first and its last 16 KB, so that a copy which keeps times is noticed, unless it
differs in nothing but the middle of a file of more than 32 KB.

Where rows are, and which they are:

    Parquet                    an offset per row
    JSON lines, CSV            an offset per byte; a row is where its line begins
    either, compressed (.gz)   an offset per row; a range reads all before it
    CSV, newlines_in_values    the same

Columns are found by name and cast if that changes no value. One that a file lacks is null,
if it may be; one that the source does not have is ignored.

A file that cannot be read at all stops the source, or with `poison="quarantine"` is recorded
with one offset and no row, and listed by `quarantined`. A row that cannot be read stops the
reading, or is left out: the same ones on every reading. What is left out, a row or a file, goes
with its place, its reason and the beginning of its bytes to the reader (`read_with_dropped`), and
from there into the commit of the epoch that has read its offset. `dropped` tells it of any range.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.checkpoint.open_store import absolute_url
from penstock.errors import Invalid
from penstock.sources.files_discovery import Discovery
from penstock.sources.files_formats import format_for
from penstock.sources.files_listing import Listing, RangedFile, changed, hash_ends
from penstock.sources.files_names import FileFormat, Names
from penstock.sources.files_order import Record
from penstock.sources.files_pieces import DAMAGE, Bad, Kept, reason
from penstock.sources.files_planning import Planner
from penstock.sources.files_record import FileEntry, Order, Placed
from penstock.sources.files_settings import FilesSettings, Poison, World, where
from penstock.sources.files_shape import Shape, decode_columns
from penstock.sources.planning import check_range
from penstock.sources.protocol import Limits, Range, Span, Undecoded

__all__ = ["Dropped", "Files", "Quarantined"]


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A file that could not be read when it was first seen, and never will be."""

    path: str
    size_bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """Rows that are left out of a range."""

    offset: int
    path: str
    place: str
    """Where in the file, in words."""
    why: str
    count: int = 1
    """How many offsets are left out: rows, or bytes of text."""
    value: bytes | None = None
    """What is there, or the beginning of it, where it is text."""
    key: bytes | None = None

    @property
    def reason(self) -> str:
        """Where it is and what is wrong with it."""
        return f"file {self.path}{self.place and ', '}{self.place}: {self.why}"


class Files:
    """A source over files. See the top of this module for what it promises.

    `record` is the URL of a store where the order of the files is kept; each source needs one of
    its own. `pattern` is matched against the path below the folder. On a folder, a file is
    finished when it was not written for `settle_s` seconds; names that begin with '.' or '_' or
    end with '.tmp', '.part', '.crdownload' or '~' are never looked at. `event_time` is the column
    that says when a row happened.
    """

    def __init__(  # noqa: PLR0913 - each is a setting with a default, and people write few of them
        self,
        folder: str,
        *,
        record: str,
        format: FileFormat | None = None,
        pattern: str | None = None,
        schema: pa.Schema | None = None,
        partitions: int = 1,
        settle_s: float = 5.0,
        poison: Poison = "fail",
        event_time: str | None = None,
        newlines_in_values: bool = False,
        world: World | None = None,
    ) -> None:
        self._settings = FilesSettings(
            folder=str(folder),
            record=str(record),
            names=Names(format, pattern),
            columns=None if schema is None else schema.remove_metadata(),
            partitions=partitions,
            settle_s=settle_s,
            poison=poison,
            event_time=event_time,
            newlines_in_values=newlines_in_values,
        )
        self._world = world or World()
        self._desk = _Desk()

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def located(self) -> "Files":
        """The same source by names that mean the same in every process's working folder."""
        settings = self._settings
        found = object.__new__(Files)
        found._settings = replace(
            settings,
            folder=absolute_url(settings.folder),
            record=absolute_url(settings.record),
        )
        found._world, found._desk = self._world, _Desk()
        return found

    def __getstate__(self) -> tuple[FilesSettings, World]:
        return self._settings, self._world

    def __setstate__(self, state: tuple[FilesSettings, World]) -> None:
        self._settings, self._world = state
        self._desk = _Desk()

    @property
    def name(self) -> str:
        """How messages call it."""
        return self._settings.name

    def anchors(self) -> Mapping[str, str]:
        """The folder. The order of its files is kept by the record, which knows its folder too."""
        return {"folder": where(self._settings.folder)}

    @property
    def sifts(self) -> bool:
        """Whether rows that cannot be read are left out; else they stop the reading."""
        return self._settings.poison == "quarantine"

    def schema(self) -> pa.Schema:
        """The columns of its rows, without `_meta`. `Invalid` if no file has told them yet."""
        record = self._record()
        if self._settings.columns is None and not record.order.columns:
            record.latest()
            if not record.order.columns:
                self.discover()
        return self._shape(record.order).columns

    def spans(self) -> Mapping[str, Span]:
        """Every partition, and the offsets it has. Looks for new files."""
        self.discover()
        return self._spans(self._record().order)

    def offsets_at(self, at_ms: int) -> Mapping[str, int]:
        """Per partition, where the first file begins that was modified at `at_ms` or later."""
        spans = self.spans()
        order, at_us = self._record().order, at_ms * 1000
        offsets: dict[str, int] = {}
        for placed in self._record().since(order, at_us):
            if placed.entry.length and placed.entry.modified_us >= at_us:
                offsets.setdefault(str(placed.entry.partition), placed.base)
            if len(offsets) == len(spans):
                break
        return {partition: offsets.get(partition, span.latest) for partition, span in spans.items()}

    def plan(self, resume: Mapping[str, int], limits: Limits) -> Mapping[str, Range]:
        """What to read next. Looks for new files."""
        spans = self.spans()
        planner = Planner(self.name, self._record(), self._record().order, self._open)
        return planner.plan(spans, resume, limits)

    def read(self, partition: str, wanted: Range, planned_ms: int = 0) -> Iterator[pa.RecordBatch]:
        """The rows of a range in order of their offsets, with `_meta` as the last column."""
        found = self.read_with_dropped(partition, wanted, planned_ms)
        return (each for each in found if isinstance(each, pa.RecordBatch))

    def read_with_dropped(
        self, partition: str, wanted: Range, planned_ms: int = 0
    ) -> "Iterator[pa.RecordBatch | Undecoded]":
        """The rows of a range and, in their places, what cannot be read."""
        order = self._checked(partition, wanted)
        for placed in self._record().files(order, int(partition), wanted):
            shape = self._shape(order)
            for piece in self._pieces(placed, wanted, shape):
                if isinstance(piece, Kept):
                    offsets = placed.base + piece.positions
                    modified_us = placed.entry.modified_us
                    yield shape.with_meta(piece.rows, offsets, modified_us, planned_ms)
                elif self.sifts:
                    yield _dropped(placed, piece)
                else:
                    raise self._refused(placed, piece)

    def dropped(self, partition: str, wanted: Range) -> Iterator[Dropped]:
        """The rows of a range that cannot be read, in order. Reads the range."""
        order = self._checked(partition, wanted)
        for placed in self._record().files(order, int(partition), wanted):
            for piece in self._pieces(placed, wanted, self._shape(order)):
                if isinstance(piece, Bad):
                    yield _dropped(placed, piece)

    def discover(self) -> int:
        """Look for new files and record them. How many were recorded by this call.

        With `poison="fail"`, a file that cannot be read raises `Invalid`; those before it are
        recorded, it and those after it are not.
        """
        with self._desk.looking:
            return Discovery(
                self._settings, self._listing(), self._record(), self._world.clock
            ).run()

    def quarantined(self) -> Iterator[Quarantined]:
        """The files that are recorded without rows because they could not be read, in order."""
        self._record().latest()
        for file in self._record().unreadable(self._record().order):
            yield Quarantined(file.path, file.size_bytes, file.unreadable)

    def _checked(self, partition: str, wanted: Range) -> Order:
        """The order, if it has the offsets that are wanted."""
        number = int(partition) if partition.isdecimal() else -1
        order = self._record().reaching(max(0, number), wanted.stop)
        span = self._spans(order).get(partition)
        if span is None:
            known = f"use 0 to {len(self._spans(order)) - 1}"
            raise Invalid(self.name, f"has no partition {partition!r}", known)
        check_range(self.name, partition, wanted, span)
        return order

    def _spans(self, order: Order) -> Mapping[str, Span]:
        ends = order.ends()
        more = self._settings.partitions - len(ends)
        return {str(n): Span(0, end) for n, end in enumerate((*ends, *[0] * more))}

    def _shape(self, order: Order) -> Shape:
        columns = self._settings.columns
        if columns is None and order.columns:
            columns = decode_columns(order.columns)
        if columns is None:
            raise Invalid(
                self.name,
                "has no file yet that would tell its columns",
                "give a schema, or wait for the first file with a row",
            )
        return Shape(columns, self._settings.event_time)

    def _pieces(self, placed: Placed, wanted: Range, shape: Shape) -> Iterator[Kept | Bad]:
        entry = placed.entry
        start = max(0, wanted.start - placed.base)
        stop = min(entry.length, wanted.stop - placed.base)
        if entry.unreadable:
            if start < stop:
                yield Bad(0, entry.unreadable)
            return
        if entry.format is None:
            return
        reader = format_for(entry.path, entry.format, entry.unit == "rows")
        with closing(self._open(entry)) as file:
            try:
                yield from reader.pieces(file, start, stop, shape)
            except DAMAGE as why:  # the file as a whole does not fit the columns
                yield Bad(start, reason(why), stop - start)

    def _refused(self, placed: Placed, bad: Bad) -> Invalid:
        entry, offset = placed.entry, placed.base + bad.position
        return Invalid(
            f"file {entry.path} of {self.name}",
            f"cannot be read at {_place(entry, bad)}, which is offset {offset} of partition "
            f"{entry.partition} ({bad.reason})",
            "give it other columns by a schema, or leave out such rows by poison='quarantine'",
        )

    def _open(self, entry: FileEntry) -> RangedFile:
        file = self._listing().open(entry.path, entry.size_bytes, entry.version)
        try:
            self._check_ends(entry, file)
        except BaseException:
            file.close()
            raise
        return file

    def _check_ends(self, entry: FileEntry, file: RangedFile) -> None:
        """Raise if a file has the size and the time of the recorded one, and is another."""
        if entry.ends and (now := hash_ends(file)) != entry.ends:
            was = f"a beginning and an end that hash to {entry.ends}"
            raise changed(f"file {entry.path} of {self.name}", was, now)

    def _listing(self) -> Listing:
        if self._desk.listing is None:
            world = self._world
            opened = world.open_listing(self._settings.folder, world.clock, world.chance)
            self._desk.listing = opened
        return self._desk.listing

    def _record(self) -> Record:
        if self._desk.record is None:
            store = self._world.open_store(self._settings.record)
            place = where(self._settings.folder)
            self._desk.record = Record(store, place, self._world.clock, self._world.chance)
        return self._desk.record


@dataclass(slots=True)
class _Desk:
    """What one process has open of a source. It stays behind when the source is sent away."""

    listing: Listing | None = None
    record: Record | None = None
    looking: threading.Lock = field(default_factory=threading.Lock)


def _dropped(placed: Placed, bad: Bad) -> Dropped:
    entry = placed.entry
    place = "" if entry.unreadable else _place(entry, bad)
    return Dropped(placed.base + bad.position, entry.path, place, bad.reason, bad.count, bad.value)


def _place(entry: FileEntry, bad: Bad) -> str:
    return f"row {bad.position}" if entry.unit == "rows" else f"byte {bad.position}"
