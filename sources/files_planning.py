"""Choosing ranges of files: whole lines of text, and as many rows as are allowed.

Where an offset is a row, limits count offsets. Where it is a byte, a limit of rows says nothing
about offsets, and a range of a few bytes may hold no row at all. So ranges of text end where a
line begins, hold at least one row if there is any, and are counted line by line if rows are
limited. That reads what the tasks will read again, but only then.
"""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass

from penstock.sources.files_formats import SplitText, format_for
from penstock.sources.files_lines import BLOCK_BYTES, HEAD_BYTES, line_blocks, line_start
from penstock.sources.files_listing import RangedFile
from penstock.sources.files_order import Record
from penstock.sources.files_record import FileEntry, Order, Placed
from penstock.sources.planning import plan_ranges
from penstock.sources.protocol import Limits, Range, Span

__all__ = ["Planner"]

OpenFile = Callable[[FileEntry], RangedFile]


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans ranges of one order of files."""

    name: str
    record: Record
    order: Order
    open: OpenFile

    def plan(
        self, spans: Mapping[str, Span], resume: Mapping[str, int], limits: Limits
    ) -> Mapping[str, Range]:
        """Ranges under the limits, each with at least a row if there is one."""
        row_bytes = self._row_bytes()
        if not self.order.has_text:
            return plan_ranges(self.name, spans, resume, limits, row_bytes)
        by_size = Limits(size_bytes=limits.size_bytes)
        ranges = plan_ranges(self.name, spans, resume, by_size, row_bytes)
        return self._fitted(ranges, limits) if limits != Limits() else ranges

    def _row_bytes(self) -> dict[str, float]:
        """What an offset of each partition takes, on average."""
        totals = zip(self.order.sizes_bytes, self.order.ends(), strict=True)
        return {str(n): size / end for n, (size, end) in enumerate(totals) if end}

    def _fitted(self, ranges: Mapping[str, Range], limits: Limits) -> Mapping[str, Range]:
        """Ranges cut to whole lines and to the rows allowed, shared as equally as they go."""
        fitted = dict[str, Range]()
        left = None if limits.records is None else max(1, limits.records)
        longest = sorted(ranges, key=lambda p: (ranges[p].start - ranges[p].stop, p))
        for number, partition in enumerate(longest):
            if left is None:
                fitted[partition] = self._to_a_line(partition, ranges[partition])
            elif left:
                share = -(-left // (len(longest) - number))
                fitted[partition], rows = self._to_rows(partition, ranges[partition], share)
                left -= rows
        return fitted

    def _to_a_line(self, partition: str, wanted: Range) -> Range:
        """The range, ended where a line begins and behind its first row."""
        if wanted.stop == self._end(partition):
            return wanted
        least, _ = self._to_rows(partition, Range(start=wanted.start, stop=wanted.start + 1), 1)
        stop = max(wanted.stop, least.stop)
        last = Range(start=stop - 1, stop=stop)
        for placed in self.record.files(self.order, int(partition), last):
            if _as_text(placed.entry) is not None:
                with closing(self.open(placed.entry)) as file:
                    stop = placed.base + line_start(file, stop - placed.base)
        return Range(start=wanted.start, stop=stop)

    def _end(self, partition: str) -> int:
        return self.order.ends()[int(partition)]

    def _to_rows(self, partition: str, wanted: Range, rows: int) -> tuple[Range, int]:
        """A range of at most so many rows, and how many it has.

        It is cut short where `wanted` ends, but not before it has a row.
        """
        position, count = wanted.start, 0
        rest = Range(start=wanted.start, stop=self._end(partition))
        for placed in self.record.files(self.order, int(partition), rest):
            if count == rows or (count and position >= wanted.stop):
                break
            found = self._rows_in(placed, position, wanted.stop, rows - count)
            position, count = found[0], count + found[1]
        return Range(start=wanted.start, stop=position), count

    def _rows_in(self, placed: Placed, start: int, stop: int, rows: int) -> tuple[int, int]:
        """Where to stop in one file, and how many rows lie before: no more than allowed, and
        none that begins at `stop` or later, unless it would be the first."""
        text = _as_text(placed.entry)
        if text is None:
            taken = min(rows, placed.end - start, max(1, stop - start))
            return start + taken, taken
        with closing(self.open(placed.entry)) as file:
            reached, taken = _lines_in(text, file, start - placed.base, stop - placed.base, rows)
        return placed.base + reached, taken


def _as_text(entry: FileEntry) -> SplitText | None:
    if entry.format is None:
        return None
    reader = format_for(entry.path, entry.format, entry.unit == "rows")
    return reader if isinstance(reader, SplitText) else None


def _lines_in(
    text: SplitText, file: RangedFile, start: int, stop: int, rows: int
) -> tuple[int, int]:
    """Where the last line ends that may be taken, and how many lines that are not empty lie
    between it and `start`."""
    _, floor = text.head(file)
    begin = line_start(file, start) if start > floor else floor
    block_bytes = max(HEAD_BYTES, min(BLOCK_BYTES, stop - begin))
    count = 0
    for found in line_blocks(file, begin, file.size_bytes, block_bytes):
        allowed = int((found.positions < stop).sum()) or (0 if count else 1)
        take = min(rows - count, allowed, len(found.lines))
        count += take
        if take < len(found.lines):
            return int(found.positions[take]), count
        if count == rows:
            return int(found.nexts[-1]), count
    return file.size_bytes, count
