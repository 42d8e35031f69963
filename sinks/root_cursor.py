"""A cursor for sinks that have no place for one: an object in the job's own root.

It is moved after the rows were handed over, so a crash in between hands them over again: whoever
uses it is at-least-once. It is changed by compare-and-swap, so a deposed leader that wakes up
cannot take it back; and an outcome that is not known is settled by reading it.
"""

from dataclasses import dataclass

from penstock.checkpoint.formats import Sealed, seal, unseal
from penstock.checkpoint.store import ObjectStore
from penstock.errors import Unavailable
from penstock.fields import FormatNumber, Int64
from penstock.ids import Epoch, ETag, Generation, Key, Token, check_name
from penstock.sinks.cursors import Cursor, Held

__all__ = ["At", "RootCursor"]

CURSOR_FORMAT = 1


class _Document(Sealed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one shard holds."""

    format: FormatNumber = CURSOR_FORMAT
    generation: Generation
    epoch: Epoch
    mark: Int64
    token: Token

    @property
    def held(self) -> Held:
        return Held(Cursor(self.generation, self.epoch, self.mark), self.token)


@dataclass(frozen=True, slots=True)
class At:
    """Where a shard was when it was looked at."""

    held: Held | None
    etag: ETag | None


@dataclass(frozen=True, slots=True)
class RootCursor:
    """The cursors of one sink."""

    store: ObjectStore
    job: str
    sink: str

    def read(self, shard: int) -> At:
        """Where a shard is now."""
        key = self._key(shard)
        stored = self.store.get(key)
        if stored is None:
            return At(None, None)
        return At(unseal(key, stored.body, _Document, CURSOR_FORMAT).held, stored.etag)

    def move(self, shard: int, before: At, held: Held) -> None:
        """Put a shard's cursor there, if it still is where it was; else `Unavailable`: whoever
        asks again is told by the cursor what has become of it."""
        key, body = self._key(shard), _body(held)
        try:
            if before.etag is None:
                done = self.store.create(key, body)
            else:
                done = self.store.replace(key, body, before.etag)
        except Unavailable:
            done = None  # it may have happened all the same
        if done is None and self.read(shard).held != held:
            raise Unavailable(key, "was not moved, or by another leader", "look at it again")

    def put(self, shard: int, held: Held) -> None:
        """Put a shard's cursor there, wherever it is."""
        self.store.put(self._key(shard), _body(held))

    def _key(self, shard: int) -> Key:
        return Key(f"cursors/{check_name('job', self.job)}/{self.sink}/{shard}.json")


def _body(held: Held) -> bytes:
    cursor = held.cursor
    return seal(
        _Document(
            generation=cursor.generation, epoch=cursor.epoch, mark=cursor.mark, token=held.token
        )
    )
