"""What a Redis holds of a sink: every hash below its prefix, as texts.

Keys are met by SCAN while others go on writing, so later rows may be among them; each says by its
version which row it is. SCAN may show a key twice, and leaves none out that was there all the time.
Tombstones are no rows, and what others have written below the prefix is not shown.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from redis.exceptions import ResponseError

from penstock.sinks.cursors import Cursor
from penstock.sinks.keyed import Changes
from penstock.sinks.plain_values import place_of_version
from penstock.sinks.protocol import PLACE, PROVENANCE, Target, Traits
from penstock.sinks.redis_rows import DELETED, KEY, RESERVED, VERSION, WRITER, RedisRows
from penstock.sinks.redis_scripts import CURSOR_FIELDS
from penstock.sinks.redis_server import connected, explained
from penstock.sinks.redis_writer import cursor_key, cursor_of
from penstock.sinks.staged import own_columns, with_places

__all__ = ["RedisHolding"]

SCAN_KEYS = 1000
"""About how many keys are asked for at a time."""

EXTRA = "_extra"
"""Fields of a hash that are no columns of the rows. There should be none."""

Hash = dict[str, str]


class RedisHolding:
    """The keys of one sink."""

    traits = Traits(key=(KEY,), has_places=True, is_settled=False, repeats=True)

    def __init__(self, place: str, url: str, rows: RedisRows, target: Target) -> None:
        self._place = place
        self._rows = rows
        self._target = target
        self._writer = f"{target.job}/{rows.sink}"
        hidden = rows.keyed.deletes
        self._columns = [name for name in target.columns.names if name != hidden]
        self._client = connected(rows.keyed.where, place, url)
        try:
            with explained(place):
                self._client.ping()
        except BaseException:
            self.close()
            raise

    def read_cursor(self, shard: int) -> Cursor | None:
        """How far the shard is."""
        with explained(self._place):
            key = cursor_key(self._rows, self._target.job, shard)
            found: Any = self._client.hmget(key, CURSOR_FIELDS[:3])
        return cursor_of(found)

    def expected(self, rows: pa.Table) -> Changes:
        """Keys and fields as texts."""
        changes = self._rows.keyed.changes(rows)
        return Changes(self._spelt(changes.puts), self._spelt(changes.gone))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Every hash of ours that is no tombstone."""
        pattern = _literally(self._rows.prefix) + "*"
        position = None
        while position != 0:
            with explained(self._place):
                answer: Any = self._client.scan(position or 0, pattern, SCAN_KEYS)
                position, keys = answer
                found = self._hashes(keys)
            rows = [self._row(key, each) for key, each in found if self._is_row(each)]
            if rows:
                yield pa.RecordBatch.from_pylist(rows, self._schema())

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    def _spelt(self, rows: pa.Table) -> pa.Table:
        shown = self._rows.spelt_columns(own_columns(rows))
        nothing = pa.array([""] * rows.num_rows, pa.large_string())
        return with_places(shown.append_column(EXTRA, nothing), rows)

    def _hashes(self, keys: Sequence[bytes]) -> list[tuple[str, Hash]]:
        """What these keys hold now; of one that holds something else than a hash, nothing."""
        with self._client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hgetall(key)
            answers = pipeline.execute(raise_on_error=False)
        found = []
        for key, answer in zip(keys, answers, strict=True):
            if isinstance(answer, dict):
                texts = {_text(name): _text(text) for name, text in answer.items()}
                found.append((_text(key), texts))
            elif not _is_no_hash(answer):
                raise answer
        return found

    def _is_row(self, found: Hash) -> bool:
        return found.get(WRITER) == self._writer and DELETED not in found

    def _row(self, key: str, found: Hash) -> dict[str, Any]:
        places = zip(PLACE, place_of_version(found.get(VERSION, "")), strict=True)
        extra = sorted(found.keys() - {*self._columns, *RESERVED})
        texts = {name: found.get(name) for name in self._columns}
        return {KEY: key, **texts, EXTRA: ", ".join(extra), **dict(places)}

    def _schema(self) -> pa.Schema:
        names = [KEY, *self._columns, EXTRA]
        texts = [pa.field(name, pa.large_string()) for name in names]
        return pa.schema([*texts, *(PROVENANCE.field(name) for name in PLACE)])


def _is_no_hash(answer: Any) -> bool:
    return isinstance(answer, ResponseError) and str(answer).startswith("WRONGTYPE")


def _text(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")


def _literally(text: str) -> str:
    """A pattern that stands for just this text."""
    return re.sub(r"([*?\[\]\\^])", r"\\\1", text)
