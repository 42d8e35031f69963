"""The index of a table: its files listed apart from the manifests that added them.

History is given up; a table is not. So now and then the leader lists every file of a table up
to an epoch in one immutable object, and each manifest from then on names it. A reader takes
HEAD's manifest, walks back to the epoch of the index it names, and finds the rest there. It
stays with that one manifest, however far the job goes on meanwhile.

Two rules keep a table whole. An index lists all that the one before it listed, so whatever an
older manifest shows, the newest index shows as well: an epoch is read from HEAD's index, and
later files are left out. And the floor never passes an index: to the collector a table is a
sink that has yet to apply everything behind its newest index.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from penstock.checkpoint.chain import Chain
from penstock.checkpoint.formats import Ref, decode, encode, verify
from penstock.checkpoint.head import Head
from penstock.checkpoint.layout import table_key, table_prefix
from penstock.checkpoint.manifest import Manifest, Output, TableIndex
from penstock.checkpoint.perform import perform
from penstock.checkpoint.root import Root
from penstock.checkpoint.staging import stage
from penstock.effects import Fetch, Steps
from penstock.errors import Bug, Corrupt, Gone, Invalid
from penstock.ids import Attempt, Epoch
from penstock.points import Point

__all__ = [
    "INDEX_FORMAT",
    "PAGE_FILES",
    "Index",
    "IndexPage",
    "TableFile",
    "TableFiles",
    "body_of",
    "extend_index",
    "files_at",
    "files_since_index",
    "find_files",
    "index_files",
    "read_index",
    "read_page",
    "table_refs",
    "tables_of",
]

INDEX_FORMAT = 1
PAGE_FILES = 1000
"""How many files a page lists. A million files are a thousand pages, and an index of 200 KB."""

LOOKS_MAX = 10
"""How often a reader that fell behind a running job looks at HEAD again."""


class TableFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a table, and the epoch that added it."""

    epoch: Epoch
    output: Output


class IndexPage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files that are listed once and never again."""

    format: int = INDEX_FORMAT
    files: tuple[TableFile, ...]


class Index(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All files of a table up to `epoch`, in order of epoch and partition."""

    format: int = INDEX_FORMAT
    table: str
    epoch: Epoch
    pages: tuple[Ref, ...] = ()
    """The oldest files: pages of `PAGE_FILES` each."""
    files: tuple[TableFile, ...] = ()
    """The rest: less than a page."""


def extend_index(
    table: str,
    previous: TableIndex | None,
    new: Sequence[TableFile],
    upto: Epoch,
    publishing: Epoch,
    attempt: Attempt,
) -> Steps[TableIndex]:
    """Store an index with the files of the one before and the new ones; what a manifest names.

    1. Read the previous index; the new files must follow it.
    2. Store each full page. It is not written again by any later index.
    3. Store the index. A crash before its manifest is committed leaves orphans for the sweep.
    """
    base = Index(table=table, epoch=Epoch(0))
    if previous is not None:  # 1
        base = yield from read_index(previous, Epoch(publishing - 1), Point.READ_OBJECT)
    behind = sorted(new, key=lambda file: (file.epoch, file.output.partition))
    _refuse_gaps(base, behind, upto, publishing)
    pages, files = list(base.pages), [*base.files, *behind]
    while len(files) >= PAGE_FILES:  # 2
        key = table_key(table, publishing, f"page-{len(pages)}-{attempt}.json")
        page = IndexPage(files=tuple(files[:PAGE_FILES]))
        pages.append((yield from stage(key, encode(page), Point.STAGE_OUTPUT)))
        del files[:PAGE_FILES]
    whole = Index(table=table, epoch=upto, pages=tuple(pages), files=tuple(files))
    key = table_key(table, publishing, f"index-{attempt}.json")
    ref = yield from stage(key, encode(whole), Point.STAGE_OUTPUT)  # 3
    return TableIndex(epoch=upto, ref=ref)


