"""`Http`: rows as JSON, sent by POST with an idempotency key.

A batch is `{"job": …, "sink": …, "epoch": …, "rows": [{…}, …]}`; with `per="row"` each row is a
request of its own, and its body the row. Values are spelt as in `plain_values`. The header
`Idempotency-Key` stands for job, sink, shard, commit and rows, and is the same whenever the same
rows are sent again: after a lost answer, after an error, after a restart.

It is at-least-once, and says so: the cursor is in the job's root and moves after the server has
answered. A server that remembers keys applies each once, as long as it remembers; `window` says
how long that is, for whoever reads the job.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, get_args

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.errors import Invalid
from penstock.ids import Token, check_name
from penstock.secrets import is_reference
from penstock.sinks.cursors import Apply, Cursor, Held, is_applied
from penstock.sinks.guarantee import Guarantee
from penstock.sinks.http_line import HttpLine, check_url, open_line
from penstock.sinks.plain_values import as_plain, check_plain, python_values
from penstock.sinks.protocol import PROVENANCE, Target
from penstock.sinks.root_cursor import RootCursor
from penstock.sinks.staged import own_columns, rows_of
from penstock.sinks.value_check import check_spelling
from penstock.state import ttl

__all__ = ["Http", "HttpWriter", "Per"]

Per = Literal["batch", "row"]
"""What one request is."""

log = logging.getLogger("penstock.sinks")

BATCH_ROWS = 500
BATCH_ROWS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Http:
    """Rows to a server that speaks HTTP."""

    name: str
    url: str = field(repr=False)
    """Where to; it may hold references: `https://hooks.example/in?key=${HOOK_KEY}`."""
    _: KW_ONLY
    per: Per = "batch"
    batch_rows: int = BATCH_ROWS
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further headers; values may hold references: `{"Authorization": "Bearer ${TOKEN}"}`."""
    window: str | None = None
    """How long the server remembers keys; after that a row may be there twice."""

    def __post_init__(self) -> None:
        check_name("sink", self.name)
        if not is_reference(self.url):
            check_url(f"sink {self.name}", self.url)
        if self.per not in get_args(Per):
            raise Invalid(f"sink {self.name}", f"sends per {self.per!r}", "use 'batch' or 'row'")
        if not 1 <= self.batch_rows <= BATCH_ROWS_MAX:
            found = f"has batches of {self.batch_rows} rows"
            raise Invalid(f"sink {self.name}", found, f"use 1 to {BATCH_ROWS_MAX}")
        if self.window is not None:
            ttl(self.window)

    @property
    def guarantee(self) -> Guarantee:
        """Whatever the server remembers, it will not be for ever."""
        return Guarantee.AT_LEAST_ONCE

    def shards(self, partitions: int) -> int:
        """One per partition: they are sent at the same time."""
        return partitions

    def check(self, rows: pa.Table) -> None:
        """Refuse columns that JSON has no one spelling for, and times that have none at all."""
        check_plain(f"sink {self.name}", own_columns(rows).schema)
        check_spelling(f"sink {self.name}", rows)

    def open(self, target: Target) -> "HttpWriter":
        """Look the references up. Nobody is asked before there are rows."""
        where = f"sink {self.name}"
        line = open_line(where, self.url, self.headers)
        if self.window is not None:
            log.info("%s is exactly-once for %s at a server that keeps keys", where, self.window)
        return HttpWriter(self, target, line)


class HttpWriter:
    """An open line, and how far each shard is."""

    def __init__(self, sink: Http, target: Target, line: HttpLine) -> None:
        self._sink = sink
        self._target = target
        self._line = line
        self._cursor = RootCursor(target.store, target.job, sink.name)

    def read_cursor(self, shard: int) -> Cursor | None:
        """How far the shard is."""
        held = self._cursor.read(shard).held
        return None if held is None else held.cursor

    def apply(self, asked: Apply) -> None:
        """Send every batch, in order, then move the cursor. A crash before that sends them again,
        under the same keys."""
        before = self._cursor.read(asked.shard)
        if is_applied(asked, before.held):
            return
        for rows, body in self._bodies(asked):
            self._line.post(body, self._key(asked, rows))
        self._cursor.move(asked.shard, before, Held(asked.cursor, asked.token))

    def accept(self, shard: int, cursor: Cursor, token: Token) -> None:
        """Put the cursor here."""
        self._cursor.put(shard, Held(cursor, token))

    def close(self) -> None:
        """Close the spare connections."""
        self._line.close()

    def _bodies(self, asked: Apply) -> Iterator[tuple[range, bytes]]:
        """What each request says, and which rows of the shard's share those are."""
        rows = rows_of(asked.outputs, self._target.columns, PROVENANCE.names)
        length = 1 if self._sink.per == "row" else self._sink.batch_rows
        head = {"job": self._target.job, "sink": self._sink.name, "epoch": asked.cursor.epoch}
        for start in range(0, rows.num_rows, length):
            batch = _plain_rows(rows.slice(start, length))
            body = batch[0] if self._sink.per == "row" else {**head, "rows": batch}
            yield range(start, start + len(batch)), _encoded(body)

    def _key(self, asked: Apply, rows: range) -> str:
        """Names these rows of this commit, whatever the settings are the next time: a server that
        has seen it has seen exactly these. In the form of a UUID, which some servers insist on."""
        cursor, job, sink = asked.cursor, self._target.job, self._sink.name
        commit = f"{cursor.generation}-{cursor.epoch}-{cursor.mark}"
        name = f"{job}/{sink}/{asked.shard}/{commit}/{self._sink.per}/{rows.start}-{rows.stop}"
        digest = hashlib.sha256(name.encode()).hexdigest()
        return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))


def _plain_rows(rows: pa.Table) -> Sequence[dict[str, Any]]:
    names, columns = rows.column_names, []
    for column in rows.columns:
        columns.append(map(as_plain(column.type), python_values(column)))
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _encoded(document: Any) -> bytes:
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()
