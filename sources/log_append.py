"""Appending to a partition: stage segments, then take them in with one swap of TAIL.

Many producers in many processes do this at once. A swap that loses costs a read and is built
again on what won, and everything a producer has staged meanwhile goes into its next swap: the
more contention, the larger the groups.

Each batch has a number, counted by its producer for each partition. TAIL's mark says how far it
got, so the outcome of a swap is never guessed: what the mark covers is in, once, and what it does
not cover is not. A producer that was replaced by one of its name with a higher epoch is refused.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.clock import Chance
from penstock.effects import Put, Steps, Wait
from penstock.errors import Bug, Fenced, Gone, PenstockError, Unavailable
from penstock.fencing.register import Landed, Lost, Seen, Won, read
from penstock.ids import CommitId, Key
from penstock.points import Point
from penstock.sources.log_layout import segment_key, tail_key
from penstock.sources.log_look import RACES_MAX, SPREAD_S, outrun, read_tail, swap_tail
from penstock.sources.log_pieces import fold, hash_of
from penstock.sources.log_tail import Mark, Piece, Tail, tail_register

__all__ = ["Appended", "Batch", "Claim", "Outdated", "Replaced", "Staged", "Taken", "Writer",
           "append", "claim", "stage"]  # fmt: skip

LOOKS = 3
NO_MARK = Mark(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Writer:
    """Who appends: a producer, and which life of it."""

    topic: str
    producer: str
    epoch: int
    """Which life of it; 0 for a producer without a name, which has only one."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that go into the log together, encoded as one segment."""

    sequence: int
    follows: int
    """The sequence of the batch that this producer appended before it; 0 for its first."""
    rows: int
    """Without any it only moves the mark, and nothing is stored."""
    event_max_ms: int | None
    body: bytes
    note: str | None = None
    """What the partition is to remember beside the mark from now on; None: what it does already."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A batch on the store, not yet part of the log."""

    batch: Batch
    key: Key
    hash: str
    version: int
    """The version of TAIL its writer had seen when it was staged."""


@dataclass(frozen=True, slots=True)
class Appended:
    """Where batches went: the offset after each, by sequence."""

    tail: Seen[Tail]
    stops: dict[int, int]


class Outdated(Unavailable):
    """A sweep has passed what was staged: stage it again."""


def stage(partition: int, batch: Batch, version: int, chance: Chance) -> Steps[Staged]:
    """Store a batch under a name of its own. A crash here leaves an orphan for the sweep."""
    if not batch.rows:
        return Staged(batch, Key(""), "", version)
    key = segment_key(partition, version, chance.unique())
    yield Put(Point.LOG_STAGE, key, batch.body)
    return Staged(batch, key, hash_of(batch.body), version)


def append(
    writer: Writer,
    partition: int,
    staged: Sequence[Staged],
    now_ms: int,
    chance: Chance,
    seen: Seen[Tail] | None = None,
) -> Steps[Appended]:
    """Take staged batches, which are in order of their sequence, into the log. Those of one
    sequence go in together, or not at all.

    `seen` is TAIL as last seen by the caller; it saves a read, and need not be the latest.

    1. Look at TAIL; if it does not know us, at the first partition's, which knows every claim.
    2. Our mark tells which of the batches are in already, and whether we were replaced.
    3. What is left goes behind the last piece, with our mark moved on. Swap.
    4. Lost, or the outcome cannot be told: back to 2 with what won.
    """
    stops: dict[int, int] = {}
    if seen is None:
        seen = yield from read_tail(writer.topic, partition)  # 1
    for race in range(RACES_MAX):
        before = yield from _basis(writer, partition, seen)
        left = _not_yet_in(before, writer, staged, stops)  # 2
        if not left:
            assert seen is not None, "only a TAIL can say that a batch is in it"
            return Appended(seen, stops)
        after = yield from _extended(before, writer, left, now_ms, chance)  # 3
        outcome = yield from swap_tail(partition, seen, after)
        seen = outcome.seen  # 4
        if isinstance(outcome, Lost):
            if outcome.landed is Landed.UNTOLD and seen.document.may_have_forgotten(
                writer.producer
            ):
                raise _forgotten(writer, seen.document, staged[-1].batch.sequence)
            yield Wait(chance.fraction() * SPREAD_S * min(race, 10))
    raise outrun(partition)