def _refuse_gaps(base: Index, new: Sequence[TableFile], upto: Epoch, publishing: Epoch) -> None:
    """An index that lists a file twice, or promises an epoch it was not shown, must not be."""
    is_behind = not new or base.epoch < new[0].epoch <= new[-1].epoch <= upto
    if not (is_behind and base.epoch <= upto <= publishing):
        raise Bug(
            f"the index of table {base.table}",
            f"was not extended from epoch {base.epoch} to {upto} in epoch {publishing}: "
            "the new files are of other epochs",
            "report this",
        )


def read_index(index: TableIndex, needed_by: Epoch, at: Point) -> Steps[Index]:
    """The index that a manifest names. It is there as long as `needed_by` is retained."""
    body = yield from Chain().payload(index.ref, needed_by, at)
    return decode(index.ref.key, body, Index, INDEX_FORMAT)


def read_page(ref: Ref, at: Point) -> Steps[tuple[TableFile, ...]]:
    """The files that a page lists."""
    body = yield from body_of(ref, at)
    return decode(ref.key, body, IndexPage, INDEX_FORMAT).files


def index_files(index: TableIndex) -> Steps[list[TableFile]]:
    """All files of an index that HEAD names, at once. For a table of any size, read its pages."""
    head = (yield from Chain().head(Point.READ_HEAD)).document
    whole = yield from read_index(index, head.epoch, Point.READ_OBJECT)
    found: list[TableFile] = []
    for ref in whole.pages:
        found += yield from read_page(ref, Point.READ_OBJECT)
    return [*found, *whole.files]


def table_refs(root: Root, manifest: Manifest) -> Iterator[Ref]:
    """What the indexes that a manifest names lead to: their pages, and all files that they list."""
    for index in manifest.tables.values():
        reading = read_index(index, manifest.epoch, Point.READ_OBJECT)
        whole = perform(reading, root.handlers)
        for page in whole.pages:
            yield page
            files = perform(read_page(page, Point.READ_OBJECT), root.handlers)
            yield from (file.output.ref for file in files)
        yield from (file.output.ref for file in whole.files)


def body_of(ref: Ref, at: Point) -> Steps[bytes]:
    """A file or a page of a table, verified. It stays as long as the table does, so it is HEAD's
    own epoch that needs it, however old the epoch is that added it."""
    body: bytes | None = yield Fetch(at, ref.key)
    if body is not None and _is_whole(ref, body):
        return body
    head = (yield from Chain().head(Point.READ_HEAD)).document
    return (yield from Chain().payload(ref, head.epoch, at))


def _is_whole(ref: Ref, body: bytes) -> bool:
    try:
        verify(ref, hashlib.sha256(body).hexdigest(), len(body))
    except Corrupt:
        return False  # a wire may flip a bit, once: the careful reading decides
    return True


def files_since_index(chain: Chain, newest: Manifest, table: str) -> Steps[list[TableFile]]:
    """The files of epochs that the newest index does not cover yet, in order. A table is in every
    manifest from its first one on, so without an index the first without it ends the walk."""
    index = newest.tables.get(table)
    covered = Epoch(0) if index is None else index.epoch
    found: list[list[TableFile]] = []
    manifest: Manifest | None = newest
    while manifest is not None and manifest.epoch > covered:
        if index is None and table not in manifest.sinks:
            break
        found.append(_files_of(manifest, table))
        manifest = yield from _parent(chain, manifest, covered)
    return [file for files in reversed(found) for file in files]


def _parent(chain: Chain, manifest: Manifest, covered: Epoch) -> Steps[Manifest | None]:
    """The manifest before, unless an index covers it: it may have been given up."""
    before = Epoch(manifest.epoch - 1)
    if manifest.parent is None or before <= covered:
        return None
    return (yield from chain.manifest(manifest.parent, before, Point.READ_MANIFEST))


def _files_of(manifest: Manifest, table: str) -> list[TableFile]:
    outputs = sorted(manifest.sinks.get(table, ()), key=lambda output: output.partition)
    if not _is_table(table, outputs):
        raise _unknown(table, tables_of(manifest))
    return [TableFile(manifest.epoch, output) for output in outputs]


def _is_table(sink: str, outputs: Iterable[Output]) -> bool:
    """Whether nothing speaks against it: other sinks stage their outputs elsewhere."""
    return all(output.ref.key.startswith(table_prefix(sink)) for output in outputs)


