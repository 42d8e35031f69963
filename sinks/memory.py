"""`Memory`: a sink in the memory of the leader's process, for tests and for trying things out.

It keeps the whole contract in its smallest form: rows and cursor change in one step, a smaller
token is refused, what is applied is not applied again. It is gone when its process is.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.ids import Token, check_name
from penstock.sinks.cursors import Apply, Cursor, Held, is_applied
from penstock.sinks.guarantee import Guarantee
from penstock.sinks.keyed import Changes
from penstock.sinks.plain_values import python_values
from penstock.sinks.protocol import PROVENANCE, Target, Traits
from penstock.sinks.staged import rows_of
from penstock.sinks.value_check import check_calendar

__all__ = ["Memory", "MemoryHolding", "MemoryWriter"]


@dataclass(slots=True)
class _Shard:
    held: Held | None = None
    rows: list[pa.Table] = field(default_factory=list)
    """One of each epoch, as it was staged."""


@dataclass(slots=True)
class _Shelf:
    """What is in memory of one name."""

    shards: dict[tuple[str, int], _Shard] = field(default_factory=dict)
    """By job and number."""
    lock: threading.Lock = field(default_factory=threading.Lock)


_SHELVES: dict[str, _Shelf] = {}
"""One per name and process, so that a sink that is opened again finds what it had."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Rows in this process's memory, by the name of the sink."""

    name: str

    def __post_init__(self) -> None:
        check_name("sink", self.name)

    @property
    def guarantee(self) -> Guarantee:
        """As long as the process lives."""
        return Guarantee.EXACTLY_ONCE

    def shards(self, partitions: int) -> int:
        """One per partition."""
        return partitions

    def check(self, rows: pa.Table) -> None:
        """It takes anything that Python has a value for."""
        check_calendar(f"sink {self.name}", rows)

    def open(self, target: Target) -> "MemoryWriter":
        """The shelf of this name."""
        return MemoryWriter(_SHELVES.setdefault(self.name, _Shelf()), target)

    def read_back(self, target: Target) -> "MemoryHolding":
        """What is on the shelf at this moment."""
        shelf = _SHELVES.setdefault(self.name, _Shelf())
        with shelf.lock:
            mine = {
                number: _Shard(shard.held, list(shard.rows))
                for (job, number), shard in shelf.shards.items()
                if job == target.job
            }
        return MemoryHolding(mine)

    def rows(self) -> list[dict[str, Any]]:
        """Everything it holds, shard by shard; times with a zone in UTC."""
        shelf = _SHELVES.setdefault(self.name, _Shelf())
        with shelf.lock:
            tables = [table for _, shard in sorted(shelf.shards.items()) for table in shard.rows]
        return [row for table in tables for row in _dicts(table)]

    def clear(self) -> None:
        """Forget everything of this name."""
        _SHELVES.pop(self.name, None)


class MemoryWriter:
    """An open shelf."""

    def __init__(self, shelf: _Shelf, target: Target) -> None:
        self._shelf = shelf
        self._target = target

    def read_cursor(self, shard: int) -> Cursor | None:
        """How far the shard is."""
        with self._shelf.lock:
            held = self._shard(shard).held
            return None if held is None else held.cursor

    def apply(self, asked: Apply) -> None:
        """Rows and cursor, in one step."""
        rows = rows_of(asked.outputs, self._target.columns, PROVENANCE.names)
        with self._shelf.lock:
            shard = self._shard(asked.shard)
            if not is_applied(asked, shard.held):
                shard.rows.append(rows)
                shard.held = Held(asked.cursor, asked.token)

    def accept(self, shard: int, cursor: Cursor, token: Token) -> None:
        """Put the cursor here."""
        with self._shelf.lock:
            self._shard(shard).held = Held(cursor, token)

    def close(self) -> None:
        """Nothing is held."""

    def _shard(self, number: int) -> _Shard:
        return self._shelf.shards.setdefault((self._target.job, number), _Shard())


class MemoryHolding:
    """A shelf as it was at one moment, the rows of one job."""

    traits = Traits()

    def __init__(self, shards: dict[int, _Shard]) -> None:
        self._shards = shards

    def read_cursor(self, shard: int) -> Cursor | None:
        """How far the shard was."""
        held = self._shards.get(shard, _Shard()).held
        return None if held is None else held.cursor

    def expected(self, rows: pa.Table) -> Changes:
        """Every row stays as it is."""
        return Changes(rows.drop_columns(["_input"]), rows.slice(0, 0))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, shard by shard."""
        for _, shard in sorted(self._shards.items()):
            for table in shard.rows:
                yield from table.to_batches()

    def close(self) -> None:
        """Nothing is held."""


def _dicts(rows: pa.Table) -> list[dict[str, Any]]:
    columns = [python_values(column) for column in rows.columns]
    return [dict(zip(rows.column_names, each, strict=True)) for each in zip(*columns, strict=True)]
