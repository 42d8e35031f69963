"""JSON lines and CSV: what a line says, by Arrow's parsers, one row for one line.

Arrow reads blocks, not lines: left alone it lets a quotation mark that is never closed swallow
the next line, finds two objects in one line, or one in two. So each parser is given lines in a
form in which a row that is not exactly its line cannot go unseen. Then a block converts if and
only if each of its lines does alone, and what a line says never depends on its neighbours.

JSON: every line begins with `{` and ends with `}`. In valid JSON no `{` follows a `}` inside a
value, so no object spans two such lines; as many objects as lines are one each.

CSV: every line is given a first cell with a mark that no text has, and a line of nothing but
the mark ends the block. As many rows as marks, each row beginning with one, are a line each.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.csv as pa_csv  # type: ignore[import-untyped]
import pyarrow.json as pa_json  # type: ignore[import-untyped]

from penstock.sources.files_lines import LINE_BYTES_MAX
from penstock.sources.files_shape import Shape, widened

__all__ = ["Csv", "JsonLines", "Parse", "Text"]

Parse = Callable[[Sequence[bytes]], pa.RecordBatch]
"""Makes one row of every line, or raises if one of them is bad."""

BOM = b"\xef\xbb\xbf"
"""What some programs begin a text with."""

MARK = b"\x1e"
"""A record separator: a control character with no other use."""


class Text(Protocol):
    """What sets one kind of text apart."""

    @property
    def has_header(self) -> bool:
        """Whether the first line names the columns."""

    def is_row(self, line: bytes) -> bool:
        """Whether a line that is not empty says anything."""

    def infer(self, header: bytes, lines: Sequence[bytes]) -> pa.Schema:
        """The columns that some lines have."""

    def parser(self, header: bytes, shape: Shape) -> Parse:
        """How lines below a header become rows; raises if none can fit the shape."""


class JsonLines:
    """An object on every line. Fields the shape does not know are ignored."""

    has_header = False

    def is_row(self, line: bytes) -> bool:
        """A line of blanks is no row, as an empty one."""
        return not line.isspace()

    def infer(self, header: bytes, lines: Sequence[bytes]) -> pa.Schema:
        """By what Arrow makes of the values."""
        return widened(_parse_json(lines, pa_json.ParseOptions()).schema)

    def parser(self, header: bytes, shape: Shape) -> Parse:
        """Fields by their names."""
        told = pa.schema([pa.field(field.name, _json_type(field.type)) for field in shape.columns])
        options = pa_json.ParseOptions(explicit_schema=told, unexpected_field_behavior="ignore")
        return lambda lines: shape.fitted(_batch(_parse_json(lines, options)))


def _json_type(kind: pa.DataType) -> pa.DataType:
    """What a column is read as, before it is cast: JSON has no dates, and Arrow no word for it. Nor
    has it times, of which Arrow takes those without a zone for UTC."""
    if pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is not None):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_json_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_json_type(kind.value_type)))
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _parse_json(lines: Sequence[bytes], options: pa_json.ParseOptions) -> pa.Table:
    stripped = [line.removeprefix(BOM).strip() for line in lines]
    text = _checked(b"\n".join(stripped) + b"\n", lines)
    for line in stripped:
        if not (line.startswith(b"{") and line.endswith(b"}")):
            raise ValueError("it is not an object in braces")
    reading = pa_json.ReadOptions(use_threads=False, block_size=len(text) + 1)
    try:
        table = pa_json.read_json(pa.BufferReader(text), reading, options)
    except pa.ArrowInvalid as error:
        raise ValueError(re.sub(r" in row \d+", "", str(error))) from error
    if table.num_rows != len(lines):
        raise ValueError("it is not exactly one object")
    return table


class Csv:
    """Values between commas, below a line that names them. An empty value is null, in a column
    of text too; an empty text is written as two quotation marks."""

    has_header = True

    def is_row(self, line: bytes) -> bool:
        """Blanks may be a value."""
        return True

    def infer(self, header: bytes, lines: Sequence[bytes]) -> pa.Schema:
        """By what Arrow makes of the values."""
        names = _header_names(header)
        if len(set(names)) < len(names):
            raise ValueError("its header has a name more than once")
        options = pa_csv.ConvertOptions(**_NULLS)
        return widened(_parse_csv(_Header(header, names), lines, options).schema)

    def parser(self, header: bytes, shape: Shape) -> Parse:
        """Columns by their names in the header."""
        names = _header_names(header)
        shape.check_names(names)
        known = [field for field in shape.columns if field.name in names]
        options = pa_csv.ConvertOptions(
            column_types={field.name: _csv_type(field.type) for field in known},
            include_columns=[MARK.decode(), *(field.name for field in known)],
            **_NULLS,
        )
        above = _Header(header, names)
        return lambda lines: shape.fitted(_batch(_parse_csv(above, lines, options)))


_NULLS = {
    "null_values": [""],
    "strings_can_be_null": True,
    "quoted_strings_can_be_null": False,
}


class _Header(NamedTuple):
    line: bytes
    names: list[str]


def _csv_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _header_names(header: bytes) -> list[str]:
    """The names in a header, in order, as often as they are there."""
    text = _checked(header.removeprefix(BOM) + b"\n", [header])
    names = [f"f{number}" for number in range(text.count(b",") + 1)]
    table = pa_csv.read_csv(
        pa.BufferReader(text),
        pa_csv.ReadOptions(use_threads=False, autogenerate_column_names=True),
        pa_csv.ParseOptions(newlines_in_values=True),
        pa_csv.ConvertOptions(column_types={name: pa.string() for name in names}),
    )
    if table.num_rows != 1:
        raise ValueError("its header is not one line")
    return [column[0].as_py() for column in table.columns]


def _parse_csv(header: _Header, lines: Sequence[bytes], options: pa_csv.ConvertOptions) -> pa.Table:
    """The rows of some lines."""
    start = MARK + b","
    above = header.line.removeprefix(BOM)
    last = MARK + b"," * len(header.names) + b"\n"
    text = start + (b"\n" + start).join((above, *lines)) + b"\n" + last
    reading = pa_csv.ReadOptions(use_threads=False, block_size=len(text) + 1)
    parsing = pa_csv.ParseOptions(newlines_in_values=True)
    try:
        table = pa_csv.read_csv(pa.BufferReader(_checked(text, lines)), reading, parsing, options)
    except pa.ArrowInvalid as error:
        raise ValueError(_without_mark(str(error), header.names)) from error
    marked = pc.all(pc.equal(table.column(0), MARK.decode())).as_py()
    if text.count(MARK) != len(lines) + 2 or table.num_rows != len(lines) + 1 or not marked:
        raise ValueError("it is not one row: is a value with line ends in it?")
    return table.slice(0, len(lines)).remove_column(0)


def _without_mark(said: str, names: list[str]) -> str:
    """What Arrow says of a line, as if there had been no other and no mark."""
    if wrong := re.search(r"Expected \d+ columns, got (\d+)", said):
        return f"it has {int(wrong[1]) - 1} values below {len(names)} names"
    if wrong := re.match(r"In CSV column #(\d+): Row #\d+: (.*)", said, re.DOTALL):
        return f"column {names[int(wrong[1]) - 1]!r}: {wrong[2]}"
    return said


def _checked(text: bytes, lines: Sequence[bytes]) -> bytes:
    """The text, if it is UTF-8 and no line is too long to be read."""
    if len(text) > LINE_BYTES_MAX and max(map(len, lines)) > LINE_BYTES_MAX:
        raise ValueError(f"it is longer than {LINE_BYTES_MAX} bytes")
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8") from error
    return text


def _batch(table: pa.Table) -> pa.RecordBatch:
    [batch] = table.combine_chunks().to_batches()
    return batch
