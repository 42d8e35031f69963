"""Pieces: finding offsets in the tree below TAIL, cutting it in two, and folding it.

Objects are never changed, and each is named together with its hash. So what is read is either
what was written or known to be damaged; and when an object is missing, TAIL tells whether that is
because others went on meanwhile.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import xxhash

from penstock.clock import Chance
from penstock.effects import Fetch, Put, Steps, Wait
from penstock.errors import Corrupt, Unavailable
from penstock.ids import Key
from penstock.points import Point
from penstock.sources.log_layout import page_key
from penstock.sources.log_tail import Piece, Tail

__all__ = [
    "Moved",
    "Split",
    "body_of",
    "children",
    "covering",
    "fold",
    "hash_of",
    "reach",
    "split",
    "walk",
]

READS_MAX = 4
PAUSE_S = 0.05


class Moved(Unavailable):
    """An object is not where TAIL said: TAIL has changed, or the object is lost. Look again."""


@dataclass(frozen=True, slots=True)
class Split:
    """A list of pieces cut in two, and the pages that were taken apart for it."""

    before: tuple[Piece, ...]
    after: tuple[Piece, ...]
    opened: tuple[Piece, ...] = ()


def hash_of(body: bytes) -> str:
    """What an object is known by. Guards against damage, not against malice."""
    return xxhash.xxh3_128_hexdigest(body)


def body_of(piece: Piece, at: Point) -> Steps[bytes]:
    """The object of a piece, verified. `Moved` if it is not there."""
    for remaining in reversed(range(READS_MAX)):
        body: bytes | None = yield Fetch(at, piece.key)
        if body is not None and hash_of(body) == piece.hash:
            return body
        if not remaining:
            break
        yield Wait(PAUSE_S)  # a wire may flip a bit, or a cache forget, once
    if body is None:
        raise Moved(piece.key, "is not there", "look at TAIL again")
    raise Corrupt(
        piece.key,
        f"is damaged: offsets {piece.first} up to {piece.stop} cannot be read",
        "restore this object from a copy; what is before and after it can be read",
    )


def children(piece: Piece) -> Steps[tuple[Piece, ...]]:
    """The pieces listed in a page."""
    body = yield from body_of(piece, Point.LOG_READ_PAGE)
    try:
        found = msgspec.json.decode(body, type=tuple[Piece, ...])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _no_page(piece, str(error)) from error
    if any(child.height != piece.height - 1 for child in found):  # or reading might never end
        raise _no_page(piece, "its pieces are of another height")
    if not _meet(piece, found):  # or a few small pages might list more than any memory holds
        raise _no_page(piece, "its pieces do not meet, or are not those of its offsets")
    return found


def _meet(page: Piece, found: Sequence[Piece]) -> bool:
    """Whether pieces cover the offsets of their page one after the other, each with some."""
    stops = [page.first, *(piece.stop for piece in found)]
    firsts = [*(piece.first for piece in found), page.stop]
    return stops == firsts and all(piece.first < piece.stop for piece in found)


def _no_page(piece: Piece, why: str) -> Corrupt:
    return Corrupt(piece.key, f"is no page ({why})", "restore this object from a copy")


def covering(pieces: Sequence[Piece], start: int, stop: int) -> Steps[list[Piece]]:
    """The segments that hold offsets from `start` up to `stop`, in order."""
    found: list[Piece] = []
    for piece in _overlapping(pieces, start, stop):
        if piece.height == 0:
            found.append(piece)
        else:
            inside = yield from children(piece)
            found += yield from covering(inside, start, stop)
    return found


def _overlapping(pieces: Sequence[Piece], start: int, stop: int) -> Iterator[Piece]:
    return (piece for piece in pieces if piece.first < stop and piece.stop > start)


def walk(pieces: Sequence[Piece]) -> Steps[list[Piece]]:
    """Every piece there is, pages and segments."""
    found: list[Piece] = []
    for piece in pieces:
        found.append(piece)
        if piece.height:
            found += yield from walk((yield from children(piece)))
    return found


def reach(pieces: Sequence[Piece]) -> Steps[set[int]]:
    """Hashes of the names of everything there is: all that is kept of it, for there may be much."""
    found = {hash(piece.key) for piece in pieces}
    for piece in pieces:
        if piece.height:
            found |= yield from reach((yield from children(piece)))
    return found


def split(pieces: Sequence[Piece], offset: int) -> Steps[Split]:
    """Cut at an offset, between two segments: the one that holds it goes behind the cut."""
    before = tuple(piece for piece in pieces if piece.stop <= offset)
    after = tuple(piece for piece in pieces[len(before) :])
    if not after or after[0].first >= offset or after[0].height == 0:
        return Split(before, after)
    inside: Split = yield from split((yield from children(after[0])), offset)
    opened = (after[0], *inside.opened)
    return Split((*before, *inside.before), (*inside.after, *after[1:]), opened)


def fold(tail: Tail, pieces: Sequence[Piece], chance: Chance) -> Steps[tuple[Piece, ...]]:
    """The same with the beginning of every run of more than twice a page's worth folded into one.

    A crash here leaves a page that nothing names; a sweep removes it.
    """
    folded = tuple(pieces)
    while (at := _long_run(folded, 2 * tail.fan)) is not None:
        inside = folded[at : at + tail.fan]
        body = msgspec.json.encode(inside)
        key = page_key(tail.partition, tail.version, chance.unique())
        yield Put(Point.LOG_PAGE, key, body)
        folded = (*folded[:at], _joined(inside, key, hash_of(body)), *folded[at + tail.fan :])
    return folded


def _long_run(pieces: Sequence[Piece], length_max: int) -> int | None:
    """Where the first run of more than `length_max` pieces of one height begins."""
    begin = 0
    for at, piece in enumerate(pieces):
        if piece.height != pieces[begin].height:
            begin = at
        if at - begin >= length_max:
            return begin
    return None


def _joined(pieces: Sequence[Piece], key: Key, body_hash: str) -> Piece:
    """The page that lists these pieces."""
    events = [piece.event_max_ms for piece in pieces if piece.event_max_ms is not None]
    return Piece(
        height=pieces[0].height + 1,
        first=pieces[0].first,
        stop=pieces[-1].stop,
        rows=sum(piece.rows for piece in pieces),
        size_bytes=sum(piece.size_bytes for piece in pieces),
        at_ms=pieces[-1].at_ms,
        wall_ms=max(piece.wall_ms for piece in pieces),
        event_max_ms=max(events) if events else None,
        key=key,
        hash=body_hash,
    )
