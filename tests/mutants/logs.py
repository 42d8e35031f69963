"""Planted bugs of the embedded log."""

from typing import Any

import msgspec

from penstock.chaos.log_simulation import simulate_log
from penstock.effects import Delete, Fetch, Steps
from penstock.points import Point
from penstock.sources import log_append, log_compact, log_expire, log_look, log_pieces, log_sweep
from penstock.sources.log_tail import Mark, Tail
from tests.mutants.mutant import Mutant

SEEDS_MAX = 4000
NEVER = Mark(0, 0, 0, 0)

honest_not_yet_in = log_append._not_yet_in
honest_replace = log_compact._replace
honest_split = log_pieces.split
honest_expire = log_expire._expire
honest_joined = log_pieces._joined
honest_raise_floor = log_sweep._raise_floor


def by_log_seeds() -> str | None:
    """Caught by the simulator of the log with a random seed."""
    for seed in range(SEEDS_MAX):
        try:
            broken = simulate_log(seed).broken
        except Exception as alarm:  # noqa: BLE001 - any will do
            return f"log seed {seed}: {type(alarm).__name__}"
        if broken:
            return f"log seed {seed}: {broken[0]}"
    return None


def retries_blindly(tail: Any, writer: Any, staged: Any, stops: Any) -> list[Any]:
    """What was sent is sent again, whatever the mark says."""
    if all(each.batch.sequence in stops for each in staged):
        return []
    mark = tail.marks.get(writer.producer, NEVER)
    if mark.sequence >= staged[-1].batch.sequence and tail.latest == mark.stop:
        return honest_not_yet_in(tail, writer, staged, stops)
    forgetful = msgspec.structs.replace(
        tail,
        marks={
            **tail.marks,
            writer.producer: Mark(writer.epoch, staged[0].batch.sequence - 1, 0, 0),
        },
    )
    return honest_not_yet_in(forgetful, writer, staged, stops)


def ignores_the_epoch(tail: Any, writer: Any, staged: Any, stops: Any) -> list[Any]:
    """A zombie passes for the producer whose name it has."""
    mark = tail.marks.get(writer.producer, NEVER)
    same = log_append.Writer(writer.topic, writer.producer, max(mark.epoch, writer.epoch))
    return honest_not_yet_in(tail, same, staged, stops)


def takes_in_what_was_swept(tail: Any, writer: Any, staged: Any, stops: Any) -> list[Any]:
    """Segments below the floor are taken in although a sweep may have removed them."""
    low = msgspec.structs.replace(tail, floor=0)
    return honest_not_yet_in(low, writer, staged, stops)


def keeps_every_mark(self: Any, producer: str, mark: Mark) -> dict[str, Mark]:
    """The mark is not moved on."""
    return {producer: mark, **self.marks}


def deletes_first(seen: Any, retention: Any, now_ms: int, chance: Any) -> Steps[Any]:
    """Segments are deleted before TAIL lets go of them."""
    if seen is not None:
        tail = seen.document
        earliest = yield from log_expire._first_kept(tail, retention, now_ms)
        cut = yield from honest_split(tail.pieces, earliest)
        for piece in cut.before:
            yield Delete(Point.LOG_DELETE, piece.key)
    return (yield from honest_expire(seen, retention, now_ms, chance))


def forgets_those_who_came(
    seen: Any, stop: int, made: Any, reached: Any, chance: Any
) -> Steps[Any]:
    """A compaction puts its own list in place of all there is."""
    while True:
        tail = seen.document
        after = tail.changed(
            chance.unique(), pieces=tuple(made), latest=stop, rewrites=tail.rewrites + 1
        )
        outcome = yield from log_look.swap_tail(tail.partition, seen, after)
        if isinstance(outcome, log_look.Won):
            return None
        seen = outcome.seen


def overlooks_other_compactions(
    seen: Any, stop: int, made: Any, reached: Any, chance: Any
) -> Steps[Any]:
    """What another compaction or a sweep did meanwhile does not matter."""
    began = seen.document
    while True:
        tail = seen.document
        cut = yield from honest_split(tail.pieces, stop)
        gone = yield from log_pieces.walk(cut.before)
        kept = [piece for piece in made if piece.first >= tail.earliest]
        after = tail.changed(
            chance.unique(), pieces=(*kept, *cut.after), compacted_to=stop,
            rewrites=began.rewrites + 1, earliest=kept[0].first if kept else tail.earliest,
        )  # fmt: skip
        outcome = yield from log_look.swap_tail(tail.partition, seen, after)
        if isinstance(outcome, log_look.Won):
            return (*gone, *cut.opened)
        seen = outcome.seen


def sweeps_without_a_floor(topic: str, partition: int, chance: Any) -> Steps[Any]:
    """Whatever is not named now is garbage, also what a producer has just staged."""
    seen = yield from honest_raise_floor(topic, partition, chance)
    if seen is None:
        return None
    high = msgspec.structs.replace(seen.document, floor=seen.document.version + 100)
    return log_look.Seen(high, seen.etag)


def asks_no_first_partition(writer: Any, partition: int, seen: Any) -> Steps[Any]:
    """Whoever comes first to an empty partition is let in."""
    yield from ()
    if seen is not None:
        return seen.document
    return Tail(topic=writer.topic, partition=partition)


def believes_what_it_reads(piece: Any, at: Point) -> Steps[bytes]:
    """A damaged segment passes for what was written."""
    body = yield Fetch(at, piece.key)
    if body is None:
        raise log_pieces.Moved(piece.key, "is not there", "look again")
    return bytes(body)


def page_without_its_last(pieces: Any, key: Any, body_hash: str) -> Any:
    """A page says it ends where its last piece begins."""
    whole = honest_joined(pieces, key, body_hash)
    return msgspec.structs.replace(whole, stop=pieces[-1].first)


MUTANTS = tuple(
    Mutant(f"log: {name}", bug.__doc__ or "", changes, by_log_seeds)
    for name, bug, changes in (
        ("blind retry", retries_blindly, ((log_append, "_not_yet_in", retries_blindly),)),
        ("zombie", ignores_the_epoch, ((log_append, "_not_yet_in", ignores_the_epoch),)),
        (
            "swept",
            takes_in_what_was_swept,
            ((log_append, "_not_yet_in", takes_in_what_was_swept),),
        ),
        ("stuck mark", keeps_every_mark, ((Tail, "with_mark", keeps_every_mark),)),
        ("delete first", deletes_first, ((log_expire, "_expire", deletes_first),)),
        (
            "compaction over appends",
            forgets_those_who_came,
            ((log_compact, "_replace", forgets_those_who_came),),
        ),
        (
            "two compactions",
            overlooks_other_compactions,
            ((log_compact, "_replace", overlooks_other_compactions),),
        ),
        (
            "sweep without a floor",
            sweeps_without_a_floor,
            ((log_sweep, "_raise_floor", sweeps_without_a_floor),),
        ),
        (
            "first comer",
            asks_no_first_partition,
            ((log_append, "_basis", asks_no_first_partition),),
        ),
        (
            "unverified",
            believes_what_it_reads,
            (
                (log_pieces, "body_of", believes_what_it_reads),
                (log_compact, "body_of", believes_what_it_reads),
            ),
        ),
        ("short page", page_without_its_last, ((log_pieces, "_joined", page_without_its_last),)),
    )
)
