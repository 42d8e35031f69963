"""Letters that an older version of Penstock has replayed: from a topic below the root.

There a person's command appended letters to the topic `replays/<operator>`, which the job read like
any other source. A row names its letter without saying which line of history that is of. What the
present line has read of the topic it has replayed; whatever stands behind that is a request which
says nothing of its line, and is not acted upon: the letter stays a letter, to be asked for again.

A row counts only if the letter was there when the row was read. And a root that an older version
has forked kept the offsets without the topic: which letters it has replayed is not known.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.checkpoint.formats import Ref, ref_to
from penstock.checkpoint.manifest import Manifest, SourceProgress
from penstock.checkpoint.perform import Handlers
from penstock.checkpoint.root import Root
from penstock.effects import Entry, Fetch, Get, Page
from penstock.errors import Invalid
from penstock.ids import Epoch, Key
from penstock.runtime.letters import LETTERS, LetterPlace, replays_name
from penstock.sources import Log
from penstock.sources.protocol import Range

__all__ = ["FromTopic", "TopicRow", "replayed_from_topic", "topic_refs", "topic_rows"]

TOPICS = "replays/"
_LETTER = "_letter"
"""The column of such a topic that names the letter."""


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One row that was read."""

    partition: str
    offset: int
    letter: LetterPlace
    read_in: Epoch | None
    """The epoch that read it; None: one that is not kept any more."""
    floor: Epoch
    """The oldest epoch that is kept."""

    @property
    def is_later(self) -> bool:
        """Whether it was read after its letter was set aside, as it must have been."""
        return self.letter[0] < (self.floor if self.read_in is None else self.read_in)


@dataclass(frozen=True, slots=True)
class FromTopic:
    """What is known of the letters that were replayed from a topic."""

    places: frozenset[LetterPlace] = frozenset()
    unknown_below: int = 0
    """Of letters of earlier epochs than this, and not in `places`, it is not known whether they
    were replayed."""


def replayed_from_topic(root: Root, operator: str) -> FromTopic:
    """What the line of history of HEAD has replayed from a topic."""
    newest = root.newest()
    offsets = {} if newest is None else _offsets(newest, operator)
    if not any(offsets.values()):
        return FromTopic()
    rows = list(topic_rows(root, operator))
    genuine = [row for row in rows if row.is_later]
    if len(genuine) == sum(offsets.values()):
        return FromTopic(frozenset(row.letter for row in genuine))
    last = max((_last_read(root, operator), root.head().floor))
    return FromTopic(frozenset(row.letter for row in genuine), last)


def topic_rows(root: Root, operator: str) -> Iterator[TopicRow]:
    """The rows of a topic that the line of history of HEAD has read, as far as they are there."""
    newest, floor = root.newest(), root.head().floor
    if newest is None:
        return
    log = _Topic(root, operator)
    try:
        spans = log.spans()
    except Invalid:  # there is no such topic
        return
    reads = _reads(root, operator)
    for partition, stop in _offsets(newest, operator).items():
        span = spans.get(partition)
        if span is None or not min(stop, span.latest) > span.earliest:
            continue
        wanted = Range(start=span.earliest, stop=min(stop, span.latest))
        for batch in log.read(partition, wanted):
            names = batch.column(_LETTER).to_pylist()
            offsets = batch.column("_meta").field("offset").to_pylist()
            for offset, name in zip(offsets, names, strict=True):
                read_in = _read_in(reads, partition, offset)
                yield TopicRow(partition, offset, _place(name), read_in, floor)


def topic_refs(root: Root, manifest: Manifest) -> Iterator[Ref]:
    """The objects of the topics that a manifest has read letters from: a fork takes them along."""
    operators = [
        name.removesuffix(".replays")
        for name in manifest.sources
        if name == replays_name(name.removesuffix(".replays"))
    ]
    for operator in operators:
        if not any(_offsets(manifest, operator).values()):
            continue
        after = ""
        while page := root.store.list(f"{TOPICS}{operator}/", after):
            after = page[-1].key
            for entry in page:
                stored = root.store.get(entry.key)
                if stored is not None:
                    yield ref_to(entry.key, stored.body)


def _offsets(manifest: Manifest, operator: str) -> dict[str, int]:
    """The next offset to read of each partition of the topic."""
    progress = manifest.sources.get(replays_name(operator), SourceProgress())
    return {part: at for part, at in progress.resume_at.items() if part != LETTERS}


class _Topic(Log):
    """The topic of an operator's letters, read through the root that it lies in."""

    def __init__(self, root: Root, operator: str) -> None:
        super().__init__(f"{TOPICS}{operator}")
        self._root = root

    @property
    def _handlers(self) -> Handlers:
        below, theirs = f"{self.url}/", self._root.handlers

        def get(effect: Get | Fetch) -> Any:
            return theirs[type(effect)](replace(effect, key=Key(below + effect.key)))

        def page(effect: Page) -> list[Entry]:
            after = below + effect.after if effect.after else ""
            found = theirs[Page](replace(effect, prefix=below + effect.prefix, after=after))
            return [replace(each, key=Key(each.key.removeprefix(below))) for each in found]

        return {**theirs, Get: get, Fetch: get, Page: page}


Reads = Mapping[str, list[tuple[Range, Epoch]]]


def _reads(root: Root, operator: str) -> Reads:
    """Which kept epochs have read which ranges of the topic."""
    found: dict[str, list[tuple[Range, Epoch]]] = {}
    for manifest in root.history():
        progress = manifest.sources.get(replays_name(operator), SourceProgress())
        for partition, range_ in progress.ranges.items():
            if partition != LETTERS:
                found.setdefault(partition, []).append((range_, manifest.epoch))
    return found


def _read_in(reads: Reads, partition: str, offset: int) -> Epoch | None:
    mine = reads.get(partition, [])
    return next((epoch for range_, epoch in mine if range_.start <= offset < range_.stop), None)


def _last_read(root: Root, operator: str) -> Epoch:
    """The last kept epoch that has read from the topic."""
    epochs = [epoch for each in _reads(root, operator).values() for _, epoch in each]
    return max(epochs, default=Epoch(0))


def _place(name: str) -> LetterPlace:
    epoch, partition, sequence = (int(part) for part in name.split("/"))
    return epoch, partition, sequence
