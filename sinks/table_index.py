"""The index of a table: its files listed apart from the manifests that added them.

History is given up; a table is not. So now and then the leader lists every file of a table up
to an epoch in one immutable object, and each manifest from then on names it. A reader takes
HEAD's manifest, walks back to the epoch of the index it names, and finds the rest there. It
stays with that one manifest, however far the job goes on meanwhile.

Three rules keep a table whole. An index lists all that the one before it listed, so whatever an
older manifest shows, the newest index shows as well: an epoch is read from HEAD's index, and
later files are left out. It is extended by a tail without gaps (`penstock.sinks.table_tail`), and
must list as many files as the chain has counted (`penstock.checkpoint.tally`), or it is not stored,
not read and not swept by. And retention never moves the floor past an index: to the collector a
table is a sink that has yet to apply everything behind its newest index.
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
from penstock.checkpoint.tally import Tally
from penstock.effects import Fetch, Steps
from penstock.errors import Bug, Corrupt, Gone, Invalid
from penstock.fields import FormatNumber, Name
from penstock.ids import Attempt, Epoch, Generation, Key
from penstock.points import Point
from penstock.sinks.table_tail import TableFile, TableTail, TailWalk

__all__ = [
    "INDEX_FORMAT",
    "PAGE_FILES",
    "Index",
    "IndexPage",
    "TableFile",
    "TableFiles",
    "all_table_refs",
    "body_of",
    "extend_index",
    "files_at",
    "files_since_index",
    "find_files",
    "index_files",
    "missing_table_files",
    "read_index",
    "read_page",
    "refuse_miscount",
    "table_refs",
    "tables_of",
]

INDEX_FORMAT = 1
PAGE_FILES = 1000
"""How many files a page lists. A million files are a thousand pages, and an index of 200 KB."""

LOOKS_MAX = 10
"""How often a reader that fell behind a running job looks at HEAD again."""


class IndexPage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files that are listed once and never again."""

    format: FormatNumber = INDEX_FORMAT
    files: tuple[TableFile, ...]


