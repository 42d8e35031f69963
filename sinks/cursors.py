"""How far a sink is: the cursor it keeps beside its rows, and what is asked of it.

A cursor names a commit, not only an epoch. Two histories of one job, before and after a rewind or
in a fork, have epochs of the same number; they have no commit in common that came after they
parted. So a cursor is trusted if the chain leads to the very commit it names, and for no other
reason.
"""

import hashlib
from dataclasses import dataclass
from typing import Self

from penstock.checkpoint.formats import Ref
from penstock.checkpoint.layout import commit_of
from penstock.checkpoint.manifest import Manifest
from penstock.effects import Effect
from penstock.errors import Fenced, Invalid
from penstock.ids import CommitId, Epoch, Generation, Token

__all__ = ["Apply", "Cursor", "Held", "ReadCursor", "is_applied", "mark_of", "mark_of_ref"]

MARK_BITS = 63
"""A mark fits where a sink can keep no more than a signed number of 64 bits."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last epoch a sink's shard has taken, and which one of that number."""

    generation: Generation
    epoch: Epoch
    mark: int
    """Stands for the commit that made the epoch real."""

    @classmethod
    def at(cls, manifest: Manifest) -> Self:
        """Where a shard is that has taken all of this epoch."""
        return cls(manifest.generation, manifest.epoch, mark_of(manifest.commit))

    @classmethod
    def before_all(cls, generation: Generation) -> Self:
        """Where a shard is that is to take everything of a history, from its first epoch on."""
        return cls(generation, Epoch(0), 0)

    def __str__(self) -> str:
        return f"epoch {self.epoch} of generation {self.generation}"


@dataclass(frozen=True, slots=True)
class Held:
    """What a shard keeps beside its rows."""

    cursor: Cursor
    token: Token
    """The largest token it has heard."""


@dataclass(frozen=True, slots=True)
class ReadCursor(Effect):
    """Ask a sink how far one of its shards is. Answer: `Cursor`, or None before the first."""

    sink: str
    shard: int


@dataclass(frozen=True, slots=True)
class Apply(Effect):
    """Give a shard the rows of one epoch, together with its new cursor, or not at all.

    Refused with `Fenced` if the shard has seen a larger token, with `Invalid` if its cursor
    is not at `follows`. Applying what is applied already changes nothing.
    """

    sink: str
    shard: int
    follows: Cursor | None
    """Where the shard's cursor must be; None: it has none yet."""
    cursor: Cursor
    token: Token
    outputs: tuple[bytes, ...]
    """What was staged for the shard, in the order of the partitions; `staged.rows_of` reads it."""


def mark_of(commit: CommitId) -> int:
    """The mark of a commit."""
    digest = hashlib.sha256(commit.encode()).digest()
    return int.from_bytes(digest[:8]) >> (64 - MARK_BITS)


def mark_of_ref(manifest: Ref) -> int | None:
    """The mark of the commit that wrote a manifest, told from the manifest's name."""
    commit = commit_of(manifest.key)
    return None if commit is None else mark_of(commit)


def is_applied(asked: Apply, held: Held | None) -> bool:
    """Whether a shard that holds this has nothing left to do; it raises if it must refuse.

    Every sink that can look at its cursor and change it in one step decides by this.
    """
    where = f"sink {asked.sink}, shard {asked.shard}"
    if held is not None and held.token > asked.token:
        raise Fenced(where, held=asked.token, newest=held.token, by="a later leader")
    cursor = None if held is None else held.cursor
    if cursor == asked.cursor:
        return True
    if cursor != asked.follows:
        found = f"is at {cursor or 'no epoch'} and was given {asked.cursor}"
        raise Invalid(where, found, "start the job again: it looks where the sink is and goes on")
    return False
