"""How an epoch gets into several partitions of a topic, which no single step can change together.

The sink is a producer with a name. Each partition's mark counts the epochs the sink has put into
the topic, and the note beside the mark says which commit the last one was. The first partition is
the *home*: it is changed last, and its note is the sink's cursor. An epoch is taken when home has
it; rows and cursor are there in one swap of one TAIL, so no object of its own can disagree with
them, be forgotten when a topic is copied, or stay behind when it is removed.

    crash                          what is there                        who repairs it
    -----------------------------  -----------------------------------  -------------------------
    before home is claimed         nothing; segments staged: the sweep  the next `apply`
    claimed, not all told          a larger epoch in some marks         the next claim
    some partitions have the rows  marks ahead of home, their note      the next `apply` of the
                                   names the commit                     same commit leaves them be
    home's swap, answer lost       all of it                            home's note says so

Whoever applies claims the name first, at home, then in every partition; a claim counts the
producer's epoch up, so there is one claimant at a time, and a deposed one is refused in every
partition. Tokens are compared at home only, by whoever claims. That is why `accept` can lower one:
it claims like everybody else, and writes whatever token it is given.

A partition ahead of home has half of an epoch. If that is not the one being applied, it is of a
history that somebody has rewound, and is refused: rows of it are in the topic, and only people can
say what becomes of them. How many partitions an epoch is spread over is in home's note before the
first of them is written to: a topic that grows between two tries of an epoch does not spread the
second another way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from penstock.clock import Chance
from penstock.effects import Steps
from penstock.errors import Corrupt, Fenced, Invalid
from penstock.fencing.register import Seen
from penstock.fields import Int64, Ordinal, PartitionNumber
from penstock.ids import Epoch, Generation, Token
from penstock.sinks.cursors import Apply, Cursor, Held, is_applied
from penstock.sinks.roll_forward import CHOICES
from penstock.sources.log_append import Batch, Claim, Outdated, Taken, Writer, append, stage
from penstock.sources.log_layout import tail_key
from penstock.sources.log_look import read_tail
from penstock.sources.log_tail import Tail

__all__ = ["HOME", "Hold", "Note", "accepting", "applying", "check_ahead", "decided", "note_of",
           "put"]  # fmt: skip

HOME = 0
"""The partition where every claim begins, and where the cursor is."""

OUTDATED_MAX = 5
"""How often in a row what was staged may be swept."""


class Note(msgspec.Struct, frozen=True, array_like=True):
    """What is written beside the sink's mark. Of partitions other than home only `at` counts."""

    token: Ordinal
    """The largest that home has heard."""
    partitions: PartitionNumber
    """How many the next epoch is spread over."""
    at: tuple[Ordinal, Ordinal, Int64] | None = None
    """Generation, epoch and mark of the last commit; None before the first."""

    @property
    def cursor(self) -> Cursor | None:
        """The last commit."""
        if self.at is None:
            return None
        generation, epoch, mark = self.at
        return Cursor(Generation(generation), Epoch(epoch), mark)

    @classmethod
    def of(cls, token: Token, partitions: int, cursor: Cursor) -> "Note":
        """The note of a partition that has taken this commit."""
        return cls(token, partitions, (cursor.generation, cursor.epoch, cursor.mark))

    def written(self) -> str:
        """As it is kept."""
        return msgspec.json.encode(self).decode()


@dataclass(frozen=True, slots=True)
class Hold:
    """A sink that has claimed its name, and the partitions as it last saw them."""

    writer: Writer
    note: Note
    """Home's."""
    sequence: int
    """How many epochs home has taken."""
    tails: Mapping[int, Seen[Tail]]

    def is_for(self, asked: Apply) -> bool:
        """Whether this is what home should look like, as far as we know; if not, we look again."""
        return (self.note.token, self.note.cursor) == (asked.token, asked.follows)

    def has(self, partition: int) -> bool:
        """Whether a partition has the epoch that home takes next."""
        return self.taken(partition) > self.sequence

    def taken(self, partition: int) -> int:
        """The number of the last epoch that had rows for a partition."""
        return self.tails[partition].document.marks[self.writer.producer].sequence


def note_of(tail: Tail, producer: str) -> Note | None:
    """What a partition remembers of the sink; None if it has never heard of it."""
    text = tail.note_of(producer)
    return _read(tail.partition, text) if text else None


def _read(partition: int, text: str) -> Note:
    try:
        return msgspec.json.decode(text, type=Note)
    except msgspec.MsgspecError as error:
        raise Corrupt(
            tail_key(partition), f"has a note that is none of a sink's ({error})", "report this"
        ) from error


def decided(asked: Apply, home: Note | None) -> bool:
    """Whether the epoch is taken already; raises if it must be refused. See `is_applied`."""
    cursor = None if home is None else home.cursor
    if home is None or cursor is None:
        if home is not None and home.token > asked.token:
            where = f"sink {asked.sink}, shard {asked.shard}"
            raise Fenced(where, held=asked.token, newest=home.token, by="a later leader")
        return is_applied(asked, None)
    return is_applied(asked, Held(cursor, Token(home.token)))


def applying(claim: Claim, asked: Apply, partitions: int) -> Steps[Seen[Tail]]:
    """Claim home for whoever applies this; it is refused as `decided` does, in the same step."""

    def change(taken: Taken) -> Taken:
        home = _read(HOME, taken.note) if taken.note else Note(0, partitions)
        decided(asked, home)
        return Taken(taken.sequence, msgspec.structs.replace(home, token=asked.token).written())

    return claim.begin(change)


def accepting(claim: Claim, cursor: Cursor, token: Token, partitions: int) -> Steps[Seen[Tail]]:
    """Claim home, and put the cursor and the token there, whatever they are now.

    It counts as an epoch: so partitions that are ahead of home are not ahead any more.
    """
    note = Note.of(token, partitions, cursor).written()
    return claim.begin(lambda taken: Taken(taken.sequence + 1, note))


def check_ahead(where: str, hold: Hold, asked: Apply) -> None:
    """Raise `Invalid` if a partition has half of an epoch that is not this one."""
    for partition in filter(hold.has, hold.tails):
        note = note_of(hold.tails[partition].document, hold.writer.producer)
        cursor = None if note is None else note.cursor
        if cursor != asked.cursor:
            raise Invalid(
                f"{where}, partition {partition}",
                f"has rows of {cursor} that the whole sink never took, and was given "
                f"{asked.cursor} of another history",
                CHOICES,
            )


def put(
    hold: Hold, partition: int, batches: Sequence[Batch], now_ms: int, chance: Chance
) -> Steps[Seen[Tail]]:
    """Take batches of one epoch into a partition, all with one swap; TAIL with them."""
    seen: Seen[Tail] | None = hold.tails[partition]
    for remaining in reversed(range(OUTDATED_MAX)):
        version = 0 if seen is None else seen.document.version
        staged = []
        for batch in batches:
            staged.append((yield from stage(partition, batch, version, chance)))
        try:
            done = yield from append(hold.writer, partition, staged, now_ms, chance, seen)
        except Outdated:  # two sweeps since we last looked: the segments may be gone
            if not remaining:
                raise
            seen = yield from read_tail(hold.writer.topic, partition)
        else:
            return done.tail
    raise AssertionError("unreachable: the last try returns or raises")