class Index(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All files of a table up to `epoch`, in order of epoch and partition."""

    format: FormatNumber = INDEX_FORMAT
    table: Name
    epoch: Epoch
    pages: tuple[Ref, ...] = ()
    """The oldest files: pages of `PAGE_FILES` each."""
    files: tuple[TableFile, ...] = ()
    """The rest: less than a page."""

    @property
    def count(self) -> int:
        """How many files it lists."""
        return PAGE_FILES * len(self.pages) + len(self.files)


def extend_index(
    chain: Chain,
    table: str,
    tail: TableTail,
    publishing: Epoch,
    attempt: Attempt,
    tally: Tally | None,
) -> Steps[TableIndex]:
    """Store an index with the files of the one before and of its tail; what a manifest names.
    `chain` is the leader's, `tally` that of the tail's last epoch.

    1. Read the previous index. The tail must follow it and reach the epoch before the one that
       publishes, and both together must have all files that the chain has counted.
    2. Store each full page. It is not written again by any later index.
    3. Store the index. A crash before its manifest is committed leaves orphans for the sweep.
    """
    base = Index(table=table, epoch=tail.base)
    if tail.index is not None:  # 1
        base = yield from read_index(chain, tail.index, Epoch(publishing - 1), Point.READ_OBJECT)
    _refuse_gaps(base, tail, publishing)
    pages, files = list(base.pages), [*base.files, *tail.files()]
    refuse_miscount(table, base.count + len(tail.files()), tally, tail.upto)
    while len(files) >= PAGE_FILES:  # 2
        key = table_key(table, publishing, f"page-{len(pages)}-{attempt}.json")
        page = IndexPage(files=tuple(files[:PAGE_FILES]))
        pages.append((yield from stage(key, encode(page), Point.STAGE_OUTPUT)))
        del files[:PAGE_FILES]
    whole = Index(table=table, epoch=tail.upto, pages=tuple(pages), files=tuple(files))
    key = table_key(table, publishing, f"index-{attempt}.json")
    ref = yield from stage(key, encode(whole), Point.STAGE_OUTPUT)  # 3
    return TableIndex(epoch=tail.upto, ref=ref)


def _refuse_gaps(base: Index, tail: TableTail, publishing: Epoch) -> None:
    """An index that lists a file twice, or promises an epoch it was not shown, must not be."""
    if not base.epoch == tail.base <= tail.upto == publishing - 1:
        raise Bug(
            f"the index of table {base.table}",
            f"was not extended from epoch {base.epoch} in epoch {publishing}: its tail has epochs "
            f"{tail.base + 1} to {tail.upto}",
            "report this",
        )


def refuse_miscount(table: str, found: int, tally: Tally | None, epoch: Epoch) -> None:
    """Raise unless a table lists as many files as the chain has counted up to an epoch. What an
    older version began cannot be counted: its tally does not go back to the first epoch."""
    if tally is None or tally.since != 0 or tally.total(table).files == found:
        return
    raise Corrupt(
        f"table {table}",
        f"lists {found:,} files as of epoch {epoch}, and the chain has counted "
        f"{tally.total(table).files:,}",
        "stop the job, run `penstock audit`, and restore an epoch whose table is whole",
    )


def read_index(chain: Chain, index: TableIndex, needed_by: Epoch, at: Point) -> Steps[Index]:
    """The index that a manifest names. It is there as long as `needed_by` is retained."""
    body = yield from chain.payload(index.ref, needed_by, at)
    return decode(index.ref.key, body, Index, INDEX_FORMAT)


def read_page(chain: Chain, ref: Ref, at: Point) -> Steps[tuple[TableFile, ...]]:
    """The files that a page lists."""
    body = yield from body_of(chain, ref, at)
    return decode(ref.key, body, IndexPage, INDEX_FORMAT).files


def index_files(chain: Chain, index: TableIndex) -> Steps[list[TableFile]]:
    """All files of an index that HEAD names, at once. For a table of any size, read its pages."""
    head = (yield from chain.head(Point.READ_HEAD)).document
    whole = yield from read_index(chain, index, head.epoch, Point.READ_OBJECT)
    found: list[TableFile] = []
    for ref in whole.pages:
        found += yield from read_page(chain, ref, Point.READ_OBJECT)
    return [*found, *whole.files]


def table_refs(root: Root, manifest: Manifest) -> Iterator[Ref]:
    """What the indexes that a manifest names lead to: their pages, and all files that they list.
    The manifest must be pinned: then all of it stays, whatever becomes of HEAD."""
    chain = Chain()
    for index in manifest.tables.values():
        reading = read_index(chain, index, manifest.epoch, Point.READ_OBJECT)
        whole = perform(reading, root.handlers)
        for page in whole.pages:
            yield page
            files = perform(read_page(chain, page, Point.READ_OBJECT), root.handlers)
            yield from (file.output.ref for file in files)
        yield from (file.output.ref for file in whole.files)


def all_table_refs(root: Root, manifest: Manifest) -> Iterator[Ref]:
    """All that tables are made of as of a manifest that is pinned or HEAD's: pages and files of its
    indexes, and the files of the epochs behind those."""
    yield from table_refs(root, manifest)
    for table in tables_of(manifest):
        tail = perform(files_since_index(Chain(), manifest, table), root.handlers)
        yield from (file.output.ref for file in tail)


def missing_table_files(root: Root, manifest: Manifest) -> list[Key]:
    """What tables need as of such a manifest, and a listing does not show."""
    there: set[str] = set()
    for table in tables_of(manifest):
        after = ""
        while page := root.store.list(table_prefix(table), after):
            there.update(entry.key for entry in page)
            after = page[-1].key
    return sorted({ref.key for ref in all_table_refs(root, manifest)} - there)


def body_of(chain: Chain, ref: Ref, at: Point) -> Steps[bytes]:
    """A file or a page of a table, verified. It stays as long as the table does, so it is HEAD's
    own epoch that needs it, however old the epoch is that added it."""
    body: bytes | None = yield Fetch(at, ref.key)
    if body is not None and _is_whole(ref, body):
        return body
    head = (yield from chain.head(Point.READ_HEAD)).document
    return (yield from chain.payload(ref, head.epoch, at))


def _is_whole(ref: Ref, body: bytes) -> bool:
    try:
        verify(ref, hashlib.sha256(body).hexdigest(), len(body))
    except Corrupt:
        return False  # a wire may flip a bit, once: the careful reading decides
    return True


def files_since_index(chain: Chain, newest: Manifest, table: str) -> Steps[list[TableFile]]:
    """The files of epochs that the newest index does not cover yet, in order. `Invalid` if what
    they wrote to the sink says that it is no table."""
    walk, manifest = TailWalk(table), newest
    while True:
        if not _is_table(table, manifest.sinks.get(table, ())):
            raise _unknown(table, tables_of(manifest))
        walk.add(manifest)
        if walk.done or manifest.parent is None:
            return walk.tail().files()
        manifest = yield from chain.manifest(manifest.parent, newest.epoch, Point.READ_MANIFEST)


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
    chain: Chain
    """The one that found them."""
    epoch: Epoch
    """The last epoch whose files count."""
    index: Index | None
    since: tuple[TableFile, ...]
    """Files of epochs behind the index."""

    @property
    def generation(self) -> Generation:
        """The line of history they are on."""
        return self.chain.generation

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
        reading = read_page(self.chain, self.index.pages[number], Point.READ_OBJECT)
        return perform(reading, self.root.handlers)


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
        index = yield from read_index(chain, named, head.epoch, Point.READ_OBJECT)
    if upto > covered:
        listed = len(since) + (0 if index is None else index.count)
        refuse_miscount(table, listed, newest.tally, head.epoch)
    return TableFiles(root, chain, upto, index, tuple(since))


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
