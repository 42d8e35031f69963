"""A sink outside the root for an exhaustive search: as small as the contract allows."""

import json
from dataclasses import dataclass, field

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.ids import Token
from penstock.sinks.cursors import Apply, Cursor, Held, is_applied
from penstock.sinks.guarantee import Guarantee
from penstock.sinks.protocol import Target

__all__ = ["SmallSink"]


@dataclass(slots=True)
class SmallSink:
    """Rows and a cursor, of one shard. It is its own writer."""

    name: str
    held: Held | None = None
    rows: list[int] = field(default_factory=list)

    def copied(self) -> "SmallSink":
        """The same once more, which goes its own way."""
        return SmallSink(self.name, self.held, list(self.rows))

    @property
    def guarantee(self) -> Guarantee:
        """Rows and cursor change in one step."""
        return Guarantee.EXACTLY_ONCE

    def shards(self, partitions: int) -> int:
        """One, however many partitions there are."""
        return 1

    def check(self, rows: pa.Table) -> None:
        """It takes anything."""

    def open(self, target: Target) -> "SmallSink":
        """It is open."""
        return self

    def read_cursor(self, shard: int) -> Cursor | None:
        """How far it is."""
        return None if self.held is None else self.held.cursor

    def apply(self, asked: Apply) -> None:
        """Rows and cursor, in one step."""
        if not is_applied(asked, self.held):
            self.rows += [row for body in asked.outputs for row in json.loads(body)]
            self.held = Held(asked.cursor, asked.token)

    def accept(self, shard: int, cursor: Cursor, token: Token) -> None:
        """Put the cursor here."""
        self.held = Held(cursor, token)

    def close(self) -> None:
        """Nothing is held."""
