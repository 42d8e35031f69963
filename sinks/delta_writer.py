"""An open Delta table: rows and cursor in one commit, which names both or is not there.

A commit of a table is the next numbered file of its log, made by a conditional write. The cursor is
four application transactions (`txn`) in the commit that has the rows: epoch, generation, mark and
token, each a whole number, as Delta keeps them. A log entry is there whole or not at all, so they
are never apart.

1. Load the table as it is now.
2. Read the cursor from it, and decide.
3. Commit on top of what was read. Appended rows may go behind the commit of somebody else, but not
   behind one with a cursor of ours: the client refuses that. Merged rows were compared with the
   whole table, so they go on top of exactly what was read.
4. If another was faster, begin again. What we wrote is in no commit, and VACUUM removes it.
5. In a folder, wait until the disk has it: deltalake does not.

An answer that is lost is settled by 1 and 2 of the next call.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from penstock.errors import Corrupt, Unavailable
from penstock.ids import Epoch, Generation, Token
from penstock.sinks.cursors import Apply, Cursor, Held, is_applied
from penstock.sinks.delta_columns import as_kept
from penstock.sinks.delta_errors import explained, is_conflict
from penstock.sinks.delta_place import LOG, FolderPlace, place_of
from penstock.sinks.delta_table import Shape, TableAt, columns_of
from penstock.sinks.keyed import Changes
from penstock.sinks.protocol import PROVENANCE, Target
from penstock.sinks.staged import rows_of

if TYPE_CHECKING:
    from penstock.sinks.delta import Delta

__all__ = ["DeltaWriter", "cursor_names", "held_in", "open_writer", "table_at"]

ROUNDS_MAX = 10
"""How often an epoch is written anew because others keep committing."""

GOES = "_penstock_goes"
"""In what is merged: whether the key is to go."""


def open_writer(sink: "Delta", target: Target, columns: pa.Schema) -> "DeltaWriter":
    """Find the table, or make it."""
    at = table_at(sink, columns)
    at.made(create=sink.create)
    if isinstance(at.place, FolderPlace):
        os.sync()  # the table itself, whoever has made it
    return DeltaWriter(sink, target, at)


@dataclass(frozen=True, slots=True)
class _Known:
    version: tuple[object, int]
    """Of which table, and which one: it never changes."""
    held: Held


@dataclass(slots=True)
class DeltaWriter:
    """An open table. It holds no connection: each call finds the table anew."""

    sink: "Delta"
    target: Target
    at: TableAt
    _known: "_Known | None" = field(default=None, init=False)
    """The last cursor we have seen or written. In a folder it survives a loss of power."""

    def read_cursor(self, shard: int) -> Cursor | None:
        """How far the table is."""
        del shard  # there is one
        held = self._held(self.at.load())
        return None if held is None else held.cursor

    def apply(self, asked: Apply) -> None:
        """One commit, with the rows and the cursor."""
        unwanted = () if self.sink.provenance else PROVENANCE.names
        rows = rows_of(asked.outputs, self.target.columns, unwanted)
        changes = self.sink.keyed.changes(as_kept(rows))
        held = Held(asked.cursor, asked.token)
        for _ in range(ROUNDS_MAX):
            table = self.at.load()  # 1
            if is_applied(asked, self._held(table)):  # 2
                return
            if self._commit(table, changes, held):  # 3
                return
        raise self._outrun()  # 4

    def accept(self, shard: int, cursor: Cursor, token: Token) -> None:
        """A commit with a cursor and no rows."""
        del shard
        nothing = self.at.shape.columns.empty_table()
        for _ in range(ROUNDS_MAX):
            if self._commit(self.at.load(), Changes(nothing, nothing), Held(cursor, token)):
                return
        raise self._outrun()

    def close(self) -> None:
        """Nothing is held."""

    def _held(self, table: DeltaTable) -> Held | None:
        """The cursor in the table; read again only if there is a commit that we do not know."""
        version = (table.metadata().id, table.version())
        if self._known is not None and self._known.version == version:
            return self._known.held
        held = held_in(table, self.at, self._names())
        if held is None:
            return None
        if isinstance(self.at.place, FolderPlace) and (
            self._known is None or self._known.held != held
        ):
            os.sync()  # whoever wrote it may have died before the disk had it
        self._known = _Known(version, held)
        return held

    def _commit(self, table: DeltaTable, changes: Changes, held: Held) -> bool:
        """Whether the changes and the cursor are there; not if somebody else was faster."""
        before = table.version()
        with explained(str(self.at), self.at.place):
            try:
                if not self.at.shape.key:
                    _append(table, changes.puts, self._properties(held))
                elif changes.puts.num_rows or changes.gone.num_rows:
                    _merge(table, self.at.shape.key, changes, self._properties(held, retries=0))
                if table.version() == before:
                    # Nothing to change is no commit to the client: the cursor needs one.
                    _append(table, changes.puts.slice(0, 0), self._properties(held, retries=0))
            except CommitFailedError as error:
                if is_conflict(error):
                    return False
                raise
            if isinstance(self.at.place, FolderPlace):
                _sync(self.at.place.folder, table.version())  # 5
        self._known = _Known((table.metadata().id, table.version()), held)
        return True

    def _properties(self, held: Held, retries: int | None = None) -> CommitProperties:
        cursor = held.cursor
        numbers = (cursor.epoch, cursor.generation, cursor.mark, held.token)
        pairs = zip(self._names(), numbers, strict=True)
        transactions = [Transaction(name, number) for name, number in pairs]
        return CommitProperties(app_transactions=transactions, max_commit_retries=retries)

    def _names(self) -> list[str]:
        return cursor_names(self.target.job, self.sink.name)

    def _outrun(self) -> Unavailable:
        found = f"was changed by others {ROUNDS_MAX} times before our commit was there"
        return Unavailable(str(self.at), found, "let them pause: it is tried again")


def cursor_names(job: str, sink: str) -> list[str]:
    """What the numbers of a cursor are called in a table."""
    return [f"penstock/{job}/{sink}/{part}" for part in ("epoch", "generation", "mark", "token")]


def held_in(table: DeltaTable, at: TableAt, names: Sequence[str]) -> Held | None:
    """The cursor of these names in a table as it was loaded; None if there is none."""
    with explained(str(at), at.place):
        found = [table.transaction_version(each) for each in names]
    numbers = [number for number in found if number is not None]
    if not numbers:
        return None
    if len(numbers) < len(found):
        said = "has lost a part of its cursor"
        raise Corrupt(str(at), said, "put it right with `penstock sinks accept`")
    epoch, generation, mark, token = numbers
    return Held(Cursor(Generation(generation), Epoch(epoch), mark), Token(token))


def table_at(sink: "Delta", columns: pa.Schema) -> TableAt:
    """Where the table of a sink is, and what it must be like for rows of these columns."""
    place = place_of(f"sink {sink.name}", sink.url)
    shape = Shape(as_kept(columns.empty_table()).schema, sink.key, sink.partition_by)
    return TableAt(sink.name, place, shape)


def _append(table: DeltaTable, rows: pa.Table, properties: CommitProperties) -> None:
    """Rows with all the columns of the table, in its order."""
    given = set(rows.column_names)
    columns = columns_of(table)
    arrays = [
        rows.column(column.name) if column.name in given else pa.nulls(len(rows), column.type)
        for column in columns
    ]
    whole = pa.table(arrays, names=columns.names)
    write_deltalake(table, whole, mode="append", commit_properties=properties)


def _merge(
    table: DeltaTable, key: Sequence[str], changes: Changes, properties: CommitProperties
) -> None:
    """Put rows in the place of those of the same key; take away those that go."""
    source = pa.concat_tables(
        [
            rows.append_column(GOES, pa.array([goes] * len(rows), pa.bool_()))
            for rows, goes in ((changes.puts, False), (changes.gone, True))
        ]
    )
    same = " AND ".join(f"old.{_quoted(name)} = new.{_quoted(name)}" for name in key)
    columns = {f"old.{_quoted(name)}": f"new.{_quoted(name)}" for name in changes.puts.column_names}
    (
        table.merge(
            source,
            same,
            source_alias="new",
            target_alias="old",
            streamed_exec=False,  # so that files without such keys are not read
            commit_properties=properties,
        )
        .when_matched_delete(f"new.{GOES}")
        .when_matched_update(columns)
        .when_not_matched_insert(columns, f"NOT new.{GOES}")
        .execute()
    )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _sync(folder: Path, version: int) -> None:
    """Wait until the disk has a commit, what it adds, the checkpoint that may come with it, and
    the names of them all."""
    entry = Path(LOG, f"{version:020}.json")
    actions = map(json.loads, (folder / entry).read_text().splitlines())
    added = [Path(unquote(action["add"]["path"])) for action in actions if "add" in action]
    checkpoint = [path.relative_to(folder) for path in (folder / LOG).glob(f"{version:020}.c*")]
    if checkpoint:
        checkpoint.append(Path(LOG, "_last_checkpoint"))
    written = [*added, *checkpoint, entry]
    folders = {above for path in written for above in path.parents}
    for path in (folder / each for each in (*written, *folders)):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
