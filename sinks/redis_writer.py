"""An open `Redis`: the rows of an epoch on their way into it, a script at a time.

Each script asks the cursor first whether it may write at all, so a leader that was deposed is
refused between any two of them. What a script refuses is decided on by `is_applied`, like
everywhere.
"""

from collections.abc import Sequence
from typing import Any

from penstock.errors import Bug, Invalid
from penstock.ids import Epoch, Generation, Token
from penstock.sinks.cursors import Apply, Cursor, Held, is_applied
from penstock.sinks.protocol import Target
from penstock.sinks.redis_rows import CURSORS, Chunk, RedisRows
from penstock.sinks.redis_scripts import ACCEPT, APPLIED, CURSOR_FIELDS, TAKEN, WRITE
from penstock.sinks.redis_server import connected, explained, greeted
from penstock.sinks.staged import rows_of

__all__ = ["RedisWriter", "cursor_key", "cursor_of"]

CHUNKS_AT_ONCE = 8
"""How many scripts are sent before their answers are read."""


class RedisWriter:
    """Safe to use from several threads: each call takes a connection of its own."""

    def __init__(self, place: str, url: str, rows: RedisRows, target: Target) -> None:
        self._place = place
        self._rows = rows
        self._target = target
        self._client = connected(rows.keyed.where, place, url)
        self._write = self._client.register_script(WRITE)
        self._accept = self._client.register_script(ACCEPT)
        try:
            greeted(self._client, place)
        except BaseException:
            self.close()
            raise

    def read_cursor(self, shard: int) -> Cursor | None:
        """How far the shard is."""
        with explained(self._place):
            found: Any = self._client.hmget(self._cursor_key(shard), CURSOR_FIELDS[:3])
        return cursor_of(found)

    def apply(self, asked: Apply) -> None:
        """Rows in chunks, then the cursor.

        1. Every chunk but the last, some at a time.
        2. Once all of them are there, the last one, which moves the cursor in the same step.
        """
        last, before = Chunk(), list[Chunk]()
        for chunk in self._rows.chunks(rows_of(asked.outputs, self._target.columns, ("_input",))):
            if last.keys:
                before.append(last)
            last = chunk
            if len(before) == CHUNKS_AT_ONCE:
                if self._is_done(asked, before, _NO_CURSOR):  # 1
                    return
                before = []
        if before and self._is_done(asked, before, _NO_CURSOR):  # 1
            return
        self._is_done(asked, [last], _texts(asked.cursor))  # 2

    def accept(self, shard: int, cursor: Cursor, token: Token) -> None:
        """Put the cursor here; rows that come after it win over those that are there."""
        with explained(self._place):
            self._accept(keys=[self._cursor_key(shard)], args=[*_texts(cursor), token])

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    def _is_done(self, asked: Apply, chunks: Sequence[Chunk], puts: tuple[str, str, str]) -> bool:
        """Write these; whether the shard has the whole epoch already, and nothing was written."""
        settings: list[str | int] = [
            asked.token,
            *_texts(asked.follows),
            *puts,
            asked.cursor.generation,
            f"{self._target.job}/{self._rows.sink}",
            self._rows.tombstones_ms,
        ]
        cursor_key = self._cursor_key(asked.shard)
        with explained(self._place), self._client.pipeline(transaction=False) as pipeline:
            for chunk in chunks:
                keys = [cursor_key, *chunk.keys]
                self._write(keys=keys, args=[*settings, chunk.packed()], client=pipeline)
            answers = pipeline.execute()
        return any([self._decided(asked, *pair) for pair in zip(chunks, answers, strict=True)])

    def _decided(self, asked: Apply, chunk: Chunk, answer: list[Any]) -> bool:
        """What the answer to a chunk means: False, it is written; True, all of the epoch is."""
        status, *found = answer
        if status == APPLIED:
            return False
        if status == TAKEN:
            raise Invalid(
                f"{self._place}, key {chunk.keys[found[0]]!r}",
                "holds something else than a hash",
                "remove it, or give the sink another prefix",
            )
        if not is_applied(asked, _held(asked, found)):
            where = f"{self._place}, shard {asked.shard}"
            raise Bug(where, f"was refused while its cursor is {found}", "report it")
        return True

    def _cursor_key(self, shard: int) -> str:
        return cursor_key(self._rows, self._target.job, shard)


_NO_CURSOR = ("", "", "")


def cursor_key(rows: RedisRows, job: str, shard: int) -> str:
    """Where a shard's cursor is. The prefix is last: it may hold any characters, the others no
    colon."""
    return f"{CURSORS}{job}:{rows.sink}:{shard}:{rows.prefix}"


def _texts(cursor: Cursor | None) -> tuple[str, str, str]:
    if cursor is None:
        return _NO_CURSOR
    return str(cursor.generation), str(cursor.epoch), str(cursor.mark)


def cursor_of(found: Sequence[Any]) -> Cursor | None:
    """The cursor in the first fields of its hash; None if there is none."""
    generation, epoch, mark = found
    if mark is None:
        return None
    return Cursor(Generation(int(generation)), Epoch(int(epoch)), int(mark))


def _held(asked: Apply, found: Sequence[Any]) -> Held | None:
    """What a shard holds. One that has heard of a later leader and taken nothing yet is fenced as
    if it had."""
    cursor, token = cursor_of(found[:3]), Token(int(found[3] or 0))
    if cursor is None:
        return Held(asked.cursor, token) if token > asked.token else None
    return Held(cursor, token)