def tables_of(manifest: Manifest | None) -> list[str]:
    """The tables a manifest knows, as far as it tells: a sink without new rows may be one."""
    if manifest is None:
        return []
    sinks = {sink for sink, outputs in manifest.sinks.items() if _is_table(sink, outputs)}
    return sorted({*manifest.tables, *sinks})


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of a table as of one epoch, in order of epoch and partition. They are listed as
    often as asked, a page at a time, and are always the same."""

    root: Root
    epoch: Epoch
    """The last epoch whose files count."""
    index: Index | None
    since: tuple[TableFile, ...]
    """Files of epochs behind the index."""

    def __iter__(self) -> Iterator[TableFile]:
        for number in range(self._lists):
            for file in self._list(number):
                if file.epoch > self.epoch:
                    return
                yield file

    def newest(self) -> TableFile | None:
        """The last file, found from the end; None if there is none."""
        for number in reversed(range(self._lists)):
            counting = [file for file in self._list(number) if file.epoch <= self.epoch]
            if counting:
                return counting[-1]
        return None

    @property
    def _lists(self) -> int:
        return 1 if self.index is None else len(self.index.pages) + 2

    def _list(self, number: int) -> tuple[TableFile, ...]:
        """The pages, then what the index lists itself, then what is behind it."""
        if number == self._lists - 1:
            return self.since
        assert self.index is not None, "without an index there is one list"
        if number == len(self.index.pages):
            return self.index.files
        return perform(read_page(self.index.pages[number], Point.READ_OBJECT), self.root.handlers)


def files_at(root: Root, table: str, epoch: Epoch | None = None) -> Iterator[TableFile]:
    """All files of a table as of an epoch, by default HEAD's, in order of epoch and partition."""
    return iter(find_files(root, table, epoch))


def find_files(root: Root, table: str, epoch: Epoch | None = None) -> TableFiles:
    """Where the files of a table are as of an epoch. `Invalid` if there is no such table or the
    epoch is not committed, `Gone` if it was given up and no index covers it.

    Everything that retention may take away is read here; the rest stays as long as the table.
    """
    for remaining in reversed(range(LOOKS_MAX)):
        try:
            return perform(_look(root, table, epoch), root.handlers)
        except Gone:  # the job went on and collected between two of our looks
            if not remaining:
                raise
    raise AssertionError("unreachable: the last look returns or raises")


def _look(root: Root, table: str, epoch: Epoch | None) -> Steps[TableFiles]:
    chain = Chain()
    head = (yield from chain.head(Point.READ_HEAD)).document
    newest: Manifest | None = None
    if head.manifest is not None:
        newest = yield from chain.manifest(head.manifest, head.epoch, Point.READ_MANIFEST)
    if newest is None or table not in {*newest.sinks, *newest.tables}:
        raise _unknown(table, tables_of(newest))
    named = newest.tables.get(table)
    upto = head.epoch if epoch is None else epoch
    covered = Epoch(0) if named is None else named.epoch
    _refuse_epoch(table, upto, covered, head)
    since: list[TableFile] = []
    if upto > covered:
        since = yield from files_since_index(chain, newest, table)
    index: Index | None = None
    if named is not None:
        index = yield from read_index(named, head.epoch, Point.READ_OBJECT)
    return TableFiles(root, upto, index, tuple(since))


def _refuse_epoch(table: str, upto: Epoch, covered: Epoch, head: Head) -> None:
    if not 1 <= upto <= head.epoch:
        raise Invalid(
            f"table {table}",
            f"cannot be read as of epoch {upto}: the last committed epoch is {head.epoch}",
            "choose a committed epoch",
        )
    if upto < head.floor and upto > covered:
        raise Gone(
            f"table {table}",
            f"cannot be read as of epoch {upto}: epochs below {head.floor} have been given up",
            f"read epoch {head.floor} or later",
        )


def _unknown(table: str, known: Sequence[str]) -> Invalid:
    advice = f"read one of {', '.join(known)}" if known else "no epoch has written to one yet"
    return Invalid(f"table {table}", "is not a table of this job", advice)