def claim(
    topic: str, partitions: Callable[[], Steps[int]], producer: str, now_ms: int, chance: Chance
) -> Steps[tuple[int, dict[int, Seen[Tail]]]]:
    """Become the producer of that name: its new epoch, and each TAIL with its mark.

    1. The first partition's mark gets the next epoch: that decides.
    2. Every other partition is told. From then on the life before this one is refused. How many
       there are is asked only now: whoever comes first to a later one asks the first.
    """
    claiming = Claim(topic, producer, now_ms, chance)
    decided = yield from claiming.begin()  # 1
    epoch = decided.document.marks[producer].epoch
    tails = {0: decided}
    for partition in range(1, (yield from partitions())):  # 2
        tails[partition] = yield from claiming.tell(partition, epoch)
    return epoch, tails


@dataclass(frozen=True, slots=True)
class Taken:
    """What a partition has of a producer: how far it is, and the note beside its mark."""

    sequence: int
    note: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A producer on its way to a new life: the two steps of `claim`, for those who need them
    apart."""

    topic: str
    producer: str
    now_ms: int
    chance: Chance

    def begin(self, change: Callable[[Taken], Taken] = lambda taken: taken) -> Steps[Seen[Tail]]:
        """The first partition's TAIL with a mark of the next epoch. `change` is given what this
        partition has, and says what it is to have; what it raises ends the claim."""
        return self._marked(0, None, change)

    def tell(self, partition: int, epoch: int) -> Steps[Seen[Tail]]:
        """Another partition's TAIL with a mark of that epoch."""
        return self._marked(partition, epoch, lambda taken: taken)

    def _marked(
        self, partition: int, epoch: int | None, change: Callable[[Taken], Taken]
    ) -> Steps[Seen[Tail]]:
        seen = yield from read_tail(self.topic, partition)
        for _ in range(RACES_MAX):
            tail = Tail(topic=self.topic, partition=partition) if seen is None else seen.document
            mark = tail.marks.get(self.producer, NO_MARK)
            if epoch is not None and mark.epoch > epoch:
                raise Replaced(self.producer, epoch, mark.epoch)
            if seen is not None and mark.epoch == epoch:
                return seen
            claimed = mark.epoch + 1 if epoch is None else epoch
            after = self._claimed(tail, claimed, change)
            outcome = yield from swap_tail(partition, seen, after)
            found = outcome.seen.document.marks.get(self.producer, NO_MARK)
            if isinstance(outcome, Won) and found.epoch == claimed:
                return outcome.seen
            seen = outcome.seen
            yield Wait(self.chance.fraction() * SPREAD_S)
        raise outrun(partition)

    def _claimed(self, tail: Tail, epoch: int, change: Callable[[Taken], Taken]) -> Tail:
        mark = tail.marks.get(self.producer, NO_MARK)
        taken = change(Taken(mark.sequence, tail.note_of(self.producer)))
        new = Mark(epoch, taken.sequence, mark.stop, self.now_ms)
        commit = CommitId(self.chance.unique())
        return tail.changed(commit, **tail.marked(self.producer, new, taken.note))


def _basis(writer: Writer, partition: int, seen: Seen[Tail] | None) -> Steps[Tail]:
    """What to build on. A TAIL without our mark was told of no claim: perhaps it is younger than
    the claim. Every claim begins at the first partition, so that is asked; only now, because a
    claim that comes after our look at the first changes this TAIL before it is done."""
    tail = Tail(topic=writer.topic, partition=partition) if seen is None else seen.document
    if partition != 0 and writer.epoch and writer.producer not in tail.marks:
        first = yield from _first_tail()
        mark = NO_MARK if first is None else first.document.marks.get(writer.producer, NO_MARK)
        if mark.epoch > writer.epoch:
            raise Replaced(writer.producer, writer.epoch, mark.epoch)
    return tail


