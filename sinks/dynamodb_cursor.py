"""A shard's cursor in DynamoDB: an item that every transaction looks at.

What was read of it is part of each transaction's condition, so rows are never written on the word
of a cursor that is not there any more.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from penstock.ids import Epoch, Generation, Token
from penstock.sinks.cursors import Apply, Cursor, Held

__all__ = ["SHARD", "Seen", "cursor_item", "cursor_update"]

SHARD = "shard"
"""The key of the table of cursors: job, sink, shard and table, joined by slashes."""

_REFERENCE = re.compile(r"[#:]\w+")
_AT_NONE = "attribute_not_exists(#mark) AND (attribute_not_exists(#token) OR #token <= :token)"
_AT_CURSOR = (
    "#generation = :at_generation AND #epoch = :at_epoch AND #mark = :at_mark "
    "AND #lift = :lift AND #token <= :token"
)
_HEAR = "SET #token = :token"
_MOVE = f"{_HEAR}, #generation = :generation, #epoch = :epoch, #mark = :mark, #lift = :lift"


@dataclass(frozen=True, slots=True)
class Seen:
    """What the item held when it was read."""

    cursor: Cursor | None
    token: Token
    lift: int
    """Added to the generation of rows, so that they win although the cursor was put back."""

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> Self:
        """What an item says; one that is not there says nothing."""
        found = {name: int(value["N"]) for name, value in item.items() if "N" in value}
        cursor = None
        if "mark" in found:
            generation, epoch = Generation(found["generation"]), Epoch(found["epoch"])
            cursor = Cursor(generation, epoch, found["mark"])
        return cls(cursor, Token(found.get("token", 0)), found.get("lift", 0))

    def held(self, asked: Apply) -> Held | None:
        """What the shard holds. One that has heard of a later leader and taken nothing yet is
        fenced as if it had."""
        if self.cursor is None:
            return Held(asked.cursor, self.token) if self.token > asked.token else None
        return Held(self.cursor, self.token)

    def moved_to(self, cursor: Cursor, token: Token) -> "Seen":
        """What the item holds after somebody has put the cursor there. If that is back, the rows
        to come are lifted above those that are there."""
        lift = self.lift
        if self.cursor is not None:
            back = cursor.generation - self.cursor.generation
            if back < 0 or (back == 0 and cursor.epoch < self.cursor.epoch):
                lift += 1 - back
        return Seen(cursor, token, lift)


def cursor_item(shard: str, seen: Seen) -> dict[str, Any]:
    """The item of a cursor, whole."""
    assert seen.cursor is not None, "a shard is put at a cursor"
    told = {"token": {"N": str(seen.token)}, "lift": {"N": str(seen.lift)}}
    return {SHARD: {"S": shard}, **_numbers("", seen.cursor), **told}


def cursor_update(table: str, shard: str, seen: Seen, asked: Apply, *, moves: bool) -> Any:
    """The action that holds if the cursor is what was seen: it makes our token heard, and moves
    the cursor if these are the last rows."""
    condition = _AT_NONE if seen.cursor is None else _AT_CURSOR
    update = _MOVE if moves else _HEAR
    values = {":token": {"N": str(asked.token)}, ":lift": {"N": str(seen.lift)}}
    values |= _numbers(":", asked.cursor) | _numbers(":at_", seen.cursor or asked.cursor)
    # DynamoDB refuses a name or a value that nothing refers to.
    used = set(_REFERENCE.findall(f"{condition} {update}"))
    return {
        "Update": {
            "TableName": table,
            "Key": {SHARD: {"S": shard}},
            "UpdateExpression": update,
            "ConditionExpression": condition,
            "ExpressionAttributeNames": {word: word[1:] for word in used if word[0] == "#"},
            "ExpressionAttributeValues": {word: values[word] for word in used if word[0] == ":"},
        }
    }


def _numbers(before: str, cursor: Cursor) -> dict[str, Any]:
    return {
        f"{before}generation": {"N": str(cursor.generation)},
        f"{before}epoch": {"N": str(cursor.epoch)},
        f"{before}mark": {"N": str(cursor.mark)},
    }
