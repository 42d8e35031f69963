"""The witness's view of dead letters: where every event counts, worked out from plain records.

An event that was read is processed, or is an open letter, in each line of history once. The witness
follows that by the offsets an epoch has read and by the rows of its sink alone, and compares the
two tables of letters with it. So a rewind and a fork need no rule of their own: each epoch
remembers its own letters.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.chaos.actions import Action
from penstock.chaos.model_workload import DEAD, REPLAYED, Place

__all__ = ["LetterTruth", "Post"]

Letter = tuple[str, int]
"""The file of a letter, and the number of its row."""

ReadFile = Callable[[dict[str, Any]], bytes | None]
"""The bytes of an object that a manifest names."""


_ONE_THREAD = pa.ipc.IpcReadOptions(use_threads=False)
"""Threads cost more than these few rows do."""


@dataclass(frozen=True, slots=True)
class Post:
    """The letters of one line of history as of an epoch."""

    open: dict[Place, Letter] = field(default_factory=dict)
    """The events that were set aside and not processed since, and the letter that holds each."""
    replayed: frozenset[Letter] = frozenset()


@dataclass(frozen=True, slots=True)
class _Epoch:
    """What an epoch says of its events."""

    read: set[Place]
    processed: Counter[Place]
    born: dict[Place, Letter]
    replayed: dict[Letter, Place]


class LetterTruth:
    """Every request that was made, and the judge of what became of it."""

    def __init__(self, poison: frozenset[Place], broken: Callable[[str, str], None]) -> None:
        self._poison = poison
        self._break = broken
        self._asked: dict[str, tuple[int, frozenset[Letter]]] = {}
        """By the name of the request: the generation, and the letters."""
        self._confirmed: set[str] = set()
        self.actions: Counter[Action] = Counter()
        """Actions that only a witness can count."""

    def asked(self, request: str, generation: int, letters: list[Letter]) -> None:
        """A person is about to make a request."""
        self._asked[request] = (generation, frozenset(letters))

    def confirmed(self, request: str) -> None:
        """A person was told that a request is made."""
        self._confirmed.add(request)

    def judge(
        self, manifest: dict[str, Any], rows: list[Place], before: Post, read_file: ReadFile
    ) -> Post:
        """Judge the letters and replays of an epoch; the letters as of it."""
        done = _Epoch(_places(manifest), Counter(rows), {}, {})
        self._judge_counts(done, before)
        for output in manifest["sinks"][DEAD]:
            self._read_letters(output["ref"], done, read_file)
        for output in manifest["sinks"][REPLAYED]:
            for row in _rows(read_file(output["ref"])):
                letter = (row["_letter_file"], row["_letter_sequence"])
                self._judge_replay(letter, _place(row), before, manifest["generation"])
                done.replayed[letter] = _place(row)
        for place in done.born.keys() - done.read - set(done.replayed.values()):
            self._break("I20", f"event {place} has a new letter, and was neither read nor replayed")
        kept = {at: letter for at, letter in before.open.items() if letter not in done.replayed}
        after = Post({**kept, **done.born}, before.replayed | done.replayed.keys())
        aside = {*done.read, *before.open} - done.processed.keys()
        if after.open.keys() != aside:
            self._break("I20", f"the open letters are {sorted(after.open)}, not {sorted(aside)}")
        self._count(done)
        return after

    def judge_requests(self, present: list[str], generation: int, post: Post) -> None:
        """At the end of a run no request stays that is fulfilled or of an old line, and none is
        left to be obeyed."""
        for request in present:
            asked_in, letters = self._asked.get(request, (-1, frozenset()))
            if asked_in != generation:
                self._break("I9", f"{request} stays in generation {generation}")
            elif letters <= post.replayed:
                self._break("I9", f"{request} stays, and is fulfilled")
        for request in sorted({*present, *self._confirmed}):
            asked_in, letters = self._asked.get(request, (-1, frozenset()))
            if asked_in == generation and not letters.isdisjoint(post.open.values()):
                self._break("I15", f"{request} was not obeyed")

    def went_back(self, before: Post, after: Post) -> None:
        """History was rewound: count the replays that are taken back."""
        self.actions[Action.TAKE_BACK] += len(before.replayed - after.replayed)

    def _judge_counts(self, done: _Epoch, before: Post) -> None:
        """By offsets and rows alone: each event is read once, and processed or set aside."""
        for place, times in done.processed.items():
            if times > 1 or (place not in done.read and place not in before.open):
                self._break("I2", f"event {place} is counted again")
        for place in done.read - done.processed.keys() - self._poison:
            self._break("I1", f"event {place} was read and is not counted")

    def _read_letters(self, ref: dict[str, Any], done: _Epoch, read_file: ReadFile) -> None:
        for row in _rows(read_file(ref)):
            if _place(row) in done.born:
                self._break("I20", f"event {_place(row)} has two letters")
            done.born[_place(row)] = (ref["key"], row["_sequence"])

    def _judge_replay(self, letter: Letter, place: Place, before: Post, generation: int) -> None:
        if before.open.get(place) != letter:
            self._break("I20", f"{letter} was replayed, and is no open letter of this line")
        if not any(letter in of for made_in, of in self._asked.values() if made_in == generation):
            self._break("I20", f"{letter} was replayed unasked in generation {generation}")

    def _count(self, done: _Epoch) -> None:
        again = done.born.keys() & set(done.replayed.values())
        self.actions[Action.LETTER] += len(done.born)
        self.actions[Action.REPLAY] += len(done.replayed) - len(again)
        self.actions[Action.REPLAY_IN_VAIN] += len(again)


def _places(manifest: dict[str, Any]) -> set[Place]:
    """The events of the source that an epoch has read."""
    ranges = manifest["sources"]["events"]["ranges"]
    return {
        (int(source), offset)
        for source, read in ranges.items()
        for offset in range(read["start"], read["stop"])
    }


def _rows(body: bytes | None) -> Iterator[dict[str, Any]]:
    if body is None:
        return
    file = pa.ipc.open_file(pa.py_buffer(body), options=_ONE_THREAD)
    for number in range(file.num_record_batches):
        yield from file.get_batch(number).to_pylist()


def _place(row: dict[str, Any]) -> Place:
    return row["source"], row["offset"]