def _first_tail() -> Steps[Seen[Tail] | None]:
    """The first partition's TAIL. That there is none is believed only when it is said again."""
    for _ in range(LOOKS):
        seen: Seen[Tail] | None = yield from read(tail_register(0), Point.LOG_CLAIMS)
        if seen is not None:
            return seen
    return None


def _not_yet_in(
    tail: Tail, writer: Writer, staged: Sequence[Staged], stops: dict[int, int]
) -> list[Staged]:
    """The batches that are still to be taken in. Where the others went is added to `stops`."""
    mark = tail.marks.get(writer.producer, NO_MARK)
    if mark.epoch > writer.epoch:
        raise Replaced(writer.producer, writer.epoch, mark.epoch)
    stop = mark.stop
    for each in reversed([s for s in staged if s.batch.sequence <= mark.sequence]):
        # They went in with one swap, the last one we tried, so they lie side by side.
        stops.setdefault(each.batch.sequence, stop)
        stop -= each.batch.rows
    left = [each for each in staged if each.batch.sequence > mark.sequence]
    if left and left[0].batch.follows != mark.sequence:
        raise _forgotten(writer, tail, left[0].batch.follows)
    if any(each.version < tail.floor for each in left):
        raise Outdated(tail_key(tail.partition), "was swept since", "stage it again")
    return left


def _extended(
    tail: Tail, writer: Writer, staged: Sequence[Staged], now_ms: int, chance: Chance
) -> Steps[Tail]:
    filled = [each for each in staged if each.batch.rows]
    # A clock that jumps back does not take the log with it.
    at_ms = max(now_ms, tail.at_ms) if filled else tail.at_ms
    pieces, stop = list(tail.pieces), tail.latest
    for each in filled:
        pieces.append(_piece(each, stop, at_ms, now_ms))
        stop += each.batch.rows
    last = staged[-1].batch
    mark = Mark(writer.epoch, last.sequence, stop, now_ms)
    note = tail.note_of(writer.producer) if last.note is None else last.note
    folded = yield from fold(tail, pieces, chance)
    return tail.changed(
        CommitId(chance.unique()),
        latest=stop,
        at_ms=at_ms,
        pieces=folded,
        **tail.marked(writer.producer, mark, note),
    )


def _piece(staged: Staged, first: int, at_ms: int, wall_ms: int) -> Piece:
    batch = staged.batch
    return Piece(
        height=0,
        first=first,
        stop=first + batch.rows,
        rows=batch.rows,
        size_bytes=len(batch.body),
        at_ms=at_ms,
        wall_ms=wall_ms,
        event_max_ms=batch.event_max_ms,
        key=staged.key,
        hash=staged.hash,
    )


class Replaced(Fenced):
    """A later producer of the same name has taken over. Sticky, like any fencing."""

    def __init__(self, producer: str, held: int, newest: int) -> None:
        PenstockError.__init__(
            self,
            f"producer {producer!r}",
            f"was replaced by a later one of its name (its epoch is {held}, the other's {newest})",
            "stop this process; the other one goes on",
        )
        self.held, self.newest, self.by, self.untold = held, newest, producer, ""


def _forgotten(writer: Writer, tail: Tail, last: int) -> Gone | Bug:
    name = f"producer {writer.producer!r} of partition {tail.partition}"
    if writer.producer not in tail.marks:
        return Gone(
            name,
            f"was silent for so long that the log has forgotten it; whether batch {last} is in "
            "cannot be told",
            "read the end of the log to see what is there, then start a new producer",
        )
    known = tail.marks[writer.producer].sequence
    return Bug(name, f"appends what follows batch {last} after {known}", "report this")
