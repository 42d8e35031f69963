"""What a Postgres table holds: rows and cursors of one moment, read in one transaction.

The transaction is read-only and sees the database as it was when it began, whatever is committed
meanwhile. Rows come by COPY, as text, and are read in pieces. While it is open, VACUUM keeps what
it can see: it should not stay open longer than it takes to read.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import psycopg
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.csv as pacsv  # type: ignore[import-untyped]
from psycopg import sql

from penstock.errors import Invalid
from penstock.sinks.cursors import Cursor
from penstock.sinks.keyed import Changes
from penstock.sinks.postgres import Postgres
from penstock.sinks.postgres_catalog import columns_of, find, lacking_privileges
from penstock.sinks.postgres_cursors import CursorTable, held_of
from penstock.sinks.postgres_errors import translated
from penstock.sinks.postgres_lines import Line, Lines, settings_of
from penstock.sinks.postgres_names import CURSORS, Place
from penstock.sinks.postgres_shown import Shown, shown
from penstock.sinks.postgres_types import plain_type
from penstock.sinks.postgres_values import plain_rows
from penstock.sinks.protocol import PLACE, Target, Traits

__all__ = ["PostgresHolding", "hold"]

PIECE_ROWS = 1 << 16
PIECE_BYTES = 16 << 20
"""How much text is read before it is made columns of."""

READ_MS_MAX = 6 * 3600 * 1000
"""How long one reading of all rows may take, and the transaction wait in between."""

LOCK_MS_MAX = 10_000

_BEGIN = sql.SQL(
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL lock_timeout = {}; "
    "SET LOCAL statement_timeout = {}; SET LOCAL idle_in_transaction_session_timeout = {}; "
    "SET LOCAL extra_float_digits = 1"
).format(LOCK_MS_MAX, READ_MS_MAX, READ_MS_MAX)


def hold(sink: Postgres, target: Target, columns: pa.Schema) -> "PostgresHolding":
    """Connect, and see what the table has of these columns."""
    place = sink.place
    lines = Lines(place, settings_of(f"sink {sink.name}", sink.connection))
    with ExitStack() as stack:
        stack.callback(lines.close)
        line = stack.enter_context(lines.line())
        with _said(place):
            line.run(_BEGIN)
            look = _look(line, sink, target, columns)
        return PostgresHolding(sink, line, look, stack.pop_all())


@dataclass(frozen=True, slots=True)
class _Look:
    """What was found out when the transaction began."""

    forms: tuple[Shown, ...]
    left_out: tuple[str, ...]
    cursors: CursorTable | None
    """None: there is no table of cursors."""
    is_shared: bool


def _look(line: Line, sink: Postgres, target: Target, columns: pa.Schema) -> _Look:
    place = sink.place
    table = find(line, place.schema, place.table)
    if table is None:
        raise Invalid(str(place), "is not there", "look whether the job has been started yet")
    if lacking_privileges(line, table, columns.names, ("SELECT",), ()):
        raise Invalid(str(place), "does not let this user read it", "GRANT SELECT ON it")
    have = {column.name: column for column in columns_of(line, table)}
    forms, left_out = [], []
    for field in columns:
        form = shown(have[field.name], plain_type(field.type)) if field.name in have else None
        if form is None:
            left_out.append(field.name)
        else:
            forms.append(form)
    cursors = CursorTable(place.schema, target.job, place.sink, place.table)
    if find(line, place.schema, CURSORS) is None:
        return _Look(tuple(forms), tuple(left_out), None, False)
    return _Look(tuple(forms), tuple(left_out), cursors, bool(line.run(cursors.others())))


class PostgresHolding:
    """An open transaction that changes nothing."""

    def __init__(self, sink: Postgres, line: Line, look: _Look, stack: ExitStack) -> None:
        self._sink = sink
        self._line = line
        self._look = look
        self._stack = stack
        self.traits = Traits(
            key=sink.keyed.key,
            has_places=sink.provenance,
            others="other sinks write to the table" if look.is_shared else "",
            is_shared=look.is_shared,
            left_out=look.left_out,
        )

    def read_cursor(self, shard: int) -> Cursor | None:
        """How far the shard is."""
        cursors = self._look.cursors
        if cursors is None:
            return None
        with _said(self._sink.place):
            held = held_of(self._line.run(cursors.read(shard)))
        return None if held is None else held.cursor

    def expected(self, rows: pa.Table) -> Changes:
        """Each column in the form it is compared in."""
        changes = self._sink.keyed.changes(plain_rows(rows.drop_columns(["_input"])))
        return Changes(self._formed(changes.puts), self._formed(changes.gone))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of the table, in the same forms."""
        place = self._sink.place
        selected = sql.SQL(", ").join(form.select() for form in self._look.forms)
        source = sql.Identifier(place.schema, place.table)
        copying = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT csv, ENCODING 'UTF8')")
        with (
            _said(place),
            self._line.cursor() as cursor,
            cursor.copy(copying.format(selected, source)) as copy,
        ):
            piece, size_bytes = [], 0
            for row in copy:  # the server sends each row as a message of its own
                piece.append(bytes(row))
                size_bytes += len(row)
                if len(piece) == PIECE_ROWS or size_bytes > PIECE_BYTES:
                    yield self._read(piece)
                    piece, size_bytes = [], 0
            if piece:
                yield self._read(piece)

    def close(self) -> None:
        """End the transaction, and hang up."""
        self._line.close()
        self._stack.close()

    def _formed(self, rows: pa.Table) -> pa.Table:
        columns = {
            form.name: form.ours(rows.column(form.name).combine_chunks())
            for form in self._look.forms
        }
        for name in PLACE:
            columns[name] = rows.column(name)
        return pa.table(columns)

    def _read(self, piece: list[bytes]) -> pa.RecordBatch:
        forms = self._look.forms
        read = pacsv.read_csv(
            pa.BufferReader(b"".join(piece)),
            pacsv.ReadOptions(
                column_names=[form.name for form in forms], block_size=1 << 30, use_threads=False
            ),
            pacsv.ParseOptions(newlines_in_values=True),
            pacsv.ConvertOptions(
                column_types={form.name: form.kind for form in forms},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                true_values=["t"],
                false_values=["f"],
            ),
        )
        columns = [form.theirs(read.column(form.name).combine_chunks()) for form in forms]
        return pa.RecordBatch.from_arrays(columns, names=[form.name for form in forms])


@contextmanager
def _said(place: Place) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise translated(place, error) from error
